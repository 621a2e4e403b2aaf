"""Reservations: one pod against many, owners assigned together, the earliest start of a gang."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import numpy as np

from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.model.decisions import Bound
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.reservations import (
    AllocatePolicy,
    Reservation,
    ReservationArgs,
    ReservationMatching,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.reservation import RESERVATION_AFFINITY
from koordcore.reservations.assign import ReservationAssignment, assign_reservations
from koordcore.reservations.state import reservation_state
from koordcore.scheduling import schedule
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_pod
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Assignment", "EarliestGang", "JointSchedule", "ManyReservations", "OneCallPerPod"]

GIB = 2**30
POLICY = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000))


def some_node(name: str) -> Node:
    """A node of 64 CPUs."""
    return Node(name=name, allocatable={"cpu": 64_000, "memory": 256 * GIB, "pods": 110})


def some_reservation(name: str, node: str, cpu: int, app: str, *, once: bool) -> Reservation:
    """A reservation that is available."""
    amounts = {"cpu": 1000 * cpu, "memory": 4 * cpu * GIB}
    return Reservation(
        name=name,
        uid=name,
        template=Pod(name=name, requests=amounts),
        owners=(ReservationOwner(selector=LabelSelector({"app": app})),),
        ttl=10**15,
        allocate_once=once,
        allocate_policy=AllocatePolicy.ALIGNED,
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=node, allocatable=amounts),
    )


class ManyReservations:
    """10,000 reservations on 5000 nodes of 50 applications; every pod may use 200 of them."""

    def setup(self) -> None:
        """Build the cluster and open it."""
        nodes = [some_node(f"n{number:04}") for number in range(5000)]
        records = [
            some_reservation(f"r{number:05}", f"n{number % 5000:04}", 4, f"a{number % 50}", once=False)
            for number in range(10_000)
        ]
        self.snapshot = ClusterSnapshot(nodes=nodes, records=records)
        self.workspace = open_workspace(self.snapshot, POLICY)
        self.plugins = PluginSet(self.workspace, POLICY)
        self.number = 0
        assert self._place("a7").reservation

    def _pod(self, app: str) -> Pod:
        self.number += 1
        requests = {"cpu": 1000, "memory": GIB}
        return Pod(name=f"p{self.number}", labels={"app": app}, requests=requests)

    def _place(self, app: str) -> Bound:
        decision = place_pod(self.workspace, self.plugins, self._pod(app))
        assert isinstance(decision, Bound)
        return decision

    def time_first_pod_of_a_class(self) -> None:
        """Filter, score and choose for a pod unlike all before, without placing it."""
        self.number += 1
        pod = Pod(name="q", labels={"app": "a3"}, requests={"cpu": 500 + self.number, "memory": GIB})
        scheduling_class = self.plugins.class_of(pod)
        assert isinstance(scheduling_class, SchedulingClass)
        feasible = scheduling_class.feasible()
        assert scheduling_class.totals(feasible).max() > 0

    def time_next_equal_pod(self) -> None:
        """Place one more pod of a class."""
        self._place("a7")


class OneCallPerPod:
    """The same reservations, one call of ``schedule`` for each pod, each on what the last one left."""

    def setup(self) -> None:
        """Build the cluster and make the first call, which reads all objects."""
        many = ManyReservations()
        many.setup()
        self.snapshot = many.snapshot
        self.number = 0
        self.time_next_call()

    def time_next_call(self) -> None:
        """One more call."""
        self.number += 1
        requests = {"cpu": 1000, "memory": GIB}
        pod = Pod(name=f"c{self.number}", labels={"app": "a7"}, requests=requests)
        result = schedule(self.snapshot, [pod], policy=POLICY)
        assert result.bound[0].reservation
        self.snapshot = result.snapshot


class Assignment:
    """1000 owners of 20 applications and 1000 reservations, all used once."""

    def setup(self) -> None:
        """Draw sizes."""
        random = np.random.default_rng(7)
        self.nodes = {f"n{number}": some_node(f"n{number}") for number in range(100)}
        self.states = [
            reservation_state(
                some_reservation(
                    f"r{number}",
                    f"n{number % 100}",
                    int(random.integers(1, 33)),
                    f"a{random.integers(20)}",
                    once=True,
                )
            )
            for number in range(1000)
        ]
        self.pods = [
            Pod(
                name=f"p{number}",
                labels={"app": f"a{random.integers(20)}"},
                requests={"cpu": 1000 * int(random.integers(1, 33)), "memory": GIB},
            )
            for number in range(1000)
        ]

    def _assign(self) -> ReservationAssignment:
        return assign_reservations(self.pods, self.states, self.nodes)

    def time_assignment(self) -> None:
        """Match all of them."""
        assert self._assign().certificate.proven

    def track_assigned(self) -> int:
        """How many owners get a reservation."""
        return len(self._assign().reservations)

    def track_assigned_one_after_another(self) -> int:
        """How many would, each taking the fullest that is free in its turn."""
        left = set(range(len(self.states)))
        placed = 0
        for pod in self.pods:
            term = {"app": pod.labels["app"]}
            fitting = [
                at
                for at in sorted(left)
                if self.states[at].available["cpu"] >= pod.requests["cpu"]
                and self.states[at].reservation.owners[0].selector == LabelSelector(term)
            ]
            if fitting:
                left.remove(fitting[0])
                placed += 1
        return placed


class JointSchedule:
    """1000 owners and 900 reservations through ``schedule``; every other pod wants one of five zones."""

    params = ("Sequential", "Joint")
    param_names = ("matching",)

    def setup(self, matching: str) -> None:
        """Build the cluster."""
        random = np.random.default_rng(7)
        nodes = [some_node(f"n{number:03}") for number in range(500)]
        records = [
            attrs.evolve(
                some_reservation(f"r{number:03}", f"n{number % 500:03}", 4, f"a{number % 20}", once=True),
                labels={"zone": f"z{int(random.integers(5))}"},
            )
            for number in range(900)
        ]
        pending = [
            Pod(
                name=f"p{number:04}",
                labels={"app": f"a{int(random.integers(20))}"},
                annotations={
                    RESERVATION_AFFINITY: "{}"
                    if number % 2
                    else f'{{"reservationSelector":{{"zone":"z{int(random.integers(5))}"}}}}'
                },
                requests={"cpu": 4000, "memory": 4 * GIB},
                priority=int(random.integers(3)),
            )
            for number in range(1000)
        ]
        self.snapshot = ClusterSnapshot(nodes=nodes, records=records, pending=pending)
        args = ReservationArgs(matching=ReservationMatching(matching))
        self.policy = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000, args=args))
        assert self.track_placed(matching) > 0

    def time_schedule(self, matching: str) -> None:
        """1000 pods."""
        schedule(self.snapshot, policy=self.policy)

    def track_placed(self, matching: str) -> int:
        """Pods that got a reservation."""
        result = schedule(self.snapshot, policy=self.policy)
        assert all(one.reservation for one in result.bound)
        return len(result.bound)


class EarliestGang:
    """A gang of 64 whole nodes among 1024 that are full; 2000 pods leave at 2000 moments."""

    def setup(self) -> None:
        """Fill the cluster."""
        random = np.random.default_rng(11)
        nodes = [some_node(f"n{number:04}") for number in range(1024)]
        running = [
            Pod(
                name=f"r{number:04}",
                requests={"cpu": 32_000, "memory": 64 * GIB},
                node_name=f"n{number % 1024:04}",
            )
            for number in range(2048)
        ]
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        moments = random.permutation(2000).tolist()
        self.ends = {
            pod.key: self.now + timedelta(seconds=60 + second)
            for pod, second in zip(running, moments, strict=False)
        }
        labels = {"pod-group.scheduling.sigs.k8s.io": "big"}
        group = PodGroup(namespace="default", name="big", min_member=64)
        self.gang = [
            Pod(
                name=f"g{number:02}",
                labels=labels,
                requests={"cpu": 64_000, "memory": 128 * GIB},
            )
            for number in range(64)
        ]
        cluster = ClusterSnapshot(nodes=nodes, pending=self.gang, records=[group])
        self.snapshot = cluster.assume(*running)
        assert self._plan().too_early is not None

    def _plan(self) -> EarliestStart:
        plan = earliest_start(self.snapshot, self.gang, self.ends, now=self.now)
        assert isinstance(plan, EarliestStart)
        return plan

    def time_earliest_start(self) -> None:
        """Find the start."""
        self._plan()

    def track_probes(self) -> int:
        """How many moments were looked at."""
        return self._plan().probes
