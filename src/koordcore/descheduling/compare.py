"""What becomes of evictions that name no target: the reference's round beside a plan."""

from __future__ import annotations

from collections.abc import Iterable

from koordcore._record import record
from koordcore.descheduling.moves import MoveProblem, hot_hosts
from koordcore.descheduling.placing import Room
from koordcore.model.pods import PodKey


@record(kw_only=True)
class EvictionOutcome:
    """How evictions turn out when every pod goes to the tightest place that stays cool.

    Parameters
    ----------
    evictions
        Pods that were evicted.
    waiting
        Those that found no place, in the order of eviction.
    after
        Names of the nodes that are hot then.
    """

    evictions: int
    waiting: tuple[PodKey, ...]
    after: tuple[str, ...]


def outcome_of(problem: MoveProblem, evicted: Iterable[PodKey]) -> EvictionOutcome:
    """Find places for evicted pods one after the other, as a scheduler with the same thresholds would.

    Parameters
    ----------
    problem
        The cluster before.
    evicted
        Movable pods, in the order of eviction.
    """
    room = Room(problem)
    hot = [host.name for host in hot_hosts(problem.hosts)]
    movable = {one.pod: one for one in problem.movable}
    keys = tuple(evicted)
    waiting = []
    for key in keys:
        if not room.place([movable[key]], hot):
            room.leave(movable[key])
            waiting.append(key)
    after = tuple(host.name for host, cool in zip(problem.hosts, room.cool, strict=True) if (cool < 0).any())
    return EvictionOutcome(evictions=len(keys), waiting=tuple(waiting), after=tuple(sorted(after)))
