"""Which NUMA nodes a pod gets: exclusiveness, pods together, loans, and what others fix; odd amounts."""

from __future__ import annotations

import attrs
import pytest

from koordcore.allocators.node import NodeAllocation, NodeOffer, fit_node
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa import NUMAAllocation
from koordcore.allocators.numa_align import NUMAAdmission, align, allowed_masks
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMANode, NUMAState, available_amounts, numa_node_of
from koordcore.allocators.numa_together import fit_together
from koordcore.allocators.reservation_numa import NUMAReservation, room_of
from koordcore.model.numa import NodeResourceTopology, NUMAArgs
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy
from tests.numa.test_numa import BEST, MOST, RESTRICTED, SINGLE, amounts, holder, placed, request
from tests.numa.worlds import topology
from tests.reference.numa_score import fit_numa

LEAST = NUMAArgs(scoring=ScoringStrategy.LEAST_ALLOCATED, numa_scoring=ScoringStrategy.LEAST_ALLOCATED)


def three(policy: NUMATopologyPolicy, *across: int) -> NUMAState:
    """Three NUMA nodes of 8 CPUs; a pod has a CPU of each of some of them."""
    where = NUMANode(
        topology=topology(1, 3, 4, 2), zones=tuple(amounts(numa, 8000) for numa in range(3)), policy=policy
    )
    cpus = ",".join(str(8 * numa) for numa in across)
    return NUMAState.of(where, [holder(cpus, *(amounts(numa, 1000) for numa in across))] if across else [])


def alone(cpu: int) -> CPURequest:
    """CPUs of its own, on NUMA nodes that no pod of several NUMA nodes has a part of."""
    return request(cpu, numa_exclusive=NUMAExclusive.REQUIRED)


def demand(state: NUMAState, wanted: CPURequest) -> CPUDemand:
    found = demand_on(wanted, state.node)
    assert isinstance(found, CPUDemand)
    return found


@pytest.mark.parametrize(
    ("policy", "across", "mask"),
    [(SINGLE, (0, 1), 0b100), (BEST, (0, 1), 0b100), (BEST, (0, 1, 2), 0b001), (SINGLE, (0, 1, 2), None)],
)
def test_best_effort_keeps_to_exclusiveness_while_it_can(
    policy: NUMATopologyPolicy, across: tuple[int, ...], mask: int | None
) -> None:
    """The fullest NUMA node would be best, were it not for the pod across several; then any single one is."""
    state = three(policy, *across)
    found = align(state, demand(state, alone(2000)), args=MOST)
    assert isinstance(found, NUMARefusal) if mask is None else found == NUMAAdmission(policy, True, mask)


@pytest.mark.parametrize(
    ("policy", "across", "masks"),
    [
        (SINGLE, (0, 1), [0b100]),
        (RESTRICTED, (0, 1), [0b100, 0b011, 0b101, 0b110, 0b111]),
        (RESTRICTED, (0,), [0b001, 0b010, 0b100, 0b110]),
        (BEST, (0, 1), [0b100, 0b001, 0b010, 0b011, 0b101, 0b110, 0b111]),
        (BEST, (0,), [0b001, 0b010, 0b100, 0b110, 0b011, 0b101, 0b111]),
    ],
)
def test_numa_nodes_come_best_first_and_exclusiveness_rules_some_out(
    policy: NUMATopologyPolicy, across: tuple[int, ...], masks: list[int]
) -> None:
    """Few before many, fuller before emptier; under BestEffort what is ruled out comes last of its size.

    A pod of one NUMA node keeps off those with a part of a larger pod, and the other way round.
    """
    state = three(policy, *across)
    found = list(allowed_masks(state, demand(state, alone(2000)), MOST))
    assert found == masks
    assert align(state, demand(state, alone(2000)), args=MOST) == NUMAAdmission(policy, True, masks[0])


def test_pods_that_nobody_may_be_beside_are_placed_together() -> None:
    """Two of 5 CPUs fill one NUMA node and 4, 3 and 3 the other.

    Each where most is free, the last pod finds no room but on both, where pods of one NUMA node are.
    """
    where = NUMANode(
        topology=topology(2, 1, 5, 2), zones=(amounts(0, 10_000), amounts(1, 10_000)), policy=RESTRICTED
    )
    wanted = [alone(cpu) for cpu in (5000, 5000, 4000, 3000, 3000)]
    found = fit_together(NUMAState(where), wanted, args=LEAST)
    assert not isinstance(found, NUMARefusal), found
    masks = [one.mask for one in found]
    assert masks in ([0b01, 0b01, 0b10, 0b10, 0b10], [0b10, 0b10, 0b01, 0b01, 0b01])
    assert sum(one.status.cpuset.bit_count() for one in found) == 20
    more = fit_together(NUMAState(where), [*wanted, alone(1000)], args=LEAST)
    assert isinstance(more, NUMARefusal)


def test_a_pod_gets_the_very_numa_nodes_that_are_fixed_for_it() -> None:
    """Neither a part of them nor others, though one would be enough; or all that must be among them."""
    state = three(RESTRICTED, 0)
    for mask in (0b001, 0b010, 0b100, 0b011, 0b110, 0b111):
        given = fit_node(NodeOffer(state, only=mask), NodeRequest(cpu=request(2000)))
        assert isinstance(given, NodeAllocation), given
        assert given.numa.mask == mask
    covered = fit_node(NodeOffer(state, covers=0b101), NodeRequest(cpu=request(2000)))
    assert isinstance(covered, NodeAllocation)
    assert covered.numa.mask == 0b101
    refused = fit_node(NodeOffer(state, only=0b001), NodeRequest(cpu=request(8000)))
    assert isinstance(refused, NUMARefusal)


def test_whole_cores_that_are_short_are_told_in_whole_cores() -> None:
    """Two cores are whole and 3.5 CPUs are not requested: one core can be given to a pod that needs three."""
    where = NUMANode(topology=topology(1, 1, 4, 2), zones=(amounts(0, 8000),), policy=BEST)
    state = NUMAState.of(where, [holder("0,2", amounts(0, 2000)), holder("", amounts(0, 2500), uid="share")])
    answer = fit_numa(state, request(6000, required=True))
    assert isinstance(answer, NUMARefusal)
    (short,) = answer.shortfalls
    assert (short.reason, short.requested, short.available) == ("Insufficient NUMA cpu", 6000, 2000)


def test_numa_nodes_up_to_63_count() -> None:
    """No mask can name further ones."""
    nrt = NodeResourceTopology(name="n", zones=tuple(amounts(numa, 1000) for numa in (0, 62, 63, 64)))
    assert numa_node_of({}, {}, nrt).zone_ids == (0, 62, 63)


def test_what_is_held_of_an_unknown_numa_node_hides_nothing_else() -> None:
    """Amounts of NUMA node 1, which the node does not have, and of 2, which it has."""
    where = NUMANode(topology=topology(1, 3, 4, 2), zones=(amounts(0, 8000), amounts(2, 8000)))
    state = NUMAState.of(where, [holder("", amounts(1, 3000), amounts(2, 3000))])
    assert available_amounts(state) == {0: {"cpu": 8000}, 2: {"cpu": 5000}}


# Reservations


def test_a_reservation_lets_its_pods_take_from_the_node_unless_it_is_restricted() -> None:
    where = NUMANode(topology=topology(1, 1, 8, 2), zones=(amounts(0, 16_000),))
    mine = NUMAReservation(
        name="r", uid="r", matched=True, allocation=holder("4-7", amounts(0, 4000), uid="r")
    )
    state = NUMAState.of(where, [mine.allocation])
    assert placed(state, request(6000), room=room_of([mine], nominated="r"))[0] == "0-1,4-7"
    within = room_of([attrs.evolve(mine, restricted=True)], nominated="r")
    assert isinstance(fit_numa(state, request(6000), room=within), NUMARefusal)


@pytest.mark.parametrize(("args", "numa"), [(MOST, 1), (LEAST, 0)])
def test_numa_nodes_are_compared_by_what_the_pod_may_take_of_them(args: NUMAArgs, numa: int) -> None:
    """A reservation for the pod on NUMA node 0 counts as free, one for others on NUMA node 1 as requested."""
    where = NUMANode(
        topology=topology(2, 1, 8, 2), zones=(amounts(0, 16_000), amounts(1, 16_000)), policy=SINGLE
    )
    mine = NUMAReservation(name="r", uid="r", matched=True, allocation=holder("", amounts(0, 7000), uid="r"))
    theirs = NUMAReservation(
        name="s", uid="s", matched=False, allocation=holder("", amounts(1, 7000), uid="s")
    )
    theirs = attrs.evolve(theirs, owners=(holder("", amounts(1, 4000), uid="o"),))
    state = NUMAState.of(where, [mine.allocation, theirs.allocation, *theirs.owners])
    given = fit_numa(state, request(2000, bind=False), room=room_of([mine, theirs]), args=args)
    assert isinstance(given, NUMAAllocation), given
    assert [entry.node for entry in given.status.numa_node_resources] == [numa]
