"""Which devices a node may use, read from all ResourceSlices anew, device by device.

The checker's own reading of pools: for each device of a plan it asks whether its pool is there, complete and
sound for the node, and nothing else of the pool is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.device_slices import (
    DeviceId,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector


@record
class CheckedNode:
    """A node as its devices are judged."""

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    features: tuple[str, ...] = ()


@record(eq=False)
class Published:
    """A device with the slice that publishes it."""

    slice: ResourceSlice
    device: SliceDevice


def _may_use(selector: NodeSelector | None, name: str, everywhere: bool, node: CheckedNode) -> bool:
    if everywhere or (name and name == node.name):
        return True
    return selector is not None and selector.matches(node.name, node.labels)


def _told(seen: list[ResourceSlice]) -> int:
    """Give the number of slices that a node goes by: that of its own, which are read before the network's."""
    first = next((one for one in seen if one.node_name), seen[0])
    return first.slice_count


class SliceBook:
    """All slices, by pool.

    Parameters
    ----------
    slices
        Every slice of the cluster.
    partitions, groups
        Whether shared counters, and compatibility groups, are switched on.
    """

    def __init__(self, slices: Iterable[ResourceSlice], *, partitions: bool, groups: bool) -> None:
        self._partitions = partitions
        self._by_pool: dict[tuple[str, str], list[ResourceSlice]] = {}
        for one in slices:
            grouped = any(c.compatibility_groups for d in one.devices for c in d.consumes_counters)
            if groups or not grouped:
                self._by_pool.setdefault((one.driver, one.pool), []).append(one)

    def pools(self) -> Iterator[tuple[str, str]]:
        """Driver and name of every pool."""
        yield from self._by_pool

    def _seen_from(self, one: ResourceSlice, node: CheckedNode) -> bool:
        if not self._partitions and (one.shared_counters or one.per_device_node_selection is not None):
            return False
        if one.node_name:
            return one.node_name == node.name
        if one.per_device_node_selection:
            return any(self._device_seen(device, node) for device in one.devices)
        return _may_use(one.node_selector, "", one.all_nodes, node)

    def _device_seen(self, device: SliceDevice, node: CheckedNode) -> bool:
        return _may_use(device.node_selector, device.node_name, device.all_nodes, node)

    def current(self, pool: tuple[str, str], node: CheckedNode) -> tuple[list[ResourceSlice], str]:
        """Give the newest slices of a pool that the node sees, and what is wrong with the pool there."""
        published = self._by_pool.get(pool, [])
        seen = [one for one in published if self._seen_from(one, node)]
        if not seen:
            return [], "no slice of the pool reaches the node"
        newest = max(one.generation for one in seen)
        seen = [one for one in seen if one.generation == newest]
        told = _told(seen)
        if len(seen) == told:
            return seen, self._unsound(seen, seen)
        if any(one.generation > newest for one in published):
            return [], "the pool has a newer generation"
        peers = [one for one in published if one.generation == newest]
        if len(peers) != told:
            return seen, f"the pool has {len(peers)} of {told} slices"
        return seen, self._unsound(seen, peers)

    def _unsound(self, seen: list[ResourceSlice], whole: list[ResourceSlice]) -> str:
        names = [device.name for one in seen for device in one.devices]
        if len(names) != len(set(names)):
            return "a device name occurs twice in the pool"
        sets = [counters.name for one in whole for counters in one.shared_counters]
        if len(sets) != len(set(sets)):
            return "a counter set occurs twice in the pool"
        if not self._partitions:
            return ""
        known = {(s.name, name) for one in whole for s in one.shared_counters for name in s.counters}
        for one in whole:
            for device in one.devices:
                for entry in device.consumes_counters:
                    if entry.counter_set not in sets or any(
                        (entry.counter_set, c) not in known for c in entry.counters
                    ):
                        return f"device {device.name} consumes counters that the pool has not"
        return ""

    def drawn(
        self, pool: tuple[str, str], node: CheckedNode
    ) -> tuple[dict[tuple[str, str], int], list[SliceDevice]]:
        """Give the counters of a pool as a node sees it, and every device that may draw on them.

        These are devices of all slices of the generation, whoever sees them and whatever they say of the
        number of slices.
        """
        seen, _ = self.current(pool, node)
        peers = [one for one in self._by_pool[pool] if one.generation == seen[0].generation]
        left = {
            (counters.name, name): amount
            for one in (seen if len(seen) == _told(seen) else peers)
            for counters in one.shared_counters
            for name, amount in counters.counters.items()
        }
        # Names tell devices apart: of those that stand several times the node's own is meant.
        named = {device.name: device for one in seen for device in one.devices}
        for one in peers:
            for device in one.devices:
                if device.consumes_counters:
                    named.setdefault(device.name, device)
        return left, list(named.values())

    def find(self, device: DeviceId, node: CheckedNode) -> Published | str:
        """Find a device that the node may use, or say why there is none."""
        seen, wrong = self.current((device.driver, device.pool), node)
        if wrong:
            return wrong
        for one in seen:
            for published in one.devices:
                if published.name == device.device:
                    if one.per_device_node_selection and not self._device_seen(published, node):
                        return "the device does not reach the node"
                    return Published(one, published)
        return "no such device is published"

    def offered(self, node: CheckedNode, driver: str = "") -> tuple[list[tuple[DeviceId, Published]], str]:
        """Give every device that the node may use, and what is wrong with the first unsound pool.

        Where a ``driver`` is named, the pools of others do not matter.
        """
        found = []
        trouble = ""
        for pool in sorted(self._by_pool):
            if driver and pool[0] != driver:
                continue
            seen, wrong = self.current(pool, node)
            if not seen:
                continue
            if wrong:
                trouble = trouble or f"{pool[0]}/{pool[1]}: {wrong}"
                continue
            found += [
                (DeviceId(*pool, device.name), Published(one, device))
                for one in seen
                for device in one.devices
                if not one.per_device_node_selection or self._device_seen(device, node)
            ]
        return found, trouble
