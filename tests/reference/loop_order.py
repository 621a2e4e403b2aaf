"""The quantity that ``docs/loops.md`` says rises with every eviction by our rules, counted pod by pod."""

from __future__ import annotations

from koordcore.simulate.loop_moves import LoopMoves
from koordcore.simulate.loop_worlds import LEAVING, NOMINATED, WAITS, State

Standing = tuple[int, tuple[int, ...], tuple[int, ...], int, int]


def given_up(moves: LoopMoves, state: State) -> State:
    """Give the state once all have given up who can no longer get the room that was made for them.

    Claims are looked at in the order in which they are heeded, each beside those before it that hold.
    """
    settled = moves.settled(state)
    claims = [pod for pod, at in enumerate(settled) if at >= NOMINATED]
    claims.sort(key=lambda pod: (not moves.promised(settled, pod), -moves.world.pods[pod].priority, pod))
    held = tuple(WAITS if at >= NOMINATED else at for at in settled)
    for pod in claims:
        beside = _put(held, pod, settled[pod])
        if moves.promises(beside, pod, settled[pod] - NOMINATED):
            held = beside
        else:
            state = _put(state, pod, WAITS)
    return state


def standing(moves: LoopMoves, state: State) -> Standing:
    """Give what is beyond every ``max``, E and N from the most important down, who runs, and the squares.

    Who runs stands, and who has a claim; nobody may have one that he should have given up. The first and the
    last count negatively, so that what comes later in time is larger.
    """
    world, settled = moves.world, moves.settled(state)
    pods = world.pods
    beyond = sum(max(0, moves.used(settled, quota) - most) for quota, (_, most) in enumerate(world.quotas))
    levels = sorted({pod.priority for pod in pods}, reverse=True)
    within, counts = [], []
    for level in levels:
        some = [pod for pod, at in zip(pods, settled, strict=True) if at >= 0 and pod.priority >= level]
        use = [sum(pod.amount for pod in some if pod.quota == quota) for quota in range(len(world.quotas))]
        within.append(sum(min(least, used) for (least, _), used in zip(world.quotas, use, strict=True)))
        counts.append(len(some))
    runs = sum(0 <= at < LEAVING for at in settled)
    squares = sum(moves.load(state, node) ** 2 for node in range(len(world.nodes)))
    return -beyond, tuple(within), tuple(counts), runs, -squares


def _put(state: State, pod: int, at: int) -> State:
    return (*state[:pod], at, *state[pod + 1 :])
