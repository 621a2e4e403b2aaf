"""The cheapest victims by trying every set: slow and obvious."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore.model.preemption import Damage, Members
from koordcore.preemption.bounds import holding, usable_up_to, widest_slots
from koordcore.preemption.cost import broken_jobs, close, damage_of
from koordcore.preemption.problem import Domains, PreemptionProblem

__all__ = ["Best", "best_by_enumeration", "best_with_moves", "holds", "is_legal"]

Mask = NDArray[np.bool_]


@attrs.frozen
class Best:
    """The least damage at which the members fit, or None when they never do."""

    damage: Damage | None


def _rooms(problem: PreemptionProblem, chosen: Mask) -> list[list[int]]:
    table = problem.candidates
    room = [[int(problem.free[r, n]) for r in range(len(problem.free))] for n in range(len(problem.nodes))]
    for one in range(len(table)):
        if chosen[one]:
            for r in range(len(problem.free)):
                room[int(table.node[one])][r] += int(table.amounts[r, one])
    return room


def holds(problem: PreemptionProblem, chosen: Mask, members: Members, moved: Mask | None = None) -> bool:
    """Place who moves and member after member on any node that takes it, going back where that fails."""
    room = _rooms(problem, chosen)
    tree, bases = problem.tree, range(len(problem.nodes))
    queue = [(index, member) for index, role in enumerate(problem.roles) for member in role.members]

    def done(counts: list[int], where: list[int]) -> bool:
        for index, role in enumerate(problem.roles):
            need = len(role.members) if members is Members.ALL else role.min_available
            if counts[index] < need:
                return False
        if tree is None or not where:
            return True
        must = problem.spec.must_layer(tree.layers)
        depth = tree.depth_of(must) if must else 0
        if depth is None or len({int(tree.ancestors[depth][problem.place[n]]) for n in where}) > 1:
            return False
        for layer, multiple in problem.spec.multiples.items():
            level = tree.depth_of(layer)
            if level is None:
                continue
            homes = [int(tree.ancestors[level][problem.place[n]]) for n in where]
            if any(homes.count(home) % multiple for home in homes):
                return False
        return True

    movers = [] if moved is None else np.flatnonzero(moved).tolist()

    def move(position: int) -> bool:
        if position == len(movers):
            return place(0, [0] * len(problem.roles), [])
        shape = problem.all_shapes[int(problem.shape_of_kind[movers[position]])]
        ask = [int(amount) for amount in shape.request]
        for node in bases:
            if shape.allowed[node] and all(
                a <= 0 or a <= left for a, left in zip(ask, room[node], strict=True)
            ):
                for r, amount in enumerate(ask):
                    room[node][r] -= amount
                found = move(position + 1)
                for r, amount in enumerate(ask):
                    room[node][r] += amount
                if found:
                    return True
        return False

    def place(position: int, counts: list[int], where: list[int]) -> bool:
        if position == len(queue):
            return done(counts, where)
        index, member = queue[position]
        shape = problem.shapes[member.shape]
        for node in bases:
            ask = [int(amount) for amount in shape.request]
            if not shape.allowed[node] or any(
                a > 0 and a > left for a, left in zip(ask, room[node], strict=True)
            ):
                continue
            for r, amount in enumerate(ask):
                room[node][r] -= amount
            counts[index] += 1
            found = place(position + 1, counts, [*where, node])
            counts[index] -= 1
            for r, amount in enumerate(ask):
                room[node][r] += amount
            if found:
                return True
        if members is not Members.ALL:
            return place(position + 1, counts, where)
        return False

    return move(0)


def best_by_enumeration(
    problem: PreemptionProblem, members: Members, fine: Callable[[Mask], bool] = lambda chosen: True
) -> Best:
    """Try every set of victims that respects the gangs, and that is fine beside the nodes."""
    sets = []
    for flags in product((False, True), repeat=len(problem.candidates)):
        chosen = np.array(flags, dtype=np.bool_)
        closed = close(problem, chosen)
        if closed is not None and (closed == chosen).all():
            sets.append((damage_of(problem, chosen), flags))
    for damage, flags in sorted(sets):
        chosen = np.array(flags, dtype=np.bool_)
        if fine(chosen) and holds(problem, chosen, members):
            return Best(damage)
    return Best(None)


def best_with_moves(problem: PreemptionProblem, members: Members) -> Best:
    """Try every set of victims, and everybody who may move or not; of a broken gang its minimum or nobody.

    Pods leave only nodes that take a member once everybody has left, in a domain that may hold the job, or
    with their gang.
    """
    table = problem.candidates
    slots = widest_slots(problem, usable_up_to(problem, None))
    target: Mask = np.asarray(slots.any(axis=0))
    tree = problem.tree
    must = problem.spec.must_layer(tree.layers) if tree is not None else ""
    if tree is not None and must:
        names = [int(tree.ancestors[tree.depth_of(must) or 0][place]) for place in problem.place]
        home = [sorted(set(names)).index(name) for name in names]
        fits = holding(problem, slots, Domains(np.array(home), max(home) + 1), members)
        target &= [bool(fits[one]) for one in home]
    concerned = {int(job) for job, node in zip(table.job, table.node, strict=True) if target[node]}
    fine = np.array([int(job) in concerned for job in table.job], dtype=np.bool_)
    sets = []
    for flags in product((False, True), repeat=len(table)):
        chosen = np.array(flags, dtype=np.bool_)
        closed = close(problem, chosen)
        if closed is None or (closed != chosen).any() or (chosen & ~fine).any():
            continue
        broken = broken_jobs(problem, chosen)
        movable = np.flatnonzero(chosen & (problem.shape_of_kind >= 0)).tolist()
        for some in product((False, True), repeat=len(movable)):
            moved = np.zeros(len(table), dtype=np.bool_)
            moved[movable] = some
            going_on = [int(moved[table.job == job].sum()) for job in np.flatnonzero(broken)]
            least = problem.jobs.least[broken].tolist()
            if all(not number or number >= one for number, one in zip(going_on, least, strict=True)):
                sets.append((damage_of(problem, chosen, moved), flags, tuple(moved.tolist())))
    for damage, flags, going in sorted(sets):
        if holds(problem, np.array(flags, np.bool_), members, np.array(going, np.bool_)):
            return Best(damage)
    return Best(None)


def is_legal(problem: PreemptionProblem, chosen: Mask) -> bool:
    """Tell whether a set of victims leaves no gang below its minimum that still holds room."""
    evicted = np.bincount(problem.candidates.job[chosen], minlength=len(problem.jobs.names))
    broken = broken_jobs(problem, chosen)
    return bool((evicted[broken] == problem.jobs.running[broken]).all())
