"""Which CPUs a pod gets: the accumulator of Koordinator's ``NodeNUMAResource`` on bit sets.

The ids are those that upstream's ``cpu_accumulator.go`` hands out, with one correction: a request for whole
cores never takes more CPUs than it asks for (``docs/deviations/numa.md``). Nothing here knows pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from koordcore.allocators.cpu_accumulator import CPUAccumulator
from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.model.numa import (
    NO_CPU_HOLDINGS,
    CPUBindPolicy,
    CPUHoldings,
)
from koordcore.topology.cpu import NO_CPUS, CPUSet, CPUTopology


def available_cpus(
    topology: CPUTopology, holdings: CPUHoldings, *, reserved: CPUSet = NO_CPUS, max_ref_count: int = 1
) -> CPUSet:
    """CPUs that may get one more holder.

    Parameters
    ----------
    holdings
        After whatever is given back (:meth:`CPUHoldings.giving_back`).
    reserved
        CPUs that are never handed out.
    max_ref_count
        How many holders one CPU may have, at least one.
    """
    return topology.all_cpus & ~holdings.held_by(max_ref_count) & ~reserved


def suitable_cpus(topology: CPUTopology, available: CPUSet, policy: CPUBindPolicy) -> CPUSet:
    """CPUs that can serve a *required* bind policy.

    Whole cores for ``FULL_PCPUS``, the lowest available CPU of each core for ``SPREAD_BY_PCPUS``, all
    for anything else.

    Parameters
    ----------
    topology
        Which CPUs make a core.
    available
        CPUs that are free.
    policy
        The bind policy that is required.
    """
    if policy is CPUBindPolicy.FULL_PCPUS:
        return topology.complete_cores(available)
    if policy is CPUBindPolicy.SPREAD_BY_PCPUS:
        return topology.first_of_each_core(available)
    return available


def satisfies_bind_policy(topology: CPUTopology, cpus: CPUSet, policy: CPUBindPolicy) -> bool:
    """Tell whether a set has the shape of a required bind policy: whole cores, or one CPU of each core.

    Parameters
    ----------
    topology
        Which CPUs make a core.
    cpus
        The set, as a bit mask.
    policy
        The bind policy that is required.
    """
    if policy is CPUBindPolicy.FULL_PCPUS:
        return cpus.bit_count() == topology.count_cores(cpus) * topology.cpus_per_core
    if policy is CPUBindPolicy.SPREAD_BY_PCPUS:
        return cpus.bit_count() == topology.count_cores(cpus)
    return True


def allocate_cpus(
    topology: CPUTopology,
    holdings: CPUHoldings,
    count: int,
    wish: CPUWish,
    *,
    reserved: CPUSet = NO_CPUS,
    preferred: CPUSet = NO_CPUS,
    per_node: Iterable[tuple[int, int]] | None = None,
) -> CPUSet | CPUShortage:
    """Choose the CPUs of one pod (upstream ``resource_manager.go: allocateCPUSet``).

    Parameters
    ----------
    holdings
        After whatever is given back.
    count
        CPUs wanted.
    preferred
        CPUs to take first where they are available.
    per_node
        Pairs of NUMA node and CPUs to take there at most; ``None`` where NUMA nodes do not matter.

    Returns
    -------
    CPUSet or CPUShortage
        Exactly ``count`` CPUs, or why there are none.
    """
    free = available_cpus(topology, holdings, reserved=reserved, max_ref_count=wish.max_ref_count)
    if wish.required:
        free = suitable_cpus(topology, free, wish.bind_policy)
    if free.bit_count() < count:
        return CPUShortage.NOT_ENOUGH
    if per_node is None:
        taken = take_preferred_cpus(topology, free, count, wish, preferred=preferred, holdings=holdings)
    else:
        taken = NO_CPUS
        for numa, most in per_node:
            here = free & topology.on_node(numa)
            part = take_preferred_cpus(
                topology, here, min(most, here.bit_count()), wish, preferred=preferred, holdings=holdings
            )
            if isinstance(part, CPUShortage):
                return part
            taken |= part
        if taken.bit_count() != count:
            return CPUShortage.NOT_ENOUGH
    if isinstance(taken, CPUShortage):
        return taken
    if wish.required and not satisfies_bind_policy(topology, taken, wish.bind_policy):
        return CPUShortage[wish.bind_policy.name]
    return taken


def take_preferred_cpus(
    topology: CPUTopology,
    available: CPUSet,
    count: int,
    wish: CPUWish,
    *,
    preferred: CPUSet,
    holdings: CPUHoldings = NO_CPU_HOLDINGS,
) -> CPUSet | CPUShortage:
    """Take preferred CPUs first, then the rest from the others (upstream ``takePreferredCPUs``).

    Parameters
    ----------
    topology, available, count, wish, holdings
        As for :func:`take_cpus`.
    preferred
        CPUs that are taken first as far as they are available, such as those of a loan.
    """
    wanted = available & preferred
    if not wanted:
        return take_cpus(topology, available & ~preferred, count, wish, holdings)
    first = take_cpus(topology, wanted, min(count, wanted.bit_count()), wish, holdings)
    if isinstance(first, CPUShortage):
        return first
    rest = take_cpus(topology, available & ~preferred, count - first.bit_count(), wish, holdings)
    return rest if isinstance(rest, CPUShortage) else first | rest


def take_cpus(
    topology: CPUTopology,
    available: CPUSet,
    count: int,
    wish: CPUWish,
    holdings: CPUHoldings = NO_CPU_HOLDINGS,
) -> CPUSet | CPUShortage:
    """Take ``count`` of the available CPUs (upstream ``takeCPUs``).

    Whole cores are looked for on one NUMA node, on one socket, then over sockets; single CPUs on one NUMA
    node, on one socket, then anywhere, near to what is already taken.

    Parameters
    ----------
    available
        CPUs to choose from.
    wish
        Only bind policy, exclusiveness, strategy and ``max_ref_count`` matter here.
    holdings
        Who holds what: exclusive neighbours, and for ``max_ref_count > 1`` how many holders a CPU has.

    Returns
    -------
    CPUSet or CPUShortage
    """
    if count < 1:
        return NO_CPUS
    if available.bit_count() < count:
        return CPUShortage.NOT_ENOUGH
    return CPUAccumulator(topology, available, count, wish, holdings).take()
