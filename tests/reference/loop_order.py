"""The quantity that ``docs/loops.md`` says rises with every eviction by our rules, counted pod by pod."""

from __future__ import annotations

from koordcore.simulate.loop_moves import LoopMoves
from koordcore.simulate.loop_worlds import (
    LEAVING,
    NOMINATED,
    State,
)

Standing = tuple[int, tuple[int, ...], tuple[int, ...], int, int]


def standing(moves: LoopMoves, state: State) -> Standing:
    """Give what is beyond every ``max``, E and N from the most important down, who runs, and the squares.

    The first and the last count negatively, so that what comes later in time is larger.
    """
    world, settled = moves.world, moves.settled(state)
    pods = world.pods
    stands = [
        0 <= at < LEAVING or (at >= NOMINATED and moves.promises(settled, pod, at - NOMINATED))
        for pod, at in enumerate(settled)
    ]
    beyond = sum(max(0, moves.used(settled, quota) - most) for quota, (_, most) in enumerate(world.quotas))
    levels = sorted({pod.priority for pod in pods}, reverse=True)
    within, counts = [], []
    for level in levels:
        some = [pod for pod, there in zip(pods, stands, strict=True) if there and pod.priority >= level]
        use = [sum(pod.amount for pod in some if pod.quota == quota) for quota in range(len(world.quotas))]
        within.append(sum(min(least, used) for (least, _), used in zip(world.quotas, use, strict=True)))
        counts.append(len(some))
    runs = sum(0 <= at < LEAVING for at in settled)
    squares = sum(moves.load(state, node) ** 2 for node in range(len(world.nodes)))
    return -beyond, tuple(within), tuple(counts), runs, -squares
