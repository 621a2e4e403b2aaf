"""Decisions out: what a controller would send to the API server.

For each pod in the order of the decisions: what is written on it, then where it goes, or why it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from koordcore.manifests.calls import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Call
from koordcore.manifests.claim_calls import claim_calls
from koordcore.manifests.encode import format_time
from koordcore.manifests.group_patches import SCHEDULER_ERROR, group_conditions, malformed_members
from koordcore.manifests.held_claims import write_held_claims
from koordcore.manifests.plugin_patches import NO_PATCH, plugin_patch
from koordcore.manifests.volume_calls import volume_calls
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import PodKey
from koordcore.model.reservations import ConditionStatus, Reservation, ReservationCondition, ReservationPhase
from koordcore.model.resources import format_resources
from koordcore.protocol.device_plugins import PluginPatch
from koordcore.protocol.preemption import PREEMPTED_REASON, format_preempted
from koordcore.protocol.reservation import (
    HELD_CLAIMS,
    NOMINATED_NODE,
    RESERVATION_ALLOCATED,
    allocated_reservation,
)
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

__all__ = ["MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "Call", "eviction", "patches"]

_UNSCHEDULABLE: Final = "Unschedulable"
_GATED: Final = "SchedulingGated"


def patches(
    result: ScheduleResult, *, now: datetime | None = None, bound_at: datetime | None = None
) -> tuple[Call, ...]:
    """Say what a controller would send for a result.

    A bound pod gets its labels and annotations first and its Binding then, as upstream does in PreBind and
    Bind; before that its claims get their devices and are reserved for it, and claims whose volumes are made
    for it are told its node. A pod that cannot be placed gets the condition ``PodScheduled=False`` with the
    text of its event.
    Victims are evicted once, however many pods they make room for. Before that they get the condition
    ``DisruptionTarget`` with the reason ``PreemptionByScheduler``, as the stock scheduler sets it, so that
    whoever reads the cluster next waits for them. Kubernetes' own groups that start, or cannot, get their
    condition last.

    Pods with cards of a vendor whose device plugin reads annotations get these, pods isolated by HAMi-core
    get their label (gate ``DevicePluginAdaption``). Where the plugin serves one pod at a time its node is
    locked first: send what is about the next pod there once the plugin took the lock away.

    Parameters
    ----------
    result
        What :func:`koordcore.schedule` decided.
    now
        Transition time of the conditions, with its zone; left out of them when it is not given.
    bound_at
        Time of binding for device plugins, if not ``now``; without either the annotations that are times, and
        locks, are left out.
    """
    moment = bound_at or now
    evicted: set[PodKey] = set()
    told: set[tuple[str, str]] = set()
    podless = any(result.snapshot.pod(one.pod) is None for one in result.decisions)
    reservations = {one.pod_key: one for one in result.snapshot.of(Reservation)} if podless else {}
    malformed = malformed_members(result)
    calls: list[Call] = []
    for decision in result.decisions:
        one = reservations.get(decision.pod)
        if decision.pod in malformed:
            calls.append(_unscheduled(decision.pod, SCHEDULER_ERROR, malformed[decision.pod], now))
        elif one is None:
            plugin = plugin_patch(result, decision, moment) if isinstance(decision, Bound) else NO_PATCH
            calls += _locks(decision, plugin)
            if isinstance(decision, Bound):
                calls += volume_calls(result.snapshot, decision, told)
            calls += _calls(result.snapshot, decision, now, evicted, plugin)
        else:
            calls += _evictions(result.snapshot, decision, now, evicted)
            calls += _about_reservation(one, decision, now)
            calls += _owners_taken_in(result, one, decision)
    calls += (_status(pod, {"nominatedNodeName": None}) for pod in result.withdrawn)
    calls += _about_groups(result, now)
    return tuple(calls)


def _about_groups(result: ScheduleResult, now: datetime | None) -> Iterator[Call]:
    """Groups that started or failed say so."""
    time = {} if now is None else {"lastTransitionTime": format_time(now)}
    for group, condition in group_conditions(result):
        written = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": condition.observed_generation,
            **time,
        }
        yield Call(
            verb="patch",
            pod=PodKey(group.namespace, group.name),
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
            body={"status": {"conditions": [written]}},
            pod_group=group.api_version,
        )


def _calls(
    snapshot: ClusterSnapshot,
    decision: PodDecision,
    now: datetime | None,
    evicted: set[PodKey],
    plugin: PluginPatch,
) -> Iterator[Call]:
    match decision:
        case Bound():
            yield from claim_calls(snapshot, decision, now)
            yield from _bound(snapshot, decision, plugin)
        case Unschedulable():
            yield _unscheduled(decision.pod, _UNSCHEDULABLE, decision.message, now)
        case Waiting():
            pod = snapshot.pod(decision.pod)
            if pod is not None and pod.gated:
                yield _unscheduled(decision.pod, _GATED, decision.reason, now)
            elif pod is None or pod.scheduling_group is None:
                yield _unscheduled(decision.pod, _UNSCHEDULABLE, decision.reason, now)
            # Kubernetes' own groups wait outside the queue: an autoscaler must not add nodes for them.
        case Nominated():
            yield from _evictions(snapshot, decision, now, evicted)
            yield _status(decision.pod, {"nominatedNodeName": decision.node})
        case NotOurs():
            pass  # its own scheduler says what becomes of it


def _evictions(
    snapshot: ClusterSnapshot, decision: PodDecision, now: datetime | None, evicted: set[PodKey]
) -> Iterator[Call]:
    """Evict whoever has to leave for a pod or a reservation, once."""
    for victim in decision.victims if isinstance(decision, Nominated) else ():
        if victim.pod not in evicted:
            evicted.add(victim.pod)
            pod = snapshot.pod(victim.pod)
            job = pod.preempted_by if pod is not None else ""
            message = format_preempted(job or str(decision.pod))
            yield _condition(victim.pod, "DisruptionTarget", "True", PREEMPTED_REASON, message, now)
            yield eviction(victim.pod)


def _about_reservation(one: Reservation, decision: PodDecision, now: datetime | None) -> Iterator[Call]:
    """A reservation that got a node becomes available there, without a pod; one that waits says for which."""

    def patch(body: dict[str, Any], subresource: str = "") -> Call:
        return Call(
            verb="patch",
            pod=decision.pod,
            subresource=subresource,
            content_type=MERGE_PATCH,
            body=body,
            reservation=one.name,
        )

    time = {} if now is None else {"lastProbeTime": format_time(now), "lastTransitionTime": format_time(now)}
    if isinstance(decision, Bound):
        held = {HELD_CLAIMS: write_held_claims(decision.claims)} if decision.claims else {}
        if decision.annotations or decision.dropped or held:
            yield patch({"metadata": {"annotations": {**_annotations(decision), **held}}})
        conditions = [
            {"type": kind, "status": "True", "reason": reason, **time}
            for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
        ]
        status = {
            "phase": str(ReservationPhase.AVAILABLE),  # what becomes of it next is its controller's to say
            "nodeName": decision.node,
            "allocatable": format_resources(one.status.allocatable or {}),
            "conditions": conditions,
        }
        yield patch({"status": status}, "status")
    elif isinstance(decision, Nominated):
        yield patch({"metadata": {"annotations": {NOMINATED_NODE: decision.node}}})
    elif isinstance(decision, Unschedulable):
        kept = [_kept(condition) for condition in one.status.conditions if condition.kind != "Scheduled"]
        for condition in one.status.conditions:
            said = (condition.kind, condition.status) == ("Scheduled", ConditionStatus.FALSE)
            if said and condition.changed is not None and now is not None:
                time["lastTransitionTime"] = format_time(condition.changed)  # it was so before
        failed = {
            "type": "Scheduled",
            "status": "False",
            "reason": _UNSCHEDULABLE,
            "message": decision.message,
            **time,
        }
        yield patch({"status": {"conditions": [*kept, failed]}}, "status")


def _owners_taken_in(result: ScheduleResult, one: Reservation, decision: PodDecision) -> Iterator[Call]:
    """Running pods over which a reservation was placed are told so."""
    if not one.pre_allocation or not isinstance(decision, Bound):
        return
    decided = {other.pod for other in result.decisions}
    for pod in result.snapshot.node(decision.node).pods:
        used = allocated_reservation(pod.annotations)
        if pod.key not in decided and used is not None and (used.uid, used.name) == (one.uid, one.name):
            text = pod.annotations[RESERVATION_ALLOCATED]
            body = {"metadata": {"annotations": {RESERVATION_ALLOCATED: text}}}
            yield Call(verb="patch", pod=pod.key, content_type=MERGE_PATCH, body=body)


def _kept(condition: ReservationCondition) -> dict[str, Any]:
    written = {
        "type": condition.kind,
        "status": str(condition.status),
        "reason": condition.reason,
        "message": condition.message,
        "lastProbeTime": condition.probed and format_time(condition.probed),
        "lastTransitionTime": condition.changed and format_time(condition.changed),
    }
    return {key: value for key, value in written.items() if value}


def _annotations(decision: Bound, plugin: PluginPatch = NO_PATCH) -> dict[str, str | None]:
    """Give what a merge patch writes, and with ``null`` what it takes away."""
    gone: dict[str, str | None] = dict.fromkeys(decision.dropped)
    return dict(sorted({**gone, **decision.annotations, **plugin.annotations}.items()))


def _locks(decision: PodDecision, plugin: PluginPatch) -> Iterator[Call]:
    """Lock the node of a pod whose device plugin can tell one new pod at a time."""
    if isinstance(decision, Bound) and plugin.lock is not None:
        body = {"metadata": {"annotations": {plugin.lock.key: plugin.lock.value}}}
        yield Call(verb="patch", pod=decision.pod, content_type=MERGE_PATCH, body=body, node=decision.node)


def _bound(snapshot: ClusterSnapshot, decision: Bound, plugin: PluginPatch) -> Iterator[Call]:
    labels = dict(sorted({**decision.labels, **plugin.labels}.items()))
    annotations = _annotations(decision, plugin)
    written = {name: texts for name, texts in (("annotations", annotations), ("labels", labels)) if texts}
    if written:
        yield Call(verb="patch", pod=decision.pod, content_type=MERGE_PATCH, body={"metadata": written})
    pod = snapshot.pod(decision.pod)
    metadata = {"name": decision.pod.name, "namespace": decision.pod.namespace}
    if pod is not None and pod.uid:
        metadata["uid"] = pod.uid  # binds this pod and no later one of its name
    target = {"apiVersion": "v1", "kind": "Node", "name": decision.node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    yield Call(verb="create", pod=decision.pod, subresource="binding", body=body)


def _unscheduled(pod: PodKey, reason: str, message: str, now: datetime | None) -> Call:
    return _condition(pod, "PodScheduled", "False", reason, message, now)


def _condition(pod: PodKey, kind: str, status: str, reason: str, message: str, now: datetime | None) -> Call:
    time = {} if now is None else {"lastTransitionTime": format_time(now)}
    condition = {"type": kind, "status": status, "reason": reason, "message": message, **time}
    return _status(pod, {"conditions": [condition]})


def _status(pod: PodKey, status: dict[str, Any]) -> Call:
    return Call(
        verb="patch",
        pod=pod,
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body={"status": status},
    )


def eviction(pod: PodKey) -> Call:
    """Say how a pod is evicted, disruption budgets permitting."""
    metadata = {"name": pod.name, "namespace": pod.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    return Call(verb="create", pod=pod, subresource="eviction", body=body)
