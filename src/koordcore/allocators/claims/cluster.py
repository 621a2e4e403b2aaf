"""The devices of a whole cluster: nodes that look the same to every claim are worked out once.

What can tell devices apart is what some selector reads or some constraint names, beside what the rules look
at; a UUID that nobody asks for does not. Nodes whose devices agree in all of it, in their order, have one
*shape*, whatever their devices and pools are called.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector
from koordcore._vector import Splice, Vector
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
    SlicePair,
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
from koordcore.model.nodes import Node, NodeState
from koordcore.model.records import ClusterRecord
from koordcore.protocol.extended_resources import classes_by_resource
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived, moves_since

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
    kept
        What somebody worked out about these devices, to be kept as long as they are.
    """

    def __init__(self, snapshot: ClusterSnapshot, features: frozenset[ClaimFeature] = ALL_FEATURES) -> None:
        self.features = features
        self.classes = {one.name: one for one in snapshot.of(DeviceClass)}
        self.compiler = CelCompiler(features)
        self.specs = _specs_of(snapshot)
        self.reads = _reads_of(snapshot.of(DeviceClass), self.specs)
        self._kept: dict[tuple[str, str], bool] = {}
        self._index = SliceIndex(
            with_taint_rules(snapshot.of(ResourceSlice), snapshot.of(DeviceTaintRule)), features
        )
        self._by_resource = classes_by_resource(self.classes.values())
        # What nodes of one shape have in common, with a number that stays as long as any node has it.
        self._alike: dict[Hashable, int] = {}
        self._next = 0
        self._tables: dict[NodePools, DeviceTable] = {}
        pools = [self._look(state.node) for state in snapshot.nodes]
        reach: dict[PoolKey, list[str]] = {}
        for one in pools:
            for pool in one.pools:
                reach.setdefault((pool.driver, pool.name), []).append(one.node.name)
        self._reach: dict[PoolKey, Sequence[str]] = {**reach}
        # How many pools reach more than one node.
        self._wide = sum(len(names) > 1 for names in reach.values())
        self._take(pools, [self._shape_of(one) for one in pools], snapshot.layout.row_of)

    def _take(self, pools: list[NodePools], alike: list[int], row_of: Mapping[str, int]) -> None:
        """Number the shapes of nodes in the order of their rows."""
        self.kept: object = None
        self.pools, self._numbers, self._row_of = pools, alike, row_of
        shapes, first, places = np.unique(np.array(alike, np.int64), return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        self.shape: list[int] = number[places].tolist()
        self._first: list[int] = first[order].tolist()
        there = {*shapes.tolist()}
        self._alike = {key: shape for key, shape in self._alike.items() if shape in there}
        firsts = {pools[row] for row in self._first}
        self._tables = {one: table for one, table in self._tables.copy().items() if one in firsts}
        self._places: dict[int, dict[PoolKey, dict[str, int]]] = {}

    def _look(self, node: Node) -> NodePools:
        """Gather what a node sees."""
        offered = node.allocatable
        listed = frozenset([name for name in self._by_resource if offered.get(name)])
        return gather_pools(self._index, NodeView(node.name, node.labels, node.features, listed))

    def after(
        self,
        edits: Sequence[Splice],
        nodes: Mapping[int, Node],
        row_of: Mapping[str, int],
        index: SliceIndex | None = None,
    ) -> ClusterDevices:
        """Give the devices after some nodes came, left or say something else.

        Parameters
        ----------
        edits
            Rows that were taken out and put in, one after another.
        nodes
            By their rows afterwards: nodes that came, or may see something else.
        row_of
            Name to row, afterwards.
        index
            The slices, where there are other ones.
        """
        made = copy(self)
        made.__dict__.pop("tells_numa", None)
        made._index = index or self._index  # noqa: SLF001  # its own kind
        pools: list[Any] = list(self.pools)
        numbers = list(self._numbers)
        made._reach = dict(self._reach)  # noqa: SLF001
        for at, gone, come in edits:
            for one in filter(None, pools[at : at + gone]):
                made._see(one, there=False)  # noqa: SLF001
            pools[at : at + gone] = [None] * come
            numbers[at : at + gone] = [-1] * come
        changed = bool(edits)
        made._alike = dict(self._alike)  # noqa: SLF001
        for row, node in nodes.items():
            found, before = made._look(node), pools[row]  # noqa: SLF001
            if before is None or not _alike(before, found):
                if before is not None:
                    made._see(before, there=False)  # noqa: SLF001
                made._see(found, there=True)  # noqa: SLF001
                pools[row], numbers[row] = found, made._shape_of(found)  # noqa: SLF001
                changed = True
        if not changed and index is None:
            return self
        made._take(pools, numbers, row_of)  # noqa: SLF001
        return made

    def _see(self, pools: NodePools, *, there: bool) -> None:
        """Take note of the pools that reach a node, or do so no more."""
        name = pools.node.name
        for pool in pools.pools:
            key = (pool.driver, pool.name)
            names = self._reach.pop(key, ())
            others = [one for one in names if one != name]
            now = [*others, name] if there else others
            self._wide += (len(now) > 1) - (len(names) > 1)
            if now:
                self._reach[key] = now

    def rows_of(self, pool: PoolKey) -> list[int]:
        """Give the rows that a pool reaches, in no order."""
        return [self._row_of[name] for name in self._reach.get(pool, ())]

    @property
    def slices(self) -> SliceIndex:
        """What is published, by node and pool."""
        return self._index

    @property
    def local(self) -> bool:
        """No device can be used from two nodes."""
        return not self._wide

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
        pools = self.pools[self._first[shape]]
        found = self._tables.get(pools)
        if found is None:
            found = self._tables[pools] = DeviceTable(pools, self.compiler)
        return found

    def places(self, row: int) -> Mapping[PoolKey, Mapping[str, int]]:
        """Give the place of every device that a node is offered, by pool and name."""
        found = self._places.get(row)
        if found is None:
            found = {}
            for place, one in enumerate(self.pools[row].devices):
                found.setdefault((one.id.driver, one.id.pool), {})[one.id.device] = place
            self._places[row] = found  # complete: another thread may look at once
        return found

    def _shape_of(self, pools: NodePools) -> int:
        key = (
            tuple(self._pool_key(pools.node.name, pool) for pool in pools.pools),
            pools.node.features,
            pools.node.listed,
        )
        known = self._alike.get(key)
        if known is None:
            known = self._alike[key] = self._next
            self._next += 1
        return known

    def _pool_key(self, node: str, pool: Pool) -> Hashable:
        if not pool.usable:
            # Whether it stands in the way of a set of all hangs on whose devices it has.
            return (pool.driver, pool.incomplete, bool(pool.invalid))
        offered = {one.id for one in pool.devices}
        # Where a pool has devices elsewhere that draw on its counters, their use tells nodes apart by name.
        own = node if any(one.id not in offered for one in pool.consumers) else ""
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
        reads = self.reads
        kept = reads is None or (domain, short) in reads or (domain == driver and (None, short) in reads)
        self._kept[driver, name] = kept
        return kept


def _alike(one: NodePools, other: NodePools) -> bool:
    """Tell whether a node sees the same as before; its labels have said where slices can be used."""
    mine, theirs = one.node, other.node
    if (mine.features, mine.listed) != (theirs.features, theirs.listed):
        return False
    return _seen(one) == _seen(other)


def _seen(pools: NodePools) -> list[Hashable]:
    return [
        (
            *(pool.driver, pool.name, pool.incomplete, pool.invalid),
            *(tuple((id(one.device), id(one.slice), one.reaches) for one in pool.devices),),
            *(tuple((id(one.device), id(one.slice)) for one in pool.consumers),),
            tuple((name, id(amounts)) for name, amounts in pool.counters.items()),
        )
        for pool in pools.pools
    ]


def _specs_of(snapshot: ClusterSnapshot) -> frozenset[ClaimSpec]:
    """Give what claims and templates ask for, anywhere in the cluster."""
    made = (one.spec for one in snapshot.of(ResourceClaim))
    return frozenset((*made, *(one.spec for one in snapshot.of(ResourceClaimTemplate))))


def _reads_of(classes: Iterable[DeviceClass], specs: Iterable[ClaimSpec]) -> _Reads:
    """Gather the attributes that selectors read and constraints name."""
    # Whoever aligns pods to NUMA nodes reads these of every device.
    found: set[tuple[str | None, str]] = {NUMA_NODE, (None, OWN_NUMA_NODE)}
    # A refusal names what the counters of a card still allow.
    found.update((None, name) for name in NAMING)
    selectors = {text for one in classes for text in one.selectors}
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
    """Give the devices of a cluster, which follow nodes and slices; other classes make others of them."""
    return derived(snapshot, _build, _again, replaced=True)


def _build(snapshot: ClusterSnapshot) -> ClusterDevices:
    return ClusterDevices(snapshot)


def _again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: ClusterDevices,
    snapshot: ClusterSnapshot,
) -> ClusterDevices:
    slices: list[SlicePair] = []
    for old, new in changed_records(snapshot, records):
        one = old or new
        if isinstance(one, DeviceClass | DeviceTaintRule):
            return ClusterDevices(snapshot)
        if isinstance(new, ResourceClaim | ResourceClaimTemplate) and not _read_already(known, new.spec):
            return ClusterDevices(snapshot)
        if isinstance(one, ResourceSlice):
            slices.append((old, new))  # type: ignore[arg-type]  # both are of one type
    index, concerned = None, frozenset[str]()
    if slices:
        ruled = any(rule.selects for rule in snapshot.of(DeviceTaintRule))
        led = None if ruled else known.slices.after(slices)
        if led is None:
            return ClusterDevices(snapshot)
        index, concerned = led
    rows = snapshot.layout.row_of
    looked = {rows[name]: snapshot.node(name).node for name in sorted(concerned) if name in rows}
    for before, after in changed_states(snapshot, nodes):
        if after is not None and (before is None or before.node is not after.node):
            looked[rows[after.name]] = after.node
    return known.after(moves_since(snapshot, nodes), looked, rows, index)


def _read_already(known: ClusterDevices, spec: ClaimSpec) -> bool:
    """Tell whether all that a claim reads of devices tells them apart already."""
    if known.reads is None or spec in known.specs:
        return True
    reads = _reads_of((), (spec,))
    return reads is not None and reads <= known.reads
