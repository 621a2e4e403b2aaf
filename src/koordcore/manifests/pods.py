"""Pods as the scheduler of a live cluster sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import (
    Reading,
    as_labels,
    as_resources,
    as_time,
    choice,
    is_object,
    read_metadata,
    section,
)
from koordcore.manifests.aliases import canonical_names
from koordcore.manifests.pod_references import read_resource_claims, read_scheduling_group
from koordcore.model.cluster import PriorityClass
from koordcore.model.containers import (
    DEFAULT_CPU_REQUEST,
    DEFAULT_MEMORY_REQUEST,
    Container,
    effective_requests,
)
from koordcore.model.pods import HostPort, Pod, PodPhase, PreemptionPolicy
from koordcore.model.resources import CPU, MEMORY, NO_RESOURCES, Resources, make_resources, maximum
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_str,
    collect,
    optional,
    required,
    show,
)
from koordcore.protocol.preemption import PREEMPTED_REASON, parse_preempted
from koordcore.protocol.selectors import as_affinity, as_spread_constraints, as_tolerations

_NON_ZERO: Final[Resources] = immutabledict({CPU: DEFAULT_CPU_REQUEST, MEMORY: DEFAULT_MEMORY_REQUEST})
_NO_LABELS: Final[immutabledict[str, str]] = immutabledict()
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "restartPolicy")
_PORTS: Final = range(1, 65536)

_known_phase: Final = choice(PodPhase)
_preemption_policy: Final = choice(PreemptionPolicy)


def pod_from_manifest(raw: Mapping[str, Json], *, priority_classes: Iterable[PriorityClass] = ()) -> Pod:
    """Decode one Pod object.

    Parameters
    ----------
    raw
        The object as Kubernetes stores it, or as people write it: what the API server would fill in is filled
        in (requests from limits, host ports of a pod on the host's network).
    priority_classes
        Where the priority comes from when ``spec.priority`` is absent.

    Raises
    ------
    ManifestError
        With every problem of the object.

    Examples
    --------
    >>> pod = pod_from_manifest({
    ...     "metadata": {"name": "web"},
    ...     "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "500m"}}}]},
    ... })
    >>> pod.requests
    immutabledict({'cpu': 500})
    """
    reading = Reading()
    read = read_pod(reading, raw)
    reading.finish()
    return resolve_priority(reading, read, {one.name: one for one in priority_classes})


@attrs.frozen
class PodReading:
    """A pod, and whether the object itself said its priority and preemption policy."""

    pod: Pod
    has_priority: bool
    has_policy: bool


def resolve_priority(reading: Reading, read: PodReading, classes: Mapping[str, PriorityClass]) -> Pod:
    """Fill in what the API server's admission would have: the priority of its class or of the default."""
    pod = read.pod
    if read.has_priority and (read.has_policy or not pod.priority_class):
        return pod
    found = classes.get(pod.priority_class) if pod.priority_class else _default_class(classes)
    if found is None:
        built_in = _BUILT_IN.get(pod.priority_class)
        if pod.priority_class and built_in is None and not read.has_priority:
            reading.warn(
                "spec.priorityClassName", f"no PriorityClass {pod.priority_class}; priority 0 is taken"
            )
        if built_in is None or read.has_priority:
            return pod
        return attrs.evolve(pod, priority=built_in)
    priority = pod.priority if read.has_priority else found.value
    policy = pod.preemption_policy if read.has_policy else found.preemption_policy
    if (priority, policy) == (pod.priority, pod.preemption_policy):
        return pod
    return attrs.evolve(pod, priority=priority, preemption_policy=policy)


def _default_class(classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Give the global default; of several the one with the lowest value counts, as in Kubernetes."""
    defaults = [one for one in classes.values() if one.global_default]
    return min(defaults, key=lambda one: (one.value, one.name), default=None)


def read_pod(reading: Reading, raw: Mapping[str, Json]) -> PodReading:
    """Decode a Pod; problems and warnings go to ``reading``, and with a problem the record is worthless."""
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    status = section(reading, raw, "status")
    memory = reading.memory
    node_name = reading.take(spec, "nodeName", "spec", as_str, "") or None
    on_host = reading.take(spec, "hostNetwork", "spec", as_bool, False)
    convert = _stored_container if meta.uid else _container
    containers, ports = _containers(reading, spec, "containers", on_host, convert)
    init_containers, init_ports = _containers(reading, spec, "initContainers", on_host, convert)
    conditions = _conditions(reading, status)
    if node_name is not None and status:
        infeasible = _infeasible(status, conditions)
        containers = _held(reading, status, "containerStatuses", containers, infeasible)
        init_containers = _held(reading, status, "initContainerStatuses", init_containers, infeasible)
    overhead = _overhead(reading, spec)
    pod_requests, pod_limits = _pod_level(reading, spec, containers, init_containers)
    pod = Pod(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        owners=meta.owners,
        containers=containers,
        init_containers=init_containers,
        overhead=overhead,
        pod_requests=pod_requests,
        pod_limits=pod_limits,
        requests=memory.same(_requests, containers, init_containers, overhead, pod_requests),
        limits=memory.same(_limits, containers, init_containers, overhead, pod_limits),
        scored_requests=memory.same(_scored, containers, init_containers, overhead, pod_requests),
        priority=reading.take(spec, "priority", "spec", as_int, 0),
        priority_class=reading.take(spec, "priorityClassName", "spec", as_str, ""),
        preemption_policy=reading.take(
            spec, "preemptionPolicy", "spec", _preemption_policy, PreemptionPolicy.PREEMPT_LOWER_PRIORITY
        ),
        scheduler_name=reading.take(spec, "schedulerName", "spec", as_str, "") or "default-scheduler",
        node_name=node_name,
        nominated_node=reading.take(status, "nominatedNodeName", "status", as_str, "") or None,
        phase=reading.take(status, "phase", "status", _phase, PodPhase.PENDING),
        created=meta.created,
        started=reading.take(status, "startTime", "status", as_time, None),
        scheduled=_since(reading, conditions, "PodScheduled"),
        initialized=_since(reading, conditions, "Initialized"),
        deleted=meta.deleted,
        ready=conditions.get("Ready", {}).get("status") == "True",
        disruption=_disruption(reading, conditions),
        preempted_by=_preempted_by(reading, conditions),
        kubernetes_qos=reading.take(status, "qosClass", "status", as_str, ""),
        node_selector=reading.recall(spec, "nodeSelector", "spec", as_labels, _NO_LABELS),
        affinity=reading.recall(spec, "affinity", "spec", as_affinity, None),
        tolerations=reading.recall(spec, "tolerations", "spec", as_tolerations, ()),
        spread_constraints=reading.recall(
            spec, "topologySpreadConstraints", "spec", as_spread_constraints, ()
        ),
        host_ports=(*ports, *init_ports),
        claims=_claims(reading, spec, meta.name),
        resource_claims=read_resource_claims(reading, spec, status),
        scheduling_group=read_scheduling_group(reading, spec),
        gates=reading.take(spec, "schedulingGates", "spec", _gates, ()),
        local_storage=_local_storage(spec),
    )
    return PodReading(
        pod,
        has_priority=spec.get("priority") is not None,
        has_policy=spec.get("preemptionPolicy") is not None,
    )


def _phase(value: Json) -> PodPhase:
    return PodPhase.PENDING if value == "" else _known_phase(value)


# --- containers -----------------------------------------------------------------------------------


@attrs.frozen
class _ContainerReading:
    container: Container
    notes: tuple[Problem, ...]


def _containers(
    reading: Reading,
    spec: Mapping[str, Json],
    name: str,
    on_host: bool,
    convert: Callable[[Json], _ContainerReading],
) -> tuple[tuple[Container, ...], tuple[HostPort, ...]]:
    elements = reading.take(spec, name, "spec", as_list, [])
    containers: list[Container] = []
    ports: list[HostPort] = []
    for index, element in enumerate(elements):
        path = f"spec.{name}[{index}]"
        if not is_object(element):
            reading.problem(path, "expected object")
            continue
        part = {field: element[field] for field in _CONTAINER_FIELDS if field in element}
        try:
            read = reading.memory.once(convert, part)
        except ManifestError as error:
            reading.note(error, path)
            continue
        reading.warnings += (note.within(path) for note in read.notes)
        containers.append(read.container)
        if "ports" in element and (name == "containers" or read.container.restarts_always):
            ports += _host_ports(reading, element, path, on_host)
    return reading.memory.same(_tuple, *containers), tuple(ports)


def _tuple(*containers: Container) -> tuple[Container, ...]:
    return containers


def _container(value: Json) -> _ContainerReading:
    """Read a container of a manifest: what asks for nothing but has a limit asks for that limit.

    The API server fills it in so; a manifest that has not met it yet means the same.
    """
    read = _stored_container(value)
    container = read.container
    requests = make_resources({**container.limits, **container.requests})
    return _ContainerReading(attrs.evolve(container, requests=requests), read.notes)


def _stored_container(value: Json) -> _ContainerReading:
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
    reading.finish()
    return _ContainerReading(container, tuple(reading.warnings))


def _amounts(reading: Reading, raw: Mapping[str, Json], name: str, path: str) -> Resources:
    """Read amounts under their right names; a negative one is wrong."""
    listed = reading.take(raw, name, path, as_mapping, NO_RESOURCES)
    if not listed:
        return NO_RESOURCES
    place = f"{path}.{name}" if path else name
    renamed, notes = canonical_names(listed)
    reading.warnings += (note.within(place) for note in notes)
    try:
        amounts = as_resources(renamed)
    except ManifestError as error:
        reading.note(error, place)
        return NO_RESOURCES
    for resource, amount in amounts.items():
        if amount < 0:
            reading.problem(f"{place}[{resource}]", f"must not be negative, got {show(renamed[resource])}")
    return NO_RESOURCES if reading.problems else amounts


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


# --- what the pod as a whole takes ----------------------------------------------------------------


def _requests(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    return effective_requests(containers, init, overhead=overhead, pod_level=whole)


def _limits(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    return effective_requests(containers, init, overhead=overhead, pod_level=whole, limits=True)


def _scored(
    containers: tuple[Container, ...], init: tuple[Container, ...], overhead: Resources, whole: Resources
) -> Resources:
    if not containers and not init:
        return make_resources({**_NON_ZERO, **effective_requests((), (), overhead=overhead, pod_level=whole)})
    return effective_requests(containers, init, overhead=overhead, pod_level=whole, defaults=_NON_ZERO)


def _overhead(reading: Reading, spec: Mapping[str, Json]) -> Resources:
    return _amounts(reading, spec, "overhead", "spec") if spec.get("overhead") else NO_RESOURCES


def _pod_level(
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


def _supported(reading: Reading, amounts: Resources, name: str) -> Resources:
    supported = {
        resource: amount
        for resource, amount in amounts.items()
        if resource in (CPU, MEMORY) or resource.startswith("hugepages-")
    }
    for resource in amounts:
        if resource not in supported:
            reading.warn(
                f"spec.resources.{name}[{resource}]", "not a resource of the pod as a whole; ignored"
            )
    return make_resources(supported)


# --- status ---------------------------------------------------------------------------------------


def _conditions(reading: Reading, status: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    if not status.get("conditions"):
        return {}
    conditions = reading.take(status, "conditions", "status", as_list, [])
    return {str(condition.get("type")): condition for condition in conditions if is_object(condition)}


def _since(reading: Reading, conditions: Mapping[str, Mapping[str, Json]], kind: str) -> datetime | None:
    """Give the moment at which a condition became true; ``None`` where it is not."""
    condition = conditions.get(kind, {})
    if condition.get("status") != "True":
        return None
    return reading.take(condition, "lastTransitionTime", f"status.conditions[{kind}]", as_time, None)


def _disruption(reading: Reading, conditions: Mapping[str, Mapping[str, Json]]) -> str:
    """Give why the pod is about to be disrupted; empty where it is not."""
    condition = conditions.get("DisruptionTarget", {})
    if condition.get("status") != "True":
        return ""
    return reading.take(condition, "reason", "status.conditions[DisruptionTarget]", as_str, "")


def _preempted_by(reading: Reading, conditions: Mapping[str, Mapping[str, Json]]) -> str:
    """Give for whom the pod was told to leave, where a plan of ours says so."""
    if _disruption(reading, conditions) != PREEMPTED_REASON:
        return ""
    condition = conditions["DisruptionTarget"]
    where = "status.conditions[DisruptionTarget]"
    return parse_preempted(reading.take(condition, "message", where, as_str, ""))


def _infeasible(status: Mapping[str, Json], conditions: Mapping[str, Mapping[str, Json]]) -> bool:
    """Tell whether the node has refused the resize that the specification asks for."""
    pending = conditions.get("PodResizePending", {})
    return status.get("resize") == "Infeasible" or (
        pending.get("status") == "True" and pending.get("reason") == "Infeasible"
    )


def _held(
    reading: Reading,
    status: Mapping[str, Json],
    name: str,
    containers: tuple[Container, ...],
    infeasible: bool,
) -> tuple[Container, ...]:
    """Let a container that is being resized hold the largest of what it asks for, has, and is promised.

    A resize that the node has refused is not counted (Kubernetes' ``resource.PodRequests`` with
    ``UseStatusResources``).
    """
    statuses = status.get(name)
    if not statuses:
        return containers
    held: dict[str, Resources] = {}
    for index, element in enumerate(reading.take(status, name, "status", as_list, [])):
        if not is_object(element) or element.get("resources") is None:
            continue
        path = f"status.{name}[{index}]"
        actual = section(reading, element, "resources", path)
        requests = reading.recall(actual, "requests", f"{path}.resources", as_resources, NO_RESOURCES)
        promised = reading.recall(element, "allocatedResources", path, as_resources, NO_RESOURCES)
        held[str(element.get("name"))] = maximum(requests, promised) if promised != requests else requests
    staying = name == "containerStatuses"
    changed = tuple(
        _holding(one, held.get(one.name), infeasible) if staying or one.restarts_always else one
        for one in containers
    )
    return containers if changed == containers else changed


def _holding(container: Container, held: Resources | None, infeasible: bool) -> Container:
    if held is None or held == container.requests:
        return container
    largest = held if infeasible else maximum(container.requests, held)
    return container if largest == container.requests else attrs.evolve(container, requests=largest)


# --- the rest -------------------------------------------------------------------------------------


def _gate(value: Json) -> str:
    return required(as_mapping(value), "name", as_str)


def _gates(value: Json) -> tuple[str, ...]:
    return collect(_gate, as_list(value))


def _claims(reading: Reading, spec: Mapping[str, Json], pod: str) -> tuple[str, ...]:
    """Name the claims that the volumes refer to; an ephemeral volume has one named after pod and volume."""
    volumes = spec.get("volumes")
    if not volumes:
        return ()
    claims: list[str] = []
    for index, volume in enumerate(reading.take(spec, "volumes", "spec", as_list, [])):
        if not is_object(volume):
            reading.problem(f"spec.volumes[{index}]", "expected object")
        elif volume.get("persistentVolumeClaim") is not None:
            path = f"spec.volumes[{index}].persistentVolumeClaim"
            claim = section(reading, volume, "persistentVolumeClaim", f"spec.volumes[{index}]")
            claims.append(reading.take(claim, "claimName", path, as_str, ""))
        elif volume.get("ephemeral") is not None:
            claims.append(f"{pod}-{volume.get('name')}")
    return tuple(claims)


def _local_storage(spec: Mapping[str, Json]) -> bool:
    volumes = spec.get("volumes")
    return isinstance(volumes, list) and any(
        is_object(volume) and (volume.get("emptyDir") is not None or volume.get("hostPath") is not None)
        for volume in volumes
    )
