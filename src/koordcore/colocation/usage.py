"""What a node's prod side takes: reserved parts, system, host applications and pods, summed up once.

Rules: upstream ``noderesource/plugins/util``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordcore._record import record
from koordcore.colocation.amounts import NO_AMOUNTS, Amounts, amounts_of
from koordcore.model.colocation import NodeLoad, PodLoad
from koordcore.model.durations import MINUTE
from koordcore.model.metrics import NodeMetric, PodMetric
from koordcore.protocol.qos import DEFAULT_PRIORITY, PriorityClass, QoSClass, parse_priority_class

_LOW: Final = (PriorityClass.BATCH, PriorityClass.FREE)
_COUNTED_PHASES: Final = ("Running", "Pending")


def is_degraded(metric: NodeMetric | None, degrade_minutes: int, now: int) -> bool:
    """Tell whether a report is missing or older than it may be; an age of exactly the limit is not.

    Parameters
    ----------
    metric
        Report of the node.
    degrade_minutes
        Longest age in minutes.
    now
        Moment of the decision, nanoseconds since 1970.
    """
    if metric is None or metric.update_time is None:
        return True
    return now > metric.update_time + degrade_minutes * MINUTE


@record
class PodUse:
    """What one prod or mid pod takes, by each way of counting.

    ``peak`` is the larger of usage and request; for a pod without metric it is the request, which counts
    in its NUMA node but not in the sum of the node (upstream does it so).
    """

    pod: PodLoad
    request: Amounts
    used: Amounts
    peak: Amounts
    measured: bool


@record
class NodeUse:
    """What of a node is taken, cpu and memory.

    Parameters
    ----------
    capacity
        ``status.capacity``.
    kubelet_reserved
        Capacity less allocatable, where positive.
    annotation_reserved
        What the node's annotation keeps back.
    system
        Measured use outside pods.
    host_high, host_prod
        Measured use of host applications above batch, and of prod ones only.
    """

    capacity: Amounts
    kubelet_reserved: Amounts
    annotation_reserved: Amounts
    system: Amounts
    host_high: Amounts
    host_prod: Amounts

    @property
    def reserved(self) -> Amounts:
        """The larger of what is kept back in both ways; they never add up."""
        return self.kubelet_reserved.maximum(self.annotation_reserved)


def node_use(node: NodeLoad) -> NodeUse:
    """Sum up everything of a node but its pods."""
    capacity = amounts_of(node.capacity)
    metric = node.metric
    host_high = host_prod = NO_AMOUNTS
    for application in metric.host_applications if metric else ():
        number = DEFAULT_PRIORITY[parse_priority_class(application.priority)]
        used = amounts_of(application.usage)
        if number > DEFAULT_PRIORITY[PriorityClass.BATCH]:
            host_high += used
        if number > DEFAULT_PRIORITY[PriorityClass.MID]:
            host_prod += used
    return NodeUse(
        capacity=capacity,
        kubelet_reserved=(capacity - amounts_of(node.allocatable or {})).clamped(),
        annotation_reserved=amounts_of(node.reserved),
        system=amounts_of(metric.system_usage) if metric else NO_AMOUNTS,
        host_high=host_high,
        host_prod=host_prod,
    )


def pod_uses(node: NodeLoad) -> Iterator[PodUse]:
    """Give what each running or pending pod above batch takes."""
    metrics = node.metric.pod_usages() if node.metric else {}
    for pod in node.pods:
        if pod.phase not in _COUNTED_PHASES or pod.priority_class in _LOW:
            continue
        request = amounts_of(pod.request)
        metric = metrics.get((pod.namespace, pod.name))
        if metric is None:
            yield PodUse(pod, request, request, request, measured=False)
            continue
        usage = amounts_of(metric.usage)
        # Exclusive cpus are lost to everybody else, whether they are used or not.
        used = Amounts(request.cpu, usage.memory) if pod.qos == QoSClass.LSE else usage
        yield PodUse(pod, request, used, request.maximum(usage), measured=True)


def dangling_metrics(node: NodeLoad) -> Iterator[PodMetric]:
    """Give the metrics above batch whose pod is no longer running or pending here."""
    if node.metric is None:
        return
    present = {(pod.namespace, pod.name) for pod in node.pods if pod.phase in _COUNTED_PHASES}
    for key, metric in node.metric.pod_usages().items():
        if key not in present and metric.priority not in _LOW:
            yield metric


def summed_pods(node: NodeLoad) -> tuple[Amounts, Amounts, Amounts]:
    """Sum requests, uses and peaks of the pods above batch, as the node level counts them."""
    request = used = peak = NO_AMOUNTS
    for one in pod_uses(node):
        request += one.request
        used += one.used
        if one.measured:
            peak += one.peak
    for metric in dangling_metrics(node):
        usage = amounts_of(metric.usage)
        used += usage
        peak += usage
    return request, used, peak
