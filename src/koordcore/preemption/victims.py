"""Who could leave, and which job each belongs to: the candidates of a snapshot as arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, ClusterLayout, IntMatrix, IntVector
from koordcore.allocators.gang.group_table import GroupTable
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import Pod, PodKey
from koordcore.model.selectors import EVERYTHING
from koordcore.preemption.problem import Candidates, Jobs
from koordcore.protocol.gang import gang_name
from koordcore.protocol.preemption import is_protected

__all__ = ["RunningPods", "amounts_of", "collect_candidates", "covers", "given_up", "running_pods"]


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether evicting a pod uses a disruption budget up.

    A budget with an empty selector selects nobody here, and a pod that is being disrupted already is counted.
    """
    return (
        budget.namespace == pod.namespace
        and budget.selector != EVERYTHING
        and budget.selector.matches(pod.labels)
        and pod.name not in budget.disrupted_pods
    )


def amounts_of(layout: ClusterLayout, pod: Pod) -> IntVector:
    """Give what a pod holds per resource, shape (R,); itself counts as one of ``pods``."""
    amounts = np.zeros(len(layout.resources), dtype=np.int64)
    for name, amount in pod.requests.items():
        row = layout.index.get(name)
        if row is not None:
            amounts[row] = amount
    amounts[PODS_ROW] = 1
    return amounts


@attrs.frozen(eq=False)
class RunningPods:
    """Every running pod as columns, by node, then key; V of them. Says nothing of who preempts.

    Parameters
    ----------
    pods, keys
        The pods, and ``namespace/name`` of each.
    node, amounts, priority
        Row of its node, what it holds, shape (R, V), and its priority.
    evictable, leaving
        Neither protected nor static; about to go anyhow, shape (V,).
    names
        Whatever may be a job's name, sorted: the pods' keys and the ids of gangs.
    own, gang
        Index of a pod's own key and of its gang among them, -1 for no gang, shape (V,).
    whole
        Names of groups that leave as a whole or not at all.
    """

    pods: tuple[Pod, ...]
    keys: tuple[str, ...]
    node: IntVector
    amounts: IntMatrix
    priority: IntVector
    evictable: BoolVector
    leaving: BoolVector
    names: tuple[str, ...]
    own: IntVector
    gang: IntVector
    whole: frozenset[str] = frozenset()

    def marked(self, keys: Collection[PodKey]) -> BoolVector:
        """Tell which of the pods are named, shape (V,)."""
        if not keys:
            return np.zeros(len(self.pods), dtype=np.bool_)
        return np.fromiter((pod.key in keys for pod in self.pods), np.bool_, len(self.pods))


def running_pods(
    layout: ClusterLayout, bound: Iterable[Pod], groups: GroupTable | None = None
) -> RunningPods:
    """Make the columns of the pods that run on known nodes; groups say who leaves together, and for whom."""
    listed = [
        (row, pod.key, pod) for pod in bound if (row := layout.row_of.get(pod.node_name or "")) is not None
    ]
    listed.sort(key=lambda entry: entry[:2])
    pods = tuple(pod for *_, pod in listed)
    keys = tuple(str(pod.key) for pod in pods)
    gangs, priorities, whole = [], [], set()
    for pod in pods:
        gang = gang_name(pod.labels, pod.annotations)
        unit, priority = ("", None) if groups is None else groups.disruption_of(pod)
        if unit:
            whole.add(unit)
        gangs.append(unit or (f"{pod.namespace}/{gang}" if gang else ""))
        priorities.append(pod.priority if priority is None else priority)
    names = tuple(sorted({*keys, *gangs} - {""}))
    index = {name: number for number, name in enumerate(names)}
    known: dict[object, int] = {}
    shapes = [known.setdefault(pod.requests, len(known)) for pod in pods]
    columns: dict[object, IntVector] = {}
    for pod in pods:
        if pod.requests not in columns:
            columns[pod.requests] = amounts_of(layout, pod)
    table = np.stack([columns[one] for one in known], axis=1) if known else None
    size = (len(layout.resources), 0)
    return RunningPods(
        pods=pods,
        keys=keys,
        node=np.array([row for row, *_ in listed], dtype=np.int64),
        amounts=np.zeros(size, dtype=np.int64) if table is None else table[:, shapes],
        priority=np.array(priorities, dtype=np.int64),
        evictable=np.array([not is_protected(pod.labels) and not pod.static for pod in pods], dtype=np.bool_),
        leaving=np.array([pod.leaving for pod in pods], dtype=np.bool_),
        names=names,
        own=np.array([index[key] for key in keys], dtype=np.int64),
        gang=np.array([index.get(gang, -1) for gang in gangs], dtype=np.int64),
        whole=frozenset(whole),
    )


def given_up(running: RunningPods, preemptor: Pod, gone: frozenset[PodKey] = frozenset()) -> tuple[Pod, ...]:
    """List the pods whose room a preemptor may count on without evicting them: they are leaving already.

    Parameters
    ----------
    gone
        Pods that have left as far as this question goes.
    """
    mask = running.leaving & running.evictable & (running.priority < preemptor.priority)
    pods = (running.pods[one] for one in np.flatnonzero(mask).tolist())
    return tuple(pod for pod in pods if pod.key not in gone)


def collect_candidates(
    running: RunningPods,
    preemptor: Pod,
    *,
    minimums: Mapping[str, int],
    budgets: Sequence[PodDisruptionBudget] = (),
    protected: frozenset[PodKey] = frozenset(),
    gone: frozenset[PodKey] = frozenset(),
    restart: Callable[[Pod], int] | None = None,
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
        Pods that are no victims for other reasons, such as members of the job itself that wait already.
    gone
        Pods that have left as far as this question goes.
    restart
        What restarting a pod costs.

    Returns
    -------
    candidates, jobs
        By node, then key; jobs by name.
    """
    there = ~running.marked(gone) & ~running.leaving
    listed = there & running.evictable & (running.priority < preemptor.priority) & ~running.marked(protected)
    in_gang = running.gang >= 0
    known = {*minimums, *running.whole}
    governed = [running.names[gang] in known for gang in running.gang[in_gang].tolist()]
    in_gang[in_gang] = governed
    home = np.where(in_gang, running.gang, running.own)
    present = np.zeros(len(running.names), dtype=np.bool_)
    present[home[listed]] = True
    used = np.flatnonzero(present)
    sizes = np.bincount(home[there], minlength=len(running.names))
    kept = np.bincount(home[there & ~listed], minlength=len(running.names))
    ones = np.flatnonzero(listed)
    pods = [running.pods[one] for one in ones.tolist()]
    names = tuple(running.names[job] for job in used.tolist())
    candidates = Candidates(
        keys=tuple(running.keys[one] for one in ones.tolist()),
        node=running.node[ones],
        amounts=running.amounts[:, ones],
        priority=running.priority[ones],
        job=(np.cumsum(present) - 1)[home[ones]],
        restart=np.array([restart(pod) for pod in pods], dtype=np.int64)
        if restart is not None
        else np.zeros(len(pods), dtype=np.int64),
        covered=np.array(
            [[covers(budget, pod) for pod in pods] for budget in budgets], dtype=np.bool_
        ).reshape(len(budgets), len(pods)),
    )
    jobs = Jobs(
        names=names,
        least=np.array(
            [
                int(sizes[job]) if name in running.whole else minimums.get(name, 1)
                for job, name in zip(used.tolist(), names, strict=True)
            ],
            dtype=np.int64,
        ),
        running=sizes[used].astype(np.int64),
        protected=kept[used].astype(np.int64),
        gang=np.array([name in known for name in names], dtype=np.bool_),
    )
    return candidates, jobs
