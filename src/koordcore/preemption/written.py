"""Writing a plan: which member goes where, who leaves, and what else there would have been."""

from __future__ import annotations

import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.allocators.gang.demand import rank_order
from koordcore.model.certificates import Certificate
from koordcore.model.decisions import Victim
from koordcore.model.naming import natural_key
from koordcore.model.pods import PodKey
from koordcore.model.preemption import (
    Alternative,
    Damage,
    Move,
    PreemptionPlan,
)
from koordcore.preemption.cost import broken_jobs
from koordcore.preemption.lone import Plan
from koordcore.preemption.moves import movers
from koordcore.preemption.problem import PreemptionProblem


@record(eq=False)
class Found:
    """A plan in counts with what is known about it, and where it gathers."""

    counts: IntMatrix
    chosen: BoolVector
    moves: IntVector
    damage: Damage
    certificate: Certificate
    depth: int
    other: Plan | None = None
    """The cheapest plan elsewhere, where one member has been looked for."""


def deal_members(problem: PreemptionProblem, counts: IntMatrix) -> tuple[dict[str, str], tuple[str, ...]]:
    """Hand the places out, lowest ranks first, neighbours to neighbours.

    Parameters
    ----------
    counts
        Members per class and node, shape (C, N).

    Returns
    -------
    nodes
        Node of every member with a place, in rank order.
    left_out
        The others, in rank order.
    """
    order = _leaf_order(problem, np.flatnonzero(counts.any(axis=0)).tolist())
    places: list[list[str]] = []
    for row in counts:
        places.append([problem.nodes[node] for node in order for _ in range(int(row[node]))])
    number = {pair: position for position, pair in enumerate(problem.classes)}
    role_of = {member.key: index for index, role in enumerate(problem.roles) for member in role.members}
    taken: dict[str, str] = {}
    left_out: list[str] = []
    for member in rank_order(problem.members):
        own = places[number[role_of[member.key], member.shape]]
        if own:
            taken[member.key] = own.pop(0)
        else:
            left_out.append(member.key)
    return taken, tuple(left_out)


def _leaf_order(problem: PreemptionProblem, rows: list[int]) -> list[int]:
    position: IntVector = problem.place
    return sorted(
        rows,
        key=lambda row: (int(position[row]) < 0, int(position[row]), natural_key(problem.nodes[row])),
    )


def write_plan(problem: PreemptionProblem, found: Found) -> PreemptionPlan:
    """Write down what was found: names for rows, and where everybody goes."""
    nodes, left_out = deal_members(problem, found.counts)
    layer, domain = _where(problem, found)
    moving = movers(found.moves).tolist()
    going = {problem.candidates.keys[one]: int(found.moves[one]) for one in moving}
    victims = victims_of(problem, found.chosen)
    return PreemptionPlan(
        nominations=immutabledict(nodes),
        left_out=left_out,
        victims=victims,
        moves=tuple(
            sorted(
                (
                    Move(victim, problem.nodes[going[str(victim.pod)]])
                    for victim in victims
                    if str(victim.pod) in going
                ),
                key=lambda move: move.victim.pod,
            )
        ),
        broken=tuple(
            problem.jobs.names[job]
            for job in np.flatnonzero(broken_jobs(problem, found.chosen)).tolist()
            if problem.jobs.gang[job]
        ),
        damage=found.damage,
        certificate=found.certificate,
        layer=layer,
        domain=domain,
        alternative=None if found.other is None else _elsewhere(problem, layer, found.other),
    )


def _elsewhere(problem: PreemptionProblem, layer: str, other: Plan) -> Alternative:
    """Name a plan on another node."""
    cost, row, _ = other
    tree = problem.tree
    depth = tree.depth_of(layer) if tree is not None else None
    where = problem.nodes[row]
    if tree is not None and depth:
        where = tree.label(int(tree.ancestors[depth][problem.place[row]]))
    return Alternative(Damage(*cost), where)


def victims_of(problem: PreemptionProblem, chosen: BoolVector) -> tuple[Victim, ...]:
    """List who leaves, by node, then name."""
    table = problem.candidates
    listed = [
        Victim(
            pod=PodKey(*table.keys[one].split("/", 1)),
            node=problem.nodes[int(table.node[one])],
            priority=int(table.priority[one]),
            job=problem.jobs.names[int(table.job[one])],
        )
        for one in np.flatnonzero(chosen).tolist()
    ]
    return tuple(sorted(listed, key=lambda victim: (victim.node, victim.pod)))


def _where(problem: PreemptionProblem, found: Found) -> tuple[str, str]:
    """Name the deepest domain that holds all members."""
    tree = problem.tree
    used = np.flatnonzero(found.counts.any(axis=0))
    if tree is None or not len(used):
        return "", ""
    for depth in range(len(tree.layers), 0, -1):
        homes = set(tree.ancestors[depth][problem.place[used]].tolist())
        if len(homes) == 1:
            (domain,) = homes
            return tree.layer_of(domain), tree.names[domain]
    return tree.layer_of(0), ""
