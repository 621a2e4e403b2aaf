"""What ``docs/loops.md`` proves by: a quantity that no step lowers, and that every eviction raises."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from koordcore.simulate import KNOWN_RULES, LoopPod, LoopWorld, find_loop
from koordcore.simulate.loop_moves import LoopMoves, starts
from koordcore.simulate.loop_search import nested_worlds, small_worlds
from koordcore.simulate.loop_worlds import WAITS, LoopStep, State
from tests.reference.loop_order import given_up, standing

ALL = KNOWN_RULES["koordcore-all"]
TAKES = ("preempts", "reclaims", "makes way", "awaits")


def holds(moves: LoopMoves, state: State) -> list[tuple[LoopStep, State]]:
    """Look at every step from a state; give them with where they lead.

    Who can no longer get the room that was made for him gives up before anybody else has his turn.
    """
    before, found = standing(moves, state), []
    for step in moves.steps(state):
        end = given_up(moves, step.after)
        after = standing(moves, end)
        assert after > before if step.evicted else after >= before, (moves.world, step, end)
        found.append((step, end))
    return found


@pytest.mark.parametrize(("pods", "every"), [(2, 1), (3, 499)])
def test_it_holds_for_every_step_of_small_worlds(pods: int, every: int) -> None:
    for world in islice(small_worlds(pods), 0, None, every):
        search(world)


@pytest.mark.parametrize(("seed", "eager"), [(3, 1), (101, 6)])
def test_it_holds_on_the_way_through_larger_worlds(seed: int, eager: int) -> None:
    """Up to nine pods on four nodes with three quotas, amounts to 4, and priorities to 3."""
    luck = random.Random(seed)
    for world, state in (drawn(luck) for _ in range(150)):
        walk(luck, world, state, eager)


def test_it_holds_where_an_eviction_takes_the_part_of_somebody_who_waits() -> None:
    """``p7`` has the quota's part when it claims the room of ``p3``; ``p1``, as important, comes before."""
    pods = (
        *(LoopPod(4, 2), LoopPod(2, 3, 0), LoopPod(3, 1, 0), LoopPod(4, 3), LoopPod(1, 0, 0)),
        *(LoopPod(1, 3), LoopPod(2, 1, 0), LoopPod(3, 3, 0), LoopPod(4, 1, 0)),
    )
    moves = LoopMoves(LoopWorld((6, 3), ((1, 5),), pods), ALL)
    # p6 still goes for p7, which took the place that p3 had been promised.
    state = given_up(moves, (-1, -1, -1, 100, 1, 0, 51, 100, -1))
    assert state == (-1, -1, -1, -1, 1, 0, 51, 100, -1)
    assert [step.evicted for step, _ in holds(moves, state) if step.rule == "preempts" and step.pod == 1]


def test_nested_quotas_come_to_rest_as_well() -> None:
    assert all(find_loop(world, ALL) is None for world in islice(nested_worlds(2), 0, None, 13))


def search(world: LoopWorld) -> None:
    """Look at every step from every state that a world can come to."""
    moves = LoopMoves(world, ALL)
    todo, seen = list(starts(world)), set[State]()
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo += [end for _, end in holds(moves, state)]


def walk(luck: random.Random, world: LoopWorld, state: State, eager: int) -> None:
    """Look at every step on a random way of sixty; evictions are so many times as likely as others."""
    moves = LoopMoves(world, ALL)
    for _ in range(60):
        steps = holds(moves, state)
        if not steps:
            break
        weights = [eager if step.rule in TAKES else 1 for step, _ in steps]
        ((_, state),) = luck.choices(steps, weights)


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
