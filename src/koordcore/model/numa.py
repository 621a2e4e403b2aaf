"""What a node offers in CPUs and NUMA nodes, what its pods hold of them, and what a pod asks for."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from koordcore.model.resources import Resources
from koordcore.topology.cpu import NO_CPUS, CPUSet

__all__ = [
    "NO_CPU_HOLDINGS",
    "CPUAllocation",
    "CPUBindPolicy",
    "CPUExclusivePolicy",
    "CPUHoldings",
    "NUMAAllocateStrategy",
    "NUMAExclusive",
    "NUMANodeResource",
    "NUMATopologyPolicy",
    "NodeCPUBindPolicy",
]


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


class NUMATopologyPolicy(StrEnum):
    """How closely everything that a pod gets must lie together."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NUMAExclusive(StrEnum):
    """Whether pods on one NUMA node and pods across several may share one."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


@attrs.frozen
class NUMANodeResource:
    """Amounts on one NUMA node."""

    node: int
    resources: Resources


@attrs.frozen(kw_only=True)
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

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to record."""
        return not self.cpuset and not self.numa_resources


@attrs.frozen(cache_hash=True)
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
