"""Adapters of ``dra.allocate``, ``dra.missed`` and ``dra.sequence``: claims in, allocations out, both modes.

Each case is answered twice. First fit must give the very devices, none, or an error of the same kind. The
exact answer is judged by the independent checker, and by the best alternatives that the case tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from koordcore.allocators.claims import (
    AllocationMode,
    ClaimError,
    ClaimErrorKind,
    ClaimOutcome,
    ClaimsAllocated,
    ClaimsRefused,
    allocate_claims,
    room_of,
)
from koordcore.manifests.claim_status import allocation_manifest
from koordcore.manifests.resource_slices import as_amounts
from koordcore.model.claims import ClaimAllocation, ResourceClaim
from tests.conformance import Case, Verdict, subject
from tests.conformance.claim_objects import World, claim_of, held_of
from tests.conformance.core import difference

_WORLDS: dict[tuple[str, str], World] = {}
_SHARE = "shareID"
_OF_ALL = ("all-constraint", "all-incomplete", "all-invalid")
"""Errors about sets of all devices, which end the reference's search although an alternative may fit."""


def world_of(case: Case) -> tuple[World, str]:
    """The world of a case, read once, and the name of its node."""
    name = case.input.get("world")
    if name is None:
        given = case.input
        world = World(given["slices"], given["classes"], [given["node"]], given.get("features"))
        return world, given["node"]["metadata"]["name"]
    table = case.tables["worlds"][name]
    if (case.subject, name) not in _WORLDS:
        _WORLDS[case.subject, name] = World(table["slices"], case.tables["classes"], [table["node"]])
    return _WORLDS[case.subject, name], table["node"]["metadata"]["name"]


def normal(allocation: Mapping[str, Any]) -> dict[str, Any]:
    """An allocation as it is compared: ids of shares by presence, amounts by value."""
    devices = dict(allocation.get("devices") or {})
    results = []
    for one in devices.get("results") or []:
        result = {key: value for key, value in one.items() if key != _SHARE and value not in (None, [], {})}
        if "consumedCapacity" in one:
            result["consumedCapacity"] = as_amounts(one["consumedCapacity"])
        if "tolerations" in one:
            result["tolerations"] = [{"operator": "Equal", **each} for each in one["tolerations"]]
        results.append(result | ({_SHARE: True} if one.get(_SHARE) else {}))
    found: dict[str, Any] = {"results": results, "config": devices.get("config") or []}
    found["nodeSelector"] = allocation.get("nodeSelector")
    return found


def as_json(outcome: ClaimOutcome) -> Any:
    """An outcome as the vectors write it."""
    match outcome:
        case ClaimsAllocated():
            return {"allocated": [allocation_manifest(one) for one in outcome.allocations]}
        case ClaimsRefused():
            return {"allocated": None}
        case ClaimError():
            return {"error": {"kind": outcome.kind.value, "text": outcome.text, "onNode": outcome.on_node}}


def from_json(case: Case, written: Mapping[str, Any]) -> ClaimOutcome:
    """An outcome as it was written."""
    if set(written) == {"error"}:
        error = written["error"]
        return ClaimError(ClaimErrorKind(error["kind"]), error["text"], error["onNode"])
    if set(written) != {"allocated"}:
        raise ValueError(f"no outcome: {sorted(written)}")
    if written["allocated"] is None:
        return ClaimsRefused()
    claims = zip(case.input["claims"], written["allocated"], strict=True)
    read = [claim_of({**raw, "status": {"allocation": one}}).allocation for raw, one in claims]
    return ClaimsAllocated(tuple(one for one in read if one is not None))


def places(claims: Sequence[ResourceClaim], allocations: Sequence[ClaimAllocation]) -> list[int]:
    """By prioritized request, in order: the place of the alternative taken."""
    found = []
    for claim, allocation in zip(claims, allocations, strict=True):
        taken = {result.request for result in allocation.results}
        for request in claim.spec.requests:
            if request.prioritized:
                names = [f"{request.name}/{form.name}" for form in request.forms]
                found.append(next(place for place, name in enumerate(names) if name in taken))
    return found


def wanted_places(case: Case, claims: Sequence[ResourceClaim]) -> list[int] | None:
    """The places of the alternatives that are the best there are, or that the reference took."""
    expected = case.raw["expect"].get("allocated")
    if expected is None:
        return None
    by_claim = [{result["request"] for result in one["devices"].get("results") or []} for one in expected]
    better = {
        (entry["claim"], entry["request"]): entry["subrequest"]
        for entry in (case.raw.get("better") or {}).get("subrequests", [])
    }
    found = []
    for number, claim in enumerate(claims):
        for request in claim.spec.requests:
            if request.prioritized:
                names = [form.name for form in request.forms]
                told = better.get((number, request.name))
                taken = next(n for n in names if f"{request.name}/{n}" in by_claim[number])
                found.append(names.index(told or taken))
    return found


def judge_error(case: Case, error: ClaimError) -> str:
    """An error is right where one of its kind is expected, or where it says of a search that nothing fits."""
    expected = case.raw["expect"]
    selectors = (ClaimErrorKind.CEL_RUNTIME, ClaimErrorKind.CEL_COMPILE)
    if case.raw.get("mixed") and error.kind in selectors:
        return ""
    if "error" in expected:
        same = (error.kind.value, error.on_node) == (expected["error"]["kind"], expected["error"]["onNode"])
        return "" if same else f"expected {expected['error']['kind']}, got {error.kind}: {error.text}"
    if error.kind is ClaimErrorKind.INVALID_POOL and case.raw.get("derived") and not expected["feasible"]:
        # Nothing fits; that a pool of the node is invalid is what the reference would have added.
        return ""
    return f"expected {list(expected)}, got {error.kind}: {error.text}"


def illegal(case: Case, outcome: ClaimOutcome) -> str:
    """Say what is illegal about an allocation; empty for nothing, and for an answer without one."""
    if not isinstance(outcome, ClaimsAllocated):
        return ""
    world, node = world_of(case)
    checker = world.checker()
    held_of(case.input, world.features, checker)
    claims = [claim_of(raw) for raw in case.input["claims"]]
    wrong = checker.check(world.nodes[node].checked, list(zip(claims, outcome.allocations, strict=True)))
    return f"not legal: {'; '.join(wrong)}" if wrong else ""


def judge_exact(case: Case, outcome: ClaimOutcome) -> str:
    """Say what is wrong with the exact answer; empty for nothing."""
    expected = case.raw["expect"]
    claims = [claim_of(raw) for raw in case.input["claims"]]
    match outcome:
        case ClaimError():
            return judge_error(case, outcome)
        case ClaimsRefused():
            kind = (expected.get("error") or {}).get("kind")
            fits = expected.get("feasible") or expected.get("allocated") is not None
            return "refused although something fits" if fits or kind not in (None, "all-constraint") else ""
        case ClaimsAllocated():
            if wrong := illegal(case, outcome):
                return wrong
            error = (expected.get("error") or {}).get("kind")
            if error is not None and not (case.raw.get("mixed") or error in _OF_ALL):
                return f"expected {error}, got an allocation"
            best = wanted_places(case, claims)
            mine = places(claims, outcome.allocations)
            return f"alternatives {mine}, {best} are possible" if best is not None and mine > best else ""


def judge_first_fit(case: Case, answer: Any) -> str:
    """Say where the answer of first fit differs; only where the case tells what it is."""
    expected = case.raw["expect"]
    if case.raw.get("order") != "matters":
        none = answer == {"allocated": None} or answer.get("error", {}).get("kind") == "invalid-pool"
        return "" if expected.get("feasible") or none else f"got {answer}"
    if "error" in expected:
        if expected["error"]["kind"] == "all-constraint" and answer == {"allocated": None}:
            return ""
        mine = answer.get("error") or {}
        same = all(mine.get(key) == expected["error"][key] for key in ("kind", "onNode"))
        return "" if same else f"expected {expected['error']['kind']}, got {answer}"
    if "error" in answer:
        return f"got {answer}"

    def normalised(value: Any) -> Any:
        return None if value is None else [normal(one) for one in value]

    return difference(normalised(expected["allocated"]), normalised(answer["allocated"]))


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Both modes must be right; the exact one may be better."""
    exact = answer["exact"]
    outcome = from_json(case, exact)
    first = answer.get("first-fit")
    wrong = []
    if first is not None:
        told = judge_first_fit(case, first) or illegal(case, from_json(case, first))
        wrong += [f"first-fit: {told}"] if told else []
    wrong += [f"exact: {text}" for text in (judge_exact(case, outcome),) if text]
    if wrong:
        return Verdict.WRONG, "\n".join(wrong)
    same = "allocated" in exact and not judge_first_fit(case, exact) and case.raw.get("order") == "matters"
    return (Verdict.EQUAL if same or "error" in exact or exact == {"allocated": None} else Verdict.BETTER), ""


@subject("dra.missed", judge=judge)
@subject("dra.allocate", judge=judge)
def allocate(case: Case) -> Any:
    world, node = world_of(case)
    claims = [claim_of(raw) for raw in case.input["claims"]]
    room = room_of(world.nodes[node].table, held_of(case.input, world.features, world.checker()))
    missed = case.subject == "dra.missed"
    modes = (AllocationMode.EXACT,) if missed else (AllocationMode.EXACT, AllocationMode.FIRST_FIT)
    outcomes = {mode: allocate_claims(room, claims, world.classes, mode=mode) for mode in modes}
    exact = outcomes[AllocationMode.EXACT]
    return {"exact": as_json(exact)} | (
        {} if missed else {"first-fit": as_json(outcomes[AllocationMode.FIRST_FIT])}
    )
