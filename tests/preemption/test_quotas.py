"""Preemption among quotas: whose leaving may count, and what the checker makes of it (ruling 26)."""

from __future__ import annotations

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.checking import verify
from koordcore.model.decisions import Nominated, Unschedulable, Victim
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.result import ScheduleResult, with_victims_leaving
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot

RULES = PreemptionRules()
NAME = "quota.scheduling.koordinator.sh/name"


def quota(name: str, least: int, most: int, parent: str = ROOT_QUOTA) -> ElasticQuota:
    inner = name == "dept"
    cpus = [immutabledict(cpu=amount * 1000) for amount in (least, most)]
    return ElasticQuota(
        name=name, namespace="default", parent=parent, is_parent=inner, min=cpus[0], max=cpus[1]
    )


def pod(name: str, cpu: int, team: str, priority: int = 0, **labels: str) -> Pod:
    return Pod(name=name, requests={"cpu": cpu * 1000}, labels={NAME: team, **labels}, priority=priority)


def node(name: str, cpu: int, *pods: Pod) -> NodeState:
    there = Node(name=name, allocatable={"cpu": cpu * 1000, "pods": 30})
    return NodeState(there, tuple(pod.at(name) for pod in pods))


def checked(parents: bool) -> Policy:
    policy = Policy()
    setting = policy.plugin("ElasticQuota")
    assert setting is not None
    args = QuotaPolicy(enable_check_parent_quota=parents)
    return policy.with_plugin(attrs.evolve(setting, args=args))


def victims(result: ScheduleResult) -> list[str]:
    return [victim.pod.name for plan in result.preemptions for victim in plan.victims]


def test_a_victim_is_needed_where_minima_are_scaled_down() -> None:
    """Twelve CPUs are promised and nine are there: what lies within min is not certain to be admitted."""
    snapshot = ClusterSnapshot(
        nodes=[node("n", 8, pod("low", 3, "a")), node("m", 1)],
        pending=[pod("high", 2, "a", 10), pod("other", 6, "b")],
        records=[quota("a", 6, 20), quota("b", 6, 20)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["low"]
    assert verify(snapshot, result) == ()


def department(least: int, *, own: int = 50) -> ClusterSnapshot:
    """``a`` uses 16 of the 20 CPUs that the department may use, ``b`` one."""
    running = [pod(f"a{number}", 4, "a", own) for number in range(4)]
    return ClusterSnapshot(
        nodes=[node("n", 97, *running, pod("theirs", 1, "b", 1))],
        pending=[pod("high", 4, "a", 10)],
        records=[quota("dept", 20, 20), quota("a", 5, 20, "dept"), quota("b", least, 20, "dept")],
    )


@pytest.mark.parametrize("parents", [False, True])
def test_nobody_within_a_guaranteed_min_leaves_so_that_others_may_borrow(parents: bool) -> None:
    """There is room on the node; more for ``a`` would have to be taken from what ``b`` is promised."""
    snapshot = department(8)
    result = schedule(snapshot, policy=checked(parents), preempt=RULES)
    assert [type(one) for one in result.decisions] == [Unschedulable]
    result = schedule(department(8, own=0), policy=checked(parents), preempt=RULES)
    assert victims(result) == ["a0"]
    assert verify(department(8, own=0), result) == ()


@pytest.mark.parametrize("least", [0, 4])
def test_who_leaves_by_an_earlier_plan_uses_nothing_of_its_quota_any_more(least: int) -> None:
    """The second of a call evicts whom a second call would: what is beyond the quota's min when it asks."""
    running = [pod(f"b{number}", 4, "b", number) for number in range(2)]
    snapshot = ClusterSnapshot(
        nodes=[node("n", 8, *running)],
        pending=[pod("first", 4, "", 101), pod("second", 4, "", 100)],
        records=[quota("b", least, 20)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == (["b0", "b1"] if not least else ["b0"])
    assert verify(snapshot, result) == ()
    assert schedule(result.snapshot, preempt=RULES).preemptions == ()


def test_what_lies_above_its_min_may_leave_for_a_quota() -> None:
    """``b`` uses more than it may since its limits were lowered; ``a`` lacks it under their parent's."""
    running = [pod(f"a{number}", 4, "a", 50) for number in range(4)]
    snapshot = ClusterSnapshot(
        nodes=[node("n", 97, *running, pod("theirs", 3, "b", 1))],
        pending=[pod("high", 2, "a", 10)],
        records=[quota("dept", 20, 20), quota("a", 5, 20, "dept"), quota("b", 0, 1, "dept")],
    )
    result = schedule(snapshot, policy=checked(parents=True), preempt=RULES)
    assert victims(result) == ["theirs"]
    assert verify(snapshot, result) == ()


def test_who_is_evicted_asks_again() -> None:
    """With the pod of ``b`` gone for good ``a`` might use 20 CPUs; made anew it gets its share back."""
    result = schedule(department(0), preempt=RULES)
    assert [type(one) for one in result.decisions] == [Unschedulable]


def test_for_room_a_less_important_pod_leaves_whatever_its_quota_unless_it_would_reclaim() -> None:
    """``theirs`` is within its quota's min, and whom it leaves for beyond his: it would come back for it."""
    far = attrs.evolve(node("m", 97), node=attrs.evolve(node("m", 97).node, unschedulable=True))
    snapshot = attrs.evolve(department(8), nodes=[far, node("n", 4, pod("theirs", 1, "b", 1))])
    assert victims(schedule(snapshot, preempt=RULES)) == []
    result = schedule(snapshot, preempt=PreemptionRules(reclaim=False))
    assert victims(result) == ["theirs"]
    assert verify(snapshot, result) == ()


def test_the_checker_names_who_leaves_so_that_others_may_borrow() -> None:
    snapshot = department(8, own=0)
    result = schedule(snapshot, preempt=RULES)
    (decision,), (plan,) = result.decisions, result.preemptions
    assert isinstance(decision, Nominated)
    theirs = snapshot.nodes[0].pods[-1]
    forged = (Victim(theirs.key, "n", 1, str(theirs.key)),)
    changed = attrs.evolve(plan, victims=forged)
    told = attrs.evolve(
        result,
        decisions=(attrs.evolve(decision, victims=forged),),
        preemptions=(changed,),
        snapshot=with_victims_leaving(snapshot.with_pending(*result.snapshot.pending), (changed,)),
    )
    assert [(one.subject, one.message) for one in verify(snapshot, told)] == [
        ("default/theirs", "could stay: default/high fits all the same")
    ]


def test_no_eviction_helps_a_pod_that_may_not_be_preempted_beyond_its_min() -> None:
    """Whoever uses the min of such pods is protected as well."""
    guarded = "quota.scheduling.koordinator.sh/preemptible"
    snapshot = ClusterSnapshot(
        nodes=[node("n", 20, pod("low", 1, "a"))],
        pending=[pod("high", 5, "a", 10, **{guarded: "false"})],
        records=[quota("a", 2, 20)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in result.decisions] == [Unschedulable]


def beside(*waiting: Pod) -> ClusterSnapshot:
    """``team`` uses two cards more than it may; the node of three of its four has no CPU left, ``n1`` has."""
    cards = "nvidia.com/gpu"

    def room(name: str, cpu: int, count: int, *pods: Pod) -> NodeState:
        there = Node(name=name, allocatable={"cpu": cpu * 1000, cards: count, "pods": 30})
        return NodeState(there, tuple(one.at(name) for one in pods))

    lent = attrs.evolve(pod("lent", 1, "team", 3), requests=immutabledict({"cpu": 1000, cards: 3}))
    kept = attrs.evolve(pod("kept", 0, "team", 1), requests=immutabledict({cards: 1}))
    most = immutabledict({"cpu": 20_000, cards: 2})
    return ClusterSnapshot(
        nodes=[room("n0", 4, 8, lent, pod("other", 3, "", 2)), room("n1", 5, 1, kept)],
        pending=waiting,
        records=[ElasticQuota(name="team", namespace="q", parent=ROOT_QUOTA, max=most)],
    )


@pytest.mark.parametrize("members", [1, 2])
def test_who_brings_a_quota_back_within_its_limits_leaves_for_who_asks_for_other_things(members: int) -> None:
    """One card is not enough, and who has three is the cheapest; nobody has to leave for the CPU."""
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"} if members > 1 else {}
    group = PodGroup(namespace="default", name="g", min_member=members)
    snapshot = beside(*(pod(f"high-{one}", 2, "team", 9, **labels) for one in range(members)))
    snapshot = snapshot.with_records(group) if labels else snapshot
    result = schedule(snapshot, preempt=RULES)
    (plan,) = result.preemptions
    assert victims(result) == ["lent"]
    assert set(plan.nominations.values()) == {"n1"}
    assert plan.certificate.proven
    assert verify(snapshot, result) == ()


def test_a_quota_above_is_asked_about_what_a_pod_asks_for_alone() -> None:
    """The department has more cards than it may; its pod without cards has the CPU, as upstream has it."""
    cards = "nvidia.com/gpu"
    holds = attrs.evolve(pod("holds", 0, "b", 3), requests=immutabledict({cards: 3}))
    there = Node(name="n", allocatable={"cpu": 4000, cards: 8, "pods": 30})
    most, few = immutabledict({"cpu": 4000, cards: 8}), immutabledict({"cpu": 4000, cards: 1})
    quotas = [
        ElasticQuota(name=name, namespace="q", parent=above, is_parent=name == "dept", max=limit)
        for name, above, limit in (("dept", ROOT_QUOTA, few), ("a", "dept", most), ("b", "dept", most))
    ]
    snapshot = ClusterSnapshot(
        nodes=[NodeState(there, (holds.at("n"), pod("low", 3, "a", 1).at("n")))],
        pending=[pod("high", 3, "a", 9)],
        records=quotas,
    )
    result = schedule(snapshot, policy=checked(parents=True), preempt=RULES)
    assert victims(result) == ["low"]
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize(("least", "gone"), [(1, ["cheap"]), (2, ["cheap", "dear"])])
def test_a_gang_brings_the_quotas_of_those_members_within_their_limits_that_come(
    least: int, gone: list[str]
) -> None:
    """Its members are of two quotas that use more cards than they may, and ask for CPU alone."""
    cards = "nvidia.com/gpu"
    held = immutabledict({cards: 2})
    running = [
        attrs.evolve(pod(name, 0, team, priority), requests=held).at("n")
        for name, team, priority in (("cheap", "a", 1), ("dear", "b", 5))
    ]
    there = Node(name="n", allocatable={"cpu": 8000, cards: 8, "pods": 30})
    most = immutabledict({"cpu": 9000, cards: 1})
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    snapshot = ClusterSnapshot(
        nodes=[NodeState(there, tuple(running))],
        pending=[pod(f"high-{team}", 2, team, 9, **labels) for team in "ab"],
        records=[
            PodGroup(namespace="default", name="g", min_member=least),
            *(ElasticQuota(name=name, namespace="q", parent=ROOT_QUOTA, max=most) for name in "ab"),
        ],
    )
    result = schedule(snapshot, preempt=RULES)
    (plan,) = result.preemptions
    assert sorted(victims(result)) == gone
    assert plan.certificate.proven
    assert verify(snapshot, result) == ()
