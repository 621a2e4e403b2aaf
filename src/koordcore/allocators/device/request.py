"""From what a pod asks for to what each device must give.

The legal combinations of resource names, their checks and the division among cards follow upstream's
``deviceshare/utils.go`` and ``device_handler_gpu.go``; messages are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    AllocateStrategy,
    DeviceHint,
    DeviceRequest,
    GPURequest,
    JointAllocate,
    PartitionSpec,
)
from koordcore.model.devices import (
    ALL_GPU_RESOURCES,
    AMD_GPU,
    DCU_GPU,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RDMA,
    DeviceShortfall,
    DeviceType,
    SharedResourceTemplates,
    StatusCode,
)
from koordcore.model.resources import Resources, make_resources
from koordcore.protocol.device import (
    DEPRECATED_NAMES,
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    GPU_ISOLATION_PROVIDER,
    GPU_PARTITION_SPEC,
    parse_allocation,
    parse_hints,
    parse_joint,
    parse_partition_spec,
    replace_deprecated,
)
from koordcore.protocol.reservation import LOAN_ANNOTATIONS, LOAN_LABELS, loan_rules

_TYPE_OF: Final[Mapping[str, DeviceType]] = {
    **dict.fromkeys(ALL_GPU_RESOURCES, DeviceType.GPU),
    RDMA: DeviceType.RDMA,
    FPGA: DeviceType.FPGA,
}

DEVICE_RESOURCES: Final = frozenset({*_TYPE_OF, *DEPRECATED_NAMES})
"""Every resource name, old ones included, by which a pod can ask for a device."""
_WHOLE: Final = 100
"""What a whole NIC or FPGA is."""
_SINGLE_UNIT: Final = (GPU, FPGA, RDMA)
"""Names whose unit is checked, with a message of its own, before the combination is."""

_NO_LABELS: Final[Mapping[str, str]] = immutabledict()
_NO_TEMPLATES: Final[SharedResourceTemplates] = immutabledict()

Amounts = Mapping[str, int]
Check = Callable[[Amounts], bool]


def _percent(name: str) -> Check:
    return lambda amounts: amounts[name] <= 100 or amounts[name] % 100 == 0


def _both(first: Check, second: Check) -> Check:
    return lambda amounts: first(amounts) and second(amounts)


def _shares(amounts: Amounts) -> bool:
    cards = amounts[GPU_SHARED]
    parts = [amounts[name] for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in amounts]
    return all(part % cards == 0 and part // cards <= 100 for part in parts)


def _npu_share(amounts: Amounts) -> bool:
    return amounts[GPU_SHARED] <= 1 and amounts.get(NPU_DVPP, 0) <= 100


def _always(_: Amounts) -> bool:
    return True


_COMBINATIONS: Final[dict[frozenset[str], Check]] = {
    frozenset(names): check
    for names, check in (
        ((NVIDIA_GPU,), _always),
        ((AMD_GPU,), _always),
        ((DCU_GPU,), _always),
        ((GPU,), _percent(GPU)),
        ((GPU_MEMORY,), _always),
        ((GPU_MEMORY_RATIO,), _percent(GPU_MEMORY_RATIO)),
        ((GPU_CORE, GPU_MEMORY), _percent(GPU_CORE)),
        ((GPU_CORE, GPU_MEMORY_RATIO), _both(_percent(GPU_CORE), _percent(GPU_MEMORY_RATIO))),
        ((NPU_CORE, GPU_MEMORY_RATIO), _percent(GPU_MEMORY_RATIO)),
        ((GPU_SHARED, GPU_MEMORY), _shares),
        ((GPU_SHARED, GPU_MEMORY_RATIO), _shares),
        ((GPU_SHARED, GPU_CORE, GPU_MEMORY), _shares),
        ((GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO), _shares),
        ((GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY), _npu_share),
        ((GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY), _npu_share),
        ((FPGA,), _percent(FPGA)),
        ((RDMA,), _percent(RDMA)),
    )
}
_HUNDREDFOLD: Final = {NVIDIA_GPU: 100, AMD_GPU: 100, DCU_GPU: 100, GPU: 1}
"""Names that stand for core and ratio alike, and by how much."""


def _refuse(message: str) -> DeviceShortfall:
    return DeviceShortfall(reasons=(message,), code=StatusCode.UNRESOLVABLE)


def _internal(amounts: Amounts) -> Resources | DeviceShortfall:
    """Check the names and amounts of one type, and give its internal request."""
    for name in _SINGLE_UNIT:
        if name in amounts and not _percent(name)(amounts):
            return _refuse(f"invalid resource unit {name}: {amounts[name]}")
    check = _COMBINATIONS.get(frozenset(amounts))
    if check is None or not check(amounts):
        return _refuse(f"invalid resource device requests: [{' '.join(sorted(amounts))}]")
    (name, amount), *rest = amounts.items()
    if not rest and name in _HUNDREDFOLD:
        each = amount * _HUNDREDFOLD[name]
        return make_resources({GPU_CORE: each, GPU_MEMORY_RATIO: each})
    return make_resources(amounts)


def _gpu_request(
    amounts: Resources, templates: SharedResourceTemplates, policy: DevicePolicy, warnings: list[str]
) -> GPURequest | DeviceShortfall:
    ratio = amounts.get(GPU_MEMORY_RATIO, 0)
    count = 1
    if amounts.get(GPU_SHARED, 0) > 0:
        count = amounts[GPU_SHARED]
    elif ratio > 100 and ratio % 100 == 0:
        count = ratio // 100
    parts = [GPU_CORE, NPU_CORE, NPU_CPU, NPU_DVPP]
    parts.append(GPU_MEMORY_RATIO if GPU_MEMORY_RATIO in amounts else GPU_MEMORY)
    per_device = {name: amounts[name] // count for name in parts if name in amounts}
    for name, each in sorted(per_device.items()):
        if each * count != amounts[name]:
            warnings.append(
                f"{name}: {amounts[name]} does not divide among {count} devices, each gets {each}"
            )
    shared = per_device[GPU_MEMORY_RATIO] < 100 if GPU_MEMORY_RATIO in amounts else True
    enforce = shared and any(name in policy.template_resources for name in amounts)
    matching: dict[str, tuple[str, ...]] = {}
    if enforce:
        for model, candidates in sorted(templates.items()):
            names = tuple(sorted(name for name, wants in candidates.items() if dict(wants) == per_device))
            if names:
                matching[model] = names
        if not matching:
            return _refuse("no matched GPU shared resource template")
    return GPURequest(
        count=count,
        per_device=make_resources(per_device),
        shared=shared,
        enforce_template=enforce,
        templates=immutabledict(matching),
    )


def device_request_of(
    requests: Mapping[str, int],
    *,
    annotations: Mapping[str, str] = _NO_LABELS,
    labels: Mapping[str, str] = _NO_LABELS,
    templates: SharedResourceTemplates = _NO_TEMPLATES,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    designated: bool = False,
) -> DeviceRequest | DeviceShortfall | None:
    """Read what a pod asks of devices.

    Parameters
    ----------
    requests
        Sum over the pod (:attr:`koordcore.model.pods.Pod.requests`).
    annotations, labels
        Of the pod.
    templates
        The vendor's templates for virtual cards.
    policy
        Which requests need a template.
    designated
        The pod's own ``device-allocated`` annotation is a wish that counts; otherwise it is only checked.

    Returns
    -------
    DeviceRequest or DeviceShortfall or None
        ``None`` where the pod asks for no device. A refusal carries upstream's message and the code
        ``UnschedulableAndUnresolvable``.

    Notes
    -----
    The first type that is refused, by name, gives the message; then the annotations are read.

    Examples
    --------
    >>> request = device_request_of({"koordinator.sh/gpu": 200, "cpu": 4000})
    >>> request.gpu.count, request.gpu.shared, dict(request.gpu.per_device)
    (2, False, {'koordinator.sh/gpu-core': 100, 'koordinator.sh/gpu-memory-ratio': 100})
    >>> device_request_of({"koordinator.sh/gpu": 150}).reasons
    ('invalid resource unit koordinator.sh/gpu: 150',)
    """
    asked = tuple([pair for pair in requests.items() if pair[0] in DEVICE_RESOURCES])
    if not asked:
        return None
    texts = tuple([annotations.get(key) for key in _READ]) if annotations else _UNSAID
    marks = tuple([labels.get(key) for key in _MARKS]) if labels else _UNMARKED
    return _read_request(asked, texts, marks, templates, policy, designated)


_READ: Final = (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
    DEVICE_ALLOCATED,
    *LOAN_ANNOTATIONS,
)
_MARKS: Final = (GPU_ISOLATION_PROVIDER, *LOAN_LABELS)
_UNSAID: Final = (None,) * len(_READ)
_UNMARKED: Final = (None,) * len(_MARKS)


# Most pods of a queue come out of few templates; what they say is read once.
@lru_cache(maxsize=4096)
def _read_request(
    requests: tuple[tuple[str, int], ...],
    texts: tuple[str | None, ...],
    marks: tuple[str | None, ...],
    templates: SharedResourceTemplates,
    policy: DevicePolicy,
    designated: bool,
) -> DeviceRequest | DeviceShortfall | None:
    """Read a request out of nothing but what matters to it.

    Parameters
    ----------
    texts, marks
        Values of the annotations ``_READ`` and of the labels ``_MARKS``.
    """
    annotations = {key: text for key, text in zip(_READ, texts, strict=True) if text is not None}
    labels = {key: text for key, text in zip(_MARKS, marks, strict=True) if text is not None}
    amounts = _amounts_by_type(requests)
    if isinstance(amounts, DeviceShortfall):
        return amounts
    if not amounts:
        return None
    warnings: list[str] = []
    gpu: GPURequest | None = None
    if DeviceType.GPU in amounts:
        cards = _gpu_request(amounts[DeviceType.GPU], templates, policy, warnings)
        if isinstance(cards, DeviceShortfall):
            return cards
        gpu = cards
    try:
        hints = parse_hints(annotations)
        named = parse_joint(annotations)
        partition = parse_partition_spec(annotations)
        loan_required, loans_ignored = loan_rules(labels, annotations)
        held = parse_allocation(annotations)
    except ManifestError as error:
        return _refuse(error.problems[0].message)
    return DeviceRequest(
        amounts=immutabledict(amounts),
        gpu=gpu,
        hints=immutabledict({kind: hint for kind, hint in hints.items() if kind in amounts}),
        joint=None if named is None else _joint(named, amounts, hints),
        joint_named=named is not None,
        partition=partition,
        isolation_provider=labels.get(GPU_ISOLATION_PROVIDER, ""),
        loan_required=loan_required,
        loans_ignored=loans_ignored,
        designated=held if designated else None,
        warnings=(*warnings, *_idle(amounts, gpu, hints, named, partition)),
    )


def _idle(
    amounts: Mapping[DeviceType, Resources],
    gpu: GPURequest | None,
    hints: Mapping[DeviceType, DeviceHint],
    named: JointAllocate | None,
    partition: PartitionSpec | None,
) -> Iterator[str]:
    """Say what is wished for devices and does nothing for these requests."""
    for kind, hint in hints.items():
        if kind not in amounts:
            yield f"the hint for {kind} is ignored: the pod requests none"
        elif kind is not DeviceType.GPU and hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT:
            (name, amount), *_ = amounts[kind].items()
            if amount > _WHOLE and amount % _WHOLE == 0:
                yield f"{hint.strategy} is ignored: {name} of {amount} is {amount // _WHOLE} whole devices"
    for kind in () if named is None else named.types:
        if kind not in amounts:
            yield f"{kind} is left out of the joint allocation: the pod requests none"
        elif kind in hints and hints[kind].strategy is AllocateStrategy.APPLY_FOR_ALL:
            yield f"{kind} is left out of the joint allocation: its hint says {hints[kind].strategy}"
    if partition is not None and gpu is not None and gpu.shared:
        yield "the partition spec is ignored: the pod shares a card"


def _amounts_by_type(requests: tuple[tuple[str, int], ...]) -> dict[DeviceType, Resources] | DeviceShortfall:
    """Give what is asked of each type of devices, types by name; the first that is refused refuses all."""
    asked: dict[DeviceType, dict[str, int]] = {}
    for name, amount in replace_deprecated(dict(requests)).items():
        if amount:
            asked.setdefault(_TYPE_OF[name], {})[name] = amount
    amounts: dict[DeviceType, Resources] = {}
    for kind in sorted(asked):
        internal = _internal(asked[kind])
        if isinstance(internal, DeviceShortfall):
            return internal
        amounts[kind] = internal
    return amounts


def _joint(
    named: JointAllocate, amounts: Mapping[DeviceType, Resources], hints: Mapping[DeviceType, DeviceHint]
) -> JointAllocate | None:
    """Leave of a joint allocation the types that are asked for and do not apply for all devices."""
    kinds = tuple(
        kind
        for kind in named.types
        if kind in amounts and not (kind in hints and hints[kind].strategy is AllocateStrategy.APPLY_FOR_ALL)
    )
    return JointAllocate(kinds, named.same_pcie) if kinds else None
