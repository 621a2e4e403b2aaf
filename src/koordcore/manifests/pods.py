"""Pods as the scheduler of a live cluster sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.manifests._reading import (
    Metadata,
    Reading,
    as_labels,
    as_time,
    choice,
    is_object,
    read_metadata,
    section,
)
from koordcore.manifests.declared_features import features_needed
from koordcore.manifests.label_keys import with_label_keys
from koordcore.manifests.pod_containers import (
    held_as_whole,
    held_containers,
    limits_of,
    read_claimed_amounts,
    read_containers,
    read_overhead,
    read_pod_level,
    requests_of,
    scored_requests_of,
    stored_container,
    written_container,
)
from koordcore.manifests.pod_references import read_resource_claims, read_scheduling_group
from koordcore.model.cluster import PriorityClass
from koordcore.model.pods import (
    Pod,
    PodPhase,
    PreemptionPolicy,
)
from koordcore.model.resources import add
from koordcore.model.volumes import EphemeralClaim
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_str,
    list_of,
    required,
)
from koordcore.protocol.preemption import PREEMPTED_REASON, parse_preempted
from koordcore.protocol.selectors import as_affinity, as_spread_constraints, as_tolerations

T = TypeVar("T")
D = TypeVar("D")

_NO_LABELS: Final[immutabledict[str, str]] = immutabledict()
BUILT_IN_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_known_phase: Final = choice(PodPhase)
_preemption_policy: Final = choice(PreemptionPolicy)


def pod_from_manifest(raw: Mapping[str, Json], *, priority_classes: Iterable[PriorityClass] = ()) -> Pod:
    """Decode one Pod object.

    Parameters
    ----------
    raw
        The object as Kubernetes stores it, or as people write it: what the API server would fill in is filled
        in (requests from limits, host ports of a pod on the host's network, labels named by affinity).
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


@record
class PodReading:
    """A pod, whether its object said priority and preemption policy, its RuntimeClass."""

    pod: Pod
    has_priority: bool
    has_policy: bool
    runtime_class: str = ""


def resolve_priority(reading: Reading, read: PodReading, classes: Mapping[str, PriorityClass]) -> Pod:
    """Fill in what the API server's admission would have: the priority of its class or of the default."""
    pod = read.pod
    if class_asked(read) is None:
        return pod
    found = classes.get(pod.priority_class) if pod.priority_class else _default_class(classes)
    if found is None:
        built_in = BUILT_IN_PRIORITIES.get(pod.priority_class)
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


def class_asked(read: PodReading) -> str | None:
    """Give whose priority a pod takes: a class by its name, ``""`` for the default, ``None`` for nobody."""
    said = read.has_priority and (read.has_policy or not read.pod.priority_class)
    return None if said else read.pod.priority_class


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
    convert = stored_container if meta.uid else written_container
    containers, ports = read_containers(reading, spec, "containers", on_host, convert)
    init_containers, init_ports = read_containers(reading, spec, "initContainers", on_host, convert)
    conditions = _conditions(reading, status)
    placed = node_name is not None and bool(status)
    infeasible = placed and _infeasible(status, conditions)
    if placed:
        containers = held_containers(reading, status, "containerStatuses", containers, infeasible)
        init_containers = held_containers(
            reading, status, "initContainerStatuses", init_containers, infeasible
        )
    overhead = read_overhead(reading, spec)
    if placed and status.get("nodeAllocatableResourceClaimStatuses"):
        overhead = add(overhead, read_claimed_amounts(reading, status))
    pod_requests, pod_limits = read_pod_level(reading, spec, containers, init_containers)
    if placed:
        pod_requests = held_as_whole(reading, status, pod_requests, infeasible)
    affinity = reading.recall(spec, "affinity", "spec", as_affinity, None)
    if affinity is not None and not meta.uid:
        affinity = memory.same(with_label_keys, affinity, meta.labels)
    claims, ephemeral = _claims(reading, spec, meta)
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
        requests=memory.same(requests_of, containers, init_containers, overhead, pod_requests),
        limits=memory.same(limits_of, containers, init_containers, overhead, pod_limits),
        scored_requests=memory.same(scored_requests_of, containers, init_containers, overhead, pod_requests),
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
        ready=conditions.get("Ready", _NO_CONDITION).raw.get("status") == "True",
        disruption=_disruption(reading, conditions),
        preempted_by=_preempted_by(reading, conditions),
        kubernetes_qos=reading.take(status, "qosClass", "status", as_str, ""),
        node_selector=reading.recall(spec, "nodeSelector", "spec", as_labels, _NO_LABELS),
        affinity=affinity,
        tolerations=reading.recall(spec, "tolerations", "spec", as_tolerations, ()),
        spread_constraints=reading.recall(
            spec, "topologySpreadConstraints", "spec", as_spread_constraints, ()
        ),
        host_ports=(*ports, *init_ports),
        claims=claims,
        features=features_needed(spec),
        ephemeral_claims=ephemeral,
        resource_claims=read_resource_claims(reading, spec, status),
        scheduling_group=read_scheduling_group(reading, spec),
        gates=reading.take(spec, "schedulingGates", "spec", _gates, ()),
        active_deadline=reading.take(spec, "activeDeadlineSeconds", "spec", as_int, None),
        local_storage=_local_storage(spec),
    )
    return PodReading(
        pod,
        has_priority=spec.get("priority") is not None,
        has_policy=spec.get("preemptionPolicy") is not None,
        runtime_class=reading.take(spec, "runtimeClassName", "spec", as_str, ""),
    )


def _phase(value: Json) -> PodPhase:
    return PodPhase.PENDING if value == "" else _known_phase(value)


# --- status ---------------------------------------------------------------------------------------


class _Condition(NamedTuple):
    """A condition with its place in the list."""

    number: int
    raw: Mapping[str, Json]

    def take(self, reading: Reading, name: str, convert: Callable[[Json], T], default: D) -> T | D:
        return reading.take(self.raw, name, f"status.conditions[{self.number}]", convert, default)


_NO_CONDITION: Final = _Condition(0, immutabledict())


def _conditions(reading: Reading, status: Mapping[str, Json]) -> dict[str, _Condition]:
    if not status.get("conditions"):
        return {}
    conditions = reading.take(status, "conditions", "status", as_list, [])
    return {
        str(condition.get("type")): _Condition(number, condition)
        for number, condition in enumerate(conditions)
        if is_object(condition)
    }


def _since(reading: Reading, conditions: Mapping[str, _Condition], kind: str) -> datetime | None:
    """Give the moment at which a condition became true; ``None`` where it is not."""
    condition = conditions.get(kind, _NO_CONDITION)
    if condition.raw.get("status") != "True":
        return None
    return condition.take(reading, "lastTransitionTime", as_time, None)


def _disruption(reading: Reading, conditions: Mapping[str, _Condition]) -> str:
    """Give why the pod is about to be disrupted; empty where it is not."""
    condition = conditions.get("DisruptionTarget", _NO_CONDITION)
    if condition.raw.get("status") != "True":
        return ""
    return condition.take(reading, "reason", as_str, "")


def _preempted_by(reading: Reading, conditions: Mapping[str, _Condition]) -> str:
    """Give for whom the pod was told to leave, where a plan of ours says so."""
    if _disruption(reading, conditions) != PREEMPTED_REASON:
        return ""
    return parse_preempted(conditions["DisruptionTarget"].take(reading, "message", as_str, ""))


def _infeasible(status: Mapping[str, Json], conditions: Mapping[str, _Condition]) -> bool:
    """Tell whether the node has refused the resize that the specification asks for."""
    pending = conditions.get("PodResizePending", _NO_CONDITION).raw
    return status.get("resize") == "Infeasible" or (
        pending.get("status") == "True" and pending.get("reason") == "Infeasible"
    )


# --- the rest -------------------------------------------------------------------------------------


def _gate(value: Json) -> str:
    return required(as_mapping(value), "name", as_str)


_gates: Final = list_of(_gate)


def _claims(
    reading: Reading, spec: Mapping[str, Json], meta: Metadata
) -> tuple[tuple[str, ...], tuple[EphemeralClaim, ...]]:
    """Name the claims that the volumes refer to; an ephemeral volume has one named after pod and volume."""
    volumes = spec.get("volumes")
    if not volumes:
        return (), ()
    claims: list[str] = []
    ephemeral: list[EphemeralClaim] = []
    for index, volume in enumerate(reading.take(spec, "volumes", "spec", as_list, [])):
        if not is_object(volume):
            reading.problem(f"spec.volumes[{index}]", "expected object")
        elif volume.get("persistentVolumeClaim") is not None:
            path = f"spec.volumes[{index}].persistentVolumeClaim"
            claim = section(reading, volume, "persistentVolumeClaim", f"spec.volumes[{index}]")
            claims.append(reading.take(claim, "claimName", path, as_str, ""))
        elif volume.get("ephemeral") is not None:
            ephemeral.append(EphemeralClaim(f"{meta.name}-{volume.get('name')}", meta.name, meta.uid))
            claims.append(ephemeral[-1].name)
    return tuple(claims), tuple(ephemeral)


def _local_storage(spec: Mapping[str, Json]) -> bool:
    volumes = spec.get("volumes")
    return isinstance(volumes, list) and any(
        is_object(volume) and (volume.get("emptyDir") is not None or volume.get("hostPath") is not None)
        for volume in volumes
    )
