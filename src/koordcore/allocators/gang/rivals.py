"""Gangs of a queue on the same nodes: what one leaves to the next, and how good a plan for all is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, IntMatrix
from koordcore.topology.network import NetworkTopology


@record(kw_only=True)
class QueuedGang:
    """A gang that waits for its turn.

    Parameters
    ----------
    name
        Its id.
    demand
        What it asks for; all gangs of a queue refer to the same shapes and the same free amounts.
    priority
        More gangs of a higher priority come before any number of lower ones.
    """

    name: str
    demand: GangDemand
    priority: int = 0


def queue_objective(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Mapping[str, Mapping[str, str]]
) -> tuple[int, ...]:
    """Compute the objective of a plan; gangs, members, domains (see ``QueuePlan``)."""
    tiers = sorted({gang.priority for gang in gangs}, reverse=True)
    placed = [
        -sum(gang.priority == tier and bool(placements.get(gang.name)) for gang in gangs) for tier in tiers
    ]
    members = -sum(len(nodes) for nodes in placements.values())
    domains = [0] * max(0, len(tree.layers) - 1)
    for gang in gangs:
        rows = [tree.node_index[node] for node in placements.get(gang.name, {}).values()]
        bound = tree.sum_up(gang.demand.bound) if len(gang.demand.bound) else None
        for depth in range(1, len(tree.layers)):
            used = {int(domain) for domain in tree.ancestors[depth, rows]}
            domains[depth - 1] += sum(bound is None or int(bound[domain]) == 0 for domain in used)
    return (*placed, members, *domains)


def count_members(
    tree: NetworkTopology, demand: GangDemand, nodes: Mapping[str, str], used: IntMatrix
) -> None:
    """Add a placement to the members per shape and node."""
    shape_of = {member.key: member.shape for role in demand.roles for member in role.members}
    for key, node in nodes.items():
        used[shape_of[key], tree.node_index[node]] += 1


def after_members(demand: GangDemand, used: IntMatrix) -> GangDemand:
    """Give what is left of the nodes after members per shape and node are there."""
    free = demand.free
    if free.size:
        taken = np.stack([shape.request for shape in demand.shapes]).T @ used
        free = free - taken
    shapes = []
    for number, shape in enumerate(demand.shapes):
        slots = shape.slots - used[number]
        for row in np.flatnonzero(shape.request > 0) if free.size else ():
            slots = np.minimum(slots, np.maximum(free[row], 0) // shape.request[row])
        shapes.append(attrs.evolve(shape, slots=np.maximum(slots, 0)))
    return attrs.evolve(demand, shapes=tuple(shapes), free=free)
