"""Whether, and how, a pod's amounts fit into a set of NUMA nodes: exactly.

One :class:`Offer` says what each NUMA node can give to one demand; a mask is feasible when the sums over its
nodes suffice for every resource, and :func:`split` then divides the request without ever failing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate

from koordcore._record import record
from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.allocators.cpuset import allocate_cpus, available_cpus, suitable_cpus
from koordcore.allocators.numa_request import CPUDemand, NUMARefusal
from koordcore.allocators.numa_state import NO_GIVE_BACK, GiveBack, NUMAState, available_amounts
from koordcore.model.decisions import Shortfall
from koordcore.model.numa import (
    DEFAULT_NUMA_ARGS,
    CPUBindPolicy,
    CPUHoldings,
    NUMAArgs,
    NUMANodeResource,
)
from koordcore.model.resources import CPU, make_resources
from koordcore.topology.cpu import CPUSet
from koordcore.topology.numa import NUMAMask, masks_by_size, numa_ids


@record(kw_only=True)
class Offer:
    """What a node can give to one demand, per NUMA node.

    Parameters
    ----------
    state, demand, give_back
        Whose offer it is, to whom, and what counts as free besides.
    holdings
        Who holds which CPUs once everything is given back.
    available
        Amounts available per NUMA node; CPU is trimmed to the CPUs that can serve a required bind policy.
    most
        Resource to NUMA node to the most that the pod can really get there: whole CPUs and cores where it is
        bound. Only resources that some NUMA node knows.
    guard
        Another offer that has to be feasible as well, though it is not used.
    """

    state: NUMAState
    demand: CPUDemand
    give_back: GiveBack
    holdings: CPUHoldings
    available: Mapping[int, Mapping[str, int]]
    most: Mapping[str, Mapping[int, int]]
    guard: Offer | None = None

    @cached_property
    def needs(self) -> tuple[tuple[int, Mapping[int, int]], ...]:
        """Amount wanted with the most per NUMA node, for each resource that counts."""
        requests = self.demand.request.requests
        found = []
        for name, most in self.most.items():
            unit = _unit(self.demand, self.state) if name == CPU else 1
            # Whole cores never come to a part of one: ask for more than there is.
            odd = requests[name] % unit
            found.append((sum(most.values()) + 1 if odd else requests[name], most))
        return tuple(found)

    def feasible(self, mask: NUMAMask) -> bool:
        """Tell whether the NUMA nodes of a mask together can serve the demand."""
        ids = numa_ids(mask)
        for need, most in self.needs:
            if sum(most.get(numa, 0) for numa in ids) < need:
                return False
        return self.guard is None or self.guard.feasible(mask)

    def may_be_feasible(self, size: int) -> bool:
        """Tell whether a mask of that size could be feasible at all."""
        return all(need <= sums[min(size, len(sums)) - 1] for need, sums in self._best_sums if sums)

    @cached_property
    def _best_sums(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return tuple(
            (need, tuple(accumulate(sorted(most.values(), reverse=True)))) for need, most in self.needs
        )

    def refusal(self, mask: NUMAMask) -> NUMARefusal:
        """Say what a mask that is not feasible lacks."""
        ids = numa_ids(mask)
        requests = self.demand.request.requests
        short = []
        cpus_short = False
        for name, most in self.most.items():
            here = sum(most.get(numa, 0) for numa in ids)
            if here >= requests[name]:
                continue
            recorded = sum(self._recorded(name, numa) for numa in ids)
            if recorded >= requests[name]:
                cpus_short = True
            else:
                short.append(Shortfall(f"Insufficient NUMA {name}", name, requests[name], recorded))
        if short:
            return NUMARefusal(tuple(short))
        if cpus_short:
            return NUMARefusal.because(CPUShortage.NOT_ENOUGH)
        if self.guard is not None and not self.guard.feasible(mask):
            return self.guard.refusal(mask)
        return NUMARefusal.because(CPUShortage.NOT_ENOUGH)

    def _recorded(self, name: str, numa: int) -> int:
        amount = self.available.get(numa, {}).get(name, 0)
        return amount - amount % _unit(self.demand, self.state) if name == CPU else amount


def _unit(demand: CPUDemand, state: NUMAState) -> int:
    """Smallest amount of CPU that can be given on one NUMA node, in milli-CPU."""
    if not demand.bind:
        return 1
    whole_cores = demand.required and demand.bind_policy is CPUBindPolicy.FULL_PCPUS
    # Without a topology nothing can be given, which is said elsewhere.
    return 1000 * (max(1, state.node.topology.cpus_per_core) if whole_cores else 1)


def offer_of(
    state: NUMAState,
    demand: CPUDemand,
    give_back: GiveBack = NO_GIVE_BACK,
    *,
    guard: Offer | None = None,
) -> Offer:
    """Work out what a node can give to a demand, trimmed for required policies.

    Parameters
    ----------
    state, demand
        The node with its holders, and what the pod asks for there.
    give_back
        What counts as free although it is held.
    guard
        Another offer that must suffice as well, though nothing is taken from it.
    """
    node = state.node
    holdings = state.usage.holdings
    if give_back.preferred_cpus:
        holdings = holdings.giving_back(give_back.preferred_cpus)
    if give_back.preemptible_cpus:
        holdings = holdings.giving_back(give_back.preemptible_cpus)
    available = available_amounts(state, give_back)
    requests = demand.request.requests
    known = {name for here in available.values() for name in here}
    most: dict[str, Mapping[int, int]] = {
        name: {numa: max(0, here.get(name, 0)) for numa, here in available.items()}
        for name in requests
        if name in known
    }
    if demand.bind and known:
        free = _free_cpus(state, demand, holdings, give_back)
        counts = {numa: 1000 * (free & node.topology.on_node(numa)).bit_count() for numa in available}
        if CPU not in most:  # zones that tell no CPUs have those of the topology
            available = {numa: {**here, CPU: counts[numa]} for numa, here in available.items()}
            most[CPU] = counts
        if demand.required:
            available = {
                numa: {**here, CPU: counts[numa]} if counts[numa] < here.get(CPU, 0) else here
                for numa, here in available.items()
            }
        unit = _unit(demand, state)
        amounts = {numa: min(most[CPU][numa], counts[numa]) for numa in available}
        most[CPU] = {numa: amount - amount % unit for numa, amount in amounts.items()}
    return Offer(
        state=state,
        demand=demand,
        give_back=give_back,
        holdings=holdings,
        available=available,
        most=most,
        guard=guard,
    )


def _free_cpus(state: NUMAState, demand: CPUDemand, holdings: CPUHoldings, give_back: GiveBack) -> CPUSet:
    node = state.node
    free = available_cpus(
        node.topology, holdings, reserved=node.reserved_cpus, max_ref_count=node.max_ref_count
    )
    only = give_back.only_for(strict=demand.strict)
    if only is not None:
        free &= only
    return suitable_cpus(node.topology, free, demand.bind_policy) if demand.required else free


def split(offer: Offer, mask: NUMAMask) -> tuple[NUMANodeResource, ...]:
    """Divide a request over the NUMA nodes of a feasible mask, as evenly as they allow.

    NUMA nodes are filled by ascending availability, then id; each takes an even share of what is left, at
    most what it can give and at least what the later ones cannot. Resources that no NUMA node knows are left
    out, as are NUMA nodes that get nothing.
    """
    amounts: dict[int, dict[str, int]] = {}
    for name, most in offer.most.items():
        unit = _unit(offer.demand, offer.state) if name == CPU else 1
        order = sorted(
            (offer.available.get(numa, {}).get(name, 0), numa, most.get(numa, 0) // unit)
            for numa in numa_ids(mask)
        )
        left = offer.demand.request.requests[name] // unit
        later = sum(units for _, _, units in order)
        for index, (_, numa, units) in enumerate(order):
            later -= units
            got = max(min(units, left // (len(order) - index)), left - later)
            left -= got
            if got:
                amounts.setdefault(numa, {})[name] = got * unit
    return tuple(NUMANodeResource(numa, make_resources(amounts[numa])) for numa in sorted(amounts))


def take_on(
    offer: Offer, amounts: Sequence[NUMANodeResource], args: NUMAArgs = DEFAULT_NUMA_ARGS
) -> CPUSet | NUMARefusal:
    """Choose the CPUs that go with amounts per NUMA node; anywhere where there are none.

    Parameters
    ----------
    args
        Which NUMA nodes are filled first where the node does not say.
    """
    demand, node = offer.demand, offer.state.node
    request = demand.request
    per_node = [(entry.node, entry.resources.get(CPU, 0) // 1000) for entry in amounts]
    wish = CPUWish(
        bind_policy=demand.bind_policy,
        required=demand.required,
        exclusive=request.exclusive,
        strategy=node.strategy or args.allocate_strategy,
        max_ref_count=node.max_ref_count,
    )
    only, preferred = offer.give_back.only_for(strict=demand.strict), offer.give_back.preferred_cpus
    allocate = partial(
        allocate_cpus,
        node.topology,
        offer.holdings,
        request.cpus_needed,
        wish,
        reserved=node.reserved_cpus if only is None else node.reserved_cpus | ~only,
        per_node=per_node or None,
    )
    taken = allocate(preferred=preferred)
    if taken is CPUShortage.FULL_PCPUS and preferred:
        # Upstream takes halves of cores that are preferred, and fails: their cores serve whole.
        taken = allocate(preferred=node.topology.cores_around(preferred))
    return NUMARefusal.because(taken) if isinstance(taken, CPUShortage) else taken


def feasible_masks(offers: Sequence[Offer], ids: tuple[int, ...], size: int) -> list[NUMAMask]:
    """Masks of one size on which some offer is feasible, lexicographically by their ids.

    Parameters
    ----------
    offers
        What the node and its loans can give.
    ids
        NUMA nodes, ascending.
    size
        How many of them a mask has.
    """
    hopeful = [offer for offer in offers if offer.may_be_feasible(size)]
    if not hopeful:
        return []
    return [mask for mask in masks_by_size(ids, size) if any(offer.feasible(mask) for offer in hopeful)]
