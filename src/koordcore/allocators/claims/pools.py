"""Pools of devices, and which of their devices a node can use (``../spec/dra.md`` section 3).

A pool is what the slices of one driver with one pool name publish together. It offers nothing while it is
incomplete or invalid, and nothing at all to a node whose slices belong to an older generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.features import ALL_FEATURES, ClaimFeature
from koordcore.model.device_slices import (
    CounterSet,
    DeviceId,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector

PoolKey: TypeAlias = tuple[str, str]
"""Driver and name of a pool."""
SlicePair: TypeAlias = tuple[ResourceSlice | None, ResourceSlice | None]
"""A slice before and after; ``None`` where it was not, or is no longer, there."""
_NAME: Final = attrgetter("name")


@record
class NodeView:
    """What pools and results need to know of a node.

    Parameters
    ----------
    features
        ``status.declaredFeatures``.
    listed
        Extended resources that the node has a device plugin for, of those that classes serve elsewhere.
    """

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    features: tuple[str, ...] = ()
    listed: frozenset[str] = frozenset()


@record(eq=False)
class PoolDevice:
    """A device that a complete pool offers to the node.

    Parameters
    ----------
    reaches
        Its own node selection has the node; always true where the slice does not leave that to the devices.
    """

    id: DeviceId
    device: SliceDevice
    slice: ResourceSlice
    reaches: bool = True


@record(eq=False)
class Pool:
    """A pool as one node sees it.

    Parameters
    ----------
    devices
        What it offers, in the order of slices and devices; empty where ``incomplete`` or ``invalid``.
    counters
        Published amounts by counter set and counter, of the whole pool.
    consumers
        Devices of the whole pool that consume counters, on this node or not.
    invalid
        What is wrong with it; empty where nothing is.
    """

    driver: str
    name: str
    devices: tuple[PoolDevice, ...] = ()
    counters: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)
    consumers: tuple[PoolDevice, ...] = ()
    incomplete: bool = False
    invalid: str = ""

    @property
    def usable(self) -> bool:
        """It is complete and valid."""
        return not self.incomplete and not self.invalid


@record(eq=False)
class NodePools:
    """Every pool that a node sees, in the order in which devices are tried.

    Parameters
    ----------
    pools
        Those with binding conditions after those without, each by driver and name.
    devices
        The devices of all usable pools, in that order.
    """

    node: NodeView
    pools: tuple[Pool, ...]
    devices: tuple[PoolDevice, ...]
    features: frozenset[ClaimFeature] = ALL_FEATURES


class SliceIndex:
    """All slices of a cluster, by where they can be used and by pool.

    Parameters
    ----------
    slices
        Every ResourceSlice; their order decides which slice's count is believed where slices disagree.
    features
        What is switched on.
    """

    def __init__(
        self, slices: Iterable[ResourceSlice], features: frozenset[ClaimFeature] = ALL_FEATURES
    ) -> None:
        self.features = features
        self.local: dict[str, list[ResourceSlice]] = {}
        self.elsewhere: list[ResourceSlice] = []
        self._drawing: dict[tuple[PoolKey, int], list[PoolDevice]] = {}
        self.pools: dict[PoolKey, list[ResourceSlice]] = {}
        for one in slices:
            if ClaimFeature.COMPATIBILITY_GROUPS not in features and _grouped(one):
                continue
            self.pools.setdefault((one.driver, one.pool), []).append(one)
            if ClaimFeature.PARTITIONABLE not in features and (
                one.shared_counters or one.per_device_node_selection is not None
            ):
                continue
            if one.node_name:
                self.local.setdefault(one.node_name, []).append(one)
            else:
                self.elsewhere.append(one)

    def after(self, pairs: Iterable[SlicePair]) -> tuple[SliceIndex, frozenset[str]] | None:
        """Give the index after slices of single nodes changed, and the nodes that may see other pools.

        ``None`` where that cannot be told by names of nodes.
        """
        pairs = list(pairs)
        changed = [one for pair in pairs for one in pair if one is not None]
        if self.features != ALL_FEATURES or not all(one.node_name for one in changed):
            return None
        made = copy(self)
        made._drawing = {}  # noqa: SLF001  # its own kind
        made.local, made.pools = dict(self.local), dict(self.pools)
        keys = {(one.driver, one.pool) for one in changed}
        names = {one.node_name for key in keys for one in self.pools.get(key, ())}
        gone = {id(old) for old, _ in pairs}
        tables: tuple[tuple[dict[Any, list[ResourceSlice]], Any], ...] = (
            (made.local, _node_of),
            (made.pools, _pool_of),
        )
        for table, key_of in tables:
            for key in {key_of(one) for one in changed}:
                left = [one for one in table.get(key, ()) if id(one) not in gone]
                left += [new for _, new in pairs if new is not None and key_of(new) == key]
                table[key] = sorted(left, key=_NAME)
                if not left:
                    del table[key]
        names |= {one.node_name for key in keys for one in made.pools.get(key, ())}
        return None if "" in names else (made, frozenset(names))

    def drawing(self, pool: PoolKey, generation: int) -> list[PoolDevice]:
        """Give the devices of a pool that consume counters, on whatever node, the first of each name."""
        found = self._drawing.get((pool, generation))
        if found is None:
            first: dict[str, PoolDevice] = {}
            for one in self.pools[pool]:
                for device in one.devices if one.generation == generation else ():
                    if device.consumes_counters:
                        first.setdefault(device.name, PoolDevice(DeviceId(*pool, device.name), device, one))
            found = self._drawing[pool, generation] = list(first.values())
        return found

    def reaching(self, node: NodeView) -> dict[PoolKey, list[ResourceSlice]]:
        """Give the slices whose devices the node can use, by pool."""
        found: dict[PoolKey, list[ResourceSlice]] = {}
        for one in (*self.local.get(node.name, ()), *(s for s in self.elsewhere if _reaches(s, node))):
            found.setdefault((one.driver, one.pool), []).append(one)
        return found


def _node_of(one: ResourceSlice) -> str:
    return one.node_name


def _pool_of(one: ResourceSlice) -> PoolKey:
    return one.driver, one.pool


def _grouped(one: ResourceSlice) -> bool:
    return any(entry.compatibility_groups for device in one.devices for entry in device.consumes_counters)


def _selects(selector: NodeSelector | None, node: NodeView) -> bool:
    return selector is not None and selector.matches(node.name, node.labels)


def _device_reaches(device: SliceDevice, node: NodeView) -> bool:
    return (
        device.all_nodes
        or (bool(device.node_name) and device.node_name == node.name)
        or _selects(device.node_selector, node)
    )


def _reaches(one: ResourceSlice, node: NodeView) -> bool:
    if one.per_device_node_selection:
        return any(_device_reaches(device, node) for device in one.devices)
    return one.all_nodes or _selects(one.node_selector, node)


def gather_pools(index: SliceIndex, node: NodeView) -> NodePools:
    """Gather the pools that a node sees.

    Parameters
    ----------
    index
        The slices of the whole cluster: whether a pool is complete is seen there only.
    node
        The node.
    """
    pools = []
    for key, slices in index.reaching(node).items():
        newest = max(one.generation for one in slices)
        kept = [one for one in slices if one.generation == newest]
        pool = _pool(key, kept, index, node)
        if pool is not None:
            conditional = any(device.binding_conditions for one in kept for device in one.devices)
            pools.append((conditional, key, pool))
    pools.sort(key=lambda entry: entry[:2])
    ordered = tuple(pool for _, _, pool in pools)
    devices = tuple(device for pool in ordered for device in pool.devices)
    return NodePools(node, ordered, devices, index.features)


def _pool(key: PoolKey, kept: list[ResourceSlice], index: SliceIndex, node: NodeView) -> Pool | None:
    """Make the pool of the kept slices; ``None`` where a newer generation exists elsewhere."""
    driver, name = key
    everywhere = index.pools[key]
    wanted, generation = kept[0].slice_count, kept[0].generation
    others: list[ResourceSlice] = []
    if len(kept) != wanted:
        if any(one.generation > generation for one in everywhere):
            return None
        same = [one for one in everywhere if one.generation == generation]
        if len(same) != wanted:
            return Pool(driver, name, incomplete=True)
        mine = {id(one) for one in kept}
        others = [one for one in same if id(one) not in mine]
    counters, problem = _counters([*kept, *others])
    ordered = sorted(kept, key=lambda one: one.name.encode())
    offered = _devices(ordered, node)
    names = [device.id.device for device in offered]
    if len(set(names)) < len(names):
        twice = next(one for index, one in enumerate(names) if one in names[:index])
        problem = problem or f"device {twice} occurs twice"
    consumers = tuple(
        device for device in (*offered, *_devices(others, node)) if device.device.consumes_counters
    )
    if ClaimFeature.PARTITIONABLE in index.features:
        problem = problem or _unknown_counter(consumers, counters)
    else:
        consumers = ()
    if problem:
        return Pool(driver, name, invalid=problem)
    if counters and consumers and len(everywhere) > len(kept) == wanted:
        # Slices that tell another number are none of the pool here; yet their devices draw on its counters.
        taken = frozenset(names)
        drawing = (one for one in index.drawing(key, generation) if one.id.device not in taken)
        consumers += tuple(drawn for one in drawing if (drawn := _drawn(one, counters)) is not None)
    return Pool(driver, name, offered, counters, consumers)


def _devices(slices: Sequence[ResourceSlice], node: NodeView) -> tuple[PoolDevice, ...]:
    return tuple(
        PoolDevice(
            DeviceId(one.driver, one.pool, device.name),
            device,
            one,
            not one.per_device_node_selection or _device_reaches(device, node),
        )
        for one in slices
        for device in one.devices
    )


def _counters(slices: Sequence[ResourceSlice]) -> tuple[dict[str, Mapping[str, int]], str]:
    found: dict[str, Mapping[str, int]] = {}
    problem = ""
    counter_set: CounterSet
    for one in slices:
        for counter_set in one.shared_counters:
            if counter_set.name in found:
                problem = problem or f"counter set {counter_set.name} occurs twice"
            found[counter_set.name] = counter_set.counters
    return found, problem


def _drawn(one: PoolDevice, counters: Mapping[str, Mapping[str, int]]) -> PoolDevice | None:
    """Give a device as far as it draws on some counters; ``None`` where it draws on none of them."""
    entries = []
    for entry in one.device.consumes_counters:
        known = counters.get(entry.counter_set, {})
        drawn = {name: amount for name, amount in entry.counters.items() if name in known}
        if drawn:
            entries.append(
                entry if len(drawn) == len(entry.counters) else attrs.evolve(entry, counters=drawn)
            )
    if not entries:
        return None
    if len(entries) == len(one.device.consumes_counters) and all(
        mine is entry for mine, entry in zip(entries, one.device.consumes_counters, strict=True)
    ):
        return one
    return attrs.evolve(one, device=attrs.evolve(one.device, consumes_counters=tuple(entries)))


def _unknown_counter(consumers: Iterable[PoolDevice], counters: Mapping[str, Mapping[str, int]]) -> str:
    for device in consumers:
        for entry in device.device.consumes_counters:
            published = counters.get(entry.counter_set)
            if published is None:
                return f"device {device.id.device} consumes from {entry.counter_set}, which is not there"
            for counter in entry.counters:
                if counter not in published:
                    return (
                        f"device {device.id.device} consumes counter {counter} of {entry.counter_set}, "
                        "which is not there"
                    )
    return ""


def with_taint_rules(
    slices: Iterable[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> tuple[ResourceSlice, ...]:
    """Put the taints of rules on the devices that they select, as if drivers had published them."""
    active = [rule for rule in rules if rule.selects]
    if not active:
        return tuple(slices)
    return tuple(_tainted(one, active) for one in slices)


def _tainted(one: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    mine = [rule for rule in rules if rule.driver in (None, one.driver) and rule.pool in (None, one.pool)]
    if not mine:
        return one

    def taints(device: SliceDevice) -> tuple[DeviceTaint, ...]:
        return tuple(rule.taint for rule in mine if rule.device in (None, device.name))

    devices = [
        attrs.evolve(device, taints=(*device.taints, *added)) if (added := taints(device)) else device
        for device in one.devices
    ]
    return attrs.evolve(one, devices=tuple(devices))
