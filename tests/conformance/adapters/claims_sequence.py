"""Adapter of ``dra.sequence``: a stream of pods with claims over several nodes, in both modes.

First fit must take the very steps. In exact mode every step is checked where it is taken, and that a pod was
refused by every node is compared with the integer program over all claims at once, which shares nothing with
the counting that refused it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from koordcore.allocators.claims import (
    AllocationMode,
    ClaimError,
    ClaimsAllocated,
    Room,
    allocate_claims,
    devices_in_use,
    room_of,
)
from koordcore.allocators.claims.exact.program import solve_question
from koordcore.allocators.claims.exact.question import make_question
from koordcore.allocators.claims.requests import read_claims
from koordcore.manifests.claim_status import allocation_manifest
from koordcore.model.certificates import Limits
from koordcore.model.claims import ClaimAllocation, ResourceClaim
from tests.conformance import Case, Verdict, subject
from tests.conformance.adapters.claims import normal
from tests.conformance.claim_objects import World, claim_of
from tests.conformance.core import difference

_CLUSTERS: dict[str, World] = {}


@attrs.define
class Stream:
    """The state of a stream: what every pod was allocated."""

    world: World
    held: dict[str, tuple[ClaimAllocation, ...]] = attrs.field(factory=dict)

    def room(self, node: str) -> Room:
        allocations = [one for mine in self.held.values() for one in mine]
        return room_of(self.world.nodes[node].table, devices_in_use(allocations, self.world.features))

    def place(self, claims: list[ResourceClaim], mode: AllocationMode) -> dict[str, Any]:
        """Try the nodes in order; the first that takes the claims has them."""
        refused: dict[str, str] = {}
        for node in self.world.nodes:
            outcome = allocate_claims(self.room(node), claims, self.world.classes, mode=mode)
            if isinstance(outcome, ClaimsAllocated):
                return {"node": node, "allocations": outcome.allocations, "refused": refused}
            refused[node] = outcome.kind.value if isinstance(outcome, ClaimError) else "none"
            if isinstance(outcome, ClaimError) and not outcome.on_node:
                break
        return {"node": None, "allocations": None, "refused": refused}


def cluster_of(case: Case) -> World:
    name = case.input["cluster"]
    if name not in _CLUSTERS:
        cluster = case.tables["clusters"][name]
        _CLUSTERS[name] = World(cluster["slices"], case.tables["classes"], cluster["nodes"])
    return _CLUSTERS[name]


def steps_of(case: Case, mode: AllocationMode) -> list[dict[str, Any]]:
    """Play the stream in one mode."""
    stream = Stream(cluster_of(case))
    steps: list[dict[str, Any]] = []
    for event in case.input["events"]:
        if "release" in event:
            stream.held.pop(event["release"], None)
            steps.append({"release": event["release"]})
            continue
        step = stream.place([claim_of(raw) for raw in event["claims"]], mode)
        if step["allocations"] is not None:
            stream.held[event["pod"]] = step["allocations"]
        steps.append({"pod": event["pod"], **step})
    return steps


def written(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step as the vectors write it."""
    if "release" in step:
        return dict(step)
    allocations = step["allocations"]
    found: dict[str, Any] = {"pod": step["pod"], "node": step["node"], "allocated": None}
    if allocations is not None:
        found["allocated"] = [normal(allocation_manifest(one)) for one in allocations]
    return found | ({"refused": step["refused"]} if step["refused"] else {})


def expected_step(step: Mapping[str, Any]) -> dict[str, Any]:
    if "release" in step:
        return dict(step)
    allocated = step.get("allocated")
    found = {"pod": step["pod"], "node": step.get("node")}
    found["allocated"] = None if allocated is None else [normal(one) for one in allocated]
    return found | ({"refused": step["refused"]} if step.get("refused") else {})


def check_steps(case: Case, steps: list[dict[str, Any]]) -> str:
    """Say what is wrong with the steps of exact mode; empty for nothing."""
    world = cluster_of(case)
    held: dict[str, tuple[ClaimAllocation, ...]] = {}
    for event, step in zip(case.input["events"], steps, strict=True):
        if "release" in event:
            held.pop(event["release"], None)
            continue
        claims = [claim_of(raw) for raw in event["claims"]]
        if step["allocations"] is not None:
            checker = world.checker()
            for mine in held.values():
                checker.hold([result for one in mine for result in one.results])
            wrong = checker.check(
                world.nodes[step["node"]].checked, list(zip(claims, step["allocations"], strict=True))
            )
            if wrong:
                return f"{event['pod']}: {'; '.join(wrong)}"
            held[event["pod"]] = step["allocations"]
            continue
        stream = Stream(world, held)
        for node in world.nodes:
            room = stream.room(node)
            forms = read_claims(room.table, claims, world.classes)
            if isinstance(forms, ClaimError):
                continue
            if solve_question(make_question(room, forms), Limits(deterministic_time=20.0)) is not None:
                return f"{event['pod']}: refused, and {node} could take it"
    return ""


def placed(steps: list[Any]) -> int:
    return sum(1 for step in steps if step.get("node"))


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    expected = case.raw["expect"]
    first = difference(
        [expected_step(one) for one in expected["steps"]], [written(one) for one in answer["first-fit"]]
    )
    if first:
        return Verdict.WRONG, f"first-fit: {first}"
    wrong = check_steps(case, answer["exact"])
    if wrong:
        return Verdict.WRONG, f"exact: {wrong}"
    mine = placed(answer["exact"])
    told = f"placed {mine}, the reference {expected['placed']}, all fit: {case.raw.get('fitsAll')}"
    same = [written(one) for one in answer["exact"]] == [expected_step(one) for one in expected["steps"]]
    return (Verdict.EQUAL if same else Verdict.BETTER), told


@subject("dra.sequence", judge=judge)
def sequence(case: Case) -> Any:
    modes = {"exact": AllocationMode.EXACT, "first-fit": AllocationMode.FIRST_FIT}
    return {name: steps_of(case, mode) for name, mode in modes.items()}
