"""Who has to go is told from what changed as it is told from the whole cluster."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, PodKey
from koordcore.controlplane import Overdue
from koordcore.controlplane.overdue import half_gangs
from koordcore.model import ElasticQuota, QuotaPolicy
from koordcore.model.gangs import PodGroup
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    RecordReplaced,
)

QUOTA = "quota.scheduling.koordinator.sh/name"
REVOKES = QuotaPolicy(monitor_all_quotas=True, delay_evict=0)
GANG = "pod-group.scheduling.sigs.k8s.io"


def change(rng: Random, snapshot: ClusterSnapshot, step: int) -> Change:
    bound = [pod.key for pod in snapshot.bound_pods()]
    kind = rng.choice(("bind", "bind", "end", "node", "label", "group"))
    if kind == "end" and bound:
        return PodEnded(rng.choice(bound))
    if kind == "node":
        return NodeAdded(Node(name=f"m{step}"))
    if kind == "label":
        return NodeReplaced(Node(name="a", labels={"step": str(step)}))
    if kind == "group":
        return RecordReplaced(PodGroup(namespace="default", name="g", min_member=rng.randint(1, 3)))
    labels = rng.choice(({}, {GANG: "g"}, {GANG: "h"}))
    return PodBound(Pod(name=f"p{step}", labels=labels, node_name=rng.choice("ab")))


@given(st.integers(0, 2**32))
def test_a_look_at_what_changed_finds_all_half_gangs(seed: int) -> None:
    rng = Random(seed)
    groups = [PodGroup(namespace="default", name=name, min_member=2) for name in "gh"]
    snapshot = ClusterSnapshot(nodes=[Node(name="a"), Node(name="b")], records=groups)
    overdue = Overdue(patience=0.0, quotas=QuotaPolicy())
    for step in range(12):
        going = overdue.look(snapshot, now=float(step))
        wanted: set[PodKey] = {pod.key for pods in half_gangs(snapshot).values() for pod in pods}
        assert going.keys() == wanted
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
