"""Who has to go is told from what changed as it is told from the whole cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

import attrs
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, PodKey
from koordcore.controlplane import Overdue
from koordcore.controlplane.overdue import half_gangs
from koordcore.model import ElasticQuota, QuotaPolicy
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import PodPhase
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from tests.reference import half_gangs as reference

QUOTA = "quota.scheduling.koordinator.sh/name"
REVOKES = QuotaPolicy(monitor_all_quotas=True, delay_evict=0)
GANG = "pod-group.scheduling.sigs.k8s.io"


def member(rng: Random, name: str, **fields: Any) -> Pod:
    labels = rng.choice(({}, {GANG: "g"}, {GANG: "h"}, {GANG: "h"}))
    leaves = datetime(2026, 1, 1, tzinfo=UTC) if rng.random() < 0.2 else None
    return Pod(name=name, labels=labels, deleted=leaves, **fields)


def change(rng: Random, snapshot: ClusterSnapshot, step: int) -> Change:
    bound, records = [*snapshot.bound_pods()], [*snapshot.of(Pod)]
    kind = rng.choice(("bind", "bind", "end", "leave", "node", "label", "group", "record", "record", "gone"))
    if kind == "end" and bound:
        return PodEnded(rng.choice(bound).key)
    if kind == "leave" and bound:
        return PodUpdated(attrs.evolve(rng.choice(bound), deleted=datetime(2026, 1, 1, tzinfo=UTC)))
    if kind == "node":
        return NodeAdded(Node(name=f"m{step}"))
    if kind == "label":
        return NodeReplaced(Node(name="a", labels={"step": str(step)}))
    if kind == "group":
        return RecordReplaced(group_of(rng.choice("gh"), rng.randint(1, 3), rng.choice(("", "g,h", "h"))))
    if kind == "record":
        phase = rng.choice((PodPhase.SUCCEEDED, PodPhase.RUNNING))
        return RecordAdded(member(rng, f"r{step}", node_name="gone", phase=phase))
    if kind == "gone" and records:
        return RecordRemoved(rng.choice(records))
    return PodBound(member(rng, f"p{step}", node_name=rng.choice("ab")))


def group_of(name: str, least: int, group: str = "") -> PodGroup:
    listed = [f"default/{one}" for one in group.split(",") if one]
    said = {"gang.scheduling.koordinator.sh/groups": json.dumps(listed)} if listed else {}
    return PodGroup(namespace="default", name=name, min_member=least, annotations=said)


@given(st.integers(0, 2**32))
def test_a_look_at_what_changed_finds_all_half_gangs(seed: int) -> None:
    rng = Random(seed)
    snapshot = ClusterSnapshot(nodes=[Node(name="a"), Node(name="b")], records=map(group_of, "gh", (2, 2)))
    overdue = Overdue(patience=0.0, quotas=QuotaPolicy())
    for step in range(16):
        going = overdue.look(snapshot, now=float(step))
        wanted = {name: pods for name, pods in reference.half_gangs(snapshot).items() if pods}
        assert {name: {*pods} for name, pods in half_gangs(snapshot).items()} == wanted
        assert going.keys() == {pod.key for pods in wanted.values() for pod in pods}
        snapshot = snapshot.apply(change(rng, snapshot, step))


def test_who_is_within_the_min_of_his_quota_stays_when_nodes_go() -> None:
    """Both quotas are promised two of four cores and want all of them; then two of the nodes go."""
    nodes = [Node(name=name, allocatable={"cpu": 1000, "memory": 1 << 30, "pods": 9}) for name in "abcd"]
    quotas = [
        ElasticQuota(name=name, namespace="q", min={"cpu": 2000}, max={"cpu": 4000})
        for name in ("mine", "other")
    ]
    snapshot = ClusterSnapshot(nodes=nodes).with_records(*quotas)
    for node in "abc":
        snapshot = snapshot.assume(
            Pod(name=node, labels={QUOTA: "mine"}, requests={"cpu": 1000}, node_name=node)
        )
    waiting = [Pod(name=f"w{n}", labels={QUOTA: "other"}, requests={"cpu": 1000}) for n in range(2)]
    snapshot = snapshot.with_pending(*waiting)
    less = snapshot.apply(PodEnded(PodKey("default", "c")), NodeRemoved("c"), NodeRemoved("d"))
    overdue = Overdue(patience=0.0, quotas=REVOKES)
    assert [overdue.look(less, now=moment) for moment in (0.0, 1.0)] == [{}, {}]
    overdue = Overdue(patience=0.0, quotas=REVOKES)
    going = [overdue.look(snapshot, now=moment) for moment in (0.0, 1.0)]
    assert [*going[1].values()] == ["quota mine uses more than its share"]
