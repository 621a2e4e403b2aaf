"""One pod on one node: filter in order, exact split, designation, amplification, score, reservations."""

from __future__ import annotations

import attrs
import pytest

from koordcore.allocators.numa import (
    NodeAmounts,
    NUMAAllocation,
    allocate_numa,
    filter_numa,
)
from koordcore.allocators.numa_align import NUMAAdmission, NUMARoom
from koordcore.allocators.numa_request import (
    CPUDemand,
    CPURequest,
    NUMARefusal,
    completed_resource_spec,
    cpu_request_of,
    demand_on,
    parse_cpu_request,
)
from koordcore.allocators.numa_state import NUMANode, NUMAState, numa_node_of, numa_state_of
from koordcore.allocators.numa_together import fit_together
from koordcore.allocators.reservation_numa import (
    NOMINATED_REFUSED,
    NUMAReservation,
    ReservationUse,
    room_of,
)
from koordcore.errors import ManifestError
from koordcore.model.numa import (
    CPUAllocation,
    CPUBindPolicy,
    NodeCPUBindPolicy,
    NodeResourceTopology,
    NUMAArgs,
    NUMANodeResource,
)
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.pods import Pod
from koordcore.model.resources import make_resources
from koordcore.protocol.numa import ResourceSpec, ResourceStatus
from koordcore.topology.cpu import format_cpulist, parse_cpulist
from koordcore.topology.numa import NUMATopologyPolicy
from tests.numa.worlds import GIB, topology
from tests.reference.numa_hints import numa_hints
from tests.reference.numa_score import fit_numa, score_numa

FULL, SPREAD = CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS
MACHINE = topology(2, 1, 26, 2)
NONE, BEST, RESTRICTED, SINGLE = NUMATopologyPolicy
MOST = NUMAArgs(scoring=ScoringStrategy.MOST_ALLOCATED, numa_scoring=ScoringStrategy.MOST_ALLOCATED)


def amounts(numa: int, cpu: int = 0, gib: int = 0, **more: int) -> NUMANodeResource:
    named = {"cpu": cpu, "memory": gib * GIB, **more}
    return NUMANodeResource(numa, make_resources({name: value for name, value in named.items() if value}))


def node(policy: NUMATopologyPolicy = NONE, **changes: object) -> NUMANode:
    zones = (amounts(0, 52_000, 128), amounts(1, 52_000, 128))
    plain = NUMANode(topology=MACHINE, zones=zones, policy=policy)
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def holder(cpus: str, *entries: NUMANodeResource, uid: str = "h") -> CPUAllocation:
    return CPUAllocation(
        uid=uid, name=uid, namespace="default", cpuset=parse_cpulist(cpus), numa_resources=entries
    )


def request(
    cpu: int, gib: int = 0, *, bind: bool = True, required: bool = False, **changes: object
) -> CPURequest:
    plain = CPURequest(
        requests=make_resources({"cpu": cpu, "memory": gib * GIB} if gib else {"cpu": cpu}),
        bind=bind,
        preferred=FULL if bind else None,
        required=FULL if required else None,
    )
    return attrs.evolve(plain, **changes)  # type: ignore[arg-type]


def placed(state: NUMAState, wanted: CPURequest, **options: object) -> tuple[str, dict[int, dict[str, int]]]:
    given = fit_numa(state, wanted, **options)  # type: ignore[arg-type]
    assert isinstance(given, NUMAAllocation), given
    entries = given.status.numa_node_resources
    return format_cpulist(given.status.cpuset), {entry.node: dict(entry.resources) for entry in entries}


def refused(answer: object) -> tuple[str, ...]:
    assert isinstance(answer, NUMARefusal), answer
    return answer.reasons


# What a pod wants


def test_who_may_be_bound() -> None:
    """QoS by label and class prod; a Guaranteed pod without label never is."""
    two = {"cpu": 2000}
    for labels, priority, bound in [
        ({"koordinator.sh/qosClass": "LSR"}, None, True),
        ({"koordinator.sh/qosClass": "LSE"}, 9000, True),
        ({"koordinator.sh/qosClass": "LSR"}, 5500, False),
        ({"koordinator.sh/qosClass": "LS"}, 9500, False),
        ({}, 9500, False),
    ]:
        found = parse_cpu_request(labels, {}, priority, two)
        assert isinstance(found, CPURequest)
        assert found.bind is bound


def test_what_no_node_can_take() -> None:
    """Fractional CPUs for a cpuset; a pod without requests is skipped; broken annotations raise."""
    lsr = {"koordinator.sh/qosClass": "LSR"}
    assert refused(parse_cpu_request(lsr, {}, None, {"cpu": 1500})) == ("the requested CPUs must be integer",)
    assert parse_cpu_request(lsr, {}, None, {"cpu": 0}) is None
    spec = {"scheduling.koordinator.sh/resource-spec": ""}
    with pytest.raises(ManifestError):
        parse_cpu_request(lsr, spec, None, {"cpu": 1000})


def test_a_policy_that_does_not_bind_allows_fractions() -> None:
    """ConstrainedBurst and words that mean nothing bind nothing."""
    lsr = {"koordinator.sh/qosClass": "LSR"}
    spec = {"scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy":"ConstrainedBurst"}'}
    found = cpu_request_of(Pod(name="p", labels=lsr, annotations=spec, requests={"cpu": 4500}))
    assert isinstance(found, CPURequest)
    assert not found.bind
    assert found.cpus_needed == 4


def test_the_spec_is_completed_never_overwritten() -> None:
    """What is open gets the policy that was used."""
    asked = request(2000)
    assert completed_resource_spec(ResourceSpec(), asked, node()) == ResourceSpec("", "FullPCPUs")
    only = node(bind_policy=NodeCPUBindPolicy.SPREAD_BY_PCPUS)
    done = completed_resource_spec(ResourceSpec("", "Default"), asked, only)
    assert done == ResourceSpec("SpreadByPCPUs", "SpreadByPCPUs")
    kept = ResourceSpec("", "FullPCPUs", "PCPULevel")
    assert completed_resource_spec(kept, asked, node()) == kept


# Filter order and messages


@pytest.mark.parametrize(
    ("where", "wanted", "reason"),
    [
        (node(RESTRICTED), request(1000, numa_policy=SINGLE), "node(s) NUMA Topology policy not match"),
        (
            node(bind_policy=NodeCPUBindPolicy.SPREAD_BY_PCPUS),
            request(1500, bind=False),
            "the requested CPUs must be integer",
        ),
        (node(cpu_ratio=None), request(1000), "node(s) invalid CPU amplification ratio"),
        (node(topology=topology(0, 0, 0, 1)), request(1000), "node(s) invalid CPU Topology"),
        (
            node(bind_policy=NodeCPUBindPolicy.SPREAD_BY_PCPUS),
            request(2000, required=True),
            "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
        ),
        (
            node(bind_policy=NodeCPUBindPolicy.FULL_PCPUS_ONLY),
            request(3000, bind=False),
            "node(s) requested cpus not multiple cpus per core",
        ),
        (node(SINGLE, zones=()), request(1000), "node(s) missing NUMA resources"),
        (node("None"), request(1000), 'unknown NUMA topology policy "None"'),  # type: ignore[arg-type]
    ],
)
def test_what_no_eviction_helps(where: NUMANode, wanted: CPURequest, reason: str) -> None:
    """Upstream's texts, and not resolvable."""
    answer = filter_numa(NUMAState(where), wanted)
    assert refused(answer) == (reason,)
    assert isinstance(answer, NUMARefusal)
    assert not answer.resolvable


def test_preferred_policies_are_looked_at_when_it_counts() -> None:
    """Upstream's filter lets the pod in, the decision does not."""
    state = NUMAState.of(node(), [holder("0-101")])
    assert filter_numa(state, request(4000)) == NUMAAdmission()
    assert refused(fit_numa(state, request(4000))) == ("not enough cpus available to satisfy request",)
    assert refused(filter_numa(state, request(4000, required=True))) == (
        "not enough cpus available to satisfy request",
    )


# Exact splits


def test_even_split_with_whole_cores() -> None:
    """Four CPUs over two nodes as two cores each."""
    wanted = request(4000, required=True)
    demand = demand_on(wanted, node(RESTRICTED))
    assert isinstance(demand, CPUDemand)
    given = allocate_numa(NUMAState(node(RESTRICTED)), wanted, NUMAAdmission(RESTRICTED, True, 0b11))
    assert isinstance(given, NUMAAllocation)
    assert format_cpulist(given.status.cpuset) == "0-1,52-53"


def test_recorded_amounts_bind_like_cpus() -> None:
    """48 of 52 recorded on each node, though 44 CPUs are held: four are left on each."""
    held = holder("0-43,53-96", amounts(0, 48_000), amounts(1, 48_000))
    state = NUMAState.of(node(RESTRICTED), [held])
    cpus, split = placed(state, request(8000, required=True))
    assert cpus == "44-47,98-101"
    assert split == {0: {"cpu": 4000}, 1: {"cpu": 4000}}


def test_a_fraction_on_a_node_loses_nobody() -> None:
    """Half a CPU of a share pod leaves 1500m of which one CPU can be used (upstream refuses)."""
    small = topology(2, 1, 2, 1)
    zones = (amounts(0, 2000), amounts(1, 2000))
    where = NUMANode(topology=small, zones=zones, policy=RESTRICTED)
    state = NUMAState.of(where, [holder("", amounts(0, 500))])
    assert placed(state, request(3000)) == ("0,2-3", {0: {"cpu": 1000}, 1: {"cpu": 2000}})


def test_the_order_is_by_availability_not_by_position() -> None:
    """(30, 10, 20) hold 60 exactly; upstream fails with five left over."""
    zones = tuple(amounts(numa, cpu) for numa, cpu in enumerate((30_000, 10_000, 20_000)))
    where = NUMANode(topology=topology(1, 3, 15, 2), zones=zones, policy=RESTRICTED)
    assert placed(NUMAState(where), request(60_000, bind=False))[1] == {
        0: {"cpu": 30_000},
        1: {"cpu": 10_000},
        2: {"cpu": 20_000},
    }


def test_a_resource_that_lies_on_one_node_only() -> None:
    """CPU needs both nodes, memory is on the first: no rule of lacking resources (ruling 5)."""
    where = node(RESTRICTED, zones=(amounts(0, 52_000, 4), amounts(1, 52_000)))
    split = placed(NUMAState(where), request(60_000, 4, bind=False))[1]
    assert split == {0: {"cpu": 30_000, "memory": 4 * GIB}, 1: {"cpu": 30_000}}
    hints = numa_hints(NUMAState(where), _demand(request(60_000, 4, bind=False), where))
    assert not isinstance(hints, NUMARefusal)
    assert [[hint.mask for hint in listed] for listed in hints.values()] == [[0b11], [0b11]]


def _demand(wanted: CPURequest, where: NUMANode) -> CPUDemand:
    demand = demand_on(wanted, where)
    assert isinstance(demand, CPUDemand)
    return demand


def test_reasons_name_what_is_short() -> None:
    """Nothing fits anywhere: each resource that NUMA nodes know is unsatisfied."""
    answer = filter_numa(NUMAState(node(SINGLE)), request(105_000, 300, bind=False))
    assert refused(answer) == ("Unsatisfied NUMA cpu", "Unsatisfied NUMA memory")
    assert isinstance(answer, NUMARefusal)
    assert [short.lacking for short in answer.shortfalls] == [53_000, 172 * GIB]
    single = filter_numa(NUMAState(node(SINGLE)), request(60_000, bind=False))
    assert refused(single) == ("Unaligned NUMA Hint cause cpu prefer [11] among [11]",)
    effort = fit_numa(NUMAState(node(BEST)), request(105_000, bind=False))
    assert effort == NUMAAllocation(written=True)


def test_amplified_share_pods_split_what_is_left() -> None:
    """50 of 52 CPUs held on each node, ratio 1.5: 3000m are left on each."""
    zones = (amounts(0, 78_000), amounts(1, 78_000))
    where = node(RESTRICTED, zones=zones, zone_cpu_ratio=1.5)
    held = [holder("0-49,52-101", amounts(0, 50_000), amounts(1, 50_000))]
    state = NUMAState.of(where, held)
    assert placed(state, request(3500, bind=False))[1] == {0: {"cpu": 1750}, 1: {"cpu": 1750}}
    assert refused(fit_numa(state, request(6500, bind=False))) == ("Unsatisfied NUMA cpu",)


# Designation


def test_a_designated_allocation_is_given_or_refused_by_name() -> None:
    """CPUs and amounts that another holds are a refusal that names the holder (ruling 17)."""
    status = ResourceStatus(parse_cpulist("0-3"), (amounts(0, 4000),))
    wanted = request(4000, designated=status)
    assert placed(NUMAState(node(SINGLE)), wanted) == ("0-3", {0: {"cpu": 4000}})
    held = NUMAState.of(node(SINGLE), [holder("2", uid="other")])
    [reason] = refused(fit_numa(held, wanted))
    assert "held by default/other" in reason
    full = NUMAState.of(node(SINGLE), [holder("", amounts(0, 50_000))])
    assert refused(fit_numa(full, wanted)) == ("Insufficient NUMA cpu",)
    other_count = request(2000, designated=status)
    assert refused(fit_numa(NUMAState(node(SINGLE)), other_count)) == (
        "not enough cpus available to satisfy request",
    )


# Amplification of the node as a whole


@pytest.mark.parametrize(
    ("held", "requested", "bind", "fits"),
    [
        ("", 32_000, False, True),
        ("", 64_000, False, False),
        ("0-31", 32_000, False, False),
        ("", 32_000, True, False),
    ],
)
def test_amplified_cpu(held: str, requested: int, bind: bool, fits: bool) -> None:
    """Raw 32, ratio 2: a pod of 32, bound or not, beside what is there."""
    state = NUMAState.of(node(cpu_ratio=2.0), [holder(held)] if held else [])
    whole = NodeAmounts(make_resources({"cpu": 64_000}), make_resources({"cpu": requested}))
    answer = filter_numa(state, request(32_000, bind=bind), whole)
    assert isinstance(answer, NUMAAdmission) == fits
    if not fits:
        assert refused(answer) == ("Insufficient amplified cpu",)


# Scores


def test_scores_of_the_reference() -> None:
    """Two NUMA nodes of 52 CPUs and 128Gi, most allocated first."""
    whole = NodeAmounts(make_resources({"cpu": 104_000, "memory": 256 * GIB}))
    state = NUMAState(node(SINGLE))
    for policy, cpu, expected in ((SINGLE, 21_000, 35), (RESTRICTED, 50_000, 63)):
        state = NUMAState(node(policy))
        wanted = request(cpu, 40)
        admission = filter_numa(state, wanted, whole, args=MOST)
        assert isinstance(admission, NUMAAdmission)
        assert score_numa(state, wanted, whole, admission, args=MOST) == expected


def test_a_pod_that_gets_nothing_scores_nothing() -> None:
    """Invalid topology, or no room."""
    whole = NodeAmounts(make_resources({"cpu": 104_000}))
    lost = NUMAState(node(topology=topology(0, 0, 0, 1)))
    assert score_numa(lost, request(1000), whole) == 0
    full = NUMAState.of(node(BEST), [holder("0-103")])
    assert score_numa(full, request(1000), whole, NUMAAdmission(BEST)) == 0


# Reservations


def _reserved(matched: bool = True, restricted: bool = False, owner: str = "") -> NUMAReservation:
    owners = (holder(owner, amounts(0, 1000 * parse_cpulist(owner).bit_count()), uid="o"),) if owner else ()
    return NUMAReservation(
        name="r",
        uid="r",
        matched=matched,
        restricted=restricted,
        allocation=holder("4-10", amounts(0, 7000), uid="r"),
        owners=owners,
    )


def _with(reservation: NUMAReservation, policy: NUMATopologyPolicy = NONE) -> NUMAState:
    eight = node(policy, topology=topology(2, 1, 8, 2), zones=(amounts(0, 16_000), amounts(1, 16_000)))
    return NUMAState.of(eight, [reservation.allocation, *reservation.owners])


def test_reserved_cpus_come_first() -> None:
    """An owner takes from the reservation and then from the node; a Restricted one only from it."""
    room = room_of([_reserved()], nominated="r")
    state = _with(_reserved())
    assert placed(state, request(4000), room=room)[0] == "4-7"
    assert placed(state, request(8000), room=room)[0] == "4-10,16"
    only = room_of([_reserved(restricted=True)], nominated="r")
    assert placed(state, request(4000), room=only)[0] == "4-7"
    assert refused(fit_numa(state, request(8000), room=only)) == (NOMINATED_REFUSED,)


def test_a_pod_that_must_use_a_reservation_hears_its_reasons() -> None:
    """Each with upstream's prefix."""
    room = room_of([_reserved(restricted=True, owner="4-9")], use=ReservationUse.REQUIRED)
    state = _with(_reserved(owner="4-9"))
    answer = allocate_numa(state, request(4000), room=room)
    assert refused(answer) == ("Reservation(s) not enough cpus available to satisfy request",)


def test_outsiders_do_not_take_what_is_reserved() -> None:
    """Seven CPUs are reserved; what the owner uses of them is not counted twice."""
    mine = _reserved(matched=False, owner="4-7")
    state = _with(mine, SINGLE)
    room = room_of([mine])
    share = request(9000, bind=False)
    # The first NUMA node is the fuller one: 9 of its 16 are left, 5 without the correction.
    assert placed(state, share, room=room, args=MOST)[1] == {0: {"cpu": 9000}}
    assert placed(state, share, args=MOST)[1] == {1: {"cpu": 9000}}
    assert placed(state, request(10_000, bind=False), room=room, args=MOST)[1] == {1: {"cpu": 10_000}}


def test_a_pod_may_ignore_reservations() -> None:
    """It takes what is reserved and unused, first."""
    room = room_of([_reserved(matched=False)], use=ReservationUse.IGNORED)
    assert placed(_with(_reserved(matched=False)), request(4000), room=room)[0] == "4-7"
    assert room == NUMARoom(fallback=room.fallback, scored=room.scored)


# State


def test_a_node_is_put_together_from_its_parts() -> None:
    """Labels, annotations and the NodeResourceTopology object; zones are amplified by the node's ratio."""
    nrt = NodeResourceTopology(name="n", topology=topology(1, 1, 4, 2), zones=(amounts(0, 8000),))
    labels = {"node.koordinator.sh/numa-topology-policy": "Restricted"}
    ratio = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5}'}
    found = numa_node_of(labels, ratio, nrt)
    assert (found.policy, found.cpu_ratio, found.zone_cpu_ratio) == (RESTRICTED, 1.5, 1.5)
    assert found.zones[0].resources["cpu"] == 12_000
    own = numa_node_of({}, ratio, attrs.evolve(nrt, amplification_ratios={"cpu": 1.5}))
    assert own.zones[0].resources["cpu"] == 8000
    broken = numa_node_of({}, {"node.koordinator.sh/resource-amplification-ratio": "{"}, nrt)
    assert broken.cpu_ratio is None
    assert not numa_node_of({}, {}, None).topology.valid


def test_pods_are_recorded_from_their_annotations() -> None:
    """Bound pods with a readable status; finished ones hold nothing."""
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
    pods = [
        Pod(name="a", node_name="n", annotations=status),
        Pod(name="b", node_name="n"),
        Pod(name="c", annotations=status),
    ]
    state = numa_state_of(node(), pods)
    assert [held.name for held in state.allocations] == ["a"]
    assert format_cpulist(state.usage.holdings.held) == "0-3"


def test_a_holder_is_recorded_once() -> None:
    """The first record of a uid stays."""
    state = NUMAState.of(node(), [holder("1-4"), holder("5-6")])
    assert format_cpulist(state.usage.holdings.held) == "1-4"
    assert state.adding(holder("7")) is state


# Together


def test_pods_that_greed_would_lose_are_placed_together() -> None:
    """Nodes with 6 and 8 free and pods of 4, 4 and 6: most-allocated fills the wrong node first."""
    zones = (amounts(0, 6000), amounts(1, 8000))
    where = NUMANode(topology=topology(2, 1, 4, 2), zones=zones, policy=SINGLE)
    wanted = [request(cpu, bind=False) for cpu in (4000, 4000, 6000)]
    state = NUMAState(where)
    both = fit_together(state, wanted, args=MOST)
    assert not isinstance(both, NUMARefusal)
    assert [given.mask for given in both] == [0b10, 0b10, 0b01]
    more = fit_together(state, [*wanted, request(2000, bind=False)], args=MOST)
    assert refused(more) == ("no joint placement of all pods found",)
    assert refused(fit_together(state, [request(9000, bind=False)])) == (
        "Unaligned NUMA Hint cause cpu prefer [11] among [11]",
    )


@pytest.mark.solver
def test_a_solver_places_what_greed_and_order_cannot() -> None:
    """Eight NUMA nodes filled to the last CPU, whatever the order; one CPU more is proven impossible."""
    where = NUMANode(
        topology=topology(1, 8, 4, 2), zones=tuple(amounts(numa, 8000) for numa in range(8)), policy=SINGLE
    )
    sizes = [3, 3, 2, 5, 3, 4, 4, 6, 2, 7, 1, 5, 2, 1, 3, 3, 2, 8]
    wanted = [request(1000 * size) for size in sorted(sizes)]
    assert sum(sizes) == 64
    given = fit_together(NUMAState(where), wanted)
    assert not isinstance(given, NUMARefusal)
    held = [one.status.cpuset for one in given]
    assert sum(cpus.bit_count() for cpus in held) == 64
    assert len({cpus & -cpus for cpus in held}) == len(held)
    more = [*wanted, request(1000)]
    assert refused(fit_together(NUMAState(where), more)) == ("no joint placement of all pods found",)
