"""Several pods on one node, decided together.

Placed one after another, each on the NUMA nodes that look best for it alone, pods can leave no room for the
last although all would fit. Here the greedy order is tried first. Pods that need one NUMA node each are then
an assignment with capacities, which a solver decides; for all others choices of NUMA nodes are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from koordcore._cpsat import Outcome, OutcomeStatus, Program, solve
from koordcore.allocators.cpuset import available_cpus
from koordcore.allocators.numa import (
    NO_AMOUNTS,
    NodeAmounts,
    NUMAAllocation,
    allocate_numa,
    before_numa,
    filter_numa,
)
from koordcore.allocators.numa_align import NUMAAdmission, allowed_masks
from koordcore.allocators.numa_fit import Offer, offer_of
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.numa import DEFAULT_NUMA_ARGS, CPUAllocation, CPUBindPolicy, NUMAArgs, amplify
from koordcore.model.resources import CPU, MEMORY, add
from koordcore.topology.numa import NUMATopologyPolicy, exclusive_allows

DEFAULT_VISITS: Final = 2_000
_JOINT: Final = "no joint placement of all pods found"


def fit_together(
    state: NUMAState,
    requests: Sequence[CPURequest],
    amounts: NodeAmounts = NO_AMOUNTS,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    visits: int = DEFAULT_VISITS,
) -> tuple[NUMAAllocation, ...] | NUMARefusal:
    """Give several pods their CPUs and amounts on one node, all or none.

    Parameters
    ----------
    requests
        In the order in which they would be placed; the answer has the same order.
    amounts
        Of the node as a whole before any of them.
    visits
        How many partial placements the search may look at; largest pods go first.

    Returns
    -------
    tuple of NUMAAllocation, or NUMARefusal
        The refusal of the first pod that has no room at all, or one that says that no joint placement was
        found. Whichever way the NUMA nodes were chosen, each pod gets there what it would get by itself
        after those before it.
    """
    greedy = _one_after_another(state, requests, amounts, args)
    if greedy is not None:
        return greedy
    for request in requests:
        alone = _fit(state, request, amounts, args=args)
        if isinstance(alone, NUMARefusal):
            return alone
    order = sorted(range(len(requests)), key=lambda index: (_size(requests[index]), index))
    ordered = [requests[index] for index in order]
    found = _assigned(state, ordered, amounts, args)
    if found is None:
        found = _Search(ordered, args, visits).place(0, state, amounts)
    if not found:
        return NUMARefusal.because(_JOINT)
    placed = dict(zip(order, found, strict=True))
    return tuple(placed[index] for index in range(len(requests)))


def _assigned(
    state: NUMAState,
    requests: Sequence[CPURequest],
    amounts: NodeAmounts,
    args: NUMAArgs,
) -> list[NUMAAllocation] | None:
    """Assign pods under SINGLE_NUMA_NODE to NUMA nodes by solving.

    Returns
    -------
    list of NUMAAllocation or None
        Empty where it is proven that there is no assignment; ``None`` where the question is another, or the
        solver's answer does not decide it.
    """
    demands = [demand_on(request, state.node) for request in requests]
    offers = [
        offer_of(state, demand)
        for demand in demands
        if isinstance(demand, CPUDemand)
        and demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
        and demand.request.designated is None
    ]
    if len(offers) < len(requests):
        return None
    choices, outcome = _solve_assignment(state, offers)
    if outcome.status is OutcomeStatus.INFEASIBLE and state.node.zone_cpu_ratio <= 1:
        return []
    if not outcome.solved:
        return None
    chosen = [next(numa for numa, variable in mine.items() if outcome.values[variable]) for mine in choices]
    return _carry_out(state, requests, _canonical(requests, chosen), amounts, args)


def _solve_assignment(state: NUMAState, offers: Sequence[Offer]) -> tuple[list[dict[int, int]], Outcome]:
    """Solve who goes where, with a variable per pod and NUMA node that could take it alone."""
    node = state.node
    program = Program()
    choices: list[dict[int, int]] = []
    status = state.usage.status
    for offer in offers:
        exclusive = offer.demand.request.exclusive_here
        mine = {
            numa: program.boolean()
            for numa in node.zone_ids
            if offer.feasible(1 << numa) and exclusive_allows(1 << numa, exclusive, status)
        }
        program.require([(variable, 1) for variable in mine.values()], equal=1)
        choices.append(mine)
    for numa in node.zone_ids:
        here = [(mine[numa], offer) for mine, offer in zip(choices, offers, strict=True) if numa in mine]
        for name in sorted({name for _, offer in here for name in offer.most}):
            terms = [(variable, _weight(offer, name)) for variable, offer in here if name in offer.most]
            program.require(terms, at_most=state.available[numa].get(name, 0))
        free = available_cpus(
            node.topology,
            state.usage.holdings,
            reserved=node.reserved_cpus,
            max_ref_count=node.max_ref_count,
        )
        cpus = free & node.topology.on_node(numa)
        bound = [(variable, offer) for variable, offer in here if offer.demand.bind]
        whole = [(variable, offer) for variable, offer in bound if _whole_cores(offer)]
        for group, room in ((bound, cpus), (whole, node.topology.complete_cores(cpus))):
            terms = [(variable, offer.demand.request.cpus_needed) for variable, offer in group]
            if terms and node.max_ref_count == 1:
                program.require(terms, at_most=room.bit_count())
    return choices, solve(program)


def _whole_cores(offer: Offer) -> bool:
    return offer.demand.required and offer.demand.bind_policy is CPUBindPolicy.FULL_PCPUS


def _weight(offer: Offer, name: str) -> int:
    """What a pod takes of a NUMA node's amount; CPU that it is bound to counts amplified."""
    amount = offer.demand.request.requests[name]
    amplified = name == CPU and offer.demand.bind
    return amplify(amount, offer.state.node.zone_cpu_ratio) if amplified else amount


def _canonical(requests: Sequence[CPURequest], chosen: Sequence[int]) -> list[int]:
    """Give equal pods their NUMA nodes in ascending order, whatever the solver's order was."""
    groups: dict[CPURequest, list[int]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(request, []).append(index)
    fixed = list(chosen)
    for indices in groups.values():
        for index, numa in zip(indices, sorted(chosen[index] for index in indices), strict=True):
            fixed[index] = numa
    return fixed


def _carry_out(
    state: NUMAState,
    requests: Sequence[CPURequest],
    chosen: Sequence[int],
    amounts: NodeAmounts,
    args: NUMAArgs,
) -> list[NUMAAllocation] | None:
    """Take what was assigned, pods that need whole cores first; ``None`` where a shape spoils it."""
    single = NUMATopologyPolicy.SINGLE_NUMA_NODE
    placed: dict[int, NUMAAllocation] = {}
    order = sorted(range(len(requests)), key=lambda index: (not _strict(requests[index], state), index))
    for index in order:
        request = requests[index]
        admission = NUMAAdmission(single, True, 1 << chosen[index])
        given: NUMAAllocation | NUMARefusal | CPUDemand | NUMAAdmission
        given = before_numa(state, request, amounts)
        if not isinstance(given, NUMARefusal):
            given = allocate_numa(state, request, admission, args=args)
        if not isinstance(given, NUMAAllocation):
            return None
        placed[index] = given
        state, amounts = _with(state, request, given, index), _after(amounts, request)
    return [placed[index] for index in range(len(requests))]


def _strict(request: CPURequest, state: NUMAState) -> bool:
    demand = demand_on(request, state.node)
    return isinstance(demand, CPUDemand) and demand.required


def _size(request: CPURequest) -> tuple[int, int]:
    return -request.requests.get(CPU, 0), -request.requests.get(MEMORY, 0)


def _with(state: NUMAState, request: CPURequest, allocation: NUMAAllocation, index: int) -> NUMAState:
    """State with a pod on it under a name that no other holder bears."""
    return state.adding(
        CPUAllocation(
            uid=f"joint:{len(state.allocations)}:{index}",
            cpuset=allocation.status.cpuset,
            exclusive=request.exclusive,
            numa_resources=allocation.status.numa_node_resources,
        )
    )


def _after(amounts: NodeAmounts, request: CPURequest) -> NodeAmounts:
    return attrs.evolve(amounts, requested=add(amounts.requested, request.requests))


def _one_after_another(
    state: NUMAState, requests: Sequence[CPURequest], amounts: NodeAmounts, args: NUMAArgs
) -> tuple[NUMAAllocation, ...] | None:
    placed = []
    for index, request in enumerate(requests):
        allocation = _fit(state, request, amounts, args=args)
        if isinstance(allocation, NUMARefusal):
            return None
        placed.append(allocation)
        state, amounts = _with(state, request, allocation, index), _after(amounts, request)
    return tuple(placed)


class _Search:
    """Depth-first search over the NUMA nodes of each pod in turn; equal states are entered once."""

    def __init__(self, requests: Sequence[CPURequest], args: NUMAArgs, visits: int) -> None:
        self.requests = requests
        self.args = args
        self.left = visits
        self.dead: set[tuple[int, NUMAState]] = set()

    def place(self, index: int, state: NUMAState, amounts: NodeAmounts) -> list[NUMAAllocation] | None:
        """Place the pods from one on; ``None`` where that was not found."""
        if index == len(self.requests):
            return []
        if (index, state) in self.dead or self.left <= 0:
            return None
        request = self.requests[index]
        for admission in self._choices(state, request, amounts):
            self.left -= 1
            allocation = allocate_numa(state, request, admission, args=self.args)
            if isinstance(allocation, NUMARefusal):
                continue
            rest = self.place(index + 1, _with(state, request, allocation, index), _after(amounts, request))
            if rest is not None:
                return [allocation, *rest]
        self.dead.add((index, state))
        return None

    def _choices(self, state: NUMAState, request: CPURequest, amounts: NodeAmounts) -> list[NUMAAdmission]:
        admission = filter_numa(state, request, amounts, args=self.args)
        demand = demand_on(request, state.node)
        if isinstance(admission, NUMARefusal) or isinstance(demand, NUMARefusal):
            return []
        if demand.policy is NUMATopologyPolicy.NONE or request.designated is not None:
            return [admission]
        masks = allowed_masks(state, demand, self.args)
        return [NUMAAdmission(demand.policy, True, mask) for mask in masks]


def _fit(
    state: NUMAState, request: CPURequest, amounts: NodeAmounts, *, args: NUMAArgs
) -> NUMAAllocation | NUMARefusal:
    admission = filter_numa(state, request, amounts, args=args)
    if isinstance(admission, NUMARefusal):
        return admission
    return allocate_numa(state, request, admission, args=args)
