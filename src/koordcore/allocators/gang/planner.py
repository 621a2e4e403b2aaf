"""Placement of a whole gang: the one door."""

from __future__ import annotations

import attrs

from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall
from koordcore.allocators.gang.mixed import place_mixed
from koordcore.allocators.gang.place import place_uniform
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.topology.network import NetworkTopology


def place_gang(
    tree: NetworkTopology, demand: GangDemand, *, fit_error: str = "", limits: Limits = DEFAULT_LIMITS
) -> GangPlacement | GangShortfall:
    """Place a whole gang, all or nothing, as well as possible.

    At least the minimum of every role is placed, and as many more as fit. MustGather and the pod-count
    multiples are constraints; among all legal placements the best one is taken, see
    :mod:`koordcore.allocators.gang.objective`. Interchangeable members are placed by dynamic programming
    in milliseconds; several shapes, roles that gather on their own, and "k of n roles" go to the solver.

    Parameters
    ----------
    tree
        The network.
    demand
        The members with the nodes' offers.
    fit_error
        What the filters said over all nodes, for the message of a failure.
    limits
        Budget and seed of the solver, when it is needed.

    Returns
    -------
    GangPlacement or GangShortfall
        Where everyone goes, with a certificate; or why not, with numbers.
    """
    # With one shape a domain is as good as the number of members it takes, so counting up the
    # tree is exact. Two shapes compete for the same room; then a number says too little.
    if demand.uniform:
        return place_uniform(tree, _within_conflicts(demand), fit_error=fit_error)
    return place_mixed(tree, demand, fit_error=fit_error, limits=limits)


def _within_conflicts(demand: GangDemand) -> GangDemand:
    """Write conflicts into the offers of the one shape that is in use.

    One that also counts members of another shape is never met.
    """
    used = {member.shape for role in demand.roles for member in role.members}
    if not demand.conflicts or not used:
        return demand
    (own,) = used
    slots = demand.shapes[own].slots.copy()
    for node, counts in demand.conflicts:
        # The bar says that so many did not fit together, so one less is the most that is worth planning.
        if all(count == 0 or shape == own for shape, count in enumerate(counts)):
            slots[node] = min(slots[node], max(0, counts[own] - 1))
    shapes = list(demand.shapes)
    shapes[own] = attrs.evolve(shapes[own], slots=slots)
    return attrs.evolve(demand, shapes=tuple(shapes))
