"""What follows from a decision: the requests that carry it out, and those that only say why pods wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from koordcore._record import record
from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Request
from koordcore.manifests.calls import Call
from koordcore.manifests.plan_patches import eviction, patches
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.model.volumes import PersistentVolumeClaim
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


@record
class Orders:
    """What has to be done, and what is only said.

    Parameters
    ----------
    requests
        Bindings, annotations, nominations, evictions: they go through the journal.
    remarks
        Conditions that say why pods wait; losing one does no harm.
    """

    requests: tuple[Request, ...]
    remarks: tuple[Request, ...]


def orders(
    snapshot: ClusterSnapshot, result: ScheduleResult, going: Mapping[PodKey, str], *, now: datetime
) -> Orders:
    """Turn decisions into requests.

    Parameters
    ----------
    result
        What was decided there.
    snapshot
        The cluster before.
    going
        Pods that have to go for other reasons, with these (:class:`~koordcore.controlplane.Overdue`).
    now
        Stands in the conditions.
    """
    requests: list[Request] = []
    remarks: list[Request] = []
    for call in patches(result, now=now):
        one = _pinned(Request.of(call), call, snapshot)
        (remarks if _is_remark(one) else requests).append(one)
    leaving = {one.pod for one in requests if one.subresource == "eviction"}
    for key in going:
        if (key.namespace, key.name) in leaving:
            continue
        call = eviction(key)
        requests.append(_pinned(Request.of(call), call, snapshot))
    return Orders(tuple(requests), tuple(remarks))


def is_news(remark: Request, mirror: Mirror) -> bool:
    """Tell whether the conditions of a pod, a group or a reservation say something else so far."""
    known = _known_conditions(remark, mirror)
    same = ("type", "status", "message")
    return not all(
        any(all(one.get(name, "") == wanted.get(name, "") for name in same) for one in known)
        for wanted in remark.body["status"]["conditions"]
    )


def dated(remark: Request, mirror: Mirror) -> Request:
    """Let conditions that stay as true, or false, as they are keep the time at which they became so."""
    since = {
        (one.get("type"), one.get("status")): one["lastTransitionTime"]
        for one in _known_conditions(remark, mirror)
        if one.get("lastTransitionTime")
    }
    conditions = [
        {**one, "lastTransitionTime": since[one["type"], one["status"]]}
        if (one["type"], one["status"]) in since
        else one
        for one in remark.body["status"]["conditions"]
    ]
    return attrs.evolve(remark, body={**remark.body, "status": {"conditions": conditions}})


def _known_conditions(remark: Request, mirror: Mirror) -> list[Mapping[str, Any]]:
    status = (mirror.at(remark.about) or {}).get("status")
    known = status.get("conditions") if isinstance(status, Mapping) else None
    return [one for one in (known if isinstance(known, list | tuple) else ()) if isinstance(one, Mapping)]


def _is_remark(request: Request) -> bool:
    """Tell whether nothing follows from it: it only says why somebody waits, or that a group started."""
    status = request.body.get("status", {})
    if request.subresource != "status" or status.keys() != {"conditions"}:
        return False
    return all(one["type"] != "DisruptionTarget" for one in status["conditions"])


def _pinned(request: Request, call: Call, snapshot: ClusterSnapshot) -> Request:
    """Make sure that a request never meets a later object of the same name, nor is sent for a later pod."""
    uid = _uid_of(call, snapshot)
    if uid:
        request = request.meaning(uid)
    return attrs.evolve(request, needed_uid=_pod_uid(call.pod, snapshot)) if request.needed_by else request


def _uid_of(call: Call, snapshot: ClusterSnapshot) -> str:
    """Give the uid of what a call is about; empty where the call has it, or it is made only now."""
    if call.claim:
        return ""
    if call.node:
        return snapshot.node(call.node).node.uid
    record: Reservation | PersistentVolumeClaim | SchedulingPodGroup | None
    if call.pod_group:
        record = snapshot.find(SchedulingPodGroup, call.pod.name, call.pod.namespace)
    elif call.reservation:
        record = snapshot.find(Reservation, call.reservation)
    elif call.volume_claim:
        record = snapshot.find(PersistentVolumeClaim, call.volume_claim, call.pod.namespace)
    else:
        return _pod_uid(call.pod, snapshot)
    return "" if record is None else record.uid


def _pod_uid(key: PodKey, snapshot: ClusterSnapshot) -> str:
    # Members of half a gang may run on a node that is gone: they are records then.
    pod = snapshot.pod(key) or snapshot.find(Pod, key.name, key.namespace)
    assert pod is not None
    return pod.uid
