"""Why pods stay where they are although room is wanted: what keeps each of them from being moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from koordcore.descheduling.migration.filter import evictability
from koordcore.descheduling.moves import MoveProblem
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import EvictorArgs


def who_stays(
    problem: MoveProblem, pods: Iterable[Pod], moved: Iterable[PodKey], evictor: EvictorArgs
) -> tuple[str, ...]:
    """Say what keeps pods from being moved, each with the number of pods that it is about, most pods first.

    Parameters
    ----------
    problem
        What the plan was made from.
    pods
        All that run.
    moved
        Those that the plan moves.
    evictor
        Which pods may be evicted at all.
    """
    gone = set(moved)
    movable = {one.pod for one in problem.movable}
    spent = [one for one in problem.groups if len(gone.intersection(one.pods)) >= one.most]
    kept = Counter[str]()
    for pod in pods:
        if pod.key in gone:
            continue
        if pod.key not in movable:
            refusal = evictability(pod, evictor)
            kept["it may not be moved" if refusal is None else refusal.rule] += 1
            continue
        for group in spent:
            if pod.key in group.pods:
                kept[f"{group.name} lets {group.most} of {len(group.pods)} move"] += 1
                break
    return tuple(
        f"{count} pod{'s' * (count > 1)}: {reason}"
        for reason, count in sorted(kept.items(), key=lambda entry: (-entry[1], entry[0]))
    )
