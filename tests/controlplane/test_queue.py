"""Whose turn it is, and what lets a refused pod have another one."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Pod, Policy, Unschedulable, schedule
from koordcore.controlplane import Backoff, SchedulingQueue
from koordcore.framework.registry import PLUGINS, plugin_of
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import PodKey
from koordcore.model.policy import PluginSetting
from koordcore.model.reservations import Reservation, ReservationOwner
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
        "node added",
        "node changed",
        "node removed",
    }
    assert helped is None or all(one in kinds or one[0].isupper() for one in helped)


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
