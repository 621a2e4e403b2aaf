"""What pods are expected to use, and how much of it the latest measurement of their node shows already.

The rule is that of the default estimator and of the pod-assign cache of upstream's
``pkg/scheduler/plugins/loadaware``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore._record import record
from koordcore.model.durations import SECOND
from koordcore.model.load import LoadAwareArgs
from koordcore.model.mappings import found_in
from koordcore.model.metrics import NodeMetric, PodMetric, rounded_to
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
)
from koordcore.protocol.load import (
    ANNOTATION_SECONDS_AFTER_INITIALIZED,
    ANNOTATION_SECONDS_AFTER_SCHEDULED,
    custom_scaling_factors,
    custom_seconds,
)
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS, PriorityClass, resource_name
from koordcore.protocol.times import moment_of

ANNOTATION_RESERVE_POD: Final = "scheduling.koordinator.sh/reserve-pod"
DEFAULT_REPORT_INTERVAL: Final = 60 * SECOND

REPORTED_AS_PROD: Final = PriorityClass.PROD.value
"""What the metric of a prod pod says."""
NEVER: Final = -(2**63)
_MOST_SEEN: Final = 2**17
"""Pods whose estimates are looked up by identity; then all of them are forgotten."""
_MOST_KINDS: Final = 2**14
"""Kinds of pods whose estimates are kept; likewise."""
_WALKS: Final = 2
"""Questions about single pods of a report that are answered by walking through it."""
_Kind: TypeAlias = tuple[Any, ...]
"""What tells estimates apart: requests, limits, what makes the class, overhead, and the pod's own wishes."""
_FLOORS: Final[Mapping[str, int]] = {
    CPU: 250,
    BATCH_CPU: 250,
    MEMORY: 200 * 1024 * 1024,
    BATCH_MEMORY: 200 * 1024 * 1024,
}


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


def _estimate(pod: Pod, kind: PriorityClass, args: LoadAwareArgs) -> dict[str, int]:
    factors: Mapping[str, int] = args.estimated_scaling_factors
    if args.allow_customize_estimation:
        own = custom_scaling_factors(pod)
        if own:
            factors = {**factors, **own}
    plain = kind in (PriorityClass.PROD, PriorityClass.NONE)
    requests, limits = dict(pod.requests), dict(pod.limits)
    amounts: dict[str, int] = {}
    for name, factor in factors.items():
        real = name if plain else resource_name(kind, name)
        limit = 0 if real is None else limits.get(real, 0)
        asked = 0 if real is None else max(limit, requests.get(real, 0))
        if real is None or asked == 0:
            amounts[name] = 0 if real is None else _FLOORS.get(real, 0)
            continue
        scaled = round_half_away(float(asked) * float(factor) / 100)
        amounts[name] = min(scaled, limit) if limit > 0 else scaled
    return amounts


@record(eq=False)
class Estimate:
    """What one kind of pods is expected to use.

    Parameters
    ----------
    amounts
        By column; may be negative where a pod's own factor is.
    positive
        The same with 0 for what is negative.
    any
        Some amount is not 0.
    prod
        The pods are prod pods.
    """

    amounts: tuple[int, ...]
    positive: tuple[int, ...]
    any: bool
    prod: bool


class Report:
    """A node's metric as the accounting of pods reads it.

    Attributes
    ----------
    update_time
        Moment of the report; before all times where there is none.
    horizon
        Pods that came later may not (wholly) be in the report.
    """

    __slots__ = ("_asked", "_found", "_pods", "horizon", "update_time")

    def __init__(self, metric: NodeMetric | None) -> None:
        self._pods = () if metric is None else metric.pods
        self._found: dict[tuple[str, str], PodMetric] | None = None
        self._asked = 0
        self.update_time = self.horizon = NEVER
        if metric is not None and metric.update_time is not None:
            interval = DEFAULT_REPORT_INTERVAL if metric.report_interval is None else metric.report_interval
            self.update_time = metric.update_time
            self.horizon = metric.update_time - interval

    def __bool__(self) -> bool:
        """Tell whether any pod is shown."""
        return any(pod.usage for pod in self._pods)

    def by_key(self) -> dict[tuple[str, str], PodMetric]:
        """Give what is shown of each pod, by its namespace and name; the last of equal names stays."""
        return {(pod.namespace, pod.name): pod for pod in self._pods if pod.usage}

    def find(self, key: tuple[str, str]) -> PodMetric | None:
        """Give what is shown of a pod.

        Most nodes are asked about a pod or two before their next report, so pods are sorted by the third
        question only.
        """
        if self._found is None:
            self._asked += 1
            if self._asked <= _WALKS:
                namespace, name = key
                for pod in reversed(self._pods):
                    if pod.name == name and pod.namespace == namespace and pod.usage:
                        return pod
                return None
            self._found = self.by_key()
        return self._found.get(key)


NO_REPORT: Final = Report(None)


@record(eq=False)
class LoadRequest:
    """What the kernels need to know of a pod.

    Parameters
    ----------
    estimate
        ``(C, 1)``: what it is expected to use.
    prod
        It is a prod pod.
    daemon
        It belongs to a DaemonSet, which the filter lets pass.
    """

    estimate: IntMatrix
    prod: bool
    daemon: bool


class Contribution(NamedTuple):
    """What one pod adds to the load of its node, by column.

    Parameters
    ----------
    prod_usage
        Measured, of a prod pod that was reported as one.
    node_delta, prod_delta
        Expected beyond the measurement, for all pods and for prod pods.
    estimated
        Expected in total.
    """

    prod_usage: Sequence[int]
    node_delta: Sequence[int]
    prod_delta: Sequence[int]
    estimated: Sequence[int]


def change_of(
    added: Contribution, alone_filter: bool, alone_score: bool, prod_filters: bool, score_prod: bool
) -> IntMatrix:
    """Give what a pod changes in all that is kept of its node: ``(8, C)``.

    The first four are the contribution; then what is left below the limits, and of the capacity for scores,
    each for other and for prod pods.

    Parameters
    ----------
    added
        What the pod adds.
    alone_filter, alone_score
        The filter, and the score, of the node go by estimates alone.
    prod_filters
        The node has thresholds for prod pods.
    score_prod
        Prod pods are scored by what prod pods use.
    """
    usage, delta, prod_delta, estimated = added
    prod = [used + more for used, more in zip(usage, prod_delta, strict=True)]
    filtered, scored = estimated if alone_filter else delta, estimated if alone_score else delta
    taken = (filtered, prod if prod_filters else filtered, scored, prod if score_prod else scored)
    # A handful of numbers: one array of them costs less than any kernel on it.
    return np.array((*added, *([-one for one in amounts] for amounts in taken)), np.int64)


def ignored(pod: Pod) -> bool:
    """Tell whether a pod has no load: it has ended, or it only holds room for others."""
    notes = pod.annotations
    return pod.finished or (ANNOTATION_RESERVE_POD in notes and notes[ANNOTATION_RESERVE_POD] == "true")


class CountedPods(NamedTuple):
    """The pods of a node that have a load.

    Parameters
    ----------
    pods, keys, estimates
        Who they are, their names, and what :meth:`Estimator.of` gives for them.
    stamps
        When they were scheduled; ``None`` for those that do not say.
    """

    pods: Sequence[Pod]
    keys: Sequence[PodKey]
    estimates: Sequence[Estimate]
    stamps: Sequence[int | None]


class Estimator:
    """Estimates for one set of arguments; equal pods are estimated once.

    All states of the load that come of each other share one: what it remembers changes no answer.
    """

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self.names = args.columns
        self._zero = (0,) * len(self.names)
        later = (args.estimated_seconds_after_pod_scheduled, args.estimated_seconds_after_initialized)
        # Without any of these no pod has a deadline.
        self.lingers = args.allow_customize_estimation or any(later)
        self._kinds: dict[_Kind, Estimate] = {}
        self._classes: dict[tuple[Any, ...], PriorityClass] = {}
        self._seen: dict[int, tuple[Pod, Estimate | None]] = {}
        self._counted: dict[int, tuple[Sequence[Pod], CountedPods]] = {}

    def seen(self, pod: Pod) -> Estimate | None:
        """Give what :meth:`of` gives, ``None`` for an ignored pod; faster for those that were counted."""
        known = self._seen.get(id(pod))
        if known is not None and known[0] is pod:
            return known[1]
        return None if ignored(pod) else self.of(pod)

    def counted(self, pods: Sequence[Pod]) -> CountedPods:
        """Sum up the pods of a node; a node holds the same ones from one measurement to the next."""
        known = self._counted.get(id(pods))
        if known is not None and known[0] is pods:
            return known[1]
        if max(len(self._counted), len(self._seen)) >= _MOST_SEEN:
            self._counted.clear()
            self._seen.clear()
        # Of those on a node that took in or gave up one, all others were seen before.
        pairs = [(pod, self.seen(pod)) for pod in pods]
        self._seen.update([(id(pair[0]), pair) for pair in pairs])
        there, estimates = [pod for pod, one in pairs if one], [one for _, one in pairs if one]
        stamps = [None if pod.scheduled is None else moment_of(pod.scheduled) for pod in there]
        found = CountedPods(there, [pod.key for pod in there], estimates, stamps)
        self._counted[id(pods)] = pods, found
        return found

    def of(self, pod: Pod) -> Estimate:
        """Give the estimate of a pod."""
        labels = pod.labels
        key = (
            tuple(pod.requests.items()),
            tuple(pod.limits.items()),
            pod.priority,
            found_in(labels, LABEL_PRIORITY_CLASS),
            found_in(labels, LABEL_QOS_CLASS),
            pod.kubernetes_qos,
            pod.overhead,
            pod.annotations if self._args.allow_customize_estimation else None,
        )
        found = self._kinds.get(key)
        return found if found is not None else self._learn(key, pod)

    def _class_of(self, key: _Kind, pod: Pod) -> PriorityClass:
        """Give the priority class; whoever plainly asks for cpu shares it with all of the same marks."""
        if pod.kubernetes_qos or pod.overhead or not pod.requests.get(CPU, 0) > 0:
            return pod_priority_class(pod)
        marks = key[2:5]
        if marks not in self._classes:
            self._classes[marks] = pod_priority_class(pod)
        return self._classes[marks]

    def _learn(self, key: _Kind, pod: Pod) -> Estimate:
        kind = self._class_of(key, pod)
        amounts = _estimate(pod, kind, self._args)
        by_column = tuple([amounts.get(name, 0) for name in self.names])
        made = Estimate(
            amounts=by_column,
            positive=by_column if min(by_column) >= 0 else tuple([max(0, one) for one in by_column]),
            any=any(by_column),
            prod=kind is PriorityClass.PROD,
        )
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[key] = made
        return made

    def deadline(self, pod: Pod, timestamp: int) -> int:
        """Until when a pod's estimate counts beside its measurement; before all times by default."""
        args = self._args
        after_scheduled = args.estimated_seconds_after_pod_scheduled or 0
        after_initialized = args.estimated_seconds_after_initialized or 0
        if args.allow_customize_estimation:
            own = custom_seconds(pod, ANNOTATION_SECONDS_AFTER_SCHEDULED)
            after_scheduled = after_scheduled if own is None else own
            own = custom_seconds(pod, ANNOTATION_SECONDS_AFTER_INITIALIZED)
            after_initialized = after_initialized if own is None else own
        if after_initialized > 0 and pod.initialized is not None:
            return moment_of(pod.initialized) + after_initialized * SECOND
        return timestamp + after_scheduled * SECOND if after_scheduled > 0 else NEVER

    def contribution(self, pod: Pod, estimate: Estimate, report: Report, assigned: int) -> Contribution:
        """Give what a pod adds to the load of its node.

        Parameters
        ----------
        pod, estimate
            The pod, not an ignored one, and what :meth:`of` gave for it.
        report
            What is measured on its node.
        assigned
            Moment of its assignment, where it does not say when it was scheduled.
        """
        measured = report.find(pod.key)
        zero = self._zero
        if measured is None:
            whole = estimate.positive
            return Contribution(zero, whole, whole if estimate.prod else zero, estimate.amounts)
        used = rounded_to(measured.usage, self.names)
        active = estimate.prod and measured.priority == REPORTED_AS_PROD
        usage = used if active else zero
        if not estimate.any:
            return Contribution(usage, zero, zero, zero)
        timestamp = assigned if pod.scheduled is None else moment_of(pod.scheduled)
        delta = zero
        lingers = self.lingers and self.deadline(pod, timestamp) > report.update_time
        if lingers or report.horizon < timestamp:
            pairs = zip(estimate.amounts, used, strict=True)
            delta = tuple([mine - seen if mine > seen else 0 for mine, seen in pairs])
        # What a pod uses under another class than its own is not in the prod usage: all of it is missing.
        prod_delta = zero if not estimate.prod else delta if active else estimate.positive
        return Contribution(usage, delta, prod_delta, estimate.amounts)
