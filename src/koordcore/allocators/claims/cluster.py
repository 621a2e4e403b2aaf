"""The devices of a whole cluster: nodes that look the same to every claim are worked out once.

What can tell devices apart is what some selector reads or some constraint names, beside what the rules look
at; a UUID that nobody asks for does not. Nodes whose devices agree in all of it, in their order, have one
*shape*, whatever their devices and pools are called.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

import numpy as np

from koordcore._arrays import BoolVector
from koordcore._vector import Vector
from koordcore.allocators.claims.cards import NAMING
from koordcore.allocators.claims.cel import Footprint, SelectorError, compile_derived, compile_selector
from koordcore.allocators.claims.features import ALL_FEATURES, ClaimFeature
from koordcore.allocators.claims.numa_column import NUMA_NODE, OWN_NUMA_NODE
from koordcore.allocators.claims.pools import (
    NodePools,
    NodeView,
    Pool,
    PoolDevice,
    PoolKey,
    SliceIndex,
    gather_pools,
    with_taint_rules,
)
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.table import DeviceTable
from koordcore.model.claims import (
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import (
    DeviceTaintRule,
    ResourceSlice,
)
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.protocol.extended_resources import classes_by_resource
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, derived

_Reads: TypeAlias = frozenset[tuple[str | None, str]] | None
"""Domain (``None`` for the driver's) and name of attributes that somebody reads; ``None`` for all."""


class ClusterDevices:
    """What drivers publish, by node; nothing of it depends on who holds what.

    Parameters
    ----------
    snapshot
        Its nodes, slices, taint rules and classes, and what claims and templates read of devices.
    features
        What is switched on.

    Attributes
    ----------
    pools
        By row: what the node sees.
    shape
        By row: number of the node's shape.
    rows_of
        Rows that a pool reaches.
    kept
        What somebody worked out about these devices, to be kept as long as they are.
    """

    def __init__(self, snapshot: ClusterSnapshot, features: frozenset[ClaimFeature] = ALL_FEATURES) -> None:
        self.features = features
        self.kept: object = None
        self.classes = {one.name: one for one in snapshot.of(DeviceClass)}
        self.compiler = CelCompiler(features)
        self._reads = _reads_of(snapshot)
        self._kept: dict[tuple[str, str], bool] = {}
        index = SliceIndex(
            with_taint_rules(snapshot.of(ResourceSlice), snapshot.of(DeviceTaintRule)), features
        )
        self.pools: list[NodePools] = []
        self.shape: list[int] = []
        self.rows_of: dict[PoolKey, list[int]] = {}
        self._shapes: dict[Hashable, int] = {}
        self._first: list[int] = []
        self._tables: dict[int, DeviceTable] = {}
        self._places: dict[int, dict[PoolKey, dict[str, int]]] = {}
        by_resource = classes_by_resource(self.classes.values())
        for row, state in enumerate(snapshot.nodes):
            offered = state.node.allocatable
            listed = frozenset([name for name in by_resource if offered.get(name)])
            found = gather_pools(index, NodeView(state.name, state.node.labels, state.node.features, listed))
            self.pools.append(found)
            self.shape.append(self._shape_of(row, found))
            for pool in found.pools:
                self.rows_of.setdefault((pool.driver, pool.name), []).append(row)

    @property
    def local(self) -> bool:
        """No device can be used from two nodes."""
        return all(len(rows) == 1 for rows in self.rows_of.values())

    @property
    def shapes(self) -> int:
        """How many shapes there are."""
        return len(self._first)

    @cached_property
    def tells_numa(self) -> BoolVector:
        """By shape: some device tells its NUMA node."""
        return np.array([bool(self.table(shape).near_numa.by_node) for shape in range(self.shapes)], np.bool_)

    def table(self, shape: int) -> DeviceTable:
        """Give the devices of a shape as columns: those of the first node that has it."""
        found = self._tables.get(shape)
        if found is None:
            found = self._tables[shape] = DeviceTable(self.pools[self._first[shape]], self.compiler)
        return found

    def places(self, row: int) -> Mapping[PoolKey, Mapping[str, int]]:
        """Give the place of every device that a node is offered, by pool and name."""
        found = self._places.get(row)
        if found is None:
            found = self._places[row] = {}
            for place, one in enumerate(self.pools[row].devices):
                found.setdefault((one.id.driver, one.id.pool), {})[one.id.device] = place
        return found

    def _shape_of(self, row: int, pools: NodePools) -> int:
        key = (
            tuple(self._pool_key(row, pool) for pool in pools.pools),
            pools.node.features,
            pools.node.listed,
        )
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = len(self._first)
            self._first.append(row)
        return known

    def _pool_key(self, row: int, pool: Pool) -> Hashable:
        if not pool.usable:
            return (pool.incomplete, bool(pool.invalid))
        offered = {one.id for one in pool.devices}
        # Where a pool has devices elsewhere that draw on its counters, their use tells nodes apart by name.
        own = row if any(one.id not in offered for one in pool.consumers) else -1
        counters = tuple((name, tuple(counters.items())) for name, counters in pool.counters.items())
        return (pool.driver, own, counters, tuple(self._device_key(pool.driver, one) for one in pool.devices))

    def _device_key(self, driver: str, one: PoolDevice) -> Hashable:
        device = one.device
        kept = self._kept
        attributes = [
            (name, value)
            for name, value in device.attributes.items()
            if (kept[driver, name] if (driver, name) in kept else self._keep(driver, name))
        ]
        return (
            tuple(attributes),
            device.capacity,
            device.consumes_counters,
            device.taints,
            device.binding_conditions,
            device.allow_multiple_allocations,
            bool(one.slice.skip_node_operations),
            one.reaches,
        )

    def _keep(self, driver: str, name: str) -> bool:
        domain, slash, short = name.partition("/")
        if not slash:
            domain, short = driver, name
        reads = self._reads
        kept = reads is None or (domain, short) in reads or (domain == driver and (None, short) in reads)
        self._kept[driver, name] = kept
        return kept


def _reads_of(snapshot: ClusterSnapshot) -> _Reads:
    """Gather the attributes that selectors read and constraints name, anywhere in the cluster."""
    specs = {
        *(one.spec for one in snapshot.of(ResourceClaim)),
        *(one.spec for one in snapshot.of(ResourceClaimTemplate)),
    }
    # Whoever aligns pods to NUMA nodes reads these of every device.
    found: set[tuple[str | None, str]] = {NUMA_NODE, (None, OWN_NUMA_NODE)}
    # A refusal names what the counters of a card still allow.
    found.update((None, name) for name in NAMING)
    selectors = {text for one in snapshot.of(DeviceClass) for text in one.selectors}
    derived: set[str] = set()
    for spec in specs:
        for attribute in _named(spec):
            domain, slash, short = attribute.partition("/")
            found.add((domain, short) if slash else (None, attribute))
        for request in spec.requests:
            for form in request.forms:
                selectors.update(form.selectors)
                derived.update(one.expression for one in form.derived_attributes)
    for footprint in (*_footprints(selectors), *_derived_footprints(derived)):
        if footprint is None:
            return None
        found |= {(domain, name) for kind, domain, name in footprint if kind == "attributes"}
    return frozenset(found)


def _named(spec: ClaimSpec) -> Iterator[str]:
    for one in spec.constraints:
        yield from (name for name in (one.match_attribute, one.distinct_attribute) if name)


def _footprints(texts: Iterable[str | None]) -> Iterator[Footprint | None]:
    for text in texts:
        compiled = compile_selector(text) if text is not None else None
        if compiled is not None and not isinstance(compiled, SelectorError):
            yield compiled.footprint


def _derived_footprints(texts: Iterable[str]) -> Iterator[Footprint | None]:
    for text in texts:
        compiled = compile_derived(text)
        if not isinstance(compiled, SelectorError):
            yield compiled.footprint


def cluster_devices(snapshot: ClusterSnapshot) -> ClusterDevices:
    """Give the devices of a cluster, made once and kept while nodes and what is published stay the same."""
    return derived(snapshot, _build, _again)


def _build(snapshot: ClusterSnapshot) -> ClusterDevices:
    return ClusterDevices(snapshot)


_READ = (ResourceSlice, DeviceTaintRule, DeviceClass, ResourceClaim, ResourceClaimTemplate)


def _again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: ClusterDevices,
    snapshot: ClusterSnapshot,
) -> ClusterDevices:
    if changed_records(snapshot, records) and not _reads_alike(records, snapshot):
        return ClusterDevices(snapshot)
    same = all(old.node is new.node for old, new in zip(nodes, snapshot.nodes, strict=True))
    return known if same else ClusterDevices(snapshot)


def _reads_alike(records: Vector[ClusterRecord], snapshot: ClusterSnapshot) -> bool:
    """Tell whether the records that matter are the same; of claims only what they ask for is read."""
    before: dict[type, list[ClusterRecord]] = {}
    for one in records:
        if isinstance(one, _READ):
            before.setdefault(type(one), []).append(one)
    for kind in _READ:
        old, new = before.get(kind, []), snapshot.of(kind)
        if kind is ResourceClaim:
            mine = {one.spec for one in old if isinstance(one, ResourceClaim)}
            if any(isinstance(one, ResourceClaim) and one.spec not in mine for one in new):
                return False
        elif len(old) != len(new) or any(a is not b for a, b in zip(old, new, strict=True)):
            return False
    return True
