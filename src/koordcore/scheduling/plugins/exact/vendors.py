"""Nodes whose vendor's device plugin cannot serve a pod, or serves another one just now.

Upstream finds that out while it binds; here the filter says so (ruling 23).
"""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.allocators.device.shape import DeviceShape
from koordcore.allocators.device.wants import fill_memory
from koordcore.errors import ModelError
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    GPU_MEMORY,
    DeviceType,
)
from koordcore.model.pods import PodKey
from koordcore.protocol.device_plugins import LOCKS, adapts, lock_blocks, plugin_refusal
from koordcore.scheduling.plugins.exact.locks import locking_rows
from koordcore.scheduling.plugins.exact.states import ExactStates


class VendorPlugins:
    """What device plugins answer to one kind of pods; most clusters have none that answers anything."""

    def __init__(self, states: ExactStates, request: DeviceRequest, policy: DevicePolicy) -> None:
        self._states = states
        self._request = request
        self._policy = policy
        asks = request.gpu is not None
        self._rows = locking_rows(states.workspace) if asks else frozenset[int]()
        self._known: dict[DeviceShape, str] = {}

    def refused(self, numbers: IntVector) -> BoolVector | None:
        """Tell at which nodes, ``(n,)``, the pod cannot be served; ``None`` where no plugin has a say."""
        if not self._rows:
            return None
        return np.array([bool(one) for one in self.refusals(numbers)], np.bool_)

    def refusals(self, numbers: IntVector) -> list[str]:
        """Say for each node why the pod cannot be served; empty where it can."""
        rows = numbers.tolist()
        return [self.refusal(row) for row in rows] if self._rows else [""] * len(rows)

    def refusal(self, row: int) -> str:
        """Say why the plugin of a node does not serve the pod now; empty where it does."""
        if row not in self._rows:
            return ""
        state = self._states.devices[row]
        if state is None or not adapts(self._policy.adapt_plugins, state.shape.vendor, {}):
            return ""
        known = self._known.get(state.shape)
        if known is None:
            known = self._known[state.shape] = self._unserved(state.shape)
        return known or self._locked(row, state.shape.vendor)

    def _unserved(self, shape: DeviceShape) -> str:
        gpu, cards = self._request.gpu, shape.types.get(DeviceType.GPU)
        if gpu is None or cards is None:
            return ""
        totals = [dict(zip(cards.names, each, strict=True)) for each in cards.totals.values() if any(each)]
        least = min(totals, key=lambda one: one.get(GPU_MEMORY, 0), default={})
        return plugin_refusal(shape.vendor, gpu.count, fill_memory(gpu.per_device, least))

    def _locked(self, row: int, vendor: str) -> str:
        workspace = self._states.workspace
        node = workspace.layout.nodes[row]
        value = node.annotations.get(LOCKS[vendor], "")
        if not value:
            return ""
        holder = PodKey(*(*value.split(","), "", "")[1:3])
        pod = workspace.snapshot.pod(holder)
        there = pod is not None and not pod.finished
        try:
            # Without a time of the call a lock lasts as long as its pod.
            blocks = (
                there if workspace.now is None else lock_blocks(value, now=workspace.now, holder_exists=there)
            )
        except ModelError as error:
            return f"lock of the device plugin of {vendor}: {error}"
        return (
            f"node is locked for {holder} until the device plugin of {vendor} has served it" if blocks else ""
        )
