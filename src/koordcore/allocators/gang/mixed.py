"""The best placement of a gang with several shapes or with roles of their own, by integer programming.

Greedy first, bound second, solver third: where a quick placement meets the bounds nothing is solved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._certify import certified, certify
from koordcore._cpsat import OutcomeStatus, Presolve, solve
from koordcore.allocators.gang.bounds import BoolVector, fewest_domains, useful_nodes
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import (
    GangDemand,
    GangPlacement,
    GangShortfall,
    IntVector,
    rank_order,
)
from koordcore.allocators.gang.greedy import greedy_places
from koordcore.allocators.gang.lacking import lacking_of
from koordcore.allocators.gang.model import GangModel
from koordcore.allocators.gang.objective import Terms, domains_used, gathering_problem, terms_of
from koordcore.allocators.gang.shortfall import explain_shortfall
from koordcore.allocators.gang.slices import best_slices, slices_of
from koordcore.allocators.gang.slots import shared_slots
from koordcore.errors import SolverError
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.gangs import GangFit
from koordcore.topology.network import NetworkTopology

_EVIDENT: Final = 1000
"""Nodes up to which evidence is looked for."""
_SMALL: Final = 128
"""The same where the answer itself needs no solver."""
_RAISES: Final = 8
"""Numbers of opened nodes that are refuted one after the other before the whole program is asked."""
_LEAST_BUDGET: Final = 1e-9


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
    slots = combined_slots(demand)
    terms = terms_of(tree, demand, slots)
    if terms.must_depth is None:
        nowhere = Certificate.make_infeasible(gathering_problem(terms, slots))
        return _shortfall(terms, fit_error, placeable=0, certificate=nowhere)
    slices = None if demand.limits else slices_of(tree, demand)
    if slices is not None:
        return _sliced(terms, best_slices(tree, demand, slices, slots), fit_error, limits)
    search = _Search(terms, limits)
    lean = search.at_floors()
    if lean is not None:
        return lean
    model = GangModel(tree, [terms], usable=search.reachable_nodes())
    hint = search.hint(model)
    if not search.complete or search.above_floors():
        model.sharpen()
    plan = model.stages([0], search.floors)
    outcome = solve(model.program, plan.stages, hint=hint, limits=search.left, presolve=Presolve.LIGHT)
    if not outcome.solved:
        known = outcome.status is OutcomeStatus.INFEASIBLE
        placeable = _most_placeable(tree, demand, limits) if known else -1
        certificate = certify(model.program.problem(), outcome, search.left)
        return _shortfall(terms, fit_error, placeable=placeable, certificate=certificate)
    nodes = name_members(model, 0, outcome.values)
    return placement_of(terms, nodes, plan.unpack(outcome.bound), search.left)


def _sliced(
    terms: Terms, found: GangPlacement | int, fit_error: str, limits: Limits
) -> GangPlacement | GangShortfall:
    """Add evidence to an answer of the tables where the program that gives it is small."""
    small = np.count_nonzero(terms.slots[terms.tree.first_node :]) <= _SMALL
    if isinstance(found, GangPlacement):
        known = _evident(terms, found.nodes, found.certificate, limits) if small else found.certificate
        return attrs.evolve(found, certificate=known)
    nowhere = Certificate.make_infeasible()
    if small:
        nowhere = certified(GangModel(terms.tree, [terms]).program.problem(), None, limits)
    return _shortfall(terms, fit_error, placeable=found, certificate=nowhere)


def _within_limits(demand: GangDemand, quick: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Give a quick placement; ``None`` for one that uses more than what all members share."""
    if quick is None or not demand.limits:
        return quick
    counts = [0] * len(demand.shapes)
    for member in demand.members:
        counts[member.shape] += member.key in quick
    return quick if all(limit.holds(counts) for limit in demand.limits) else None


class _Search:
    """What is known of one gang before the whole program is asked: a quick placement, and bounds.

    Where as few domains suffice as the bounds say, and that is the usual case, only the nodes that such a
    placement may use are looked at.
    """

    def __init__(self, terms: Terms, limits: Limits) -> None:
        self.terms = terms
        self.left = limits
        self.quick = _within_limits(terms.demand, greedy_places(terms))
        self.complete = self.quick is not None and len(self.quick) == terms.demand.size
        if self.complete and self.quick is not None:
            self.complete = not placement_violations(terms.tree, terms.demand, self._named(self.quick))
        self._depths = terms.order[:-1] if terms.snug else terms.order
        """Those whose number of domains nothing but other numbers of domains comes before."""
        self.floors = [fewest_domains(terms, depth) if self.complete else 0 for depth in self._depths]

    def _named(self, placed: Mapping[str, int]) -> dict[str, str]:
        names = self.terms.tree.nodes
        return {key: names[node] for key, node in placed.items()}

    @cached_property
    def _opened(self) -> tuple[int, ...]:
        """Domains that the quick placement opens, in the order of the objective."""
        counts = np.bincount(list((self.quick or {}).values()), minlength=len(self.terms.tree.nodes))
        return self.terms.evaluate(counts)[1 : len(self._depths) + 1]

    def above_floors(self) -> bool:
        """Tell whether the quick placement opens more domains above the nodes than is known to be needed."""
        leaf = len(self.terms.tree.layers)
        known = zip(self._opened, self.floors, self._depths, strict=True)
        return any(reached > floor for reached, floor, depth in known if depth < leaf)

    def hint(self, model: GangModel) -> list[int]:
        """Write the quick placement as values of all variables; empty where there is none."""
        return (
            [] if self.quick is None else model.hint(*class_counts(model, 0, self.terms.demand, self.quick))
        )

    def _useful(self, most: Sequence[int]) -> BoolVector:
        limits = dict(zip(self._depths, most, strict=False))
        if not self.terms.bound[0]:
            limits |= dict.fromkeys(range(1, (self.terms.must_depth or 0) + 1), 1)
        return useful_nodes(self.terms, limits)

    def reachable_nodes(self) -> BoolVector | None:
        """Mark the nodes that a placement no worse than the quick one may use; None for no limit."""
        if not self.complete or not self.terms.demand.size:
            return None
        met = list(takewhile(lambda pair: pair[0] == pair[1], zip(self._opened, self.floors, strict=True)))
        return self._useful(self._opened[: len(met) + 1]) | (
            self.terms.bound[self.terms.tree.first_node :] > 0
        )

    def at_floors(self) -> GangPlacement | None:
        """Find the best placement among those that open no more domains than the bounds say.

        Where there is none, and only the count of the last layer can be the reason, that floor is raised;
        None leaves the question to the whole program.
        """
        if not self.complete or not self.terms.demand.size or not self.floors:
            return None
        only_last = self._opened[:-1] == tuple(self.floors[:-1])
        for _ in range(_RAISES):
            usable = self._useful(self.floors)
            if not usable.any():
                status = OutcomeStatus.INFEASIBLE
            else:
                status, placed = self._solve_within(usable)
                if placed is not None:
                    return placed
            if status is not OutcomeStatus.INFEASIBLE or not only_last:
                return None
            self.floors[-1] += 1
        return None

    def _solve_within(self, usable: BoolVector) -> tuple[OutcomeStatus, GangPlacement | None]:
        """Solve with the numbers of opened domains fixed to their floors."""
        terms, size = self.terms, self.terms.demand.size
        usable = usable | (terms.bound[terms.tree.first_node :] > 0)
        model = GangModel(terms.tree, [terms], usable=usable)
        plan = model.stages([0], self.floors)
        counts = (*started_of(terms.demand, None), -size)
        fixed = len(counts) + len(self.floors)
        for stage, most in zip(plan.stages[:fixed], (*counts, *self.floors), strict=True):
            model.program.require(stage.terms, at_most=most)
        budget = attrs.evolve(self.left, deterministic_time=self.left.deterministic_time / 2)
        outcome = solve(
            model.program, plan.stages[fixed:], hint=self.hint(model), limits=budget, presolve=Presolve.LIGHT
        )
        left = max(_LEAST_BUDGET, self.left.deterministic_time - outcome.deterministic_time)
        self.left = attrs.evolve(self.left, deterministic_time=left)
        if not outcome.solved:
            return outcome.status, None
        rest = attrs.evolve(plan, stages=plan.stages[fixed:], spans=plan.spans[fixed:])
        bound = (*counts, *self.floors, *rest.unpack(outcome.bound))
        return outcome.status, placement_of(terms, name_members(model, 0, outcome.values), bound, self.left)


def combined_slots(demand: GangDemand) -> IntVector:
    """Offer slots of all shapes together: each shape by itself, at most its number of members.

    For the tightest fit they are counted whole, as long as any member is of the shape.
    """
    counts = [0] * len(demand.shapes)
    for role in demand.roles:
        for member in role.members:
            counts[member.shape] += 1
    whole = demand.fit is GangFit.TIGHTEST_FIT
    most = [np.iinfo(np.int64).max if whole and count else count for count in counts]
    offers = [np.clip(shape.slots, 0, many) for shape, many in zip(demand.shapes, most, strict=True)]
    total: IntVector = np.stack(offers).sum(axis=0)
    return total


def class_counts(
    model: GangModel, gang: int, demand: GangDemand, placed: Mapping[str, int]
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int, int], int]]:
    """Count a gang's placement by node and class, and by role and class."""
    index = {(c.gang, c.shape, c.role): number for number, c in enumerate(model.classes)}
    counts: dict[tuple[int, int], int] = {}
    shares: dict[tuple[int, int, int], int] = {}
    for number, role in enumerate(demand.roles):
        own = demand.alike[number] if demand.apart[number] else None
        for member in role.members:
            if member.key in placed:
                kind = index[gang, member.shape, own]
                at, of = (placed[member.key], kind), (gang, number, kind)
                counts[at] = counts.get(at, 0) + 1
                shares[of] = shares.get(of, 0) + 1
    return counts, shares


def name_members(model: GangModel, gang: int, values: Sequence[int]) -> dict[str, str]:
    """Turn counts into members: in every class consecutive ranks go to neighbouring places."""
    places, roles = model.decode(values), model.roles[gang]
    demand = model.objectives[gang].demand
    nodes: dict[str, str] = {}
    for kind, c in enumerate(model.classes):
        if c.gang != gang:
            continue
        spots = [model.tree.nodes[node] for node, count in places[kind] for _ in range(count)]
        if c.role in roles.herds:
            # A domain holds whole roles, so that one role after the other finds its places together.
            alike = [role for role, first in zip(demand.roles, demand.alike, strict=True) if first == c.role]
            started = alike[: values[roles.herds[c.role]]]
            chosen = [
                m for role in started for m in rank_order(m for m in role.members if m.shape == c.shape)
            ]
        else:
            chosen = rank_order(
                member
                for number, role in enumerate(demand.roles)
                if (number, kind) in roles.shares
                for member in rank_order(m for m in role.members if m.shape == c.shape)[
                    : values[roles.shares[number, kind]]
                ]
            )
        nodes |= {member.key: spot for member, spot in zip(chosen, spots, strict=True)}
    return nodes


def placement_of(
    terms: Terms, nodes: Mapping[str, str], bound: tuple[int, ...], limits: Limits
) -> GangPlacement:
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
    objective = (*started_of(demand, nodes), *terms.evaluate(counts))
    if objective < bound:
        raise SolverError(f"the placement has objective {objective}, the proof says {bound}")
    certificate = Certificate.make_bounded(objective, bound)
    if certificate.proven:
        certificate = _evident(terms, nodes, certificate, limits)
    members = demand.members
    return GangPlacement(
        nodes=immutabledict((member.key, nodes[member.key]) for member in members if member.key in nodes),
        left_out=tuple(member.key for member in members if member.key not in nodes),
        certificate=certificate,
        objective_layers=tuple(tree.layers[depth - 1] for depth in terms.order),
        domains=domains_used(tree, counts),
    )


def _evident(terms: Terms, nodes: Mapping[str, str], certificate: Certificate, limits: Limits) -> Certificate:
    """Look for evidence over all nodes, whatever the solver was shown; large clusters go without."""
    tree = terms.tree
    if np.count_nonzero(terms.slots[tree.first_node :]) > _EVIDENT:
        return certificate
    model = GangModel(tree, [terms])
    model.sharpen()
    rows = {key: tree.node_index[node] for key, node in nodes.items()}
    values = model.hint(*class_counts(model, 0, terms.demand, rows))
    if not model.program.holds(values):
        return certificate
    found = certified(model.program.problem(model.parts([0])), values, limits)
    return found if found.objective == certificate.objective else certificate


def started_of(demand: GangDemand, nodes: Mapping[str, str] | None) -> tuple[int, ...]:
    """Count the roles that start, negated; all that may where no placement is given; empty without units."""
    if not demand.units:
        return ()
    able = [role for role in demand.roles if not role.started and role.members]
    return (-sum(nodes is None or any(m.key in nodes for m in role.members) for role in able),)


def _most_placeable(tree: NetworkTopology, demand: GangDemand, limits: Limits) -> int:
    """Most members that fit when no minimum is asked for; -1 when that is not known."""
    roles = tuple(attrs.evolve(role, min_available=0, unit=-1) for role in demand.roles)
    relaxed = attrs.evolve(demand, roles=roles, min_roles=None, units=(), quorums=())
    model = GangModel(tree, [terms_of(tree, relaxed, combined_slots(relaxed))])
    outcome = solve(model.program, model.stages([0]).stages[:1], limits=limits)
    return -outcome.objective[0] if outcome.status is OutcomeStatus.OPTIMAL else -1


def _shortfall(terms: Terms, fit_error: str, *, placeable: int, certificate: Certificate) -> GangShortfall:
    demand, tree = terms.demand, terms.tree
    offered = shared_slots(
        demand.members,
        [shape.request for shape in demand.shapes],
        [shape.slots for shape in demand.shapes],
        demand.free,
    )
    shown = terms_of(tree, demand, offered)
    lacking = lacking_of(terms) if certificate.proven else "no placement was found within the budget"
    return explain_shortfall(
        shown,
        fit_error=fit_error,
        placeable=placeable,
        lacking=lacking,
        certificate=certificate,
    )
