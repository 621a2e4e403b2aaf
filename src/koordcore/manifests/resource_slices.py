"""What drivers publish: ResourceSlices, and the taints that administrators put on devices.

Reads ``resource.k8s.io`` v1, v1beta2 and v1beta1 by their shapes: the oldest form wraps a device in
``basic``. What the API server would refuse, but can be understood, is read and warned of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from immutabledict import immutabledict

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import Memory, Reading, as_time, is_object, read_metadata, section
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeScalar,
    AttributeValue,
    CapacityPolicy,
    CapacityRange,
    CounterConsumption,
    CounterSet,
    DeviceCapacity,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.mappings import EMPTY
from koordcore.model.quantity import parse_exact_quantity
from koordcore.model.selectors import NodeSelector
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    at,
    collect,
    list_of,
    optional,
    required,
)
from koordcore.protocol.selectors import as_node_selector

T = TypeVar("T")

_MAX_DEVICES: Final = 128
_MAX_RICH_DEVICES: Final = 64
"""Most devices of a slice in which some have taints, counters or lists."""
_MAX_SETS: Final = 8
_MAX_NAMES: Final = 32
_MAX_TEXT: Final = 64
_MAX_TAINTS: Final = 16
_MAPPINGS: Final = ("nodeAllocatableResources", "nodeAllocatableResourceMappings")
"""Names of one field of devices, in versions that follow each other (KEP-5517)."""
_EFFECTS: Final = frozenset({"None", "NoSchedule", "NoExecute"})
_SCALARS: Final[dict[str, tuple[AttributeKind, Callable[[Json], AttributeScalar]]]] = {
    "int": (AttributeKind.INT, as_int),
    "bool": (AttributeKind.BOOL, as_bool),
    "string": (AttributeKind.STRING, as_str),
    "version": (AttributeKind.VERSION, as_str),
}
_NO_VALUE: Final = AttributeValue(AttributeKind.NONE)


def as_amount(value: Json) -> int:
    """Take a quantity, in billionths of its unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ManifestError.at("", "expected a quantity")
    return parse_exact_quantity(value)


def as_amounts(value: Json) -> dict[str, int]:
    """Take an object of quantities, sorted by name."""
    return _by_name(value, as_amount)


def read_resource_slice(reading: Reading, raw: Mapping[str, Json]) -> ResourceSlice:
    """Decode a ResourceSlice."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    pool = section(reading, spec, "pool", "spec")
    devices = reading.take(spec, "devices", "spec", partial(_devices, reading.memory), ())
    record = ResourceSlice(
        name=meta.name,
        driver=_named(reading, spec, "driver", "spec"),
        pool=_named(reading, pool, "name", "spec.pool"),
        generation=reading.take(pool, "generation", "spec.pool", as_int, 0),
        slice_count=reading.take(pool, "resourceSliceCount", "spec.pool", as_int, 0),
        node_name=reading.take(spec, "nodeName", "spec", as_str, ""),
        node_selector=reading.take(spec, "nodeSelector", "spec", as_node_selector, None),
        all_nodes=reading.take(spec, "allNodes", "spec", as_bool, False),
        per_device_node_selection=reading.take(spec, "perDeviceNodeSelection", "spec", as_bool, None),
        devices=devices,
        shared_counters=reading.take(spec, "sharedCounters", "spec", list_of(_counter_set), ()),
        skip_node_operations=reading.take(spec, "skipNodeOperations", "spec", as_strings, ()),
    )
    _check_slice(reading, record)
    listed = as_list(spec["devices"]) if devices else ()
    for number, (device, written) in enumerate(zip(devices, listed, strict=True)):
        inner = ".basic" if is_object(written) and written.get("basic") is not None else ""
        _check_device(reading, device, f"spec.devices[{number}]{inner}")
    _check_mappings(reading, listed)
    return record


def _named(reading: Reading, raw: Mapping[str, Json], name: str, path: str) -> str:
    text = reading.take(raw, name, path, as_str, "")
    if raw.get(name) in (None, ""):
        reading.problem(f"{path}.{name}", "required")
    return text


# --- devices ------------------------------------------------------------------------------------------


def _check_mappings(reading: Reading, devices: Sequence[Json]) -> None:
    """Name the first device that takes of its node's own amounts."""
    taking = [(number, name) for number, one in enumerate(devices) if (name := _mapping_of(one)) is not None]
    if taking:
        number, name = taking[0]
        more = f" (here and for {len(taking) - 1} more)" if len(taking) > 1 else ""
        told = f"what the device takes of its node's own amounts is not counted before its pod runs{more}"
        reading.warn(f"spec.devices[{number}].{name}", told)


def _mapping_of(device: Json) -> str | None:
    raw = as_mapping(device)
    inner = as_mapping(raw.get("basic") or raw)
    return next((name for name in _MAPPINGS if inner.get(name)), None)


def _devices(memory: Memory, value: Json) -> tuple[SliceDevice, ...]:
    return collect(partial(_device, memory), as_list(value))


def _device(memory: Memory, value: Json) -> SliceDevice:
    # Thousands of devices have equal parts: each is decoded once. Attributes are remembered one by one,
    # because among them there is always a name of the device's own.
    raw = as_mapping(value)
    if raw.get("basic") is None:
        return _device_of(memory, raw)
    basic = at("basic", as_mapping, raw["basic"])
    try:
        return _device_of(memory, {**raw, **basic})
    except ManifestError as error:
        raise ManifestError(
            one.within("basic") if one.path.partition(".")[0].partition("[")[0] in basic else one
            for one in error.problems
        ) from None


def _device_of(memory: Memory, raw: Mapping[str, Json]) -> SliceDevice:
    attributes: dict[str, AttributeValue] = optional(raw, "attributes", partial(_attributes, memory), {})
    capacity = optional(raw, "capacity", partial(memory.once, _capacities), EMPTY)
    selector: NodeSelector | None = optional(raw, "nodeSelector", as_node_selector, None)
    return SliceDevice(
        name=required(raw, "name", as_str),
        attributes=attributes,
        capacity=capacity,
        consumes_counters=optional(raw, "consumesCounters", partial(memory.once, _consumptions), ()),
        node_name=optional(raw, "nodeName", as_str, ""),
        node_selector=selector,
        all_nodes=optional(raw, "allNodes", as_bool, False),
        taints=optional(raw, "taints", list_of(_taint), ()),
        binds_to_node=optional(raw, "bindsToNode", as_bool, False),
        binding_conditions=optional(raw, "bindingConditions", as_strings, ()),
        binding_failure_conditions=optional(raw, "bindingFailureConditions", as_strings, ()),
        allow_multiple_allocations=optional(raw, "allowMultipleAllocations", as_bool, False),
    )


def _by_name(value: Json, convert: Callable[[Json], T]) -> dict[str, T]:
    """Convert the values of an object, sorted by name, and report the problems of all of them together."""
    done: dict[str, T] = {}
    problems: list[Problem] = []
    for name, one in sorted(as_mapping(value).items()):
        try:
            done[name] = convert(one)
        except ManifestError as error:
            problems.extend(error.within(f"[{name}]").problems)
    if problems:
        raise ManifestError(problems)
    return done


def _attributes(memory: Memory, value: Json) -> dict[str, AttributeValue]:
    return _by_name(value, partial(memory.once, _attribute))


def _attribute(value: Json) -> AttributeValue:
    raw = as_mapping(value)
    # The first that is set counts, as in the reference.
    for name, (kind, convert) in _SCALARS.items():
        if raw.get(name) is not None:
            return AttributeValue(kind, (at(name, convert, raw[name]),))
    for name, (kind, convert) in _SCALARS.items():
        listed = f"{name}s"
        if raw.get(listed) is not None:
            members = at(listed, as_list, raw[listed])
            try:
                return AttributeValue(kind, collect(convert, members), listed=True)
            except ManifestError as error:
                raise error.within(listed) from None
    return _NO_VALUE


def _capacities(value: Json) -> immutabledict[str, DeviceCapacity]:
    return immutabledict(_by_name(value, _capacity))


def _capacity(value: Json) -> DeviceCapacity:
    raw = as_mapping(value)
    amount = required(raw, "value", as_amount)
    policy: CapacityPolicy | None = optional(raw, "requestPolicy", _policy, None)
    return DeviceCapacity(amount, policy, binary=str(raw["value"]).endswith("i"))


def _policy(value: Json) -> CapacityPolicy:
    raw = as_mapping(value)
    valid_range: CapacityRange | None = optional(raw, "validRange", _range, None)
    return CapacityPolicy(
        default=optional(raw, "default", as_amount, None),
        valid_values=optional(raw, "validValues", list_of(as_amount), ()),
        valid_range=valid_range,
    )


def _range(value: Json) -> CapacityRange:
    raw = as_mapping(value)
    return CapacityRange(
        min=optional(raw, "min", as_amount, None),
        max=optional(raw, "max", as_amount, None),
        step=optional(raw, "step", as_amount, None),
    )


# --- counters -----------------------------------------------------------------------------------------


def _counters(value: Json) -> dict[str, int]:
    return _by_name(value, lambda one: required(as_mapping(one), "value", as_amount))


def _counter_set(value: Json) -> CounterSet:
    raw = as_mapping(value)
    counters: dict[str, int] = optional(raw, "counters", _counters, {})
    return CounterSet(required(raw, "name", as_str), counters)


def _consumptions(value: Json) -> tuple[CounterConsumption, ...]:
    return collect(_consumption, as_list(value))


def _consumption(value: Json) -> CounterConsumption:
    raw = as_mapping(value)
    counters: dict[str, int] = optional(raw, "counters", _counters, {})
    return CounterConsumption(
        required(raw, "counterSet", as_str), counters, optional(raw, "compatibilityGroups", as_strings, ())
    )


# --- taints -------------------------------------------------------------------------------------------


def _taint(value: Json) -> DeviceTaint:
    raw = as_mapping(value)
    return DeviceTaint(
        key=optional(raw, "key", as_str, ""),
        value=optional(raw, "value", as_str, ""),
        effect=optional(raw, "effect", as_str, ""),
        added=optional(raw, "timeAdded", as_time, None),
    )


def read_taint_rule(reading: Reading, raw: Mapping[str, Json]) -> DeviceTaintRule:
    """Decode a DeviceTaintRule; a selector of a kind that was withdrawn selects nothing."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    selector = section(reading, spec, "deviceSelector", "spec")
    withdrawn = [name for name in ("deviceClassName", "selectors") if selector.get(name)]
    for name in withdrawn:
        reading.warn(
            f"spec.deviceSelector.{name}", "withdrawn in Kubernetes 1.35: the rule selects no device"
        )
    taint = reading.take(spec, "taint", "spec", _taint, None)
    if taint is None:
        reading.problem("spec.taint", "required")
    elif taint.effect not in _EFFECTS:
        reading.warn("spec.taint.effect", f"{taint.effect or 'nothing'} is no effect: the taint bars nobody")
    return DeviceTaintRule(
        name=meta.name,
        taint=taint or DeviceTaint(""),
        selects=spec.get("deviceSelector") is not None and not withdrawn,
        driver=reading.take(selector, "driver", "spec.deviceSelector", as_str, None),
        pool=reading.take(selector, "pool", "spec.deviceSelector", as_str, None),
        device=reading.take(selector, "device", "spec.deviceSelector", as_str, None),
    )


# --- what the API server would not take -----------------------------------------------------------------


def _check_slice(reading: Reading, record: ResourceSlice) -> None:
    places = [bool(record.node_name), record.node_selector is not None, record.all_nodes]
    places.append(record.per_device_node_selection is True)
    if sum(places) != 1:
        reading.warn(
            "spec",
            "needs exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection"
            + ("" if any(places) else ": its devices can be used nowhere"),
        )
    if record.node_selector is not None and len(record.node_selector.terms) != 1:
        reading.warn("spec.nodeSelector.nodeSelectorTerms", "the API server takes exactly one term")
    if record.slice_count < 1:
        reading.warn("spec.pool.resourceSliceCount", "less than 1: the pool is never complete")
    if record.devices and record.shared_counters:
        reading.warn("spec.sharedCounters", "may not stand beside devices")
    if len(record.shared_counters) > _MAX_SETS:
        reading.warn(
            "spec.sharedCounters", f"at most {_MAX_SETS} counter sets, got {len(record.shared_counters)}"
        )
    rich = any(
        device.taints or device.consumes_counters or any(one.listed for one in device.attributes.values())
        for device in record.devices
    )
    most = _MAX_RICH_DEVICES if rich else _MAX_DEVICES
    if len(record.devices) > most:
        reading.warn("spec.devices", f"at most {most} devices, got {len(record.devices)}")


def _check_device(reading: Reading, device: SliceDevice, path: str) -> None:
    if len(device.attributes) + len(device.capacity) > _MAX_NAMES:
        count = len(device.attributes) + len(device.capacity)
        reading.warn(path, f"at most {_MAX_NAMES} attributes and capacities, got {count}")
    if len(device.taints) > _MAX_TAINTS:
        reading.warn(f"{path}.taints", f"at most {_MAX_TAINTS}, got {len(device.taints)}")
    for number, taint in enumerate(device.taints):
        if taint.effect not in _EFFECTS:
            where = f"{path}.taints[{number}].effect"
            reading.warn(where, f"{taint.effect or 'nothing'} is no effect: the taint bars nobody")
    for name, value in device.attributes.items():
        if not value.values:
            reading.warn(
                f"{path}.attributes[{name}]", "has no value: selectors have no answer for the device"
            )
        elif any(isinstance(one, str) and len(one) > _MAX_TEXT for one in value.values):
            reading.warn(f"{path}.attributes[{name}]", f"texts have at most {_MAX_TEXT} characters")
    for name, capacity in device.capacity.items():
        if capacity.policy is not None and not device.allow_multiple_allocations:
            where = f"{path}.capacity[{name}].requestPolicy"
            reading.warn(where, "only for devices with allowMultipleAllocations")
    if bool(device.binding_conditions) != bool(device.binding_failure_conditions):
        reading.warn(
            f"{path}.bindingConditions", "needs bindingFailureConditions beside it, and these need it"
        )
