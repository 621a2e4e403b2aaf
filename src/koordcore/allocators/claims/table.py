"""The devices of one node as columns of bits, so that a request is a mask.

Bit ``i`` of a mask stands for device ``i`` in the order of the node's pools. What can be said of devices
without looking at who holds them is worked out once per node and question, and kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, Protocol, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.capacity import CapacityProblem, consumption
from koordcore.allocators.claims.features import ClaimFeature
from koordcore.allocators.claims.numa_column import NearNUMA, near_numa_of
from koordcore.allocators.claims.pools import NodePools, PoolDevice
from koordcore.model.claims import (
    DeviceToleration,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeScalar,
    AttributeValue,
    DeviceId,
    DeviceTaint,
    SliceDevice,
)

BARRING: Final = ("NoSchedule", "NoExecute")

NO_GROUPS: Final = ("",)
"""Stands for a device without compatibility groups: such devices go together, and with nobody else."""

Element: TypeAlias = tuple[str, AttributeScalar]
"""Type and value of one member of an attribute: values of different types are different."""


@record
class DeviceView:
    """What a selector sees of a device."""

    driver: str
    device: SliceDevice


@record
class SelectorFault:
    """A selector that gives no answer: it does not compile, or fails on a device."""

    compiles: bool
    text: str


class Selector(Protocol):
    """A compiled expression."""

    def __call__(self, view: DeviceView, /) -> bool | SelectorFault:
        """Tell whether the device is meant."""


class Derivation(Protocol):
    """A compiled expression that gives an attribute."""

    def __call__(self, view: DeviceView, /) -> AttributeValue | SelectorFault:
        """Work out the attribute of a device."""


class SelectorCompiler(Protocol):
    """What makes functions of CEL expressions."""

    def selector(self, expression: str, /) -> Selector | SelectorFault:
        """Compile an expression that selects devices."""

    def driver(self, expression: str, /) -> str | None:
        """Give the one driver whose devices an expression can select, where its text says so."""

    def derivation(self, expression: str, /) -> Derivation | SelectorFault:
        """Compile an expression that derives an attribute."""


@record
class Selection:
    """Devices for which an expression is true, and those on which it fails."""

    mask: int
    faults: Mapping[int, SelectorFault]


@record
class CapacityColumn:
    """Devices that can serve an amount at all, what each would give, and those on which counting fails."""

    mask: int
    amounts: Mapping[int, Mapping[str, int]]
    problems: Mapping[int, CapacityProblem]


def bits(mask: int) -> Iterator[int]:
    """Give the places of the ones, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lookup_attribute(device: SliceDevice, driver: str, name: str) -> AttributeValue | None:
    """Find an attribute by its full name: as it is spelt, else without the driver's own domain.

    Parameters
    ----------
    device
        As its driver publishes it.
    driver
        Name of the driver, whose domain names may leave out.
    name
        Domain and name, ``gpu.example.com/model``.
    """
    found = device.attributes.get(name)
    if found is None:
        domain, slash, short = name.partition("/")
        if slash and domain == driver:
            found = device.attributes.get(short)
    return found


def elements_of(value: AttributeValue | None, *, lists: bool) -> frozenset[Element] | None:
    """Give the members of an attribute; ``None`` where nothing is set.

    Where lists are off, a list agrees with nothing, not even with an equal one.
    """
    if value is None or value.kind is AttributeKind.NONE or not value.values:
        return None
    if value.listed and not lists:
        return frozenset()
    return frozenset((value.kind.value, one) for one in value.values)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Tell whether a toleration covers a taint; unknown operators cover nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def bearing(values: Iterable[tuple[int, frozenset[Element] | None]]) -> dict[Element, int]:
    """Turn devices with their members of an attribute into members with their devices."""
    found: dict[Element, int] = {}
    for device, elements in values:
        for element in elements or ():
            found[element] = found.get(element, 0) | 1 << device
    return found


class DeviceTable:
    """Columns over the devices that the usable pools offer to a node.

    Parameters
    ----------
    pools
        The node's pools.
    compiler
        What makes a selector of a CEL expression.

    Attributes
    ----------
    devices, index
        The devices, and the place of each by name.
    everything
        All ones.
    shareable, conditional, offered
        Devices that several claims share; with binding conditions; that no feature gate and no node
        operation keeps from this node.
    counters, counter_names
        Published amount and name of each counter; the place of a counter is its number.
    draws
        By device: number and amount of each counter that it consumes.
    sets
        By device: number of each counter set that it consumes, with its compatibility groups there.
    pool_counters
        By device: the counters of its pool, for devices that consume any.
    drawing, counted
        Devices that consume counters; those, and devices that name a counter set and none of its counters.
    kin
        By device: the devices that draw on the same counters, directly or by way of others.
    """

    def __init__(self, pools: NodePools, compiler: SelectorCompiler) -> None:
        self.pools = pools
        self.devices: tuple[PoolDevice, ...] = pools.devices
        self.index: dict[DeviceId, int] = {one.id: place for place, one in enumerate(self.devices)}
        self.everything = (1 << len(self.devices)) - 1
        self._compiler = compiler
        self._selections: dict[str, Selection] = {}
        self._tolerated: dict[tuple[DeviceToleration, ...], int] = {}
        self._capacities: dict[immutabledict[str, int], CapacityColumn] = {}
        self._derived: dict[tuple[str, int], SelectorFault | tuple[frozenset[Element] | None]] = {}
        self._values: dict[str, tuple[frozenset[Element] | None, ...]] = {}
        self._bearing: dict[str, dict[Element, int]] = {}
        features = pools.features
        sharing = ClaimFeature.CONSUMABLE_CAPACITY in features
        self.shareable = self._mask(lambda one: sharing and one.device.allow_multiple_allocations)
        self.conditional = self._mask(lambda one: bool(one.device.binding_conditions))
        able = (
            ClaimFeature.OPTIONAL_NODE_OPERATIONS in features
            and ClaimFeature.OPTIONAL_NODE_OPERATIONS in pools.node.features
        )
        partitions = ClaimFeature.PARTITIONABLE in features
        self.offered = self._mask(
            lambda one: (
                (able or not one.slice.skip_node_operations)
                and (partitions or not one.device.consumes_counters)
            )
        )
        self.reaching = self._mask(lambda one: one.reaches)
        self._count()
        self.drawing = sum(1 << place for place, draws in enumerate(self.draws) if draws)
        self.counted = sum(1 << place for place, sets in enumerate(self.sets) if sets)
        self._find_kin()
        self.sizes: dict[int, dict[int, int]] = {}
        self.losses: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}

    def _mask(self, holds: Callable[[PoolDevice], bool]) -> int:
        return sum(1 << place for place, one in enumerate(self.devices) if holds(one))

    def _count(self) -> None:
        """Number the counters of all pools."""
        self.counters: list[int] = []
        self.counter_names: list[str] = []
        self.set_numbers: dict[tuple[str, str, str], int] = {}
        self.counter_numbers: dict[tuple[str, str, str, str], int] = {}
        self.draws: list[tuple[tuple[int, int], ...]] = []
        self.sets: list[tuple[tuple[int, frozenset[str]], ...]] = []
        self.pool_counters: list[range] = []
        for pool in self.pools.pools:
            first = len(self.counters)
            for name, counters in pool.counters.items():
                self.set_numbers[pool.driver, pool.name, name] = len(self.set_numbers)
                for counter, value in counters.items():
                    self.counter_numbers[pool.driver, pool.name, name, counter] = len(self.counters)
                    self.counters.append(value)
                    self.counter_names.append(counter)
            mine = range(first, len(self.counters))
            consuming = {one.id for one in pool.consumers}
            for one in pool.devices:
                counted = one.id in consuming
                self.draws.append(self.draws_of(one) if counted else ())
                self.sets.append(self.sets_of(one) if counted else ())
                self.pool_counters.append(mine if counted else range(0))

    @cached_property
    def counter_stems(self) -> tuple[str, ...]:
        """Driver and name of each counter without a number at its end: those of a kind are added up."""
        found = [""] * len(self.counters)
        for (driver, _, _, name), number in self.counter_numbers.items():
            found[number] = f"{driver}/{name.rstrip('0123456789')}"
        return tuple(found)

    @cached_property
    def near_numa(self) -> NearNUMA:
        """Which devices lie near which NUMA nodes."""
        return near_numa_of(self.devices)

    def _find_kin(self) -> None:
        """Put devices together that draw on the same counters, directly or by way of others."""
        merged: list[tuple[set[int], int]] = []
        for place, draws in enumerate(self.draws):
            if not self.sets[place]:
                continue
            counters = {counter for counter, _ in draws} | {-1 - number for number, _ in self.sets[place]}
            mask = 1 << place
            others = []
            for known, members in merged:
                if known & counters:
                    counters |= known
                    mask |= members
                else:
                    others.append((known, members))
            merged = [*others, (counters, mask)]
        self.kin = [1 << place for place in range(len(self.devices))]
        for _, members in merged:
            for place in bits(members):
                self.kin[place] = members

    def kin_of(self, mask: int) -> int:
        """Give the devices of a mask and everything that draws on the same counters."""
        reach = 0
        while mask:
            mine = self.kin[(mask & -mask).bit_length() - 1]
            reach |= mine
            mask &= ~mine
        return reach

    def draws_of(self, one: PoolDevice) -> tuple[tuple[int, int], ...]:
        """Number and amount of each counter that a device consumes."""
        driver, pool, _ = one.id
        return tuple(
            (self.counter_numbers[driver, pool, entry.counter_set, counter], amount)
            for entry in one.device.consumes_counters
            for counter, amount in entry.counters.items()
        )

    def sets_of(self, one: PoolDevice) -> tuple[tuple[int, frozenset[str]], ...]:
        """Number of each counter set that a device consumes, with its compatibility groups there."""
        driver, pool, _ = one.id
        return tuple(
            (
                self.set_numbers[driver, pool, entry.counter_set],
                frozenset(entry.compatibility_groups or NO_GROUPS),
            )
            for entry in one.device.consumes_counters
        )

    def selected(self, expression: str) -> Selection:
        """Give the devices that an expression means."""
        found = self._selections.get(expression)
        if found is None:
            found = self._selections[expression] = self._select(expression)
        return found

    def may_select(self, driver: str, expressions: Iterable[str | None]) -> bool:
        """Tell whether expressions may all hold for some device of a driver, as far as their texts say."""
        named = {self._compiler.driver(one) for one in expressions if one is not None}
        return named <= {None, driver}

    def _select(self, expression: str) -> Selection:
        selector = self._compiler.selector(expression)
        if isinstance(selector, SelectorFault):
            return Selection(0, dict.fromkeys(range(len(self.devices)), selector))
        mask = 0
        faults: dict[int, SelectorFault] = {}
        for place, one in enumerate(self.devices):
            answer = selector(DeviceView(one.id.driver, one.device))
            if isinstance(answer, SelectorFault):
                faults[place] = answer
            elif answer:
                mask |= 1 << place
        return Selection(mask, faults)

    def tolerated(self, tolerations: tuple[DeviceToleration, ...]) -> int:
        """Give the devices whose taints the tolerations cover."""
        found = self._tolerated.get(tolerations)
        if found is None:
            if ClaimFeature.TAINTS not in self.pools.features:
                found = self.everything
            else:
                found = self._mask(
                    lambda one: all(
                        taint.effect not in BARRING or any(tolerates(each, taint) for each in tolerations)
                        for taint in one.device.taints
                    )
                )
            self._tolerated[tolerations] = found
        return found

    def capacity(self, requested: immutabledict[str, int]) -> CapacityColumn:
        """Give the devices that can serve amounts when nobody uses them, and what each would give."""
        found = self._capacities.get(requested)
        if found is None:
            found = self._capacities[requested] = self._capacity(requested)
        return found

    def _capacity(self, requested: Mapping[str, int]) -> CapacityColumn:
        if ClaimFeature.CONSUMABLE_CAPACITY not in self.pools.features:
            return CapacityColumn(self.everything, {}, {})
        fractional = ClaimFeature.FRACTIONAL_RANGES in self.pools.features
        mask = 0
        amounts: dict[int, Mapping[str, int]] = {}
        problems: dict[int, CapacityProblem] = {}
        for place, one in enumerate(self.devices):
            consumed = consumption(one.device, requested, fractional=fractional)
            if isinstance(consumed, CapacityProblem):
                problems[place] = consumed
            elif consumed is not None:
                mask |= 1 << place
                amounts[place] = consumed
        return CapacityColumn(mask, amounts, problems)

    def values(self, attribute: str) -> tuple[frozenset[Element] | None, ...]:
        """Give each device's members of an attribute."""
        found = self._values.get(attribute)
        if found is None:
            lists = ClaimFeature.LIST_ATTRIBUTES in self.pools.features
            found = self._values[attribute] = tuple(
                elements_of(lookup_attribute(one.device, one.id.driver, attribute), lists=lists)
                for one in self.devices
            )
        return found

    def bearing(self, attribute: str) -> Mapping[Element, int]:
        """Give the devices that have each member of an attribute."""
        found = self._bearing.get(attribute)
        if found is None:
            found = self._bearing[attribute] = bearing(enumerate(self.values(attribute)))
        return found

    def derived(self, expression: str, device: int) -> frozenset[Element] | SelectorFault | None:
        """Give the members of the attribute that an expression derives for a device."""
        known = self._derived.get((expression, device))
        if known is None:
            derivation = self._compiler.derivation(expression)
            one = self.devices[device]
            value = (
                derivation
                if isinstance(derivation, SelectorFault)
                else derivation(DeviceView(one.id.driver, one.device))
            )
            known = self._derived[expression, device] = (
                value if isinstance(value, SelectorFault) else (elements_of(value, lists=True),)
            )
        return known if isinstance(known, SelectorFault) else known[0]
