"""What nodes and their metrics say for load-aware scheduling, whatever the clock and the pods are.

Columns are ``(N,)`` or ``(C, N)``: C resources in the order of their names, cpu in milli-CPU, everything else
in units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntMatrix, IntVector, Rows
from koordcore._vector import Vector
from koordcore.model.durations import SECOND
from koordcore.model.load import AggregatedArgs, LoadAwareArgs, LoadThresholds, Percents
from koordcore.model.metrics import NodeMetric, rounded_to
from koordcore.model.nodes import Node
from koordcore.protocol.load import node_thresholds, raw_capacity
from koordcore.scoring.load_estimates import NEVER, NO_REPORT, Report
from koordcore.scoring.load_slots import grown

FloatVector: TypeAlias = NDArray[np.float64]

NO_LIMIT: Final = 2**62
"""A limit that no load reaches; half the range, so that a load can be subtracted from it."""
_FAR: Final = 2**61
"""No load is as large as this."""
_LATEST: Final = AggregatedArgs()
"""No statistic: what was measured last."""
_NEAR: Final = 2
"""How far a limit is searched for where no rounding gets in the way; each doubling is one more look."""


def threshold_limits(total: IntMatrix, thresholds: IntMatrix) -> IntMatrix:
    """Give the largest amount that passes ``round(amount / total * 100) <= threshold``, element by element.

    The comparison is upstream's, in float64 and in this order of operations; it is monotone in the amount,
    so a bisection finds the last amount that passes and the filter itself needs integers only. It begins
    near what the formula says of exact numbers; where rounding leads further away, with all numbers. No limit
    where the threshold or the total is 0.
    """
    limits = np.full(total.shape, NO_LIMIT, np.int64)
    active = (thresholds != 0) & (total != 0)
    if not active.any():
        return limits
    totals = total[active].astype(np.float64)
    bounds = thresholds[active].astype(np.float64)
    near = np.clip((bounds + 0.5) * totals / 100, -_FAR, _FAR).astype(np.int64)
    low, high = near - _NEAR, near + _NEAR
    if not (_passes(low, totals, bounds) & ~_passes(high, totals, bounds)).all():
        low, high = np.full(totals.shape, -_FAR, np.int64), np.full(totals.shape, _FAR, np.int64)
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        passes = _passes(middle, totals, bounds)
        low = np.where(passes, middle, low)
        high = np.where(passes, high, middle)
    limits[active] = low
    return limits


def _passes(amounts: IntVector, totals: FloatVector, bounds: FloatVector) -> BoolVector:
    """Tell whether ``round(amount / total * 100)``, halves away from zero, is within the bound."""
    percent = amounts.astype(np.float64) / totals * 100
    whole = np.trunc(percent)
    rounded = whole + np.sign(percent) * (np.abs(percent - whole) >= 0.5)
    within: BoolVector = rounded <= bounds
    return within


class NodeLoads:
    """The part of a load state that comes of nodes and metrics alone.

    Attributes
    ----------
    capacity, divisor
        ``(C, N)``: allocatable before amplification; the same, at least 1.
    system
        ``(C, N)``: what runs outside pods, where the arguments count it as used by prod pods.
    reported, dated, body
        ``(N,)``: the node has a metric; it says when it was made; it says what the node uses.
    moments, horizons
        ``(N,)``: when it was made, 0 where unsaid; which pods may be newer than what it shows.
    aggregated, plain_filters, prod_filters
        ``(N,)``: the filter reads a statistic; there is any threshold for pods, and for prod pods.
    plain_limits, prod_limits
        ``(C, N)``: the thresholds as amounts.
    measured_filter, measured_score, alone_filter, alone_score
        ``(C, N)``: what the filter and the score take for measured; ``(N,)``: where they go by estimates
        alone.
    reports
        By row.
    latest
        The latest of the horizons.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        metrics: Sequence[NodeMetric | None],
        args: LoadAwareArgs,
        names: Sequence[str],
    ) -> None:
        self._names = names
        self._expiration = args.node_metric_expiration_seconds * SECOND
        self.reports = Vector([NO_REPORT if metric is None else Report(metric) for metric in metrics])
        capacity = self._matrix([raw_capacity(node) for node in nodes])
        self.capacity: IntMatrix = capacity
        self.divisor: IntMatrix = np.maximum(capacity, 1)
        self.system: IntMatrix = np.zeros_like(capacity)
        if args.prod_usage_include_sys:
            self.system = self._rounded([one.system_usage if one else None for one in metrics])
        self.reported: BoolVector = np.array([metric is not None for metric in metrics], np.bool_)
        horizons = [one.horizon if one else NEVER for one in self.reports]
        self.horizons: IntVector = np.array(horizons, np.int64)
        times = [None if one is None else one.update_time for one in metrics]
        self.dated: BoolVector = np.array([time is not None for time in times], np.bool_)
        self.moments: IntVector = np.array([time or 0 for time in times], np.int64)
        self.body: BoolVector = np.array(
            [one is not None and one.node_usage is not None for one in metrics], np.bool_
        )
        usual = args.thresholds
        self._compile_limits([node_thresholds(node, usual) for node in nodes], metrics, args)
        self._note()

    def _compile_limits(
        self, thresholds: Sequence[LoadThresholds], metrics: Sequence[NodeMetric | None], args: LoadAwareArgs
    ) -> None:
        """Choose thresholds and the measured part of the load, and turn thresholds into amounts."""
        statistics = [
            one.aggregated if one.aggregated and one.aggregated.filters else None for one in thresholds
        ]
        self.aggregated: BoolVector = np.array([bool(one and one.usage_type) for one in statistics], np.bool_)
        plain: list[Percents] = [
            own.usage if statistic is None else statistic.usage_thresholds
            for own, statistic in zip(thresholds, statistics, strict=True)
        ]
        plain_thresholds = self._matrix(plain)
        prod_thresholds = self._matrix([own.prod for own in thresholds])
        self.plain_filters: BoolVector = (plain_thresholds != 0).any(axis=0)
        self.prod_filters: BoolVector = (prod_thresholds != 0).any(axis=0)
        self.plain_limits = threshold_limits(self.capacity, plain_thresholds)
        self.prod_limits = threshold_limits(self.capacity, prod_thresholds)
        usage = self._rounded([one.node_usage if one else None for one in metrics])
        kinds = [("", 0) if one is None else (one.usage_type, one.usage_duration) for one in statistics]
        self.measured_filter, self.alone_filter = self._overlaid(usage, metrics, kinds)
        scoring = args.aggregated or _LATEST
        kinds = [(scoring.score_type, scoring.score_duration)] * len(metrics)
        self.measured_score, self.alone_score = self._overlaid(usage, metrics, kinds)

    def _matrix(self, amounts: Iterable[Mapping[str, int]]) -> IntMatrix:
        names = self._names
        rows: dict[int, list[int]] = {}
        every = list(amounts)
        for one in every:
            if id(one) not in rows:  # many nodes share what they say
                rows[id(one)] = [one.get(name, 0) for name in names]
        return self._transposed([rows[id(one)] for one in every])

    def _rounded(self, measured: Iterable[Mapping[str, int] | None]) -> IntMatrix:
        nothing = (0,) * len(self._names)
        return self._transposed([rounded_to(one, self._names) if one else nothing for one in measured])

    def _transposed(self, rows: Sequence[Sequence[int]]) -> IntMatrix:
        return np.ascontiguousarray(np.array(rows, np.int64).reshape(len(rows), len(self._names)).T)

    def _overlaid(
        self, usage: IntMatrix, metrics: Sequence[NodeMetric | None], wanted: Sequence[tuple[str, int]]
    ) -> tuple[IntMatrix, BoolVector]:
        """Put statistics in the place of the latest usage; tell where estimates stand alone.

        That is where a window is asked for that the node does not report.
        """
        measured, alone = usage.copy(), np.zeros(len(metrics), np.bool_)
        for row, (metric, (kind, duration)) in enumerate(zip(metrics, wanted, strict=True)):
            if not kind or metric is None:
                continue
            windows = {
                window.duration: window.usage[kind]
                for window in metric.aggregated_node_usages
                if window.usage.get(kind)
            }
            if duration in windows and duration != 0:
                measured[:, row] = rounded_to(windows[duration], self._names)
            elif duration == 0 and windows:
                measured[:, row] = rounded_to(windows[max(windows)], self._names)
            elif duration != 0:
                alone[row] = True
        return measured, alone

    def _note(self) -> None:
        self.latest = int(self.horizons.max(initial=NEVER))

    def too_old(self, now: int) -> BoolVector:
        """Tell which nodes' metrics have expired at a moment, or say no moment of their own: ``(N,)``."""
        old: BoolVector = ~self.dated | (now - self.moments >= self._expiration)
        return old

    def fresh_until(self, now: int) -> int:
        """Give the first moment at which a metric expires that is fresh at a moment."""
        later = self.dated & (now - self.moments < self._expiration)
        return int(self.moments[later].min(initial=NO_LIMIT)) + self._expiration

    def copied(self) -> NodeLoads:
        """Give the same, to be changed on its own."""
        other = copy(self)
        for name in _BY_NODE:
            setattr(other, name, getattr(self, name).copy())
        return other

    def put(self, rows: Sequence[int], at: Rows, fresh: NodeLoads) -> None:
        """Take in what is said of some nodes now, whose rows are given twice."""
        last = self.latest in self.horizons[at]
        mine, others = vars(self), vars(fresh)
        for name in _BY_NODE:
            mine[name][..., at] = others[name]
        self.reports = self.reports.changed(dict(zip(rows, fresh.reports, strict=True)))
        if last:
            self._note()
        else:
            self.latest = max(self.latest, fresh.latest)

    def forget(self, rows: Sequence[int]) -> None:
        """Take note that some nodes have left: no moment is measured from theirs any more."""
        self.dated[rows], self.horizons[rows] = False, NEVER
        self._note()

    def grow(self, blank: NodeLoads, number: int) -> None:
        """Make room for more nodes, of which nothing is known; ``blank`` is one of these."""
        for name in _BY_NODE:
            setattr(self, name, grown(getattr(self, name), getattr(blank, name), number))
        self.reports = Vector((*self.reports, *(NO_REPORT,) * number))


_BY_NODE: Final = (
    "capacity",
    "divisor",
    "system",
    "reported",
    "horizons",
    "dated",
    "moments",
    "body",
    "aggregated",
    "plain_filters",
    "prod_filters",
    "plain_limits",
    "prod_limits",
    "measured_filter",
    "alone_filter",
    "measured_score",
    "alone_score",
)
