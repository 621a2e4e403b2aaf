"""A victim that could have stayed is named, on its own or with its gang."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.checking import verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
)
from koordcore.model.containers import Container
from koordcore.model.decisions import Nominated, Victim
from koordcore.model.device_slices import ResourceSlice, SliceDevice
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import HostPort, Pod, PodKey, PodResourceClaim
from koordcore.model.preemption import Move, PreemptionPlan, PreemptionRules, Relocation
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.selectors import LabelSelector
from koordcore.result import ScheduleResult, with_victims_leaving
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.preemption.test_flow import node, pod

RULES = PreemptionRules()


def planned(snapshot: ClusterSnapshot) -> ScheduleResult:
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    return result


def forged(
    snapshot: ClusterSnapshot, result: ScheduleResult, more: Sequence[Pod], moves: Sequence[Move] = ()
) -> list[tuple[str, str]]:
    """Say what is wrong with the only plan once more pods leave, or some of them move."""
    (plan,) = result.preemptions
    added = [Victim(one.key, str(one.node_name), one.priority, str(one.key)) for one in more]
    number = next(turn for turn, one in enumerate(result.decisions) if isinstance(one, Nominated))
    decision = result.decisions[number]
    assert isinstance(decision, Nominated)
    decisions = list(result.decisions)
    decisions[number] = attrs.evolve(decision, victims=(*decision.victims, *added))
    changed: PreemptionPlan = attrs.evolve(plan, victims=(*plan.victims, *added), moves=tuple(moves))
    told = with_victims_leaving(result.snapshot, (changed,))
    found = verify(
        snapshot,
        attrs.evolve(result, decisions=tuple(decisions), preemptions=(changed,), snapshot=told),
    )
    return [(one.subject, one.message) for one in found]


def running(snapshot: ClusterSnapshot, *names: str) -> list[Pod]:
    return [one for one in snapshot.bound_pods() if one.name in names]


def test_whoever_is_not_needed_is_named() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 3000), pod("b", 1000)), node("n2", 4000, pod("c", 4000, 5))],
        pending=[pod("p", 3000, 10)],
    )
    result = planned(snapshot)
    for name in ("b", "c"):
        assert forged(snapshot, result, running(snapshot, name)) == [
            (f"default/{name}", "could stay: default/p fits all the same")
        ]


def test_who_keeps_it_away_from_another_node_leaves_doubt() -> None:
    """A gang breaks for its member next door, which wants nobody like the pod in the zone."""
    wants_nobody = Affinity(anti=PodAffinity((PodAffinityTerm("zone", LabelSelector({"app": "y"})),)))
    gang = [pod("g0", 0, 0, "g"), pod("g1", 1000, 0, "g", affinity=wants_nobody)]
    states = [node("n1", 4000, gang[0]), node("n2", 1000, gang[1])]
    zoned = [NodeState(attrs.evolve(one.node, labels={"zone": "a"}), one.pods) for one in states]
    snapshot = ClusterSnapshot(
        nodes=zoned,
        pending=[pod("p", 1000, 10, labels={"app": "y"})],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    (plan,) = planned(snapshot).preemptions
    assert plan.nominations == {"default/p": "n1"}
    assert {victim.pod.name for victim in plan.victims} == {"g0", "g1"}


def test_members_that_start_in_the_same_turn_hold_their_room_already() -> None:
    """The small one takes what is free, so that both have to leave for the large one, which is told first."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 3000, pod("a", 1000), pod("b", 1000))],
        pending=[pod("g0", 2000, 10, "g"), pod("g1", 1000, 10, "g")],
        records=[PodGroup(namespace="default", name="g", min_member=1)],
    )
    result = schedule(snapshot, preempt=PreemptionRules(members="each"))
    assert [type(one).__name__ for one in result.decisions] == ["Nominated", "Bound"]
    assert {victim.pod.name for victim in result.preemptions[0].victims} == {"a", "b"}
    assert verify(snapshot, result) == ()


def test_a_gang_that_can_spare_enough_need_not_break() -> None:
    group = PodGroup(namespace="default", name="g", min_member=2)
    gang = [pod(f"g{number}", 1000, 0, "g") for number in range(4)]
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, *gang[:2], pod("x", 2000, 50)), node("n2", 2000, *gang[2:])],
        pending=[pod("p", 2000, 10)],
        records=[group],
    )
    result = planned(snapshot)
    rest = [one for one in running(snapshot, "g0", "g1", "g2", "g3") if one.key not in gone(result)]
    assert forged(snapshot, result, rest) == [
        ("default/g", "need not break: 2 have to leave, it can spare 2")
    ]


def test_a_gang_counts_on_whom_the_least_of_its_members_could_evict() -> None:
    """The one that is nominated could evict who leaves anyhow, and the other one that waits could not."""
    leaving = attrs.evolve(pod("old", 2000, 5), deleted=datetime(2026, 11, 1, tzinfo=UTC))
    waiting = [pod("m0", 3000, 1, "g"), pod("m1", 2000, 9, "g")]
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, leaving, pod("low", 2000, 0))],
        pending=waiting,
        records=[PodGroup(namespace="default", name="g", min_member=1)],
    )
    for there, evicted in (snapshot, 1), (attrs.evolve(snapshot, pending=waiting[1:]), 0):
        found = [one for one in planned(there).decisions if isinstance(one, Nominated)]
        assert [(one.pod.name, len(one.victims)) for one in found] == [("m1", evicted)]


@pytest.mark.parametrize("near", [False, True])
def test_a_gang_next_door_that_may_speak_against_it_leaves_doubt(near: bool) -> None:
    """Nobody comes to its node, and it can spare one of three: what its members want decides."""
    term = PodAffinityTerm("zone", LabelSelector({"app": "y"}))
    wants = {"affinity": Affinity(anti=PodAffinity((term,)))} if near else {}
    gang = [pod(f"g{number}", 1000, 0, "g", **wants) for number in range(3)]
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 3000)), node("n2", 3000, *gang)],
        pending=[pod("p", 3000, 10)],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    found = forged(snapshot, planned(snapshot), running(snapshot, "g0", "g1", "g2"))
    assert found == ([] if near else [("default/g", "could stay: default/p fits all the same")])


def test_who_holds_a_device_that_an_extended_resource_is_served_by_leaves_doubt() -> None:
    """Sums say nothing of the claim that will be made: without the victim no device is free."""
    spec = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="c"),)),))
    got = ClaimAllocation(results=(DeviceResult(request="r", driver="d", pool="n", device="d0"),))
    for name in ("ex.com/a", "deviceclass.resource.kubernetes.io/c"):
        snapshot = ClusterSnapshot(
            nodes=[node("n", 4000, pod("low", 0, resource_claims=(PodResourceClaim("k", claim="held"),)))],
            pending=[Pod(name="high", containers=(Container("c", requests={name: 1}),), priority=10)],
            records=[
                DeviceClass(name="c", extended_resource_name="ex.com/a"),
                ResourceSlice(
                    name="s", driver="d", pool="n", node_name="n", devices=(SliceDevice(name="d0"),)
                ),
                ResourceClaim(
                    name="held", spec=spec, allocation=got, reserved_for=(ClaimConsumer("low", "low"),)
                ),
            ],
        )
        assert gone(planned(snapshot)) == {PodKey("default", "low")}


def gone(result: ScheduleResult) -> set[object]:
    return {victim.pod for plan in result.preemptions for victim in plan.victims}


def test_a_port_is_reason_enough_to_leave() -> None:
    ports = (HostPort(8080),)
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 1000, host_ports=ports))],
        pending=[pod("p", 1000, 10, host_ports=ports)],
    )
    assert len(planned(snapshot).preemptions) == 1


@pytest.mark.parametrize(("runtime", "named"), [(False, 1), (True, 0)])
def test_a_quota_is_reason_enough_and_a_runtime_quota_leaves_doubt(runtime: bool, named: int) -> None:
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    team = ElasticQuota(
        name="team", namespace="default", min=immutabledict(cpu=1000), max=immutabledict(cpu=4000)
    )
    snapshot = ClusterSnapshot(
        nodes=[
            node("n1", 9000, pod("a", 3000, labels=labels), pod("b", 1000, labels=labels), pod("c", 1000))
        ],
        pending=[pod("p", 3000, 10, labels=labels)],
        records=[team],
    )
    policy = schedule(snapshot).policy
    setting = policy.plugin("ElasticQuota")
    assert setting is not None
    told = attrs.evolve(setting, args=QuotaPolicy(enable_runtime_quota=runtime))
    result = schedule(snapshot, policy=policy.with_plugin(told), preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [victim.pod.name for victim in result.preemptions[0].victims] == ["a"]
    assert len(forged(snapshot, result, running(snapshot, "b"))) == named


def test_a_quota_beyond_its_max_is_reason_enough_for_a_pod_that_asks_for_nothing() -> None:
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    most = immutabledict(cpu=4000)
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 9000, pod("a", 3000, labels=labels), pod("b", 2000, labels=labels))],
        pending=[attrs.evolve(pod("p", 0, 10, labels=labels), requests={})],
        records=[ElasticQuota(name="team", namespace="default", min=most, max=most)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert len(result.preemptions) == 1
    assert verify(snapshot, result) == ()


def test_moves_are_checked() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 4000)), node("n2", 4000, pod("b", 1000, 50))],
        pending=[pod("p", 4000, 10)],
    )
    result = planned(snapshot)
    (victim,) = result.preemptions[0].victims
    stranger = Victim(running(snapshot, "b")[0].key, "n2", 50, "default/b")
    assert forged(snapshot, result, (), [Move(victim, "n2")]) == [
        ("n2", "cpu: 5000 once the victims have gone, 4000 allocatable")
    ]
    assert forged(snapshot, result, (), [Move(victim, "n9")]) == [("default/a", "no node n9")]
    assert ("default/a", "moves to n1, where it is") in forged(snapshot, result, (), [Move(victim, "n1")])
    assert ("default/b", "moves and is none of the victims") in forged(
        snapshot, result, (), [Move(stranger, "n1")]
    )


def test_plan_and_decisions_say_the_same() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1", 4000, pod("a", 4000))], pending=[pod("p", 4000, 10)])
    result = planned(snapshot)
    (plan,) = result.preemptions
    untold = snapshot.with_pending(*result.snapshot.pending)
    silent = attrs.evolve(result, preemptions=(attrs.evolve(plan, victims=()),), snapshot=untold)
    assert [one.message for one in verify(snapshot, silent)] == ["is not in both, the plan and the decisions"]


def test_what_others_of_the_quota_were_promised_is_reason_enough() -> None:
    """``first`` waits for the room of who leaves; beside it the quota has none for ``p`` while ``a`` runs."""
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    team = ElasticQuota(
        name="team", namespace="default", min=immutabledict(cpu=4000), max=immutabledict(cpu=6000)
    )
    leaving = attrs.evolve(pod("old", 4000, labels=labels), deleted=datetime(2026, 1, 1, tzinfo=UTC))
    first = attrs.evolve(pod("first", 4000, 10, labels=labels), nominated_node="n1")
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, leaving), node("n2", 4000, pod("a", 2000, labels=labels))],
        pending=[first, pod("p", 2000, 10, labels=labels)],
        records=[team],
    )
    result = schedule(snapshot, [one for one in snapshot.pending if one.name == "p"], preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [victim.pod.name for plan in result.preemptions for victim in plan.victims] == ["a"]


def test_who_makes_way_for_another_one_that_moves_beside_a_nominated_pod_is_needed() -> None:
    """``waits`` has the rest of the memory of the other node, and ``goes`` leaves it that."""
    gib = 1 << 30
    here = Node(name="a", labels={"own": "a"}, allocatable={"cpu": 4000, "memory": 8 * gib, "pods": 9})
    there = Node(name="b", allocatable={"cpu": 16_000, "memory": 4 * gib, "pods": 9})
    stays = Pod(name="stays", requests={"cpu": 3000}, priority=1000, node_name="a")
    goes = Pod(name="goes", requests={"cpu": 1000, "memory": gib}, node_name="a")
    one = Pod(name="one", requests={"memory": gib}, node_name="b")
    two = Pod(name="two", requests={"memory": gib}, priority=1000, node_name="b")
    new = Pod(name="new", requests={"cpu": 1000}, priority=100, node_selector={"own": "a"})
    waits = Pod(name="waits", requests={"memory": 2 * gib}, priority=10, nominated_node="b")
    nodes = [NodeState(here, (goes, stays)), NodeState(there, (one, two))]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[new, waits])
    result = schedule(snapshot, [new], preempt=PreemptionRules(relocation=Relocation.FIRST))
    (plan,) = result.preemptions
    assert {move.victim.pod.name: move.node for move in plan.moves} == {"goes": "b", "one": "a"}
    assert verify(snapshot, result) == ()
