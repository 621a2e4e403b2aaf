"""What a node's Device object makes allocatable on the Node, as the controller writes it.

Upstream: ``pkg/slo-controller/noderesource/plugins/gpudeviceresource`` and ``rdmadeviceresource``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.devices import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    DeviceInventory,
    DeviceType,
)
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.protocol.device_object import GPU_DRIVER_VERSION, GPU_MODEL, GPU_VENDOR

_GPU_NAMES: Final = (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
)
_MIRRORED_LABELS: Final = (GPU_VENDOR, GPU_MODEL, GPU_DRIVER_VERSION)
_PER_DEVICE: Final = 100
"""Percent points that one healthy NIC gives, and pods that one healthy card can be shared by."""


@record(kw_only=True)
class DeviceResources:
    """What is to be written on a Node.

    Parameters
    ----------
    amounts
        Resource name to amount; also of names that are not written because nobody knows them.
    resets
        Names that are taken off the Node, sorted.
    labels
        Labels that are set on the Node.
    """

    amounts: Resources = NO_RESOURCES
    resets: tuple[str, ...] = ()
    labels: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)

    def apply_to(self, allocatable: Mapping[str, int]) -> Resources:
        """Give a Node's allocatable afterwards; a name that is neither reset nor computed keeps its value."""
        kept = {name: amount for name, amount in allocatable.items() if name not in self.resets}
        written = {name: amount for name, amount in self.amounts.items() if name in (*_GPU_NAMES, RDMA)}
        return make_resources({**kept, **written})


def device_resources(
    inventory: DeviceInventory | None,
    labels: Mapping[str, str],
    *,
    sync_gpu_shared: bool = False,
) -> DeviceResources:
    """Sum up the healthy devices of a node.

    Parameters
    ----------
    inventory
        ``None`` where there is no Device object.
    labels
        Of the Device object: its vendor decides, and vendor, model and driver version are mirrored.
    sync_gpu_shared
        Also count how many pods could share the cards (gate ``EnableSyncGPUSharedResource``).

    Notes
    -----
    Without a healthy card all eight names of cards are reset and the labels stay; ``koordinator.sh/gpu`` is
    written for NVIDIA and for an unnamed vendor. A healthy NIC counts 100 whatever it states. FPGAs are not
    mirrored.
    """
    devices = () if inventory is None else inventory.devices
    cards = [one for one in devices if one.type is DeviceType.GPU and one.health]
    nics = sum(1 for one in devices if one.type is DeviceType.RDMA and one.health)
    amounts: dict[str, int] = {}
    resets: list[str] = []
    mirrored: dict[str, str] = {}
    if cards:
        for card in cards:
            for name, amount in card.resources.items():
                amounts[name] = amounts.get(name, 0) + amount
        if labels.get(GPU_VENDOR, "") in ("", "nvidia"):
            amounts[GPU] = amounts.get(GPU_CORE, 0)
        if sync_gpu_shared:
            amounts[GPU_SHARED] = _PER_DEVICE * len(cards)
        mirrored = {name: labels[name] for name in _MIRRORED_LABELS if name in labels}
    else:
        resets.extend(_GPU_NAMES)
    if nics:
        amounts[RDMA] = _PER_DEVICE * nics
    else:
        resets.append(RDMA)
    return DeviceResources(amounts=make_resources(amounts), resets=tuple(sorted(resets)), labels=mirrored)
