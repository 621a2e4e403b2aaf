"""Load-aware filter and score as kernels over all nodes.

Measured usage, and estimates of pods that no measurement shows yet, are columns ``(C, N)`` of int64: C
resources in the order of their names, cpu in milli-CPU, everything else in units. A pod that is placed adds
its estimate to one node; taking it away subtracts the same amounts, so a state never has to be made anew.

The rule is that of upstream's ``pkg/scheduler/plugins/loadaware`` (specification sections 2.3 to 2.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntMatrix, IntVector, Rows
from koordcore.model.decisions import Shortfall
from koordcore.model.load import AggregatedArgs, LoadAwareArgs, Percents
from koordcore.model.metrics import NodeMetric, rounded
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    Resources,
    make_resources,
)
from koordcore.protocol.load import (
    ANNOTATION_SECONDS_AFTER_INITIALIZED,
    ANNOTATION_SECONDS_AFTER_SCHEDULED,
    custom_scaling_factors,
    custom_seconds,
    node_thresholds,
    raw_capacity,
)
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import PriorityClass, resource_name
from koordcore.protocol.times import SECOND, moment_of
from koordcore.snapshot import ClusterSnapshot

__all__ = [
    "REASON_EXPIRED",
    "LoadRequest",
    "LoadState",
    "estimate_pod",
    "round_half_away",
    "threshold_limits",
]

REASON_EXPIRED: Final = "node(s) nodeMetric expired"
FITS: Final = 0
EXPIRED: Final = 1

ANNOTATION_RESERVE_POD: Final = "scheduling.koordinator.sh/reserve-pod"
DEFAULT_REPORT_INTERVAL: Final = 60 * SECOND

_NO_LIMIT: Final = 2**63 - 1
_NEVER: Final = -(2**63)
_FLOORS: Final[Mapping[str, int]] = {
    CPU: 250,
    BATCH_CPU: 250,
    MEMORY: 200 * 1024 * 1024,
    BATCH_MEMORY: 200 * 1024 * 1024,
}

FloatMatrix: TypeAlias = NDArray[np.float64]


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero, as Go's ``math.Round``.

    Examples
    --------
    >>> [round_half_away(x) for x in (2.5, -2.5, 0.49999999999999994, 65.5)]
    [3, -3, 0, 66]
    """
    whole = int(value)
    if abs(value - whole) >= 0.5:
        return whole + (1 if value > 0 else -1)
    return whole


def estimate_pod(pod: Pod, args: LoadAwareArgs) -> Resources:
    """Estimate what a pod will use, by the names that have a scaling factor.

    A name is looked up as the pod's priority class spells it (``cpu`` of a batch pod is
    ``kubernetes.io/batch-cpu``); the answer keeps the plain name. The larger of request and limit is scaled
    and capped by the limit; a pod that asks for nothing is taken to use 250 milli-CPU and 200 MiB, except
    where its class has no such name.

    Parameters
    ----------
    pod
        Whoever it is, waiting or bound.
    args
        Scaling factors, and whether the pod's own are honoured.
    """
    factors: Mapping[str, int] = args.estimated_scaling_factors
    if args.allow_customize_estimation:
        own = custom_scaling_factors(pod)
        if own:
            factors = {**factors, **own}
    kind = pod_priority_class(pod)
    plain = kind in (PriorityClass.PROD, PriorityClass.NONE)
    amounts: dict[str, int] = {}
    for name, factor in factors.items():
        real = name if plain else resource_name(kind, name)
        if real is None:
            amounts[name] = 0
            continue
        limit = pod.limits.get(real, 0)
        asked = max(limit, pod.requests.get(real, 0))
        if asked == 0:
            amounts[name] = _FLOORS.get(real, 0)
            continue
        scaled = round_half_away(float(asked) * float(factor) / 100)
        amounts[name] = min(scaled, limit) if limit > 0 else scaled
    return make_resources(amounts)


def threshold_limits(total: IntMatrix, thresholds: IntMatrix) -> IntMatrix:
    """Give the largest amount that passes ``round(amount / total * 100) <= threshold``, element by element.

    The comparison is upstream's, in float64 and in this order of operations; it is monotone in the amount,
    so a bisection finds the last amount that passes and the filter itself needs integers only. No limit
    where the threshold or the total is 0.
    """
    limits = np.full(total.shape, _NO_LIMIT, np.int64)
    active = (thresholds != 0) & (total != 0)
    if not active.any():
        return limits
    totals = total[active].astype(np.float64)
    bounds = thresholds[active].astype(np.float64)
    low = np.full(totals.shape, -(2**61), np.int64)
    high = np.full(totals.shape, 2**61, np.int64)
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        percent = middle.astype(np.float64) / totals * 100
        whole = np.trunc(percent)
        percent = whole + np.sign(percent) * (np.abs(percent - whole) >= 0.5)
        passes = percent <= bounds
        low = np.where(passes, middle, low)
        high = np.where(passes, high, middle)
    limits[active] = low
    return limits


@attrs.frozen(eq=False)
class LoadRequest:
    """What the kernels need to know of a pod.

    Parameters
    ----------
    estimate
        ``(C,)``: what it is expected to use.
    prod
        It is a prod pod.
    daemon
        It belongs to a DaemonSet, which the filter lets pass.
    """

    estimate: IntVector
    prod: bool
    daemon: bool


@attrs.frozen(eq=False)
class _Report:
    """A node's metric as the accounting of pods reads it."""

    update_time: int
    horizon: int  # a pod whose timestamp is later is not (wholly) in the report
    pods: Mapping[tuple[str, str], tuple[list[int], bool]]


_NO_REPORT: Final = _Report(_NEVER, _NEVER, {})

Contribution: TypeAlias = tuple[list[int], list[int], list[int], list[int]]


class LoadState:
    """Load of every node, updated pod by pod.

    Attributes
    ----------
    args
        What it was made for.
    names
        Resource names of the columns, sorted.
    now
        The clock of the decision, in nanoseconds since 1970.
    capacity
        ``(C, N)``: allocatable before amplification.
    prod_usage, node_delta, prod_delta, node_estimated
        ``(C, N)``: what prod pods use by measurement; what pods are expected to use beyond the
        measurement, for all pods and for prod pods; what all pods are expected to use in total.
    reported
        ``(N,)``: the node has a metric.

    Notes
    -----
    A pod that is bound without a moment of binding counts as bound now, as upstream counts a pod that it
    sees for the first time.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        metrics: Mapping[str, NodeMetric],
        args: LoadAwareArgs,
        now: datetime | int,
    ) -> None:
        self.args = args
        self.names = args.columns
        self.now = now if isinstance(now, int) else moment_of(now)
        self._column = {name: index for index, name in enumerate(self.names)}
        self._estimates: dict[object, tuple[list[int], bool]] = {}
        self._read = 0
        shape = (len(self.names), len(nodes))
        self.capacity = self._matrix([raw_capacity(node) for node in nodes])
        self.prod_usage = np.zeros(shape, np.int64)
        self.node_delta = np.zeros(shape, np.int64)
        self.prod_delta = np.zeros(shape, np.int64)
        self.node_estimated = np.zeros(shape, np.int64)
        found = [metrics.get(node.name) for node in nodes]
        self.reported: BoolVector = np.array([metric is not None for metric in found], np.bool_)
        self._reports = [self._report(metric) for metric in found]
        if args.prod_usage_include_sys:
            self.prod_usage += self._matrix([rounded(one.system_usage) if one else {} for one in found])
        self._compile_views(nodes, found)
        self.reasons = (
            "",
            REASON_EXPIRED,
            *(f"node(s) {name} usage exceed threshold" for name in self.names),
            *(f"node(s) {name} aggregated usage exceed threshold" for name in self.names),
        )
        """Text of each code that :meth:`fit` gives."""

    @classmethod
    def of_snapshot(cls, snapshot: ClusterSnapshot, args: LoadAwareArgs, now: datetime | int) -> LoadState:
        """Compile the state of a snapshot: its nodes, their metrics and the pods bound to them."""
        metrics = {metric.node: metric for metric in snapshot.of(NodeMetric)}
        state = cls([one.node for one in snapshot.nodes], metrics, args, now)
        state.place_all((pod, row) for row, one in enumerate(snapshot.nodes) for pod in one.pods)
        return state

    # -- compiling -------------------------------------------------------------------------------------

    def _matrix(self, amounts: Iterable[Mapping[str, int]]) -> IntMatrix:
        rows = [self._vector(one) for one in amounts]
        return np.ascontiguousarray(np.array(rows, np.int64).reshape(len(rows), len(self.names)).T)

    def _vector(self, amounts: Mapping[str, int]) -> list[int]:
        return [amounts.get(name, 0) for name in self.names]

    def _report(self, metric: NodeMetric | None) -> _Report:
        if metric is None:
            return _NO_REPORT
        interval = DEFAULT_REPORT_INTERVAL if metric.report_interval is None else metric.report_interval
        updated = _NEVER if metric.update_time is None else metric.update_time
        pods = {
            (pod.namespace, pod.name): (self._vector(rounded(pod.usage)), pod.priority == PriorityClass.PROD)
            for pod in metric.pods
            if pod.usage
        }
        return _Report(updated, updated - interval if updated != _NEVER else _NEVER, pods)

    def _compile_views(self, nodes: Sequence[Node], metrics: Sequence[NodeMetric | None]) -> None:
        """Choose thresholds and the measured part of the load, once per node and purpose."""
        args = self.args
        expiration = args.node_metric_expiration_seconds * SECOND
        expired = np.array(
            [
                one is None or one.update_time is None or self.now - one.update_time >= expiration
                for one in metrics
            ],
            np.bool_,
        )
        body = np.array([one is not None and one.node_usage is not None for one in metrics], np.bool_)
        self._scorable: BoolVector = self.reported & ~expired & body
        usage = self._matrix([rounded(one.node_usage) if one and one.node_usage else {} for one in metrics])

        defaults = args.thresholds
        chosen = [node_thresholds(node, defaults) for node in nodes]
        plain: list[Percents] = []
        filtering: list[tuple[str, int]] = []
        for one in chosen:
            statistic = one.aggregated if one.aggregated is not None and one.aggregated.filters else None
            plain.append(one.usage if statistic is None else statistic.usage_thresholds)
            filtering.append(
                ("", 0) if statistic is None else (statistic.usage_type, statistic.usage_duration)
            )
        plain_thresholds = self._matrix(plain)
        prod_thresholds = self._matrix([one.prod for one in chosen])
        self._prod_filters: BoolVector = (prod_thresholds != 0).any(axis=0)
        self._aggregated = np.array([bool(kind) for kind, _ in filtering], np.bool_)

        refusing = args.filter_expired_node_metrics & expired & self.reported
        passing = ~self.reported | ~body | expired & args.filter_expired_node_metrics
        if args.enable_schedule_when_node_metrics_expired:
            refusing = np.zeros_like(refusing)
        self._plain_expired: BoolVector = refusing & (plain_thresholds != 0).any(axis=0)
        self._prod_expired: BoolVector = refusing & (self._prod_filters | self._plain_expired)
        plain_limits = threshold_limits(self.capacity, plain_thresholds)
        plain_limits[:, passing] = _NO_LIMIT
        prod_limits = threshold_limits(self.capacity, prod_thresholds)
        prod_limits[:, passing] = _NO_LIMIT
        self._limits = (plain_limits, np.where(self._prod_filters, prod_limits, plain_limits))
        self._filtering = tuple(
            bool((limits != _NO_LIMIT).any() or late.any())
            for limits, late in zip(self._limits, (self._plain_expired, self._prod_expired), strict=True)
        )

        scoring = args.aggregated or AggregatedArgs()
        self._measured_filter = usage.copy()
        self._estimated_filter = self._overlay(self._measured_filter, metrics, filtering)
        self._measured_score = usage
        kinds = [(scoring.score_type, scoring.score_duration)] * len(nodes)
        self._estimated_score = self._overlay(self._measured_score, metrics, kinds)
        self._weights = self._vector(args.resource_weights)
        # existing load by purpose: filter of other pods, filter of prod pods, score of either
        self._loads = [np.zeros_like(usage) for _ in range(4)]
        self._refresh(np.arange(len(nodes)))

    def _overlay(
        self, measured: IntMatrix, metrics: Sequence[NodeMetric | None], wanted: Sequence[tuple[str, int]]
    ) -> BoolVector:
        """Put statistics in the place of the latest usage; tell where estimates stand alone.

        That is where a window is asked for that the node does not report.
        """
        alone = np.zeros(len(metrics), np.bool_)
        for row, (metric, (kind, duration)) in enumerate(zip(metrics, wanted, strict=True)):
            if not kind or metric is None:
                continue
            windows = {
                window.duration: window.usage[kind]
                for window in metric.aggregated_node_usages
                if window.usage.get(kind)
            }
            if duration in windows and duration != 0:
                measured[:, row] = self._vector(rounded(windows[duration]))
            elif duration == 0 and windows:
                measured[:, row] = self._vector(rounded(windows[max(windows)]))
            elif duration != 0:
                alone[row] = True
        return alone

    def _refresh(self, rows: IntVector | int) -> None:
        """Bring the existing load of some nodes up to date."""
        delta, estimated = self.node_delta[:, rows], self.node_estimated[:, rows]
        prod = self.prod_usage[:, rows] + self.prod_delta[:, rows]
        filtered = np.where(self._estimated_filter[rows], estimated, self._measured_filter[:, rows] + delta)
        scored = np.where(self._estimated_score[rows], estimated, self._measured_score[:, rows] + delta)
        self._loads[0][:, rows] = filtered
        self._loads[1][:, rows] = np.where(self._prod_filters[rows], prod, filtered)
        self._loads[2][:, rows] = scored
        self._loads[3][:, rows] = prod if self.args.score_according_prod_usage else scored

    # -- pods ------------------------------------------------------------------------------------------

    def request_key(self, pod: Pod) -> tuple[tuple[int, ...], bool, bool]:
        """Give what tells pods apart here: the estimate, whether it is a prod pod, and of a DaemonSet."""
        estimate, prod = self._estimate(pod)
        return tuple(estimate), prod, any(owner.kind == "DaemonSet" for owner in pod.owners)

    def request_of(self, pod: Pod) -> LoadRequest:
        """Compile a pod; equal pods (requests, limits, class, annotations) share the estimate."""
        estimate, prod, daemon = self.request_key(pod)
        return LoadRequest(np.array(estimate, np.int64), prod, daemon)

    def _estimate(self, pod: Pod) -> tuple[list[int], bool]:
        key: object = (
            pod.requests,
            pod.limits,
            pod.priority,
            pod.kubernetes_qos,
            pod.labels.get("koordinator.sh/priority-class"),
            pod.labels.get("koordinator.sh/qosClass"),
            pod.annotations if self.args.allow_customize_estimation else None,
            pod.overhead,
        )
        known = self._estimates.get(key)
        if known is None:
            prod = pod_priority_class(pod) is PriorityClass.PROD
            known = self._estimates[key] = (self._vector(estimate_pod(pod, self.args)), prod)
        return known

    def _deadline(self, pod: Pod, timestamp: int) -> int:
        """Until when a pod's estimate counts beside its measurement; ``_NEVER`` where nothing says so."""
        args = self.args
        after_scheduled = args.estimated_seconds_after_pod_scheduled or 0
        after_initialized = args.estimated_seconds_after_initialized or 0
        if args.allow_customize_estimation:
            own = custom_seconds(pod, ANNOTATION_SECONDS_AFTER_SCHEDULED)
            after_scheduled = after_scheduled if own is None else own
            own = custom_seconds(pod, ANNOTATION_SECONDS_AFTER_INITIALIZED)
            after_initialized = after_initialized if own is None else own
        if after_initialized > 0 and pod.initialized is not None:
            return moment_of(pod.initialized) + after_initialized * SECOND
        return timestamp + after_scheduled * SECOND if after_scheduled > 0 else _NEVER

    def _contribution(self, pod: Pod, row: int, assigned: int | None) -> Contribution | None:
        """What one pod adds to ``prod_usage, node_delta, prod_delta, node_estimated`` of its node."""
        if pod.finished or pod.annotations.get(ANNOTATION_RESERVE_POD) == "true":
            return None
        report = self._reports[row]
        used, counted = report.pods.get((pod.namespace, pod.name), (None, False))
        estimate, prod = self._estimate(pod)
        nothing = [0] * len(estimate)
        active = prod and counted and used is not None
        usage = used if active and used is not None else nothing
        if not any(estimate):
            return (usage, nothing, nothing, nothing) if active else None
        timestamp = self.now if assigned is None else assigned
        if pod.scheduled is not None:
            timestamp = moment_of(pod.scheduled)
        if used is None:
            delta = whole = [max(0, amount) for amount in estimate]
        else:
            early = report.horizon < timestamp or self._deadline(pod, timestamp) > report.update_time
            beyond = [max(0, mine - seen) for mine, seen in zip(estimate, used, strict=True)]
            delta = beyond if early else nothing
            # What a pod uses under another class than its own is not in the prod usage.
            whole = delta if active else [max(0, amount) for amount in estimate]
        return usage, delta, whole if prod else nothing, estimate

    def _add(self, pod: Pod, row: int, assigned: int | None, sign: int) -> bool:
        added = self._contribution(pod, row, assigned)
        if added is None:
            return False
        targets = (self.prod_usage, self.node_delta, self.prod_delta, self.node_estimated)
        for target, amounts in zip(targets, added, strict=True):
            for column, amount in enumerate(amounts):
                if amount:
                    target[column, row] += sign * amount
        return True

    def place(self, pod: Pod, row: int, assigned: int | None = None) -> None:
        """Count a pod on a node.

        Parameters
        ----------
        pod
            The pod; finished and reserve pods do not count.
        row
            Row of its node.
        assigned
            Moment of the assignment in nanoseconds, for a pod that does not say when it was scheduled;
            ``None`` is now.
        """
        if self._add(pod, row, assigned, 1):
            self._refresh(row)

    def remove(self, pod: Pod, row: int, assigned: int | None = None) -> None:
        """Undo :meth:`place` with the same arguments."""
        if self._add(pod, row, assigned, -1):
            self._refresh(row)

    def read(self, journal: Sequence[tuple[Pod, int, int]]) -> None:
        """Count what was added to an append-only list of ``(pod, row, +1 or -1)`` since the last call."""
        end = len(journal)
        if self._read != end:
            for pod, row, sign in journal[self._read : end]:
                if self._add(pod, row, None, sign):
                    self._refresh(row)
            self._read = end

    def place_all(self, pods: Iterable[tuple[Pod, int]]) -> None:
        """Count many pods, each with its row."""
        for pod, row in pods:
            self._add(pod, row, None, 1)
        self._refresh(np.arange(self.capacity.shape[1]))

    # -- kernels ---------------------------------------------------------------------------------------

    def filters(self, request: LoadRequest) -> bool:
        """Tell whether there is any node that could refuse such a pod."""
        return not request.daemon and self._filtering[int(request.prod)]

    def fit(self, request: LoadRequest, rows: Rows = slice(None)) -> IntVector:
        """Tell for each node whether its load leaves room for the pod.

        Returns
        -------
        IntVector
            A code per row asked for: 0 fits, any other refuses with ``reasons[code]``. Of several
            resources the first by name speaks. Evicting pods may help in every case.
        """
        size = self.reported[rows].shape[0]
        if not self.filters(request):
            return np.zeros(size, np.int64)
        load, limits = self._loads[int(request.prod)], self._limits[int(request.prod)]
        over = load[:, rows] + request.estimate[:, None] > limits[:, rows]
        codes = np.zeros(size, np.int64)
        if over.any():
            statistic: BoolVector = self._aggregated[rows]
            if request.prod:
                statistic = np.logical_and(statistic, ~self._prod_filters[rows])
            first = over.argmax(axis=0) + 2 + len(self.names) * statistic
            codes = np.where(over.any(axis=0), first, codes)
        expired = (self._prod_expired if request.prod else self._plain_expired)[rows]
        return np.where(expired, EXPIRED, codes)

    def score(self, request: LoadRequest, rows: Rows = slice(None)) -> IntVector:
        """Score 0..100 for each node: the more room is left after the pod, the higher.

        A node without a fresh metric scores 0.
        """
        args = self.args
        weight = sum(self._weights) + args.dominant_resource_weight
        capacity = self.capacity[:, rows]
        if weight <= 0:
            return np.zeros(capacity.shape[1], np.int64)
        free = capacity - self._loads[2 + int(request.prod)][:, rows]
        free -= request.estimate[:, None]
        total = np.zeros(capacity.shape[1], np.int64)
        dominant = None
        for column, share in enumerate(self._weights):
            if not share and not args.dominant_resource_weight:
                continue
            left, whole = free[column], capacity[column]
            scores = np.where((left >= 0) & (whole > 0), left * 100 // np.maximum(whole, 1), 0)
            total += share * scores
            dominant = scores if dominant is None else np.minimum(dominant, scores)
        if args.dominant_resource_weight and dominant is not None:
            total += np.minimum(dominant, 100) * args.dominant_resource_weight
        return np.where(self._scorable[rows], total // weight, 0)

    def shortfalls(self, request: LoadRequest, row: int) -> tuple[Shortfall, ...]:
        """Say in numbers what one node lacks for the pod."""
        code = int(self.fit(request, slice(row, row + 1))[0])
        if code == FITS:
            return ()
        if code == EXPIRED:
            return (Shortfall(REASON_EXPIRED),)
        column = (code - 2) % len(self.names)
        kind = int(request.prod)
        left = int(self._limits[kind][column, row]) - int(self._loads[kind][column, row])
        wanted = int(request.estimate[column])
        return (Shortfall(self.reasons[code], self.names[column], wanted, max(0, left)),)

    def describe(self, row: int) -> dict[str, Resources]:
        """Give one node's vectors by upstream's names, as its debug endpoint does."""
        vectors = {
            "prodUsage": self.prod_usage,
            "nodeDelta": self.node_delta,
            "prodDelta": self.prod_delta,
            "nodeEstimated": self.node_estimated,
        }
        return {
            key: make_resources({name: int(matrix[at, row]) for at, name in enumerate(self.names)})
            for key, matrix in vectors.items()
        }
