"""Kubernetes' own groups in the flow: gates, minimums, domains, eviction, what is said."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    Nominated,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Unschedulable,
    ViolationKind,
    Waiting,
    schedule,
    verify,
)
from koordcore.explaining.groups import group_states, job_states
from koordcore.manifests.plan_patches import patches
from koordcore.model.cluster import PriorityClass
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodPhase, PreemptionPolicy, SchedulingGroup
from koordcore.model.policy import GangTurns, Policy
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    GroupCondition,
    SchedulingPodGroup,
    SchedulingWorkload,
)

RULES = PreemptionRules()


def node(name: str, cpu: int, *running: Pod, **labels: str) -> NodeState:
    whole = Node(name=name, labels=labels, allocatable={"cpu": cpu, "pods": 20})
    return NodeState(whole, tuple(pod.at(name) for pod in running))


def group(name: str, least: int | None = None, key: str = "", **more: Any) -> SchedulingPodGroup:
    return SchedulingPodGroup(name=name, min_count=least, topology_keys=(key,) if key else (), **more)


def pod(name: str, cpu: int, of: str = "", **more: Any) -> Pod:
    own = SchedulingGroup(of) if of else None
    return Pod(name=name, requests={"cpu": cpu}, scheduling_group=own, **more)


def pods(of: str, count: int, cpu: int = 1000, **more: Any) -> list[Pod]:
    return [pod(f"{of}-{number}", cpu, of, **more) for number in range(count)]


def cluster(nodes: list[NodeState], pending: list[Pod], *records: Any) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes, pending=pending, records=records)


def decided(snapshot: ClusterSnapshot, **how: Any) -> ScheduleResult:
    result = schedule(snapshot, **how)
    assert verify(snapshot, result) == ()
    return result


def placed(snapshot: ClusterSnapshot) -> dict[str, str]:
    return {one.pod.name: one.node for one in decided(snapshot).bound}


def test_of_three_with_room_for_two_nobody_starts() -> None:
    """The minimum counts, the message is upstream's, and the proof says that no other plan exists."""
    result = decided(cluster([node("n", 2000)], pods("a", 3), group("a", 3)))
    assert not result.bound
    (plan,) = result.jobs
    assert plan.job == "podgroup:default/a"
    assert plan.message.startswith("minCount (3) is not yet satisfied")
    assert plan.certificate is not None
    assert plan.certificate.proven


def test_policy_basic_takes_whoever_fits() -> None:
    assert len(placed(cluster([node("n", 2000)], pods("a", 3), group("a")))) == 2


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ((), 'waiting for pods\'s pod group "a" to appear in scheduling queue'),
        ((group("a", 4),), "waiting for minCount pods from a gang to appear in scheduling queue"),
        (
            (group("a", 1, parent="root"),),
            'failed to build hierarchy snapshot: composite pod group "root" not found',
        ),
        (
            (group("a", 1, parent="r"), CompositePodGroup(name="r", min_groups=2)),
            'waiting for composite pod group "r" tree to meet quorum',
        ),
    ],
)
def test_who_waits_outside_the_queue(records: tuple[Any, ...], reason: str) -> None:
    result = decided(cluster([node("n", 9000)], pods("a", 3), *records), preempt=RULES)
    assert {one.reason for one in result.decisions if isinstance(one, Waiting)} == {reason}


def test_one_gated_member_holds_all() -> None:
    gated = pod("a-9", 1000, "a", gates=("x",))
    result = decided(cluster([node("n", 9000)], [*pods("a", 3), gated], group("a", 2)))
    assert not result.bound
    late = cluster([node("n", 9000, *pods("a", 2))], [pod("a-7", 1000, "a"), gated], group("a", 2))
    assert not decided(late).bound


def test_members_that_ran_to_their_end_are_not_seen() -> None:
    done = attrs.evolve(pod("a-9", 1000, "a").at("n"), phase=PodPhase.SUCCEEDED)
    assert placed(cluster([node("n", 9000)], pods("a", 2), group("a", 3), done)) == {}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            [pod("p", 1, "a"), pod("q", 1, "a", scheduler_name="koord-scheduler")],
            'the same .spec.schedulerName set, got: "koord-scheduler" and "default-scheduler"',
        ),
        (
            [pod("p", 1, "a"), pod("q", 1, "a", priority=7)],
            "the same priority as the pod group's priority, got 7 and 0",
        ),
        (
            [pod("p", 1, "a"), pod("q", 1, "a", preemption_policy=PreemptionPolicy.NEVER)],
            "the same preemption policy, got Never and PreemptLowerPriority",
        ),
    ],
)
def test_pods_that_contradict_each_other_are_refused_together(members: list[Pod], text: str) -> None:
    result = decided(cluster([node("n", 9000)], members, group("a")), preempt=RULES)
    assert not result.bound
    (plan,) = result.jobs
    assert plan.malformed
    assert text in plan.message


def test_a_priority_class_says_the_priority_of_a_group() -> None:
    classes = PriorityClass(name="high", value=7)
    members = pods("a", 2, priority=7)
    assert (
        len(placed(cluster([node("n", 9000)], members, group("a", 2, priority_class="high"), classes))) == 2
    )


def test_a_pod_in_two_kinds_of_group_is_refused() -> None:
    both = pod("p", 1000, "a", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
    sigs = PodGroup(namespace="default", name="g", min_member=1)
    result = decided(cluster([node("n", 9000)], [both], group("a"), sigs))
    (one,) = result.decisions
    assert isinstance(one, Unschedulable)
    assert "which one is meant?" in one.refusal


def test_a_pod_in_two_kinds_of_group_hurts_nobody_else() -> None:
    """It counts in neither: both start by the members that say one thing."""
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    both = pod("p", 1000, "a", labels=label)
    others = [*pods("a", 2), *(pod(f"g-{rank}", 1000, labels=label) for rank in range(2))]
    sigs = PodGroup(namespace="default", name="g", min_member=2)
    snapshot = cluster([node("n", 9000)], [both, *others], group("a", 2), sigs)
    result = decided(snapshot)
    assert verify(snapshot, result) == ()
    assert sorted(one.pod.name for one in result.bound) == ["a-0", "a-1", "g-0", "g-1"]
    short = cluster([node("n", 9000)], [both, *pods("a", 1)], group("a", 2), sigs)
    assert not decided(short).bound


def test_groups_of_all_dialects_live_side_by_side() -> None:
    labelled = [
        Pod(name=f"g-{n}", requests={"cpu": 1000}, labels={"pod-group.scheduling.sigs.k8s.io": "g"})
        for n in range(2)
    ]
    part = [
        attrs.evolve(one, scheduling_group=SchedulingGroup("g", workload="w", replica=key))
        for key in "xy"
        for one in pods(f"w{key}", 2)
    ]
    records = (
        PodGroup(namespace="default", name="g", min_member=2),
        group("g", 2),
        SchedulingWorkload(
            name="w", api_version="scheduling.k8s.io/v1alpha1", pod_groups=immutabledict({"g": 2})
        ),
    )
    everybody = [*labelled, *(pod(f"k-{n}", 1000, "g") for n in range(2)), *part]
    result = decided(cluster([node("n", 7000)], everybody, *records))
    assert len(result.bound) == 6
    assert {plan.job for plan in result.jobs} == {
        "default/g",
        "podgroup:default/g",
        "workload:default/w/g/x",
        "workload:default/w/g/y",
    }


def test_a_label_holds_a_group_together_and_late_members_with_it() -> None:
    racks = [node("a1", 2000, rack="a"), node("b1", 2000, rack="b"), node("b2", 1000, rack="b")]
    assert set(placed(cluster(racks, pods("g", 3), group("g", 3, "rack"))).values()) == {"b1", "b2"}
    running = [node("a1", 2000, pod("g-0", 2000, "g"), rack="a"), *racks[1:]]
    late = decided(cluster(running, [pod("g-1", 1000, "g")], group("g", 1, "rack")))
    assert not late.bound
    assert late.jobs[0].message.startswith("0/2 placements are available, first placement status:")
    assert late.jobs[0].detail == "the running members' rack, a, has 0 of 1 slots; 1 more would do"


@pytest.mark.parametrize("labels", [{}, {"rack": "b"}])
def test_running_members_without_one_domain_stop_the_group(labels: dict[str, str]) -> None:
    nodes = [node("a", 9000, pod("g-0", 1, "g"), rack="a"), node("b", 9000, pod("g-1", 1, "g"), **labels)]
    result = decided(cluster(nodes, [pod("g-2", 1, "g")], group("g", 1, "rack")), preempt=RULES)
    assert not result.bound
    assert result.jobs[0].malformed
    assert result.jobs[0].message.startswith("cannot determine domain for already scheduled pods: ")


def test_an_empty_value_is_a_domain() -> None:
    nodes = [node("a", 1000, rack=""), node("b", 1000)]
    assert placed(cluster(nodes, pods("g", 1), group("g", 1, "rack"))) == {"g-0": "a"}


def test_the_fullest_domain_that_holds_all_is_taken() -> None:
    nodes = [node("a", 8000, rack="a"), node("b", 4000, pod("x", 1000), rack="b"), node("c", 2000, rack="c")]
    assert set(placed(cluster(nodes, pods("g", 3), group("g", 2, "rack"))).values()) == {"b"}


def tree() -> list[Any]:
    return [CompositePodGroup(name="root", min_groups=2, topology_keys=("zone",))]


def test_siblings_do_not_starve_each_other() -> None:
    """One greedy child would take all racks of the zone; both need one."""
    nodes = [node(f"n{n}", 2000, zone="z", rack=f"r{n}") for n in range(2)]
    members = [*pods("x", 4), *pods("y", 2)]
    records = [*tree(), group("x", 2, "rack", parent="root"), group("y", 2, "rack", parent="root")]
    result = decided(cluster(nodes, members, *records))
    assert len({one.node for one in result.bound if one.pod.name.startswith("y")}) == 1
    assert len(result.bound) == 4
    assert result.jobs[0].certificate is not None
    assert result.jobs[0].certificate.proven


def test_below_a_group_of_groups_that_fails_nobody_starts() -> None:
    records = [*tree(), group("x", 2, parent="root"), group("y", 2, parent="root")]
    snapshot = cluster([node("n", 3000, zone="z")], [*pods("x", 2), *pods("y", 2)], *records)
    result = decided(snapshot)
    assert not result.bound
    assert "minGroupCount (2) of root is not satisfied" in result.jobs[0].message


@pytest.mark.parametrize("key", ["", "zone"])
@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("room", ["free", "taken", "short"])
def test_a_group_of_groups_without_pods_only_fails_itself(room: str, least: int, key: str) -> None:
    """Two groups of groups have nobody below them, one of them nothing at all; its sibling starts."""
    keys = (key,) if key else ()
    records = [
        CompositePodGroup(name="root", min_groups=least, priority=9),
        CompositePodGroup(name="hollow", parent="root", topology_keys=keys),
        CompositePodGroup(name="empty", parent="hollow", min_groups=1, topology_keys=keys),
        group("x", 2, "rack" if key else "", parent="root"),
    ]
    low = [pod("low", 2000)] if room == "taken" else []
    nodes = [node("n", 1000 if room == "short" else 2000, *low, zone="z", rack="r")]
    members = [*pods("x", 2, priority=9), pod("bystander", 0)]
    result = decided(cluster(nodes, members, *records), preempt=RULES)
    others = {type(one) for one in result.decisions if one.pod.name != "bystander"}
    assert "bystander" in {one.pod.name for one in result.bound}
    if least == 2:
        assert others == {Waiting}
    else:
        assert others == {{"free": Bound, "taken": Nominated, "short": Unschedulable}[room]}
        assert result.jobs[0].least == 2
    states = group_states(cluster(nodes, members, *records))
    assert [(one.name.rpartition("/")[2], one.waiting) for one in states if one.level] == [
        ("hollow", 0),
        ("empty", 0),
        ("x", 2),
    ]


def test_a_cycle_of_parents_is_told() -> None:
    records = [
        group("x", 1, parent="a"),
        CompositePodGroup(name="a", parent="b"),
        CompositePodGroup(name="b", parent="a"),
    ]
    (one,) = decided(cluster([node("n", 3000)], pods("x", 1), *records)).decisions
    assert isinstance(one, Waiting)
    assert "parents form a cycle: x -> a -> b" in one.reason


def test_a_group_evicts_for_as_many_as_can_start_and_for_no_more() -> None:
    low = [node(f"n{n}", 1000, pod(f"low-{n}", 1000, priority=n)) for n in range(3)]
    high = node("n9", 1000, pod("high", 1000, priority=99))
    members = pods("a", 5, priority=10)
    result = decided(cluster([*low, high], members, group("a", 2, priority=10)), preempt=RULES)
    assert sum(isinstance(one, Nominated) for one in result.decisions) == 3
    (plan,) = result.preemptions
    assert [str(victim.pod) for victim in plan.victims] == [f"default/low-{n}" for n in range(3)]
    assert plan.certificate.proven


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("home", ["a", "b"])
def test_room_for_late_members_is_made_in_the_domain_of_those_that_run(home: str, below: bool) -> None:
    """Whoever is cheapest runs in the other rack."""
    nodes = [
        node(
            f"{rack}1",
            2000,
            *([pod("g-0", 1000, "g", priority=9)] if rack == home else []),
            pod(f"low-{rack}", 1000 if rack == home else 2000, priority=int(rack == home)),
            rack=rack,
        )
        for rack in "ab"
    ]
    parent = {"parent": "root"} if below else {}
    records: list[Any] = [group("g", 1, "rack", priority=9, **parent)]
    records += [CompositePodGroup(name="root", min_groups=1, priority=9)] if below else []
    late = cluster(nodes, [pod("g-1", 1000, "g", priority=9)], *records)
    (plan,) = decided(late, preempt=RULES).preemptions
    assert [victim.pod.name for victim in plan.victims] == [f"low-{home}"]


def test_who_binds_some_evicts_nobody_in_the_same_cycle() -> None:
    nodes = [node("n", 2000, pod("low", 1000, priority=1))]
    snapshot = cluster(nodes, pods("a", 2, priority=10), group("a", priority=10))
    first = decided(snapshot, preempt=RULES)
    assert len(first.bound) == 1
    assert not first.preemptions
    second = decided(first.snapshot, preempt=RULES)
    assert [str(victim.pod) for victim in second.preemptions[0].victims] == ["default/low"]


@pytest.mark.parametrize(("mode", "gone"), [(DisruptionMode.SINGLE, 1), (DisruptionMode.ALL, 3)])
def test_the_mode_of_a_victim_says_who_goes_with_it(mode: DisruptionMode, gone: int) -> None:
    nodes = [node(f"n{n}", 1000, pod(f"v-{n}", 1000, "v", priority=1)) for n in range(3)]
    records = [
        group("v", 3, parent="root", priority=1),
        CompositePodGroup(name="root", priority=1, disruption=mode),
        group("a", 1, priority=10),
    ]
    result = decided(cluster(nodes, pods("a", 1, priority=10), *records), preempt=RULES)
    assert len(result.preemptions[0].victims) == gone


def test_a_groups_priority_protects_its_pods() -> None:
    nodes = [node("n", 1000, pod("v-0", 1000, "v", priority=1))]
    records = [group("v", priority=50), group("a", 1, priority=10)]
    assert not decided(cluster(nodes, pods("a", 1, priority=10), *records), preempt=RULES).preemptions


def test_a_bare_pod_evicts_a_whole_unit() -> None:
    nodes = [node(f"n{n}", 1000, pod(f"v-{n}", 1000, "v", priority=1)) for n in range(2)]
    whole = group("v", 1, priority=1, disruption=DisruptionMode.ALL)
    result = decided(cluster(nodes, [pod("p", 1000, priority=10)], whole), preempt=RULES)
    assert len(result.preemptions[0].victims) == 2


def test_the_checker_finds_who_starts_alone_and_who_is_scattered() -> None:
    nodes = [node("a", 9000, rack="a"), node("b", 9000, rack="b")]
    snapshot = cluster(nodes, pods("g", 2), group("g", 2, "rack"))
    result = decided(snapshot)
    first, second = result.bound
    moved = result.snapshot.pod(second.pod)
    assert moved is not None
    other = "b" if second.node == "a" else "a"
    scattered = attrs.evolve(
        result,
        decisions=(first, attrs.evolve(second, node=other)),
        snapshot=result.snapshot.forget(second.pod).assume(moved.at(other)),
    )
    assert ViolationKind.GROUP in {one.kind for one in verify(snapshot, scattered)}
    torn = attrs.evolve(
        result,
        decisions=(first, Unschedulable(pod=second.pod)),
        snapshot=result.snapshot.forget(second.pod).with_pending(moved.at(None)),
    )
    assert ViolationKind.GROUP in {one.kind for one in verify(snapshot, torn)}


def test_groups_take_part_in_a_plan_for_a_whole_queue() -> None:
    """One by one the first gang takes the node that only the second fits."""
    members = [*pods("a", 2, 1000), *pods("b", 1, 3000)]
    snapshot = cluster([node("m", 3000), node("n", 2000)], members, group("a", 2), group("b", 1))
    assert len(decided(snapshot, policy=Policy(gangs=GangTurns.TOGETHER)).bound) == 3


def test_groups_under_a_label_are_planned_together() -> None:
    """Racks of five nodes for gangs of 2, 2, 3 and 3: one by one three of them start."""
    nodes = [node(f"{rack}{n}", 1000, rack=rack) for rack in "xy" for n in range(5)]
    sizes = {"a": 2, "b": 2, "c": 3, "d": 3}
    members = [one for name, size in sizes.items() for one in pods(name, size)]
    records = [group(name, size, "rack") for name, size in sizes.items()]
    snapshot = cluster([*nodes, node("bare", 9000)], members, *records)
    assert len(decided(snapshot).bound) == 7
    result = decided(snapshot, policy=Policy(gangs=GangTurns.TOGETHER))
    assert len(result.bound) == 10
    assert result.together[0].certificate.proven


def test_conditions_of_groups_are_written_once_and_never_back() -> None:
    members = pods("a", 2)
    snapshot = cluster([node("n", 2000)], members, group("a", 2, generation=4))
    (call,) = [one for one in patches(decided(snapshot)) if one.pod_group]
    assert call.path == "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/a/status"
    (condition,) = call.body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodGroupInitiallyScheduled",
        "True",
        "Scheduled",
    )
    assert condition["observedGeneration"] == 4
    known = GroupCondition(type="PodGroupInitiallyScheduled", status="True", reason="Scheduled")
    late = cluster([node("n", 1000, members[0])], members[1:], group("a", 1, conditions=(known,)))
    assert not [one for one in patches(decided(late)) if one.pod_group]
    failed = cluster([node("n", 1000)], members, group("a", 2, api_version="scheduling.k8s.io/v1alpha2"))
    (call,) = [one for one in patches(decided(failed)) if one.pod_group]
    (condition,) = call.body["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodGroupScheduled", "Unschedulable")


def test_what_is_said_of_a_group() -> None:
    nodes = [node("a1", 2000, pod("x-9", 500, "x"), rack="a", zone="z"), node("b1", 2000, rack="b", zone="z")]
    records = [*tree(), group("x", 2, "rack", parent="root"), group("y", 2, parent="root")]
    snapshot = cluster(nodes, [*pods("x", 1), *pods("y", 2)], *records)
    states = group_states(snapshot)
    assert [(one.level, one.name, one.running, one.waiting, one.where) for one in states] == [
        (0, "compositepodgroup:default/root", 1, 3, "zone=z"),
        (1, "podgroup:default/x", 1, 1, "rack=a"),
        (1, "podgroup:default/y", 0, 2, ""),
    ]
    assert job_states(snapshot, snapshot.pending[0]) == states


def test_a_group_starts_before_late_members_of_others_take_its_room() -> None:
    """One by one three late members would come first, which are as many."""
    groups = [group(name, 1, parent="top") for name in "abc"]
    late = [pod("a-1", 1000, "a"), pod("a-2", 2000, "a"), pod("b-1", 2000, "b"), pod("b-2", 1000, "b")]
    nodes = [node("n", 4000, pod("a-0", 0, "a"), pod("b-0", 0, "b"))]
    top = CompositePodGroup(name="top", min_groups=1)
    found = placed(cluster(nodes, [*late, pod("c-0", 1000, "c")], top, *groups))
    assert len(found) == 3
    assert "c-0" in found
