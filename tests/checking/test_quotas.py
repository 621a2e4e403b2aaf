"""Quotas that were exceeded before anybody was asked."""

from __future__ import annotations

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, NodeState, Pod, ScheduleResult, schedule, verify
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources

TEAM = {"quota.scheduling.koordinator.sh/name": "team"}
KEPT = {**TEAM, "quota.scheduling.koordinator.sh/preemptible": "false"}


@pytest.mark.parametrize(("requests", "violated"), [({"memory": 1}, False), ({"cpu": 1}, True)])
def test_who_adds_nothing_is_not_to_blame(requests: dict[str, int], violated: bool) -> None:
    """CPU was used beyond what may be kept from others; only more CPU makes it worse."""
    node = Node(name="n", allocatable={"cpu": 9000, "memory": 99, "pods": 9})
    old = Pod(name="old", labels=KEPT, requests={"cpu": 2000}).at("n")
    team = ElasticQuota(name="team", max=make_resources({"cpu": 4000}), min=make_resources({"cpu": 0}))
    new = Pod(name="new", labels=KEPT, requests=requests)
    snapshot = ClusterSnapshot(nodes=[NodeState(node, (old,))], pending=[new], records=[team])
    placed = schedule(attrs.evolve(snapshot, records=()))
    planned: ScheduleResult = attrs.evolve(
        placed, snapshot=attrs.evolve(placed.snapshot, records=snapshot.records)
    )
    assert len(planned.bound) == 1
    assert [one.kind for one in verify(snapshot, planned)] == ["quota"] * violated
