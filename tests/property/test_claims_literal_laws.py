"""Claims on random small nodes with every feature, against the reference read word by word.

* First fit takes the very devices that the reference takes, refuses where it refuses, and errs where it errs.
* The exact answer is found exactly where trying everything finds one, with the best alternatives.
* Both are legal by the checker's own reading, and a refusal says what is lacking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings, strategies as st

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
from tests.property.claim_worlds import DRIVER, random_case
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
class _Asked:
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


def _asked(raw: Mapping[str, Any]) -> _Asked:
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
    return _Asked(
        raw, world, node, [claim_of(one) for one in raw["claims"]], room_of(node.table, in_use), told
    )


def _check_first_fit(asked: _Asked) -> None:
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


def _check_exact(asked: _Asked) -> None:
    try:
        first = literal.first_fit(asked.literal, asked.claims)
        best = literal.best_alternatives(asked.literal, asked.claims)
    except literal.GaveUp:
        assume(False)
    outcome = asked.outcome()
    match outcome:
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


@settings(max_examples=90)
@given(st.integers(0, 10**9))
def test_first_fit_takes_the_devices_of_the_reference(seed: int) -> None:
    _check_first_fit(_asked(random_case(Random(seed))))


@settings(max_examples=90)
@given(st.integers(0, 10**9))
def test_the_exact_answer_is_that_of_trying_everything(seed: int) -> None:
    _check_exact(_asked(random_case(Random(seed), 10)))


def _node(devices: list[dict[str, Any]], counters: list[dict[str, Any]], claims: list[Any]) -> dict[str, Any]:
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
    }


def _request(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "all", **more}}


def _selector(text: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].{text}"}}]}


def _partition(name: str, number: int, *groups: str) -> dict[str, Any]:
    draws = {"counterSet": "s", "counters": {"a": {"value": "1"}}}
    if groups:
        draws["compatibilityGroups"] = list(groups)
    return {"name": name, "attributes": {"i": {"int": number}}, "consumesCounters": [draws]}


@pytest.mark.parametrize("check", [_check_first_fit, _check_exact])
def test_partitions_are_exchanged_within_their_compatibility_groups(check: Any) -> None:
    raw = _node(
        [_partition("d0", 0, "g"), _partition("d1", 1), _partition("d2", 2, "g"), _partition("d3", 2, "g")],
        [{"name": "s", "counters": {"a": {"value": "9"}}}],
        [
            {"requests": [_request("one", **_selector("i < 2"))]},
            {"requests": [_request("two", count=2, **_selector("i == 2"))]},
        ],
    )
    check(_asked(raw))


@pytest.mark.parametrize("check", [_check_first_fit, _check_exact])
def test_what_one_request_derives_says_nothing_of_another(check: Any) -> None:
    derived = [{"name": f"{DRIVER}/x", "expression": f"device.attributes['{DRIVER}'].i / 2"}]
    devices = [
        {"name": f"d{number}", "attributes": {"i": {"int": number}, "x": {"ints": many}}}
        for number, many in ((0, [0, 1]), (4, [2]), (6, [1, 3]))
    ]
    raw = _node(
        devices,
        [{"name": "s", "counters": {"a": {"value": "1"}}}],
        [
            {
                "requests": [_request("two", count=2), _request("one", derivedAttributes=derived)],
                "constraints": [{"distinctAttribute": f"{DRIVER}/x"}],
            }
        ],
    )
    check(_asked(raw))
