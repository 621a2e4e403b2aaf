"""What moving costs, and that the cheaper of two plans of as many moves is taken."""

from __future__ import annotations

from koordcore.descheduling.costs import moving_costs
from koordcore.descheduling.moves import Movable, cheapest_cover
from koordcore.descheduling.plans import MoveRules, plan_cooling
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod, PodKey, PodPhase
from koordcore.model.rebalance import LowNodeLoadArgs, NodePool, Thresholds
from koordcore.snapshot import ClusterSnapshot

OWNER = (OwnerReference("ReplicaSet", "rs", "rs", controller=True),)
NOW = 10**18


def pod(name: str, priority: int, **annotations: str) -> Pod:
    return Pod(
        name=name,
        owners=OWNER,
        priority=priority,
        requests={"cpu": 4000},
        node_name="hot",
        phase=PodPhase.RUNNING,
        annotations={
            f"scheduling.koordinator.sh/{key.replace('_', '-')}": text for key, text in annotations.items()
        },
    )


def test_prices_by_class_and_annotation() -> None:
    """Free 1, batch 2, mid 3, prod and everything unknown 4; an eviction cost is added, a bonus is not."""
    pods = [
        pod(name, priority)
        for name, priority in (("f", 3000), ("b", 5500), ("m", 7500), ("p", 9500), ("n", 0))
    ]
    pods += [pod("dear", 5500, eviction_cost="10"), pod("glad", 5500, eviction_cost="-10")]
    costs = {key.name: cost for key, cost in moving_costs(pods).items()}
    assert costs == {"f": 1, "b": 2, "m": 3, "p": 4, "n": 4, "dear": 12, "glad": 2}


def test_batch_moves_rather_than_prod() -> None:
    """One of three equal pods must go: the batch pod, unless its price is said to be higher."""
    pods = [pod("a-prod", 9500), pod("b-mid", 7500), pod("c-batch", 5500)]
    reports = tuple(
        PodMetric(namespace="default", name=one.name, usage=measured_of({"cpu": 4000})) for one in pods
    )
    metrics = {
        name: NodeMetric(node=name, update_time=NOW, node_usage=measured_of({}), pods=own)
        for name, own in (("hot", reports), ("idle", ()))
    }
    nodes = [Node(name=name, allocatable={"cpu": 16_000, "pods": 10}) for name in ("hot", "idle")]
    snapshot = ClusterSnapshot(nodes=nodes).assume(*pods)
    args = LowNodeLoadArgs(pools=(NodePool(high=Thresholds({"cpu": 50.0})),))
    moving = plan_cooling(snapshot, args, now=NOW, metrics=metrics)
    assert [move.pod.name for move in moving.plan.moves] == ["c-batch"]
    assert moving.plan.certificate.proven
    assert moving.plan.certificate.objective == (0, 0, 1, 2)
    dear = MoveRules(costs={PodKey("default", "c-batch"): 9})
    moving = plan_cooling(snapshot, args, now=NOW, metrics=metrics, rules=dear)
    assert [move.pod.name for move in moving.plan.moves] == ["b-mid"]


def test_the_cheapest_cover_really_covers() -> None:
    """The cheapest single pod is too small; a bound without looking would take it."""
    sizes = {"small": (1, 1), "large": (5, 3), "other": (5, 4)}
    pods = [
        Movable(pod=PodKey("d", name), node="n", usage={"cpu": cpu}, cost=cost)
        for name, (cpu, cost) in sizes.items()
    ]
    assert cheapest_cover(pods, [one.usage for one in pods], {"cpu": 4}, 1) == 3
