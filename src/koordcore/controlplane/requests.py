"""What a scheduler writes to an API server, as values: which objects matter, and what is asked about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.manifests.calls import Call

Object: TypeAlias = dict[str, Any]
"""An object as JSON."""

_KOORDINATOR: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
_SIGS: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1"

RESOURCES: Final[Mapping[str, str]] = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "ClusterNetworkTopology": f"{_KOORDINATOR}/clusternetworktopologies",
    "Device": f"{_KOORDINATOR}/devices",
    "Reservation": f"{_KOORDINATOR}/reservations",
    "PodGroup": f"{_SIGS}/podgroups",
    "ElasticQuota": f"{_SIGS}/elasticquotas",
    "NodeMetric": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
}
"""Kinds that decisions depend on, and where the objects of the whole cluster are listed."""


def version_of(kind: str, resources: Mapping[str, str] = RESOURCES) -> str:
    """Give the API version of a kind, by where its objects are listed."""
    return resources[kind].removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]


@record(kw_only=True)
class Request:
    """One write.

    Parameters
    ----------
    method, path, body, content_type
        As they go over HTTP.
    needed_by, needed_uid
        The pod whose binding waits for it, as ``namespace/name``, and its uid, where it is about something
        that the pod needs; empty for none.
    """

    method: str
    path: str
    body: Object
    content_type: str = "application/json"
    needed_by: str = ""
    needed_uid: str = ""

    @classmethod
    def of(cls, call: Call) -> Request:
        """Turn a call of :func:`koordcore.patches` into a request."""
        method = {"create": "POST", "patch": "PATCH"}[call.verb]
        kind = call.content_type or "application/json"
        return cls(
            method=method,
            path=call.path,
            body=call.body,
            content_type=kind,
            needed_by=str(call.pod) if call.claim or call.volume_claim or call.node else "",
        )

    @property
    def about(self) -> str:
        """Path of the object, without the subresource; its writes keep their order."""
        path = "/".join(self._parts[0])
        return f"{path}/{self.body['metadata']['name']}" if self.makes else path

    @property
    def makes(self) -> bool:
        """Tell whether it makes an object: its path is that of a collection."""
        return self.method == "POST" and not self._parts[1]

    @property
    def uid(self) -> str:
        """The uid of the object that is meant, wherever its kind of request has it; empty for a new one."""
        options = self.body.get("deleteOptions", {}).get("preconditions", {})
        return str(options.get("uid") or self.body.get("metadata", {}).get("uid", ""))

    def meaning(self, uid: str) -> Request:
        """Name the uid of the object that is meant, so that a later one of its name is never met."""
        if self.subresource == "eviction":
            body = {**self.body, "deleteOptions": {"preconditions": {"uid": uid}}}
        else:
            body = {**self.body, "metadata": {**self.body.get("metadata", {}), "uid": uid}}
        return attrs.evolve(self, body=body)

    @property
    def subresource(self) -> str:
        """The part after the object's path."""
        return "/".join(self._parts[1])

    @property
    def pod(self) -> tuple[str, str] | None:
        """Namespace and name of the pod that it is about; ``None`` for another object."""
        match self._parts[0]:
            case ["", "api", "v1", "namespaces", namespace, "pods", name]:
                return namespace, name
            case _:
                return None

    @property
    def _parts(self) -> tuple[list[str], list[str]]:
        return split_path(self.path)


def split_path(path: str) -> tuple[list[str], list[str]]:
    """Split a path into that of an object, or of a collection, and that of a subresource."""
    parts = path.split("/")
    at = 3 if parts[1] == "api" else 4
    if parts[at] == "namespaces" and len(parts) > at + 2:
        at += 2
    return parts[: at + 2], parts[at + 2 :]


def key_of(item: Object) -> tuple[str, str]:
    """Give namespace and name of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
