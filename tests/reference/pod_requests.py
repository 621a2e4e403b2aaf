"""What a pod asks for in effect, container by container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutabledict import immutabledict

from koordcore.protocol.qos import (
    DEFAULT_PRIORITY,
    ContainerResources,
    _pod_level,
    priority_class_with_default,
)


def priority_value(labels: Mapping[str, str], priority: int | None, kubernetes_qos: str) -> int:
    """Give ``spec.priority`` or, where it is absent or 0, the default of the pod's class."""
    return priority or DEFAULT_PRIORITY[priority_class_with_default(labels, priority, kubernetes_qos)]


def _raise_to(amounts: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        amounts[name] = max(amounts.get(name, amount), amount)


def _add_to(amounts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def effective_request(
    containers: Iterable[ContainerResources],
    init_containers: Iterable[ContainerResources] = (),
    *,
    overhead: Mapping[str, int] = immutabledict(),
    pod_level: Mapping[str, int] = immutabledict(),
) -> dict[str, int]:
    """Give what a pod needs at its greediest moment, as Kubernetes' ``PodRequests`` does.

    Init containers run one after the other beside the sidecars started before them; containers run
    together, beside all sidecars. Pod-level requests replace that sum name by name; overhead is added.

    Returns
    -------
    dict
        Name to amount in the units given; a name that nobody asks for is absent, not 0.
    """
    amounts: dict[str, int] = {}
    for container in containers:
        _add_to(amounts, container.requests)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        if container.restartable:
            _add_to(amounts, container.requests)
            _add_to(sidecars, container.requests)
            _raise_to(peak, sidecars)
        else:
            moment = dict(sidecars)
            _add_to(moment, container.requests)
            _raise_to(peak, moment)
    _raise_to(amounts, peak)
    amounts.update((name, amount) for name, amount in pod_level.items() if _pod_level(name))
    _add_to(amounts, overhead)
    return amounts
