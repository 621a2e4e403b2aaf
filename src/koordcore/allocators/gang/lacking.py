"""What a gang of several shapes lacks: the smallest reason that the bounds can give.

For every domain that could hold the gang each kind of member and each resource is looked at by itself; the
domain that lacks least is named, with what would do there. Where every domain has enough of each, the members
get in each other's way, and the number that fits together is all that there is to say.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from koordcore.allocators.gang.bounds import needs_of
from koordcore.allocators.gang.demand import GangDemand, Role, rank_order
from koordcore.allocators.gang.objective import Terms
from koordcore.model.resources import format_resources
from koordcore.topology.network import CLUSTER_LAYER, NetworkTopology


def where_text(tree: NetworkTopology, domain: int) -> str:
    """Name the best domain of a layer within a sentence."""
    layer = tree.layer_of(domain)
    return "the cluster" if layer == CLUSTER_LAYER else f"the best {layer}, {tree.names[domain]},"


def gather_roots(terms: Terms) -> list[int]:
    """List the domains one of which has to hold all members: those of bound ones where there are any."""
    depth = terms.must_depth
    if depth is None:
        return []
    roots = terms.tree.domains_at(depth)
    held = [root for root in roots if terms.bound[root] > 0]
    return held if depth and held else list(roots)


def too_few(demand: GangDemand) -> str:
    """Name a role that has to start and has fewer members than it needs; empty where none is known."""
    partial = demand.min_roles is not None and demand.min_roles < len(demand.roles)
    for role in () if partial or demand.units else demand.roles:
        if role.min_available > len(role.members):
            return f"role {role.name} needs {role.min_available} members and has {len(role.members)}"
    return ""


def lacking_of(terms: Terms) -> str:
    """Say what is lacking, empty where no single kind of member and no single resource is."""
    demand = terms.demand
    few = too_few(demand)
    if few:
        return few
    partial = demand.min_roles is not None and demand.min_roles < len(demand.roles)
    own = [(role, _of_role(terms, role)) for role in demand.roles if role.must_layer]
    short = [(role, text) for role, text in own if text]
    if short and not partial:
        return f"{short[0][0].name}: {short[0][1]}"
    able = len(demand.roles) - len(short)
    if partial and demand.min_roles is not None and able < demand.min_roles:
        first, text = short[0]
        return f"{able} of at least {demand.min_roles} roles can be placed; {first.name}: {text}"
    if partial or demand.least < demand.size or terms.must_depth is None:
        return ""
    return _of_domains(terms, demand, gather_roots(terms))


def _of_role(terms: Terms, role: Role) -> str:
    """Say what a role lacks of the layer that it gathers in."""
    tree, demand = terms.tree, terms.demand
    depth = tree.depth_of(role.must_layer)
    if depth is None:
        return f"the network topology has no layer {role.must_layer}"
    running = tree.sum_up(role.bound) if role.bound.any() else np.zeros(len(tree), dtype=np.int64)
    domains = [one for one in tree.domains_at(depth) if running[one]] or list(tree.domains_at(depth))
    if role.min_available >= len(role.members):
        alone = attrs.evolve(demand, roles=(role,), min_roles=None, units=(), quorums=())
        return _of_domains(terms, alone, domains)
    counts = np.bincount([member.shape for member in role.members], minlength=len(demand.shapes))
    offers = [
        np.minimum(shape.slots, count) for shape, count in zip(demand.shapes, counts.tolist(), strict=True)
    ]
    total = tree.sum_up(np.sum(offers, axis=0))
    best = max(domains, key=lambda domain: int(total[domain]), default=0)
    have = int(total[best])
    return _sentence(tree, best, [(have, role.min_available, "slots")]) if have < role.min_available else ""


def _of_domains(terms: Terms, demand: GangDemand, domains: Sequence[int]) -> str:
    """Of the domains take the one that lacks least of what all members need; empty where one has it all."""
    tree = terms.tree
    needs = needs_of(attrs.evolve(terms, demand=demand))
    names = _names(demand)
    have = [tree.sum_up(need.per_node) for need in needs]
    kinds = len(demand.shapes)
    slots = np.sum(have[:kinds], axis=0)
    # Where nobody goes anywhere, that is no fault of a resource of which there is enough.
    there = [*have[:kinds], *(tree.sum_up(np.maximum(row, 0)) for row in demand.free)]
    best: tuple[tuple[int, float, int], list[tuple[int, int, str]]] | None = None
    for domain in domains:
        short = [
            (int(amounts[domain]), need.asked, name)
            for amounts, need, name in zip(have if slots[domain] else there, needs, names, strict=True)
            if amounts[domain] < need.asked
        ]
        if not short:
            return ""
        rank = (len(short), max(1 - amount / asked for amount, asked, _ in short), domain)
        if best is None or rank < best[0]:
            best = (rank, short)
    return "" if best is None else _sentence(tree, best[0][2], best[1])


def _names(demand: GangDemand) -> list[str]:
    """Name what is counted: a member of each shape, then the resources."""
    kinds = []
    for shape in range(len(demand.shapes)):
        like = rank_order(m for role in demand.roles for m in role.members if m.shape == shape)
        kinds.append(f"slots for members like {like[0].key}" if like else "slots")
    rows = range(demand.free.shape[0])
    return [*kinds, *(demand.resources[row] if demand.resources else f"resource {row}" for row in rows)]


def _sentence(tree: NetworkTopology, domain: int, short: Sequence[tuple[int, int, str]]) -> str:
    # A resource that is short makes slots short as well; where it has a name it says more.
    named = [one for one in short if not one[2].startswith(("slots", "resource "))]
    parts = named or [one for one in short if one[2].startswith("slots")] or list(short)
    has = " and ".join(
        f"{_amount(have, name)} of {_amount(asked, name)} {name}" for have, asked, name in parts
    )
    more = " and ".join(_amount(asked - have, name) for have, asked, name in parts)
    return f"{where_text(tree, domain)} has {has}; {more} more needed"


def _amount(value: int, name: str) -> str:
    return str(value) if name.startswith(("slots", "resource ")) else format_resources({name: value})[name]
