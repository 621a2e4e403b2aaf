"""The Device object and the node labels beside it, read into an inventory.

Upstream: ``apis/scheduling/v1alpha1/device_types.go``, ``apis/extension/device_share.go`` and
``pkg/scheduler/plugins/deviceshare/gpu_partition.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.devices import (
    Device,
    DeviceInventory,
    DeviceObject,
    DeviceTopology,
    DeviceType,
    GPUPartition,
    PartitionTable,
    SharedResourceTemplates,
    TableSource,
    VFGroup,
    VirtualFunction,
)
from koordcore.model.quantity import parse_quantity
from koordcore.protocol.device import (
    GPU_ISOLATION_PROVIDER,
    MAX_MINOR,
    load_go_json,
    resources_of_today,
)
from koordcore.protocol.fields import (
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_numa_node,
    as_str,
    as_str_mapping,
    at,
    field,
    list_of,
    load_json,
    optional,
    required,
    show,
)
from koordcore.topology.devices import HOPPER_PARTITIONS, hopper_model

GPU_PARTITIONS: Final = "scheduling.koordinator.sh/gpu-partitions"
GPU_PARTITION_POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
GPU_VENDOR: Final = "node.koordinator.sh/gpu-vendor"
GPU_MODEL: Final = "node.koordinator.sh/gpu-model"
GPU_DRIVER_VERSION: Final = "node.koordinator.sh/gpu-driver-version"
WELL_PLANNED: Final = "node.koordinator.sh/secondary-device-well-planned"
_NO_LABELS: Final[dict[str, str]] = {}
_NOTHING: Final[Mapping[str, object]] = {}


@record
class ParsedTable:
    """A partition table as far as it could be read.

    Parameters
    ----------
    table
        ``None`` where there is no annotation or it cannot be read.
    error
        Why it cannot be read; empty where it can.
    aliases
        What was read although upstream would refuse it (ruling 12).
    """

    table: PartitionTable | None = None
    error: str = ""
    aliases: tuple[str, ...] = ()


def parse_partition_table(annotations: Mapping[str, str]) -> ParsedTable:
    """Read ``gpu-partitions`` of a Device object.

    The flat shape is ``{"2": [{"minors": [0, 1], "allocationScore": 1, …}]}``. The release notes also draw
    a link type between the count and the entries, and scores as text: both are read, and named in
    ``aliases``. One bad entry voids the whole table, as upstream has it.
    """
    text = annotations.get(GPU_PARTITIONS)
    if not text:
        return ParsedTable()
    aliases: list[str] = []
    try:
        raw = load_go_json(text)
        if raw is None:
            raise ManifestError.at("", "expected object, got null")
        sizes = {_size(key): (key, entries) for key, entries in as_mapping(raw).items()}
        table = {
            size: tuple(at(f"[{key}]", lambda value: _partitions(value, aliases), entries))
            for size, (key, entries) in sorted(sizes.items())
        }
    except ManifestError as error:
        return ParsedTable(error=str(error.within(f"metadata.annotations[{GPU_PARTITIONS}]")))
    return ParsedTable(immutabledict(table), aliases=tuple(dict.fromkeys(aliases)))


def _size(key: str) -> int:
    body = key[1:] if key[:1] in ("-", "+") else key
    if not (body.isascii() and body.isdigit()):
        raise ManifestError.at(f"[{key}]", "expected a number of GPUs as the key")
    return int(key)


def _partitions(value: Any, aliases: list[str]) -> list[GPUPartition]:
    if isinstance(value, Mapping):
        aliases.append("link type between the count and the partitions")
        return [
            _partition(entry, str(link), aliases)
            for link, entries in value.items()
            for entry in (entries if isinstance(entries, list) else [entries])
        ]
    partitions: list[GPUPartition] = []
    for index, entry in enumerate(as_list(value if value is not None else [])):
        nested = _nested(entry)
        if nested is not None:
            aliases.append("link type between the count and the partitions")
            partitions.extend(_partition(inner, link, aliases) for link, inner in nested)
        else:
            partitions.append(at(f"[{index}]", lambda one: _partition(one, "", aliases), entry))
    return partitions


def _nested(entry: Any) -> list[tuple[str, Any]] | None:
    """Tell whether an entry is keyed by link type instead of being a partition itself."""
    if not isinstance(entry, Mapping) or not entry or field(entry, "minors", fold_case=True) is not None:
        return None
    inner = list(entry.items())
    return inner if all(isinstance(value, Mapping) and "minors" in value for _, value in inner) else None


def _partition(value: Any, link: str, aliases: list[str]) -> GPUPartition:
    raw = as_mapping(value if value is not None else {})
    score = field(raw, "allocationScore", fold_case=True)
    if isinstance(score, str) and score.removeprefix("-").isascii() and score.removeprefix("-").isdigit():
        aliases.append("allocationScore as text")
        score = int(score)
    bandwidth = field(raw, "ringBusBandwidth", fold_case=True)
    return GPUPartition(
        minors=optional(raw, "minors", list_of(_partition_minor), (), fold_case=True),
        allocation_score=0 if score is None else at("allocationScore", as_int, score),
        link_type=optional(raw, "gpuLinkType", as_str, link, fold_case=True),
        ring_bus_bandwidth=None if bandwidth is None else at("ringBusBandwidth", _quantity, bandwidth),
    )


def _quantity(value: object) -> int:
    return parse_quantity(value)  # type: ignore[arg-type]  # checked inside


def _partition_minor(value: object) -> int:
    return _bounded_minor(0 if value is None else as_int(value))


def _bounded_minor(minor: int) -> int:
    if not 0 <= minor <= MAX_MINOR:
        raise ManifestError.at("", f"expected a minor of 0 to {MAX_MINOR}, got {minor}")
    return minor


def _vf(value: object) -> VirtualFunction:
    raw = as_mapping(value)
    return VirtualFunction(optional(raw, "busID", as_str, ""), optional(raw, "minor", as_int, 0))


def _vf_group(value: object) -> VFGroup:
    raw = as_mapping(value)
    return VFGroup(
        optional(raw, "labels", as_str_mapping, _NO_LABELS), optional(raw, "vfs", list_of(_vf), ())
    )


def _topology(value: object) -> DeviceTopology:
    raw = as_mapping(value)
    return DeviceTopology(
        node_id=optional(raw, "nodeID", as_numa_node, 0),
        pcie_id=optional(raw, "pcieID", as_str, ""),
        socket_id=optional(raw, "socketID", as_int, 0),
        bus_id=optional(raw, "busID", as_str, ""),
    )


def device_from_manifest(value: object) -> Device | None:
    """Read one entry of ``spec.devices``; ``None`` for a type that is not known.

    A missing ``health`` is false, as Go leaves it.

    Raises
    ------
    ManifestError
        With the path inside the entry.
    """
    raw = as_mapping(value)
    kind = required(raw, "type", as_str)
    if kind not in DeviceType.__members__.values():
        return None
    return Device(
        type=DeviceType(kind),
        minor=required(raw, "minor", lambda one: _bounded_minor(as_int(one))),
        id=optional(raw, "id", as_str, ""),
        health=optional(raw, "health", as_bool, False),
        labels=immutabledict(optional(raw, "labels", as_str_mapping, _NO_LABELS)),
        resources=optional(raw, "resources", resources_of_today, immutabledict()),
        topology=None if raw.get("topology") is None else required(raw, "topology", _topology),
        vf_groups=optional(raw, "vfGroups", list_of(_vf_group), ()),
    )


def device_object_from_manifest(raw: Mapping[str, Any]) -> DeviceObject:
    """Read a Device object.

    Raises
    ------
    ManifestError
        When the object cannot be read, with the path.
    """
    metadata = optional(raw, "metadata", as_mapping, _NOTHING)
    labels = at("metadata.labels", as_str_mapping, metadata.get("labels") or {})
    annotations = at("metadata.annotations", as_str_mapping, metadata.get("annotations") or {})
    spec = optional(raw, "spec", as_mapping, _NOTHING)
    entries = at("spec.devices", list_of(device_from_manifest), spec.get("devices") or [])
    warnings = []
    named: dict[tuple[DeviceType, int], Device] = {}
    for index, entry in enumerate(entries):
        if entry is None:
            warnings.append(f"spec.devices[{index}].type: unknown device type, the device is passed over")
        else:
            if (entry.type, entry.minor) in named:
                warnings.append(f"spec.devices[{index}].minor: {entry.type} {entry.minor} is given twice")
            named[entry.type, entry.minor] = entry
    policy = labels.get(GPU_PARTITION_POLICY, "")
    if policy not in ("", "Honor", "Prefer"):
        known = f"{show(policy)} is none of Honor, Prefer; it is ignored"
        warnings.append(f"metadata.labels[{GPU_PARTITION_POLICY}]: {known}")
    parsed = parse_partition_table(annotations)
    if parsed.error:
        warnings.append(f"{parsed.error}: the table is passed over")
    warnings.extend(
        f"metadata.annotations[{GPU_PARTITIONS}]: {alias}: upstream does not read this"
        for alias in parsed.aliases
    )
    warnings.extend(
        f"metadata.annotations[{GPU_PARTITIONS}][{size}]: {list(one.minors)} is no set of {size} cards: "
        "it is passed over"
        for size, partitions in (parsed.table or {}).items()
        for one in partitions
        if not one.is_of(size)
    )
    return DeviceObject(
        name=optional(metadata, "name", as_str, ""),
        labels=immutabledict(labels),
        devices=tuple(named[key] for key in sorted(named)),
        partitions=parsed.table,
        warnings=tuple(warnings),
    )


def inventory_of(device: DeviceObject, node_labels: Mapping[str, str] = _NO_LABELS) -> DeviceInventory:
    """Put a Device object and the labels of its Node together.

    A table on the Device counts with the Device's policy label, or with the Node's where the Device has none.
    Without a table on the Device, the built-in one of the Node's model is taken; then the Node's label counts
    before the Device's.
    """
    vendor, model = node_labels.get(GPU_VENDOR, ""), node_labels.get(GPU_MODEL, "")
    table, source = device.partitions, TableSource.DEVICE
    policies = [labels.get(GPU_PARTITION_POLICY, "") for labels in (device.labels, node_labels)]
    if table is None:
        policies.reverse()
        table, source = _builtin(vendor, model)
    policy = policies[0] or policies[1]
    return DeviceInventory(
        devices=device.devices,
        partitions=table,
        source=source,
        honor=policy == "Honor",
        vendor=vendor,
        model=model,
        isolation_provider=node_labels.get(GPU_ISOLATION_PROVIDER, ""),
        well_planned=device.labels.get(WELL_PLANNED) == "true",
        warnings=device.warnings,
    )


def _builtin(vendor: str, model: str) -> tuple[PartitionTable | None, TableSource]:
    if vendor not in ("", "nvidia") or not hopper_model(model):
        return None, TableSource.NONE
    return _HOPPER_TABLE, TableSource.BUILTIN


_HOPPER_TABLE: Final[PartitionTable] = immutabledict(
    {
        size: tuple(GPUPartition(minors=minors, allocation_score=1, link_type="NVLink") for minors in groups)
        for size, groups in HOPPER_PARTITIONS.items()
    }
)


def templates_from_manifest(config_map: Mapping[str, Any]) -> SharedResourceTemplates:
    """Read the ConfigMap of templates for virtual cards (``data["data.yaml"]`` in its JSON form).

    Raises
    ------
    ManifestError
        When it is not ``{vendor-model: {template: {resource: quantity}}}``.
    """
    data = optional(config_map, "data", as_str_mapping, _NO_LABELS)
    raw = at("data[data.yaml]", lambda text: as_mapping(load_json(as_str(text))), data.get("data.yaml", "{}"))
    models = {}
    for model, templates in sorted(raw.items()):
        named = at(f"data[data.yaml].{model}", as_mapping, templates)
        models[model] = immutabledict(
            {
                name: at(f"data[data.yaml].{model}.{name}", resources_of_today, amounts)
                for name, amounts in sorted(named.items())
            }
        )
    return immutabledict(models)
