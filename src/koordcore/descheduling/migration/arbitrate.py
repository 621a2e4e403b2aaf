"""Which of the waiting migration jobs may go ahead (``controllers/migration/arbitrator``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from koordcore._record import record
from koordcore.descheduling.migration.filter import MigrationFilter, passed
from koordcore.descheduling.sort import sort_pods
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.migration import ANNOTATION_ARBITRATING, ANNOTATION_PASSED


@record
class ArbitrationOrder:
    """The waiting jobs after each of the four stable sorts; the last order holds."""

    by_creation: tuple[PodMigrationJob, ...]
    by_pod: tuple[PodMigrationJob, ...]
    by_controller: tuple[PodMigrationJob, ...]
    by_migrating: tuple[PodMigrationJob, ...]


def arbitration_order(
    waiting: Sequence[PodMigrationJob], pods: Mapping[PodKey, Pod], jobs: Iterable[PodMigrationJob] = ()
) -> ArbitrationOrder:
    """Sort the waiting jobs.

    Newest first by whole seconds; then by the eviction order of their pods, jobs without a pod in front;
    then those of one batch Job behind the first of it; then the Jobs with most migrations under way.

    Parameters
    ----------
    waiting
        In the order in which they came.
    pods
        Those that exist.
    jobs
        All jobs, from which the migrations under way are counted.
    """

    def pod_of(job: PodMigrationJob) -> Pod | None:
        return None if job.pod is None else pods.get(job.pod)

    def batch_of(job: PodMigrationJob) -> str:
        pod = pod_of(job)
        owner = None if pod is None else pod.controller
        return owner.uid if owner is not None and owner.kind == "Job" else ""

    by_creation = sorted(waiting, key=lambda job: 0 if job.created is None else -int(job.created.timestamp()))
    present = [pod for pod in map(pod_of, by_creation) if pod is not None]
    ranks = {pod.key: rank for rank, pod in enumerate(sort_pods(dict.fromkeys(present)))}
    by_pod = sorted(by_creation, key=lambda job: ranks.get(job.pod, -1) if job.pod is not None else -1)
    first: dict[str, int] = {}
    for index, job in enumerate(by_pod):
        first.setdefault(batch_of(job), index)
    places = [first[batch] if (batch := batch_of(job)) else index for index, job in enumerate(by_pod)]
    by_controller = [
        by_pod[index] for index in sorted(range(len(by_pod)), key=lambda one: (places[one], one))
    ]
    under_way = Counter(batch_of(job) for job in jobs if job.phase is JobPhase.RUNNING or passed(job))
    by_migrating = sorted(by_controller, key=lambda job: -under_way[batch] if (batch := batch_of(job)) else 0)
    return ArbitrationOrder(tuple(by_creation), tuple(by_pod), tuple(by_controller), tuple(by_migrating))


def arbitrate(
    waiting: Sequence[PodMigrationJob], pods: Mapping[PodKey, Pod], rules: MigrationFilter
) -> tuple[PodMigrationJob, ...]:
    """Decide about every waiting job, one after the other; each that passes counts for those behind it.

    Parameters
    ----------
    waiting
        In the order in which they came.
    pods
        Those that exist.
    rules
        The filter over all jobs; what passes or fails is put into it.

    Returns
    -------
    tuple of PodMigrationJob
        In the order of the decisions: passed (by annotation), failed (by phase), or unchanged, which waits.
    """
    decided = []
    for job in arbitration_order(waiting, pods, rules.jobs).by_migrating:
        pod = None if job.pod is None else pods.get(job.pod)
        outcome = _decide(job, pod, rules)
        rules.put(outcome)
        decided.append(outcome)
    return tuple(decided)


def _decide(job: PodMigrationJob, pod: Pod | None, rules: MigrationFilter) -> PodMigrationJob:
    if pod is not None:
        if rules.permanent(pod) is not None:
            text = f'Pod "{pod.key}" is forbidden to migrate because it does not meet the requirements'
            return attrs.evolve(job, phase=JobPhase.FAILED, reason="ForbiddenMigratePod", message=text)
        marked = pod.at(pod.node_name, annotations={ANNOTATION_ARBITRATING: "true"})
        if rules.retryable(marked) is not None:
            return job
    return attrs.evolve(job, annotations=job.annotations.set(ANNOTATION_PASSED, "true"))
