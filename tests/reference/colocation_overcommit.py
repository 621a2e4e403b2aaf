"""Batch and mid overcommit written out term by term with fractions: slow, and obvious beside the formulas."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from koordcore.model.colocation import ColocationStrategy, NodeLoad, PodLoad

NANO = 10**9


def up(amount: Fraction) -> int:
    return ceil(amount) if amount >= 0 else -ceil(-amount)


def units(resource: str, amount: Fraction) -> int:
    """Milli-cores or bytes, away from zero."""
    return up(amount * 1000) if resource == "cpu" else up(amount)


def ratio_of(resource: str, amount: Fraction, ratio: float) -> Fraction:
    cut = int(float(units(resource, amount)) * ratio)
    return Fraction(cut, 1000) if resource == "cpu" else Fraction(cut)


def of(amounts: object, resource: str) -> Fraction:
    return Fraction(dict(amounts or {}).get(resource, 0), NANO)  # type: ignore[call-overload]  # a mapping or None


def counts(pod: PodLoad) -> bool:
    return pod.phase in ("Running", "Pending")


def reserved(node: NodeLoad, resource: str) -> Fraction:
    kubelet = max(of(node.capacity, resource) - of(node.allocatable, resource), Fraction(0))
    return max(kubelet, of(node.reserved, resource))


def hosts(node: NodeLoad, resource: str, classes: tuple[str, ...]) -> Fraction:
    assert node.metric is not None
    return sum(
        (of(one.usage, resource) for one in node.metric.host_applications if one.priority in classes),
        Fraction(0),
    )


def prod_pods(node: NodeLoad, resource: str, policy: str) -> Fraction:
    assert node.metric is not None
    usage = {(one.namespace, one.name): one for one in node.metric.pods}
    total = Fraction(0)
    for pod in node.pods:
        if not counts(pod) or pod.priority_class in ("koord-batch", "koord-free"):
            continue
        request = of(pod.request, resource)
        metric = usage.get((pod.namespace, pod.name))
        if policy == "request":
            total += request
        elif metric is None:
            total += request if policy == "usage" else 0
        elif policy == "maxUsageRequest":
            total += max(request, of(metric.usage, resource))
        elif pod.qos == "LSE" and resource == "cpu":
            total += request
        else:
            total += of(metric.usage, resource)
    if policy != "request":
        listed = {(pod.namespace, pod.name) for pod in node.pods if counts(pod)}
        for key, metric in usage.items():
            if key not in listed and metric.priority not in ("koord-batch", "koord-free"):
                total += of(metric.usage, resource)
    return total


def batch(node: NodeLoad, strategy: ColocationStrategy, resource: str) -> Fraction:
    """Cores or bytes lent to batch; the strategy says everything."""
    assert node.metric is not None
    cpu = resource == "cpu"
    policy = strategy.cpu_calculate_policy if cpu else strategy.memory_calculate_policy
    if policy not in ("request", "maxUsageRequest") or (cpu and policy == "request"):
        policy = "usage"
    percent = strategy.cpu_reclaim_threshold_percent if cpu else strategy.memory_reclaim_threshold_percent
    capacity = of(node.capacity, resource)
    margin = ratio_of(resource, capacity, (100 - (percent or 0)) / 100.0)
    system = of(node.metric.system_usage, resource) + hosts(node, resource, ("koord-prod", "koord-mid"))
    lost = reserved(node, resource) if policy == "request" else max(system, reserved(node, resource))
    lent = max(capacity - margin - lost - prod_pods(node, resource, policy), Fraction(0))
    cap = strategy.batch_cpu_threshold_percent if cpu else strategy.batch_memory_threshold_percent
    return lent if cap is None else max(min(lent, ratio_of(resource, capacity, cap / 100.0)), Fraction(0))


def mid(node: NodeLoad, strategy: ColocationStrategy, resource: str) -> int:
    """Milli-cores or bytes lent to mid, not in static mode; the strategy says everything."""
    assert node.metric is not None
    cpu = resource == "cpu"
    capacity = of(node.capacity, resource)
    usage = node.metric.node_usage
    unused = Fraction(0)
    if usage is not None and "cpu" in usage and "memory" in usage:
        unused = capacity - of(usage, resource)
    reclaim = units(resource, of(node.metric.prod_reclaimable, resource))
    base = max(min(reclaim, units(resource, unused)), 0)
    system = of(node.metric.system_usage, resource) + hosts(node, resource, ("koord-prod",))
    asked = sum(
        (
            of(pod.request, resource)
            for pod in node.pods
            if counts(pod) and pod.priority_class not in ("koord-mid", "koord-batch", "koord-free")
        ),
        Fraction(0),
    )
    free = max(capacity - max(reserved(node, resource), system) - asked, Fraction(0))
    lent = base + int(float(units(resource, free)) * ((strategy.mid_unallocated_percent or 0) / 100.0))
    percent = strategy.mid_cpu_threshold_percent if cpu else strategy.mid_memory_threshold_percent
    return max(min(lent, int(float(units(resource, capacity)) * ((percent or 0) / 100.0))), 0)
