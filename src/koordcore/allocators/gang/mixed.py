"""The best placement of a gang with several shapes or with roles of their own, by integer programming.

Greedy first, bound second, solver third: where a quick placement meets the bounds nothing is solved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._cpsat import OutcomeStatus, Presolve, solve
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import (
    GangDemand,
    GangPlacement,
    GangShortfall,
    IntVector,
    rank_order,
)
from koordcore.allocators.gang.greedy import greedy_places
from koordcore.allocators.gang.model import GangModel
from koordcore.allocators.gang.objective import Terms, domains_used, terms_of
from koordcore.allocators.gang.shortfall import explain_shortfall
from koordcore.allocators.gang.slots import shared_slots
from koordcore.errors import SolverError
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.topology.network import NetworkTopology

__all__ = ["class_counts", "fewest_domains", "name_members", "place_mixed", "placement_of"]

UNKNOWN = Certificate(CertificateStatus.HEURISTIC)


def place_mixed(
    tree: NetworkTopology, demand: GangDemand, *, fit_error: str = "", limits: Limits
) -> GangPlacement | GangShortfall:
    """Place members that compete for amounts; see :mod:`koordcore.allocators.gang.objective`.

    The answer is proven unless the budget of ``limits`` runs out; then the best one found comes with its
    bound.

    Raises
    ------
    SolverError
        When an answer fails its own check: a defect.
    """
    terms = terms_of(tree, demand, combined_slots(demand))
    if terms.must_depth is None:
        return _shortfall(terms, fit_error, placeable=0)
    model = GangModel(tree, [terms])
    quick = greedy_places(terms)
    hint = [] if quick is None else model.hint(*class_counts(model, 0, quick))
    complete = quick is not None and len(quick) == demand.size and model.program.holds(hint)
    floors = [fewest_domains(terms, depth) if complete else 0 for depth in terms.order]
    if quick is None or not complete or _above_floors(terms, quick, floors):
        model.sharpen()
    plan = model.stages([0], floors)
    outcome = solve(model.program, plan.stages, hint=hint, limits=limits, presolve=Presolve.LIGHT)
    if not outcome.solved:
        known = outcome.status is OutcomeStatus.INFEASIBLE
        placeable = _most_placeable(tree, demand, limits) if known else -1
        return _shortfall(terms, fit_error, placeable=placeable, proven=known)
    nodes = name_members(model, 0, outcome.values)
    return placement_of(terms, nodes, plan.unpack(outcome.bound))


def _above_floors(terms: Terms, placed: Mapping[str, int], floors: Sequence[int]) -> bool:
    """Tell whether a placement opens more domains above the nodes than is known to be needed."""
    counts = np.bincount(list(placed.values()), minlength=len(terms.tree.nodes))
    opened = terms.evaluate(counts)[1:]
    return any(
        reached > floor
        for reached, floor, depth in zip(opened, floors, terms.order, strict=False)
        if depth < len(terms.tree.layers)
    )


def combined_slots(demand: GangDemand) -> IntVector:
    """Offer slots of all shapes together: each shape by itself, at most its number of members."""
    counts = [0] * len(demand.shapes)
    for role in demand.roles:
        for member in role.members:
            counts[member.shape] += 1
    offers = [np.clip(shape.slots, 0, count) for shape, count in zip(demand.shapes, counts, strict=True)]
    total: IntVector = np.stack(offers).sum(axis=0)
    return total


def fewest_domains(terms: Terms, depth: int) -> int:
    """Bound from below how many domains of a depth all members need, bound ones being free.

    Counted per shape and per resource: the largest domains first until the demand is covered.
    """
    tree, demand = terms.tree, terms.demand
    span = slice(tree.layer_start[depth], tree.layer_start[depth + 1])
    held = terms.bound[span] > 0
    wanted = np.zeros(len(demand.shapes), dtype=np.int64)
    for role in demand.roles:
        for member in role.members:
            wanted[member.shape] += 1
    usable = np.stack([shape.slots > 0 for shape in demand.shapes]).any(axis=0)
    needs = [
        (np.minimum(shape.slots, count), int(count))
        for shape, count in zip(demand.shapes, wanted, strict=True)
    ]
    for row in range(demand.free.shape[0]):
        asked = sum(int(count) * int(s.request[row]) for count, s in zip(wanted, demand.shapes, strict=True))
        needs.append((np.maximum(demand.free[row], 0) * usable, asked))
    fewest = 0
    for per_node, asked in needs:
        amounts = tree.sum_up(per_node)[span]
        asked -= int(amounts[held].sum())  # noqa: PLW2901 - what is left to cover
        if asked > 0:
            covered = np.cumsum(np.sort(amounts[~held])[::-1])
            fewest = max(fewest, int(np.searchsorted(covered, asked)) + 1)
    return fewest


def class_counts(
    model: GangModel, gang: int, placed: Mapping[str, int]
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int, int], int]]:
    """Count a placement by node and class, and by role and class."""
    index = {(c.gang, c.shape, c.role): number for number, c in enumerate(model.classes)}
    counts: dict[tuple[int, int], int] = {}
    shares: dict[tuple[int, int, int], int] = {}
    for number, role in enumerate(model.objectives[gang].demand.roles):
        own = number if role.must_layer else None
        for member in role.members:
            if member.key in placed:
                kind = index[gang, member.shape, own]
                at, of = (placed[member.key], kind), (gang, number, kind)
                counts[at] = counts.get(at, 0) + 1
                shares[of] = shares.get(of, 0) + 1
    return counts, shares


def name_members(model: GangModel, gang: int, values: Sequence[int]) -> dict[str, str]:
    """Turn counts into members: in every class consecutive ranks go to neighbouring places."""
    places = model.decode(values)
    nodes: dict[str, str] = {}
    for kind, c in enumerate(model.classes):
        if c.gang != gang:
            continue
        chosen = [
            member
            for number, role in enumerate(model.objectives[gang].demand.roles)
            if (gang, number, kind) in model.shares
            for member in rank_order(m for m in role.members if m.shape == c.shape)[
                : values[model.shares[gang, number, kind]]
            ]
        ]
        spots = [model.tree.nodes[node] for node, count in places[kind] for _ in range(count)]
        nodes |= {member.key: spot for member, spot in zip(rank_order(chosen), spots, strict=True)}
    return nodes


def placement_of(terms: Terms, nodes: Mapping[str, str], bound: tuple[int, ...]) -> GangPlacement:
    """Check an answer and write it down with its certificate; ``bound`` is what the solver has proven.

    Raises
    ------
    SolverError
        When the answer breaks a rule or contradicts the bound.
    """
    tree, demand = terms.tree, terms.demand
    broken = placement_violations(tree, demand, nodes)
    if broken:
        raise SolverError("the planned placement is not legal: " + "; ".join(broken))
    counts = np.zeros(len(tree.nodes), dtype=np.int64)
    for node in nodes.values():
        counts[tree.node_index[node]] += 1
    objective = terms.evaluate(counts)
    if objective < bound:
        raise SolverError(f"the placement has objective {objective}, the proof says {bound}")
    certificate = Certificate.make_bounded(objective, bound)
    members = demand.members
    return GangPlacement(
        nodes=immutabledict((member.key, nodes[member.key]) for member in members if member.key in nodes),
        left_out=tuple(member.key for member in members if member.key not in nodes),
        certificate=certificate,
        objective_layers=tuple(tree.layers[depth - 1] for depth in terms.order),
        domains=domains_used(tree, counts),
    )


def _most_placeable(tree: NetworkTopology, demand: GangDemand, limits: Limits) -> int:
    """Most members that fit when no minimum is asked for; -1 when that is not known."""
    roles = tuple(attrs.evolve(role, min_available=0) for role in demand.roles)
    relaxed = attrs.evolve(demand, roles=roles, min_roles=None)
    model = GangModel(tree, [terms_of(tree, relaxed, combined_slots(relaxed))])
    outcome = solve(model.program, model.stages([0]).stages[:1], limits=limits)
    return -outcome.objective[0] if outcome.status is OutcomeStatus.OPTIMAL else -1


def _shortfall(terms: Terms, fit_error: str, *, placeable: int, proven: bool = True) -> GangShortfall:
    demand, tree = terms.demand, terms.tree
    offered = shared_slots(
        demand.members,
        [shape.request for shape in demand.shapes],
        [shape.slots for shape in demand.shapes],
        demand.free,
    )
    shown = terms_of(tree, demand, offered)
    if proven:
        return explain_shortfall(shown, fit_error=fit_error, placeable=placeable)
    return explain_shortfall(shown, fit_error=fit_error, placeable=placeable, certificate=UNKNOWN)
