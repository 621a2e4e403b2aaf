"""One node's CPUs and NUMA nodes as a value: what it offers, what is held.

Two nodes with equal states are the same to every question of this room, so that a caller evaluates each
distinct state once (:mod:`koordcore.allocators.numa_batch`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.numa import (
    NO_CPU_HOLDINGS,
    CPUAllocation,
    CPUExclusivePolicy,
    CPUHoldings,
    NodeCPUBindPolicy,
    NodeResourceTopology,
    NUMAAllocateStrategy,
    NUMANodeResource,
    amplify,
)
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU, NO_RESOURCES, make_resources
from koordcore.protocol.normalization import parse_amplification
from koordcore.protocol.numa import NO_STATUS, resource_spec_of, resource_status_of
from koordcore.protocol.numa_nodes import node_allocate_strategy, node_bind_policy, node_topology_policy
from koordcore.topology.cpu import NO_CPUS, NO_TOPOLOGY, CPUSet, CPUTopology
from koordcore.topology.numa import MAX_NUMA_NODE, NUMAMask, NUMAStatus, NUMATopologyPolicy, numa_ids


@record(kw_only=True, cache_hash=True)
class NUMANode:
    """What a node offers in CPUs and NUMA nodes, whoever runs on it.

    Parameters
    ----------
    topology
        Where each CPU sits; not valid where the node does not report it.
    zones
        Allocatable amounts per NUMA node, amplified, ascending by id.
    policy
        Topology policy, or a text that is none; such a node refuses every pod.
    bind_policy
        What the node requires of every pod that requests CPUs.
    strategy
        Which NUMA nodes the accumulator fills first; ``None`` where the node does not say.
    reserved_cpus
        CPUs that are never handed out.
    max_ref_count
        How many pods may be bound to one CPU.
    cpu_ratio
        By how much the node's CPU is amplified; ``None`` where the annotation cannot be read, at most 1 where
        it is not amplified.
    zone_cpu_ratio
        The same for the zones: as the NodeResourceTopology says, else as the node says.
    """

    topology: CPUTopology = NO_TOPOLOGY
    zones: tuple[NUMANodeResource, ...] = ()
    policy: str = NUMATopologyPolicy.NONE
    bind_policy: NodeCPUBindPolicy = NodeCPUBindPolicy.NONE
    strategy: NUMAAllocateStrategy | None = None
    reserved_cpus: CPUSet = NO_CPUS
    max_ref_count: int = 1
    cpu_ratio: float | None = 1.0
    zone_cpu_ratio: float = 1.0

    @cached_property
    def zone_ids(self) -> tuple[int, ...]:
        """NUMA nodes with amounts, ascending."""
        return tuple(zone.node for zone in self.zones)

    @cached_property
    def everything(self) -> NUMAMask:
        """All NUMA nodes with amounts."""
        return sum(1 << numa for numa in self.zone_ids)

    @cached_property
    def capacity(self) -> dict[int, Mapping[str, int]]:
        """NUMA node to its amounts."""
        return {zone.node: zone.resources for zone in self.zones}

    def cpus_on(self, numa: int) -> CPUSet:
        """CPUs that count on a NUMA node; NUMA node 0 also takes those that the topology lacks."""
        own = self.topology.on_node(numa)
        return own if numa else own | ~self.topology.all_cpus

    def nodes_of(self, cpus: CPUSet) -> NUMAMask:
        """NUMA nodes that a set of CPUs touches."""
        found = sum(1 << group.id for group in self.topology.nodes if group.cpus & cpus)
        return found | 1 if cpus & ~self.topology.all_cpus else found


@record(kw_only=True, cache_hash=True)
class NUMAUsage:
    """What is held of a node, without by whom.

    Parameters
    ----------
    holdings
        Who holds which CPUs, as sets.
    amounts
        Recorded sums per NUMA node, ascending; CPU before amplification.
    single, shared
        NUMA nodes with cpusets of pods on that node alone, and of pods across several.
    """

    holdings: CPUHoldings = NO_CPU_HOLDINGS
    amounts: tuple[NUMANodeResource, ...] = ()
    single: NUMAMask = 0
    shared: NUMAMask = 0

    def taking(self, allocation: CPUAllocation, node: NUMANode) -> NUMAUsage:
        """Usage with one more holder."""
        single, shared = self.single, self.shared
        touched = node.nodes_of(allocation.cpuset)
        if touched & (touched - 1):
            shared |= touched
        else:
            single |= touched
        amounts = self.amounts
        if allocation.numa_resources:
            amounts = _sum_amounts((*amounts, *allocation.numa_resources))
        return NUMAUsage(
            holdings=self.holdings.taking(allocation.cpuset, allocation.exclusive),
            amounts=amounts,
            single=single,
            shared=shared,
        )

    @property
    def status(self) -> Mapping[int, NUMAStatus]:
        """NUMA node to whose cpusets it holds; idle ones are absent."""
        found = dict.fromkeys(numa_ids(self.single), NUMAStatus.SINGLE)
        found.update(dict.fromkeys(numa_ids(self.shared), NUMAStatus.SHARED))
        return found


NO_USAGE: Final = NUMAUsage()


def _sum_amounts(entries: Iterable[NUMANodeResource]) -> tuple[NUMANodeResource, ...]:
    sums: dict[int, dict[str, int]] = {}
    for entry in entries:
        here = sums.setdefault(entry.node, {})
        for name, amount in entry.resources.items():
            here[name] = here.get(name, 0) + amount
    return tuple(NUMANodeResource(numa, make_resources(sums[numa])) for numa in sorted(sums))


@record(cache_hash=True)
class NUMAState:
    """A node's CPUs and NUMA nodes with what is held of them.

    Equal states answer every question alike; who the holders are makes no difference to equality.
    """

    node: NUMANode
    usage: NUMAUsage = NO_USAGE
    allocations: tuple[CPUAllocation, ...] = attrs.field(default=(), eq=False)

    @classmethod
    def of(cls, node: NUMANode, allocations: Iterable[CPUAllocation] = ()) -> NUMAState:
        """Record allocations in their order; a known holder, or one that holds nothing, is passed over."""
        usage = NO_USAGE
        kept: dict[str, CPUAllocation] = {}
        for allocation in allocations:
            if allocation.uid not in kept and not allocation.empty:
                kept[allocation.uid] = allocation
                usage = usage.taking(allocation, node)
        return cls(node, usage, tuple(kept.values()))

    @cached_property
    def available(self) -> Mapping[int, Mapping[str, int]]:
        """Amounts available per NUMA node, with nothing given back; see :func:`available_amounts`."""
        return _available(self, NO_GIVE_BACK)

    def adding(self, allocation: CPUAllocation) -> NUMAState:
        """State with one more holder; the same state for one that is known already or holds nothing."""
        if allocation.empty or any(known.uid == allocation.uid for known in self.allocations):
            return self
        usage = self.usage.taking(allocation, self.node)
        return NUMAState(self.node, usage, (*self.allocations, allocation))

    def removing(self, uid: str) -> NUMAState:
        """State without one holder; the same state where it is unknown."""
        left = tuple(known for known in self.allocations if known.uid != uid)
        return self if len(left) == len(self.allocations) else NUMAState.of(self.node, left)


@record(kw_only=True)
class GiveBack:
    """What counts as free although it is held, because its holder makes room for the pod.

    Parameters
    ----------
    preferred_cpus
        CPUs held for the pod, such as a loan's; they are also taken first.
    preemptible_cpus
        CPUs of holders that would be evicted; a CPU in both sets is given back by two holders.
    reusable
        Amounts per NUMA node; may be negative.
    available
        Of the resources that stand here exactly these amounts are available, whatever the node has of them;
        ``None`` for the node's own of all.
    cpus
        Only these CPUs may be taken; ``None`` for all.
    shared
        Other CPUs may be taken as well, where neither a bind policy nor a topology policy must hold.
    """

    preferred_cpus: CPUSet = NO_CPUS
    preemptible_cpus: CPUSet = NO_CPUS
    reusable: tuple[NUMANodeResource, ...] = ()
    available: tuple[NUMANodeResource, ...] | None = None
    cpus: CPUSet | None = None
    shared: bool = False

    def only_for(self, *, strict: bool) -> CPUSet | None:
        """Give the only CPUs that may be taken, ``None`` for all, where some policy must hold or none."""
        return None if self.shared and not strict else self.cpus


NO_GIVE_BACK: Final = GiveBack()


def available_amounts(
    state: NUMAState, give_back: GiveBack = NO_GIVE_BACK
) -> Mapping[int, Mapping[str, int]]:
    """Amounts that are available per NUMA node.

    CPUs that are handed out as cpusets count amplified. A resource that is held or given back but not offered
    appears with what is left, at least 0.
    """
    return state.available if give_back is NO_GIVE_BACK else _available(state, give_back)


def _available(state: NUMAState, give_back: GiveBack) -> dict[int, dict[str, int]]:
    available = _left(state, give_back)
    if give_back.available is not None:
        own = {entry.node: entry.resources for entry in give_back.available}
        names = {name for amounts in own.values() for name in amounts}
        for numa in {**available, **own}:
            here = own.get(numa, NO_RESOURCES)
            available.setdefault(numa, {}).update({name: here.get(name, 0) for name in names})
    return available


def _left(state: NUMAState, give_back: GiveBack) -> dict[int, dict[str, int]]:
    """Give what is left of the node's own amounts, with what counts as free."""
    node, usage = state.node, state.usage
    available = {zone.node: dict(zone.resources) for zone in node.zones}
    reusable = {entry.node: entry.resources for entry in give_back.reusable}
    for entry in usage.amounts:
        held = dict(entry.resources)
        if node.zone_cpu_ratio > 1:
            bound = 1000 * (usage.holdings.held & node.cpus_on(entry.node)).bit_count()
            held[CPU] = held.get(CPU, 0) - bound + amplify(bound, node.zone_cpu_ratio)
        here = available.get(entry.node)
        if here is None:
            continue
        back = reusable.get(entry.node)
        if back is None:
            for name, amount in held.items():
                here[name] = here.get(name, 0) - max(0, amount)
            continue
        for name in {**held, **back}:
            left = max(0, held.get(name, 0) - back.get(name, 0))
            here[name] = here.get(name, 0) - left
    for here in available.values():
        for name, amount in here.items():
            if amount < 0:
                here[name] = 0
    return available


def numa_node_of(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    nrt: NodeResourceTopology | None,
) -> NUMANode:
    """Put together what a node and its NodeResourceTopology object say.

    Parameters
    ----------
    labels, annotations
        Of the node.
    nrt
        ``None`` where there is no such object: CPUs cannot be handed out then. NUMA nodes beyond 63 are left
        out, because no mask can name them.
    """
    nrt = nrt or NodeResourceTopology(name="")
    ratios: Mapping[str, float] | None
    try:
        ratios = parse_amplification(annotations)
    except ManifestError:
        ratios = None
    if ratios is not None and not all(map(math.isfinite, ratios.values())):
        ratios = None
    own = nrt.amplification_ratios
    zones = tuple(zone for zone in nrt.zones if 0 <= zone.node <= MAX_NUMA_NODE)
    if not own and ratios:
        zones = tuple(
            NUMANodeResource(
                zone.node,
                make_resources(
                    {name: amplify(amount, ratios.get(name, 1.0)) for name, amount in zone.resources.items()}
                ),
            )
            for zone in zones
        )
    zone_ratios: Mapping[str, float] = own or ratios or {}
    node = NUMANode(
        topology=nrt.topology,
        zones=zones,
        policy=node_topology_policy(labels, nrt.policy),
        bind_policy=node_bind_policy(labels, nrt.kubelet),
        strategy=node_allocate_strategy(labels),
        reserved_cpus=nrt.reserved_cpus,
        max_ref_count=nrt.max_ref_count,
        cpu_ratio=None if ratios is None else ratios.get(CPU, 1.0),
        zone_cpu_ratio=zone_ratios.get(CPU, 1.0),
    )
    return _known(node)


@lru_cache(maxsize=512)
def _known(node: NUMANode) -> NUMANode:
    """Give the very same value for nodes of one build: their states are then compared at a glance."""
    return node


def allocation_of(
    uid: str, annotations: Mapping[str, str], *, namespace: str = "", name: str = ""
) -> CPUAllocation | None:
    """Read what a bound pod (or a holder of room) holds from its annotations.

    Parameters
    ----------
    uid
        Of the pod; allocations of a node are told apart by it.
    annotations
        Of the pod.
    namespace, name
        Of the pod, for messages.

    Returns
    -------
    CPUAllocation or None
        ``None`` for one that holds neither CPUs nor amounts, or whose status cannot be read.
    """
    status = resource_status_of(annotations) or NO_STATUS
    if not status.cpuset and not status.numa_node_resources:
        return None
    return CPUAllocation(
        uid=uid,
        cpuset=status.cpuset,
        exclusive=exclusive_wish(annotations),
        numa_resources=status.numa_node_resources,
        namespace=namespace,
        name=name,
    )


def exclusive_wish(annotations: Mapping[str, str]) -> CPUExclusivePolicy:
    """Read which neighbours a holder's CPUs avoid; none where that cannot be read or is unknown."""
    try:
        wish = resource_spec_of(annotations).preferred_cpu_exclusive_policy
    except ManifestError:
        return CPUExclusivePolicy.NONE
    return CPUExclusivePolicy(wish) if wish in list(CPUExclusivePolicy) else CPUExclusivePolicy.NONE


def numa_state_of(node: NUMANode, pods: Iterable[Pod]) -> NUMAState:
    """Record what the pods on a node hold, in their order; a finished pod holds nothing."""
    found = (
        allocation_of(pod.uid or str(pod.key), pod.annotations, namespace=pod.namespace, name=pod.name)
        for pod in pods
        if pod.bound
    )
    return NUMAState.of(node, (allocation for allocation in found if allocation is not None))
