"""CPUs, memory and hugepages of one pod on one node: filter, allocate, score.

Upstream's ``NodeNUMAResource`` plugin and topology manager with one decision in the place of several: a set
of NUMA nodes serves a pod exactly when an allocation exists there (see ``docs/deviations/numa.md``).
Devices join in :mod:`koordcore.allocators.node`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from koordcore._record import record
from koordcore.allocators.cpu_wish import CPUShortage
from koordcore.allocators.cpuset import available_cpus
from koordcore.allocators.numa_align import (
    NO_PROVIDERS,
    PLAIN_ROOM,
    NUMAAdmission,
    NUMAProvider,
    NUMARoom,
    align,
    offers_of,
    pod_request,
    score_amounts,
)
from koordcore.allocators.numa_fit import Offer, split, take_on
from koordcore.allocators.numa_request import (
    CPUDemand,
    CPURequest,
    NUMARefusal,
    bind_policies_conflict,
    demand_on,
)
from koordcore.allocators.numa_state import NO_GIVE_BACK, GiveBack, NUMAState, available_amounts
from koordcore.model.decisions import Shortfall
from koordcore.model.numa import (
    DEFAULT_NUMA_ARGS,
    OF_LOAN,
    CPUBindPolicy,
    NUMAArgs,
    NUMANodeResource,
    amplify,
)
from koordcore.model.resources import CPU, NO_RESOURCES, Resources, make_resources
from koordcore.protocol.numa import NO_STATUS, ResourceStatus
from koordcore.topology.cpu import NO_CPUS, format_cpulist
from koordcore.topology.numa import NUMAMask, NUMATopologyPolicy, mask_of

_INVALID_TOPOLOGY: Final = "node(s) invalid CPU Topology"
_INVALID_RATIO: Final = "node(s) invalid CPU amplification ratio"
AMPLIFIED: Final = "Insufficient amplified cpu"
_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
_NOT_MULTIPLE: Final = "node(s) requested cpus not multiple cpus per core"
_NO_NUMA_ZONES: Final = "insufficient resources on NUMA Node"


@record
class NodeAmounts:
    """Amounts of a node as a whole; without NUMA nodes.

    Parameters
    ----------
    allocatable
        What pods may ask for, less what it keeps back.
    requested
        Sum over the pods that hold room.
    """

    allocatable: Resources = NO_RESOURCES
    requested: Resources = NO_RESOURCES


NO_AMOUNTS: Final = NodeAmounts()


@record
class NUMAAllocation:
    """What a pod gets of a node's CPUs and NUMA nodes.

    Parameters
    ----------
    status
        Its CPUs and amounts per NUMA node.
    written
        The pod is bound or under a topology policy: its status is written on it, even an empty one.
    mask
        NUMA nodes that were chosen; ``None`` where they do not matter.
    loan
        Name of the loan that serves it; empty for none.
    """

    status: ResourceStatus = NO_STATUS
    written: bool = False
    mask: NUMAMask | None = None
    loan: str = ""


# Filter


def filter_numa(
    state: NUMAState,
    request: CPURequest,
    amounts: NodeAmounts = NO_AMOUNTS,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    room: NUMARoom = PLAIN_ROOM,
    providers: Sequence[NUMAProvider] = NO_PROVIDERS,
) -> NUMAAdmission | NUMARefusal:
    """Tell whether a node may take a pod, as upstream's Filter does.

    A pod that merely prefers a bind policy, or is under BestEffort, is let in without a look at CPUs;
    :func:`~koordcore.allocators.node.fit_node` looks at everything.

    Parameters
    ----------
    amounts
        Of the node as a whole; they matter only where its CPU is amplified.
    args
        Only the scoring of NUMA nodes matters.
    room
        What counts as free besides.
    providers
        What else the pod needs from the same NUMA nodes.
    """
    step = before_numa(state, request, amounts, room=room)
    if isinstance(step, CPUDemand):
        return align(state, step, args=args, room=room, providers=providers)
    return step


def before_numa(
    state: NUMAState,
    request: CPURequest,
    amounts: NodeAmounts = NO_AMOUNTS,
    *,
    room: NUMARoom = PLAIN_ROOM,
) -> CPUDemand | NUMAAdmission | NUMARefusal:
    """Check all that comes before NUMA nodes are looked at.

    Parameters
    ----------
    state, request
        The node with its holders, and what the pod asks for.
    amounts
        Of the node as a whole; they matter where its CPU is amplified.
    room
        What counts as free besides.

    Returns
    -------
    CPUDemand or NUMAAdmission or NUMARefusal
        The demand where NUMA nodes are next; an admission where the filter does not look at them.
    """
    demand = demand_on(request, state.node)
    if isinstance(demand, NUMARefusal):
        return demand
    if request.designated is not None:
        given = _give_designated(state, demand, request.designated)
        return given if isinstance(given, NUMARefusal) else NUMAAdmission(demand.policy)
    refusal = _unsuitable(state, demand, amounts)
    if refusal is not None:
        return refusal
    if demand.policy is NUMATopologyPolicy.NONE:
        if demand.bind and demand.required:
            trial = _take(offers_of(state, demand, room), None, DEFAULT_NUMA_ARGS)
            if isinstance(trial, NUMARefusal):
                return trial
        return NUMAAdmission()
    if demand.policy is NUMATopologyPolicy.BEST_EFFORT:
        return NUMAAdmission(demand.policy)
    return demand


def _unsuitable(state: NUMAState, demand: CPUDemand, amounts: NodeAmounts) -> NUMARefusal | None:
    """Say what makes a node unsuitable before CPUs and NUMA nodes are looked at; ``None`` for nothing."""
    node, request = state.node, demand.request
    refusal = _amplified(state, demand, amounts)
    if refusal is not None or not demand.bind:
        return refusal
    if not node.topology.valid:
        return NUMARefusal.because(_INVALID_TOPOLOGY, resolvable=False)
    if bind_policies_conflict(request, node):
        return NUMARefusal.because(_CONFLICT, resolvable=False)
    whole_cores = demand.required and demand.bind_policy is CPUBindPolicy.FULL_PCPUS
    if whole_cores and request.cpus_needed % node.topology.cpus_per_core:
        return NUMARefusal.because(_NOT_MULTIPLE, resolvable=False)
    return None


def _amplified(state: NUMAState, demand: CPUDemand, amounts: NodeAmounts) -> NUMARefusal | None:
    """Check the amplified CPU of the node as a whole."""
    ratio, cpu = state.node.cpu_ratio, demand.request.cpu
    if not cpu:
        return None
    if ratio is None:
        return NUMARefusal.because(_INVALID_RATIO, resolvable=False)
    if ratio <= 1:
        return None
    need = amplify(cpu, ratio) if demand.bind else cpu
    bound = 1000 * state.usage.holdings.held.bit_count()
    requested = amounts.requested.get(CPU, 0)
    if bound and requested >= bound:
        requested += amplify(bound, ratio) - bound
    free = amounts.allocatable.get(CPU, 0) - requested
    if need <= free:
        return None
    return NUMARefusal((Shortfall(AMPLIFIED, CPU, need, free),))


# Allocate


def allocate_numa(
    state: NUMAState,
    request: CPURequest,
    admission: NUMAAdmission | None = None,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    room: NUMARoom = PLAIN_ROOM,
) -> NUMAAllocation | NUMARefusal:
    """Give a pod its CPUs and its amounts per NUMA node.

    Parameters
    ----------
    admission
        What :func:`filter_numa` answered; it is chosen here where that did not look at NUMA nodes.
    args, room
        As there.
    """
    demand = demand_on(request, state.node)
    if isinstance(demand, NUMARefusal):
        return demand
    if request.designated is not None:
        return _give_designated(state, demand, request.designated)
    if demand.bind and not state.node.topology.valid:
        return NUMARefusal.because(_INVALID_TOPOLOGY, resolvable=False)
    if demand.policy is NUMATopologyPolicy.NONE:
        mask = None
    else:
        if admission is None or not admission.aligned:
            chosen = align(state, demand, args=args, room=room)
            if isinstance(chosen, NUMARefusal):
                return chosen
            admission = chosen
        mask = admission.mask
    if mask is None and not demand.bind:
        return NUMAAllocation(written=demand.policy is not NUMATopologyPolicy.NONE)
    offers = offers_of(state, demand, room)
    taken = _take(offers, mask, args)
    if isinstance(taken, NUMARefusal) and demand.policy is NUMATopologyPolicy.BEST_EFFORT:
        # BestEffort goes on without affinity: wherever the amounts are written down, free CPUs do.
        if not demand.bind:
            return NUMAAllocation(written=True)
        anywhere = _take(offers, None, args)
        if not isinstance(anywhere, NUMARefusal):
            taken, mask = anywhere, None
    if isinstance(taken, NUMARefusal):
        return NUMARefusal.because(room.refusal) if room.refusal else taken
    loan, status = taken
    return NUMAAllocation(status, True, mask, loan)


def _take(
    offers: Sequence[tuple[str, Offer]], mask: NUMAMask | None, args: NUMAArgs
) -> tuple[str, ResourceStatus] | NUMARefusal:
    """Take from the first offer that can serve; say what all of them lack where none can."""
    shortfalls: list[Shortfall] = []
    for name, offer in offers:
        answer = _take_one(offer, mask, args)
        if isinstance(answer, ResourceStatus):
            return name, answer
        if name:
            shortfalls += [attrs.evolve(one, reason=OF_LOAN + one.reason) for one in answer.shortfalls]
        else:
            return answer
    return NUMARefusal(tuple(shortfalls))


def _take_one(offer: Offer, mask: NUMAMask | None, args: NUMAArgs) -> ResourceStatus | NUMARefusal:
    if mask is not None and not offer.state.node.zones:
        return NUMARefusal.because(_NO_NUMA_ZONES, resolvable=False)
    if mask is not None and not offer.feasible(mask):
        return offer.refusal(mask)
    amounts = () if mask is None else split(offer, mask)
    if not offer.demand.bind:
        return ResourceStatus(NO_CPUS, amounts)
    if mask is None and offer.guard is not None:
        guarded = take_on(offer.guard, (), args)
        if isinstance(guarded, NUMARefusal):
            return guarded
    cpus = take_on(offer, amounts, args)
    return cpus if isinstance(cpus, NUMARefusal) else ResourceStatus(cpus, _told(offer, amounts))


def _told(offer: Offer, amounts: tuple[NUMANodeResource, ...]) -> tuple[NUMANodeResource, ...]:
    """Leave CPUs out where no zone tells any: they came from the topology, and the cpuset says them."""
    if any(CPU in zone.resources for zone in offer.state.node.zones):
        return amounts
    left = [
        (entry.node, {name: amount for name, amount in entry.resources.items() if name != CPU})
        for entry in amounts
    ]
    return tuple(NUMANodeResource(numa, make_resources(rest)) for numa, rest in left if rest)


def _give_designated(
    state: NUMAState, demand: CPUDemand, status: ResourceStatus
) -> NUMAAllocation | NUMARefusal:
    """Give a pod exactly what it is designated to get, if nobody else holds it.

    Upstream accepts CPUs and amounts that others hold; here they are a refusal that names the holder.
    """
    node, request = state.node, demand.request
    if demand.bind and not node.topology.valid:
        return NUMARefusal.because(_INVALID_TOPOLOGY, resolvable=False)
    if status.cpuset or demand.bind:
        if not demand.bind or status.cpuset.bit_count() != request.cpus_needed:
            return NUMARefusal.because(CPUShortage.NOT_ENOUGH)
        free = available_cpus(
            node.topology,
            state.usage.holdings,
            reserved=node.reserved_cpus,
            max_ref_count=node.max_ref_count,
        )
        missing = status.cpuset & ~free
        if missing:
            return NUMARefusal(
                (
                    Shortfall(
                        _holders(state, missing), CPU, request.cpu, request.cpu - 1000 * missing.bit_count()
                    ),
                )
            )
    available = available_amounts(state)
    short = []
    for entry in status.numa_node_resources:
        here = available.get(entry.node)
        if here is None:
            return NUMARefusal.because(_NO_NUMA_ZONES, resolvable=False)
        short += [
            Shortfall(f"Insufficient NUMA {name}", name, amount, here.get(name, 0))
            for name, amount in entry.resources.items()
            if amount > here.get(name, 0)
        ]
    if short:
        return NUMARefusal(tuple(short))
    mask = mask_of(entry.node for entry in status.numa_node_resources) or None
    return NUMAAllocation(status, True, mask)


def _holders(state: NUMAState, cpus: int) -> str:
    """Name who holds CPUs that a pod must be given."""
    names = sorted(
        f"{held.namespace}/{held.name}" if held.name else held.uid
        for held in state.allocations
        if held.cpuset & cpus
    )
    if not names:
        return CPUShortage.NOT_ENOUGH
    return f"{CPUShortage.NOT_ENOUGH}: cpus {format_cpulist(cpus)} are held by {', '.join(names)}"


# Score


def score_given(
    state: NUMAState,
    demand: CPUDemand,
    given: ResourceStatus,
    amounts: NodeAmounts,
    args: NUMAArgs,
    *,
    lent: GiveBack = NO_GIVE_BACK,
) -> int:
    """Rate what a pod would be given under a topology policy, 0..100.

    The NUMA nodes that it would use where it is given amounts there, else the node as a whole.

    Parameters
    ----------
    lent
        What a loan gives to the pod. Its CPUs count as handed out where the pod takes them, as
        upstream has it, so that they count twice.
    """
    node = state.node
    capacity, requested = dict(amounts.allocatable), dict(amounts.requested)
    if given.numa_node_resources:
        capacity, requested = {}, {}
        available = available_amounts(state, lent)
        for entry in given.numa_node_resources:
            for name, amount in node.capacity.get(entry.node, NO_RESOURCES).items():
                capacity[name] = capacity.get(name, 0) + amount
                requested[name] = requested.get(name, 0) + amount - available[entry.node].get(name, 0)
    if given.cpuset:
        # Upstream counts every CPU that is handed out anywhere on the node, and nothing else.
        holdings = state.usage.holdings
        if lent.preferred_cpus & ~given.cpuset:
            holdings = holdings.giving_back(lent.preferred_cpus & ~given.cpuset)
        requested[CPU] = amplify(1000 * holdings.held.bit_count(), node.cpu_ratio or 1.0)
    return score_amounts(args.scoring, args.weights, capacity, requested, pod_request(demand, state))
