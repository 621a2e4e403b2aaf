"""The debug endpoints of upstream's scheduler as one function: a path in, a JSON value out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordcore.errors import ModelError
from koordcore.explaining.reservation_view import reservation_view
from koordcore.explaining.views import device_view, gang_view, load_view, node_view, numa_view, quota_view
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.policy import Policy
from koordcore.model.quotas import QuotaPolicy
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Question:
    """Whom an endpoint asks."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy, now: datetime | None) -> None:
        self.snapshot = snapshot
        self._policy = policy
        self._now = now

    def args(self, plugin: str) -> Any:
        """What the policy tells a plugin; ``None`` for its defaults."""
        setting = self._policy.plugin(plugin)
        return None if setting is None else setting.args

    @property
    def now(self) -> datetime:
        """The clock, or the moment of the newest metric."""
        if self._now is not None:
            return self._now
        times = [one.update_time or 0 for one in self.snapshot.of(NodeMetric)]
        return _EPOCH + timedelta(microseconds=max(times, default=0) // 1000)


def _load(asked: _Question, name: str) -> Any:
    args: LoadAwareArgs | None = asked.args("LoadAwareScheduling")
    return load_view(asked.snapshot, name, asked.now, args)


def _devices(asked: _Question) -> Any:
    views = {state.name: device_view(asked.snapshot, state.name) for state in asked.snapshot.nodes}
    return {name: view for name, view in views.items() if view}


def _quotas(asked: _Question) -> dict[str, Any]:
    policy: QuotaPolicy | None = asked.args("ElasticQuota")
    return quota_view(asked.snapshot, policy)


def _quota(asked: _Question, name: str) -> Any:
    return _one(_quotas(asked), name, "quota")


def _gang(asked: _Question, namespace: str, name: str) -> Any:
    return _one(gang_view(asked.snapshot), f"{namespace}/{name}", "gang")


def _one(views: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in views:
        raise ModelError(f"no {kind} {name}")
    return views[name]


_PLUGINS: Final = "/apis/v1/plugins"
_ROUTES: Final[dict[str, Callable[..., Any]]] = {
    "/apis/v1/nodes/:name": lambda asked, name: node_view(asked.snapshot, name),
    f"{_PLUGINS}/Coscheduling/gang/:namespace/:name": _gang,
    f"{_PLUGINS}/Coscheduling/gangs": lambda asked: gang_view(asked.snapshot),
    f"{_PLUGINS}/DeviceShare/nodeDeviceSummaries": _devices,
    f"{_PLUGINS}/DeviceShare/nodeDeviceSummaries/:name": lambda asked, name: device_view(
        asked.snapshot, name
    ),
    f"{_PLUGINS}/ElasticQuota/quotas": _quotas,
    f"{_PLUGINS}/ElasticQuota/quotas/:name": _quota,
    f"{_PLUGINS}/LoadAwareScheduling/node/:name": _load,
    f"{_PLUGINS}/NodeNUMAResource/nodes/:name": lambda asked, name: numa_view(asked.snapshot, name),
    # As the notes of v0.7 print it.
    f"{_PLUGINS}/NodeNUMAResources/cpuTopologyOptions/:name": lambda asked, name: numa_view(
        asked.snapshot, name
    ),
    f"{_PLUGINS}/Reservation/nodeReservations/:name": lambda asked, name: reservation_view(
        asked.snapshot, name
    ),
}
_SERVICES: Final = "/apis/v1/__services__"

ENDPOINTS: Final = (_SERVICES, *_ROUTES)
"""The paths that are served; a part that begins with a colon stands for a name."""


def endpoint_view(
    snapshot: ClusterSnapshot, path: str, *, policy: Policy = Policy(), now: datetime | None = None
) -> Any:
    """Answer one debug endpoint for a snapshot.

    Parameters
    ----------
    snapshot
        The cluster.
    path
        One of :data:`ENDPOINTS` with names in it, such as ``/apis/v1/nodes/gpu-1``.
    policy
        Whose arguments hold: of load-aware scheduling and of quotas.
    now
        The clock, for what depends on the age of metrics; left out, it is the moment of the newest one.

    Raises
    ------
    ModelError
        When there is no such path, or nothing of that name.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node
    >>> cluster = ClusterSnapshot(nodes=[Node(name="n1", allocatable={"cpu": 4000, "pods": 10})])
    >>> endpoint_view(cluster, "/apis/v1/nodes/n1")["remaining"]
    {'cpu': '4', 'pods': '10'}
    """
    asked = _Question(snapshot, policy, now)
    parts = path.rstrip("/").split("/")
    if path.rstrip("/") == _SERVICES:
        return {"GET": list(ENDPOINTS)}
    for route, answer in _ROUTES.items():
        names = _names(route.split("/"), parts)
        if names is not None:
            return answer(asked, *names)
    raise ModelError(f"no endpoint {path}; there are {', '.join(ENDPOINTS)}")


def _names(route: list[str], parts: list[str]) -> list[str] | None:
    """Give the names that a path puts into a route; ``None`` where it is another route."""
    if len(route) != len(parts):
        return None
    pairs = list(zip(route, parts, strict=True))
    if any(known != part for known, part in pairs if not known.startswith(":")):
        return None
    return [part for known, part in pairs if known.startswith(":")]
