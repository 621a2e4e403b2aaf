"""What nodes and their metrics say for load-aware scheduling, whatever the clock and the pods are.

Columns are ``(N,)`` or ``(C, N)``: C resources in the order of their names, cpu in milli-CPU, everything else
in units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntMatrix, IntVector, Rows
from koordcore._vector import Vector
from koordcore.model.durations import SECOND
from koordcore.model.load import AggregatedArgs, LoadAwareArgs, Percents
from koordcore.model.metrics import NodeMetric, rounded_to
from koordcore.model.nodes import Node
from koordcore.protocol.load import ANNOTATION_USAGE_THRESHOLDS, node_thresholds, raw_capacity
from koordcore.scoring.load_estimates import NEVER, NO_REPORT, Report
from koordcore.scoring.load_slots import grown

FloatVector: TypeAlias = NDArray[np.float64]
BoolMatrix: TypeAlias = NDArray[np.bool_]
_Said: TypeAlias = tuple[tuple[int, ...], str | None]
"""What a node says: its capacity by column, and its own thresholds as they are written."""

NO_LIMIT: Final = 2**62
"""A limit that no load reaches; half the range, so that a load can be subtracted from it."""
_FAR: Final = 2**61
"""No load is as large as this."""
_LATEST: Final = AggregatedArgs()
"""No statistic: what was measured last."""
_MOST_KINDS: Final = 2**14
"""Kinds of nodes that are kept; then all of them are forgotten."""
_MATRICES: Final = 7
_FLAGS: Final = 8
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


class NodeKind(NamedTuple):
    """What nodes say for load-aware scheduling, by column; many nodes say the same.

    Parameters
    ----------
    capacity
        Allocatable before amplification.
    plain_limits, prod_limits
        The thresholds as amounts.
    plain_filters, prod_filters
        There is any threshold for pods, and for prod pods.
    statistic
        The statistic that the filter reads and over which window; ``""`` for what was measured last.
    """

    capacity: tuple[int, ...]
    plain_limits: tuple[int, ...]
    prod_limits: tuple[int, ...]
    plain_filters: bool
    prod_filters: bool
    statistic: tuple[str, int]


class NodeKinds:
    """The kinds of nodes that were seen; all states of the load that come of each other share it."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._names = args.columns
        self._usual = args.thresholds
        self._known: dict[_Said, NodeKind] = {}

    def of(self, nodes: Sequence[Node]) -> list[NodeKind]:
        """Give the kind of each of some nodes."""
        said = [self._said(node) for node in nodes]
        new = {one: node for one, node in zip(said, nodes, strict=True) if one not in self._known}
        if new:
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
                new = dict(zip(said, nodes, strict=True))
            self._learn(new)
        return [self._known[one] for one in said]

    def _said(self, node: Node) -> _Said:
        amounts, notes = raw_capacity(node), node.annotations
        capacity = tuple([amounts.get(name, 0) for name in self._names])
        return capacity, notes.get(ANNOTATION_USAGE_THRESHOLDS) if notes else None

    def _learn(self, new: Mapping[_Said, Node]) -> None:
        plain: list[Percents] = []
        prod: list[Percents] = []
        statistics: list[tuple[str, int]] = []
        for node in new.values():
            own = node_thresholds(node, self._usual)
            read = own.aggregated if own.aggregated and own.aggregated.filters else None
            plain.append(own.usage if read is None else read.usage_thresholds)
            prod.append(own.prod)
            statistics.append(("", 0) if read is None else (read.usage_type, read.usage_duration))
        capacities = [capacity for capacity, _ in new]
        limits = [self._limits(capacities, percents) for percents in (plain, prod)]
        filters = [
            [any(one.get(name, 0) for name in self._names) for one in percents] for percents in (plain, prod)
        ]
        kinds = map(NodeKind, capacities, *limits, *filters, statistics)
        self._known.update(zip(new, kinds, strict=True))

    def _limits(
        self, capacities: Sequence[tuple[int, ...]], percents: Sequence[Percents]
    ) -> list[tuple[int, ...]]:
        bounds = [[one.get(name, 0) for name in self._names] for one in percents]
        limits = threshold_limits(np.array(capacities, np.int64), np.array(bounds, np.int64))
        return [tuple(one) for one in limits.tolist()]


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
        kinds: NodeKinds,
    ) -> None:
        self._names = names = args.columns
        self._expiration = args.node_metric_expiration_seconds * SECOND
        scoring = args.aggregated or _LATEST
        scored = scoring.score_type, scoring.score_duration
        nothing = (0,) * len(names)
        self.reports = Vector([NO_REPORT if metric is None else Report(metric) for metric in metrics])
        # One block of numbers and one of flags: to put in what a single node says is to write two columns.
        numbers: list[tuple[int, ...]] = []
        flags: list[tuple[bool, ...]] = []
        for kind, metric, report in zip(kinds.of(nodes), metrics, self.reports, strict=True):
            usage = system = nothing
            time: int | None = None
            body, by_filter, by_score = False, (nothing, False), (nothing, False)
            if metric is not None:
                time, body = metric.update_time, metric.node_usage is not None
                usage = rounded_to(metric.node_usage, names) if metric.node_usage else nothing
                if args.prod_usage_include_sys and metric.system_usage:
                    system = rounded_to(metric.system_usage, names)
                by_filter = self._measured(usage, metric, *kind.statistic)
                by_score = self._measured(usage, metric, *scored)
            numbers.append(
                (
                    *kind.capacity,
                    *[max(amount, 1) for amount in kind.capacity],
                    *system,
                    *kind.plain_limits,
                    *kind.prod_limits,
                    *by_filter[0],
                    *by_score[0],
                    report.horizon if report else NEVER,
                    time or 0,
                )
            )
            flags.append(
                (
                    metric is not None,
                    time is not None,
                    body,
                    bool(kind.statistic[0]),
                    kind.plain_filters,
                    kind.prod_filters,
                    by_filter[1],
                    by_score[1],
                )
            )
        self._name_parts(
            np.ascontiguousarray(
                np.array(numbers, np.int64).reshape(len(nodes), _MATRICES * len(names) + 2).T
            ),
            np.ascontiguousarray(np.array(flags, np.bool_).reshape(len(nodes), _FLAGS).T),
        )
        self._note()

    def _name_parts(self, numbers: IntMatrix, flags: BoolMatrix) -> None:
        """Give the parts of the blocks their names."""
        self._numbers, self._flags = numbers, flags
        width = len(self._names)
        self.capacity, self.divisor, self.system, self.plain_limits, self.prod_limits = [
            numbers[start * width : (start + 1) * width] for start in range(5)
        ]
        self.measured_filter, self.measured_score = numbers[5 * width : 6 * width], numbers[6 * width : -2]
        self.horizons, self.moments = numbers[-2], numbers[-1]
        self.reported, self.dated, self.body, self.aggregated = flags[:4]
        self.plain_filters, self.prod_filters, self.alone_filter, self.alone_score = flags[4:]

    def _measured(
        self, usage: tuple[int, ...], metric: NodeMetric, kind: str, duration: int
    ) -> tuple[tuple[int, ...], bool]:
        """Give a statistic in the place of the latest usage, and tell whether estimates stand alone.

        That is where a window is asked for that the node does not report.
        """
        if not kind:
            return usage, False
        windows = {
            window.duration: window.usage[kind]
            for window in metric.aggregated_node_usages
            if window.usage.get(kind)
        }
        if duration != 0:
            known = duration in windows
            return rounded_to(windows[duration], self._names) if known else usage, not known
        return rounded_to(windows[max(windows)], self._names) if windows else usage, False

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
        other._name_parts(self._numbers.copy(), self._flags.copy())  # noqa: SLF001  # a copy of its own
        return other

    def put(self, rows: Sequence[int], at: Rows, fresh: NodeLoads) -> None:
        """Take in what is said of some nodes now, whose rows are given twice."""
        last = self.latest != NEVER and self.latest in self.horizons[at]
        self._numbers[:, at], self._flags[:, at] = fresh._numbers, fresh._flags
        pairs = zip(rows, fresh.reports, strict=True)
        said = {row: one for row, one in pairs if one is not self.reports[row]}
        if said:
            self.reports = self.reports.changed(said)
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
        self._name_parts(
            grown(self._numbers, blank._numbers, number), grown(self._flags, blank._flags, number)
        )
        self.reports = Vector((*self.reports, *(NO_REPORT,) * number))
