"""Who could leave, and which job each belongs to: the candidates of a snapshot as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from koordcore._arrays import PODS_ROW, ClusterLayout, IntVector
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import Pod, PodKey
from koordcore.model.selectors import EVERYTHING
from koordcore.preemption.eligible import may_evict
from koordcore.preemption.problem import Candidates, Jobs
from koordcore.protocol.gang import gang_name

__all__ = ["amounts_of", "collect_candidates", "covers", "job_of"]


def job_of(pod: Pod, minimums: Mapping[str, int]) -> str:
    """Name the job of a running pod: its gang where that is known, else the pod itself."""
    gang = gang_name(pod.labels, pod.annotations)
    gang_id = f"{pod.namespace}/{gang}" if gang else ""
    return gang_id if gang_id in minimums else str(pod.key)


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


def collect_candidates(
    layout: ClusterLayout,
    bound: Iterable[Pod],
    preemptor: Pod,
    *,
    minimums: Mapping[str, int],
    budgets: Sequence[PodDisruptionBudget] = (),
    protected: frozenset[PodKey] = frozenset(),
    restart: Callable[[Pod], int] | None = None,
) -> tuple[Candidates, Jobs]:
    """List who may leave for a preemptor.

    Parameters
    ----------
    bound
        Every running pod.
    preemptor
        Whose priority counts.
    minimums
        Minimum of every gang that is known, by id. A pod of an unknown gang is a job of its own.
    budgets
        Disruption budgets.
    protected
        Pods that are no victims for other reasons, such as members of the job itself that wait already.
    restart
        What restarting a pod costs.

    Returns
    -------
    candidates, jobs
        By node, then key; jobs by name.
    """
    running: dict[str, int] = {}
    kept: dict[str, int] = {}
    listed: list[tuple[int, PodKey, Pod, str]] = []
    for pod in bound:
        row = layout.row_of.get(pod.node_name or "")
        if row is None:
            continue
        job = job_of(pod, minimums)
        running[job] = running.get(job, 0) + 1
        if pod.key not in protected and may_evict(preemptor, pod):
            listed.append((row, pod.key, pod, job))
        else:
            kept[job] = kept.get(job, 0) + 1
    listed.sort(key=lambda entry: entry[:2])
    names = tuple(sorted({job for *_, job in listed}))
    index = {name: number for number, name in enumerate(names)}
    pods = [pod for _, _, pod, _ in listed]
    known: dict[object, IntVector] = {}
    columns = []
    for pod in pods:
        if pod.requests not in known:
            known[pod.requests] = amounts_of(layout, pod)
        columns.append(known[pod.requests])
    size = len(layout.resources)
    candidates = Candidates(
        keys=tuple(str(pod.key) for pod in pods),
        node=np.array([row for row, *_ in listed], dtype=np.int64),
        amounts=np.stack(columns, axis=1) if columns else np.zeros((size, 0), dtype=np.int64),
        priority=np.array([pod.priority for pod in pods], dtype=np.int64),
        job=np.array([index[job] for *_, job in listed], dtype=np.int64),
        restart=np.array([restart(pod) for pod in pods], dtype=np.int64)
        if restart is not None
        else np.zeros(len(pods), dtype=np.int64),
        covered=np.array(
            [[covers(budget, pod) for pod in pods] for budget in budgets], dtype=np.bool_
        ).reshape(len(budgets), len(pods)),
    )
    jobs = Jobs(
        names=names,
        least=np.array([minimums.get(name, 1) for name in names], dtype=np.int64),
        running=np.array([running[name] for name in names], dtype=np.int64),
        protected=np.array([kept.get(name, 0) for name in names], dtype=np.int64),
        gang=np.array([name in minimums for name in names], dtype=np.bool_),
    )
    return candidates, jobs
