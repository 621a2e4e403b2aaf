"""What a node offers per NUMA node, what its refusals say, and what is decided without a search."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from koordcore.allocators.numa import allocate_numa
from koordcore.allocators.numa_align import NUMAAdmission, has_room
from koordcore.allocators.numa_request import (
    CPUDemand,
    CPURequest,
    NUMARefusal,
    demand_on,
    parse_cpu_request,
)
from koordcore.allocators.numa_state import NUMANode, NUMAState
from koordcore.allocators.numa_together import fit_together
from koordcore.allocators.reservation_numa import NUMAReservation, ReservationUse, room_of
from koordcore.allocators.reserved_over_pods import including_numa
from koordcore.model.numa import NUMANodeResource
from koordcore.model.resources import make_resources
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS, ResourceStatus
from koordcore.topology.cpu import NO_TOPOLOGY, parse_cpulist
from tests.numa.test_numa import MOST, SINGLE, amounts, holder, refused, request
from tests.numa.worlds import topology


def two(**changes: object) -> NUMANode:
    """Two NUMA nodes of 8 CPUs and 8Gi."""
    zones = (amounts(0, 8000, 8), amounts(1, 8000, 8))
    plain = NUMANode(topology=topology(2, 1, 4, 2), zones=zones, policy=SINGLE)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def demand(wanted: CPURequest, where: NUMANode) -> CPUDemand:
    found = demand_on(wanted, where)
    assert isinstance(found, CPUDemand)
    return found


def test_cpus_that_the_topology_lacks_are_on_the_first_numa_node() -> None:
    for cpus, mask in (("", 0), ("0", 0b01), ("8", 0b10), ("99", 0b01), ("8,99", 0b11), ("0,8,99", 0b11)):
        assert two().nodes_of(parse_cpulist(cpus)) == mask


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        (request(9000, 4, bind=False), ("Insufficient NUMA cpu",)),
        (request(4000, 9, bind=False), ("Insufficient NUMA memory",)),
        (request(9000, 9, bind=False), ("Insufficient NUMA cpu", "Insufficient NUMA memory")),
    ],
)
def test_a_refusal_names_every_amount_that_is_short_on_the_numa_nodes(
    wanted: CPURequest, reasons: tuple[str, ...]
) -> None:
    assert refused(allocate_numa(NUMAState(two()), wanted, NUMAAdmission(SINGLE, True, 0b01))) == reasons


def test_what_a_restricted_reservation_has_is_refused_where_the_node_itself_is_short() -> None:
    """Four CPUs are reserved, but others hold six of the eight: two are there to be given out."""
    mine = NUMAReservation(
        name="r", uid="r", matched=True, restricted=True, allocation=holder("", amounts(0, 4000), uid="r")
    )
    state = NUMAState.of(two(), [mine.allocation, holder("", amounts(0, 6000), uid="other")])
    room = room_of([mine], use=ReservationUse.REQUIRED)
    admission = NUMAAdmission(SINGLE, True, 0b01)
    short = allocate_numa(state, request(3000, bind=False), admission, room=room)
    assert refused(short) == ("Reservation(s) Insufficient NUMA cpu",)
    assert not isinstance(allocate_numa(state, request(2000, bind=False), admission, room=room), NUMARefusal)


def test_room_is_sure_where_some_numa_node_serves_and_cpus_are_known_to_whom_is_bound() -> None:
    blind = two(topology=NO_TOPOLOGY)
    for where, wanted, sure in (
        (two(), request(4000), True),
        (two(), request(4000, bind=False), True),
        (two(), request(9000), False),
        (two(zones=()), request(4000), False),
        (blind, request(4000, bind=False), True),
        (blind, request(4000), False),
    ):
        assert has_room(NUMAState(where), demand(wanted, where), ()) is sure


@pytest.mark.parametrize("key", [ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT])
def test_a_hint_under_its_new_or_its_old_name_designates_what_the_status_says(key: str) -> None:
    status = {ANNOTATION_RESOURCE_STATUS: '{"cpuset":"0-3"}'}
    hint = {key: '{"extensions":{"NodeNUMAResource":null}}'}
    for written, designated in ((status, None), (hint, None), (status | hint, ResourceStatus(0b1111))):
        found = parse_cpu_request({}, written, None, {"cpu": 4000})
        assert isinstance(found, CPURequest)
        assert found.designated == designated


@pytest.mark.solver
@pytest.mark.parametrize("name", ["cpu", "memory"])
def test_pods_of_one_numa_node_each_are_assigned_without_a_search(name: str) -> None:
    """NUMA nodes with 6 and 8 and pods of 4, 4 and 6, in CPUs or in memory."""
    sizes = {"cpu": (8000, 8000), "memory": (8000, 8000)} | {name: (6000, 8000)}
    zones = tuple(
        NUMANodeResource(numa, make_resources({one: given[numa] for one, given in sizes.items()}))
        for numa in range(2)
    )
    wanted = [
        CPURequest(requests=make_resources({"cpu": 1000, "memory": 1000} | {name: size}))
        for size in (4000, 4000, 6000)
    ]
    found = fit_together(NUMAState(two(zones=zones)), wanted, args=MOST, visits=0)
    assert not isinstance(found, NUMARefusal), found
    assert [one.mask for one in found] == [0b10, 0b10, 0b01]


# Reservations over pods


@pytest.mark.parametrize(
    ("chosen", "held", "together"),
    [
        ({0: 6, 1: 2}, {1: 2}, {0: 6, 1: 2}),
        ({0: 6, 1: 2}, {1: 4}, {0: 4, 1: 4}),
        ({0: 6, 1: 2}, {1: 8}, {1: 8}),
        ({0: 6}, {1: 1}, {0: 5, 1: 1}),
        ({0: 4, 1: 2, 2: 2}, {1: 5}, {0: 3, 1: 5}),
        ({0: 4, 1: 2, 2: 4}, {0: 4, 2: 5}, {0: 4, 1: 1, 2: 5}),
        ({0: 6, 1: 2}, {1: 9}, None),
    ],
)
def test_amounts_move_to_where_the_pods_hold_them_and_none_is_added(
    chosen: Mapping[int, int], held: Mapping[int, int], together: Mapping[int, int] | None
) -> None:
    """From the last NUMA node that can spare some; more than what was chosen in all cannot be."""

    def entries(amounts_of: Mapping[int, int]) -> tuple[NUMANodeResource, ...]:
        return tuple(amounts(numa, gib=gib) for numa, gib in sorted(amounts_of.items()))

    found = including_numa(ResourceStatus(0, entries(chosen)), [holder("", *entries(held))])
    assert found == (None if together is None else ResourceStatus(0, entries(together)))
