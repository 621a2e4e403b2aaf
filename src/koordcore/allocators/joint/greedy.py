"""The first answer to a batch: pods one by one, those with most cards first, each where it fits best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from koordcore.allocators.device.allocate import allocate_devices
from koordcore.allocators.device.state import NodeDevices
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.devices import DeviceAllocation, DeviceRequest, DeviceType

__all__ = ["Placed", "place_greedily"]

Placed: TypeAlias = Mapping[str, tuple[str, DeviceAllocation]]
"""Pod to its node and its devices there."""


def place_greedily(
    nodes: Mapping[str, NodeDevices], requests: Mapping[str, DeviceRequest], policy: DevicePolicy
) -> Placed:
    """Place the pods one by one.

    Parameters
    ----------
    nodes
        Node to its devices, in the order in which equally good ones are preferred.
    """
    states = dict(nodes)
    placed: dict[str, tuple[str, DeviceAllocation]] = {}

    def size(pod: str) -> int:
        gpu = requests[pod].gpu
        return -(gpu.count * (1 if gpu.shared else 2)) if gpu is not None else 0

    for pod in sorted(requests, key=size):
        best: tuple[tuple[int, ...], str, DeviceAllocation] | None = None
        for node, state in states.items():
            found = allocate_devices(state, requests[pod], policy=policy)
            if isinstance(found, DeviceAllocation):
                rank = _worth(state, requests[pod], found)
                if best is None or rank < best[0]:
                    best = rank, node, found
        if best is not None:
            _, node, found = best
            states[node] = states[node].assume(f"batch/{pod}", found)
            placed[pod] = node, found
    return placed


def _worth(state: NodeDevices, request: DeviceRequest, found: DeviceAllocation) -> tuple[int, ...]:
    """Rank a placement for the greedy start: near first, then where fewest idle cards are left."""
    shape = state.shape.types.get(DeviceType.GPU)
    minors = found.minors(DeviceType.GPU)
    if shape is None or not minors:
        return ()
    mask = sum(1 << minor for minor in minors)
    near = shape.layout.pcies(mask)
    remote = 0
    for kind in request.joint.types if request.joint is not None else ():
        if kind is not DeviceType.GPU:
            pcie_of = state.shape.types[kind].layout.pcie_of
            remote += sum(1 for minor in found.minors(kind) if pcie_of.get(minor) not in near)
    numas, switches = shape.layout.spread(mask)
    idle = shape.healthy & ~state.busy[DeviceType.GPU]
    cut = sum(1 for switch in shape.layout.switches if 0 < (switch.mask & idle & ~mask) < switch.mask & idle)
    return numas, remote, switches, cut, idle.bit_count()
