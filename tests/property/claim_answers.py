"""Questions about claims on a small node, and what allocator, reference and checker say to them.

* First fit takes the very devices that the reference takes, refuses where it refuses, and errs where it errs.
* The exact answer is found exactly where trying everything finds one, with the best alternatives.
* Both are legal by the checker's own reading, and a refusal says what is lacking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from hypothesis import assume

from koordcore.allocators.claims import (
    AllocationMode,
    CelCompiler,
    ClaimError,
    ClaimOutcome,
    ClaimsAllocated,
    ClaimsRefused,
    DeviceView,
    Room,
    SelectorFault,
    allocate_claims,
    room_of,
)
from koordcore.model.claims import ResourceClaim
from koordcore.model.device_slices import AttributeValue, SliceDevice
from tests.conformance.adapters.claims import places
from tests.conformance.claim_objects import NodeInput, World, claim_of, held_of
from tests.property.claim_worlds import DRIVER
from tests.reference import claims_first_fit as literal

_SELECTOR_ERRORS = ("cel-compile", "cel-runtime")


class _Answers:
    """Answers of expressions, each worked out once."""

    def __init__(self, compiler: CelCompiler) -> None:
        self._compiler = compiler
        self._known: dict[tuple[str, str, int], bool | str] = {}

    def selects(self, expression: str, driver: str, device: SliceDevice) -> bool | str:
        key = (expression, driver, id(device))
        if key not in self._known:
            selector = self._compiler.selector(expression)
            answer = selector if isinstance(selector, SelectorFault) else selector(DeviceView(driver, device))
            if isinstance(answer, SelectorFault):
                self._known[key] = _SELECTOR_ERRORS[answer.compiles]
            else:
                self._known[key] = answer
        return self._known[key]

    def derives(self, expression: str, driver: str, device: SliceDevice) -> AttributeValue | str | None:
        found = self._compiler.derivation(expression)
        answer = found if isinstance(found, SelectorFault) else found(DeviceView(driver, device))
        return "derived" if isinstance(answer, SelectorFault) else answer


@attrs.frozen(eq=False)
class Asked:
    """One case with what the allocator, the reference and the checker are asked."""

    raw: Mapping[str, Any]
    world: World
    node: NodeInput
    claims: Sequence[ResourceClaim]
    room: Room
    literal: literal.World

    def outcome(self, mode: AllocationMode = AllocationMode.EXACT) -> ClaimOutcome:
        return allocate_claims(self.room, self.claims, self.world.classes, mode=mode)

    def illegal(self, found: ClaimsAllocated) -> list[str]:
        checker = self.world.checker()
        held_of(self.raw, self.world.features, checker)
        return checker.check(self.node.checked, list(zip(self.claims, found.allocations, strict=True)))


def asked_of(raw: Mapping[str, Any]) -> Asked:
    """Read a case of the kind of ``dra.allocate``."""
    world = World(raw["slices"], raw["classes"], [raw["node"]], raw.get("features"))
    node = next(iter(world.nodes.values()))
    in_use = held_of(raw, world.features, world.checker())
    answers = _Answers(world.compiler)
    told = literal.World(
        node=node.view.name,
        labels=node.view.labels,
        able=node.view.features,
        slices=world.slices,
        classes={name: one.selectors for name, one in world.classes.items()},
        selects=answers.selects,
        derives=answers.derives,
        on=frozenset(one.value for one in world.features),
        whole=in_use.dedicated,
        shares=frozenset(in_use.shares),
        consumed=in_use.consumed,
    )
    return Asked(
        raw, world, node, [claim_of(one) for one in raw["claims"]], room_of(node.table, in_use), told
    )


def check_first_fit(asked: Asked) -> None:
    """First fit takes what the reference takes."""
    try:
        wanted = literal.first_fit(asked.literal, asked.claims)
    except literal.GaveUp:
        assume(False)
    outcome = asked.outcome(AllocationMode.FIRST_FIT)
    match outcome:
        case ClaimsAllocated():
            assert [[(one.request, one.id) for one in each.results] for each in outcome.allocations] == wanted
            assert asked.illegal(outcome) == []
        case ClaimsRefused():
            assert wanted is None
        case ClaimError():
            assert outcome.kind.value == wanted


def check_exact(asked: Asked) -> None:
    """The exact answer is that of trying everything."""
    try:
        first = literal.first_fit(asked.literal, asked.claims)
        best = literal.best_alternatives(asked.literal, asked.claims)
    except literal.GaveUp:
        assume(False)
    outcome = asked.outcome()
    match outcome:
        case ClaimsAllocated() | ClaimsRefused() if best in ("all-incomplete", "all-invalid"):
            # Pools without a device for a set of all are no reason to know nothing of it.
            assert isinstance(outcome, ClaimsRefused) or asked.illegal(outcome) == []
        case ClaimsAllocated():
            assert best == tuple(places(asked.claims, outcome.allocations))
            assert asked.illegal(outcome) == []
            assert not isinstance(first, str) or first in (*_SELECTOR_ERRORS, "all-constraint")
        case ClaimsRefused():
            assert best is None
            assert first in (None, "all-constraint")
        case ClaimError() if outcome.kind.value in _SELECTOR_ERRORS:
            # A device on which a selector fails is left out; the error is the answer where nothing fits then.
            assert best is None or isinstance(best, str)
        case ClaimError():
            assert outcome.kind.value == first


def told(outcome: ClaimOutcome) -> list[list[str]] | str | None:
    """Say an outcome in short: the devices of each claim by name, the kind of an error, or nothing."""
    match outcome:
        case ClaimsAllocated():
            return [[one.device for one in each.results] for each in outcome.allocations]
        case ClaimsRefused():
            return None
        case ClaimError():
            return outcome.kind.value


def answers(raw: Mapping[str, Any]) -> list[list[list[str]] | str | None]:
    """What first fit and the exact search answer to a case, both checked against the reference."""
    asked = asked_of(raw)
    check_first_fit(asked)
    check_exact(asked)
    return [told(asked.outcome(mode)) for mode in (AllocationMode.FIRST_FIT, AllocationMode.EXACT)]


# --- cases written by hand ----------------------------------------------------------------------------


def node_case(
    devices: list[dict[str, Any]], counters: list[dict[str, Any]], claims: list[Any], **more: Any
) -> dict[str, Any]:
    """One pool of a node, and what each claim asks for; ``more`` says what is held, or other classes."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    place = {"driver": DRIVER, "pool": pool, "nodeName": "n1"}
    return {
        "node": {"metadata": {"name": "n1"}},
        "classes": [{"metadata": {"name": "all"}, "spec": {}}],
        "slices": [
            {"metadata": {"name": "a"}, "spec": {**place, "devices": devices}},
            {"metadata": {"name": "b"}, "spec": {**place, "sharedCounters": counters}},
        ],
        "claims": [
            {"metadata": {"name": f"c{place}", "namespace": "default"}, "spec": {"devices": one}}
            for place, one in enumerate(claims)
        ],
        **more,
    }


def counter_set(name: str, **amounts: int) -> dict[str, Any]:
    """A card's counters."""
    return {"name": name, "counters": _amounts(amounts)}


def _amounts(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def draws(counters: str, *groups: str, **amounts: int) -> dict[str, Any]:
    """What a device consumes of one card."""
    found: dict[str, Any] = {"counterSet": counters, "counters": _amounts(amounts)}
    return {**found, "compatibilityGroups": list(groups)} if groups else found


def partition(name: str, number: int, *groups: str) -> dict[str, Any]:
    """A device that draws one unit of the card ``s``."""
    return {
        "name": name,
        "attributes": {"i": {"int": number}},
        "consumesCounters": [draws("s", *groups, a=1)],
    }


def request(name: str, **more: Any) -> dict[str, Any]:
    """A request for one device, whichever."""
    return {"name": name, "exactly": {"deviceClassName": "all", **more}}


def where(text: str) -> dict[str, Any]:
    """A selector of a request, over an attribute."""
    return {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].{text}"}}]}


def held(*names: str) -> dict[str, Any]:
    """Devices of the pool that claims hold whole."""
    return {"allocated": {"devices": [_id(name) for name in names]}}


def shared(**consumed: Mapping[str, str]) -> dict[str, Any]:
    """Devices of the pool of which there is a share, with what it consumes."""
    return {
        "allocated": {
            "shares": [{**_id(name), "shareID": "u1"} for name in consumed],
            "capacity": [{**_id(name), "consumed": dict(taken)} for name, taken in consumed.items()],
        }
    }


def _id(name: str) -> dict[str, str]:
    return {"driver": DRIVER, "pool": "p", "device": name}
