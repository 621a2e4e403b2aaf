"""Why a node's devices do not serve a pod, and what would have to be given back so that they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import combinations
from typing import Final

from koordcore._record import record
from koordcore.allocators.device.allocate import refusal_of
from koordcore.allocators.device.shape import DeviceShape, Partition
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms, TypeView, view_of
from koordcore.allocators.device.wants import wants_of
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
    PartitionAllocatePolicy,
)
from koordcore.model.devices import (
    DeviceShortfall,
    DeviceType,
)
from koordcore.topology.devices import TopologyScope, bits

_MOST_TRIALS: Final = 5_000
"""Sets of holders that are tried for the smallest release; about half a second."""
_NAMES: Final = {DeviceType.GPU: "GPU", DeviceType.RDMA: "NIC", DeviceType.FPGA: "FPGA"}


@record
class Release:
    """Holders whose going makes room.

    Parameters
    ----------
    holders
        Their names, sorted.
    smallest
        No smaller set would do; false where too many sets would have had to be tried, and then none of these
        holders can stay.
    """

    holders: tuple[str, ...]
    smallest: bool = True


@record(kw_only=True)
class DeviceExplanation:
    """Why a node does not serve a pod.

    Parameters
    ----------
    shortfall
        The refusal, with upstream's reason.
    lines
        The same in plain words, with names and numbers.
    release
        What would help; ``None`` where nothing that is held stands in the way, or too much does.
    """

    shortfall: DeviceShortfall
    lines: tuple[str, ...]
    release: Release | None = None


def show_minors(minors: Collection[int]) -> str:
    """Write a set of minors with runs drawn together.

    Examples
    --------
    >>> show_minors([0, 1, 2, 3, 6])
    '{0-3, 6}'
    """
    runs: list[list[int]] = []
    for minor in sorted(minors):
        if runs and runs[-1][-1] == minor - 1:
            runs[-1].append(minor)
        else:
            runs.append([minor])
    parts = [
        str(run[0]) if len(run) == 1 else f"{run[0]}, {run[1]}" if len(run) == 2 else f"{run[0]}-{run[-1]}"
        for run in runs
    ]
    return "{" + ", ".join(parts) + "}"


def _listed(mask: int) -> str:
    return ", ".join(map(str, bits(mask)))


def _cards(number: int, kind: DeviceType = DeviceType.GPU) -> str:
    return f"{number} {_NAMES[kind]}{'' if number == 1 else 's'}"


def explain_devices(
    state: NodeDevices,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> DeviceExplanation | None:
    """Explain a refusal; ``None`` where the node serves the pod.

    Parameters
    ----------
    state, request, numa_mask, policy, terms
        As for :func:`~koordcore.allocators.device.allocate.allocate_devices`.
    """
    refused = refusal_of(state, request, numa_mask, policy=policy, terms=terms)
    if refused is None:
        return None
    lines: list[str] = [refused.detail] if refused.detail else []
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        lines.extend(_build_lines(state.shape, request))
    else:
        views = {kind: view_of(state, want, numa_mask, terms) for kind, want in wants.items()}
        for kind, view in views.items():
            if kind is DeviceType.GPU:
                lines.extend(_gpu_lines(state.shape, request, view))
            lines.extend(_count_lines(state, view))
        if request.joint is not None and request.joint.same_pcie and len(request.joint.types) > 1:
            lines.extend(_switch_lines(request.joint.types, views))
    release = None
    if refused.resolvable:
        release = smallest_release(state, request, numa_mask, policy=policy, terms=terms)
    return DeviceExplanation(shortfall=refused, lines=tuple(dict.fromkeys(lines)), release=release)


def _build_lines(shape: DeviceShape, request: DeviceRequest) -> Iterator[str]:
    """Say what the build of the node lacks, whatever is in use."""
    for kind in request.types:
        own = shape.types.get(kind)
        if own is None:
            yield f"the node has no {_NAMES[kind]}"
        elif request.hint(kind).vf_selector is not None and not own.has_vfs:
            yield f"no {_NAMES[kind]} of the node has virtual functions"


def _count_lines(state: NodeDevices, view: TypeView) -> Iterator[str]:
    kind, count = view.want.kind, view.want.count
    able = view.usable.bit_count()
    if able >= count:
        return
    yield f"{_cards(count, kind)} wanted, {able} can serve"
    shape = view.shape
    for minor in shape.minors:
        if view.usable >> minor & 1:
            continue
        name = f"{_NAMES[kind]} {minor}"
        holders = state.holders(kind, minor)
        if not shape.reported >> minor & 1:
            yield f"{name} is not on the node any more"
        elif not shape.healthy >> minor & 1:
            yield f"{name} is unhealthy"
        elif not view.want.selected >> minor & 1:
            yield f"{name} does not match the selector"
        elif not view.want.serving >> minor & 1:
            yield f"{name} is too small for the request"
        elif holders:
            yield f"{name} is held by {', '.join(holders)}"


def _gpu_lines(shape: DeviceShape, request: DeviceRequest, view: TypeView) -> Iterator[str]:
    gpu = request.gpu
    count = view.want.count
    if gpu is None or view.usable.bit_count() < count:
        return
    free = _cards(view.usable.bit_count())
    scope = request.scope(DeviceType.GPU)
    if not gpu.shared and (shape.honor or request.partition is not None):
        if shape.partitions is None:
            yield f"{free} are free but the node has no partition table"
        elif count not in shape.partitions:
            sizes = ", ".join(map(str, sorted(shape.partitions)))
            yield f"{free} are free but the partition table has no size {count}, only {sizes or 'none'}"
        else:
            yield f"{free} are free but no free partition of {count}: " + "; ".join(
                _lack(one, request, view) for one in _partitions(shape, request, count)
            )
    if scope in (TopologyScope.PCIE, TopologyScope.NUMA_NODE):
        yield from _scope_lines(scope, view)


def _partitions(shape: DeviceShape, request: DeviceRequest, count: int) -> Iterator[Partition]:
    groups = shape.partitions[count] if shape.partitions else ()
    spec = request.partition
    restricted = spec is not None and spec.policy is PartitionAllocatePolicy.RESTRICTED
    for group in groups[:1] if restricted else groups:
        yield from group


def _lack(one: Partition, request: DeviceRequest, view: TypeView) -> str:
    name = show_minors(one.minors)
    lacking = one.mask & (view.busy | ~view.usable)
    if lacking:
        return f"{name} lacks {_listed(lacking)}"
    spec = request.partition
    if spec is not None and spec.ring_bus_bandwidth is not None:
        own = one.bandwidth
        if own is None or own < spec.ring_bus_bandwidth:
            return f"{name} has too little bandwidth" if own is not None else f"{name} tells no bandwidth"
    return f"{name} is free but breaks another rule"


def _scope_lines(scope: TopologyScope, view: TypeView) -> Iterator[str]:
    layout = view.shape.layout
    if scope is TopologyScope.NUMA_NODE:
        for numa, mask in layout.numa_masks.items():
            yield f"NUMA node {numa} has {_cards((mask & view.usable).bit_count())} free"
    else:
        for switch in layout.switches:
            yield f"PCIe switch {switch.pcie} has {_cards((switch.mask & view.usable).bit_count())} free"


def _switch_lines(types: Collection[DeviceType], views: dict[DeviceType, TypeView]) -> Iterator[str]:
    """Say per PCIe switch how many devices of each joint type can serve there."""
    names = sorted({pcie for kind in types for pcie in views[kind].shape.layout.pcie_masks})
    for pcie in names:
        parts = []
        for kind in types:
            view = views[kind]
            mask = view.shape.layout.pcie_masks.get(pcie, 0) & view.usable
            parts.append(_cards(mask.bit_count(), kind))
        yield f"PCIe switch {pcie} can serve {' and '.join(parts)}"


def smallest_release(
    state: NodeDevices,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
    among: Collection[str] | None = None,
) -> Release | None:
    """Find the fewest holders whose going makes a pod fit; the first by name among equals.

    Parameters
    ----------
    state
        Devices of the node.
    request
        What the pod asks for.
    numa_mask
        NUMA nodes that may serve, bit by bit; ``None`` for all.
    policy
        Arguments of DeviceShare.
    terms
        What the pod may draw from and what limits it.
    among
        Holders that may be asked to go; ``None`` for all.

    Returns
    -------
    Release or None
        ``None`` where not even the going of all of them helps; an empty release where the pod fits already.
    """

    def fits_without(holders: Collection[str]) -> bool:
        left = state
        for holder in holders:
            left = left.forget(holder)
        return refusal_of(left, request, numa_mask, policy=policy, terms=terms) is None

    relevant = tuple(
        name
        for name, allocation in sorted(state.holdings.items())
        if (among is None or name in among) and any(kind in request.amounts for kind in allocation.devices)
    )
    if not fits_without(relevant):
        return None
    trials = 0
    for size in range(len(relevant) + 1):
        for holders in combinations(relevant, size):
            trials += 1
            if trials > _MOST_TRIALS:
                return Release(_spared(relevant, fits_without), smallest=False)
            if fits_without(holders):
                return Release(holders)
    return None


def _spared(holders: tuple[str, ...], fits_without: Callable[[Collection[str]], bool]) -> tuple[str, ...]:
    """Let holders stay one by one as long as the pod still fits."""
    going = list(holders)
    for holder in holders:
        rest = [name for name in going if name != holder]
        if fits_without(rest):
            going = rest
    return tuple(going)
