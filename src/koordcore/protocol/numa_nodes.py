"""CPUs and NUMA nodes of a node: its labels, annotations and NodeResourceTopology object.

Shapes, keys and defaults follow ``apis/extension/{node,numa_aware,cpu_normalization}.go`` and upstream's
reader of NodeResourceTopology objects; JSON keys match without case and unknown ones are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Final, TypeAlias, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError, Problem, join_path
from koordcore.model.numa import (
    NO_CPU_MANAGER,
    CPUSharedPool,
    KubeletCPUManager,
    NodeCPUBindPolicy,
    NodeResourceTopology,
    NUMAAllocateStrategy,
    NUMANodeResource,
    NUMATopologyPolicy,
)
from koordcore.model.resources import CPU, make_resources, parse_amount
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_numa_node,
    as_str,
    at,
    collect,
    list_of,
    load_json,
    optional,
    show,
)
from koordcore.protocol.normalization import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_CPU_BASIC_INFO,
    CPUBasicInfo,
    cpu_basic_info_of,
    parse_amplification,
)
from koordcore.protocol.reserved_on_node import reserved_cpus
from koordcore.topology.cpu import NO_CPUS, NO_TOPOLOGY, CPUSet, CPUTopology, parse_cpulist

LABEL_NODE_NUMA_TOPOLOGY_POLICY: Final = "node.koordinator.sh/numa-topology-policy"
LABEL_NODE_CPU_BIND_POLICY: Final = "node.koordinator.sh/cpu-bind-policy"
LABEL_NODE_NUMA_ALLOCATE_STRATEGY: Final = "node.koordinator.sh/numa-allocate-strategy"

ANNOTATION_CPU_TOPOLOGY: Final = "node.koordinator.sh/cpu-topology"
ANNOTATION_CPU_SHARED_POOLS: Final = "node.koordinator.sh/cpu-shared-pools"
ANNOTATION_BE_CPU_SHARED_POOLS: Final = "node.koordinator.sh/be-cpu-shared-pools"
ANNOTATION_POD_CPU_ALLOCS: Final = "node.koordinator.sh/pod-cpu-allocs"
ANNOTATION_SYSTEM_QOS_RESOURCE: Final = "node.koordinator.sh/system-qos-resource"
ANNOTATION_CPU_MANAGER_POLICY: Final = "kubelet.koordinator.sh/cpu-manager-policy"

T = TypeVar("T")

_KUBELET_POLICIES: Final = immutabledict(
    {
        "BestEffort": NUMATopologyPolicy.BEST_EFFORT,
        "Restricted": NUMATopologyPolicy.RESTRICTED,
        "SingleNUMANodePodLevel": NUMATopologyPolicy.SINGLE_NUMA_NODE,
    }
)
"""Names of the kubelet's policies that count. Those that its own exporter writes for the first two
(``BestEffortPodLevel``, ``RestrictedPodLevel``) and all of container scope are not among them upstream."""

_ZONE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}\Z", re.ASCII)


_EMPTY: Final[Mapping[str, Json]] = {}
_NOTHING: Final[list[Json]] = []
_NO_ROWS: Final[tuple[tuple[int, int, int, int], ...]] = ()
_NO_POOLS: Final[tuple[CPUSharedPool, ...]] = ()
_MASK_DIGITS: Final = 16
_NO_RATIOS: Final[immutabledict[str, float]] = immutabledict()


def node_bind_policy(
    labels: Mapping[str, str], kubelet: KubeletCPUManager | None = None
) -> NodeCPUBindPolicy:
    """What a node requires of every pod that requests CPUs.

    The kubelet's option ``full-pcpus-only`` binds like the label ``FullPCPUsOnly``; a label with another text
    says nothing.
    """
    label = labels.get(LABEL_NODE_CPU_BIND_POLICY, "")
    if label == NodeCPUBindPolicy.FULL_PCPUS_ONLY or (kubelet and kubelet.full_pcpus_only):
        return NodeCPUBindPolicy.FULL_PCPUS_ONLY
    if label == NodeCPUBindPolicy.SPREAD_BY_PCPUS:
        return NodeCPUBindPolicy.SPREAD_BY_PCPUS
    return NodeCPUBindPolicy.NONE


def node_topology_policy(labels: Mapping[str, str], kubelet: NUMATopologyPolicy) -> str:
    """Topology policy of a node: the label where it says something, else what the kubelet does.

    Returns
    -------
    str
        One of :class:`~koordcore.model.numa.NUMATopologyPolicy`, or the label's text as it is: a node with an
        unknown text (``None`` is one) refuses every pod.
    """
    return labels.get(LABEL_NODE_NUMA_TOPOLOGY_POLICY, "") or kubelet


def node_allocate_strategy(labels: Mapping[str, str]) -> NUMAAllocateStrategy | None:
    """Which NUMA nodes the accumulator of a node fills first; ``None`` without label.

    Any text but ``MostAllocated`` orders as ``LeastAllocated``, also one that names no strategy.
    """
    text = labels.get(LABEL_NODE_NUMA_ALLOCATE_STRATEGY)
    if not text:
        return None
    known = text in list(NUMAAllocateStrategy)
    return NUMAAllocateStrategy(text) if known else NUMAAllocateStrategy.LEAST_ALLOCATED


@lru_cache(maxsize=64)  # a cluster has few kinds of machines; what a topology works out is then shared too
def parse_cpu_topology(text: str) -> CPUTopology:
    """Read the text of a cpu-topology annotation.

    Raises
    ------
    ManifestError
        When it is no JSON object or an entry is no set of numbers.
    """
    value = load_json(text)
    raw = {} if value is None else as_mapping(value)
    return CPUTopology.of(optional(raw, "detail", list_of(_cpu_row), _NO_ROWS, fold_case=True))


def _cpu_row(value: Json) -> tuple[int, int, int, int]:
    raw = as_mapping(value)
    cpu, core, socket, node = (
        optional(raw, name, _as_small_int, 0, fold_case=True) for name in ("id", "core", "socket", "node")
    )
    return cpu, core, node, socket


def _as_small_int(value: Json) -> int:
    number = as_int(value)
    if not 0 <= number <= 1 << 20:
        raise ManifestError.at("", f"expected a number of 0..{1 << 20}, got {number}")
    return number


def node_resource_topology_of(raw: Mapping[str, Json]) -> NodeResourceTopology:
    """Read a NodeResourceTopology object.

    Annotations that cannot be read count as absent, as upstream takes them.

    Raises
    ------
    ManifestError
        When the object itself is malformed: no name, or an amount of a zone that is no quantity.
    """
    metadata = optional(raw, "metadata", as_mapping, _EMPTY)
    annotations = {
        key: text
        for key, text in optional(metadata, "annotations", as_mapping, _EMPTY).items()
        if isinstance(text, str)
    }
    name = optional(metadata, "name", as_str, "")
    if not name:
        raise ManifestError.at("metadata.name", "required")
    topology = _lenient(annotations, ANNOTATION_CPU_TOPOLOGY, parse_cpu_topology, NO_TOPOLOGY)
    kubelet: KubeletCPUManager | None = NO_CPU_MANAGER
    if ANNOTATION_CPU_MANAGER_POLICY in annotations:
        kubelet = _lenient(annotations, ANNOTATION_CPU_MANAGER_POLICY, _cpu_manager, None)
    reserved = (
        (kubelet.reserved_cpus if kubelet else NO_CPUS)
        | _lenient(annotations, ANNOTATION_POD_CPU_ALLOCS, _kubelet_cpus, NO_CPUS)
        | reserved_cpus(annotations)
        | _lenient(annotations, ANNOTATION_SYSTEM_QOS_RESOURCE, _system_cpus, NO_CPUS)
    )
    try:
        ratios = parse_amplification(annotations)
    except ManifestError:
        ratios = _NO_RATIOS
    info = _lenient(annotations, ANNOTATION_CPU_BASIC_INFO, _basic_info, None)
    vendor, mask = _cache(info or CPUBasicInfo())
    return NodeResourceTopology(
        name=name,
        topology=topology,
        zones=_zones(optional(raw, "zones", as_list, _NOTHING), topology, reserved),
        reserved_cpus=reserved,
        policy=_kubelet_policy(optional(raw, "topologyPolicies", as_list, _NOTHING)),
        kubelet=kubelet,
        amplification_ratios=ratios,
        shared_pools=_lenient(annotations, ANNOTATION_CPU_SHARED_POOLS, _pools, _NO_POOLS),
        be_shared_pools=_lenient(annotations, ANNOTATION_BE_CPU_SHARED_POOLS, _pools, _NO_POOLS),
        cpu_vendor=vendor,
        cache_mask=mask,
        cpu_model=None if info is None else info.model,
        hyper_threads=info is not None and info.hyper_thread,
        turbo=info is not None and info.turbo,
    )


_MAKERS: Final = dict.fromkeys(("intel", "genuineintel"), "GenuineIntel") | dict.fromkeys(
    ("amd", "authenticamd"), "AuthenticAMD"
)
"""What people call the makers of CPUs, to what ``/proc/cpuinfo`` calls them."""


def _basic_info(text: str) -> CPUBasicInfo | None:
    return cpu_basic_info_of({ANNOTATION_CPU_BASIC_INFO: text})


def _cache(info: CPUBasicInfo) -> tuple[str, int]:
    """Give the maker of the CPUs and all ways of their last-level cache, as far as the node says them."""
    digits = info.cache_mask.strip().lower()
    known = 0 < len(digits) <= _MASK_DIGITS and all(one in "0123456789abcdef" for one in digits)
    vendor = _MAKERS.get(info.vendor.strip().lower(), info.vendor)
    return vendor, int(digits, 16) if known else 0


def reserving(nrt: NodeResourceTopology, annotations: Mapping[str, str]) -> NodeResourceTopology:
    """Keep back the CPUs that the Node lists for itself, as its agent does once it has copied the annotation.

    Parameters
    ----------
    annotations
        Of the Node.

    Returns
    -------
    NodeResourceTopology
        The very same object where nothing more is reserved.
    """
    listed = reserved_cpus(annotations)
    more = listed & nrt.topology.all_cpus & ~nrt.reserved_cpus
    if not more:
        return nrt
    zones = []
    for zone in nrt.zones:
        lost = 1000 * (more & nrt.topology.on_node(zone.node)).bit_count()
        left = zone.resources.get(CPU, 0) - lost
        kept = make_resources({**zone.resources, CPU: left}) if zone.resources.get(CPU) else zone.resources
        zones.append(attrs.evolve(zone, resources=kept))
    return attrs.evolve(nrt, reserved_cpus=nrt.reserved_cpus | more, zones=tuple(zones))


def _lenient(annotations: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    """Read an annotation that counts as absent where it cannot be read."""
    text = annotations.get(key)
    if text is None:
        return default
    try:
        return parse(text)
    except ManifestError:
        return default


def _kubelet_policy(names: Iterable[Json]) -> NUMATopologyPolicy:
    for name in names:
        if isinstance(name, str) and name in _KUBELET_POLICIES:
            return _KUBELET_POLICIES[name]
    return NUMATopologyPolicy.NONE


def _zones(values: Iterable[Json], topology: CPUTopology, reserved: CPUSet) -> tuple[NUMANodeResource, ...]:
    zones = dict(zone for zone in at("zones", partial(collect, _zone), values) if zone is not None)
    for numa, amounts in zones.items():
        if amounts.get(CPU):
            amounts[CPU] -= 1000 * (reserved & topology.on_node(numa)).bit_count()
    return tuple(NUMANodeResource(numa, make_resources(zones[numa])) for numa in sorted(zones))


def _zone(value: Json) -> tuple[int, dict[str, int]] | None:
    """Read a zone: the number of its NUMA node and its amounts; ``None`` where it is no NUMA node."""
    zone = as_mapping(value)
    parts = optional(zone, "name", as_str, "").split("node-")
    kind = optional(zone, "type", as_str, "")
    if kind != "Node" or len(parts) != 2 or not _ZONE_NUMBER.match(parts[1]):
        return None
    amounts = dict(optional(zone, "resources", list_of(_zone_amount), ()))
    numa = at("name", as_numa_node, int(parts[1]))
    if numa < 0:
        raise ManifestError.at("name", f"expected a NUMA node of at least 0, got {numa}")
    return numa, amounts


def _zone_amount(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    name = optional(raw, "name", as_str, "")
    return name, optional(raw, "allocatable", partial(parse_amount, name), 0)


_ReadCPUs: TypeAlias = Callable[[str], CPUSet]


def _cpus_or_none(text: str) -> CPUSet:
    try:
        return parse_cpulist(text)
    except ManifestError:
        return NO_CPUS


def _cpu_manager(text: str, cpus: _ReadCPUs = _cpus_or_none) -> KubeletCPUManager:
    raw = as_mapping(load_json(text))
    options = optional(raw, "options", as_mapping, _EMPTY, fold_case=True)
    listed = optional(raw, "reservedCPUs", as_str, "", fold_case=True)
    return KubeletCPUManager(
        policy=optional(raw, "policy", as_str, "", fold_case=True),
        options=immutabledict({name: as_str(value) for name, value in options.items()}),
        reserved_cpus=cpus(listed),
    )


def _kubelet_cpus(text: str, cpus: _ReadCPUs = _cpus_or_none) -> CPUSet:
    """CPUs of the pods whose CPUs the kubelet itself handed out."""
    found = NO_CPUS
    for own in collect(partial(_cpus_by_kubelet, cpus), as_list(load_json(text))):
        found |= own
    return found


def _cpus_by_kubelet(cpus: _ReadCPUs, value: Json) -> CPUSet:
    entry = as_mapping(value)
    managed = optional(entry, "managedByKubelet", as_bool, False, fold_case=True)
    uid = optional(entry, "uid", as_str, "", fold_case=True)
    if not (managed and uid):
        return NO_CPUS
    return optional(entry, "cpuset", lambda text: cpus(as_str(text)), NO_CPUS, fold_case=True)


def _system_cpus(text: str, cpus: _ReadCPUs = _cpus_or_none) -> CPUSet:
    raw = as_mapping(load_json(text))
    if not optional(raw, "cpusetExclusive", as_bool, True, fold_case=True):
        return NO_CPUS
    return cpus(optional(raw, "cpuset", as_str, "", fold_case=True))


def _pools(text: str) -> tuple[CPUSharedPool, ...]:
    return collect(_pool, as_list(load_json(text)))


def _pool(value: Json) -> CPUSharedPool:
    raw = as_mapping(value)
    return CPUSharedPool(
        socket=optional(raw, "socket", as_int, 0, fold_case=True),
        node=optional(raw, "node", as_int, 0, fold_case=True),
        cpuset=parse_cpulist(optional(raw, "cpuset", as_str, "", fold_case=True)),
    )


# --- what counts for nothing --------------------------------------------------------------------------------

_EXACT: Final[Mapping[str, Callable[[str], object]]] = {
    ANNOTATION_CPU_TOPOLOGY: parse_cpu_topology,
    ANNOTATION_CPU_MANAGER_POLICY: partial(_cpu_manager, cpus=parse_cpulist),
    ANNOTATION_POD_CPU_ALLOCS: partial(_kubelet_cpus, cpus=parse_cpulist),
    ANNOTATION_SYSTEM_QOS_RESOURCE: partial(_system_cpus, cpus=parse_cpulist),
    ANNOTATION_CPU_SHARED_POOLS: _pools,
    ANNOTATION_BE_CPU_SHARED_POOLS: _pools,
    ANNOTATION_CPU_BASIC_INFO: _basic_info,
    ANNOTATION_AMPLIFICATION_RATIO: lambda text: parse_amplification({ANNOTATION_AMPLIFICATION_RATIO: text}),
}
"""How the annotations are read where nothing is forgiven."""
_FULL_PCPUS: Final = "full-pcpus-only"
_BOOLEAN: Final = ("true", "false")
_SILENT: Final = ("", "None")


def unheeded(raw: Mapping[str, Json]) -> Iterator[Problem]:
    """Give what :func:`node_resource_topology_of` takes for absent, and why, with the path in the object."""
    annotations = optional(optional(raw, "metadata", as_mapping, _EMPTY), "annotations", as_mapping, _EMPTY)
    for key, parse in _EXACT.items():
        text = annotations.get(key)
        if not isinstance(text, str):
            continue
        path = f"metadata.annotations[{key}]"
        try:
            read = parse(text)
        except ManifestError as error:
            problem = error.problems[0]
            inner = problem.path.removeprefix(path).removeprefix(".")
            yield Problem(join_path(path, inner), f"{problem.message}; it is ignored")
            continue
        if isinstance(read, KubeletCPUManager) and read.options.get(_FULL_PCPUS, "true") not in _BOOLEAN:
            told = show(read.options[_FULL_PCPUS])
            yield Problem(
                f"{path}.options[{_FULL_PCPUS}]", f"{told} is neither true nor false; it is ignored"
            )
    named = [one for one in optional(raw, "topologyPolicies", as_list, _NOTHING) if one not in _SILENT]
    if named and _kubelet_policy(named) is NUMATopologyPolicy.NONE:
        label = LABEL_NODE_NUMA_TOPOLOGY_POLICY
        yield Problem(
            "topologyPolicies", f"{show(named[0])} is not heeded, as upstream; the Node's label {label} is"
        )
