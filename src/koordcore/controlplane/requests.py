"""What a scheduler writes to an API server, as values: which objects matter, and what is asked about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

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


@attrs.frozen(kw_only=True)
class Request:
    """One write.

    Parameters
    ----------
    method, path, body, content_type
        As they go over HTTP.
    """

    method: str
    path: str
    body: Object
    content_type: str = "application/json"

    @classmethod
    def of(cls, call: Call) -> Request:
        """Turn a call of :func:`koordcore.patches` into a request."""
        method = {"create": "POST", "patch": "PATCH"}[call.verb]
        kind = call.content_type or "application/json"
        return cls(method=method, path=call.path, body=call.body, content_type=kind)

    @property
    def about(self) -> str:
        """Path of the object, without the subresource; its writes keep their order."""
        return "/".join(self._parts[0])

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
        parts = self.path.split("/")
        end = 7 if parts[3] == "namespaces" else 6
        return parts[:end], parts[end:]


def key_of(item: Object) -> tuple[str, str]:
    """Give namespace and name of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
