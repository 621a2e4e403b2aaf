"""Whether rules that move pods can go round for ever: all that can happen in small worlds, searched.

Whatever a scheduler may do next is allowed in any order, so that a rule set without circles here has none for
any order in which pods are asked about; only who waits for room that is there now comes before the less
important. Circles need an eviction: placing alone ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.simulate.loop_moves import LoopMoves, starts
from koordcore.simulate.loop_rules import LoopRules
from koordcore.simulate.loop_worlds import (
    LoopStep,
    LoopWorld,
    State,
)


@record
class Loop:
    """A circle: after the last step everything is as it was before the first."""

    world: LoopWorld
    steps: tuple[LoopStep, ...]


def find_loop(world: LoopWorld, rules: LoopRules) -> Loop | None:
    """Search a world for a circle with an eviction; the shortest one, ``None`` where there is none.

    Every state is a start in which no node holds more than it has.

    Raises
    ------
    ModelError
        When a pod names a quota that is not there.
    """
    if any(pod.quota >= len(world.quotas) for pod in world.pods):
        raise ModelError("pods: a quota is named that is not there")
    moves = LoopMoves(world, rules)
    edges: dict[State, list[LoopStep]] = {}
    todo = list(starts(world))
    while todo:
        state = todo.pop()
        if state not in edges:
            edges[state] = list(moves.steps(state))
            todo += [step.after for step in edges[state] if step.after not in edges]
    live = _in_circles(edges)
    best: tuple[LoopStep, ...] | None = None
    for state in sorted(live):
        for step in edges[state]:
            if step.evicted and step.after in live:
                way = _way(edges, live, step.after, state, None if best is None else len(best) - 2)
                if way is not None and (best is None or len(way) + 1 < len(best)):
                    best = (step, *way)
    return None if best is None else Loop(world, best)


def _in_circles(edges: Mapping[State, Sequence[LoopStep]]) -> frozenset[State]:
    """Keep the states that nobody can tell from those of a circle: each has a way in and a way out."""
    out = {state: len(steps) for state, steps in edges.items()}
    back: dict[State, list[State]] = {}
    for state, steps in edges.items():
        for step in steps:
            back.setdefault(step.after, []).append(state)
    dead = [state for state, count in out.items() if not count]
    while dead:
        for state in back.get(dead.pop(), ()):
            out[state] -= 1
            if not out[state]:
                dead.append(state)
    return frozenset(state for state, count in out.items() if count)


def _way(
    edges: Mapping[State, Sequence[LoopStep]],
    live: frozenset[State],
    start: State,
    end: State,
    longest: int | None,
) -> tuple[LoopStep, ...] | None:
    """Give the shortest way from one state to another."""
    came: dict[State, LoopStep | None] = {start: None}
    todo = deque([(start, 0)])
    while todo:
        state, length = todo.popleft()
        if state == end:
            way: list[LoopStep] = []
            step = came[state]
            while step is not None:
                way.append(step)
                step = came[step.before]
            return tuple(way[::-1])
        if longest is not None and length > longest:
            return None
        for step in edges[state]:
            if step.after in live and step.after not in came:
                came[step.after] = step
                todo.append((step.after, length + 1))
    return None
