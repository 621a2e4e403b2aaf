"""Several pods on one node, decided together.

Placed one after another, each on the NUMA nodes that look best for it alone, pods can leave no room for the
last although all would fit. Here the greedy order is tried first and a search over NUMA nodes second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from koordcore.allocators.numa import (
    NO_AMOUNTS,
    NodeAmounts,
    NUMAAllocation,
    allocate_numa,
    filter_numa,
    fit_numa,
)
from koordcore.allocators.numa_align import NUMAAdmission, allowed_masks
from koordcore.allocators.numa_request import CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.numa import DEFAULT_NUMA_ARGS, CPUAllocation, NUMAArgs
from koordcore.model.resources import CPU, MEMORY, add
from koordcore.topology.numa import NUMATopologyPolicy

__all__ = ["fit_together"]

DEFAULT_VISITS: Final = 20_000
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
        How many partial placements may be looked at. Every choice of NUMA nodes is tried, largest pods
        first; within a choice amounts and CPUs are those that each pod would get by itself.

    Returns
    -------
    tuple of NUMAAllocation, or NUMARefusal
        The refusal of the first pod that has no room at all, or one that says that no joint placement was
        found.
    """
    greedy = _one_after_another(state, requests, amounts, args)
    if greedy is not None:
        return greedy
    for request in requests:
        alone = fit_numa(state, request, amounts, args=args)
        if isinstance(alone, NUMARefusal):
            return alone
    order = sorted(range(len(requests)), key=lambda index: (_size(requests[index]), index))
    search = _Search([requests[index] for index in order], args, visits)
    found = search.place(0, state, amounts)
    if found is None:
        return NUMARefusal.because(_JOINT)
    placed = dict(zip(order, found, strict=True))
    return tuple(placed[index] for index in range(len(requests)))


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
        allocation = fit_numa(state, request, amounts, args=args)
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
        masks = allowed_masks(state, demand, args=self.args)
        return [NUMAAdmission(demand.policy, True, mask) for mask in masks]
