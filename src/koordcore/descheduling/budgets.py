"""How many pods of a set may be moved by one plan, or be on their way at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from koordcore.descheduling.migration.max_unavailable import max_unavailable
from koordcore.descheduling.migration.workloads import UnknownScale, Workloads
from koordcore.descheduling.moves import Group
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.labelled import LabelledPods
from koordcore.model.mappings import EMPTY
from koordcore.model.migration import PodMigrationJob
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import NO_LIMITS, EvictionLimits, MigrationControllerArgs, ObjectLimiter
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.migration import ANNOTATION_EVICT
from koordcore.snapshot import ClusterSnapshot

_IN_ALL: Final = ("maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace", "maxNoOfPodsToEvictTotal")
_AT_ONCE: Final = ("maxMigratingPerNode", "maxMigratingPerNamespace", "maxMigratingGlobally")


def move_groups(
    pods: Sequence[Pod],
    *,
    pending: Iterable[Pod] = (),
    budgets: Iterable[PodDisruptionBudget] = (),
    workloads: Iterable[Workload] = (),
    minimums: Mapping[str, int] = EMPTY,
    jobs: Iterable[PodMigrationJob] = (),
    args: MigrationControllerArgs | None = None,
    limits: EvictionLimits = NO_LIMITS,
) -> tuple[Group, ...]:
    """List the limits of a plan.

    All moves of a plan count together, whatever their waves are, so that no limit is exceeded at any moment.
    The members of a gang are one workload: a plan moves those beyond its minimum and never one of the
    others, because a gang below its minimum is a gang lost.

    Parameters
    ----------
    pods
        All bound pods.
    pending
        Pods that wait for a node: they are away for their workloads.
    budgets
        A pod that several of them cover counts in each. One that is not ready takes nothing of what a budget
        lets go that keeps others ready.
    workloads
        Those with a known number of replicas; one of a single pod, or as large as one of its limits, is not
        moved unless ``args`` says so.
    minimums
        Members that each gang needs at least, by ``namespace/name``.
    jobs
        Migration jobs: the pods of active ones are on their way, so they are away for their budgets,
        workloads and gangs, and get no second job.
    args
        Shares of a workload that may be away; defaults when left out. Pods that say that they may be evicted
        are held to none of them, as by the migration controller, and take nothing from the others.
    limits
        Pods per node, per namespace, and in all.
    """
    args = args or MigrationControllerArgs()
    workloads = tuple(workloads)
    moving = moving_pods(pods, jobs)
    groups = []
    labelled = LabelledPods(pods)
    for budget in sorted(budgets, key=lambda one: (one.namespace, one.name)):
        covered = labelled.selected(budget.namespace, budget.selector)
        if 0 < budget.disruptions_allowed < sum(pod.ready for pod in covered):
            # Some have to stay ready, and as many are: the eviction API lets the others go beside these.
            covered = [pod for pod in covered if pod.ready]
        name = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
        keys = tuple(sorted(pod.key for pod in covered))
        # Of whom the job has evicted already, the budget knows.
        due = sum(pod.key in moving and pod.deleted is None for pod in covered)
        groups.append(Group(name, keys, max(0, budget.disruptions_allowed - due)))
    groups += _workload_groups(pods, tuple(pending), workloads, args, moving)
    groups += _gang_groups(pods, minimums, moving)
    groups += _limit_groups(pods, limits, _IN_ALL)
    groups += _limiter_groups(pods, workloads, args)
    groups += _scheduler_groups(pods, args)
    groups.append(Group("an active PodMigrationJob", tuple(sorted(moving)), 0))
    return tuple(group for group in groups if group.pods and group.most < len(group.pods))


def moving_pods(pods: Iterable[Pod], jobs: Iterable[PodMigrationJob]) -> frozenset[PodKey]:
    """Give the pods that an active migration job is about, by the job's name of the pod or by its uid."""
    active = [job for job in jobs if job.active]
    named, uids = {job.pod for job in active}, {job.pod_uid for job in active if job.pod_uid}
    return frozenset(pod.key for pod in pods if pod.key in named or (pod.uid and pod.uid in uids))


def _workload_groups(
    pods: Sequence[Pod],
    pending: Sequence[Pod],
    workloads: Iterable[Workload],
    args: MigrationControllerArgs,
    moving: frozenset[PodKey],
) -> list[Group]:
    index = Workloads(workloads, pods)
    waiting = Counter(_key_of(index.of(pod)) for pod in pending)
    members: dict[tuple[str, str, str], list[Pod]] = {}
    replicas: dict[tuple[str, str, str], int] = {}
    for pod in pods:
        workload = index.of(pod)
        place = _key_of(workload)
        if isinstance(workload, Workload) and place is not None:
            members.setdefault(place, []).append(pod)
            replicas[place] = workload.replicas or 0
    groups = []
    for key, own in sorted(members.items()):
        size = replicas[key]
        shares = (args.max_migrating_per_workload, args.max_unavailable_per_workload)
        limits = [max_unavailable(size, share) for share in shares]
        started = sum(pod.key in moving for pod in own)
        here = {
            pod.key
            for pod in own
            if pod.ready and pod.deleted is None and not pod.finished and pod.key not in moving
        }
        left = limits[1] - waiting[key] - (len(own) - len(here))
        name = f"{key[1]} {key[0]}/{key[2]}"
        keys = tuple(sorted(pod.key for pod in own if not _asks_for_it(pod)))
        # Whoever is away already is so only once, but nobody goes where all that may be away are.
        bound = tuple(key for key in keys if left <= 0 or key in here)
        # The first migration of a workload is never refused, however small the share of it.
        groups += _shares(
            name,
            Group("maxMigratingPerWorkload", keys, max(0, max(1, limits[0]) - started)),
            Group("maxUnavailablePerWorkload", bound, max(0, left)),
        )
        if args.checks_expected_replicas and size in (1, *limits):
            groups.append(Group(f"{name}, whose limit equals its size,", keys, 0))
    return groups


def _asks_for_it(pod: Pod) -> bool:
    """Tell whether a pod says that it may be evicted: no limit of the migration controller holds it back."""
    return ANNOTATION_EVICT in pod.annotations


def _shares(name: str, migrating: Group, unavailable: Group) -> list[Group]:
    """Give the tighter limit of a workload by its name; each by its own where neither implies the other."""
    for tight, loose in ((unavailable, migrating), (migrating, unavailable)):
        if tight.most <= loose.most and {*loose.pods} <= {*tight.pods}:
            return [Group(name, tight.pods, tight.most)]
    return [Group(f"{one.name} of {name}", one.pods, one.most) for one in (migrating, unavailable)]


def _key_of(workload: Workload | UnknownScale | None) -> tuple[str, str, str] | None:
    return (workload.namespace, workload.kind, workload.name) if isinstance(workload, Workload) else None


def _scheduler_groups(pods: Sequence[Pod], args: MigrationControllerArgs) -> list[Group]:
    """Room that is set aside first serves the schedulers that heed that; others' pods stay."""
    names = args.scheduler_names if args.default_job_mode.keeps_room else None
    others = [pod.key for pod in pods if names is not None and pod.scheduler_name not in names]
    return [Group("schedulerNames", tuple(sorted(others)), 0)]


def selected_groups(snapshot: ClusterSnapshot, args: MigrationControllerArgs) -> list[Group]:
    """Pods on nodes that no plan may touch stay there."""
    left_out = [state for state in snapshot.nodes if not args.selects(state.node)]
    pods = sorted(pod.key for state in left_out for pod in state.pods)
    return [Group("nodeSelector", tuple(pods), 0)] if pods else []


def _limiter_groups(
    pods: Sequence[Pod], workloads: Iterable[Workload], args: MigrationControllerArgs
) -> list[Group]:
    """Hold a plan, made at one moment, to what an object limiter lets go within one of its durations."""
    index = Workloads(workloads, pods)
    groups = []
    for kind, limiter in sorted(args.limiters.items()):
        members: dict[str, list[Pod]] = {}
        for pod in pods if limiter.duration > 0 else ():
            if kind == "namespace":
                members.setdefault(pod.namespace, []).append(pod)
            elif kind == "workload" and pod.controller is not None:
                owner = pod.controller
                members.setdefault(f"{owner.kind} {pod.namespace}/{owner.name}", []).append(pod)
        for name, own in sorted(members.items()):
            most = _limiter_rate(kind, limiter, index.of(own[0]), args)
            # Without a number of its own it says what the workload's limit says, of whoever passes that, too.
            implied = limiter.max_migrating is None and not any(map(_asks_for_it, own))
            if most > 0 and not implied:
                label = f"objectLimiters[{kind}] of {name}"
                groups.append(Group(label, tuple(sorted(pod.key for pod in own)), max(most, limiter.burst)))
    return groups


def _limiter_rate(
    kind: str,
    limiter: ObjectLimiter,
    workload: Workload | UnknownScale | None,
    args: MigrationControllerArgs,
) -> int:
    """Give the evictions of one duration; 0 where nothing is counted."""
    share = limiter.max_migrating
    if kind == "namespace" or not isinstance(workload, Workload):
        return share if isinstance(share, int) else 0
    return max_unavailable(
        workload.replicas or 0, args.max_migrating_per_workload if share is None else share
    )


def _gang_groups(pods: Sequence[Pod], minimums: Mapping[str, int], moving: frozenset[PodKey]) -> list[Group]:
    members: dict[str, list[PodKey]] = {}
    for pod in pods if minimums else ():
        name = gang_name(pod.labels, pod.annotations)
        if name and not pod.finished and pod.deleted is None:
            members.setdefault(f"{pod.namespace}/{name}", []).append(pod.key)
    return [
        Group(f"gang {name}", tuple(sorted(keys)), max(0, len(keys) - len(moving & {*keys}) - minimums[name]))
        for name, keys in sorted(members.items())
        if name in minimums
    ]


def migrating_groups(
    pods: Sequence[Pod],
    *,
    args: MigrationControllerArgs | None = None,
    jobs: Iterable[PodMigrationJob] = (),
) -> tuple[Group, ...]:
    """List the limits on what is on its way at any moment: in all, per namespace, per node that it leaves.

    Parameters
    ----------
    pods
        All bound pods.
    args
        The limits; one that is absent, 0 or less limits nothing, and none limits pods that say that they may
        be evicted.
    jobs
        Migration jobs: the active ones take their part of each limit for as long as the plan lasts, in all
        and in their namespace also where their pod is gone.

    Returns
    -------
    tuple of Group
        ``most`` is 0 where the jobs under way leave nothing.
    """
    args = args or MigrationControllerArgs()
    limits = EvictionLimits(
        total=_limit(args.max_migrating_globally),
        per_namespace=_limit(args.max_migrating_per_namespace),
        per_node=_limit(args.max_migrating_per_node),
    )
    active = [job for job in jobs if job.active]
    moving = moving_pods(pods, active)
    _, per_namespace, total = _AT_ONCE
    under_way = Counter([total] * len(active))
    under_way.update(f"{per_namespace} of {job.pod.namespace}" for job in active if job.pod is not None)
    asking = frozenset(pod.key for pod in pods if _asks_for_it(pod))
    groups = [
        _beside(group, max(under_way[group.name], len(moving.intersection(group.pods))), asking)
        for group in _limit_groups(pods, limits, _AT_ONCE)
    ]
    return tuple(group for group in groups if group.most < len(group.pods))


def _beside(group: Group, active: int, asking: frozenset[PodKey]) -> Group:
    """Give what is left of a limit beside jobs that are under way, and say how many these are."""
    bound = tuple(key for key in group.pods if key not in asking)
    if not active:
        return Group(group.name, bound, group.most)
    jobs = f"{active} active PodMigrationJob{'s' * (active > 1)}"
    return Group(f"{group.name}, beside {jobs},", bound, max(0, group.most - active))


def _limit(most: int | None) -> int | None:
    return most if most is not None and most > 0 else None


def _limit_groups(pods: Sequence[Pod], limits: EvictionLimits, names: tuple[str, str, str]) -> list[Group]:
    """Give one limit per node, one per namespace, and one for all, by the names of their settings."""
    by_node: dict[str, list[PodKey]] = {}
    by_namespace: dict[str, list[PodKey]] = {}
    for pod in pods:
        by_node.setdefault(pod.node_name or "", []).append(pod.key)
        by_namespace.setdefault(pod.namespace, []).append(pod.key)
    per_node, per_namespace, total = names
    groups = []
    if limits.per_node is not None:
        for name, keys in sorted(by_node.items()):
            groups.append(Group(f"{per_node} of {name}", tuple(sorted(keys)), limits.per_node))
    if limits.per_namespace is not None:
        for name, keys in sorted(by_namespace.items()):
            groups.append(Group(f"{per_namespace} of {name}", tuple(sorted(keys)), limits.per_namespace))
    if limits.total is not None:
        groups.append(Group(total, tuple(sorted(pod.key for pod in pods)), limits.total))
    return groups
