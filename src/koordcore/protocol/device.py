"""Device wishes and device allocations as pods carry them in annotations and labels.

Keys, shapes and words are upstream's (``apis/extension/device_share.go``). JSON keys match without case. What
the pod's annotations make illegal is a :class:`~koordcore.errors.ManifestError` whose message is upstream's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.device_requests import (
    AllocateStrategy,
    DeviceHint,
    ExclusivePolicy,
    JointAllocate,
    PartitionAllocatePolicy,
    PartitionSpec,
)
from koordcore.model.devices import (
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    DeviceAllocation,
    DeviceHolding,
    DeviceType,
    VirtualFunction,
)
from koordcore.model.quantity import parse_quantity
from koordcore.model.resources import (
    Resources,
    format_resources,
    make_resources,
    parse_resources,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.fields import Json, as_mapping, at, field, load_json
from koordcore.protocol.go_json import syntax_error, type_error
from koordcore.protocol.selectors import as_label_selector

MAX_MINOR: Final = 1023
"""A larger minor is surely a typing error; it bounds the bit masks that stand for sets of devices."""
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE: Final = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC: Final = "scheduling.koordinator.sh/gpu-partition-spec"
GPU_ISOLATION_PROVIDER: Final = "koordinator.sh/gpu-isolation-provider"

DEPRECATED_NAMES: Final[Mapping[str, str]] = {
    "kubernetes.io/rdma": RDMA,
    "kubernetes.io/fpga": FPGA,
    "kubernetes.io/gpu": GPU,
    "kubernetes.io/gpu-core": GPU_CORE,
    "kubernetes.io/gpu-memory": GPU_MEMORY,
    "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
    # Spelt so in the release notes and the user manual (ruling 12).
    "koordinator.sh/gpu-shared": GPU_SHARED,
}
"""Old resource name to the one that counts."""

T = TypeVar("T")


def replace_deprecated(amounts: Mapping[str, T]) -> dict[str, T]:
    """Rename old resource names; an old name beside the new one is dropped.

    Examples
    --------
    >>> replace_deprecated({"kubernetes.io/gpu-core": 50, "cpu": 1})
    {'koordinator.sh/gpu-core': 50, 'cpu': 1}
    """
    if not any(name in amounts for name in DEPRECATED_NAMES):
        return dict(amounts)
    renamed: dict[str, T] = {}
    for name, amount in amounts.items():
        new = DEPRECATED_NAMES.get(name)
        if new is None:
            renamed[name] = amount
        elif new not in amounts:
            renamed[new] = amount
    return renamed


def written_names(
    error: ManifestError, amounts: Iterable[str], renamed: Mapping[str, str] = DEPRECATED_NAMES
) -> ManifestError:
    """Name what is wrong with amounts by the names that they were written under.

    Parameters
    ----------
    error
        With paths inside the list as it is read.
    amounts
        The names in the list as it was written.
    renamed
        Under which names some of them are read.
    """
    written = {f"[{renamed[name]}]": f"[{name}]" for name in amounts if name in renamed}
    written |= {f"[{name}]": f"[{name}]" for name in amounts}  # the right name wins where both stand
    return ManifestError(attrs.evolve(one, path=written.get(one.path, one.path)) for one in error.problems)


def resources_of_today(value: Json) -> Resources:
    """Take a resource list in which some names may be old ones.

    Raises
    ------
    ManifestError
        Names every entry that is no quantity, as it is written.
    """
    written = as_mapping(value)
    try:
        return parse_resources(replace_deprecated(written))
    except ManifestError as error:
        raise written_names(error, written) from None


def split_gpu(amounts: Resources) -> Resources:
    """Add to ``koordinator.sh/gpu`` what the webhook makes of it: core, memory ratio and number of cards.

    What counts a pod as the API server keeps it counts these. Amounts that are written stay.

    Examples
    --------
    >>> parts = split_gpu(make_resources({GPU: 200}))
    >>> {name.partition("/")[2]: amount for name, amount in parts.items()}
    {'gpu': 200, 'gpu-core': 200, 'gpu-memory-ratio': 200, 'gpu.shared': 2}
    """
    return _split(amounts) if amounts.get(GPU) else amounts


@lru_cache(maxsize=4096)
def _split(amounts: Resources) -> Resources:
    percent = amounts[GPU]
    parts = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent, GPU_SHARED: max(1, percent // 100)}
    return make_resources({**parts, **amounts})


def load_go_json(text: str, *, prefix: str = "") -> Any:
    """Read a JSON text; a syntax error is worded as upstream's decoder words it.

    Raises
    ------
    ManifestError
        With ``prefix`` before the decoder's words.
    """
    try:
        return load_json(text)
    except ManifestError:
        # The decoder's own words cost a walk in Python, which a sound text is spared.
        problem = syntax_error(text)
        if problem is None:
            raise
        raise ManifestError.at("", prefix + problem) from None


class _Struct:
    """One JSON object read as a Go struct: fields by name without case, wrong types worded as Go does."""

    def __init__(self, value: Any, go_type: str, path: str, prefix: str) -> None:
        self.name = go_type.rpartition(".")[2]
        self.path = path
        self.prefix = prefix
        if value is not None and not isinstance(value, Mapping):
            raise ManifestError.at("", prefix + type_error(value, go_type, path))
        self.raw: Mapping[str, Any] = value or {}

    def _take(self, key: str, go_type: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = field(self.raw, key, fold_case=True)
        if value is None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            place = f"{self.name}.{key}"
            raise ManifestError.at("", self.prefix + type_error(value, go_type, place))
        return value

    def text(self, key: str, go_type: str) -> str:
        return str(self._take(key, go_type, str, ""))

    def sequence(self, key: str, go_type: str) -> list[Any]:
        return list(self._take(key, go_type, list, []))

    def integer(self, key: str, go_type: str) -> int:
        return int(self._take(key, go_type, int, 0))

    def mapping(self, key: str, go_type: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._take(key, go_type, Mapping, {})
        return value

    def optional(self, key: str) -> Any:
        return field(self.raw, key, fold_case=True)


def parse_selector(value: Any, *, prefix: str = "") -> LabelSelector:
    """Read a Kubernetes label selector; an empty one matches everything.

    Raises
    ------
    ManifestError
        When the selector cannot be read or an operator is unknown.
    """
    raw = _Struct(value, "v1.LabelSelector", "", prefix)
    raw.mapping("matchLabels", "map[string]string")
    for entry in raw.sequence("matchExpressions", "[]v1.LabelSelectorRequirement"):
        # Asked for their types alone, which are worded as Go words them.
        one = _Struct(entry, "v1.LabelSelectorRequirement", "", prefix)
        one.text("operator", "v1.LabelSelectorOperator")
        one.sequence("values", "[]string")
        one.text("key", "string")
    try:
        return as_label_selector(raw.raw, fold_case=True)
    except ManifestError as error:
        raise ManifestError.at("", prefix + error.problems[0].message) from None


def parse_hints(annotations: Mapping[str, str]) -> immutabledict[DeviceType, DeviceHint]:
    """Read ``device-allocate-hint``; empty where the annotation is absent.

    An unknown strategy or policy counts as none and an unknown device type is passed over, as upstream
    does; an entry that is ``null`` is an empty hint.

    Raises
    ------
    ManifestError
        With upstream's message.
    """
    text = annotations.get(DEVICE_ALLOCATE_HINT)
    if not text:
        return immutabledict()
    prefix = "invalid DeviceAllocateHint annotation, err: "
    raw = load_go_json(text, prefix=prefix)
    if raw is not None and not isinstance(raw, Mapping):
        raise ManifestError.at("", prefix + type_error(raw, "extension.DeviceAllocateHints"))
    hints: dict[DeviceType, DeviceHint] = {}
    for name, entry in sorted((raw or {}).items()):
        one = _Struct(entry, "extension.DeviceHint", "", prefix)
        strategy = one.text("allocateStrategy", "extension.DeviceAllocateStrategy")
        exclusive = one.text("exclusivePolicy", "extension.DeviceExclusivePolicy")
        hint = DeviceHint(
            selector=_hint_selector(
                one, "selector", f"invalid Selector of DeviceHint, deviceType: {name}, err: "
            ),
            vf_selector=_hint_selector(
                one, "vfSelector", f"invalid VFSelector of DeviceHint, deviceType: {name}, err: "
            ),
            strategy=_known(AllocateStrategy, strategy, AllocateStrategy.NONE),
            exclusive=_known(ExclusivePolicy, exclusive, ExclusivePolicy.NONE),
            required_topology_scope=one.text("requiredTopologyScope", "extension.DeviceTopologyScope"),
        )
        if name in DeviceType.__members__.values():
            hints[DeviceType(name)] = hint
    return immutabledict(hints)


def _hint_selector(hint: _Struct, key: str, prefix: str) -> LabelSelector | None:
    value = hint.optional(key)
    return None if value is None else parse_selector(value, prefix=prefix)


def _known(words: Callable[[str], T], text: str, default: T) -> T:
    try:
        return words(text)
    except ValueError:
        return default


def parse_joint(annotations: Mapping[str, str]) -> JointAllocate | None:
    """Read ``device-joint-allocate``: all types that it names, in its order.

    Raises
    ------
    ManifestError
        With upstream's message.
    """
    text = annotations.get(DEVICE_JOINT_ALLOCATE)
    if not text:
        return None
    prefix = "invalid DeviceJointAllocate annotation, err: "
    raw = _Struct(load_go_json(text, prefix=prefix), "extension.DeviceJointAllocate", "", prefix)
    names = raw.sequence("deviceTypes", "[]v1alpha1.DeviceType")
    for name in names:
        if not isinstance(name, str):
            place = f"{raw.name}.deviceTypes"
            raise ManifestError.at("", prefix + type_error(name, "v1alpha1.DeviceType", place))
    kinds = dict.fromkeys(DeviceType(name) for name in names if name in DeviceType.__members__.values())
    scope = raw.text("requiredScope", "extension.DeviceJointAllocateScope")
    return JointAllocate(tuple(kinds), same_pcie=scope == "SamePCIe")


def parse_partition_spec(annotations: Mapping[str, str]) -> PartitionSpec | None:
    """Read ``gpu-partition-spec``; ``{}`` is a specification (BestEffort), its absence is none.

    Raises
    ------
    ManifestError
        With upstream's message.
    """
    text = annotations.get(GPU_PARTITION_SPEC)
    if not text:
        return None
    prefix = "invalid GPUPartitionSpec annotation, err: "
    raw = _Struct(load_go_json(text, prefix=prefix), "extension.GPUPartitionSpec", "", prefix)
    policy = raw.text("allocatePolicy", "extension.GPUPartitionAllocatePolicy")
    bandwidth = raw.optional("ringBusBandwidth")
    try:
        demanded = None if bandwidth is None else parse_quantity(bandwidth)
    except ManifestError:
        raise ManifestError.at(
            "",
            prefix + "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ) from None
    return PartitionSpec(
        _known(PartitionAllocatePolicy, policy, PartitionAllocatePolicy.BEST_EFFORT), demanded
    )


def parse_allocation(annotations: Mapping[str, str]) -> DeviceAllocation | None:
    """Read ``device-allocated``; ``None`` where the annotation is absent.

    Raises
    ------
    ManifestError
        When the annotation cannot be read; syntax and types are worded as upstream's decoder words them.
    """
    text = annotations.get(DEVICE_ALLOCATED)
    return _allocation_in(text) if text else None


@lru_cache(maxsize=1 << 14)  # a pod's allocation is read again whenever its node changes
def _allocation_in(text: str) -> DeviceAllocation:
    raw = load_go_json(text)
    if raw is not None and not isinstance(raw, Mapping):
        raise ManifestError.at("", type_error(raw, "extension.DeviceAllocations"))
    devices: dict[DeviceType, tuple[DeviceHolding, ...]] = {}
    for name, entries in sorted((raw or {}).items()):
        if entries is not None and not isinstance(entries, list):
            raise ManifestError.at("", type_error(entries, "[]*extension.DeviceAllocation"))
        holdings = tuple(
            _holding_at(f"{name}[{index}]", entry)
            for index, entry in enumerate(entries or ())
            if entry is not None
        )
        if holdings and name in DeviceType.__members__.values():
            devices[DeviceType(name)] = holdings
    return DeviceAllocation(devices)


def _holding_at(path: str, entry: Any) -> DeviceHolding:
    try:
        return _holding(entry)
    except ManifestError as error:
        # The words of upstream's decoder name the place themselves.
        raise ManifestError(one.within(path) if one.path else one for one in error.problems) from None


def _holding(entry: Any) -> DeviceHolding:
    one = _Struct(entry, "extension.DeviceAllocation", "", "")
    minor = one.integer("minor", "int32")
    if minor < 0:
        raise ManifestError.at("minor", f"a minor is not negative: {minor}")
    if minor > MAX_MINOR:
        raise ManifestError.at("minor", f"a minor is at most {MAX_MINOR}: {minor}")
    extension = _Struct(one.optional("extension"), "extension.DeviceAllocationExtension", "", "")
    vfs = []
    for entry_vf in extension.sequence("vfs", "[]extension.VirtualFunction"):
        vf = _Struct(entry_vf, "extension.VirtualFunction", "", "")
        vfs.append(VirtualFunction(vf.text("busID", "string"), vf.integer("minor", "int")))
    amounts = one.mapping("resources", "v1.ResourceList")
    return DeviceHolding(
        minor=minor,
        resources=_positive(at("resources", resources_of_today, amounts)),
        id=one.text("id", "string"),
        vfs=tuple(vfs),
        template=extension.text("gpuSharedResourceTemplate", "string"),
    )


def _positive(amounts: Resources) -> Resources:
    """Leave out negative amounts: who holds less than nothing of one resource still holds the others."""
    if all(amount >= 0 for amount in amounts.values()):
        return amounts
    return immutabledict({name: amount for name, amount in amounts.items() if amount >= 0})


def allocation_to_json(allocation: DeviceAllocation) -> dict[str, list[dict[str, Any]]]:
    """Give the JSON value of ``device-allocated``: fields in upstream's order, empty ones left out.

    A VF of minor 0 shows no minor, one of minor -1 does.
    """
    return {
        str(kind): [_holding_to_json(holding) for holding in holdings]
        for kind, holdings in sorted(allocation.devices.items())
    }


# Cards of one model and pods of one kind make few different amounts.
@lru_cache(maxsize=4096)
def _amounts(resources: Resources) -> Mapping[str, str]:
    return format_resources(resources)


def _holding_to_json(holding: DeviceHolding) -> dict[str, Any]:
    entry: dict[str, Any] = {"minor": holding.minor, "resources": dict(_amounts(holding.resources))}
    if holding.id:
        entry["id"] = holding.id
    extension: dict[str, Any] = {}
    if holding.vfs:
        extension["vfs"] = [
            ({"minor": vf.minor} if vf.minor else {}) | ({"busID": vf.bus_id} if vf.bus_id else {})
            for vf in holding.vfs
        ]
    if holding.template:
        extension["gpuSharedResourceTemplate"] = holding.template
    if extension:
        entry["extension"] = extension
    return entry


def format_allocation(allocation: DeviceAllocation) -> str:
    """Write ``device-allocated`` byte for byte as the node agent reads it."""
    return json.dumps(allocation_to_json(allocation), separators=(",", ":"), ensure_ascii=False)
