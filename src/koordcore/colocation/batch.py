"""Batch overcommit: what prod pods do not use is lent to batch pods.

``capacity - safety margin - max(system, reserved) - prod pods``, per node and per NUMA node (upstream
``noderesource/plugins/batchresource``).
"""

from __future__ import annotations

from math import lcm
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import (
    MILLI_CORE,
    NO_AMOUNTS,
    Amounts,
    amounts_of,
    ceil_divide,
    format_ratio,
    gigabytes,
    milli_up,
    scaled_cpu,
    scaled_memory,
)
from koordcore.colocation.usage import dangling_metrics, is_degraded, node_use, pod_uses, summed_pods
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    CalculatePolicy,
    ColocationStrategy,
    NodeLoad,
    PodLoad,
    overlay,
)
from koordcore.model.quantity import NANO
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY

MISSING_ARGUMENTS: Final = "missing essential arguments"
_DEGRADED: Final = "degrade node resource because of abnormal nodeMetric, reason: degradedByBatchResource"

_PODS_WORDS: Final = {
    CalculatePolicy.REQUEST: "podHPRequest",
    CalculatePolicy.MAX_USAGE_REQUEST: "podHPMaxUsedRequest",
    CalculatePolicy.USAGE: "podHPUsed",
}


@record
class Degraded:
    """Nothing is lent because the report is missing or too old; what was lent is withdrawn."""

    message: str


@record
class Failed:
    """Nothing can be computed; what was lent is withdrawn."""

    message: str


@record(kw_only=True)
class BatchTerms:
    """How the batch amount of one resource came about, in exact amounts.

    Parameters
    ----------
    resource
        ``kubernetes.io/batch-cpu`` or ``kubernetes.io/batch-memory``.
    policy
        How prod pods were counted.
    capacity, margin, taken, pods
        The waterfall: ``capacity - margin - taken - pods``, where ``taken`` is the larger of system usage and
        what is kept back (the latter alone under ``request``).
    threshold_percent
        Cap in percent of the capacity; ``None`` without a cap.
    peak
        Prod pods counted by the larger of usage and request, whatever the policy.
    amount
        What is lent, never negative.
    """

    resource: str
    policy: CalculatePolicy
    capacity: int
    margin: int
    taken: int
    pods: int
    peak: int
    threshold_percent: int | None
    amount: int

    @property
    def message(self) -> str:
        """The waterfall in upstream's words."""
        cpu = self.resource == BATCH_CPU
        show = milli_up if cpu else gigabytes
        policy, pods = self.policy, self.pods
        if self.threshold_percent is not None and not cpu and policy is CalculatePolicy.USAGE:
            # Upstream's text for capped memory names the peak; the amount follows the policy all the same.
            policy, pods = CalculatePolicy.MAX_USAGE_REQUEST, self.peak
        capacity = f"nodeCapacity:{show(self.capacity)}"
        steps = (
            f"{capacity} - nodeSafetyMargin:{show(self.margin)}"
            f" - {self._taken_word}:{show(self.taken)} - {_PODS_WORDS[policy]}:{show(pods)}"
        )
        head = "batchAllocatable[CPU(Milli-Core)]" if cpu else "batchAllocatable[Mem(GB)]"
        if self.threshold_percent is not None:
            ratio = format_ratio(self.threshold_percent / 100.0)
            steps = f"min({capacity} * thresholdRatio:{ratio}, {steps})"
        return f"{head}:{show(self.amount)} = {steps}"

    @property
    def _taken_word(self) -> str:
        if self.policy is CalculatePolicy.REQUEST:
            return "nodeReserved"
        return "systemUsageOrNodeReserved" if self.resource == BATCH_CPU else "systemUsage"


@record(kw_only=True)
class Batch:
    """What a node lends to batch pods.

    Parameters
    ----------
    cpu, memory
        How each amount came about.
    zones
        Per NUMA node, milli-cores and whole bytes by batch resource name; empty without a known topology.
    """

    cpu: BatchTerms
    memory: BatchTerms
    zones: immutabledict[str, immutabledict[str, int]]

    @property
    def exact(self) -> immutabledict[str, int]:
        """Billionths of a milli-core and of a byte by batch resource name."""
        return immutabledict({BATCH_CPU: milli_up(self.cpu.amount) * NANO, BATCH_MEMORY: self.memory.amount})

    @property
    def resources(self) -> immutabledict[str, int]:
        """Milli-cores and whole bytes by batch resource name."""
        return immutabledict({BATCH_CPU: milli_up(self.cpu.amount), BATCH_MEMORY: self.memory.amount // NANO})


BatchOutcome: TypeAlias = Batch | Degraded | Failed


@record
class _Taken:
    """The terms of the formula for a node or for one of its NUMA nodes."""

    capacity: Amounts
    system: Amounts
    reserved: Amounts
    request: Amounts
    used: Amounts
    peak: Amounts


def _cpu_policy(text: str | None) -> CalculatePolicy:
    # Cpu by request is not offered upstream: the text is accepted and means usage.
    return (
        CalculatePolicy.MAX_USAGE_REQUEST
        if text == CalculatePolicy.MAX_USAGE_REQUEST
        else CalculatePolicy.USAGE
    )


def _memory_policy(text: str | None) -> CalculatePolicy:
    return next((policy for policy in CalculatePolicy if policy == text), CalculatePolicy.USAGE)


def _margin_ratio(percent: int | None) -> float:
    return (100 - (percent or 0)) / 100.0


def _terms(taken: _Taken, strategy: ColocationStrategy, *, resource: str, parts: int = 1) -> BatchTerms:
    name, scaled, percent, cap_percent, policy = (
        (
            CPU,
            scaled_cpu,
            strategy.cpu_reclaim_threshold_percent,
            strategy.batch_cpu_threshold_percent,
            _cpu_policy(strategy.cpu_calculate_policy),
        )
        if resource == BATCH_CPU
        else (
            MEMORY,
            scaled_memory,
            strategy.memory_reclaim_threshold_percent,
            strategy.batch_memory_threshold_percent,
            _memory_policy(strategy.memory_calculate_policy),
        )
    )
    capacity, system, reserved, peak = (
        getattr(part, name) for part in (taken.capacity, taken.system, taken.reserved, taken.peak)
    )
    pods = {
        CalculatePolicy.REQUEST: taken.request,
        CalculatePolicy.USAGE: taken.used,
        CalculatePolicy.MAX_USAGE_REQUEST: taken.peak,
    }[policy]
    lost = reserved if policy is CalculatePolicy.REQUEST else max(system, reserved)
    margin = scaled(capacity, _margin_ratio(percent))
    amount = max((capacity - margin) * parts - lost - getattr(pods, name), 0)
    if cap_percent is not None:
        # Annotations of nodes are not checked for ranges: a negative cap lends nothing.
        amount = max(min(amount, scaled(capacity, cap_percent / 100.0) * parts), 0)
    return BatchTerms(
        resource=resource,
        policy=policy,
        capacity=capacity,
        margin=margin,
        taken=lost,
        pods=getattr(pods, name),
        threshold_percent=cap_percent,
        peak=peak,
        amount=amount,
    )


def batch_of_node(node: NodeLoad, strategy: ColocationStrategy, now: int) -> BatchOutcome:
    """Compute what a node lends to batch pods.

    Parameters
    ----------
    node
        Capacity, what is kept back, pods and measurements.
    strategy
        The strategy in force for the node; what it does not say is taken from the defaults.
    now
        Moment of the decision, nanoseconds since 1970.

    Returns
    -------
    Batch or Degraded or Failed
        ``Failed`` when the report has a time but no content.
    """
    strategy = overlay(DEFAULT_STRATEGY, strategy)
    if is_degraded(node.metric, strategy.degrade_time_minutes or 0, now):
        return Degraded(_DEGRADED)
    if node.metric is None or node.metric.node_usage is None:
        return Failed(f"NodeMetric of {node.name} has no content")
    use = node_use(node)
    request, used, peak = summed_pods(node)
    taken = _Taken(use.capacity, use.system + use.host_high, use.reserved, request, used, peak)
    return Batch(
        cpu=_terms(taken, strategy, resource=BATCH_CPU),
        memory=_terms(taken, strategy, resource=BATCH_MEMORY),
        zones=_zones(node, taken, strategy),
    )


def _zones(
    node: NodeLoad, taken: _Taken, strategy: ColocationStrategy
) -> immutabledict[str, immutabledict[str, int]]:
    """Apply the formula to each NUMA node; what has no place is spread evenly."""
    count = len(node.zones)
    if not count:
        return immutabledict()
    pods = [(one, _numa_nodes(one.pod, count)) for one in pod_uses(node)]
    dangling = [amounts_of(metric.usage) for metric in dangling_metrics(node)]
    # Memory is counted in parts of a nano-byte, fine enough for every division to come out even.
    parts = lcm(count, *(len(ids) for _, ids in pods))
    lent: dict[str, immutabledict[str, int]] = {}
    for index, zone in enumerate(node.zones):
        request = used = peak = NO_AMOUNTS
        for one, ids in pods:
            if index in ids:
                request += _share(one.request, len(ids), parts)
                used += _share(one.used, len(ids), parts)
                peak += _share(one.peak, len(ids), parts)
        for usage in dangling:
            share = _share(usage, count, parts)
            used += share
            peak += share
        part = _Taken(
            capacity=amounts_of(zone.allocatable),
            system=_share(taken.system, count, parts),
            reserved=_share(taken.reserved, count, parts),
            request=request,
            used=used,
            peak=peak,
        )
        cpu = _terms(part, strategy, resource=BATCH_CPU)
        memory = _terms(part, strategy, resource=BATCH_MEMORY, parts=parts)
        lent[zone.name] = immutabledict(
            {BATCH_CPU: milli_up(cpu.amount), BATCH_MEMORY: memory.amount // (parts * NANO)}
        )
    return immutabledict(lent)


def _numa_nodes(pod: PodLoad, count: int) -> tuple[int, ...]:
    """Give the known NUMA nodes of a pod, repeated ones included; all of them where none is known."""
    known = tuple(index for index in pod.numa_nodes if 0 <= index < count)
    return known or tuple(range(count))


def _share(amount: Amounts, divisor: int, parts: int) -> Amounts:
    """Split evenly: cpu up to the next milli-core as upstream does, memory exactly (ruling 11)."""
    return Amounts(
        ceil_divide(amount.cpu, MILLI_CORE * divisor) * MILLI_CORE, amount.memory * parts // divisor
    )
