"""Completion of thresholds, and what counts as hot."""

from __future__ import annotations

from immutabledict import immutabledict

from koordcore.descheduling.classify import classify_pool, complete_thresholds, exceeded, is_over, is_under
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.rebalance import LowNodeLoadArgs, NodePool
from koordcore.protocol.rebalance import low_node_load_args


def kinds(pool: NodePool) -> list[str]:
    """Classify three nodes, each with a prod pod: they use 90, 50 and 10 percent."""
    uses = {"a": 9000, "b": 5000, "c": 1000}
    metrics = {
        name: NodeMetric(
            node=name,
            update_time=0,
            node_usage=measured_of({"cpu": cpu}),
            pods=(PodMetric(namespace="d", name=f"on-{name}", usage=measured_of({"cpu": cpu})),),
        )
        for name, cpu in uses.items()
    }
    nodes = [Node(name=name, allocatable={"cpu": 10_000}) for name in uses]
    pods = {name: [Pod(namespace="d", name=f"on-{name}", node_name=name, priority=9500)] for name in uses}
    found = classify_pool(pool, nodes, pods, metrics, LowNodeLoadArgs(), 0)
    return [str(one.kind) for one in found.loads]


def test_a_threshold_on_one_side_only_holds() -> None:
    """A high threshold alone makes nodes hot; a low one alone makes none hot below all of the node."""
    high = complete_thresholds(NodePool(high=immutabledict({"cpu": 65.0})))
    assert (high.high["cpu"], high.low["cpu"]) == (65.0, 65.0)
    low = complete_thresholds(NodePool(low=immutabledict({"cpu": 45.0})))
    assert (low.high["cpu"], low.low["cpu"]) == (100.0, 45.0)


def test_a_deviation_on_one_side_only_holds() -> None:
    """By deviation, too: of usage at 90, 50 and 10 percent 10 above the average make the first node hot."""
    by_ten, by_none = immutabledict({"cpu": 10.0}), immutabledict({"cpu": 0.0})
    assert kinds(NodePool(deviation=True, high=by_ten)) == ["high", "bothLow", "bothLow"]
    assert kinds(NodePool(deviation=True, prod_high=by_ten)) == ["prodHigh", "bothLow", "bothLow"]
    assert kinds(NodePool(deviation=True, high=by_ten, low=by_ten)) == ["high", "prodLow", "bothLow"]
    assert kinds(NodePool(deviation=True, low=by_ten)) == ["prodLow", "prodLow", "bothLow"]
    assert kinds(NodePool(deviation=True, high=by_ten, low=by_none)) == ["bothLow"] * 3


def test_what_nobody_names_is_no_threshold() -> None:
    """Memory is always there; by deviation 0 says "none"."""
    assert complete_thresholds(NodePool()).high == {"memory": 100.0}
    by_deviation = complete_thresholds(NodePool(deviation=True, low=immutabledict({"cpu": 10.0})))
    assert by_deviation.low == {"cpu": 10.0, "memory": 0}
    assert by_deviation.prod_high == {"cpu": 0, "memory": 0}


def test_pools_do_not_change_each_other() -> None:
    """A pool by deviation leaves what it inherits as it is."""
    args = low_node_load_args(
        {
            "useDeviationThresholds": True,
            "highThresholds": {"cpu": 30},
            "lowThresholds": {"cpu": 30},
            "nodePools": [{"name": "plain"}],
        }
    )
    first, second = map(complete_thresholds, args.pools)
    assert first.high["memory"] == 0
    assert second.high["memory"] == 100.0


def test_exactly_at_the_threshold() -> None:
    """Used as much as allowed is low enough, and not too much."""
    limits = {"cpu": 5, "memory": 7}
    assert is_under({"cpu": 5, "memory": 7}, limits)
    assert not is_over({"cpu": 5, "memory": 7}, limits)
    assert exceeded({"cpu": 6, "memory": 8}, limits) == ("cpu", "memory")
