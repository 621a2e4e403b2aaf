"""Checking, explaining and writing down one decision costs what it touches, in a cluster that is lived in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType

import pytest

from koordcore import ClusterSnapshot, Node, Pod, ScheduleResult, explain, schedule, verify
from koordcore.framework.registry import known_plugins
from koordcore.manifests import patches
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.affinity import (
    Affinity,
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordcore.model.cluster import Namespace, PodDisruptionBudget, Workload
from koordcore.model.metrics import Measured, NodeMetric
from koordcore.model.pods import PodPhase
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation, ReservationPhase, ReservationStatus
from koordcore.model.selectors import LabelSelector
from koordcore.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

SIZES = (50, 400)
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = koordinator_policy(known_plugins())


def pod(name: str, app: str, **fields: object) -> Pod:
    """A pod of an application whose pods shun each other, and lie in all zones."""
    own = LabelSelector({"app": app})
    spread = TopologySpreadConstraint(
        max_skew=2000,
        topology_key=ZONE,
        selector=own,
        match_label_keys=("app",),
        node_taints_policy=NodeInclusionPolicy.HONOR,
    )
    return Pod(
        name=name,
        labels={"app": app},
        requests={"cpu": 100},
        affinity=Affinity(anti=PodAffinity(required=(PodAffinityTerm(HOST, own),))),
        spread_constraints=(spread,),
        **fields,  # type: ignore[arg-type]
    )


def cluster(size: int) -> ClusterSnapshot:
    """Some applications for each node, with all that is there for them."""
    nodes, pods = [], []
    records: list[ClusterRecord] = [
        StorageClass(name="disks", provisioner="disk.example.com", immediate=False)
    ]
    for number in range(size):
        name, app = f"n{number}", f"a{number}"
        labels = {HOST: name, ZONE: f"z{number % 3}"}
        nodes.append(Node(name=name, labels=labels, allocatable={"cpu": 64000, "pods": 100}))
        pods += [pod(f"all-{number}", "all", node_name=name), pod(f"own-{number}", app, node_name=name)]
        update = int(BEGIN.timestamp()) * 10**9 + number
        held = {"cpu": 1000}
        placed = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=name, allocatable=held)
        records += [
            pod(f"ended-{number}", app, node_name=name, phase=PodPhase.SUCCEEDED),
            Workload(kind="ReplicaSet", name=app, replicas=1, selector=LabelSelector({"app": app})),
            PodDisruptionBudget(name=app, selector=LabelSelector({"app": app}), disruptions_allowed=1),
            Namespace(name=f"team-{number}"),
            NodeMetric(node=name, update_time=update, node_usage=Measured(cpu=500)),
            PersistentVolumeClaim(name=f"c{number}", volume=f"v{number}", storage_class="disks"),
            PersistentVolume(name=f"v{number}", claim=f"default/c{number}", available=False),
            Reservation(
                name=f"r{number}", uid=f"r{number}", template=Pod(name="r", requests=held), status=placed
            ),
        ]
    return ClusterSnapshot(nodes=nodes, records=records).assume(*pods)


def calls(what: Callable[[], object]) -> int:
    """Count the calls that something makes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        what()
    finally:
        sys.setprofile(None)
    return count


def around(size: int) -> dict[str, int]:
    """Decide about a few pods of new applications, one after another; count what the last one costs."""
    snapshot, counted = cluster(size), dict[str, int]()
    for turn in range(4):
        now = BEGIN + timedelta(seconds=60 + turn)
        claim = PersistentVolumeClaim(name=f"new-{turn}", storage_class="disks")
        one = pod(f"new-{turn}", f"new-{turn}", claims=(claim.name,))
        before = snapshot.with_records(claim).with_pending(one)
        result = schedule(before, policy=POLICY, now=now)
        assert result.bound, result.decisions
        checked = list[object]()

        def check(before: ClusterSnapshot = before, result: ScheduleResult = result) -> None:
            checked.extend(verify(before, result, now=now))  # noqa: B023  # called at once

        counted["verify"] = calls(check)
        assert not checked
        counted["explain result"] = calls(lambda: explain(result, one.key))  # noqa: B023
        counted["explain snapshot"] = calls(lambda: explain(before, one.key, policy=POLICY, now=now))  # noqa: B023
        counted["patches"] = calls(lambda: patches(result, now=now))  # noqa: B023
        snapshot = result.snapshot
    return counted


@pytest.fixture(scope="module")
def costs() -> list[dict[str, int]]:
    return [around(size) for size in SIZES]


@pytest.mark.parametrize("what", ["verify", "explain result", "explain snapshot", "patches"])
def test_it_makes_as_many_calls_in_a_cluster_eight_times_as_large(
    what: str, costs: list[dict[str, int]]
) -> None:
    small, large = (one[what] for one in costs)
    assert large < 1.5 * small, (small, large)
