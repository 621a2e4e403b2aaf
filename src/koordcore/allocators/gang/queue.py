"""Several gangs of a queue at once: which of them start, and where, so that most of them do.

One by one, an early gang takes the block that only a later one needs. Planned together, the gangs share one
integer program; the answer of the one-by-one plan is its starting point, so the result is never worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._certify import certified
from koordcore._cpsat import Outcome, OutcomeStatus, Presolve, Stage, solve
from koordcore._record import record
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangPlacement
from koordcore.allocators.gang.mixed import class_counts, combined_slots, name_members
from koordcore.allocators.gang.model import GangModel
from koordcore.allocators.gang.objective import Terms, terms_of
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.regather import gather_again, let_in
from koordcore.allocators.gang.rivals import QueuedGang, after_members, count_members, queue_objective
from koordcore.errors import ModelError, SolverError
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.topology.network import NetworkTopology

__all__ = ["QueuePlan", "QueuedGang", "plan_in_order", "plan_queue", "queue_objective"]


@record(kw_only=True)
class QueuePlan:
    """Which gangs start and where.

    Parameters
    ----------
    placements
        Node per member key, by gang, in queue order.
    waiting
        Gangs that do not start, in queue order.
    certificate
        Gangs placed per priority from the highest down (negated), members placed (negated), then domains used
        per layer above the nodes from the top down, summed over the gangs.
    in_order
        Gangs that start one by one.
    """

    placements: immutabledict[str, immutabledict[str, str]]
    waiting: tuple[str, ...]
    certificate: Certificate
    in_order: tuple[str, ...]

    def settles_who_starts(self, tiers: int) -> bool:
        """Tell whether no plan starts more gangs, with so many priorities in the queue."""
        return self.certificate.bound[:tiers] == self.certificate.objective[:tiers]


def plan_in_order(tree: NetworkTopology, gangs: Sequence[QueuedGang]) -> QueuePlan:
    """Place one gang after the other, each as well as possible on what the earlier ones left."""
    _check_shared(gangs)
    used = np.zeros((len(gangs[0].demand.shapes) if gangs else 0, len(tree.nodes)), dtype=np.int64)
    placements: dict[str, immutabledict[str, str]] = {}
    for gang in gangs:
        placed = place_gang(tree, after_members(gang.demand, used))
        if isinstance(placed, GangPlacement):
            placements[gang.name] = placed.nodes
            count_members(tree, gang.demand, placed.nodes, used)
    return _plan(tree, gangs, placements, None, tuple(placements))


def plan_queue(
    tree: NetworkTopology,
    gangs: Sequence[QueuedGang],
    *,
    limits: Limits = DEFAULT_LIMITS,
    gathering: float = inf,
) -> QueuePlan:
    """Place as many gangs as possible, high priorities first, then as many members, then gathered best.

    Each gang that starts gets its minimum at least and keeps all its rules. The number of gangs and the
    gathering are proven as far as the budget goes; the certificate says how far that was. Whatever the
    budget, no fewer gangs of a priority start than one by one, unless more of a higher one do, and no gang
    waits for room that one of a lower priority has got.

    Parameters
    ----------
    gangs
        In queue order.
    limits
        Budget and seed of the solver.
    gathering
        Work units for the gathering at most, once it is settled who starts.

    Raises
    ------
    ModelError
        When the gangs do not share shapes and free amounts, or a name occurs twice.
    SolverError
        When the answer fails its check: a defect.
    """
    start = plan_in_order(tree, gangs)
    if not gangs:
        return start
    terms = [terms_of(tree, gang.demand, combined_slots(gang.demand)) for gang in gangs]
    able = [number for number, term in enumerate(terms) if term.must_depth is not None]
    if not able:
        return start
    herds = _herds(gangs, [(number, terms[number]) for number in able])
    model = GangModel(
        tree,
        [terms[herd[0]] for herd in herds],
        optional=True,
        copies={index: len(herd) for index, herd in enumerate(herds) if len(herd) > 1},
    )
    return _Queue(tree, gangs, herds, model, limits).plan(start, gathering)


class _Queue:
    """One call: first who starts is settled, then how they are gathered."""

    def __init__(
        self,
        tree: NetworkTopology,
        gangs: Sequence[QueuedGang],
        herds: Sequence[Sequence[int]],
        model: GangModel,
        limits: Limits,
    ) -> None:
        self._tree = tree
        self._gangs = gangs
        self._herds = [[gangs[number] for number in herd] for herd in herds]
        self._model = model
        self._limits = limits
        _order_alike(model, [herd[0] for herd in self._herds])

    def plan(self, start: QueuePlan, most: float) -> QueuePlan:
        """Plan, from a plan that is legal."""
        starting, gathering = _stages(self._model, [herd[0] for herd in self._herds])
        problem = self._model.program.problem((*starting, *gathering))
        first = self._solve(starting, start.placements, self._limits)
        if not first.solved:
            return start
        for stage, value in zip(starting, first.objective, strict=True):
            self._model.program.require(stage.terms, at_most=value)
        loose = [herd[0] for herd in self._herds if len(herd) == 1]
        better = gather_again(self._tree, self._gangs, self._placements(first.values), loose)
        left = min(most, self._limits.deterministic_time - first.deterministic_time)
        second = self._solve(
            gathering, better, attrs.evolve(self._limits, deterministic_time=max(left, 1e-9))
        )
        if not second.solved:
            raise SolverError("who starts was known, and the second answer lost it")
        proven = first.status is OutcomeStatus.OPTIMAL
        further = (
            second.bound[: len(gathering)]
            if proven
            else tuple(self._model.program.span(s.terms)[0] for s in gathering)
        )
        final = gather_again(self._tree, self._gangs, self._placements(second.values), loose)
        if not proven:
            final = let_in(self._tree, self._gangs, final)
        plan = _plan(self._tree, self._gangs, final, (*first.bound, *further), start.in_order)
        if plan.certificate.proven:
            found = certified(problem, second.values, self._limits)
            if found.objective == plan.certificate.objective:
                return attrs.evolve(plan, certificate=found)
        return plan

    def _solve(
        self, stages: Sequence[Stage], known: Mapping[str, Mapping[str, str]], limits: Limits
    ) -> Outcome:
        hint = _hint(self._model, self._tree, self._herds, known)
        return solve(self._model.program, stages, hint=hint, limits=limits, presolve=Presolve.LIGHT)

    def _placements(self, values: Sequence[int]) -> dict[str, immutabledict[str, str]]:
        """Read an answer: node per member key, by gang."""
        found: dict[str, immutabledict[str, str]] = {}
        for index, herd in enumerate(self._herds):
            if len(herd) > 1:
                found |= _name_herd(self._model, index, herd, values)
            elif nodes := name_members(self._model, index, values):
                found[herd[0].name] = immutabledict(nodes)
        return found


def _herds(gangs: Sequence[QueuedGang], able: Sequence[tuple[int, Terms]]) -> list[list[int]]:
    """Put gangs together that only their names tell apart and that lie in one domain each, in queue order.

    How many of them a domain holds is all that there is to choose; gangs without such company stay alone.
    """
    found: dict[object, list[int]] = {}
    for number, terms in able:
        kind = _kind(gangs[number]) if _whole(terms) else None
        found.setdefault(number if kind is None else kind, []).append(number)
    return list(found.values())


def _whole(terms: Terms) -> bool:
    """Tell whether a gang starts with all its members in one domain and opens no choice of further ones."""
    demand, leaf = terms.demand, len(terms.tree.layers)
    return (
        terms.must_depth in (leaf - 1, leaf)
        and terms.must_depth != 0
        and demand.size > 0
        and demand.min_roles is None
        and all(not role.must_layer and role.min_available == len(role.members) for role in demand.roles)
        and (terms.must_depth == leaf or terms.multiples[-1] == 1)
    )


def _kind(gang: QueuedGang) -> object:
    """Describe what a gang asks for apart from its names; None when bound members make it unlike others."""
    demand = gang.demand
    if len(demand.bound) and demand.bound.any():
        return None
    return (
        gang.priority,
        demand.spec,
        demand.min_roles,
        tuple(
            (role.min_available, role.must_layer, tuple(sorted(member.shape for member in role.members)))
            for role in demand.roles
        ),
    )


def _name_herd(
    model: GangModel, herd: int, gangs: Sequence[QueuedGang], values: Sequence[int]
) -> dict[str, immutabledict[str, str]]:
    """Give the earliest gangs of a kind the places of the kind, domain after domain."""
    places = model.decode(values)
    names = model.tree.nodes
    spots = {
        c.shape: iter([names[node] for node, count in places[number] for _ in range(count)])
        for number, c in enumerate(model.classes)
        if c.gang == herd
    }
    on = model.on[herd]
    started = 0 if on is None else values[on]
    return {
        gang.name: immutabledict((member.key, next(spots[member.shape])) for member in gang.demand.members)
        for gang in gangs[:started]
    }


def _check_shared(gangs: Sequence[QueuedGang]) -> None:
    if len({gang.name for gang in gangs}) != len(gangs):
        raise ModelError("a gang occurs twice in the queue")
    for gang in gangs[1:]:
        first, other = gangs[0].demand, gang.demand
        same = (
            len(first.shapes) == len(other.shapes)
            and np.array_equal(first.free, other.free)
            and all(
                np.array_equal(a.slots, b.slots) and np.array_equal(a.request, b.request)
                for a, b in zip(first.shapes, other.shapes, strict=True)
            )
        )
        if not same:
            raise ModelError(f"{gang.name} does not share the shapes and free amounts of {gangs[0].name}")


def _order_alike(model: GangModel, gangs: Sequence[QueuedGang]) -> None:
    """Of gangs that are alike the earlier one starts first; without loss, and much faster to prove."""
    last: dict[object, int] = {}
    for index, gang in enumerate(gangs):
        kind = _kind(gang)
        if kind is None or index in model.copies:
            continue
        before, now = (model.on[last[kind]] if kind in last else None), model.on[index]
        if before is not None and now is not None:
            model.program.require([(now, 1), (before, -1)], at_most=0)
        last[kind] = index


def _stages(model: GangModel, gangs: Sequence[QueuedGang]) -> tuple[list[Stage], list[Stage]]:
    """Give the objectives: who starts, and how they are gathered."""
    tiers = sorted({gang.priority for gang in gangs}, reverse=True)
    everyone = range(len(gangs))
    switches = [(gang.priority, on) for gang, on in zip(gangs, model.on, strict=True) if on is not None]
    starting = [Stage([(on, -1) for priority, on in switches if priority == tier]) for tier in tiers]
    starting.append(Stage([(variable, -1) for index in everyone for variable, _ in model.terms(index)]))
    return starting, [Stage(model.opened(everyone, depth)) for depth in range(1, len(model.tree.layers))]


def _hint(
    model: GangModel,
    tree: NetworkTopology,
    herds: Sequence[Sequence[QueuedGang]],
    known: Mapping[str, Mapping[str, str]],
) -> list[int]:
    """Write a plan as values of all variables."""
    counts: dict[tuple[int, int], int] = {}
    shares: dict[tuple[int, int, int], int] = {}
    for index, herd in enumerate(herds):
        for gang in herd:
            rows = {key: tree.node_index[node] for key, node in known.get(gang.name, {}).items()}
            at, of = class_counts(model, index, gang.demand, rows)
            for key, count in at.items():
                counts[key] = counts.get(key, 0) + count
            shares |= of
    return model.hint(counts, shares)


def _plan(
    tree: NetworkTopology,
    gangs: Sequence[QueuedGang],
    placements: Mapping[str, Mapping[str, str]],
    bound: tuple[int, ...] | None,
    in_order: tuple[str, ...],
) -> QueuePlan:
    """Check a plan gang by gang on what the others leave, and write it down."""
    used = np.zeros((len(gangs[0].demand.shapes) if gangs else 0, len(tree.nodes)), dtype=np.int64)
    for gang in gangs:
        nodes = placements.get(gang.name)
        if nodes:
            broken = placement_violations(tree, after_members(gang.demand, used), nodes)
            if broken:
                raise SolverError(f"the plan for {gang.name} is not legal: " + "; ".join(broken))
            count_members(tree, gang.demand, nodes, used)
    kept = immutabledict(
        (gang.name, immutabledict(placements[gang.name])) for gang in gangs if placements.get(gang.name)
    )
    objective = queue_objective(tree, gangs, kept)
    if bound is None:
        certificate = Certificate(CertificateStatus.HEURISTIC, objective)
    else:
        if bound > objective:
            raise SolverError(f"the plan has objective {objective}, the proof says {bound}")
        certificate = Certificate.make_bounded(objective, bound)
    waiting = tuple(gang.name for gang in gangs if gang.name not in kept)
    return QueuePlan(placements=kept, waiting=waiting, certificate=certificate, in_order=in_order)
