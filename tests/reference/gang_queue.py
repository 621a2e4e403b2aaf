"""Which gangs of a queue start, by trying everything: one slot per node, equal members."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs

__all__ = ["Waiting", "best_queue"]


@attrs.frozen
class Waiting:
    """A gang: members, all needed; whether they must share a block; priority."""

    size: int
    gathers: bool
    priority: int = 0


def best_queue(blocks: tuple[tuple[str, int], ...], gangs: tuple[Waiting, ...]) -> tuple[int, ...]:
    """The best objective: started gangs per priority, members (both negated), spines used, blocks used.

    ``blocks`` are (spine, free nodes).
    """
    tiers = sorted({gang.priority for gang in gangs}, reverse=True)
    values = []
    for plan in _plans(tuple(free for _, free in blocks), gangs):
        started = [any(counts) for counts in plan]
        values.append(
            (
                *(
                    -sum(on for on, g in zip(started, gangs, strict=True) if g.priority == tier)
                    for tier in tiers
                ),
                -sum(map(sum, plan)),
                sum(len({blocks[b][0] for b, n in enumerate(counts) if n}) for counts in plan),
                sum(sum(n > 0 for n in counts) for counts in plan),
            )
        )
    return min(values)


def _plans(free: tuple[int, ...], gangs: tuple[Waiting, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not gangs:
        yield ()
        return
    first = gangs[0]
    for counts in itertools.product(*(range(min(n, first.size) + 1) for n in free)):
        used = sum(n > 0 for n in counts)
        if sum(counts) not in (0, first.size) or (first.gathers and used > 1):
            continue
        left = tuple(n - taken for n, taken in zip(free, counts, strict=True))
        for rest in _plans(left, gangs[1:]):
            yield (counts, *rest)
