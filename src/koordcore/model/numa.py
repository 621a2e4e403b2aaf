"""What a node offers in CPUs and NUMA nodes, what its pods hold of them, and what a pod asks for."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.quantity import INT64_MAX
from koordcore.model.resources import CPU, MEMORY, Resources, frozen_amounts
from koordcore.topology.cpu import NO_CPUS, NO_TOPOLOGY, CPUSet, CPUTopology
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy

__all__ = [
    "DEFAULT_NUMA_ARGS",
    "NO_CPU_HOLDINGS",
    "NO_CPU_MANAGER",
    "CPUAllocation",
    "CPUBindPolicy",
    "CPUExclusivePolicy",
    "CPUHoldings",
    "CPUSharedPool",
    "KubeletCPUManager",
    "NUMAAllocateStrategy",
    "NUMAArgs",
    "NUMAExclusive",
    "NUMANodeResource",
    "NUMATopologyPolicy",
    "NodeCPUBindPolicy",
    "NodeResourceTopology",
]

OF_LOAN: Final = "Reservation(s) "
"""Before every reason of a reservation that does not serve."""


class CPUBindPolicy(StrEnum):
    """How the CPUs of a pod lie on cores."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class NodeCPUBindPolicy(StrEnum):
    """What a node requires of every pod that requests CPUs."""

    NONE = ""
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class CPUExclusivePolicy(StrEnum):
    """Which neighbours with the same wish a pod's CPUs avoid, as far as possible."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NUMAAllocateStrategy(StrEnum):
    """Which of several NUMA nodes or sockets the accumulator fills first.

    Upstream gives ``DistributeEvenly`` no behaviour of its own: it orders like ``LeastAllocated``.
    """

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


@record
class NUMANodeResource:
    """Amounts on one NUMA node."""

    node: int
    resources: Resources = attrs.field(converter=frozen_amounts)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class CPUAllocation:
    """What one pod (or reservation) holds of a node's CPUs and NUMA nodes.

    Parameters
    ----------
    uid
        Identity of the holder; one holder is recorded once.
    cpuset
        CPUs that the holder is bound to; empty for a pod of the shared pool.
    exclusive
        Wish that is recorded with the CPUs.
    numa_resources
        Amounts per NUMA node, ascending by node; CPU in milli-CPU before amplification.
    namespace, name
        Of the holder, for messages.
    """

    uid: str
    cpuset: CPUSet = NO_CPUS
    exclusive: CPUExclusivePolicy = CPUExclusivePolicy.NONE
    numa_resources: tuple[NUMANodeResource, ...] = ()
    namespace: str = ""
    name: str = ""

    __attrs_post_init__ = check_fields

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to record."""
        return not self.cpuset and not self.numa_resources


@record(cache_hash=True)
class CPUHoldings:
    """Who holds a node's CPUs, as sets.

    Parameters
    ----------
    levels
        ``levels[k]`` are the CPUs with more than *k* holders; no trailing empty set.
    pcpu_level, numa_node_level
        CPUs whose last holder asked for that exclusiveness.
    """

    levels: tuple[CPUSet, ...] = ()
    pcpu_level: CPUSet = NO_CPUS
    numa_node_level: CPUSet = NO_CPUS

    __attrs_post_init__ = check_fields

    @property
    def held(self) -> CPUSet:
        """CPUs with any holder."""
        return self.levels[0] if self.levels else NO_CPUS

    def held_by(self, count: int) -> CPUSet:
        """CPUs with at least ``count`` holders (at least one)."""
        return self.levels[count - 1] if count <= len(self.levels) else NO_CPUS

    def taking(self, cpus: CPUSet, exclusive: CPUExclusivePolicy) -> CPUHoldings:
        """Holdings with one more holder of some CPUs, whose wish replaces that of the former ones."""
        if not cpus:
            return self
        levels = []
        below = -1
        for level in self.levels:
            levels.append(level | cpus & below)
            below = level
        if cpus & below:
            levels.append(cpus & below)
        pcpu, numa = self.pcpu_level & ~cpus, self.numa_node_level & ~cpus
        if exclusive is CPUExclusivePolicy.PCPU_LEVEL:
            pcpu |= cpus
        elif exclusive is CPUExclusivePolicy.NUMA_NODE_LEVEL:
            numa |= cpus
        return CPUHoldings(tuple(levels), pcpu, numa)

    def giving_back(self, cpus: CPUSet) -> CPUHoldings:
        """Holdings with one holder less of each CPU that has any."""
        if not cpus & self.held:
            return self
        levels = [
            level & ~cpus | above & cpus
            for level, above in zip(self.levels, (*self.levels[1:], NO_CPUS), strict=True)
        ]
        while levels and not levels[-1]:
            levels.pop()
        held = levels[0] if levels else NO_CPUS
        return CPUHoldings(tuple(levels), self.pcpu_level & held, self.numa_node_level & held)


NO_CPU_HOLDINGS: Final = CPUHoldings()


@names_its_fields
@record(kw_only=True)
class KubeletCPUManager:
    """What the kubelet's CPU manager on a node does.

    Parameters
    ----------
    policy
        ``static`` or ``none``, as the kubelet names it; empty where nothing is known.
    options
        Options of the policy with their texts.
    reserved_cpus
        CPUs that the kubelet keeps for the system.
    """

    policy: str = ""
    options: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)
    reserved_cpus: CPUSet = NO_CPUS

    __attrs_post_init__ = check_fields

    @property
    def full_pcpus_only(self) -> bool:
        """Tell whether the kubelet admits whole cores only."""
        return self.policy == "static" and self.options.get("full-pcpus-only") == "true"


NO_CPU_MANAGER: Final = KubeletCPUManager()


@record(kw_only=True)
class CPUSharedPool:
    """CPUs of one NUMA node that pods without a cpuset run on."""

    socket: int
    node: int
    cpuset: CPUSet

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class NodeResourceTopology:
    """CPUs and NUMA nodes of one node as its NodeResourceTopology object tells them.

    Parameters
    ----------
    name
        Of the node.
    topology
        Where each CPU sits; :data:`~koordcore.topology.cpu.NO_TOPOLOGY` where the object does not say.
    zones
        Allocatable amounts per NUMA node, ascending by id; CPU without the reserved CPUs, so it may be
        negative.
    reserved_cpus
        CPUs that are never handed out: the kubelet's, its Guaranteed pods', the node reservation's and those
        of exclusive SYSTEM pods.
    policy
        What the kubelet's topology manager does, as far as it binds the scheduler.
    kubelet
        The kubelet's CPU manager; ``None`` where what the node reports cannot be read.
    max_ref_count
        How many pods may be bound to one CPU.
    amplification_ratios
        Where the object gives them, the zones are amplified already; empty otherwise.
    shared_pools, be_shared_pools
        CPUs that LS pods and BE pods run on, as the node reports them.
    cpu_vendor
        As ``/proc/cpuinfo`` names it; empty where the node does not say.
    cache_mask
        All ways of the last-level cache; 0 where the node does not say.
    cpu_model
        Name of the CPU's model; ``None`` where the node says nothing of its CPU.
    hyper_threads, turbo
        Whether each is switched on.
    """

    name: str
    namespace: str = ""
    topology: CPUTopology = NO_TOPOLOGY
    zones: tuple[NUMANodeResource, ...] = ()
    reserved_cpus: CPUSet = NO_CPUS
    policy: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    kubelet: KubeletCPUManager | None = NO_CPU_MANAGER
    max_ref_count: int = 1
    amplification_ratios: immutabledict[str, float] = attrs.field(
        default=immutabledict(), converter=immutabledict
    )
    shared_pools: tuple[CPUSharedPool, ...] = ()
    be_shared_pools: tuple[CPUSharedPool, ...] = ()
    cpu_vendor: str = ""
    cache_mask: int = 0
    cpu_model: str | None = None
    hyper_threads: bool = False
    turbo: bool = False

    __attrs_post_init__ = check_fields


def _known_strategy(
    args: NUMAArgs, attribute: attrs.Attribute[ScoringStrategy], value: ScoringStrategy
) -> None:
    if value not in (ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED):
        raise ModelError(f"{attribute.name}: expected LeastAllocated or MostAllocated, got {value}")


@names_its_fields
@record(kw_only=True, cache_hash=True)
class NUMAArgs:
    """Arguments of the NodeNUMAResource plugin.

    Parameters
    ----------
    default_bind_policy
        What a pod that may have a cpuset gets when it names no policy; ``None`` binds only those that do.
    scoring
        How free room of a node, or of the NUMA nodes that a pod would use, becomes its score.
    numa_scoring
        How free room of NUMA nodes becomes the score of one choice of them; ``MOST_ALLOCATED`` also makes
        the accumulator fill the fullest first, unless the node's label says otherwise.
    weights
        Resource name and weight (1..100); both scorings use them, as upstream does.

    Raises
    ------
    ModelError
        For another strategy or policy, or a weight out of range.
    """

    default_bind_policy: CPUBindPolicy | None = CPUBindPolicy.FULL_PCPUS
    scoring: ScoringStrategy = attrs.field(default=ScoringStrategy.LEAST_ALLOCATED, validator=_known_strategy)
    numa_scoring: ScoringStrategy = attrs.field(
        default=ScoringStrategy.LEAST_ALLOCATED, validator=_known_strategy
    )
    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.default_bind_policy not in (None, CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS):
            raise ModelError(
                f"default_bind_policy: expected FullPCPUs or SpreadByPCPUs, got {self.default_bind_policy}"
            )
        for name, weight in self.weights:
            if not name or not 1 <= weight <= 100:
                raise ModelError(f"weights: expected a name and 1..100, got {name!r} and {weight}")

    @property
    def allocate_strategy(self) -> NUMAAllocateStrategy:
        """Which NUMA nodes the accumulator fills first where the node does not say."""
        if self.numa_scoring is ScoringStrategy.MOST_ALLOCATED:
            return NUMAAllocateStrategy.MOST_ALLOCATED
        return NUMAAllocateStrategy.LEAST_ALLOCATED


DEFAULT_NUMA_ARGS: Final = NUMAArgs()


def amplify(amount: int, ratio: float) -> int:
    """Amplify an amount: the product in double precision, rounded up; unchanged for a ratio up to 1.

    The floating product is upstream's own: 3000 at 1.1 is 3301. It is capped at 2**63 - 1.
    """
    if ratio <= 1 or not amount:
        return amount
    product = float(amount) * ratio
    return math.ceil(product) if product < INT64_MAX else INT64_MAX
