"""Mid overcommit: what prod pods asked for and, by prediction, will not use.

``min(min(prod reclaimable, unused) + unallocated * ratio, capacity * threshold)`` (upstream
``noderesource/plugins/midresource``).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import (
    NO_AMOUNTS,
    Amounts,
    amounts_of,
    bytes_up,
    format_ratio,
    gigabytes,
    milli_up,
)
from koordcore.colocation.batch import MISSING_ARGUMENTS, Degraded, Failed
from koordcore.colocation.usage import is_degraded, node_use, pod_uses
from koordcore.model.colocation import DEFAULT_STRATEGY, STATIC_MODE, ColocationStrategy, NodeLoad, overlay
from koordcore.model.metrics import Measured
from koordcore.model.quantity import NANO
from koordcore.model.resources import CPU, MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol.qos import PriorityClass

_DEGRADED: Final = "degrade node Mid resource because of abnormal nodeMetric, reason: degradedByMidResource"


@record(kw_only=True)
class MidTerms:
    """How the mid amount of one resource came about, in milli-cores or bytes.

    Parameters
    ----------
    resource
        ``kubernetes.io/mid-cpu`` or ``kubernetes.io/mid-memory``.
    reclaimable, unused, unallocated
        What prod is predicted to leave, what the node does not use now, what no prod pod asked for.
    unallocated_percent, threshold_percent
        Share of the unallocated part that is added; cap in percent of the capacity.
    capacity
        ``status.capacity``.
    amount
        What is lent, never negative.
    """

    resource: str
    reclaimable: int
    unused: int
    unallocated: int
    unallocated_percent: int
    capacity: int
    threshold_percent: int
    amount: int

    @property
    def message(self) -> str:
        """The formula in upstream's words."""
        head, show = _head(self.resource)
        return (
            f"{head}:{show(self.amount)} = min(min(ProdReclaimable:{show(self.reclaimable)}, "
            f"NodeUnused:{show(self.unused)}) + Unallocated:{show(self.unallocated)} * "
            f"midUnallocatedRatio:{format_ratio(self.unallocated_percent / 100.0)}, "
            f"NodeCapacity:{show(self.capacity)} * "
            f"thresholdRatio:{format_ratio(self.threshold_percent / 100.0)})"
        )


@record(kw_only=True)
class StaticMidTerms:
    """How the mid amount of one resource came about in static mode, in milli-cores or bytes."""

    resource: str
    capacity: int
    reserved_percent: int
    threshold_percent: int
    amount: int

    @property
    def message(self) -> str:
        """The formula in upstream's words."""
        head, show = _head(self.resource)
        return (
            f"{head}:{show(self.amount)} = min(nodeCapacity:{show(self.capacity)} * "
            f"staticReservedPercent:{format_ratio(self.reserved_percent / 100.0)}, "
            f"nodeCapacity:{show(self.capacity)} * "
            f"thresholdRatio:{format_ratio(self.threshold_percent / 100.0)})"
        )


@record(kw_only=True)
class Mid:
    """What a node lends to mid pods, with how each amount came about."""

    cpu: MidTerms | StaticMidTerms
    memory: MidTerms | StaticMidTerms

    @property
    def resources(self) -> immutabledict[str, int]:
        """Milli-cores and bytes by mid resource name."""
        return immutabledict({MID_CPU: self.cpu.amount, MID_MEMORY: self.memory.amount})


MidOutcome: TypeAlias = Mid | Degraded | Failed


def _head(resource: str) -> tuple[str, _Show]:
    if resource == MID_CPU:
        return "midAllocatable[CPU(milli-core)]", _Show(1)
    return "midAllocatable[Memory(GB)]", _Show(NANO)


@record
class _Show:
    """Write an amount of milli-cores as it is and an amount of bytes in gigabytes."""

    step: int

    def __call__(self, amount: int) -> int:
        return amount if self.step == 1 else gigabytes(amount * NANO)


def _unused(node: NodeLoad) -> Amounts:
    """Capacity less measured use; nothing where either resource was not measured."""
    usage: Measured | None = node.metric.node_usage if node.metric else None
    if usage is None or CPU not in usage or MEMORY not in usage:
        return NO_AMOUNTS
    return amounts_of(node.capacity) - amounts_of(usage)


def mid_of_node(node: NodeLoad, strategy: ColocationStrategy, now: int) -> MidOutcome:
    """Compute what a node lends to mid pods.

    Parameters
    ----------
    node
        Capacity, what is kept back, pods and measurements with the prediction among them.
    strategy
        The strategy in force for the node; what it does not say is taken from the defaults.
    now
        Moment of the decision, nanoseconds since 1970.

    Returns
    -------
    Mid or Degraded or Failed
        ``Failed`` when the node has no allocatable, or the report has a time but no content.
    """
    strategy = overlay(DEFAULT_STRATEGY, strategy)
    if node.allocatable is None:
        return Failed(MISSING_ARGUMENTS)
    if is_degraded(node.metric, strategy.degrade_time_minutes or 0, now):
        return Degraded(_DEGRADED)
    if strategy.mid_reclaim_mode == STATIC_MODE:
        return _static(node, strategy)
    if node.metric is None or node.metric.node_usage is None:
        return Failed(f"NodeMetric of {node.name} has no content")
    use = node_use(node)
    reclaimable = amounts_of(node.metric.prod_reclaimable or {})
    taken = use.reserved.maximum(use.system + use.host_prod)
    prod = NO_AMOUNTS
    for one in pod_uses(node):
        if one.pod.priority_class != PriorityClass.MID:
            prod += one.request
    unused = _unused(node)
    unallocated = (use.capacity - taken - prod).clamped()
    return Mid(
        cpu=_lend(
            MID_CPU,
            [milli_up(part.cpu) for part in (reclaimable, unused, unallocated, use.capacity)],
            strategy.mid_unallocated_percent or 0,
            strategy.mid_cpu_threshold_percent or 0,
        ),
        memory=_lend(
            MID_MEMORY,
            [bytes_up(part.memory) for part in (reclaimable, unused, unallocated, use.capacity)],
            strategy.mid_unallocated_percent or 0,
            strategy.mid_memory_threshold_percent or 0,
        ),
    )


def _lend(resource: str, parts: list[int], unallocated_percent: int, threshold_percent: int) -> MidTerms:
    reclaimable, unused, unallocated, capacity = parts
    base = max(min(reclaimable, unused), 0)
    # The ratio is computed first: 29 percent is a factor of 0.29, not a product with 29 divided by 100.
    lent = base + int(float(unallocated) * (unallocated_percent / 100.0))
    return MidTerms(
        resource=resource,
        reclaimable=reclaimable,
        unused=unused,
        unallocated=unallocated,
        unallocated_percent=unallocated_percent,
        capacity=capacity,
        threshold_percent=threshold_percent,
        amount=max(min(lent, int(float(capacity) * (threshold_percent / 100.0))), 0),
    )


def _static(node: NodeLoad, strategy: ColocationStrategy) -> Mid:
    capacity = amounts_of(node.capacity)

    def lend(resource: str, amount: int, percent: int, threshold: int) -> StaticMidTerms:
        lent = int(float(amount) * (percent / 100.0))
        return StaticMidTerms(
            resource=resource,
            capacity=amount,
            reserved_percent=percent,
            threshold_percent=threshold,
            amount=max(min(lent, int(float(amount) * (threshold / 100.0))), 0),
        )

    return Mid(
        cpu=lend(
            MID_CPU,
            milli_up(capacity.cpu),
            strategy.mid_static_cpu_reserved_percent or 0,
            strategy.mid_cpu_threshold_percent or 0,
        ),
        memory=lend(
            MID_MEMORY,
            bytes_up(capacity.memory),
            strategy.mid_static_memory_reserved_percent or 0,
            strategy.mid_memory_threshold_percent or 0,
        ),
    )
