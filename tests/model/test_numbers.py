"""Numbers that mean nothing in a setting are refused where they are set, and named."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan
from typing import Any

import pytest

from koordcore.controlplane import Backoff, LoopSettings, Moment, Overdue
from koordcore.model import QuotaPolicy, ReservationArgs
from koordcore.model.rebalance import EvictionLimits

FLOATS = (nan, inf, -inf, -1.0)
SETTINGS: list[tuple[type, dict[str, Any], dict[str, tuple[float, ...]]]] = [
    (Backoff, {}, {"initial": FLOATS, "longest": FLOATS, "forgotten": (-1.0, nan)}),
    (Backoff, {"initial": 5.0}, {"longest": (4.0,)}),
    (LoopSettings, {}, {"batch": (0, -1), "patience": FLOATS}),
    (Overdue, {"quotas": QuotaPolicy()}, {"patience": FLOATS}),
    (Moment, {"wall": datetime(2026, 1, 1, tzinfo=UTC)}, {"now": (nan,)}),
    (EvictionLimits, {}, dict.fromkeys(("per_node", "per_namespace", "total"), (-1,))),
    (QuotaPolicy, {}, {"delay_evict": (-1,)}),
    (
        ReservationArgs,
        {},
        {
            "min_candidate_nodes_percentage": (-1, 101),
            **dict.fromkeys(("min_candidate_nodes_absolute", "controller_workers"), (-1,)),
            **dict.fromkeys(("gc_duration", "gc_interval", "resync_interval"), (-1,)),
        },
    ),
]
CASES = [
    (kind, others, name, value)
    for kind, others, fields in SETTINGS
    for name, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(
    ("kind", "others", "name", "value"), CASES, ids=[f"{one[0].__name__}-{one[2]}-{one[3]}" for one in CASES]
)
def test_a_setting_that_means_nothing_is_refused_and_named(
    kind: type, others: dict[str, Any], name: str, value: float
) -> None:
    kind(**others, **{name: 5})
    with pytest.raises(ValueError, match=f"^{kind.__name__}: {name}: "):
        kind(**others, **{name: value})
