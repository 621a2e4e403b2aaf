"""Several gangs of a queue at once: which of them start, and where, so that most of them do.

One by one, an early gang takes the block that only a later one needs. Planned together, the gangs share one
integer program; the answer of the one-by-one plan is its starting point, so the result is never worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._cpsat import Presolve, Stage, solve
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, IntMatrix, Shape
from koordcore.allocators.gang.mixed import class_counts, combined_slots, name_members
from koordcore.allocators.gang.model import GangModel
from koordcore.allocators.gang.objective import terms_of
from koordcore.allocators.gang.planner import place_gang
from koordcore.errors import ModelError, SolverError
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.topology.network import NetworkTopology

__all__ = ["QueuePlan", "QueuedGang", "plan_in_order", "plan_queue", "queue_objective"]


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
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
    """

    placements: immutabledict[str, immutabledict[str, str]]
    waiting: tuple[str, ...]
    certificate: Certificate


def plan_in_order(tree: NetworkTopology, gangs: Sequence[QueuedGang]) -> QueuePlan:
    """Place one gang after the other, each as well as possible on what the earlier ones left."""
    _check_shared(gangs)
    used = np.zeros((len(gangs[0].demand.shapes) if gangs else 0, len(tree.nodes)), dtype=np.int64)
    placements: dict[str, immutabledict[str, str]] = {}
    for gang in gangs:
        placed = place_gang(tree, _after(gang.demand, used))
        if isinstance(placed, GangPlacement):
            placements[gang.name] = placed.nodes
            _count(tree, gang.demand, placed.nodes, used)
    return _plan(tree, gangs, placements, None)


def plan_queue(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], *, limits: Limits = DEFAULT_LIMITS
) -> QueuePlan:
    """Place as many gangs as possible, high priorities first, then as many members, then gathered best.

    Each gang that starts gets its minimum at least and keeps all its rules. The number of gangs and the
    gathering are proven as far as the budget goes; the certificate says how far that was.

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
    model = GangModel(tree, [terms[number] for number in able], optional=True)
    _order_alike(model, [gangs[number] for number in able])
    hint = _hint(model, tree, [gangs[number] for number in able], start)
    outcome = solve(
        model.program,
        _stages(model, [gangs[number] for number in able]),
        hint=hint,
        limits=limits,
        presolve=Presolve.LIGHT,
    )
    if not outcome.solved:
        return start
    placements: dict[str, immutabledict[str, str]] = {}
    for index, number in enumerate(able):
        nodes = name_members(model, index, outcome.values)
        if nodes:
            placements[gangs[number].name] = immutabledict(nodes)
    return _plan(tree, gangs, placements, outcome.bound)


def queue_objective(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Mapping[str, Mapping[str, str]]
) -> tuple[int, ...]:
    """Compute the objective of a plan; see :class:`QueuePlan`."""
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
            domains[depth - 1] += sum(bound is None or bound[domain] == 0 for domain in used)
    return (*placed, members, *domains)


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


def _count(tree: NetworkTopology, demand: GangDemand, nodes: Mapping[str, str], used: IntMatrix) -> None:
    """Add a placement to the members per shape and node."""
    shape_of = {member.key: member.shape for role in demand.roles for member in role.members}
    for key, node in nodes.items():
        used[shape_of[key], tree.node_index[node]] += 1


def _after(demand: GangDemand, used: IntMatrix) -> GangDemand:
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
        shapes.append(Shape(slots=np.maximum(slots, 0), request=shape.request))
    return attrs.evolve(demand, shapes=tuple(shapes), free=free)


def _order_alike(model: GangModel, gangs: Sequence[QueuedGang]) -> None:
    """Of gangs that are alike the earlier one starts first; without loss, and much faster to prove."""
    last: dict[object, int] = {}
    for index, gang in enumerate(gangs):
        demand = gang.demand
        if len(demand.bound) and demand.bound.any():
            continue
        kind = (
            gang.priority,
            demand.spec,
            demand.min_roles,
            tuple(
                (role.min_available, role.must_layer, tuple(sorted(member.shape for member in role.members)))
                for role in demand.roles
            ),
        )
        before, now = (model.on[last[kind]] if kind in last else None), model.on[index]
        if before is not None and now is not None:
            model.program.require([(now, 1), (before, -1)], at_most=0)
        last[kind] = index


def _stages(model: GangModel, gangs: Sequence[QueuedGang]) -> list[Stage]:
    tiers = sorted({gang.priority for gang in gangs}, reverse=True)
    everyone = range(len(gangs))
    switches = [(gang.priority, on) for gang, on in zip(gangs, model.on, strict=True) if on is not None]
    stages = [Stage([(on, -1) for priority, on in switches if priority == tier]) for tier in tiers]
    stages.append(Stage([(variable, -1) for index in everyone for variable, _ in model.terms(index)]))
    stages += [Stage(model.opened(everyone, depth)) for depth in range(1, len(model.tree.layers))]
    return stages


def _hint(
    model: GangModel, tree: NetworkTopology, gangs: Sequence[QueuedGang], start: QueuePlan
) -> list[int]:
    """Write the one-by-one plan as values of all variables."""
    counts: dict[tuple[int, int], int] = {}
    shares: dict[tuple[int, int, int], int] = {}
    for index, gang in enumerate(gangs):
        placed = start.placements.get(gang.name)
        rows = {} if placed is None else {key: tree.node_index[node] for key, node in placed.items()}
        at, of = class_counts(model, index, rows)
        counts |= at
        shares |= of
    return model.hint(counts, shares)


def _plan(
    tree: NetworkTopology,
    gangs: Sequence[QueuedGang],
    placements: Mapping[str, immutabledict[str, str]],
    bound: tuple[int, ...] | None,
) -> QueuePlan:
    """Check a plan gang by gang on what the others leave, and write it down."""
    used = np.zeros((len(gangs[0].demand.shapes) if gangs else 0, len(tree.nodes)), dtype=np.int64)
    for gang in gangs:
        nodes = placements.get(gang.name)
        if nodes:
            broken = placement_violations(tree, _after(gang.demand, used), nodes)
            if broken:
                raise SolverError(f"the plan for {gang.name} is not legal: " + "; ".join(broken))
            _count(tree, gang.demand, nodes, used)
    kept = immutabledict((gang.name, placements[gang.name]) for gang in gangs if placements.get(gang.name))
    objective = queue_objective(tree, gangs, kept)
    if bound is None:
        certificate = Certificate(CertificateStatus.HEURISTIC, objective)
    else:
        certificate = Certificate.make_bounded(objective, min(bound, objective))
    waiting = tuple(gang.name for gang in gangs if gang.name not in kept)
    return QueuePlan(placements=kept, waiting=waiting, certificate=certificate)
