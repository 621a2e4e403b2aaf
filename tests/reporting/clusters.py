"""Clusters for pages: the example, one with quotas and a victim, and a large one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from koordcore import (
    ClusterSnapshot,
    ElasticQuota,
    Node,
    Pod,
    PreemptionRules,
    ScheduleResult,
    load,
    schedule,
)
from koordcore.model.pods import OwnerReference

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"
QUOTA = "quota.scheduling.koordinator.sh/name"
HOSTILE = "</script><script>document.title='taken over'</script>"


@cache
def example() -> ScheduleResult:
    return schedule(load([EXAMPLE]).snapshot)


@cache
def preempted() -> ScheduleResult:
    """One node full of a less important pod; a more important one waits. A quota has a hostile name."""
    room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    runs = Pod(
        name="old",
        requests={"nvidia.com/gpu": 8, "cpu": 1000},
        priority=1,
        node_name="n0",
        labels={QUOTA: "a"},
    )
    waits = Pod(name="new", requests={"nvidia.com/gpu": 4, "cpu": 1000}, priority=9, labels={QUOTA: HOSTILE})
    quotas = [
        ElasticQuota(
            name=name,
            namespace="kube-system",
            min={"cpu": 8000, "nvidia.com/gpu": 4},
            max={"cpu": 64_000, "nvidia.com/gpu": 8},
        )
        for name in ("a", HOSTILE)
    ]
    snapshot = ClusterSnapshot(nodes=[Node(name="n0", allocatable=room)], pending=[waits], records=quotas)
    return schedule(snapshot.assume(runs), preempt=PreemptionRules())


@cache
def scattered() -> ClusterSnapshot:
    """Three nodes of 8 cards, none of them free as a whole."""
    room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [Node(name=f"n{number}", allocatable=room) for number in range(3)]
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="u", controller=True)
    pods = [
        Pod(name=f"p{one}", requests={"nvidia.com/gpu": 3}, node_name=f"n{one}", owners=(owner,))
        for one in range(3)
    ]
    return ClusterSnapshot(nodes=nodes).assume(*pods)


@cache
def large() -> ClusterSnapshot:
    """1000 nodes of 8 cards with 10,000 pods, 3000 of them with cards, in 100 workloads."""
    room = {"cpu": 128_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [Node(name=f"node-{number:04}", allocatable=room) for number in range(1000)]
    owners = [
        OwnerReference(kind="ReplicaSet", name=f"app-{one}", uid=f"u{one}", controller=True)
        for one in range(100)
    ]
    pods = [
        Pod(
            name=f"app-{number % 100}-{number}",
            namespace=f"team-{number % 7}",
            node_name=f"node-{number // 10:04}",
            requests={"cpu": 2000, "memory": 8 << 30, **({"nvidia.com/gpu": 2} if number % 10 < 3 else {})},
            owners=(owners[number % 100],),
        )
        for number in range(10_000)
    ]
    return ClusterSnapshot(nodes=nodes).assume(*pods)
