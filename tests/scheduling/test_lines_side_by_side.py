"""A control plane goes on from what it sees, not from what was decided, and asks about it itself.

Pods stand for reservations in what is decided about. Each of these snapshots follows the last of its kind:
nothing is compared item by item, however long it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, schedule, verify
from koordcore.controlplane import Overdue
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model import ElasticQuota, QuotaPolicy, Reservation, ReservationOwner
from koordcore.model.gangs import PodGroup
from koordcore.model.reservations import ReservationPhase, ReservationStatus
from koordcore.model.selectors import LabelSelector
from koordcore.snapshot import Change, PodBound, PodEnded, RecordReplaced, following

START = datetime(2026, 1, 1, tzinfo=UTC)
QUOTA = {"quota.scheduling.koordinator.sh/name": "q"}


def reservation(name: str, node: str) -> Reservation:
    return Reservation(
        name=name,
        uid=name,
        template=Pod(name=name, requests={"cpu": 1000}),
        owners=(ReservationOwner(selector=LabelSelector({"app": name})),),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=node, allocatable={"cpu": 1000}),
    )


def cluster(records: Sequence[Reservation]) -> ClusterSnapshot:
    nodes = [
        Node(name=f"n{number}", allocatable={"cpu": 64_000, "memory": 1 << 38, "pods": 110})
        for number in range(6)
    ]
    quota = ElasticQuota(name="q", max={"cpu": 10**6, "memory": 1 << 50}, min={"cpu": 1000})
    gang = PodGroup(namespace="default", name="g", min_member=1)
    return ClusterSnapshot(nodes=nodes, records=[quota, gang, *records])


def counting(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        calls.append(function.__name__)
        return function(*given)

    return call


@pytest.mark.parametrize("records", [(), (reservation("r", "n1"),)])
def test_every_snapshot_follows_the_last_of_its_kind(
    records: Sequence[Reservation], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy: Policy = koordinator_policy(known_plugins())
    overdue = Overdue(patience=60, quotas=QuotaPolicy())
    snapshot, compared = cluster(records), list[str]()
    for name in ("_differing", "_changed_records"):
        monkeypatch.setattr(following, name, counting(getattr(following, name), compared))
    for turn in range(60):
        pod = Pod(name=f"p{turn}", labels=QUOTA, requests={"cpu": 100, "memory": 1 << 20}, priority=9500)
        now = START + timedelta(seconds=turn)
        seen = snapshot.with_pending(pod)
        assert overdue.look(seen, now=turn) == {}
        result = schedule(seen, [pod], policy=policy, now=now)
        (decision,) = result.decisions
        assert isinstance(decision, Bound)
        assert verify(seen, result) == ()
        said = PodGroup(namespace="default", name="g", min_member=1, annotations={"turn": str(turn)})
        changes: list[Change] = [PodBound(pod.at(decision.node)), RecordReplaced(said)]
        if turn >= 5:
            changes.append(PodEnded(Pod(name=f"p{turn - 5}").key))
        snapshot = seen.apply(*changes)
        if turn == 3:
            compared.clear()
    assert compared == []
