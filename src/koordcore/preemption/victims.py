"""Who could leave, and which job each belongs to: the candidates of a snapshot as arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import Pod
from koordcore.preemption.parties import BoolMatrix, Candidates, Jobs, Names, no_counts
from koordcore.preemption.running import Leaving, RunningPods, told_by

_ALONE: Final = np.int64(-1)
"""The gang of a pod without one."""


def given_up(running: RunningPods, preemptor: Pod, gone: Collection[Leaving] = ()) -> tuple[Pod, ...]:
    """List the pods whose room a preemptor may count on without evicting them: they are leaving already.

    Whoever goes for another job counts, of whatever priority: as far as that job is more important, it is
    counted as well, and where it is not, nobody else has to go.

    Parameters
    ----------
    gone
        Pods that have left as far as this question goes.
    """
    mask = running.leaving & running.evictable
    if not mask.any():
        return ()
    found = (running.pods[one] for one in np.flatnonzero(mask & ~running.marked(gone)).tolist())
    return tuple(pod for pod in found if pod.priority < preemptor.priority or pod.preempted_by)


def collect_candidates(
    running: RunningPods,
    preemptor: Pod,
    *,
    minimums: Mapping[str, int],
    budgets: Sequence[PodDisruptionBudget] = (),
    protected: Collection[Leaving] = (),
    gone: Collection[Leaving] = (),
    restart: Callable[[Pod], int] | None = None,
    whom: BoolVector | None = None,
) -> tuple[Candidates, Jobs]:
    """List who may leave for a preemptor; whoever is leaving already is none of them.

    Parameters
    ----------
    running
        Every running pod.
    preemptor
        Whose priority counts.
    minimums
        Minimum of every gang that is known, by id. A pod of an unknown gang is a job of its own.
    budgets
        Disruption budgets.
    protected
        Pods that are no victims for other reasons, such as members of the job itself that wait already, with
        the rows of their nodes.
    gone
        Pods that have left as far as this question goes, likewise.
    restart
        What restarting a pod costs.
    whom
        Pods that may leave whatever their priority, shape (V,); the less important ones when left out.

    Returns
    -------
    candidates, jobs
        By node, then key; gangs by name, then pods without one in the order of the candidates.
    """
    there = ~running.leaving
    if gone:
        there &= ~running.marked(gone)
    below = running.priority < preemptor.priority if whom is None else whom
    listed = there & running.evictable & below
    if protected:
        listed &= ~running.marked(protected)
    # Mostly all that run are less important than who preempts: then nothing is copied.
    every = bool(listed.all())
    ones = running.every if every else np.flatnonzero(listed)
    rows: Rows = slice(None) if every else ones
    gang, least = _gangs(running, there, minimums)
    job, used, single = _numbered(gang[rows] if len(least) else None, running.every[: len(ones)])

    def key(one: int) -> str:
        return str(running.pods[int(ones[one])].key)

    def name(number: int) -> str:
        return (
            running.gangs[int(used[number])] if number < len(used) else key(int(single[number - len(used)]))
        )

    def count(mask: BoolVector, each: int) -> IntVector:
        """Pods of each job that are marked: of gangs counted, of pods without one as given."""
        counted = gang[mask & (gang >= 0)] if len(used) else used
        return _joined(np.bincount(counted, minlength=len(running.gangs))[used], each, len(single))

    pods = [running.pods[one] for one in ones.tolist()] if restart is not None else []
    candidates = Candidates(
        keys=Names(len(ones), key),
        node=running.node[rows],
        amounts=running.amounts[:, rows],
        priority=running.priority[rows],
        job=job,
        restart=np.array([restart(pod) for pod in pods], dtype=np.int64)
        if restart is not None
        else no_counts(),
        covered=_covered(running, budgets, ones),
        source=ones,
        by_node=running.by_node if every else None,
    )
    jobs = Jobs(
        names=Names(len(used) + len(single), name),
        least=_joined(least[used], 1, len(single)),
        running=count(there, 1),
        protected=count(there & ~listed, 0),
        gang=np.arange(len(used) + len(single)) < len(used) if len(used) else np.zeros(len(single), np.bool_),
    )
    return candidates, jobs


def _joined(of_gangs: IntVector, each: int, number: int) -> IntVector:
    """Give what is said of gangs, and the same of each of so many other jobs; to be read only."""
    if not len(of_gangs):
        return np.broadcast_to(np.int64(each), number)
    return np.concatenate([of_gangs, np.full(number, each, np.int64)])


def _covered(running: RunningPods, budgets: Sequence[PodDisruptionBudget], ones: IntVector) -> BoolMatrix:
    """Tell which budgets an eviction of some of the pods uses up, shape (B, V): by what budgets ask for."""
    assert {*told_by(budgets)} <= {*running.told}, "labels that budgets ask for are those that are told"
    found = np.zeros((len(budgets), len(ones)), dtype=np.bool_)
    sort = running.sort[ones] if len(budgets) else running.sort
    for covered, budget in zip(found, budgets, strict=True):
        selected = running.selected(budget)
        if selected.any():
            covered[:] = selected[sort]
        if budget.disrupted_pods:
            for one in np.flatnonzero(covered).tolist():
                covered[one] = running.pods[int(ones[one])].name not in budget.disrupted_pods
    return found


def _numbered(gang: IntVector | None, numbers: IntVector) -> tuple[IntVector, IntVector, IntVector]:
    """Number the jobs of pods whose gangs are given, ``(V,)``: gangs first, then each pod without one.

    ``gang`` is ``None`` where nobody is in one; ``numbers`` are those from 0 on, ``(V,)``. Gives the job of
    each pod, ``(V,)``; the gangs that occur, ``(G,)``; where pods without one are, ``(S,)``.
    """
    if gang is None or (gang < 0).all():
        return numbers, np.empty(0, np.int64), numbers
    alone = gang < 0
    single = np.flatnonzero(alone)
    used = np.unique(gang[~alone])
    job = np.empty(len(gang), dtype=np.int64)
    job[~alone] = np.searchsorted(used, gang[~alone])
    job[alone] = len(used) + np.arange(len(single))
    return job, used, single


def _gangs(
    running: RunningPods, there: BoolVector, minimums: Mapping[str, int]
) -> tuple[IntVector, IntVector]:
    """Give the gang of each running pod, ``(V,)``, and the minimum of each gang, ``(G,)``.

    -1 for a pod of a gang that nobody knows: it is a job of its own. A gang that only runs whole needs all
    that are there, whatever minimum it names.
    """
    if not running.gangs:
        return np.broadcast_to(_ALONE, len(running.gang)), np.empty(0, dtype=np.int64)
    whole = np.array([name in running.whole for name in running.gangs], dtype=np.bool_)
    said = [minimums.get(name) for name in running.gangs]
    known = whole | np.array([one is not None for one in said], dtype=np.bool_)
    least = np.array([-1 if one is None else one for one in said], dtype=np.int64)
    # A pod without a gang has the number -1, which reads the place that is appended.
    gang = np.where(np.append(known, False)[running.gang], running.gang, -1)
    least[whole] = np.bincount(gang[there & (gang >= 0)], minlength=len(whole))[whole]
    return gang, least
