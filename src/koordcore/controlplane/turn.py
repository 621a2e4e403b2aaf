"""What follows from a decision: the requests that carry it out, and those that only say why pods wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from koordcore._record import record
from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Request
from koordcore.manifests.call_targets import uid_of, uid_of_pod
from koordcore.manifests.calls import Call
from koordcore.manifests.plan_patches import eviction, patches
from koordcore.model.pods import PodKey
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
    """Tell whether the conditions of what it is about say something else so far."""
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
    uid = uid_of(call, snapshot)
    if uid:
        request = request.meaning(uid)
    return attrs.evolve(request, needed_uid=uid_of_pod(call.pod, snapshot)) if request.needed_by else request
