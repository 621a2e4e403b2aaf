"""All small worlds, for the search for loops; and what a loop says to people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations_with_replacement, product
from typing import Final

from koordcore.simulate.loop_rules import LoopRules
from koordcore.simulate.loop_worlds import (
    LoopPod,
    LoopStep,
    LoopWorld,
)
from koordcore.simulate.loops import Loop, find_loop

_QUOTAS: Final = tuple((least, most) for least in range(3) for most in (1, 2, 3, 4) if most >= least)


def small_worlds(pods: int, nodes: int = 2, quotas: int = 2) -> Iterator[LoopWorld]:
    """Give every world up to a size, once for those that differ in names or in room that no pods fill.

    Amounts are 1 or 2, priorities 0 to 2, nodes have 1 to 4, a quota has a ``min`` of 0 to 2 and a ``max`` of
    1 to 4.
    Worlds in which everything fits on every node are left out, and priorities without a gap stand for all.
    The smallest come first.

    Parameters
    ----------
    pods, nodes, quotas
        How many there are at most.
    """
    kinds = [
        LoopPod(amount, priority, quota)
        for amount, priority, quota in product((1, 2), range(3), range(-1, quotas))
    ]
    for count in range(1, pods + 1):
        for some in combinations_with_replacement(kinds, count):
            if {pod.priority for pod in some} != set(range(len({pod.priority for pod in some}))):
                continue
            named = {pod.quota for pod in some if pod.quota >= 0}
            if named != set(range(len(named))):
                continue
            if len(named) == 2 and [*map(_key, _swapped(some))] < [*map(_key, some)]:
                continue
            limits = _limits(some, len(named))
            sums = _sums(some)
            sizes = sorted({_reached(sums, room) for room in range(1, 5)} - {0})
            for number in range(1, nodes + 1):
                for room in combinations_with_replacement(sizes, number):
                    if min(room) < max(sums):
                        yield from (LoopWorld(room, each, some) for each in limits)


def nested_worlds(pods: int, nodes: int = 2, quotas: int = 2) -> Iterator[LoopWorld]:
    """Give every world of :func:`small_worlds` once more for each quota that may stand above some of its own.

    It is above one or all of them, and its ``min`` is at least theirs together and at most 4. Its ``max``
    is any that is at least its ``min``: Koordinator looks at it only with ``enableCheckParentQuota``.
    """
    for world in small_worlds(pods, nodes, quotas):
        count = len(world.quotas)
        for below in [(one,) for one in range(count)] + [(0, 1)] * (count == 2):
            sums = _sums(pod for pod in world.pods if pod.quota in below)
            promised = sum(world.quotas[one][0] for one in below)
            above = (*(count if one in below else -1 for one in range(count)), -1)
            for least in sorted({_reached(sums, least) for least in range(promised, 5)}):
                for most in sorted(one for one in sums if one >= max(least, 1)):
                    yield LoopWorld(world.nodes, (*world.quotas, (least, most)), world.pods, above)


def _limits(pods: tuple[LoopPod, ...], quotas: int) -> list[tuple[tuple[int, int], ...]]:
    """Give min and max of the quotas of some pods, once for those that nobody can tell apart."""
    one_by_one = []
    for quota in range(quotas):
        sums = _sums([pod for pod in pods if pod.quota == quota])
        one_by_one.append(sorted({(_reached(sums, least), _reached(sums, most)) for least, most in _QUOTAS}))
    found = [*product(*one_by_one)]
    same = quotas == 2 and _swapped(pods) == tuple(sorted(pods, key=_key))
    return [limits for limits in found if not same or limits <= limits[::-1]]


def _sums(pods: Iterable[LoopPod]) -> set[int]:
    """Give what some of the pods ask for together."""
    sums = {0}
    for pod in pods:
        sums |= {pod.amount + one for one in sums}
    return sums


def _reached(sums: set[int], limit: int) -> int:
    return max(one for one in sums if one <= limit)


def _swapped(pods: tuple[LoopPod, ...]) -> tuple[LoopPod, ...]:
    other = {-1: -1, 0: 1, 1: 0}
    return tuple(sorted((LoopPod(one.amount, one.priority, other[one.quota]) for one in pods), key=_key))


def _key(pod: LoopPod) -> tuple[int, int, int]:
    return pod.amount, pod.priority, pod.quota


def search_loops(
    rules: LoopRules,
    *,
    pods: int = 3,
    nodes: int = 2,
    quotas: int = 2,
    trees: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Loop | None, int]:
    """Search all small worlds for a loop, the smallest first.

    Rules that are off only take moves away: a rule set without loops has none with any of its rules off.

    Parameters
    ----------
    rules
        Which rules move pods, and how.
    pods, nodes, quotas
        How large the worlds are at most.
    trees
        Search worlds with a quota above others instead (:func:`nested_worlds`).
    progress
        Called before each world with how many have been searched, and how many there are.

    Returns
    -------
    loop, worlds
        The shortest loop of the first world that has one, and how many worlds were searched.
    """
    worlds = partial(nested_worlds if trees else small_worlds, pods, nodes, quotas)
    total = 0 if progress is None else sum(1 for _ in worlds())
    count = 0
    for world in worlds():
        if progress is not None:
            progress(count, total)
        count += 1
        found = find_loop(world, rules)
        if found is not None:
            return found, count
    return None, count


def loop_story(loop: Loop) -> list[str]:
    """Tell a loop, line by line."""
    world = loop.world
    lines = [f"nodes: {', '.join(f'n{number} has {room}' for number, room in enumerate(world.nodes))}"]
    lines += [
        f"quota {_quota(number)}: min {least}, max {most}{_below(world, number)}"
        for number, (least, most) in enumerate(world.quotas)
    ]
    for number, pod in enumerate(world.pods):
        quota = f", quota {_quota(pod.quota)}" if pod.quota >= 0 else ""
        at = loop.steps[0].before[number]
        where = f"on n{at}" if 0 <= at < 100 else "waits"
        lines.append(f"p{number}: amount {pod.amount}, priority {pod.priority}{quota}; {where}")
    lines += [f"{number}. {_step_text(step)}" for number, step in enumerate(loop.steps, 1)]
    return [*lines, "and all is as it was before"]


def _quota(number: int) -> str:
    return "abc"[number]


def _below(world: LoopWorld, quota: int) -> str:
    below = [_quota(one) for one, above in enumerate(world.above) if above == quota]
    return f", above {' and '.join(below)}" if below else ""


def _step_text(step: LoopStep) -> str:
    victims = ", ".join(f"p{one}" for one in step.evicted)
    match step.rule:
        case "places":
            return f"p{step.pod} starts on n{step.node}"
        case "moves":
            return f"p{step.pod} is moved to n{step.node}"
        case "revokes":
            return f"p{step.pod} has to go: its quota uses more than its max"
        case "gives up":
            return f"p{step.pod} does not find the room that was made for it any more"
        case "ends":
            return f"p{step.pod} has left n{step.node}"
        case "awaits":
            return f"p{step.pod} waits for what leaves n{step.node}"
        case "makes way":
            return f"p{step.pod} is to run on n{step.node}: {victims} has to make way, and fits elsewhere"
        case _:
            return f"p{step.pod} {step.rule} on n{step.node}: {victims} has to go"
