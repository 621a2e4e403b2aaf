"""Whom a proven plan could have spared: the job must not start where only cheaper victims have left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import combinations
from typing import Final

import attrs

from campaigns.case import Object, key_of
from campaigns.meaning import requests_of
from koordcore import ClusterSnapshot, Pod, PreemptionPlan, ScheduleResult, schedule

__all__ = ["one_job", "spared"]

MOST_VICTIMS: Final = 3
MOST_CANDIDATES: Final = 12
NOBODY: Final = -(2**62)
_MARKS: Final = ("gang", "pod-group")
_KEPT: Final = "quota.scheduling.koordinator.sh/preemptible"


def one_job(objects: Sequence[Object]) -> list[Object]:
    """Leave who asks for the most CPU of the most important, with its gang; no reservation waits either."""
    waiting = [one for one in objects if one["kind"] == "Pod" and not one["spec"].get("nodeName")]
    if not waiting:
        return [*objects]
    first = max(waiting, key=lambda one: (one["spec"].get("priority", 0), requests_of(one).get("cpu", 0)))
    job = _job(first)
    others = {key_of(one) for one in waiting if _job(one) != job}
    return [
        one
        for one in objects
        if not (one["kind"] == "Pod" and key_of(one) in others)
        and not (one["kind"] == "Reservation" and not one.get("status", {}).get("nodeName"))
    ]


def _job(pod: Object) -> str:
    """Name what a pod starts with: the gang by whichever mark, or itself."""
    meta = pod["metadata"]
    said = {**meta.get("annotations", {}), **meta.get("labels", {})}
    marks = ("sigs.k8s.io", "koordinator.sh/name")
    names = (text for mark, text in sorted(said.items()) if mark.endswith(marks))
    return next((f"gang {name}" for name in names), key_of(pod))


def spared(snapshot: ClusterSnapshot, result: ScheduleResult, now: datetime) -> Iterator[str]:
    """Try cheaper victims of no gang, up to three of them, against each plan that is proven."""
    for plan in result.preemptions if len(result.preemptions) == 1 else ():
        if not plan.certificate.proven or plan.damage.violations:
            continue
        for some in _cheaper(snapshot, plan):
            without = snapshot.forget(*(pod.key for pod in some))
            left = tuple(pod for pod in without.pending if pod.key not in {one.key for one in some})
            again = schedule(attrs.evolve(without, pending=left), policy=result.policy, now=now)
            if _next_door(snapshot, plan, some, again):
                continue
            if len(again.bound) >= len(result.bound) + len(plan.nominations):
                names = ", ".join(str(pod.key) for pod in some)
                yield f"{plan.certificate.status} says {plan.damage.vector}, and without {names} all start"
                break


def _next_door(
    snapshot: ClusterSnapshot, plan: PreemptionPlan, some: Sequence[Pod], again: ScheduleResult
) -> bool:
    """Tell whether a single pod, where neighbours mind, goes where not all of those have left for it."""
    if len(plan.nominations) != 1:
        return False
    (name,) = plan.nominations
    pod = next(one for one in snapshot.pending if str(one.key) == name)
    minds = bool(pod.spread_constraints) or any(
        one.affinity is not None and bool(one.affinity.pod or one.affinity.anti) for one in (pod, *some)
    )
    left = {one.node_name for one in some}
    return minds and any(str(one.pod) == name and left != {one.node} for one in again.bound)


def _cheaper(snapshot: ClusterSnapshot, plan: PreemptionPlan) -> Iterator[tuple[Pod, ...]]:
    """List sets of pods that cost less than a plan; none where there are too many to try."""
    least = min(pod.priority for pod in snapshot.pending if str(pod.key) in plan.nominations)
    may = [pod for pod in snapshot.bound_pods() if pod.priority < least and _may_leave(pod)]
    damage = plan.damage
    limit = (damage.highest, damage.jobs, damage.pods, damage.priorities)
    for number in range(min(MOST_VICTIMS, damage.pods) + 1 if len(may) <= MOST_CANDIDATES else 0):
        for some in combinations(may, number):
            priorities = [pod.priority for pod in some]
            if (max(priorities, default=NOBODY), number, number, sum(priorities)) < limit:
                yield some


def _may_leave(pod: Pod) -> bool:
    """Tell whether a pod may be evicted by itself."""
    alone = not any(mark in key for key in (*pod.annotations, *pod.labels) for mark in _MARKS)
    return alone and pod.labels.get(_KEPT) != "false" and not pod.fixed and not pod.leaving
