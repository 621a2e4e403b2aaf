"""May this pod be evicted at all, and may it be migrated now (``controllers/migration/filter.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from koordcore._record import record
from koordcore.descheduling.migration.max_unavailable import max_unavailable
from koordcore.descheduling.migration.workloads import UnknownScale, Workloads
from koordcore.model.cluster import Workload
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.pods import Pod, PodKey, PodPhase
from koordcore.model.rebalance import JOB_SCHEDULERS, EvictionGate, EvictorArgs, MigrationControllerArgs
from koordcore.model.reservations import Reservation, ReservationPhase
from koordcore.protocol.migration import (
    ANNOTATION_ARBITRATING,
    ANNOTATION_EVICT,
    ANNOTATION_EVICTION_COST,
    ANNOTATION_PASSED,
    MAX_COST,
    cost_of,
)
from koordcore.protocol.raw_selectors import selector_of
from koordcore.snapshot import ClusterSnapshot

LOOKUP_ERRORS: Final = ("expectedReplicas:error", "workloadLookup:error")
"""Rules that refuse a pod whose workload tells no number of replicas."""
_SYSTEM_CRITICAL: Final = 2 * 10**9


@record
class Refusal:
    """Why a pod may not be migrated.

    Parameters
    ----------
    rule
        Name of the rule, or the texts of the evictability rules.
    retryable
        The rule looks at what else is being migrated and may let the pod pass later.
    """

    rule: str
    retryable: bool = False


def evictability(pod: Pod, args: EvictorArgs) -> Refusal | None:
    """Check what lies in the pod alone: namespace, cost, kind of pod, owner, priority, storage, labels.

    The evict annotation lets a pod pass whatever its value is.

    Returns
    -------
    Refusal or None
        The first of namespace, cost and the other rules that refuses; the texts of the others together.
    """
    if ANNOTATION_EVICT in pod.annotations:
        return None
    if args.namespaces is not None and EvictionGate.NAMESPACES not in args.skip_gates:
        if args.namespaces.include and pod.namespace not in args.namespaces.include:
            return Refusal("includedNamespaces")
        if pod.namespace in args.namespaces.exclude:
            return Refusal("excludedNamespaces")
    if pod.annotations and cost_of(pod.annotations, ANNOTATION_EVICTION_COST) == MAX_COST:
        return Refusal("podWithMaxEvictionCost")
    texts = [*_kind_texts(pod), *_constraint_texts(pod, args)]
    if not texts:
        return None
    return Refusal(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _kind_texts(pod: Pod) -> Iterator[str]:
    if pod.unreadable:
        yield f"pod cannot be read: {pod.unreadable}"
    if any(owner.kind == "DaemonSet" for owner in pod.owners):
        yield "pod is a DaemonSet pod"
    if pod.annotations:
        if "kubernetes.io/config.mirror" in pod.annotations:
            yield "pod is a mirror pod"
        if pod.annotations.get("kubernetes.io/config.source", "api") != "api":
            yield "pod is a static pod"
    if pod.deleted is not None:
        yield "pod is terminating"


def _constraint_texts(pod: Pod, args: EvictorArgs) -> Iterator[str]:
    gates = args.skip_gates
    if not args.evict_all_bare_pods and not pod.owners and EvictionGate.BARE_PODS not in gates:
        if not args.evict_failed_bare_pods:
            yield "pod does not have any ownerRefs"
        elif pod.phase is not PodPhase.FAILED:
            yield "pod does not have any ownerRefs and is not in failed phase"
    # The gate of the one rule switches off the other, too, as the flag does.
    if not args.evict_system_critical_pods and EvictionGate.SYSTEM_CRITICAL not in gates:
        if pod.priority >= _SYSTEM_CRITICAL:
            yield "pod has system critical priority"
        threshold = args.priority_threshold
        above = threshold is not None and pod.priority >= threshold
        if above and EvictionGate.PRIORITY_THRESHOLD not in gates:
            yield "pod has higher priority than specified priority class threshold"
    if pod.local_storage and not args.evict_local_storage_pods and EvictionGate.LOCAL_STORAGE not in gates:
        yield "pod has local storage and descheduler is not configured with evictLocalStoragePods"
    if args.ignore_pvc_pods and pod.claims and EvictionGate.PVC not in gates:
        yield "pod has a PVC and descheduler is configured to ignore PVC pods"
    if (
        args.label_selector is not None
        and EvictionGate.LABEL_SELECTOR not in gates
        and not selector_of(args.label_selector).matches(pod.labels)
    ):
        yield "pod labels do not match the labelSelector filter in the policy parameter"


class MigrationFilter:
    """The filter of the migration controller over one state of the cluster; private to one call.

    Parameters
    ----------
    args
        Limits and switches.
    pods, workloads
        All of them.
    jobs
        Migration jobs, active or not; :meth:`put` adds or replaces one.
    """

    def __init__(
        self,
        args: MigrationControllerArgs,
        pods: Iterable[Pod],
        workloads: Iterable[Workload] = (),
        jobs: Iterable[PodMigrationJob] = (),
    ) -> None:
        pods = tuple(pods)
        self._args = args
        self.workloads = Workloads(workloads, pods)
        self._pods = {(pod.namespace, pod.name): pod for pod in pods}
        self._jobs: dict[str, PodMigrationJob] = {job.name: job for job in jobs}

    @property
    def jobs(self) -> tuple[PodMigrationJob, ...]:
        """The jobs as they stand, by name."""
        return tuple(job for _, job in sorted(self._jobs.items()))

    def put(self, job: PodMigrationJob) -> None:
        """Add a job, or replace the one of its name."""
        self._jobs[job.name] = job

    def refusal(self, pod: Pod) -> Refusal | None:
        """Ask all rules in upstream's order."""
        for job in self._jobs.values():
            if job.active and _refers(job, pod):
                return Refusal("filterExistingPodMigrationJob")
        args = self._args
        if args.default_job_mode.keeps_room and pod.scheduler_name not in (
            args.scheduler_names or JOB_SCHEDULERS
        ):
            return Refusal("reservationFilter")
        return self.permanent(pod) or self.retryable(pod)

    def permanent(self, pod: Pod) -> Refusal | None:
        """Ask the rules that will refuse the pod later, too: evictability and the size of its workload."""
        if ANNOTATION_EVICT in pod.annotations:
            return None
        return evictability(pod, self._args.evictor) or self._expected_replicas(pod)

    def _expected_replicas(self, pod: Pod) -> Refusal | None:
        if not self._args.checks_expected_replicas or pod.controller is None:
            return None
        workload = self.workloads.of(pod)
        if isinstance(workload, UnknownScale):
            return Refusal(LOOKUP_ERRORS[0])
        replicas, migrating, unavailable = self._limits_of(workload)
        return Refusal("expectedReplicas") if replicas in (1, migrating, unavailable) else None

    def _limits_of(self, workload: Workload | None) -> tuple[int, int, int]:
        replicas = 0 if workload is None else workload.replicas or 0
        return (
            replicas,
            max_unavailable(replicas, self._args.max_migrating_per_workload),
            max_unavailable(replicas, self._args.max_unavailable_per_workload),
        )

    def retryable(self, pod: Pod) -> Refusal | None:
        """Ask the rules that look at what is being migrated now."""
        if ANNOTATION_EVICT in pod.annotations:
            return None
        jobs = tuple(self._counted(pod))
        args, gates = self._args, self._args.evictor.skip_gates
        if EvictionGate.MAX_MIGRATING_GLOBALLY not in gates and _reached(
            len(jobs), args.max_migrating_globally
        ):
            return Refusal("maxMigratingGlobally", retryable=True)
        if EvictionGate.MAX_MIGRATING_PER_NODE not in gates and pod.node_name:
            moving = {key for key in map(self._pod_of, jobs) if self._stands_on(key, pod.node_name)}
            if _reached(len(moving), args.max_migrating_per_node):
                return Refusal("maxMigratingPerNode", retryable=True)
        if EvictionGate.MAX_MIGRATING_PER_NAMESPACE not in gates:
            same = sum(1 for job in jobs if job.pod is not None and job.pod.namespace == pod.namespace)
            if _reached(same, args.max_migrating_per_namespace):
                return Refusal("maxMigratingPerNamespace", retryable=True)
        return self._per_workload(pod, jobs)

    def _per_workload(self, pod: Pod, jobs: tuple[PodMigrationJob, ...]) -> Refusal | None:
        gates = self._args.evictor.skip_gates
        skip_migrating = EvictionGate.MAX_MIGRATING_PER_WORKLOAD in gates
        skip_unavailable = EvictionGate.MAX_UNAVAILABLE_PER_WORKLOAD in gates
        if pod.controller is None or (skip_migrating and skip_unavailable):
            return None
        workload = self.workloads.of(pod)
        if isinstance(workload, UnknownScale):
            return Refusal(LOOKUP_ERRORS[1], retryable=True)
        _, most_migrating, most_unavailable = self._limits_of(workload)
        moving = {self._pod_of(job) for job in jobs}
        migrating = {one.key for one in self.workloads.siblings(pod) if one.key in moving}
        if not skip_migrating and migrating and len(migrating) >= most_migrating:
            return Refusal("maxMigratingPerWorkload", retryable=True)
        if skip_unavailable:
            return None
        away = {one.key for one in self.workloads.pods_of(pod) if not _available(one)} | migrating
        if len(away) >= most_unavailable:
            return Refusal("maxUnavailablePerWorkload", retryable=True)
        return None

    def _counted(self, pod: Pod) -> Iterator[PodMigrationJob]:
        """List the active jobs of other pods; while a pod is arbitrated, only those that passed or run."""
        arbitrating = ANNOTATION_ARBITRATING in pod.annotations
        for job in self._jobs.values():
            if not job.active or _refers(job, pod):
                continue
            if (
                not arbitrating
                or job.phase is JobPhase.RUNNING
                or (job.phase is JobPhase.PENDING and passed(job))
            ):
                yield job

    def _pod_of(self, job: PodMigrationJob) -> PodKey | None:
        """Give the key of the job's pod if it still stands; a pod of another uid is another pod."""
        assert job.pod is not None
        found = self._pods.get((job.pod.namespace, job.pod.name))
        return None if found is None else found.key

    def _stands_on(self, key: PodKey | None, node: str) -> bool:
        found = None if key is None else self._pods.get((key.namespace, key.name))
        return found is not None and found.node_name == node


def passed(job: PodMigrationJob) -> bool:
    """Tell whether a job went through arbitration."""
    return job.annotations.get(ANNOTATION_PASSED) == "true"


def _refers(job: PodMigrationJob, pod: Pod) -> bool:
    return job.pod == pod.key or bool(pod.uid and job.pod_uid == pod.uid)


def under_way(snapshot: ClusterSnapshot) -> dict[PodKey, str]:
    """List the pods that leave their nodes anyhow: they terminate, or an active job moves them.

    A paused job moves nobody.

    Returns
    -------
    dict
        Pod to the node where room is kept for it; empty where none is known. A job that names no
        Reservation has one by its own uid.
    """
    jobs = [job for job in snapshot.of(PodMigrationJob) if job.active and not job.paused]
    named, uids = {job.pod: job for job in jobs}, {job.pod_uid: job for job in jobs if job.pod_uid}
    kept = {
        one.name: one.status.node_name
        for one in snapshot.of(Reservation)
        if one.status.phase is ReservationPhase.AVAILABLE
    }
    going: dict[PodKey, str] = {}
    for pod in snapshot.bound_pods():
        job = uids.get(pod.uid) or named.get(pod.key)
        # One of the same name and another uid has come in the place of the pod that moved.
        if job is not None and (not job.pod_uid or not pod.uid or job.pod_uid == pod.uid):
            going[pod.key] = kept.get(job.reservation or job.uid, "")
        elif pod.terminating:
            going[pod.key] = ""
    return going


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and limit > 0 and count >= limit


def _available(pod: Pod) -> bool:
    return not pod.finished and pod.deleted is None and pod.ready
