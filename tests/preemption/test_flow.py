"""Preemption in the flow: plans hold once the victims have gone, and stand until then."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.manifests import patches, result_from_record, result_record
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.decisions import Bound, Nominated, Unschedulable, Waiting
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import HostPort, Pod, PodKey, PreemptionPolicy
from koordcore.model.preemption import Members, PreemptionRules, Relocation
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import (
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.preemption import DISABLE_PREEMPTIBLE, PREEMPTED_REASON
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot

GROUP = "pod-group.scheduling.sigs.k8s.io"
RULES = PreemptionRules()
LIMIT = immutabledict(cpu=4000)


def node(name: str, cpu: int = 4000, *pods: Pod) -> NodeState:
    there = Node(name=name, allocatable={"cpu": cpu, "memory": 2**33, "pods": 10})
    return NodeState(there, tuple(pod.at(name) for pod in pods))


def pod(name: str, cpu: int, priority: int = 0, gang: str = "", **more: object) -> Pod:
    labels = {GROUP: gang} if gang else {}
    given = {"labels": labels, **more}
    return Pod(name=name, requests={"cpu": cpu}, priority=priority, **given)  # type: ignore[arg-type]


def victims(result: ScheduleResult) -> list[str]:
    return sorted(victim.pod.name for plan in result.preemptions for victim in plan.victims)


def after(result: ScheduleResult) -> ScheduleResult:
    """Schedule those who are nominated once the victims have gone."""
    gone = [victim.pod for plan in result.preemptions for victim in plan.victims]
    waiting = [pod for pod in result.snapshot.pending if pod.nominated_node]
    return schedule(result.snapshot.forget(*gone), waiting)


def test_a_gang_is_nominated_as_a_whole_and_binds_once_the_victims_have_gone() -> None:
    group = PodGroup(namespace="default", name="big", min_member=2)
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 3000)), node("n2", 4000, pod("b", 3000))],
        pending=[pod("m1", 3000, 10, "big"), pod("m2", 3000, 10, "big")],
        records=[group],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [type(one) for one in result.decisions] == [Nominated, Nominated]
    assert victims(result) == ["a", "b"]
    assert [one.nominated_node for one in result.snapshot.pending] == ["n1", "n2"]
    assert len(after(result).bound) == 2


def test_nobody_is_evicted_unless_asked_for() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1", 4000, pod("a", 3000))], pending=[pod("p", 3000, 10)])
    result = schedule(snapshot)
    assert isinstance(result.decisions[0], Unschedulable)
    assert result.preemptions == ()


@pytest.mark.parametrize(
    ("running", "waiting"),
    [
        pytest.param({"priority": 10}, {}, id="equal priority"),
        pytest.param({"labels": {DISABLE_PREEMPTIBLE: "true"}}, {}, id="protected"),
        pytest.param({}, {"preemption_policy": PreemptionPolicy.NEVER}, id="never"),
    ],
)
def test_whoever_may_not_leave_stays(running: dict[str, object], waiting: dict[str, object]) -> None:
    low = attrs.evolve(pod("a", 3000), **running)  # type: ignore[arg-type]
    high = attrs.evolve(pod("p", 3000, 10), **waiting)  # type: ignore[arg-type]
    result = schedule(ClusterSnapshot(nodes=[node("n1", 4000, low)], pending=[high]), preempt=RULES)
    assert isinstance(result.decisions[0], Unschedulable)


def test_two_preemptors_do_not_count_on_the_same_victim() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 4000)), node("n2", 4000, pod("b", 4000, 5))],
        pending=[pod("p", 4000, 20), pod("q", 4000, 10)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert {str(one.pod): one.node for one in result.decisions if isinstance(one, Nominated)} == {
        "default/p": "n1",
        "default/q": "n2",
    }


def test_what_a_preemptor_waits_for_is_not_given_away() -> None:
    """1000m are free beside the victim; they belong to the plan."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 3000))], pending=[pod("p", 4000, 20), pod("q", 1000, 10)]
    )
    result = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in result.decisions] == [Nominated, Unschedulable]
    assert verify(snapshot, result) == ()


def test_whoever_fits_beside_a_plan_is_nominated_there() -> None:
    """Nobody more has to leave for `q`, and it does not end up on what the victim on n2 leaves for `r`."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 4000)), node("n2", 4000, pod("b", 4000, 5))],
        pending=[pod("p", 3000, 30), pod("q", 1000, 20), pod("r", 4000, 10)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [(one.node, len(one.victims)) for one in result.decisions if isinstance(one, Nominated)] == [
        ("n1", 1),
        ("n1", 0),
        ("n2", 1),
    ]
    assert len(after(result).bound) == 3


def test_who_is_nominated_beside_a_plan_stays_there_however_important_its_victims_are() -> None:
    """`low` may not evict `old` itself: it counts on the room all the same, in later calls, too."""
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("old", 4000, 50)), node("b", 2000, pod("tiny", 2000))],
        pending=[pod("top", 3000, 100), pod("low", 1000, 10)],
    )
    for expected in (["old"], [], []):
        result = schedule(snapshot, preempt=RULES)
        assert verify(snapshot, result) == ()
        assert victims(result) == expected
        snapshot = result.snapshot
    assert {one.key.name: one.nominated_node for one in snapshot.pending} == {"top": "a", "low": "a"}
    assert len(schedule(snapshot.forget(PodKey("default", "old"))).bound) == 2


def test_what_members_keep_is_not_lost_to_who_is_nominated_beside_them() -> None:
    """`late` counts on the room that `old` leaves, and on no more; the gang waits for its third member."""
    prefix = "gang.scheduling.koordinator.sh/"
    notes = {prefix + "name": "g", prefix + "min-available": "3", prefix + "mode": "NonStrict"}
    members = [pod(f"g-{number}", 1500, 100, annotations=notes) for number in range(3)]
    snapshot = ClusterSnapshot(
        nodes=[node("n", 5500, pod("old", 2000))], pending=[*members, pod("late", 1000, 100)]
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for expected in (["old"], [], []):
        result = schedule(snapshot, preempt=RULES, now=now)
        assert verify(snapshot, result) == ()
        assert victims(result) == expected
        kept = [one.pod.name for one in result.decisions if isinstance(one, Waiting) and one.held]
        assert kept == ["g-0", "g-1"]
        snapshot = result.snapshot


def test_who_comes_later_counts_on_the_room_of_those_who_leave_for_more_important_pods() -> None:
    """What `top` does not need of the room of `old`; and nobody else leaves for it."""
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("old", 3000, 50), pod("small", 1000))], pending=[pod("top", 2000, 100)]
    )
    first = schedule(snapshot, preempt=RULES)
    assert victims(first) == ["old"]
    for cpu, leave in ((1000, []), (2000, ["small"]), (3000, [])):
        asked = first.snapshot.with_pending(pod("low", cpu, 10))
        result = schedule(asked, preempt=RULES)
        assert verify(asked, result) == ()
        assert victims(result) == leave
        nominated = [one.pod.name for one in result.decisions if isinstance(one, Nominated)]
        assert nominated == (["low"] if cpu < 3000 else [])


@pytest.mark.parametrize("preempt", [None, RULES])
def test_what_a_member_keeps_is_kept_against_more_important_pods_that_are_nominated_there(
    preempt: PreemptionRules | None,
) -> None:
    """`top` counts on the room of `old`, which `later` then takes over; neither has the member's place."""
    prefix = "gang.scheduling.koordinator.sh/"
    notes = {prefix + "name": "g", prefix + "min-available": "2", prefix + "mode": "NonStrict"}
    members = [pod("g-0", 2000, 5, annotations=notes), pod("g-1", 9000, 5, annotations=notes)]
    snapshot = ClusterSnapshot(nodes=[node("n", 4000, pod("old", 2000))], pending=members)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    kept = schedule(snapshot, now=now).snapshot
    first = schedule(kept.with_pending(pod("top", 2000, 100)), preempt=RULES, now=now)
    assert victims(first) == ["old"]
    for waiting in (first.snapshot, first.snapshot.with_pending(pod("later", 2000, 200))):
        result = schedule(waiting, preempt=preempt, now=now)
        assert verify(waiting, result) == ()
        assert [one.pod.name for one in result.decisions if isinstance(one, Waiting) and one.held] == ["g-0"]
        assert not result.bound


def test_a_second_run_waits_for_the_victims_and_keeps_the_room() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 3000)), node("n2", 4000, pod("b", 4000, 100))],
        pending=[pod("p", 4000, 20), pod("q", 1000, 10)],
    )
    first = schedule(snapshot, preempt=RULES)
    leaving = first.snapshot.pod(PodKey("default", "a"))
    assert leaving is not None
    dying = attrs.evolve(leaving, deleted=datetime(2026, 1, 1, tzinfo=UTC), disruption=PREEMPTED_REASON)
    again = first.snapshot.forget(leaving.key).assume(dying)
    second = schedule(again, preempt=RULES)
    assert all(isinstance(one, Unschedulable) for one in second.decisions)
    assert second.preemptions == ()


def test_a_broken_gang_leaves_whole_and_is_named() -> None:
    snapshot = ClusterSnapshot(
        nodes=[
            node("n1", 4000, pod("x1", 4000, 0, "x")),
            node("n2", 4000, pod("x2", 4000, 0, "x")),
        ],
        pending=[pod("p", 4000, 10)],
        records=[PodGroup(namespace="default", name="x", min_member=2)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert victims(result) == ["x1", "x2"]
    assert result.preemptions[0].broken == ("default/x",)


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running"])
def test_nobody_leaves_for_members_of_his_own_gang(policy: str) -> None:
    """The dearer pod of somebody else leaves: without the one that runs there the gang could not start."""
    match = {"gang.scheduling.koordinator.sh/match-policy": policy}
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("g-0", 4000, 0, "g")), node("n2", 4000, pod("dear", 4000, 5))],
        pending=[pod("g-1", 4000, 10, "g")],
        records=[PodGroup(namespace="default", name="g", min_member=2, annotations=immutabledict(match))],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert victims(result) == ["dear"]
    assert [one.pod.name for one in after(result).bound] == ["g-1"]
    other = attrs.evolve(snapshot, nodes=snapshot.nodes[:1])
    assert schedule(other, preempt=RULES).preemptions == ()


def test_ports_are_found_out_by_the_dry_run() -> None:
    """The amounts would let the pod in; the port is another pod's, which has to go."""
    port = (HostPort(80),)
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("web", 1000, 0, host_ports=port), pod("a", 1000))],
        pending=[pod("p", 1000, 10, host_ports=port)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["web"]
    assert len(after(result).bound) == 1


def test_who_was_promised_room_that_he_cannot_use_gives_it_up() -> None:
    """His quota is full meanwhile, and nobody of it may leave for him."""
    quota = ElasticQuota(name="team", namespace="default", min=LIMIT, max=LIMIT)
    named = {"quota.scheduling.koordinator.sh/name": "team"}
    promised = attrs.evolve(pod("p", 4000, 10, labels=named), nominated_node="n2")
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("mine", 4000, 10, labels=named)), node("n2", 4000)],
        pending=[promised, pod("q", 4000, 10)],
        records=[quota],
    )
    first = schedule(snapshot, [promised], preempt=RULES)
    assert first.withdrawn == (promised.key,)
    now = first.snapshot.pod(promised.key)
    assert now is not None
    assert now.nominated_node is None
    assert [(str(one.pod), one.body) for one in patches(first) if "nominatedNodeName" in str(one.body)] == [
        ("default/p", {"status": {"nominatedNodeName": None}})
    ]
    assert result_from_record(snapshot, result_record(first)).withdrawn == first.withdrawn
    assert schedule(snapshot).snapshot.pod(promised.key) == promised  # nobody was asked to make room
    assert [one.pod.name for one in schedule(first.snapshot).bound] == ["q"]


def test_the_quota_must_admit_the_preemptor_afterwards() -> None:
    """There is room on n2, but only a pod of the same quota gives the quota back."""
    quota = ElasticQuota(name="team", namespace="default", min=LIMIT, max=LIMIT)
    named = {"quota.scheduling.koordinator.sh/name": "team"}
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("mine", 4000, labels=named)), node("n2", 4000, pod("other", 4000))],
        pending=[pod("p", 4000, 10, labels=named)],
        records=[quota],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["mine"]
    assert len(after(result).bound) == 1


def test_budgets_are_honoured() -> None:
    budget = PodDisruptionBudget(
        name="b", selector=LabelSelector(immutabledict(app="x")), disruptions_allowed=0
    )
    snapshot = ClusterSnapshot(
        nodes=[
            node("n1", 4000, pod("a", 4000, 0, labels={"app": "x"})),
            node("n2", 4000, pod("b", 4000, 5)),
        ],
        pending=[pod("p", 4000, 10)],
        records=[budget],
    )
    assert victims(schedule(snapshot, preempt=RULES)) == ["b"]


def test_a_victim_that_fits_elsewhere_is_moved_where_that_is_asked_for() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 8000, pod("a", 1000)), node("n2", 4000, pod("b", 3000, 50))],
        pending=[pod("p", 8000, 10)],
    )
    rules = PreemptionRules(relocation=Relocation.FIRST)
    (plan,) = schedule(snapshot, preempt=rules).preemptions
    assert [(move.victim.pod.name, move.node) for move in plan.moves] == [("a", "n2")]


MOVING = PreemptionRules(relocation=Relocation.FIRST)


def test_somebody_leaves_a_node_that_the_pod_cannot_use_so_that_a_more_important_one_moves_there() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 8000, pod("more", 4000, 5)), node("n2", 4000, pod("less", 4000, 1))],
        pending=[pod("p", 8000, 10)],
    )
    result = schedule(snapshot, preempt=MOVING)
    (plan,) = result.preemptions
    assert verify(snapshot, result) == ()
    assert [(move.victim.pod.name, move.node) for move in plan.moves] == [("more", "n2")]
    assert plan.certificate.proven
    assert plan.damage.highest == 1


def test_what_a_restart_costs_decides_between_equals() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 4000)), node("n2", 4000, pod("b", 4000))],
        pending=[pod("p", 4000, 10)],
    )
    for dear, leaves in (("default/a", "b"), ("default/b", "a")):
        rules = PreemptionRules(restart_costs=immutabledict({dear: 3600}))
        result = schedule(snapshot, preempt=rules)
        assert victims(result) == [leaves]
        assert result.preemptions[0].certificate.proven


def labelled(state: NodeState, size: str) -> NodeState:
    return attrs.evolve(state, node=attrs.evolve(state.node, labels={"size": size}))


LARGE = immutabledict(size="large")


def test_a_move_of_the_more_important_pod_costs_less_than_an_eviction() -> None:
    """`a` has nowhere to go; `b` has."""
    kept = pod("c", 2000, 5, labels={DISABLE_PREEMPTIBLE: "true"})
    snapshot = ClusterSnapshot(
        nodes=[
            labelled(node("n1", 4000, pod("a", 4000)), "large"),
            labelled(node("n2", 4000, pod("b", 2000, 5), kept), "large"),
            labelled(node("n3", 2000), "small"),
        ],
        pending=[pod("p", 2000, 10, node_selector=LARGE)],
    )
    assert victims(schedule(snapshot, preempt=RULES)) == ["a"]
    result = schedule(snapshot, preempt=MOVING)
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    assert [(move.victim.pod.name, move.node) for move in plan.moves] == [("b", "n3")]
    assert victims(result) == ["b"]
    assert (plan.damage.pods, plan.damage.moves) == (0, 1)
    assert plan.certificate.proven


def test_the_room_of_who_moves_is_not_given_away() -> None:
    """`q` comes later in the queue and would fit on n2, where `a` goes."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 8000, pod("a", 3000)), node("n2", 4000, pod("b", 1000, 50))],
        pending=[pod("p", 8000, 20), pod("q", 3000, 10)],
    )
    result = schedule(snapshot, preempt=MOVING)
    assert [type(one) for one in result.decisions] == [Nominated, Unschedulable]
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize(("room", "moves", "pods"), [(2000, 0, 2), (3000, 2, 0)])
def test_a_gang_that_breaks_moves_whole_or_not_at_all(room: int, moves: int, pods: int) -> None:
    snapshot = ClusterSnapshot(
        nodes=[
            labelled(node("n1", 4000, pod("a", 3000, 0, "g")), "large"),
            labelled(node("n2", 4000, pod("b", 3000, 0, "g")), "large"),
            labelled(node("n3", room), "small"),
        ],
        pending=[pod("p", 4000, 10, node_selector=LARGE)],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    result = schedule(snapshot, preempt=MOVING)
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    assert (plan.damage.moves, plan.damage.pods) == (moves, pods)
    assert plan.broken == ("default/g",)


def test_the_checker_sees_a_victim_that_may_not_leave() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1", 4000, pod("a", 3000))], pending=[pod("p", 3000, 10)])
    result = schedule(snapshot, preempt=RULES)
    guarded = attrs.evolve(snapshot.nodes[0].pods[0], labels={DISABLE_PREEMPTIBLE: "true"})
    forged = ClusterSnapshot(nodes=[NodeState(snapshot.nodes[0].node, (guarded,))], pending=snapshot.pending)
    found = verify(forged, attrs.evolve(result, snapshot=forged))
    assert any(one.kind is ViolationKind.VICTIM and "protected" in one.message for one in found)


def test_the_checker_sees_that_too_few_leave() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 2000), pod("b", 2000))], pending=[pod("p", 4000, 10)]
    )
    result = schedule(snapshot, preempt=RULES)
    (decision,) = result.decisions
    assert isinstance(decision, Nominated)
    forged = attrs.evolve(decision, victims=decision.victims[:1])
    found = verify(snapshot, attrs.evolve(result, decisions=(forged,)))
    assert [one.kind for one in found] == [ViolationKind.RESOURCE, ViolationKind.VICTIM]


def random_cluster(seed: int) -> ClusterSnapshot:
    rng = random.Random(seed)
    gangs = [f"g{number}" for number in range(3)]
    nodes = []
    for number in range(rng.randint(1, 5)):
        running = [
            pod(f"v{number}-{k}", rng.choice([500, 1000, 2000]), rng.choice([0, 5]), rng.choice([*gangs, ""]))
            for k in range(rng.randint(0, 4))
        ]
        nodes.append(node(f"n{number}", rng.choice([4000, 8000]), *running))
    members = rng.randint(1, 3)
    pending = [pod(f"m{k}", rng.choice([1000, 3000]), 10, "big") for k in range(members)]
    groups = [PodGroup(namespace="default", name=gang, min_member=rng.randint(1, 3)) for gang in gangs]
    own = PodGroup(namespace="default", name="big", min_member=rng.randint(1, members))
    return ClusterSnapshot(nodes=nodes, pending=[*pending, pod("solo", 4000, 7)], records=[*groups, own])


def test_plans_hold() -> None:
    """Legal by the checker, and everybody who is nominated is bound once the victims have gone."""
    plans = 0
    for seed in range(60):
        snapshot = random_cluster(seed)
        result = schedule(snapshot, preempt=RULES)
        assert verify(snapshot, result) == (), seed
        assert result == schedule(snapshot, preempt=RULES)
        plans += len(result.preemptions)
        nominated = {one.pod for one in result.decisions if isinstance(one, Nominated)}
        bound = {one.pod for one in after(result).decisions if isinstance(one, Bound)}
        assert bound == nominated, seed
    assert plans > 20


def test_what_stands_for_a_reservation_is_no_victim() -> None:
    """A reservation of low priority keeps its room; the pod beside it goes."""
    template = Pod(name="t", requests={"cpu": 2000})
    reserved = Reservation(
        name="r",
        uid="u-r",
        template=template,
        template_priority=0,
        owners=(ReservationOwner(selector=LabelSelector(immutabledict(app="own"))),),
        ttl=0,
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n1"),
    )
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 2000, 5))], pending=[pod("p", 2000, 10)], records=[reserved]
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["a"]
    assert verify(snapshot, result) == ()


def test_gpus_are_won_card_by_card() -> None:
    """Two cards are asked for; the two pods with one card each leave, whoever has none stays."""
    cards = {"nvidia.com/gpu": 1, "cpu": 100}
    running = [Pod(name=f"g{k}", requests=cards, node_name="n1") for k in range(2)]
    running.append(Pod(name="cpu", requests={"cpu": 1000}, node_name="n1"))
    there = Node(name="n1", allocatable={"cpu": 4000, "memory": 2**33, "pods": 10, "nvidia.com/gpu": 2})
    want = Pod(name="p", requests={"nvidia.com/gpu": 2}, priority=9)
    snapshot = ClusterSnapshot(nodes=[NodeState(there, tuple(running))], pending=[want])
    assert victims(schedule(snapshot, preempt=RULES)) == ["g0", "g1"]


def test_a_quota_is_not_promised_twice() -> None:
    """Both jobs win a node; the quota that the first is promised is gone for the second."""
    quota = ElasticQuota(name="team", namespace="default", min=LIMIT, max=LIMIT)
    named = {"quota.scheduling.koordinator.sh/name": "team"}
    snapshot = ClusterSnapshot(
        nodes=[node("n1", 4000, pod("a", 4000)), node("n2", 4000, pod("b", 4000))],
        pending=[pod("p", 3000, 20, labels=named), pod("q", 3000, 10, labels=named)],
        records=[quota],
    )
    result = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in result.decisions] == [Nominated, Unschedulable]
    assert len(result.preemptions) == 1


def test_an_elastic_gang_goes_on_with_those_who_move() -> None:
    """Both have to leave ``a``, and there is room for one: the other is what the gang can spare."""
    card = "nvidia.com/gpu"
    nodes = [Node(name=name, allocatable={card: cards, "pods": 9}) for name, cards in (("a", 2), ("b", 1))]
    members = tuple(
        Pod(name=f"g{number}", requests={card: 1}, priority=50, labels={GROUP: "g"}).at("a")
        for number in range(2)
    )
    snapshot = ClusterSnapshot(
        nodes=[NodeState(nodes[0], members), NodeState(nodes[1])],
        pending=[Pod(name="p", requests={card: 2}, priority=100)],
        records=[PodGroup(namespace="default", name="g", min_member=1)],
    )
    result = schedule(snapshot, preempt=MOVING)
    (plan,) = result.preemptions
    assert plan.damage.vector == (0, 50, 0, 1, 50, 0, 1)
    assert plan.certificate.proven
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize(
    ("members", "ready", "nominated"),
    [
        pytest.param(Members.MINIMUM, 2, [], id="the minimum has its place"),
        pytest.param(Members.ALL, 2, [], id="it is not preempted for again"),
        pytest.param(Members.EACH, 2, ["m2"], id="one more can be made room for"),
        pytest.param(Members.EACH, 1, ["m0", "m1"], id="the minimum first, as a whole"),
        pytest.param(Members.EACH, 0, [], id="without its minimum nobody"),
    ],
)
def test_beyond_its_minimum_a_gang_preempts_one_by_one(
    members: Members, ready: int, nominated: list[str]
) -> None:
    kept = pod("kept", 2000, 100)
    snapshot = ClusterSnapshot(
        nodes=[node("a", ready * 2000), node("b", 4000, pod("low", 2000), kept)],
        pending=[pod(f"m{number}", 2000, 10, "g") for number in range(4)],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    result = schedule(snapshot, preempt=PreemptionRules(members=members))
    assert [one.pod.name for one in result.decisions if isinstance(one, Nominated)] == nominated
    assert victims(result) == ["low"] * bool(nominated)
    assert verify(snapshot, result) == ()


def test_a_gang_whose_minimum_runs_preempts_for_further_members_only_if_asked() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("m0", 2000, 10, "g"), pod("low", 2000))],
        pending=[pod("m1", 2000, 10, "g"), pod("m2", 2000, 10, "g")],
        records=[PodGroup(namespace="default", name="g", min_member=1)],
    )
    assert victims(schedule(snapshot, preempt=RULES)) == []
    result = schedule(snapshot, preempt=PreemptionRules(members=Members.EACH))
    assert victims(result) == ["low"]
    assert verify(snapshot, result) == ()
