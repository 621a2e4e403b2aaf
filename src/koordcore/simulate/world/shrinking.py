"""The smallest run that still fails: whatever is not needed for it is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from koordcore.model.load import LoadAwareArgs
from koordcore.simulate.world.engine import run_world
from koordcore.simulate.world.plug import BottledScheduler
from koordcore.simulate.world.profile import SECOND
from koordcore.simulate.world.record import WorldRun

_TRIES: Final = 200


def shrink_world(
    run: WorldRun,
    make: Callable[[int], BottledScheduler],
    *,
    exclusive: bool = True,
    reported: LoadAwareArgs | None = None,
    tries: int = _TRIES,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> WorldRun:
    """Leave out load and faults, halves first, as long as the same rule is broken.

    Parameters
    ----------
    run
        One that failed; a run that did not is given back.
    make, exclusive, reported
        As for :func:`run_world`.
    tries
        How many runs may be made.
    progress
        Called before each run with how many have been made, and how many may be.

    Returns
    -------
    WorldRun
        With its story; ``without`` says what was left out.
    """
    if not run.breaches:
        return run
    live = partial(run_world, run.seed, run.profile, make, exclusive=exclusive, reported=reported)
    rule = run.breaches[0].rule
    left = [tries]
    until = run.ended + SECOND

    def fails(without: frozenset[int]) -> bool:
        progress(tries - left[0], tries)
        left[0] -= 1
        again = live(without=without, until=until)
        return bool(again.breaches) and again.breaches[0].rule is rule

    # What comes after the end is left out first, at no cost.
    kept = [one.number for one in run.injections if one.time <= run.ended]
    without = run.without | {one.number for one in run.injections if one.time > run.ended}
    step = max(1, len(kept) // 2)
    while left[0] > 0:
        start = 0
        while start < len(kept) and left[0] > 0:
            some = kept[start : start + step]
            if fails(without | frozenset(some)):
                without |= frozenset(some)
                del kept[start : start + step]
            else:
                start += step
        if step == 1:
            break
        step //= 2
    return live(without=without, until=until, tell=True)
