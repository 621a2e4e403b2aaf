"""Load-aware filter and score of one pod on one node, written down step by step from the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordcore.model.durations import SECOND
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric, rounded
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.protocol.load import node_thresholds, raw_capacity
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.times import moment_of
from tests.reference.load_estimates import estimate_pod

Amounts = Mapping[str, int]
LONG_AGO = -(10**30)


def nearest(value: float) -> int:
    whole = int(value)
    return whole + (1 if abs(value - whole) >= 0.5 else 0) * (1 if value >= 0 else -1)


def amount_of(amounts: Amounts | None, name: str) -> int:
    return 0 if amounts is None else amounts.get(name, 0)


class Load:
    """What is known about one node's load."""

    def __init__(self, metric: NodeMetric | None, pods: Iterable[Pod], args: LoadAwareArgs, now: int) -> None:
        self.args, self.now, self.metric = args, now, metric
        self.names = args.columns
        self.prod_usage = dict.fromkeys(self.names, 0)
        self.node_delta = dict.fromkeys(self.names, 0)
        self.prod_delta = dict.fromkeys(self.names, 0)
        self.node_estimated = dict.fromkeys(self.names, 0)
        if metric is not None and args.prod_usage_include_sys:
            self.add(self.prod_usage, rounded(metric.system_usage))
        for pod in pods:
            self.count(pod)

    def add(self, target: dict[str, int], amounts: Amounts) -> None:
        for name in self.names:
            target[name] += amounts.get(name, 0)

    def count(self, pod: Pod) -> None:
        metric = self.metric
        usage, priority = None, ""
        if metric is not None:
            for row in metric.pods:
                if (row.namespace, row.name) == (pod.namespace, pod.name) and row.usage:
                    usage, priority = rounded(row.usage), row.priority
        updated = LONG_AGO if metric is None or metric.update_time is None else metric.update_time
        interval = 60 * SECOND if metric is None or metric.report_interval is None else metric.report_interval
        prod = pod_priority_class(pod) == "koord-prod"
        active = prod and priority == "koord-prod"
        if active and usage is not None:
            self.add(self.prod_usage, usage)
        estimate = {name: estimate_pod(pod, self.args).get(name, 0) for name in self.names}
        if not any(estimate.values()):
            return
        timestamp = self.now if pod.scheduled is None else moment_of(pod.scheduled)
        deadline = LONG_AGO
        seconds = self.args.estimated_seconds_after_initialized or 0
        if seconds > 0 and pod.initialized is not None:
            deadline = moment_of(pod.initialized) + seconds * SECOND
        elif (self.args.estimated_seconds_after_pod_scheduled or 0) > 0:
            deadline = timestamp + (self.args.estimated_seconds_after_pod_scheduled or 0) * SECOND
        early = usage is None or updated - interval < timestamp or deadline > updated
        if early:
            self.add(self.node_delta, {n: max(0, e - amount_of(usage, n)) for n, e in estimate.items()})
        self.add(self.node_estimated, estimate)
        if prod:
            counted, needed = usage, early
            if not active and usage is not None:
                counted, needed = None, True
            if needed:
                beyond = {n: max(0, e - amount_of(counted, n)) for n, e in estimate.items()}
                self.add(self.prod_delta, beyond)

    def statistic(self, kind: str, duration: int) -> Amounts:
        assert self.metric is not None
        windows = {
            one.duration: one.usage[kind] for one in self.metric.aggregated_node_usages if one.usage.get(kind)
        }
        if duration == 0 and windows:
            duration = max(windows)
        if duration in windows:
            return self.sum(rounded(windows[duration]), self.node_delta)
        if duration == 0:
            return self.sum(rounded(self.metric.node_usage or {}), self.node_delta)
        return self.node_estimated

    def sum(self, left: Amounts, right: Amounts) -> Amounts:
        return {name: left.get(name, 0) + right.get(name, 0) for name in self.names}

    def expired(self) -> bool:
        metric = self.metric
        if metric is None or metric.update_time is None:
            return True
        return self.now - metric.update_time >= self.args.node_metric_expiration_seconds * SECOND


def reference_filter(node: Node, load: Load, pod: Pod) -> str:
    """The reason of the refusal, empty where the pod fits."""
    args = load.args
    if any(owner.kind == "DaemonSet" for owner in pod.owners):
        return ""
    own = node_thresholds(node, args.thresholds)
    prod = pod_priority_class(pod) == "koord-prod"
    word = ""
    if prod and any(own.prod.get(name, 0) for name in load.names):
        thresholds, kind = own.prod, "prod"
    elif own.aggregated is not None and own.aggregated.filters:
        thresholds, kind, word = own.aggregated.usage_thresholds, "aggregated", " aggregated"
    else:
        thresholds, kind = own.usage, "total"
    if not any(thresholds.get(name, 0) for name in load.names) or load.metric is None:
        return ""
    if args.filter_expired_node_metrics and load.expired():
        return "" if args.enable_schedule_when_node_metrics_expired else "node(s) nodeMetric expired"
    if load.metric.node_usage is None:
        return ""
    if kind == "prod":
        existing = load.sum(load.prod_usage, load.prod_delta)
    elif kind == "aggregated":
        assert own.aggregated is not None
        existing = load.statistic(own.aggregated.usage_type, own.aggregated.usage_duration)
    else:
        existing = load.sum(rounded(load.metric.node_usage), load.node_delta)
    estimate, total = estimate_pod(pod, args), raw_capacity(node)
    for name in load.names:
        limit, whole = thresholds.get(name, 0), total.get(name, 0)
        used = existing[name] + estimate.get(name, 0)
        if limit and whole and nearest(float(used) / float(whole) * 100) > limit:
            return f"node(s) {name}{word} usage exceed threshold"
    return ""


def reference_score(node: Node, load: Load, pod: Pod) -> int:
    """0..100."""
    args = load.args
    weight = sum(args.resource_weights.values()) + args.dominant_resource_weight
    if load.metric is None or load.expired() or load.metric.node_usage is None or not weight:
        return 0
    statistic = args.aggregated
    if args.score_according_prod_usage and pod_priority_class(pod) == "koord-prod":
        existing = load.sum(load.prod_usage, load.prod_delta)
    elif statistic is not None and statistic.score_type:
        existing = load.statistic(statistic.score_type, statistic.score_duration)
    else:
        existing = load.sum(rounded(load.metric.node_usage), load.node_delta)
    estimate, total = estimate_pod(pod, args), raw_capacity(node)
    scores = {}
    for name in load.names:
        whole, used = total.get(name, 0), existing[name] + estimate.get(name, 0)
        scores[name] = 0 if whole == 0 or used > whole else (whole - used) * 100 // whole
    dominant = min(100, *scores.values()) * args.dominant_resource_weight
    return (
        sum(args.resource_weights.get(name, 0) * one for name, one in scores.items()) + dominant
    ) // weight
