"""A control plane that lives on a stream: one call after each change, on a line of snapshots.

Each beside the same at an eighth of the size, because the growth is the point. What happens in the cluster is
made before the clock starts: reading objects is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import attrs

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Pod, schedule, verify
from koordcore.controlplane import SchedulingQueue
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.times import moment_of
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordReplaced,
)

GIB = 2**30
START = datetime(2026, 1, 1, tzinfo=UTC)
ROOM = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
QUOTA = "quota.scheduling.koordinator.sh/name"
USED = measured_of({"cpu": 500, "memory": GIB})


def node_of(name: str, row: int) -> Node:
    """An empty node of one of eight zones."""
    return Node(name=name, labels={ZONE: f"z{row % 8}", HOST: name}, allocatable=ROOM)


def metric_of(state: NodeState, at: datetime, step: int = 0) -> NodeMetric:
    """A fresh NodeMetric that shows every pod of the node."""
    return NodeMetric(
        node=state.name,
        update_time=moment_of(at),
        report_interval=60 * 10**9,
        node_usage=measured_of({"cpu": 8000 + step % 100, "memory": 16 * GIB}),
        pods=tuple(
            PodMetric(namespace=pod.namespace, name=pod.name, priority="koord-prod", usage=USED)
            for pod in state.pods
        ),
    )


def cluster(number: int) -> ClusterSnapshot:
    """Nodes with ten plain pods and a fresh NodeMetric each."""
    states = []
    for row in range(number):
        node = node_of(f"n{row:05}", row)
        pods = [
            Pod(
                name=f"p{row}-{k}",
                labels={"app": f"a{(row + k) % 50}"},
                requests={"cpu": 1000 + 500 * (k % 4), "memory": (2 + k % 3) * GIB},
                priority=9500,
            )
            for k in range(10)
        ]
        states.append(NodeState(node, tuple(pod.at(node.name) for pod in pods)))
    return ClusterSnapshot(nodes=states, records=[metric_of(state, START) for state in states])


class _Line:
    """One call after another, Koordinator's shipped policy, the clock moving in every call."""

    params: ClassVar[tuple[int, ...]] = (1000, 8000)
    param_names: ClassVar[tuple[str, ...]] = ("nodes",)
    # Each run of a benchmark takes a change that was made before; asv does not reset lines in between.
    number = 1
    warmup_time = 0

    def setup(self, number: int) -> None:
        self.policy = koordinator_policy(known_plugins())
        self.snapshot = self.world(number)
        self.step = 0
        self.changes: Sequence[Change] = ()
        self.pods: Sequence[Pod] = ()
        for _ in range(3):
            self.prepare()
            self.turn()
        self.prepare()

    def world(self, number: int) -> ClusterSnapshot:
        """The cluster at the start."""
        return cluster(number)

    def happen(self) -> Sequence[Change]:
        """What happens before the next call."""
        return ()

    def arrive(self) -> Sequence[Pod]:
        """Who wants a place in the next call."""
        return [self.pod(f"new-{self.step}")]

    def pod(self, name: str, **fields: Any) -> Pod:
        return Pod(name=name, requests={"cpu": 1000, "memory": GIB}, priority=9500, **fields)

    def state(self, more: int = 0) -> NodeState:
        """Some node; another one at each step."""
        return self.snapshot.nodes[(self.step * 37 + more * 13) % len(self.snapshot.nodes)]

    def prepare(self) -> None:
        self.step += 1
        self.changes, self.pods = self.happen(), self.arrive()

    def turn(self) -> None:
        now = START + timedelta(seconds=60 + self.step * 0.01)
        snapshot = self.snapshot.apply(*self.changes) if self.changes else self.snapshot
        result = schedule(snapshot, self.pods, policy=self.policy, now=now)
        assert all(isinstance(one, Bound) for one in result.decisions)
        self.snapshot = result.snapshot

    def time_turn(self, number: int) -> None:
        self.turn()

    def teardown(self, number: int) -> None:
        self.prepare()


class Decision(_Line):
    """One decision in a call of its own."""


class PodEnds(_Line):
    """One pod ends, one decision."""

    def happen(self) -> Sequence[Change]:
        return [PodEnded(self.state().pods[0].key)]


class Metric(_Line):
    """One NodeMetric arrives, one decision."""

    def happen(self) -> Sequence[Change]:
        return [RecordReplaced(metric_of(self.state(), START + timedelta(seconds=55), self.step))]


class Second(_Line):
    """What a second brings: 200 NodeMetrics, 50 pods ended, 50 pods decided in one call."""

    def happen(self) -> Sequence[Change]:
        at = START + timedelta(seconds=55)
        metrics = [RecordReplaced(metric_of(self.state(k), at, self.step + k)) for k in range(200)]
        ended = {self.state(7 * k).pods[0].key for k in range(50)}
        return [*metrics, *map(PodEnded, sorted(ended))]

    def arrive(self) -> Sequence[Pod]:
        return [self.pod(f"new-{self.step}-{k}") for k in range(50)]


class NodeSaysElse(_Line):
    """One node's labels change, one decision."""

    def happen(self) -> Sequence[Change]:
        node = self.state().node
        return [NodeReplaced(attrs.evolve(node, labels={**node.labels, "step": str(self.step)}))]


class NodeJoins(_Line):
    """One node joins, one decision."""

    def happen(self) -> Sequence[Change]:
        return [NodeAdded(node_of(f"{self.state().name}-{self.step}", self.step))]


class NodeLeaves(_Line):
    """One node leaves with its pods, one decision."""

    def happen(self) -> Sequence[Change]:
        return [NodeRemoved(self.state().name)]


class ZoneSpread(_Line):
    """A pod of a workload that spreads over zones."""

    def pod(self, name: str, **fields: Any) -> Pod:
        labels = {"app": "a1"}
        spread = TopologySpreadConstraint(
            max_skew=200,
            topology_key=ZONE,
            when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
            selector=LabelSelector(labels),
        )
        return super().pod(name, labels=labels, spread_constraints=(spread,), **fields)


class AntiAffinity(_Line):
    """A pod that prefers nodes without its own kind."""

    def pod(self, name: str, **fields: Any) -> Pod:
        labels = {"app": "a2"}
        term = PodAffinityTerm(selector=LabelSelector(labels), topology_key=HOST)
        rather = PodAffinity(preferred=(WeightedPodAffinityTerm(100, term),))
        return super().pod(name, labels=labels, affinity=Affinity(anti=rather), **fields)


class NewClass(_Line):
    """A pod of a kind never seen."""

    def arrive(self) -> Sequence[Pod]:
        return [
            Pod(name=f"new-{self.step}", requests={"cpu": 1000 + self.step, "memory": GIB}, priority=9500)
        ]


class Quotas(_Line):
    """A pod of one of 1000 quotas; every running pod belongs to one."""

    def world(self, number: int) -> ClusterSnapshot:
        start = cluster(number)
        states = [
            NodeState(
                one.node,
                tuple(
                    pod.at(one.name, labels={QUOTA: f"q{(row + k) % 1000:03}"})
                    for k, pod in enumerate(one.pods)
                ),
            )
            for row, one in enumerate(start.nodes)
        ]
        most = make_resources({"cpu": 10**9, "memory": 2**50})
        quotas = [
            ElasticQuota(name=f"q{k:03}", max=most, min=make_resources({"cpu": 1000})) for k in range(1000)
        ]
        return ClusterSnapshot(nodes=states, records=[*start.records, *quotas])

    def pod(self, name: str, **fields: Any) -> Pod:
        return super().pod(name, labels={QUOTA: f"q{self.step % 1000:03}"}, **fields)


class Reservations(_Line):
    """A plain pod beside 1000 reservations."""

    def world(self, number: int) -> ClusterSnapshot:
        start = cluster(number)
        amounts = {"cpu": 2000}
        held = [
            Reservation(
                name=f"r{k:04}",
                uid=f"uid-r{k:04}",
                template=Pod(name=f"r{k:04}", requests=amounts),
                owners=(ReservationOwner(selector=LabelSelector({"app": f"r{k}"})),),
                allocate_once=False,
                status=ReservationStatus(
                    phase=ReservationPhase.AVAILABLE,
                    node_name=start.nodes[k * number // 1000].name,
                    allocatable=amounts,
                ),
            )
            for k in range(1000)
        ]
        return start.apply(*map(RecordAdded, held))


class Owner(Reservations):
    """A pod that takes one of 1000 reservations."""

    def pod(self, name: str, **fields: Any) -> Pod:
        return super().pod(name, labels={"app": f"r{self.step % 1000}"}, **fields)


class Verified(_Line):
    """One decision, checked: the check alone, on a line that moves on."""

    def setup(self, number: int) -> None:
        super().setup(number)
        now = START + timedelta(seconds=61)
        self.before = self.snapshot
        self.result = schedule(self.before, self.pods, policy=self.policy, now=now)
        self.time_verify(number)

    def time_verify(self, number: int) -> None:
        """Check the same decision again: the checker steps back and forth by one node."""
        assert verify(self.before, self.result) == ()


ROWS: tuple[type[_Line], ...] = (
    Decision,
    PodEnds,
    Metric,
    Second,
    NodeSaysElse,
    NodeJoins,
    NodeLeaves,
    ZoneSpread,
    AntiAffinity,
    NewClass,
    Quotas,
    Reservations,
    Owner,
)
"""All of them, for a table."""


class Backlog:
    """5000 equal pods that fit nowhere: a turn, and the next one in which nothing has changed."""

    params = (1000, 8000)
    param_names = ("nodes",)
    number = 1

    def setup(self, number: int) -> None:
        self.policy = koordinator_policy(known_plugins())
        pods = [Pod(name=f"big-{row}", requests={"cpu": 900_000}) for row in range(5000)]
        self.snapshot = cluster(number).with_pending(*pods)
        self.queue = SchedulingQueue(self.policy, limit=5000)
        self.queue.notice(map(PodPending, pods), now=0.0)
        self.asked = self.queue.take(self.snapshot, now=0.0)
        result = schedule(self.snapshot, self.asked, policy=self.policy, now=START)
        self.queue.done(result.decisions, now=0.0)

    def time_turn(self, number: int) -> None:
        """All of them are refused."""
        assert not schedule(self.snapshot, self.asked, policy=self.policy, now=START).bound

    def time_next_turn(self, number: int) -> None:
        """The queue asks about nobody, though metrics have arrived."""
        self.queue.notice([RecordAdded(NodeMetric(node=f"n{row:05}")) for row in range(100)], now=60.0)
        assert self.queue.take(self.snapshot, now=60.0) == []
