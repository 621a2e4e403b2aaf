"""What fields of a colocation strategy may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.model.colocation import STATIC_MODE, CalculatePolicy, ColocationStrategy
from koordcore.protocol.colocation import STRATEGY_FIELDS
from koordcore.protocol.fields import show


@record
class Range:
    """What a percent, count or ratio may be, and how the webhook names it.

    Parameters
    ----------
    wire
        Name of the field in the webhook's texts.
    low, above
        The least it may be; with ``above`` it must be more.
    high, admitted_high
        The most that is read, and that the webhook admits; ``None`` for no bound.
    """

    wire: str
    low: int
    high: int | None = None
    admitted_high: int | None = None
    above: bool = False

    def holds(self, value: float, high: int | None) -> bool:
        """Tell whether a value is within the lower bound, and an upper one."""
        return (value > self.low if self.above else value >= self.low) and (high is None or value <= high)

    def complaint(self, value: float) -> str | None:
        """Say what the webhook has against a value."""
        if not self.holds(value, None):
            return f"{self.wire} must be " + (
                f"greater than {self.low}" if self.above else f"{self.low} or greater"
            )
        if not self.holds(value, self.admitted_high):
            return f"{self.wire} must be {self.admitted_high} or less"
        return None


RANGES: Final[Mapping[str, Range]] = {
    "metric_aggregate_duration_seconds": Range("MetricAggregateDurationSeconds", 1),
    "metric_report_interval_seconds": Range("MetricReportIntervalSeconds", 1),
    "cpu_reclaim_threshold_percent": Range("CPUReclaimThresholdPercent", 0),
    "memory_reclaim_threshold_percent": Range("MemoryReclaimThresholdPercent", 0),
    "degrade_time_minutes": Range("DegradeTimeMinutes", 1),
    "update_time_threshold_seconds": Range("UpdateTimeThresholdSeconds", 1),
    "resource_diff_threshold": Range("ResourceDiffThreshold", 0, None, 1, above=True),
    "mid_cpu_threshold_percent": Range("MidCPUThresholdPercent", 0, 100, 100),
    "mid_memory_threshold_percent": Range("MidMemoryThresholdPercent", 0, 100, 100),
    "mid_unallocated_percent": Range("MidUnallocatedPercent", 0, 100, 100),
    "mid_static_cpu_reserved_percent": Range("MidStaticCPUReservedPercent", 0, None, 100),
    "mid_static_memory_reserved_percent": Range("MidStaticMemoryReservedPercent", 0, None, 100),
    "batch_cpu_threshold_percent": Range("BatchCPUThresholdPercent", 0),
    "batch_memory_threshold_percent": Range("BatchMemoryThresholdPercent", 0),
}
"""Field of the strategy to what it may be."""

_USAGE: Final = "it counts as usage"
_WORDS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "cpu_calculate_policy": ((CalculatePolicy.USAGE, CalculatePolicy.MAX_USAGE_REQUEST), _USAGE),
    "memory_calculate_policy": (tuple(CalculatePolicy), _USAGE),
    "mid_reclaim_mode": ((STATIC_MODE,), "what is reclaimable counts"),
}


def out_of_range(strategy: ColocationStrategy) -> Iterator[Problem]:
    """Name the fields of a strategy that are out of their range, as they are written in JSON."""
    for wire, name in STRATEGY_FIELDS.items():
        value = getattr(strategy, name)
        if name == "metric_memory_collect_policy" and value == "":
            yield Problem(wire, "it must not be empty")
        if name in RANGES and value is not None:
            bounds = RANGES[name]
            if not bounds.holds(value, None):
                yield Problem(wire, f"{value} is {'not more' if bounds.above else 'less'} than {bounds.low}")
            elif not bounds.holds(value, bounds.high):
                yield Problem(wire, f"{value} is more than {bounds.high}")


def unknown_words(strategy: ColocationStrategy) -> Iterator[Problem]:
    """Name the fields of a strategy whose words mean what is meant without them."""
    for wire, name in STRATEGY_FIELDS.items():
        known, effect = _WORDS.get(name, ((), ""))
        value = getattr(strategy, name)
        if known and value and value not in known:
            yield Problem(wire, f"{show(value)} is none of {', '.join(known)}; {effect}")
