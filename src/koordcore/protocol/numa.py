"""CPUs and NUMA nodes on a pod: what it wishes for and what it was given.

Shapes, keys and defaults follow ``apis/extension/{resource,numa_aware}.go``; JSON keys match without case and
unknown ones are ignored, as upstream's decoder does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.numa import NUMANodeResource
from koordcore.model.quantity import format_quantity
from koordcore.model.resources import (
    EPHEMERAL_STORAGE,
    MEMORY,
    NO_RESOURCES,
    Resources,
    parse_resources,
    scale_of,
)
from koordcore.protocol.fields import (
    Json,
    as_mapping,
    as_numa_node,
    as_str,
    list_of,
    load_json,
    optional,
)
from koordcore.protocol.hints import hints_at
from koordcore.topology.cpu import NO_CPUS, CPUSet, format_cpulist, parse_cpulist

ANNOTATION_RESOURCE_SPEC: Final = "scheduling.koordinator.sh/resource-spec"
ANNOTATION_RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
ANNOTATION_NUMA_TOPOLOGY_SPEC: Final = "scheduling.koordinator.sh/numa-topology-spec"

_PLUGIN: Final = "NodeNUMAResource"
_EMPTY: Final[Mapping[str, Json]] = {}
_NOWHERE: Final[tuple[NUMANodeResource, ...]] = ()


@record
class ResourceSpec:
    """How a pod wants its CPUs; texts as written, empty where unsaid."""

    required_cpu_bind_policy: str = ""
    preferred_cpu_bind_policy: str = ""
    preferred_cpu_exclusive_policy: str = ""


@record
class NUMATopologySpec:
    """How closely a pod's resources must lie together; texts as written, empty where unsaid."""

    numa_topology_policy: str = ""
    single_numa_node_exclusive: str = ""


@record
class ResourceStatus:
    """What a pod was given: its CPUs and its amounts per NUMA node."""

    cpuset: CPUSet = NO_CPUS
    numa_node_resources: tuple[NUMANodeResource, ...] = ()


NO_STATUS: Final = ResourceStatus()


def read_annotation(annotations: Mapping[str, str], key: str) -> Mapping[str, Json] | None:
    """Read an annotation that holds an object.

    Returns
    -------
    mapping or None
        ``None`` where the annotation is absent; an empty object for JSON ``null``.

    Raises
    ------
    ManifestError
        When the text is no JSON object; the path names the annotation.
    """
    text = annotations.get(key)
    if text is None:
        return None
    try:
        value = load_json(text)
        return {} if value is None else as_mapping(value)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def _texts(annotations: Mapping[str, str], key: str, *names: str) -> tuple[str, ...]:
    raw = read_annotation(annotations, key)
    if raw is None:
        return ("",) * len(names)
    try:
        return tuple(optional(raw, name, as_str, "", fold_case=True) for name in names)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def resource_spec_of(annotations: Mapping[str, str]) -> ResourceSpec:
    """Read the resource-spec annotation of a pod.

    Raises
    ------
    ManifestError
        When it is no JSON object (an empty text is none) or a policy is no text.
    """
    return ResourceSpec(
        *_texts(
            annotations,
            ANNOTATION_RESOURCE_SPEC,
            "requiredCPUBindPolicy",
            "preferredCPUBindPolicy",
            "preferredCPUExclusivePolicy",
        )
    )


def format_resource_spec(spec: ResourceSpec) -> str:
    """Write a resource-spec annotation; empty fields are left out."""
    fields = {
        "requiredCPUBindPolicy": spec.required_cpu_bind_policy,
        "preferredCPUBindPolicy": spec.preferred_cpu_bind_policy,
        "preferredCPUExclusivePolicy": spec.preferred_cpu_exclusive_policy,
    }
    return _compact({name: text for name, text in fields.items() if text})


def numa_topology_spec_of(annotations: Mapping[str, str]) -> NUMATopologySpec:
    """Read the numa-topology-spec annotation of a pod.

    Raises
    ------
    ManifestError
        When it is no JSON object or a policy is no text.
    """
    return NUMATopologySpec(
        *_texts(annotations, ANNOTATION_NUMA_TOPOLOGY_SPEC, "numaTopologyPolicy", "singleNUMANodeExclusive")
    )


def parse_resource_status(text: str) -> ResourceStatus:
    """Read the text of a resource-status annotation.

    Raises
    ------
    ManifestError
        When it is no JSON object, a CPU list or an amount cannot be read, or a NUMA node is no number.
    """
    value = load_json(text)
    raw = {} if value is None else as_mapping(value)
    cpuset = optional(raw, "cpuset", lambda json_value: parse_cpulist(as_str(json_value)), 0, fold_case=True)
    entries = optional(raw, "numaNodeResources", list_of(_numa_node_resource), _NOWHERE, fold_case=True)
    return ResourceStatus(cpuset, entries)


def _numa_node_resource(value: Json) -> NUMANodeResource:
    raw = as_mapping(value)
    node = optional(raw, "node", as_numa_node, 0, fold_case=True)
    return NUMANodeResource(node, optional(raw, "resources", _resource_list, NO_RESOURCES, fold_case=True))


def _resource_list(value: Json) -> Resources:
    return parse_resources(as_mapping(value))


def format_resource_status(status: ResourceStatus) -> str:
    """Write a resource-status annotation; empty fields are left out.

    Examples
    --------
    >>> from koordcore.protocol.numa import ResourceStatus
    >>> format_resource_status(ResourceStatus(0b1111))
    '{"cpuset":"0-3"}'
    """
    fields: dict[str, object] = {}
    if status.cpuset:
        fields["cpuset"] = format_cpulist(status.cpuset)
    if status.numa_node_resources:
        fields["numaNodeResources"] = [
            {
                "node": entry.node,
                "resources": {
                    name: format_quantity(amount, scale=scale_of(name), binary=_binary(name))
                    for name, amount in sorted(entry.resources.items())
                },
            }
            for entry in status.numa_node_resources
        ]
    return _compact(fields)


def _binary(name: str) -> bool:
    """Tell whether amounts are customarily written with ``Ki … Ei``; batch and mid memory is not."""
    return name in (MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def resource_status_of(annotations: Mapping[str, str]) -> ResourceStatus | None:
    """What a bound pod (or a holder of room) says it was given; ``None`` where it says nothing readable.

    A status that cannot be read holds nothing, as upstream takes it.
    """
    text = annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return None
    try:
        return parse_resource_status(text)
    except ManifestError:
        return None


def designated_status(annotations: Mapping[str, str]) -> ResourceStatus | None:
    """What a pod must be given: its resource-status, where a scheduling hint designates it.

    Returns
    -------
    ResourceStatus or None
        ``None`` without a hint for this plugin, without a status, or for one that says nothing.

    Raises
    ------
    ManifestError
        When the designated status cannot be read.
    """
    text = annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None or not hints_at(annotations, _PLUGIN):
        return None
    try:
        status = parse_resource_status(text)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{ANNOTATION_RESOURCE_STATUS}]") from None
    return status if status.cpuset or status.numa_node_resources else None
