"""What ``docs/loops.md`` proves by: a quantity that no step lowers, and that every eviction raises."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from koordcore.simulate import KNOWN_RULES, LoopPod, LoopWorld, find_loop
from koordcore.simulate.loop_moves import LoopMoves, starts
from koordcore.simulate.loop_search import nested_worlds, small_worlds
from koordcore.simulate.loop_worlds import (
    WAITS,
    State,
)
from tests.reference.loop_order import standing

ALL = KNOWN_RULES["koordcore-all"]


def holds(moves: LoopMoves, state: State) -> list[State]:
    """Look at every step from a state; give where they lead."""
    before, ends = standing(moves, state), []
    for step in moves.steps(state):
        after = standing(moves, step.after)
        assert after > before if step.evicted else after >= before, (moves.world, step)
        ends.append(step.after)
    return ends


@pytest.mark.parametrize(("pods", "every"), [(2, 1), (3, 499)])
def test_it_holds_for_every_step_of_small_worlds(pods: int, every: int) -> None:
    for world in islice(small_worlds(pods), 0, None, every):
        moves = LoopMoves(world, ALL)
        todo, seen = list(starts(world)), set[State]()
        while todo:
            state = todo.pop()
            if state not in seen:
                seen.add(state)
                todo += holds(moves, state)


def test_it_holds_on_the_way_through_larger_worlds() -> None:
    """Up to nine pods on four nodes with three quotas, amounts to 4, and priorities to 3."""
    luck = random.Random(3)
    for world, state in (drawn(luck) for _ in range(150)):
        moves, at = LoopMoves(world, ALL), state
        for _ in range(60):
            ends = holds(moves, at)
            if not ends:
                break
            at = luck.choice(ends)


def test_nested_quotas_come_to_rest_as_well() -> None:
    assert all(find_loop(world, ALL) is None for world in islice(nested_worlds(2), 0, None, 13))


def drawn(luck: random.Random) -> tuple[LoopWorld, State]:
    """Draw a world, and where its pods are."""
    left = [luck.randint(1, 8) for _ in range(luck.randint(1, 4))]
    nodes, least = tuple(left), [luck.randint(0, 6) for _ in range(luck.randint(0, 3))]
    quotas = tuple((one, one + luck.randint(0, 6)) for one in least)
    state: list[int] = []
    pods = tuple(
        LoopPod(luck.randint(1, 4), luck.randint(0, 3), luck.randrange(-1, len(quotas)))
        for _ in range(luck.randint(4, 9))
    )
    for pod in pods:
        fitting = [number for number, room in enumerate(left) if room >= pod.amount]
        if fitting and luck.random() < 0.6:
            state.append(luck.choice(fitting))
            left[state[-1]] -= pod.amount
        else:
            state.append(WAITS)
    return LoopWorld(nodes, quotas, pods), tuple(state)
