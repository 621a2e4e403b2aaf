"""The ScheduleExplanation object: whether a pod or job can be placed, or could be if others left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from koordcore.explaining.diagnosis import diagnose
from koordcore.explaining.groups import pods_ahead
from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionPlan, PreemptionRules
from koordcore.protocol.times import format_timestamp, moment_of
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.snapshot import ClusterSnapshot

_TTL: Final = "24h0m0s"
_RULES: Final = PreemptionRules()

Object = dict[str, Any]


def schedule_explanation(
    snapshot: ClusterSnapshot,
    pod: Pod,
    *,
    now: datetime,
    policy: Policy = Policy(),
) -> Object:
    """Answer for a pending pod, or for the whole job of one that is in a gang, as upstream's object does.

    Parameters
    ----------
    snapshot
        The cluster.
    pod
        Who asks, one of the pending pods.
    now
        The clock, written down as the time of the last update.
    policy
        As for :func:`koordcore.schedule`.

    Returns
    -------
    dict
        A ``ScheduleExplanation`` of ``scheduling.koordinator.sh/v1alpha1``; what is empty or false is left
        out. There is one detailed explanation, for the cluster as a whole, or for the network domain that
        the evictions would gather the job in.
    """
    asked = snapshot if snapshot.pod(pod.key) is not None else snapshot.with_pending(pod)
    turn = _turn_of(asked, pod)
    members = turn.pods if isinstance(turn, Job) else (pod,)
    key = turn.name if isinstance(turn, Job) else str(pod.key)
    before = () if isinstance(turn, Pod) else pods_ahead(asked, turn)
    names = {key, *(str(one.key) for one in members)}
    found = _about(schedule(asked, (*before, *members), policy=policy, now=now), names)
    placed = _settled(found)
    status: Object = {"schedulable": True} if placed else {}
    detail: Object = {**status, "scheduleExplanation": _explained(asked, found, members, policy, now, placed)}
    if not placed:
        status["failedMessage"] = detail["failedMessage"] = _message(found.decisions)
        tried = schedule(asked, (*before, *members), policy=policy, now=now, preempt=_RULES)
        tried = _about(tried, names)
        if tried.preemptions:
            status["schedulableAfterPreemption"] = detail["schedulableAfterPreemption"] = True
            detail |= _after(asked, tried, members)
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ScheduleExplanation",
        "metadata": {"name": key.replace("/", "-").replace(",", "-"), "namespace": pod.namespace},
        "spec": {"questionObjectKey": key, "ttl": _TTL},
        "status": {
            **status,
            "lastUpdateTime": format_timestamp(moment_of(now)),
            "detailedExplanation": [detail],
        },
    }


def _turn_of(snapshot: ClusterSnapshot, pod: Pod) -> Pod | Job:
    """Find the job of a pod among all that wait, or give the pod."""
    for turn in JobTable(snapshot).turns(snapshot.pending):
        if isinstance(turn, Job) and any(one.key == pod.key for one in turn.pods):
            return turn
    return pod


def _about(result: ScheduleResult, names: Collection[str]) -> ScheduleResult:
    """Leave out what was decided about gangs that it waits for."""
    return attrs.evolve(
        result,
        decisions=tuple(one for one in result.decisions if str(one.pod) in names),
        jobs=tuple(one for one in result.jobs if one.job in names),
        preemptions=tuple(one for one in result.preemptions if one.job in names),
    )


def _settled(result: ScheduleResult) -> bool:
    """Tell whether the job runs: whoever has no node is beyond its minimum."""
    if result.jobs:
        return all(plan.placed for plan in result.jobs)
    return len(result.bound) == len(result.decisions)


def _message(decisions: Iterable[PodDecision]) -> str:
    for one in decisions:
        if isinstance(one, Unschedulable):
            return one.message
        if isinstance(one, Waiting):
            return one.reason
    return ""


def _explained(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    members: Sequence[Pod],
    policy: Policy,
    now: datetime,
    placed: bool,
) -> Object:
    """Where the members go, or what the nodes say to the first of them that goes nowhere."""
    pods = {one.key: one for one in members}
    known: Object = {"schedulable": True} if placed else {"failedMessage": _message(result.decisions)}
    chosen = [_result(pods[one.pod], one.node) for one in result.decisions if isinstance(one, Bound)]
    if chosen:
        known["feasibleSchedulingResult"] = chosen
    lost = [one.pod for one in result.decisions if isinstance(one, Unschedulable)]
    if lost:
        details = diagnose(snapshot, pods[lost[0]], now=now, policy=policy).schedule.node_failed_details
        if details:
            known["nodeFailedDetails"] = [one.to_json() for one in details]
    return known


def _after(snapshot: ClusterSnapshot, result: ScheduleResult, members: Sequence[Pod]) -> Object:
    """Who would have to leave, and where the members would go then."""
    pods = {one.key: one for one in members}
    (plan, *_) = result.preemptions
    nominated = {one.pod: one.node for one in result.decisions if isinstance(one, Nominated)}
    after: Object = {
        "nodePossibleVictims": _victims(snapshot, plan),
        "preemptExplanation": {
            "schedulable": True,
            "feasibleSchedulingResult": [_result(pods[key], node) for key, node in nominated.items()],
        },
    }
    return {"topologyDomain": plan.domain, **after} if plan.domain else after


def _victims(snapshot: ClusterSnapshot, plan: PreemptionPlan) -> list[Object]:
    by_node: dict[str, list[PodKey]] = {}
    for victim in plan.victims:
        by_node.setdefault(victim.node, []).append(victim.pod)
    return [
        {"nodeName": node, "possibleVictims": [_name(key, snapshot.pod(key)) for key in sorted(keys)]}
        for node, keys in sorted(by_node.items())
    ]


def _result(pod: Pod, node: str) -> Mapping[str, str]:
    return {**_name(pod.key, pod), "nodeName": node}


def _name(key: PodKey, pod: Pod | None) -> dict[str, str]:
    uid = {"uid": pod.uid} if pod is not None and pod.uid else {}
    return {"namespace": key.namespace, "name": key.name, **uid}
