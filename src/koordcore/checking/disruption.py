"""How many pods a plan of moves takes away at any moment: budgets, workloads, gangs, migration limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from koordcore._record import record
from koordcore.checking.gangs import gang_minimums
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.labelled import LabelledPods
from koordcore.model.migration import PodMigrationJob
from koordcore.model.moves import Move
from koordcore.model.pods import OwnerReference, Pod, PodKey
from koordcore.model.rebalance import EvictionLimits, MigrationControllerArgs, Share
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.migration import ANNOTATION_EVICT
from koordcore.snapshot import ClusterSnapshot

COUNTED: Final = ("ReplicaSet", "Deployment", "StatefulSet", "ReplicationController", "CloneSet")


@record
class _Limit:
    """Pods of which at most so many may be away at once, those that are so anyhow and others among them."""

    kind: ViolationKind
    name: str
    pods: frozenset[PodKey]
    most: int
    away: frozenset[PodKey] = frozenset()
    others: int = 0


def check_disruptions(
    snapshot: ClusterSnapshot, moves: Sequence[Move], args: MigrationControllerArgs, limits: EvictionLimits
) -> Iterator[Violation]:
    """At no moment more pods are away than budgets, workloads, gangs and limits allow."""
    jobs = [job for job in snapshot.of(PodMigrationJob) if job.active]
    moving = frozenset(
        pod.key
        for pod in snapshot.bound_pods()
        if any(job.pod == pod.key or (pod.uid and job.pod_uid == pod.uid) for job in jobs)
    )
    for move in moves:
        if move.pod in moving:
            yield Violation(ViolationKind.LIMIT, str(move.pod), "has an active PodMigrationJob")
        for name in (move.source, move.target):
            if not args.selects(snapshot.node(name).node):
                yield Violation(ViolationKind.LIMIT, str(move.pod), f"nodeSelector leaves {name} out")
        pod = snapshot.pod(move.pod)
        names = args.scheduler_names if args.default_job_mode.keeps_room else None
        if names is not None and pod is not None and pod.scheduler_name not in names:
            yield Violation(ViolationKind.LIMIT, str(move.pod), f"schedulerNames lacks {pod.scheduler_name}")
    held = [
        *_budgets(snapshot, moving),
        *_workloads(snapshot, args, moving),
        *_gangs(snapshot, moving),
        *_migrating(snapshot, moves, args, moving, jobs),
    ]
    for wave in range(max((move.arrives for move in moves), default=-1) + 1):
        gone = {move.pod for move in moves if move.leaves <= wave <= move.arrives}
        for limit in held:
            leaving = gone & limit.pods
            count = len(leaving | limit.away) + limit.others
            # Whoever is away already takes no more, but goes nowhere while all that may be away are.
            if leaving and (count > limit.most or len(limit.away) + limit.others >= limit.most):
                already = " already" * (count <= limit.most)
                message = f"wave {wave + 1}: {count} away{already}, {max(0, limit.most)} allowed"
                yield Violation(limit.kind, limit.name, message)
    yield from _whole(moves, limits)
    yield from _limiters(snapshot, moves, args)


def _budgets(snapshot: ClusterSnapshot, moving: frozenset[PodKey]) -> Iterator[_Limit]:
    # Who was evicted and terminates is not among those that a budget still lets go.
    due = moving - {pod.key for pod in snapshot.bound_pods() if pod.deleted is not None}
    labelled = LabelledPods(snapshot.bound_pods())
    for budget in snapshot.of(PodDisruptionBudget):
        covered = {pod.key: pod.ready for pod in labelled.selected(budget.namespace, budget.selector)}
        healthy = frozenset(key for key, ready in covered.items() if ready)
        # What it lets go is the number of healthy ones beyond those that it keeps: the others are no part.
        beyond = 0 < budget.disruptions_allowed < len(healthy)
        keys = healthy if beyond else frozenset(covered)
        name = f"{budget.namespace}/{budget.name}"
        yield _Limit(ViolationKind.BUDGET, name, keys, budget.disruptions_allowed, keys & due)


def _workloads(
    snapshot: ClusterSnapshot, args: MigrationControllerArgs, moving: frozenset[PodKey]
) -> Iterator[_Limit]:
    for (kind, namespace, name), (replicas, pods) in sorted(_sized(snapshot).items()):
        keys = frozenset(pod.key for pod in pods)
        started = keys & moving
        away = started | {pod.key for pod in pods if not (pod.bound and pod.ready) or pod.deleted is not None}
        subject = f"{kind} {namespace}/{name}"
        shares = (args.max_migrating_per_workload, args.max_unavailable_per_workload)
        limits = [_scaled(replicas, share) for share in shares]
        held = keys - _willing(pods)
        # Of what migrates at once one is let go in any case; who is not ready counts as unavailable alone.
        yield _Limit(ViolationKind.BUDGET, subject, held, max(1, limits[0]), started)
        yield _Limit(ViolationKind.BUDGET, subject, held, limits[1], away)
        if args.checks_expected_replicas and replicas in (1, *limits):
            yield _Limit(ViolationKind.BUDGET, subject, held, 0)


def _willing(pods: Iterable[Pod]) -> frozenset[PodKey]:
    """Whoever says that it may be evicted passes every limit of the migration controller."""
    return frozenset(pod.key for pod in pods if ANNOTATION_EVICT in pod.annotations)


def _sized(snapshot: ClusterSnapshot) -> dict[tuple[str, str, str], tuple[int, list[Pod]]]:
    """Workloads that tell how many pods they want, by kind, namespace and name, with all their pods."""
    records = {(one.kind, one.namespace, one.name): one for one in snapshot.of(Workload)}

    def record(owner: OwnerReference | None, namespace: str) -> Workload | None:
        found = records.get((owner.kind, namespace, owner.name)) if owner is not None else None
        return found if found is not None and owner is not None and found.uid == owner.uid else None

    members: dict[tuple[str, str, str], tuple[int, list[Pod]]] = {}
    for pod in (*snapshot.bound_pods(), *snapshot.pending):
        found = record(next((one for one in pod.owners if one.controller), None), pod.namespace)
        if found is not None and found.kind == "ReplicaSet":
            above = next((one for one in found.owners if one.controller and one.kind == "Deployment"), None)
            found = record(above, pod.namespace) or found
        if found is not None and (found.kind in COUNTED or (found.kind != "Job" and found.replicas)):
            place = (found.kind, found.namespace, found.name)
            members.setdefault(place, (found.replicas or 0, []))[1].append(pod)
    return members


def _scaled(replicas: int, share: Share | None) -> int:
    """Turn a count, a percentage or nothing into pods; rounding leaves one at least."""
    if share is None:
        count = replicas // 10 if replicas > 10 else (2 if replicas >= 4 else 1)
    elif isinstance(share, int):
        count = share or 1
    else:
        count = replicas * int(share.rstrip("%")) // 100 or 1
    return min(count, replicas)


def _gangs(snapshot: ClusterSnapshot, moving: frozenset[PodKey]) -> Iterator[_Limit]:
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.bound_pods():
        name = gang_name(pod.labels, pod.annotations)
        if name and not pod.finished and pod.deleted is None:
            members[f"{pod.namespace}/{name}"].append(pod)
    for name, least in sorted(gang_minimums(snapshot, members).items()):
        keys = frozenset(pod.key for pod in members[name])
        yield _Limit(ViolationKind.GANG, name, keys, len(keys) - least, keys & moving)


def _migrating(
    snapshot: ClusterSnapshot,
    moves: Sequence[Move],
    args: MigrationControllerArgs,
    moving: frozenset[PodKey],
    jobs: Sequence[PodMigrationJob],
) -> Iterator[_Limit]:
    # Jobs go on when their pod is gone: they count wherever it is not asked where that stands.
    going = Counter(f"namespace {job.pod.namespace}" for job in jobs if job.pod is not None)
    going["all nodes"] = len(jobs)
    sets: dict[tuple[str, int], set[PodKey]] = defaultdict(set)
    away: dict[str, set[PodKey]] = defaultdict(set)
    for key in moving:
        for name in ("all nodes", f"namespace {key.namespace}", f"node {snapshot.location[key]}"):
            away[name].add(key)
    willing = _willing(snapshot.bound_pods())
    for move in moves:
        for name, most in (
            ("all nodes", args.max_migrating_globally),
            (f"namespace {move.pod.namespace}", args.max_migrating_per_namespace),
            (f"node {move.source}", args.max_migrating_per_node),
        ):
            if most is not None and most > 0 and move.pod not in willing:
                sets[name, most].add(move.pod)
    for (name, most), keys in sorted(sets.items()):
        others = max(0, going[name] - len(away[name]))
        yield _Limit(ViolationKind.LIMIT, name, frozenset(keys), most, frozenset(away[name]), others)


def _limiters(
    snapshot: ClusterSnapshot, moves: Sequence[Move], args: MigrationControllerArgs
) -> Iterator[Violation]:
    """Of no workload and no namespace does more move than an object limiter lets go in one duration."""
    pods = {pod.key: pod for pod in snapshot.bound_pods()}
    willing, judged = _willing(pods.values()), set[tuple[str, str]]()
    sized = _sized(snapshot).values() if any(move.pod in willing for move in moves) else ()
    wanted = {pod.key: size for size, own in sized for pod in own}
    replicas = {one.uid: one.replicas or 0 for one in snapshot.of(Workload)}
    for one in snapshot.of(Workload):
        for above in one.owners if one.kind == "ReplicaSet" else ():
            replicas[one.uid] = max(replicas[one.uid], replicas.get(above.uid, 0))
    counts: dict[tuple[str, str, int], int] = defaultdict(int)
    for move in moves:
        pod = pods.get(move.pod)
        owner = next((one for one in pod.owners if one.controller), None) if pod is not None else None
        for kind, limiter in args.limiters.items():
            share, name = limiter.max_migrating, move.pod.namespace
            if kind == "workload":
                if owner is None:
                    continue
                size = replicas.get(owner.uid)
                name = f"{owner.kind} {name}/{owner.name}"
                if share is not None and size is not None:
                    share = _scaled(size, share)
                elif share is None and move.pod in wanted:
                    share = _scaled(wanted[move.pod], args.max_migrating_per_workload)
            if limiter.duration > 0 and isinstance(share, int) and share > 0:
                counts[kind, name, max(share, limiter.burst)] += 1
                # One that says no number repeats the limits of the workload, but of whoever passes those.
                if limiter.max_migrating is not None or move.pod in willing:
                    judged.add((kind, name))
    for (kind, name, most), count in sorted(counts.items()):
        if count > most and (kind, name) in judged:
            yield Violation(
                ViolationKind.LIMIT, name, f"{count} moves, objectLimiters[{kind}] lets {most} go"
            )


def _whole(moves: Sequence[Move], limits: EvictionLimits) -> Iterator[Violation]:
    """The whole plan stays within what one cycle may evict."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for move in moves:
        for name, most in (
            ("all nodes", limits.total),
            (f"namespace {move.pod.namespace}", limits.per_namespace),
            (f"node {move.source}", limits.per_node),
        ):
            if most is not None:
                counts[name, most] += 1
    for (name, most), count in sorted(counts.items()):
        if count > most:
            yield Violation(ViolationKind.LIMIT, name, f"{count} evictions, {most} allowed")
