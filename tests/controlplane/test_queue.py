"""Whose turn it is, and what lets a refused pod have another one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Pod, Policy, Unschedulable, schedule
from koordcore.controlplane import Backoff, SchedulingQueue
from koordcore.errors import ModelError
from koordcore.framework.registry import PLUGINS, plugin_of
from koordcore.manifests import named_policy
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.devices import DeviceObject
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import PodKey, PreemptionPolicy
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.selectors import LabelSelector
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
)

GANG = "pod-group.scheduling.sigs.k8s.io"
ROOM = {"cpu": 2000, "pods": 10}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Plane:
    """A control plane that does what it decides at once."""

    def __init__(self, *nodes: Node, policy: Policy | None = None, limit: int = 500) -> None:
        self.snapshot = ClusterSnapshot(nodes=nodes)
        self.policy = policy or Policy()
        self.queue = SchedulingQueue(self.policy, limit=limit)

    def happens(self, *changes: Change, now: float) -> None:
        self.snapshot = self.snapshot.apply(*changes)
        self.queue.notice(changes, now=now)

    def turn(self, now: float) -> list[str]:
        """Take a turn; gives who was asked about."""
        asked = self.queue.take(self.snapshot, now=now)
        result = schedule(self.snapshot, asked, policy=self.policy, now=NOW)
        self.queue.done(result.decisions, now=now)
        bound = [result.snapshot.pod(one.pod) for one in result.bound]
        self.happens(*(PodBound(pod) for pod in bound if pod is not None), now=now)
        return sorted(pod.name for pod in asked)


def test_a_refused_pod_is_asked_about_again_when_its_refusal_can_be_lifted() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodBound(Pod(name="there", node_name="a", requests={"cpu": 2000})), now=0)
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 1000})), now=0)
    assert plane.turn(0) == ["p"]
    plane.happens(RecordAdded(NodeMetric(node="a")), PodPending(Pod(name="q", gates=("x",))), now=20)
    assert plane.turn(20) == [], "neither a metric nor a waiting pod makes room"
    plane.happens(PodEnded(PodKey("default", "there")), now=21)
    assert plane.turn(21) == ["p"]
    assert plane.queue.counts == {"active": 0, "backoff": 0, "unschedulable": 1}, "only the gated one is left"


def test_who_waited_leaves_no_room_when_it_goes_or_gets_a_node() -> None:
    """An EventReader says of a pod that got a node that it has ended where it was, and is bound now."""
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodBound(Pod(name="there", node_name="a", requests={"cpu": 1000})), now=0)
    small = Pod(name="small", requests={"cpu": 500})
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 1500})), PodPending(small), now=0)
    asked = plane.queue.take(plane.snapshot, now=0)
    plane.queue.done(schedule(plane.snapshot, asked, now=NOW).decisions, now=0)
    plane.happens(PodEnded(small.key), PodBound(small.at("a")), now=20)
    assert plane.turn(20) == []
    plane.happens(PodPending(Pod(name="q", requests={"cpu": 9000})), now=21)
    assert plane.turn(21) == ["q"]
    plane.happens(PodEnded(PodKey("default", "q")), now=40)
    assert plane.turn(40) == []
    promised = Pod(name="r", requests={"cpu": 400}, nominated_node="a", gates=("x",))
    plane.happens(PodPending(promised), now=41)
    plane.happens(PodEnded(promised.key), now=60)
    assert plane.turn(60) == ["p"], "what it was promised is free"


def quota(name: str, weight: int, most: int) -> ElasticQuota:
    return ElasticQuota(name=name, max={"cpu": most}, shared_weight={"cpu": weight})


def of_quota(name: str, cpu: int, quota: str, **more: Any) -> Pod:
    return Pod(
        name=name, requests={"cpu": cpu}, labels={"quota.scheduling.koordinator.sh/name": quota}, **more
    )


def test_who_is_refused_by_a_quota_sleeps_until_a_share_may_have_grown() -> None:
    # Both quotas want all of the node, and each gets a half of it.
    plane = Plane(Node(name="a", allocatable={"cpu": 4000, "pods": 10}))
    quotas = quota("a", 1, 4000), quota("b", 1, 4000)
    plane.happens(*map(RecordAdded, quotas), now=0)
    theirs = of_quota("theirs", 4000, "b", gates=("x",))
    plane.happens(PodPending(theirs), PodPending(of_quota("p", 3000, "a")), now=0)
    assert plane.turn(0) == ["p"]
    plane.happens(RecordAdded(NodeMetric(node="a")), PodPending(of_quota("more", 3000, "b")), now=20)
    assert plane.turn(20) == ["more"], "neither a metric nor who arrives leaves a share"
    plane.happens(PodPending(of_quota("theirs", 3500, "b", gates=("x",))), now=40)
    assert plane.turn(40) == ["more", "p"], "one that waits asks for less"
    plane.happens(PodEnded(PodKey("default", "more")), PodEnded(theirs.key), now=80)
    assert plane.turn(80) == ["p"], "nobody else wants a share any more"
    assert plane.queue.counts == {"active": 0, "backoff": 0, "unschedulable": 0}


def test_rules_of_ones_own_may_be_lifted_by_anything() -> None:
    def never(ledger: object, quota: str, pod: object) -> str:
        return "not today"

    own = PluginSetting(name="ElasticQuota", args=QuotaPolicy(checks=(never,)))
    plane = Plane(Node(name="a", allocatable=ROOM), policy=Policy().with_plugin(own))
    plane.happens(RecordAdded(quota("a", 1, 4000)), PodPending(of_quota("p", 100, "a")), now=0)
    assert plane.turn(0) == ["p"]
    plane.happens(RecordAdded(NodeMetric(node="a")), now=20)
    assert plane.turn(20) == ["p"]


def asked_after(plane: Plane, *changes: Change) -> list[str]:
    """Let pods be refused, then something happen; who is asked about then."""
    plane.turn(0)
    plane.happens(*changes, now=50)
    return [pod.name for pod in plane.queue.take(plane.snapshot, now=50)]


def test_who_may_evict_has_another_turn_when_quotas_or_budgets_say_something_else() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodBound(Pod(name="there", node_name="a", requests={"cpu": 2000})), now=0)
    plane.happens(PodPending(Pod(name="p", priority=9, requests={"cpu": 1000})), now=0)
    assert asked_after(plane, RecordAdded(PodDisruptionBudget(name="b"))) == ["p"]
    plane.queue.done(schedule(plane.snapshot, now=NOW).decisions, now=50)
    plane.happens(RecordAdded(quota("a", 1, 4000)), now=100)
    assert [pod.name for pod in plane.queue.take(plane.snapshot, now=100)] == ["p"]


@pytest.mark.parametrize(
    "record", [NodeResourceTopology(name="a"), DeviceObject(name="a")], ids=["cpus", "cards"]
)
def test_who_may_evict_has_another_turn_when_a_node_tells_what_it_has(record: ClusterRecord) -> None:
    """Amounts refused the pod first; that evictions were of no use for want of a record nobody said."""
    plane = Plane(Node(name="a", allocatable=ROOM), policy=named_policy("koordinator"))
    plane.happens(PodBound(Pod(name="there", node_name="a", requests={"cpu": 2000})), now=0)
    never = PreemptionPolicy.NEVER
    plane.happens(PodPending(Pod(name="p", priority=9, requests={"cpu": 1000})), now=0)
    plane.happens(PodPending(Pod(name="q", requests={"cpu": 1000}, preemption_policy=never)), now=0)
    assert asked_after(plane, RecordAdded(record)) == ["p"]


def test_room_that_was_promised_to_pods_of_another_scheduler_comes_free() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    theirs = Pod(
        name="theirs", scheduler_name="volcano", priority=9, nominated_node="a", requests={"cpu": 2000}
    )
    plane.happens(PodPending(theirs), PodPending(Pod(name="p", requests={"cpu": 1000})), now=0)
    assert asked_after(plane, PodPending(attrs.evolve(theirs, labels={"x": "y"}))) == []
    assert asked_after(plane, PodPending(attrs.evolve(theirs, nominated_node=None))) == ["p"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_whom_a_nominated_pod_kept_off_by_its_labels_is_asked_about_when_these_change(scheduler: str) -> None:
    """Nominated pods count as there: what they say concerns those that look at their neighbours."""
    plane = Plane(Node(name="a", labels={"zone": "z"}, allocatable={**ROOM, "x.io/x": 1}))
    holder = Pod(name="there", node_name="a", requests={"x.io/x": 1})
    labels = {"app": "x"}
    promised = Pod(
        name="promised",
        labels=labels,
        priority=9,
        nominated_node="a",
        requests={"x.io/x": 1},
        scheduler_name=scheduler,
    )
    apart = PodAffinityTerm(topology_key="zone", selector=LabelSelector(match_labels=labels))
    shy = Pod(name="shy", requests={"cpu": 100}, affinity=Affinity(anti=PodAffinity(required=(apart,))))
    plane.happens(PodBound(holder), PodPending(promised), PodPending(shy), now=0)
    assert plane.turn(0) == sorted({"shy", "promised"} if scheduler == "default-scheduler" else {"shy"})
    plane.happens(PodPending(attrs.evolve(promised, labels={"app": "y"})), now=50)
    assert "shy" in plane.turn(50)
    placed = plane.snapshot.pod(PodKey("default", "shy"))
    assert placed is not None
    assert placed.node_name == "a"


def test_room_that_a_nominated_pod_wants_no_more_comes_free() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    theirs = Pod(
        name="theirs", scheduler_name="volcano", priority=9, nominated_node="a", requests={"cpu": 2000}
    )
    plane.happens(PodPending(theirs), PodPending(Pod(name="p", requests={"cpu": 1000})), now=0)
    assert asked_after(plane, PodPending(attrs.evolve(theirs, requests={"cpu": 500}))) == ["p"]


def test_what_a_reservation_that_is_used_once_leaves_is_room() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    owner = ReservationOwner(selector=LabelSelector(match_labels={"app": "x"}))
    held = Reservation(
        name="r",
        uid="u",
        allocate_once=True,
        template=Pod(name="t", requests={"cpu": 2000}),
        owners=(owner,),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="a", allocatable={"cpu": 2000}),
    )
    plane.happens(RecordAdded(held), PodPending(Pod(name="p", requests={"cpu": 1000})), now=0)
    assert plane.turn(0) == ["p"]
    plane.happens(PodPending(Pod(name="o", labels={"app": "x"}, requests={"cpu": 500})), now=50)
    assert plane.turn(50) == ["o"]
    assert plane.turn(51) == ["p"]
    assert plane.queue.counts["unschedulable"] == 0


def test_a_pod_that_joins_a_gang_later_comes_with_it() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    first, second = (Pod(name=name, labels={GANG: "train"}, requests={"cpu": 500}) for name in "ab")
    group = RecordAdded(PodGroup(namespace="default", name="train", min_member=2))
    bare = attrs.evolve(second, labels={}, node_selector={"disk": "none"})
    plane.happens(group, PodPending(first), PodPending(bare), now=0)
    assert plane.turn(0) == ["a", "b"]
    plane.happens(PodPending(second), now=50)
    assert plane.turn(50) == ["a", "b"]
    assert len(plane.queue) == 0


@pytest.mark.parametrize("uid", ["1", "2"], ids=["changed", "made anew"])
def test_a_pod_that_says_something_else_while_it_is_decided_about_is_asked_about_again(uid: str) -> None:
    pod = Pod(name="p", uid="1", requests={"cpu": 1000}, node_selector={"disk": "none"})
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodPending(pod), now=0)
    result = schedule(plane.snapshot, plane.queue.take(plane.snapshot, now=0), now=NOW)
    if uid != pod.uid:
        plane.happens(PodEnded(pod.key), now=0)
    plane.happens(PodPending(attrs.evolve(pod, uid=uid, node_selector={})), now=0)
    plane.queue.done(result.decisions, now=0)
    assert plane.turn(5) == ["p"]
    assert len(plane.queue) == 0


def test_a_pause_doubles_with_every_attempt_up_to_a_limit() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 9000})), now=0)
    pauses, now = [], 0.0
    for step in range(6):
        assert plane.turn(now) == ["p"]
        plane.happens(NodeReplaced(Node(name="a", allocatable={"cpu": 2000 + step, "pods": 10})), now=now)
        tried = now
        while not plane.queue.take(plane.snapshot, now=now):
            now += 0.25
        pauses.append(now - tried)
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_what_changes_while_a_pod_is_decided_about_is_not_missed() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 3000})), now=0)
    asked = plane.queue.take(plane.snapshot, now=0)
    result = schedule(plane.snapshot, asked, now=NOW)
    plane.happens(NodeAdded(Node(name="b", allocatable={"cpu": 4000, "pods": 10})), now=0)
    plane.queue.done(result.decisions, now=0)
    assert plane.turn(0.5) == [], "its pause is not over"
    assert plane.turn(1) == ["p"]


def test_who_waits_for_long_is_asked_about_whatever_has_changed() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 3000})), now=0)
    assert plane.turn(0) == ["p"]
    assert plane.turn(299) == []
    assert plane.turn(300) == ["p"]
    assert plane.turn(599) == []
    assert plane.turn(600) == ["p"]


def test_a_gate_that_opens_and_a_pod_that_changes_are_news() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodPending(Pod(name="p", gates=("x",))), now=0)
    assert plane.turn(400) == []
    plane.happens(PodPending(Pod(name="p")), now=401)
    assert plane.turn(401) == ["p"]


def test_gangs_come_whole_and_nominated_pods_come_along() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM), limit=2)
    members = [Pod(name=f"w{number}", labels={GANG: "train"}, requests={"cpu": 1500}) for number in range(3)]
    group = RecordAdded(PodGroup(namespace="default", name="train", min_member=3))
    first = PodPending(Pod(name="first", priority=5, requests={"cpu": 9000}))
    plane.happens(group, first, *map(PodPending, members), now=0)
    assert plane.turn(0) == ["first", "w0", "w1", "w2"]
    promised = Pod(name="promised", nominated_node="a", requests={"cpu": 9000})
    plane.happens(PodPending(promised), now=1)
    assert "promised" in plane.turn(1)
    plane.happens(PodPending(Pod(name="new", priority=9, requests={"cpu": 9000})), now=2)
    assert {"new", "promised"} <= set(plane.turn(2))


def test_a_reservation_that_wants_a_node_has_its_turn() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    owner = ReservationOwner(selector=LabelSelector(match_labels={"app": "x"}))
    wanted = Reservation(name="r", uid="u", template=Pod(name="t", requests={"cpu": 1000}), owners=(owner,))
    plane.happens(RecordAdded(wanted), now=0)
    assert [pod.name for pod in plane.queue.take(plane.snapshot, now=0)] == ["u"]
    # The watch of pods may be ahead of that of reservations.
    said = {"scheduling.koordinator.sh/reservation-allocated": '{"name": "r", "uid": "u"}'}
    plane.happens(PodBound(Pod(name="user", annotations=said, node_name="a")), now=1)
    assert plane.queue.take(plane.snapshot, now=1) == []


def test_who_was_bound_and_never_seen_there_comes_back() -> None:
    queue = SchedulingQueue(Policy(), backoff=Backoff(longest=10))
    queue.notice([PodPending(Pod(name="p"))], now=0)
    (pod,) = queue.take(ClusterSnapshot(), now=0)
    queue.done([Bound(pod=pod.key, node="a")], now=0)
    assert queue.take(ClusterSnapshot(), now=9) == []
    assert [one.name for one in queue.take(ClusterSnapshot(), now=10)] == ["p"]


def test_pods_of_other_schedulers_and_those_that_leave_are_not_ours() -> None:
    queue = SchedulingQueue(Policy())
    pods = [Pod(name="a", scheduler_name="volcano"), Pod(name="b", deleted=NOW)]
    queue.notice(map(PodPending, pods), now=0)
    assert queue.take(ClusterSnapshot(pending=pods), now=0) == []
    assert len(queue) == 0


@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_what_helps_a_plugin_is_a_kind_of_change(name: str) -> None:
    helped = plugin_of(PluginSetting(name=name)).helped_by
    kinds = {
        "pod bound",
        "pod ended",
        "pod updated",
        "pod pending",
        "pod withdrawn",
        "promise relabeled",
        "node added",
        "node changed",
        "node removed",
    }
    assert helped is None or all(one in kinds or one[0].isupper() for one in helped)


@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_the_records_that_a_plugin_reads_help_it(name: str) -> None:
    kind = plugin_of(PluginSetting(name=name))
    assert kind.helped_by is None or {one.__name__ for one in kind.reads or ()} <= kind.helped_by


def test_nothing_that_helps_is_left_out() -> None:
    """Whatever makes a refused pod fit is of a kind that lets it have its turn."""
    there = Pod(name="x", node_name="a", requests={"cpu": 2000})
    full = NodeState(Node(name="a", allocatable=ROOM), (there,))
    pod = Pod(name="p", requests={"cpu": 1000}, node_selector={"disk": "ssd"})
    start = ClusterSnapshot(nodes=[full], pending=[pod])
    helps: list[Change] = [
        NodeAdded(Node(name="b", allocatable=ROOM, labels={"disk": "ssd"})),
        NodeReplaced(NodeState(Node(name="a", allocatable=ROOM, labels={"disk": "ssd"}))),
    ]
    for change in helps:
        queue = SchedulingQueue(Policy())
        queue.notice([PodPending(pod)], now=0)
        result = schedule(start, queue.take(start, now=0))
        assert isinstance(result.decisions[0], Unschedulable)
        queue.done(result.decisions, now=0)
        queue.notice([change], now=50)
        after = attrs.evolve(start.apply(change))
        assert schedule(after, queue.take(after, now=50)).bound


def test_a_confirmed_bind_wakes_nobody_and_a_refused_one_was_an_attempt() -> None:
    plane = Plane(Node(name="a", allocatable=ROOM))
    plane.happens(PodBound(Pod(name="there", node_name="a", requests={"cpu": 1000})), now=0)
    plane.happens(PodPending(Pod(name="p", requests={"cpu": 1500})), now=0)
    plane.happens(PodPending(Pod(name="q", uid="q", requests={"cpu": 500})), now=0)
    assert plane.turn(0) == ["p", "q"]
    bound = plane.snapshot.pod(PodKey("default", "q"))
    assert bound is not None
    plane.happens(PodEnded(bound.key), PodBound(bound), now=20)
    assert plane.turn(20) == [], "the watch says what is known"
    plane.happens(PodEnded(bound.key), PodPending(Pod(name="q", uid="q", requests={"cpu": 500})), now=20)
    assert plane.turn(20) == ["p", "q"], "its pause is over"
    plane.happens(PodEnded(bound.key), PodPending(Pod(name="q", uid="q", requests={"cpu": 500})), now=20.5)
    assert plane.turn(20.5) == [], "it backs off"
    assert plane.turn(22.5) == ["p", "q"]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_a_queue_decides_at_least_one_pod_at_once(limit: Any) -> None:
    with pytest.raises(ModelError, match="SchedulingQueue: limit: must be at least 1"):
        SchedulingQueue(Policy(), limit=limit)


@pytest.mark.parametrize("field", ["initial", "longest", "forgotten"])
@pytest.mark.parametrize("value", [-1, float("nan"), "1s", None])
def test_a_pause_is_a_number_of_seconds(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"Backoff: {field}: "):
        Backoff(**{field: value})


def test_a_bind_that_a_reader_assumed_and_the_server_refused_was_an_attempt() -> None:
    queue, cluster, pod = SchedulingQueue(Policy()), ClusterSnapshot(), Pod(name="p", uid="u")
    queue.notice([PodPending(pod)], now=0)
    assert queue.take(cluster, now=0) == [pod]
    queue.done([Bound(pod=pod.key, node="a")], now=0)
    queue.notice([PodEnded(pod.key), PodBound(pod.at("a"))], now=0)
    assert len(queue) == 0
    queue.notice([PodEnded(pod.key), PodPending(pod)], now=0.5)
    assert queue.take(cluster, now=0.6) == []
    assert queue.take(cluster, now=1) == [pod]
    queue.done([Bound(pod=pod.key, node="a")], now=1)
    queue.notice([PodEnded(pod.key), PodBound(pod.at("a"))], now=1)
    queue.notice([PodEnded(pod.key), PodPending(pod)], now=1)
    assert queue.take(cluster, now=2.9) == []
    assert queue.take(cluster, now=3) == [pod]


def test_of_several_changes_of_a_pod_at_once_the_last_one_counts() -> None:
    queue, cluster = SchedulingQueue(Policy()), ClusterSnapshot()
    first, second = Pod(name="p", uid="1"), Pod(name="p", uid="2")
    gone = PodEnded(first.key)
    queue.notice([PodPending(first)], now=0)
    queue.notice([gone, PodBound(first.at("a")), gone, PodPending(second), gone], now=1)
    assert len(queue) == 0
    assert queue.take(cluster, now=1) == []
    queue.notice([PodPending(first), gone, PodBound(first.at("a")), gone, PodPending(second)], now=2)
    assert queue.take(cluster, now=2) == [second]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda queue: queue.take(None, now=0.0), "snapshot: expected ClusterSnapshot, got None"),
        (lambda queue: queue.take(ClusterSnapshot(), now=None), "now: expected float, got None"),
        (lambda queue: queue.notice([1], now=0.0), r"changes: expected Iterable\[Change\], got \[1\]"),
        (lambda queue: queue.done([5], now=0.0), r"decisions: expected Iterable\[PodDecision\], got \[5\]"),
    ],
)
def test_a_queue_names_the_argument_that_is_wrong(
    call: Callable[[SchedulingQueue], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(SchedulingQueue(Policy()))
