"""One request to the API server."""

from __future__ import annotations

from typing import Any, Final

from koordcore._record import record
from koordcore.model.pods import PodKey

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
"""Conditions are a list with a key: a plain merge patch would replace all of them."""


@record(kw_only=True)
class Call:
    """One request to the API server about a pod.

    Parameters
    ----------
    verb
        ``patch`` or ``create``.
    pod
        The pod it is about.
    subresource
        ``binding``, ``status``, ``eviction``, or empty for the pod itself.
    content_type
        How a patch is meant; empty for ``create``.
    body
        The object or patch.
    reservation
        Name of the Reservation that it is about instead of a pod; empty for none.
    claim
        Name of the ResourceClaim of the pod's namespace that it is about instead of the pod; empty for none.
    volume_claim
        Name of the PersistentVolumeClaim of the pod's namespace that it is about instead; empty for none.
    node
        Name of the Node that it is about instead of the pod; empty for none.
    pod_group
        API version of the PodGroup that it is about instead of a pod, whose name ``pod`` has; empty for none.
    """

    verb: str
    pod: PodKey
    subresource: str = ""
    content_type: str = ""
    body: dict[str, Any]
    reservation: str = ""
    claim: str = ""
    volume_claim: str = ""
    node: str = ""
    pod_group: str = ""

    @property
    def path(self) -> str:
        """Path of the request."""
        if self.pod_group:
            where = f"/apis/{self.pod_group}/namespaces/{self.pod.namespace}/podgroups/{self.pod.name}"
            return f"{where}/{self.subresource}"
        if self.node:
            return f"/api/v1/nodes/{self.node}"
        if self.reservation:
            path = f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/{self.reservation}"
            return f"{path}/{self.subresource}" if self.subresource else path
        if self.claim:
            path = f"/apis/resource.k8s.io/v1/namespaces/{self.pod.namespace}/resourceclaims"
            named = (path,) if self.verb == "create" else (path, self.claim, self.subresource)
            return "/".join(part for part in named if part)
        if self.volume_claim:
            return f"/api/v1/namespaces/{self.pod.namespace}/persistentvolumeclaims/{self.volume_claim}"
        path = f"/api/v1/namespaces/{self.pod.namespace}/pods/{self.pod.name}"
        return f"{path}/{self.subresource}" if self.subresource else path

    def to_json(self) -> dict[str, Any]:
        """Give the call as plain data: verb, path, content type of a patch, body."""
        kind = {"contentType": self.content_type} if self.content_type else {}
        return {"verb": self.verb, "path": self.path, **kind, "body": self.body}
