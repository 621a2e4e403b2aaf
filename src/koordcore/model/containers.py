"""Containers of a pod, and the amounts that they need together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.resources import (
    CPU,
    MEMORY,
    NO_RESOURCES,
    Resources,
    add,
    frozen_amounts,
    make_resources,
    maximum,
    total,
)

DEFAULT_CPU_REQUEST: Final = 100
"""Milli-CPU that scoring assumes for a container that asks for none (Kubernetes' non-zero default)."""


DEFAULT_MEMORY_REQUEST: Final = 200 * 1024 * 1024
"""Bytes that scoring assumes for a container that asks for no memory."""


NON_ZERO_DEFAULTS: Final[Resources] = immutabledict(
    {CPU: DEFAULT_CPU_REQUEST, MEMORY: DEFAULT_MEMORY_REQUEST}
)


@record
class Container:
    """One container of a pod, as far as scheduling reads it.

    Parameters
    ----------
    requests, limits
        What it asks for and what it may use (milli-CPU, bytes, counts).
    restarts_always
        An init container with ``restartPolicy: Always``: a sidecar, which stays while the pod runs.
    """

    name: str = ""
    requests: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    limits: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    image: str = ""
    restarts_always: bool = False

    __attrs_post_init__ = check_fields


def only_container(requests: Resources, limits: Resources = NO_RESOURCES) -> Container:
    """Give the one container of a pod that was made by hand from amounts alone."""
    return Container("main", requests, limits)


def effective_requests(
    containers: Iterable[Container],
    init_containers: Iterable[Container] = (),
    *,
    overhead: Mapping[str, int] = NO_RESOURCES,
    pod_level: Mapping[str, int] = NO_RESOURCES,
    defaults: Mapping[str, int] = NO_RESOURCES,
    limits: bool = False,
) -> Resources:
    """Compute what a pod takes from its node.

    Containers and sidecars add up; init containers run one after another beside the sidecars started before
    them, so the largest of them counts; pod-level amounts replace the sum; overhead comes on top
    (Kubernetes ``resource.PodRequests``).

    Parameters
    ----------
    containers, init_containers
        In the order of the pod's specification.
    overhead, pod_level
        Amounts of the pod as a whole.
    defaults
        What a container that does not name a resource is taken to ask for.
    limits
        Add up limits instead of requests; overhead then counts only for resources that are limited.
    """

    def asked(container: Container) -> Resources:
        own = container.limits if limits else container.requests
        missing = {name: amount for name, amount in defaults.items() if name not in own}
        return add(own, missing) if missing else own

    parts = [asked(container) for container in containers]
    result = parts[0] if len(parts) == 1 else total(parts)
    sidecars: dict[str, int] = {}
    # While one of them starts, by name; a name that it does not ask for is never above all sidecars.
    starting: dict[str, int] = {}
    for container in init_containers:
        for name, amount in asked(container).items():
            beside = sidecars.get(name, 0) + amount
            starting[name] = max(starting.get(name, 0), beside)
            if container.restarts_always:
                sidecars[name] = beside
    if starting:
        result = maximum(add(result, sidecars), starting)
    if pod_level:
        result = make_resources({**result, **pod_level})
    if overhead:
        counted = {name: amount for name, amount in overhead.items() if not limits or name in result}
        result = add(result, counted)
    return result
