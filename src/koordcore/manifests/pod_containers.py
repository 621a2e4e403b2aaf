"""What the containers of a pod, and the pod as a whole, ask for and hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import (
    Reading,
    as_resources,
    is_object,
    section,
)
from koordcore.manifests.aliases import as_written, canonical_names
from koordcore.model.containers import (
    DEFAULT_CPU_REQUEST,
    DEFAULT_MEMORY_REQUEST,
    Container,
    effective_requests,
)
from koordcore.model.pods import HostPort
from koordcore.model.resources import CPU, MEMORY, NO_RESOURCES, Resources, make_resources, maximum, total
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    collect,
    list_of,
    optional,
    required,
    show,
)

_NON_ZERO: Final[Resources] = immutabledict({CPU: DEFAULT_CPU_REQUEST, MEMORY: DEFAULT_MEMORY_REQUEST})


_CONTAINER_FIELDS: Final = ("name", "image", "resources", "restartPolicy")


_PORTS: Final = range(1, 65536)


@record
class _ContainerReading:
    container: Container
    notes: tuple[Problem, ...]
    problems: tuple[Problem, ...] = ()


def read_containers(
    reading: Reading,
    spec: Mapping[str, Json],
    name: str,
    on_host: bool,
    convert: Callable[[Json], _ContainerReading],
) -> tuple[tuple[Container, ...], tuple[HostPort, ...]]:
    """Read the containers of one list, and the ports of the node that they take."""
    elements = reading.take(spec, name, "spec", as_list, [])
    containers: list[Container] = []
    ports: list[HostPort] = []
    for index, element in enumerate(elements):
        path = f"spec.{name}[{index}]"
        if not is_object(element):
            reading.problem(path, "expected object")
            continue
        part = {field: element[field] for field in _CONTAINER_FIELDS if field in element}
        read = reading.memory.once(convert, part)
        reading.problems += (problem.within(path) for problem in read.problems)
        reading.warnings += (note.within(path) for note in read.notes)
        containers.append(read.container)
        if "ports" in element and (name == "containers" or read.container.restarts_always):
            ports += _host_ports(reading, element, path, on_host)
    return reading.memory.same(_tuple, *containers), tuple(ports)


def _tuple(*containers: Container) -> tuple[Container, ...]:
    return containers


def written_container(value: Json) -> _ContainerReading:
    """Read a container of a manifest: what asks for nothing but has a limit asks for that limit.

    The API server fills it in so; a manifest that has not met it yet means the same.
    """
    read = stored_container(value)
    container = read.container
    requests = make_resources({**container.limits, **container.requests})
    return attrs.evolve(read, container=attrs.evolve(container, requests=requests))


def stored_container(value: Json) -> _ContainerReading:
    """Read a container of an object with a uid, which the API server has filled in already."""
    raw = as_mapping(value)
    reading = Reading()
    resources = section(reading, raw, "resources")
    limits = _amounts(reading, resources, "limits", "resources")
    requests = _amounts(reading, resources, "requests", "resources")
    policy = reading.take(raw, "restartPolicy", "", as_str, "")
    container = Container(
        name=reading.take(raw, "name", "", as_str, ""),
        requests=requests,
        limits=limits,
        image=reading.take(raw, "image", "", as_str, ""),
        restarts_always=policy == "Always",
    )
    return _ContainerReading(container, tuple(reading.warnings), tuple(reading.problems))


def _amounts(reading: Reading, raw: Mapping[str, Json], name: str, path: str) -> Resources:
    """Read amounts under their right names; a negative one is wrong, and those beside it count."""
    listed = reading.take(raw, name, path, as_mapping, NO_RESOURCES)
    if not listed:
        return NO_RESOURCES
    place = f"{path}.{name}" if path else name
    renamed, notes = canonical_names(listed)
    reading.warnings += (note.within(place) for note in notes)
    try:
        amounts = as_resources(renamed)
    except ManifestError as error:
        reading.note(as_written(error, listed), place)
        amounts = _those_that_are_some(renamed)
    negative = {resource for resource, amount in amounts.items() if amount < 0}
    if not negative:
        return amounts
    told = ManifestError(
        Problem(f"[{resource}]", f"must not be negative, got {show(renamed[resource])}")
        for resource in sorted(negative)
    )
    reading.note(as_written(told, listed), place)
    return make_resources({name: amount for name, amount in amounts.items() if name not in negative})


def _those_that_are_some(listed: Mapping[str, Json]) -> Resources:
    """Read the amounts of a list one by one, and leave out what is none."""
    known: dict[str, int] = {}
    for name, value in listed.items():
        with suppress(ManifestError):
            known.update(as_resources({name: value}))
    return make_resources(known)


def _port(value: Json) -> int:
    port = as_int(value)
    if port != 0 and port not in _PORTS:
        raise ManifestError.at("", f"expected 1..65535, got {port}")
    return port


def _host_ports(
    reading: Reading, container: Mapping[str, Json], path: str, on_host: bool
) -> Iterable[HostPort]:
    opened = reading.recall(container, "ports", path, _ports_of, ())
    for host, inside, protocol, ip in opened:
        # On the host's network every port is the host's (a default of the API server).
        port = host or (inside if on_host else 0)
        if port:
            yield HostPort(port, protocol or "TCP", ip or "0.0.0.0")


def _ports_of(value: Json) -> tuple[tuple[int, int, str, str], ...]:
    return collect(_port_of, as_list(value))


def _port_of(value: Json) -> tuple[int, int, str, str]:
    raw = as_mapping(value)
    return (
        optional(raw, "hostPort", _port, 0),
        optional(raw, "containerPort", _port, 0),
        optional(raw, "protocol", as_str, ""),
        optional(raw, "hostIP", as_str, ""),
    )


def requests_of(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    """Add up what the pod asks for, as the scheduler counts it."""
    return effective_requests(containers, init, overhead=overhead, pod_level=whole)


def limits_of(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    """Add up what the pod may use."""
    return effective_requests(containers, init, overhead=overhead, pod_level=whole, limits=True)


def scored_requests_of(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    """Add up what scores count: containers that ask for nothing count for a little."""
    if not containers and not init:
        return make_resources({**_NON_ZERO, **effective_requests((), (), overhead=overhead, pod_level=whole)})
    return effective_requests(containers, init, overhead=overhead, pod_level=whole, defaults=_NON_ZERO)


def read_overhead(reading: Reading, spec: Mapping[str, Json]) -> Resources:
    """Read what the sandbox takes beside the containers."""
    return _amounts(reading, spec, "overhead", "spec") if spec.get("overhead") else NO_RESOURCES


def read_claimed_amounts(reading: Reading, status: Mapping[str, Json]) -> Resources:
    """Add up ``status.nodeAllocatableResourceClaimStatuses``: what devices take of their node's amounts."""
    of_claims = reading.take(status, "nodeAllocatableResourceClaimStatuses", "status", list_of(_claimed), ())
    return total([amounts for each in of_claims for amounts in each])


def _claimed(value: Json) -> tuple[Resources, ...]:
    raw = as_mapping(value)
    users: tuple[str, ...] = optional(raw, "containers", as_strings, ())
    mapped: tuple[Resources, ...] = optional(raw, "mapping", list_of(_named_amount("quantity")), ())
    once: tuple[Resources, ...] = optional(raw, "overhead", list_of(_named_amount("perPod")), ())
    each: tuple[Resources, ...] = optional(raw, "overhead", list_of(_named_amount("perContainer")), ())
    return (*mapped, *once, *(amounts for amounts in each for _ in users))


def _named_amount(field: str) -> Callable[[Json], Resources]:
    def convert(value: Json) -> Resources:
        raw = as_mapping(value)
        amount = raw.get(field)
        return NO_RESOURCES if amount is None else as_resources({required(raw, "name", as_str): amount})

    return convert


def read_pod_level(
    reading: Reading,
    spec: Mapping[str, Json],
    containers: tuple[Container, ...],
    init_containers: tuple[Container, ...],
) -> tuple[Resources, Resources]:
    """Read ``spec.resources``; requests that it leaves out come from the containers, else from its limits."""
    if not spec.get("resources"):
        return NO_RESOURCES, NO_RESOURCES
    resources = section(reading, spec, "resources", "spec")
    limits = _supported(reading, _amounts(reading, resources, "limits", "spec.resources"), "limits")
    requests = _supported(reading, _amounts(reading, resources, "requests", "spec.resources"), "requests")
    of_containers = effective_requests(containers, init_containers)
    filled = {name: of_containers.get(name, amount) for name, amount in limits.items()}
    return make_resources({**filled, **requests}), limits


def _of_the_whole(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _supported(reading: Reading, amounts: Resources, name: str) -> Resources:
    supported = {resource: amount for resource, amount in amounts.items() if _of_the_whole(resource)}
    for resource in amounts:
        if resource not in supported:
            reading.warn(
                f"spec.resources.{name}[{resource}]", "not a resource of the pod as a whole; ignored"
            )
    return make_resources(supported)


def held_as_whole(
    reading: Reading, status: Mapping[str, Json], requests: Resources, infeasible: bool
) -> Resources:
    """Let a pod that is being resized as a whole hold what :func:`held_containers` lets a container hold."""
    if not requests or status.get("resources") is None:
        return requests
    actual = section(reading, status, "resources", "status")
    has = reading.recall(actual, "requests", "status.resources", as_resources, NO_RESOURCES)
    promised = reading.recall(status, "allocatedResources", "status", as_resources, NO_RESOURCES)
    held = {name: amount for name, amount in maximum(has, promised).items() if _of_the_whole(name)}
    largest = make_resources(held) if infeasible else maximum(requests, held)
    return requests if largest == requests else largest


def held_containers(
    reading: Reading,
    status: Mapping[str, Json],
    name: str,
    containers: tuple[Container, ...],
    infeasible: bool,
) -> tuple[Container, ...]:
    """Let a container that is being resized hold the largest of what it asks for, has, and is promised.

    A resize that the node has refused is not counted, and init containers hold as others do (Kubernetes'
    ``resource.PodRequests`` with ``UseStatusResources``, since 1.37).
    """
    statuses = status.get(name)
    if not statuses:
        return containers
    held: dict[str, Resources] = {}
    for index, element in enumerate(reading.take(status, name, "status", as_list, [])):
        if not is_object(element) or not (element.get("resources") or element.get("allocatedResources")):
            continue
        path = f"status.{name}[{index}]"
        actual = section(reading, element, "resources", path)
        requests = reading.recall(actual, "requests", f"{path}.resources", as_resources, NO_RESOURCES)
        promised = reading.recall(element, "allocatedResources", path, as_resources, NO_RESOURCES)
        held[str(element.get("name"))] = maximum(requests, promised) if promised != requests else requests
    changed = tuple(_holding(one, held.get(one.name), infeasible) for one in containers)
    return containers if changed == containers else changed


def _holding(container: Container, held: Resources | None, infeasible: bool) -> Container:
    if held is None or held == container.requests:
        return container
    largest = held if infeasible else maximum(container.requests, held)
    return container if largest == container.requests else attrs.evolve(container, requests=largest)
