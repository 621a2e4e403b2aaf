"""Who has to leave a node, so that claims fit there, against trying every set of holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import attrs
import pytest
from immutabledict import immutabledict

from benchmarks.claims_data import table_of
from koordcore.allocators.claims import (
    ClaimError,
    ClaimsAllocated,
    DeviceTable,
    Room,
    allocate_claims,
    departures as module,
    devices_in_use,
    room_of,
)
from koordcore.allocators.claims.departures import departures, holding_of
from koordcore.allocators.claims.requests import read_claims
from koordcore.model.claims import (
    ALL_DEVICES,
    ClaimAllocation,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    DeviceCapacity,
    ResourceSlice,
    SliceDevice,
)

DRIVER = "d.example.com"
CLASSES = {
    kind: DeviceClass(name=kind, selectors=(f"device.attributes['{DRIVER}'].kind == '{kind}'",))
    for kind in ("whole", "shared")
}


def table(kinds: Sequence[str]) -> DeviceTable:
    """Devices that one claim holds, and devices of three units that several share."""
    devices = tuple(
        SliceDevice(
            name=f"d{number}",
            attributes={"kind": AttributeValue(AttributeKind.STRING, (kind,))},
            allow_multiple_allocations=kind == "shared",
            capacity=immutabledict(units=DeviceCapacity(3)) if kind == "shared" else {},
        )
        for number, kind in enumerate(kinds)
    )
    return table_of([ResourceSlice(name="s", driver=DRIVER, pool="n1", node_name="n1", devices=devices)])


def form(kind: str, count: int = 1, units: int = 0) -> DeviceSubRequest:
    capacity = {"units": units} if units else {}
    if not count:
        return DeviceSubRequest(class_name=kind, mode=ALL_DEVICES, capacity=capacity)
    return DeviceSubRequest(class_name=kind, count=count, capacity=capacity)


def asks(*forms: DeviceSubRequest) -> ResourceClaim:
    return ResourceClaim(
        name="c", spec=ClaimSpec(tuple(ClaimRequest(f"r{n}", (one,)) for n, one in enumerate(forms)))
    )


def holds(place: int, units: int = 0) -> ClaimAllocation:
    result = DeviceResult(request="r", driver=DRIVER, pool="n1", device=f"d{place}")
    if units:
        result = attrs.evolve(result, share_id="u", consumed_capacity={"units": units})
    return ClaimAllocation(results=(result,))


class Node:
    """A node with its devices and those who hold some of them."""

    def __init__(self, kinds: Sequence[str], held: Sequence[ClaimAllocation]) -> None:
        self.table = table(kinds)
        self.held = held

    def room(self, leaving: Iterable[int] = ()) -> Room:
        gone = set(leaving)
        return room_of(
            self.table, devices_in_use(one for place, one in enumerate(self.held) if place not in gone)
        )

    def fits(self, claim: ResourceClaim, leaving: Iterable[int]) -> bool:
        return isinstance(allocate_claims(self.room(leaving), [claim], CLASSES), ClaimsAllocated)

    def found(self, claim: ResourceClaim) -> set[frozenset[int]] | None:
        forms = read_claims(self.table, [claim], CLASSES)
        assert not isinstance(forms, ClaimError)
        places = {(DRIVER, "n1"): {f"d{place}": place for place in range(len(self.table.devices))}}
        everyone = range(len(self.held))
        holdings = [holding_of(self.table, places, one) for one in self.held]
        sets = departures(
            self.room(), self.room(everyone), forms, holdings, lambda leaving: self.fits(claim, leaving)
        )
        return None if sets is None else set(sets)

    def tried(self, claim: ResourceClaim) -> set[frozenset[int]]:
        """The sets that are enough and of which nobody could stay, by trying all."""
        everyone = range(len(self.held))
        able = [
            frozenset(one)
            for one in chain.from_iterable(combinations(everyone, n) for n in range(len(self.held) + 1))
            if self.fits(claim, one)
        ]
        return {one for one in able if not any(less < one for less in able)}


CLAIMS = {
    "one": asks(form("whole")),
    "two": asks(form("whole", 2)),
    "all": asks(form("whole", 0)),
    "units": asks(form("shared", units=2)),
    "units twice": asks(form("shared", units=2), form("shared", units=1)),
    "both": asks(form("whole"), form("shared", units=3)),
    "everything": asks(form("whole", 0), form("shared", units=3)),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize(
    "kinds", [("whole", "shared", "whole"), ("shared", "whole", "whole"), ("whole", "whole", "shared")]
)
def test_the_least_sets_are_those_that_trying_all_finds(kinds: Sequence[str], claim: ResourceClaim) -> None:
    """Both whole devices are held, and all three units of the shared one, by two claims."""
    one, other = (place for place, kind in enumerate(kinds) if kind == "whole")
    shared = kinds.index("shared")
    node = Node(kinds, [holds(one), holds(shared, 1), holds(other), holds(shared, 2)])
    assert node.found(claim) == node.tried(claim)
    assert node.found(claim)


def test_nobody_has_to_leave_for_more_devices_than_there_are() -> None:
    node = Node(["whole", "shared"], [holds(1, 2)])
    assert node.found(asks(form("whole", 2))) == set()
    assert node.found(asks(form("shared", units=2))) == {frozenset({0})}


def test_to_take_all_of_a_kind_is_one_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CHOICES", 1)
    node = Node(["whole", "whole"], [holds(1)])
    assert node.found(asks(form("whole", 0))) == {frozenset({0})}
    assert node.found(asks(form("whole"))) is None
