"""What each device of one node must give to a pod: the request seen against a node's build.

Worked out once per (build, request) and shared by every node of that build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.device.shape import DeviceShape, TypeShape
from koordcore.model.device_policy import DevicePolicy, ScoringStrategy
from koordcore.model.device_requests import (
    NO_HINT,
    AllocateStrategy,
    DeviceHint,
    DeviceRequest,
    ExclusivePolicy,
)
from koordcore.model.devices import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    DeviceShortfall,
    DeviceType,
    StatusCode,
)
from koordcore.model.resources import Resources, make_resources
from koordcore.topology.devices import bits

Needs: TypeAlias = tuple[tuple[int, int], ...]
"""``(column, amount)`` of every positive amount that a device must have free."""

_UNCOUNTED: Final = 100
"""Amounts of rdma and fpga above this many percent points are a number of whole devices."""


@record(eq=False, kw_only=True)
class TypeWant:
    """What a pod wants of one type on nodes of one build.

    Parameters
    ----------
    count
        Number of devices.
    whole
        Whole cards, which are shared with nobody.
    per_device
        Amounts on each, as asked.
    needs
        Per minor what must be free there, the missing one of memory and ratio included.
    serving
        Minors that could serve if they were idle.
    filled
        Per minor what the allocation will say.
    selected
        Minors whose labels match the selector.
    sums
        Capacity of the selected devices, by column.
    vf_ranks
        Per minor the bit mask of VFs that match the VF selector; ``None`` where no VF is wanted.
    by_vf
        The pod asks for a number of VFs, so that one device may give several (ruling 4).
    weights
        ``(column, weight, amount)`` for scores.
    exclusive
        Policy of the hint.
    """

    kind: DeviceType
    shape: TypeShape
    count: int
    whole: bool
    per_device: Resources
    needs: Mapping[int, Needs]
    serving: int
    filled: Mapping[int, Resources]
    selected: int
    sums: Sequence[int]
    vf_ranks: Mapping[int, int] | None
    by_vf: bool
    weights: tuple[tuple[int, int, int], ...]
    most: bool
    exclusive: ExclusivePolicy


Wants: TypeAlias = Mapping[DeviceType, TypeWant]


def gate(shape: DeviceShape, request: DeviceRequest, policy: DevicePolicy) -> DeviceShortfall | None:
    """Check what a node's labels alone rule out for shared cards: isolation provider and banned models."""
    if request.gpu is None or not request.gpu.shared:
        return None
    wanted = request.isolation_provider
    if wanted and wanted.casefold() != shape.isolation_provider.casefold():
        return DeviceShortfall(
            reasons=("GPUIsolationProviderHAMICore not found on the node",), code=StatusCode.ERROR
        )
    if (shape.vendor, shape.model) in policy.unshareable_models:
        message = f'model "{shape.model}" of vendor "{shape.vendor}" does not support GPU Share'
        return DeviceShortfall(reasons=(message,), code=StatusCode.UNRESOLVABLE)
    return None


def fill_memory(amounts: Mapping[str, int], total: Mapping[str, int]) -> Resources:
    """Complete memory by ratio, or ratio by memory, against the card's totals.

    Both are rounded down in exact integers; an amount that is given is never touched.

    Examples
    --------
    >>> dict(fill_memory({"koordinator.sh/gpu-memory": 29}, {"koordinator.sh/gpu-memory": 100}))
    {'koordinator.sh/gpu-memory': 29, 'koordinator.sh/gpu-memory-ratio': 29}
    """
    size = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY in amounts and GPU_MEMORY_RATIO in amounts:
        return make_resources(amounts)
    if GPU_MEMORY in amounts:
        ratio = amounts[GPU_MEMORY] * 100 // size if size else 0
        return make_resources({**amounts, GPU_MEMORY_RATIO: ratio})
    if GPU_MEMORY_RATIO in amounts:
        return make_resources({**amounts, GPU_MEMORY: amounts[GPU_MEMORY_RATIO] * size // 100})
    return make_resources(amounts)


@lru_cache(maxsize=4096)
def wants_of(shape: DeviceShape, request: DeviceRequest, policy: DevicePolicy) -> Wants | DeviceShortfall:
    """Work out how many devices of each type with how much each; the first type that cannot be refuses."""
    refused = gate(shape, request, policy)
    if refused is not None:
        return refused
    wants = {}
    for kind in request.types:
        want = _want(shape, request, kind, policy)
        if isinstance(want, DeviceShortfall):
            return want
        wants[kind] = want
    return immutabledict(wants)


def _lacking(kind: DeviceType, what: str = "devices") -> DeviceShortfall:
    return DeviceShortfall(
        reasons=(f"Insufficient {kind} {what}",), code=StatusCode.UNRESOLVABLE, device_type=kind
    )


def _want(
    shape: DeviceShape, request: DeviceRequest, kind: DeviceType, policy: DevicePolicy
) -> TypeWant | DeviceShortfall:
    own = shape.types.get(kind)
    if own is None:
        return _lacking(kind)
    hint = request.hint(kind)
    selected = _selected(own, hint)
    if request.gpu is not None and kind is DeviceType.GPU:
        count, per_device = request.gpu.count, request.gpu.per_device
    else:
        count, per_device = _counted(own, request.amounts[kind], hint, selected)
        if count == 0:
            return _lacking(kind)
    vf_ranks = None
    if hint.vf_selector is not None:
        if not own.has_vfs:
            return _lacking(kind, "VirtualFunctions")
        vf_ranks = {
            minor: sum(1 << rank for rank, labels in enumerate(found) if hint.vf_selector.matches(labels))
            for minor, found in own.vf_labels.items()
        }
    filled = {minor: _filled(own, per_device, minor) for minor in own.minors}
    needs = {minor: _needs(own, per_device, filled[minor], minor) for minor in own.minors}
    return TypeWant(
        kind=kind,
        shape=own,
        count=count,
        whole=kind is DeviceType.GPU and request.gpu is not None and not request.gpu.shared,
        per_device=per_device,
        needs=needs,
        serving=sum(
            1 << minor
            for minor, total in own.totals.items()
            if any(total) and all(amount <= total[column] for column, amount in needs[minor])
        ),
        filled=filled,
        selected=selected,
        sums=[sum(own.totals[minor][column] for minor in bits(selected)) for column in range(len(own.names))],
        vf_ranks=vf_ranks,
        by_vf=vf_ranks is not None and hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT,
        weights=tuple(
            (column, policy.weights[name], per_device.get(name, 0))
            for column, name in enumerate(own.names)
            if name in policy.weights
        ),
        most=policy.strategy is ScoringStrategy.MOST_ALLOCATED,
        exclusive=hint.exclusive,
    )


def _selected(shape: TypeShape, hint: DeviceHint) -> int:
    if hint is NO_HINT or hint.selector is None:
        return shape.reported
    return sum(1 << minor for minor, labels in shape.labels.items() if hint.selector.matches(labels))


def _counted(shape: TypeShape, amounts: Resources, hint: DeviceHint, selected: int) -> tuple[int, Resources]:
    """Turn an amount of rdma or fpga into ``(count, amounts per device)``."""
    (name, amount), *_ = amounts.items()
    if hint.strategy is AllocateStrategy.APPLY_FOR_ALL:
        return (selected & shape.healthy).bit_count(), make_resources({name: min(amount, _UNCOUNTED)})
    if amount > _UNCOUNTED and amount % _UNCOUNTED == 0:
        return amount // _UNCOUNTED, make_resources({name: _UNCOUNTED})
    if hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT:
        each = _UNCOUNTED if hint.exclusive is ExclusivePolicy.DEVICE_LEVEL else 1
        return amount, make_resources({name: each})
    return 1, amounts


def _filled(shape: TypeShape, per_device: Resources, minor: int) -> Resources:
    if shape.kind is not DeviceType.GPU:
        return per_device
    return fill_memory(per_device, dict(zip(shape.names, shape.totals[minor], strict=True)))


def _needs(shape: TypeShape, asked: Resources, filled: Resources, minor: int) -> Needs:
    """List what must be free: what was asked, and what was filled in where the card reports that amount."""
    total = shape.totals[minor]
    needs = []
    for name, amount in filled.items():
        column = shape.column.get(name)
        if column is None:
            needs.append((0, total[0] + amount + 1))
        elif amount > 0 and (name in asked or total[column] > 0):
            needs.append((column, amount))
    return tuple(needs)
