"""Rows of the cheapest victims: what members take out of a pool is there, or is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from koordcore.preemption.problem import Pool
    from koordcore.preemption.victim_program import VictimProgram


def require_pools(rows: VictimProgram) -> None:
    """Keep members within the pools."""
    for pool in rows.problem.pools:
        for row in range(len(pool.room)):
            _require(rows, pool, row)


def _require(rows: VictimProgram, pool: Pool, row: int) -> None:
    problem, program, room = rows.problem, rows.program, int(pool.room[row])
    shapes = [shape for _, shape in problem.classes]
    # Where there is less than nothing, who asks for none of it may need it there all the same.
    bound = {shape for shape in shapes if pool.uses[shape, row] > 0 or (room < 0 and shape in pool.strict)}
    coming = [
        (variable, shape)
        for (number, _), variable in rows.place.items()
        if (shape := shapes[number]) in bound
    ]
    if not coming:
        return
    moving = [] if rows.arrivals is None else [(one, shape) for (shape, _), one in rows.arrivals.at.items()]
    terms = [(variable, int(pool.uses[shape, row])) for variable, shape in (*coming, *moving)]
    terms += [
        (unit.variable, -int(pool.gives[row, list(unit.ones[: unit.step])].sum())) for unit in rows.units
    ]
    if room >= 0 or bound.issuperset(shapes):
        program.require(terms, at_most=room)
        return
    some = [variable for variable, _ in coming]
    comes = rows.following(program.boolean(), _any_of(some))
    program.require([(variable, 1) for variable in some], at_most=0, unless=[comes])
    program.require(terms, at_most=room, when=[comes])


def _any_of(variables: Sequence[int]) -> Callable[[list[int]], int]:
    return lambda values: int(any(values[one] for one in variables))
