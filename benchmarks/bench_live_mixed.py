"""What one change costs where a cluster has something of everything that plugins keep count of.

As in ``bench_live.py``: a call after each change, the shipped policy, ``now`` moving in every call. Nodes
tell their cards and CPUs, drivers publish devices on every second one, running pods have quotas and some of
them terms towards each other, and there are reservations.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import attrs

from benchmarks.bench_live import (
    GIB,
    HOST,
    QUOTA,
    START,
    ZONE,
    NodeJoins,
    NodeLeaves,
    _Line,
    metric_of,
)
from benchmarks.bench_live_kinds import machine
from koordcore import ClusterSnapshot, NodeState, Pod, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import ResourceSlice, SliceDevice
from koordcore.model.pods import PodResourceClaim
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector
from koordcore.snapshot import (
    Change,
    NodeReplaced,
    PodEnded,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

DRIVER = "gpu.example.com"
ONE = ClaimSpec((ClaimRequest("gpu", (DeviceSubRequest(class_name="gpu"),)),))
TEMPLATE = PodResourceClaim("gpu", template="one")


def quota(number: int, cores: int = 100_000) -> ElasticQuota:
    """One of a hundred."""
    most = make_resources({"cpu": 1000 * cores, "memory": 2**50})
    return ElasticQuota(name=f"q{number:03}", max=most, min=make_resources({"cpu": 1000}))


def reservation(name: str, node: str) -> Reservation:
    """Two cores on a node for pods of its name."""
    amounts = {"cpu": 2000}
    return Reservation(
        name=name,
        uid=f"uid-{name}",
        template=Pod(name=name, requests=amounts),
        owners=(ReservationOwner(selector=LabelSelector({"app": name})),),
        allocate_once=False,
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=node, allocatable=amounts),
    )


def published(node: str, number: int = 4) -> ResourceSlice:
    """What the driver of a node publishes."""
    devices = tuple(SliceDevice(name=f"gpu-{one}") for one in range(number))
    return ResourceSlice(name=node, driver=DRIVER, pool=node, node_name=node, devices=devices)


def _pod(row: int, place: int, node: str) -> Pod:
    labels = {"app": f"a{(row + place) % 50}", QUOTA: f"q{(row + place) % 100:03}"}
    affinity = None
    if row % 10 == place == 0:
        term = PodAffinityTerm(selector=LabelSelector({"app": "a0"}), topology_key=HOST)
        affinity = Affinity(anti=PodAffinity(preferred=(WeightedPodAffinityTerm(1, term),)))
    return Pod(
        name=f"p{row}-{place}",
        labels=labels,
        requests={"cpu": 1000 + 500 * (place % 4), "memory": (2 + place % 3) * GIB},
        priority=9500,
        affinity=affinity,
        node_name=node,
    )


@lru_cache(maxsize=4)
def mixed(number: int) -> ClusterSnapshot:
    """Nodes with ten pods each, and something of everything."""
    told = snapshot_from_objects([one for row in range(number) for one in machine(row)]).snapshot
    states = []
    for row, one in enumerate(told.nodes):
        node = attrs.evolve(one.node, labels={ZONE: f"z{row % 8}", HOST: one.name})
        states.append(NodeState(node, tuple(_pod(row, place, one.name) for place in range(10))))
    gpu = DeviceClass(name="gpu", selectors=(f"device.driver == '{DRIVER}'",))
    records: list[ClusterRecord] = [*told.records, gpu, ResourceClaimTemplate(name="one", spec=ONE)]
    records += [metric_of(state, START) for state in states]
    records += [published(state.name) for state in states[::2]]
    records += [quota(one) for one in range(100)]
    records += [reservation(f"r{one:03}", states[one * number // 200].name) for one in range(200)]
    return ClusterSnapshot(nodes=states, records=records)


class _Mixed(_Line):
    """A plain pod after some change."""

    def world(self, number: int) -> ClusterSnapshot:
        return mixed(number)


class MixedEnds(_Mixed):
    """One pod ends."""

    def happen(self) -> Sequence[Change]:
        return [PodEnded(self.state().pods[-1].key)]


class MixedJoins(_Mixed, NodeJoins):
    """One node joins."""


class MixedLeaves(_Mixed, NodeLeaves):
    """One node leaves with its pods."""


class MixedOffers(_Mixed):
    """One node offers fewer cores."""

    def happen(self) -> Sequence[Change]:
        node = self.state().node
        return [NodeReplaced(attrs.evolve(node, allocatable={**node.allocatable, "cpu": 60_000 + self.step}))]


class QuotaChanges(_Mixed):
    """One of 100 quotas is given another max."""

    def happen(self) -> Sequence[Change]:
        return [RecordReplaced(quota(self.step % 100, 100_000 + self.step))]


class ReservationComes(_Mixed):
    """One reservation comes, beside 200."""

    def happen(self) -> Sequence[Change]:
        return [RecordAdded(reservation(f"s{self.step}", self.state().name))]


class ReservationGoes(_Mixed):
    """One of 200 reservations goes."""

    def happen(self) -> Sequence[Change]:
        there = self.snapshot.of(Reservation)
        return [RecordRemoved(there[self.step * 37 % len(there)])]


class Resource(_Mixed):
    """A node offers what no node and no pod has named before."""

    def happen(self) -> Sequence[Change]:
        node = self.state().node
        offered = {**node.allocatable, f"example.com/kind-{self.step}": 4}
        return [NodeReplaced(attrs.evolve(node, allocatable=offered))]


class _Claiming(_Mixed):
    def pod(self, name: str, **fields: Any) -> Pod:
        return super().pod(name, uid=f"uid-{name}", resource_claims=(TEMPLATE,), **fields)


class Claims(_Claiming):
    """A pod with a claim, after a pod has ended."""

    def happen(self) -> Sequence[Change]:
        return [PodEnded(self.state().pods[-1].key)]


class ClaimComes(_Claiming):
    """A claim comes, and a pod with another one."""

    def happen(self) -> Sequence[Change]:
        return [RecordAdded(ResourceClaim(name=f"c{self.step}", spec=ONE))]


class SliceChanges(_Claiming):
    """A driver publishes fewer devices, and a pod with a claim comes."""

    def happen(self) -> Sequence[Change]:
        there = self.snapshot.of(ResourceSlice)
        return [RecordReplaced(published(there[self.step * 37 % len(there)].name, 2 + self.step % 2))]


class ClaimJoins(_Claiming, NodeJoins):
    """A node joins, and a pod with a claim comes."""


class _Checked(_Mixed):
    """What ``verify`` of the decision takes alone."""

    def prepare(self) -> None:
        super().prepare()
        now = START + timedelta(seconds=60 + self.step * 0.01)
        self.before = self.snapshot.apply(*self.changes) if self.changes else self.snapshot
        self.result = schedule(self.before, self.pods, policy=self.policy, now=now)
        self.snapshot = self.result.snapshot

    def turn(self) -> None:
        assert verify(self.before, self.result) == ()


class CheckedSpread(_Checked):
    """Of a pod that has to be spread over zones among those of its kind, 2 % of all pods."""

    def pod(self, name: str, **fields: Any) -> Pod:
        spread = TopologySpreadConstraint(
            max_skew=500,
            topology_key=ZONE,
            when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
            selector=LabelSelector({"app": "a1"}),
        )
        return super().pod(name, labels={"app": "a1"}, spread_constraints=(spread,), **fields)


class CheckedNear(_Checked):
    """Of a pod that has to be in a zone where there is one of its kind."""

    def pod(self, name: str, **fields: Any) -> Pod:
        term = PodAffinityTerm(selector=LabelSelector({"app": "a1"}), topology_key=ZONE)
        near = Affinity(pod=PodAffinity(required=(term,)))
        return super().pod(name, labels={"app": "a1"}, affinity=near, **fields)


class CheckedClaim(_Checked, _Claiming):
    """Of a pod with a claim."""


class CheckedQuota(_Checked):
    """After one of 100 quotas was given another max."""

    def happen(self) -> Sequence[Change]:
        return [RecordReplaced(quota(self.step % 100, 100_000 + self.step))]


DECIDED: tuple[type[_Line], ...] = (
    *(MixedEnds, MixedJoins, MixedLeaves, MixedOffers, QuotaChanges, ReservationComes, ReservationGoes),
    *(Claims, ClaimComes, SliceChanges, ClaimJoins, Resource),
)
"""Those in which a pod is decided about."""

ROWS: tuple[type[_Line], ...] = (*DECIDED, CheckedSpread, CheckedNear, CheckedClaim, CheckedQuota)
"""All of them, for a table."""
