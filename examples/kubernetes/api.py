"""What the scheduler asks of an API server, whatever client carries it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

import attrs

from koordcore.manifests import Call

__all__ = [
    "RESOURCES",
    "Api",
    "Event",
    "GoneError",
    "Listing",
    "Object",
    "RefusedError",
    "Request",
    "UnreachableError",
    "key_of",
]

Object: TypeAlias = dict[str, Any]
"""An object as JSON; nobody below the client makes classes of it."""

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


class RefusedError(Exception):
    """The server has answered, and the answer is no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def passing(self) -> bool:
        """Asking once more may help: the server was busy or ill."""
        return self.status == 429 or self.status >= 500


class GoneError(Exception):
    """The version to watch from has been compacted away: list anew."""


class UnreachableError(Exception):
    """No answer; nobody knows whether the request has been carried out."""


@attrs.frozen
class Listing:
    """All objects of a kind at one version."""

    items: tuple[Object, ...]
    version: str


@attrs.frozen
class Event:
    """One change: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which only tells the version."""

    what: str
    object: Object


@attrs.frozen(kw_only=True)
class Request:
    """One write."""

    method: str
    path: str
    body: Object
    content_type: str = "application/json"

    @classmethod
    def of(cls, call: Call) -> Request:
        """Turn a call of koordcore's into a request."""
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


class Api(Protocol):
    """An API server. Each method raises :class:`UnreachableError` where there is no answer."""

    def list_all(self, path: str) -> Listing:
        """List all objects under a path."""
        ...

    def watch(self, path: str, version: str) -> Iterator[Event]:
        """Yield changes after a version until the server ends the stream.

        Raises
        ------
        GoneError
            When the version is too old.
        """
        ...

    def send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        """Make one request and give the answer.

        Raises
        ------
        RefusedError
            With the status of the answer.
        """
        ...


def key_of(item: Object) -> tuple[str, str]:
    """Give namespace and name of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
