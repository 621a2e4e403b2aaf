"""Completion of thresholds, and what counts as hot."""

from __future__ import annotations

from immutabledict import immutabledict

from koordcore.descheduling.classify import complete_thresholds, exceeded, is_over, is_under
from koordcore.model.rebalance import NodePool
from koordcore.protocol.rebalance import low_node_load_args


def test_a_threshold_on_one_side_only_holds() -> None:
    """A high threshold alone makes nodes hot; a low one alone makes none hot below all of the node."""
    high = complete_thresholds(NodePool(high=immutabledict({"cpu": 65.0})))
    assert (high.high["cpu"], high.low["cpu"]) == (65.0, 65.0)
    low = complete_thresholds(NodePool(low=immutabledict({"cpu": 45.0})))
    assert (low.high["cpu"], low.low["cpu"]) == (100.0, 45.0)


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
