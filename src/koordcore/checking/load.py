"""Nobody is put on a node that is too busy by what is measured and expected there.

The limits of a node hold for its load with the pod that comes. What order pods came in no result tells, so
those of one kind that came to a node are looked at together: whoever was the last of them found all others
there. Pods of DaemonSets come to any node, and what other kinds add counts only where it takes load away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.durations import SECOND
from koordcore.model.load import LoadAwareArgs, Percents
from koordcore.model.metrics import NOTHING_MEASURED, Measured, NodeMetric, PodMetric, rounded_to
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
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
from koordcore.protocol.times import moment_of
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

LOAD: Final = "LoadAwareScheduling"
_STANDS_FOR: Final = "scheduling.koordinator.sh/reserve-pod"
_USUAL_INTERVAL: Final = 60 * SECOND
_AS_PROD: Final = "koord-prod"
_UNASKED: Final = {CPU: 250, BATCH_CPU: 250, MEMORY: 200 << 20, BATCH_MEMORY: 200 << 20}
"""What is expected of who asks for nothing."""
_Amounts: TypeAlias = tuple[int, ...]
"""By resource, in the order of the names that the arguments look at."""


def check_load(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    *,
    spared: Collection[str] = frozenset(),
    now: datetime | None = None,
) -> Iterator[Violation]:
    """Every node that somebody is put on is below its thresholds with whoever comes there.

    Parameters
    ----------
    snapshot, result
        The cluster before, and what was decided.
    spared
        Pods that are not held to these limits: another profile decided about them, or they have their places
        from an earlier call.
    now
        The moment of the call. Where nobody knows it, a measurement counts as fresh if one that is too old
        had refused the pod, and as unknown if it had let it pass.
    """
    if not result.policy.filters(LOAD):
        return
    setting = result.policy.plugin(LOAD)
    rule = _Rule(setting.args if setting and setting.args else LoadAwareArgs(), now)
    bound = [one for one in result.decisions if isinstance(one, Bound)]
    nodes = {one.node for one in bound}
    pods_of = {pod.key: pod for state in result.snapshot.nodes if state.name in nodes for pod in state.pods}
    came: dict[str, list[Pod]] = {}
    for one in bound:
        if one.pod in pods_of:
            came.setdefault(one.node, []).append(pods_of[one.pod])
    states = {state.name: state for state in snapshot.nodes if state.name in nodes}
    for name, pods in came.items():
        metric = snapshot.find(NodeMetric, name)
        if metric is not None and name in states:
            yield from _Node(rule, states[name], metric).faults(pods, spared)


@record(eq=False)
class _Rule:
    """The arguments, and what is expected of pods by them."""

    args: LoadAwareArgs
    now: datetime | None

    def expected(self, pod: Pod) -> _Amounts:
        """Estimate what a pod will use: a share of its request or limit, whichever is more."""
        args, kind = self.args, pod_priority_class(pod)
        own = custom_scaling_factors(pod) if args.allow_customize_estimation else {}
        factors = {**args.estimated_scaling_factors, **own}
        found = []
        for name in args.columns:
            asks_by = resource_name(kind, name) if name in factors else None
            if asks_by is None:
                found.append(0)
                continue
            limit = pod.limits.get(asks_by, 0)
            asked = max(limit, pod.requests.get(asks_by, 0))
            share = _nearest(float(asked) * float(factors[name]) / 100)
            if not asked:
                share = _UNASKED.get(asks_by, 0)
            elif limit > 0:
                share = min(share, limit)
            found.append(share)
        return tuple(found)

    def lingers_until(self, pod: Pod, came: int | None) -> int | None:
        """Give until when an estimate counts beside what is measured; ``None`` for not at all, or unknown."""
        args = self.args
        after = [args.estimated_seconds_after_pod_scheduled, args.estimated_seconds_after_initialized]
        if args.allow_customize_estimation:
            keys = (ANNOTATION_SECONDS_AFTER_SCHEDULED, ANNOTATION_SECONDS_AFTER_INITIALIZED)
            own = [custom_seconds(pod, key) for key in keys]
            after = [usual if one is None else one for usual, one in zip(after, own, strict=True)]
        scheduled, initialized = after
        if initialized is not None and initialized > 0 and pod.initialized is not None:
            return moment_of(pod.initialized) + initialized * SECOND
        if scheduled is not None and scheduled > 0 and came is not None:
            return came + scheduled * SECOND
        return None


class _Node:
    """One node with what is measured there."""

    def __init__(self, rule: _Rule, state: NodeState, metric: NodeMetric) -> None:
        self._rule, self._state, self._metric = rule, state, metric
        self._names = rule.args.columns
        own = node_thresholds(state.node, rule.args.thresholds)
        read = own.aggregated if own.aggregated is not None and own.aggregated.filters else None
        self._limits = {False: own.usage if read is None else read.usage_thresholds, True: own.prod}
        self._bounded = {prod: self._any(limits) for prod, limits in self._limits.items()}
        self._rows: Mapping[tuple[str, str], PodMetric] = {
            (one.namespace, one.name): one for one in metric.pods if one.usage
        }
        self._measured: Measured = metric.node_usage or NOTHING_MEASURED
        self._alone = False
        if read is not None:
            windows = {
                one.duration: one.usage[read.usage_type]
                for one in metric.aggregated_node_usages
                if one.usage.get(read.usage_type)
            }
            # Of a window that is not reported, estimates alone are known.
            self._alone = read.usage_duration != 0 and read.usage_duration not in windows
            longest = max(windows, default=0)
            self._measured = windows.get(read.usage_duration or longest, self._measured)

    def _any(self, limits: Percents) -> bool:
        return any(limits.get(name, 0) for name in self._names)

    def faults(self, pods: Sequence[Pod], spared: Collection[str]) -> Iterator[Violation]:
        """Give what is wrong with pods that came, in the order of the decisions."""
        kinds: dict[bool, list[Pod]] = {False: [], True: []}
        for pod in pods:
            daemon = any(owner.kind == "DaemonSet" for owner in pod.owners)
            if str(pod.key) not in spared and not daemon:
                is_prod = _is_prod(pod)
                # Without limits of their own prod pods are held to those of all pods.
                kinds[is_prod and self._bounded[True]].append(pod)
        for prod, held in kinds.items():
            if not held:
                continue
            old = self._too_old()
            if old and self._refuses_when_old(held):
                for pod in held:
                    message = f"is put on {self._state.name}, whose NodeMetric {old}"
                    yield Violation(ViolationKind.LOAD, str(pod.key), message)
            elif not old and self._bounded[prod] and self._metric.node_usage is not None:
                others = [pod for pod in pods if pod not in held]
                yield from self._over(prod, held, others)

    def _too_old(self) -> str:
        """Say why the measurement may not count; empty where it does."""
        args, moment = self._rule.args, self._metric.update_time
        if not args.filter_expired_node_metrics:
            return ""
        if moment is None:
            return "says no time"
        if self._rule.now is None:
            return "may be old" if args.enable_schedule_when_node_metrics_expired else ""
        age = moment_of(self._rule.now) - moment
        return f"is {age // SECOND} s old" if age >= args.node_metric_expiration_seconds * SECOND else ""

    def _refuses_when_old(self, pods: Sequence[Pod]) -> bool:
        if self._rule.args.enable_schedule_when_node_metrics_expired:
            return False
        is_prod = _is_prod(pods[0])
        return self._bounded[False] or (is_prod and self._bounded[True])

    def _over(self, prod: bool, held: Sequence[Pod], others: Sequence[Pod]) -> Iterator[Violation]:
        there = [pod for pod in self._state.pods if not pod.finished]
        there = [pod for pod in there if pod.annotations.get(_STANDS_FOR) != "true"]
        parts = [self._at_first(prod), *(self._added(pod, prod) for pod in (*there, *held))]
        parts += [tuple(min(0, one) for one in self._added(pod, prod)) for pod in others]
        load = tuple(map(sum, zip(*parts, strict=True)))
        worst = ""
        for last in held:
            counted, whole = self._added(last, prod), self._rule.expected(last)
            with_it = [one - part + all_ for one, part, all_ in zip(load, counted, whole, strict=True)]
            worst = self._beyond(with_it, self._limits[prod])
            if not worst:
                return
        what = "prod pods" if prod else "pods"
        message = f"is put on {self._state.name}, where {what} are expected to use {worst}"
        yield Violation(ViolationKind.LOAD, str(held[-1].key), message)

    def _at_first(self, prod: bool) -> _Amounts:
        """Give what is measured of the node, or of what counts with prod pods, whichever pods are there."""
        if not prod:
            return rounded_to({} if self._alone else self._measured, self._names)
        system = self._metric.system_usage if self._rule.args.prod_usage_include_sys else {}
        return rounded_to(system, self._names)

    def _added(self, pod: Pod, prod: bool) -> _Amounts:
        """Give what a pod adds to the load that is looked at."""
        nothing = (0,) * len(self._names)
        if prod and not _is_prod(pod):
            return nothing
        if not prod and self._alone:
            return self._rule.expected(pod)
        row = self._rows.get((pod.namespace, pod.name))
        # What is measured under another class than the pod's own is not among what prod pods use.
        if row is None or (prod and row.priority != _AS_PROD):
            return tuple(max(0, one) for one in self._rule.expected(pod))
        used = rounded_to(row.usage, self._names)
        beyond = nothing
        if self._hidden(pod):
            expected = self._rule.expected(pod)
            beyond = tuple(max(0, one - seen) for one, seen in zip(expected, used, strict=True))
        return tuple(map(sum, zip(used, beyond, strict=True))) if prod else beyond

    def _hidden(self, pod: Pod) -> bool:
        """Tell whether what is measured may not yet show all that a pod does; False where nobody knows."""
        report = self._metric.update_time
        if report is None:
            return True
        now = None if self._rule.now is None else moment_of(self._rule.now)
        came = now if pod.scheduled is None else moment_of(pod.scheduled)
        interval = self._metric.report_interval
        since = report - (_USUAL_INTERVAL if interval is None else interval)
        until = self._rule.lingers_until(pod, came)
        return (came is not None and since < came) or (until is not None and until > report)

    def _beyond(self, load: Sequence[int], limits: Percents) -> str:
        """Say which limit a load is beyond; empty for none."""
        capacity = raw_capacity(self._state.node)
        for name, amount in zip(self._names, load, strict=True):
            limit, total = limits.get(name, 0), capacity.get(name, 0)
            # In floats and in this order, as the reference compares.
            if limit and total and _nearest(float(amount) / float(total) * 100) > limit:
                return f"{amount} of {total} {name}, more than {limit}%"
        return ""


def _is_prod(pod: Pod) -> bool:
    return pod_priority_class(pod) is PriorityClass.PROD


def _nearest(value: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    whole = int(value)
    return whole if abs(value - whole) < 0.5 else whole + (1 if value > 0 else -1)
