"""Is a gang's placement legal? Re-derived from the demand alone, without the planner's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from koordcore.allocators.gang.demand import GangDemand, IntVector, Role, Unit
from koordcore.topology.gathering import gathering_violations
from koordcore.topology.network import NetworkTopology


def placement_violations(
    tree: NetworkTopology, demand: GangDemand, nodes: Mapping[str, str]
) -> tuple[str, ...]:
    """List what is wrong with a placement; empty for a legal one.

    Checked are: known members and nodes, every node's amounts and slots, every role's minimum (all or
    nothing), the number of roles, MustGather, and the pod-count multiples at every layer.

    Parameters
    ----------
    tree, demand
        What was asked.
    nodes
        Node per member key.
    """
    members = {member.key: member for role in demand.roles for member in role.members}
    broken = [f"{key} is no member" for key in nodes if key not in members]
    unknown = sorted({node for node in nodes.values() if node not in tree.node_index})
    broken += [f"node {node} has no place in the network topology" for node in unknown]
    if broken:
        return tuple(broken)
    broken += _roles_broken(tree, demand, nodes)
    shapes = Counter(members[key].shape for key in nodes)
    counts = [shapes[shape] for shape in range(len(demand.shapes))]
    broken += [
        f"{counts} members use more than {limit}" for limit in demand.limits if not limit.holds(counts)
    ]
    held: dict[str, Counter[int]] = {}
    for key, node in nodes.items():
        held.setdefault(node, Counter())[members[key].shape] += 1
    for node in sorted(held):
        broken += _node_broken(demand, node, tree.node_index[node], held[node])
    bound = [
        tree.nodes[row]
        for row in (np.flatnonzero(demand.bound) if len(demand.bound) else ())
        for _ in range(int(demand.bound[row]))
    ]
    broken += gathering_violations(
        tree,
        nodes.values(),
        must_layer=demand.spec.must_layer(tree.layers),
        multiples=demand.spec.multiples,
        bound=bound,
    )
    return tuple(broken)


def _node_broken(demand: GangDemand, node: str, row: int, held: Counter[int]) -> list[str]:
    broken = []
    for shape, count in sorted(held.items()):
        slots = int(demand.shapes[shape].slots[row])
        if count > slots:
            broken.append(f"node {node} takes {slots} members of shape {shape}, not {count}")
    for resource in range(demand.free.shape[0] if demand.free.size else 0):
        asked = sum(count * int(demand.shapes[shape].request[resource]) for shape, count in held.items())
        free = int(demand.free[resource, row])
        if asked > max(0, free):
            broken.append(f"node {node} has {free} of resource {resource}, not {asked}")
    for where, counts in demand.conflicts:
        if where == row and all(held[shape] >= count for shape, count in enumerate(counts)):
            broken.append(f"node {node} does not take {counts} members of its shapes together")
    return broken


def _roles_broken(tree: NetworkTopology, demand: GangDemand, nodes: Mapping[str, str]) -> list[str]:
    broken, reached = _units_broken(demand, nodes), 0
    partial = demand.min_roles is not None and demand.min_roles < len(demand.roles)
    for role in demand.roles:
        placed = [nodes[member.key] for member in role.members if member.key in nodes]
        enough = len(placed) >= role.min_available
        reached += enough
        if not enough and (placed or not (partial or role.unit >= 0)):
            broken.append(f"{role.name} has {len(placed)} members of at least {role.min_available}")
        broken += _gather_broken(tree, role, placed, role.must_layer)
        broken += _home_broken(tree, role.name, role.home, role.fixed, placed)
    for quorum in demand.quorums:
        names = [member.key for number in quorum.roles for member in demand.roles[number].members]
        count = sum(name in nodes for name in names)
        if count < quorum.least and (count or quorum.unit < 0):
            broken.append(f"{demand.roles[quorum.roles[0]].name} and others have {count} of {quorum.least}")
    for number, unit in enumerate(demand.units):
        below = [
            nodes[member.key]
            for index, role in enumerate(demand.roles)
            if number in demand.above(index)
            for member in role.members
            if member.key in nodes
        ]
        broken += _home_broken(tree, unit.name, unit.home, unit.fixed, below)
        broken += _gather_broken(tree, unit, below)
    if partial and demand.min_roles is not None and reached < demand.min_roles:
        broken.append(f"{reached} roles of at least {demand.min_roles} reach their minimum")
    return broken


def _units_broken(demand: GangDemand, nodes: Mapping[str, str]) -> list[str]:
    """Below a unit that does not succeed nobody is placed; the topmost one has to."""
    successes = [0] * len(demand.units)
    for role in demand.roles:
        if role.unit >= 0:
            successes[role.unit] += role.started or any(member.key in nodes for member in role.members)
    failed = set()
    for number in range(len(demand.units) - 1, -1, -1):
        unit = demand.units[number]
        if successes[number] < unit.least:
            failed.add(number)
        elif unit.parent >= 0:
            successes[unit.parent] += 1
    broken = []
    for number, role in enumerate(demand.roles):
        above = [unit for unit in demand.above(number) if unit in failed]
        if above and any(member.key in nodes for member in role.members):
            unit = demand.units[above[0]]
            broken.append(f"{role.name} starts although {unit.name} has fewer than {unit.least} parts")
    if 0 in failed:
        broken.append(f"{demand.units[0].name} has fewer than {demand.units[0].least} parts")
    return broken


def _home_broken(
    tree: NetworkTopology, name: str, home: IntVector, fixed: int, placed: Sequence[str]
) -> list[str]:
    """All members of a group lie in one domain, that of the running ones where there are any."""
    used = sorted({int(home[tree.node_index[node]]) for node in placed}) if len(home) else []
    if len(used) > 1 or -1 in used or (fixed >= 0 and used not in ([], [fixed])):
        return [f"{name}: members lie in the domains {used}, running ones in {fixed}"]
    return []


def _gather_broken(
    tree: NetworkTopology, part: Role | Unit, placed: list[str], must_layer: str = ""
) -> list[str]:
    bound = [tree.nodes[row] for row in np.flatnonzero(part.bound) for _ in range(int(part.bound[row]))]
    found = gathering_violations(tree, placed, must_layer=must_layer, multiples=part.multiples, bound=bound)
    return [f"{part.name}: {text}" for text in found]
