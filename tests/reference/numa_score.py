"""One pod on one node, asked alone: what it would get, and how the node is rated."""

from __future__ import annotations

import attrs

from koordcore.allocators.node import NodeAllocation, NodeOffer, fit_node
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import NO_AMOUNTS, NodeAmounts, NUMAAllocation, allocate_numa, score_given
from koordcore.allocators.numa_align import (
    PLAIN_ROOM,
    NUMAAdmission,
    NUMARoom,
    pod_request,
    score_amounts,
)
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.numa import DEFAULT_NUMA_ARGS, NUMAArgs, amplify
from koordcore.model.resources import CPU
from koordcore.topology.numa import NUMATopologyPolicy


def fit_numa(
    state: NUMAState,
    request: CPURequest,
    amounts: NodeAmounts = NO_AMOUNTS,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    room: NUMARoom = PLAIN_ROOM,
) -> NUMAAllocation | NUMARefusal:
    """Tell what a pod without devices would get on a node, as :func:`fit_node` has it."""
    offer = NodeOffer(state, amounts=amounts, room=room)
    found = fit_node(offer, NodeRequest(cpu=request), NodeArgs(numa=args))
    return found.numa if isinstance(found, NodeAllocation) else found


def score_numa(
    state: NUMAState,
    request: CPURequest,
    amounts: NodeAmounts,
    admission: NUMAAdmission | None = None,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    room: NUMARoom = PLAIN_ROOM,
) -> int:
    """Rate a node for a pod, 0..100.

    Under a topology policy the NUMA nodes that the pod would use are rated where they are known, the node as
    a whole otherwise; a pod that would get nothing there scores 0.

    Parameters
    ----------
    admission
        What :func:`filter_numa` answered.
    """
    demand = demand_on(request, state.node)
    if isinstance(demand, NUMARefusal) or (demand.bind and not state.node.topology.valid):
        return 0
    if demand.policy is NUMATopologyPolicy.NONE:
        return _score_node(state, demand, amounts, args)
    mask = admission.mask if admission is not None else None
    chosen = NUMAAdmission(demand.policy, True, mask)
    given = allocate_numa(state, attrs.evolve(request, designated=None), chosen, args=args, room=room)
    if isinstance(given, NUMARefusal):
        return 0
    return score_given(state, demand, given.status, amounts, args)


def _score_node(state: NUMAState, demand: CPUDemand, amounts: NodeAmounts, args: NUMAArgs) -> int:
    requested = dict(amounts.requested)
    ratio = state.node.cpu_ratio or 1.0
    if ratio > 1 and demand.request.cpu:
        bound = 1000 * state.usage.holdings.held.bit_count()
        requested[CPU] = requested.get(CPU, 0) + amplify(bound, ratio) - bound
    request = pod_request(demand, state)
    return score_amounts(args.scoring, args.weights, amounts.allocatable, requested, request)
