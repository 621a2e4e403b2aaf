"""What follows from a decision: the requests that carry it out, and those that only say why pods wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from koordcore._record import record
from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Object, Request
from koordcore.manifests.plan_patches import patches
from koordcore.model.pods import Pod, PodKey
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
        one = Request.of(call)
        if one.pod is not None:
            one = _pinned(one, snapshot)
        conditions = one.body["status"].get("conditions", ()) if one.subresource == "status" else ()
        said = any(condition["type"] == "PodScheduled" for condition in conditions)
        (remarks if said or (conditions and call.pod_group) else requests).append(one)
    leaving = {one.pod for one in requests if one.subresource == "eviction"}
    for key in going:
        if (key.namespace, key.name) in leaving:
            continue
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/eviction"
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
        }
        requests.append(_pinned(Request(method="POST", path=path, body=body), snapshot))
    return Orders(tuple(requests), tuple(remarks))


def is_news(remark: Request, mirror: Mirror) -> bool:
    """Tell whether the condition of a pod, or of a group, says something else so far."""
    (wanted,) = remark.body["status"]["conditions"]
    status = (mirror.at(remark.about) or {}).get("status")
    known = status.get("conditions") if isinstance(status, Mapping) else None
    same = ("type", "status", "message")
    return not any(
        isinstance(one, Mapping) and all(one.get(name, "") == wanted.get(name, "") for name in same)
        for one in (known if isinstance(known, list | tuple) else ())
    )


def _pinned(request: Request, snapshot: ClusterSnapshot) -> Request:
    """Make sure that a request never meets a later pod of the same name."""
    assert request.pod is not None
    namespace, name = request.pod
    # Members of half a gang may run on a node that is gone: they are records then.
    pod = snapshot.pod(PodKey(namespace, name)) or snapshot.find(Pod, name, namespace)
    assert pod is not None
    body: dict[str, Any] = dict(request.body)
    if request.subresource == "eviction":
        body["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
    else:
        body["metadata"] = {**body.get("metadata", {}), "uid": pod.uid}
    return attrs.evolve(request, body=body)
