"""A node's devices as one batch of pods sees them: what is left on each, and what tells them apart.

A *cell* holds the amounts left on a device and how many VFs are left of each class that the batch can tell
apart. Devices, switches and NUMA nodes that no pod of the batch tells apart are interchangeable, and states
that differ by such an exchange only have one name.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from koordcore._record import record
from koordcore.allocators.device.allocate import allocate_devices
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.wants import TypeWant, Wants, wants_of
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceShortfall,
    DeviceType,
)

Cell: TypeAlias = tuple[int, ...]
"""Amounts left on a device, then VFs left of each of its classes."""
Cells: TypeAlias = tuple[Cell, ...]


class Share(NamedTuple):
    """What a pod takes of one device: how often its share, and how many VFs out of each class."""

    kind: DeviceType
    minor: int
    often: int
    vfs: tuple[tuple[int, int], ...]


@record(eq=False, kw_only=True)
class Use:
    """How one kind of pods uses one device: what it must have left, and which VF classes would do."""

    needs: Sequence[tuple[int, int]]
    classes: tuple[int, ...] | None
    by_vf: bool

    def slots(self, cell: Cell) -> int:
        """Count how often the device can give the share now."""
        for column, amount in self.needs:
            if cell[column] < amount:
                return 0
        if self.classes is None:
            return 1
        most = sum(cell[place] for place in self.classes)
        if not self.by_vf:
            return min(1, most)
        for column, amount in self.needs:
            most = min(most, cell[column] // amount)
        return most

    def left(self, cell: Cell, often: int, vfs: Sequence[tuple[int, int]]) -> Cell:
        """Give what is left after the share is taken so many times, with VFs out of these places."""
        rest = list(cell)
        for column, amount in self.needs:
            rest[column] -= often * amount
        for place, number in vfs:
            rest[place] -= number
        return tuple(rest)

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for devices that the kind does not tell apart."""
        return tuple(self.needs), self.classes, self.by_vf


@record(eq=False, kw_only=True)
class Device:
    """A device as the search sees it.

    Parameters
    ----------
    pcie, numa
        Where it sits; ``None`` where that is unknown.
    first
        Where the VF classes begin in its cell.
    alike
        Equal for devices that no pod of the batch tells apart, but for their place.
    """

    kind: DeviceType
    minor: int
    pcie: str | None
    numa: int | None
    first: int
    alike: int


class Room:
    """The devices of one node for one batch.

    Parameters
    ----------
    state
        The node.
    requests
        The kinds of pods.

    Attributes
    ----------
    wants
        What each kind wants of the devices; nothing where the node cannot serve it even alone.
    uses
        Per kind: how it uses the devices that could serve it, by index.
    start
        What is left of each device before any pod of the batch.
    busy
        Which devices are in use before.
    card_of
        Minor of each card to its index.
    """

    def __init__(self, state: NodeDevices, requests: Sequence[DeviceRequest], policy: DevicePolicy) -> None:
        self.shape = state.shape
        self.requests = requests
        self.wants = [_wants_on(state, request, policy) for request in requests]
        self.uses: list[dict[int, Use]] = [{} for _ in requests]
        self.devices: list[Device] = []
        cells: list[Cell] = []
        alike: dict[Hashable, int] = {}
        for kind, shape in state.shape.types.items():
            places = dict(shape.layout.locations)
            tabled = kind is DeviceType.GPU and state.shape.partitions is not None
            for minor in shape.minors:
                place = places.get(minor)
                classes = vf_classes(state, kind, minor, requests)
                own = {
                    which: use
                    for which, wants in enumerate(self.wants)
                    if kind in wants
                    and (use := _use_of(wants[kind], minor, len(shape.names), classes)) is not None
                }
                for which, use in own.items():
                    self.uses[which][len(self.devices)] = use
                seen = tuple((which, use.signature) for which, use in own.items())
                sign = kind, seen, state.busy[kind] >> minor & 1, minor if tabled else -1
                self.devices.append(
                    Device(
                        kind=kind,
                        minor=minor,
                        pcie=None if place is None else place[1],
                        numa=None if place is None else place[0],
                        first=len(shape.names),
                        alike=alike.setdefault(sign, len(alike)),
                    )
                )
                cells.append((*state.free[kind][minor], *(mask.bit_count() for mask in classes)))
        self.start: Cells = tuple(cells)
        self.busy = [bool(state.busy[one.kind] >> one.minor & 1) for one in self.devices]
        self.card_of = {
            one.minor: index for index, one in enumerate(self.devices) if one.kind is DeviceType.GPU
        }
        self._blocks = _blocks(self.devices)

    def share(self, index: int, often: int, vfs: Sequence[tuple[int, int]]) -> Share:
        """Say what a pod takes of a device; VFs by their place in its cell."""
        one = self.devices[index]
        return Share(one.kind, one.minor, often, tuple((place - one.first, number) for place, number in vfs))

    def name_of(self, cells: Cells) -> Hashable:
        """Name a state so that interchangeable devices, switches and NUMA nodes make no difference."""
        return tuple(
            tuple(
                sorted(
                    tuple(
                        tuple(
                            sorted(
                                tuple(tuple(sorted(cells[index] for index in group)) for group in unit)
                                for unit in units
                            )
                        )
                        for units in block
                    )
                    for block in blocks
                )
            )
            for blocks in self._blocks
        )


def _wants_on(state: NodeDevices, request: DeviceRequest, policy: DevicePolicy) -> Wants:
    """What a kind of pods wants of the node's devices; nothing where it cannot be served even alone."""
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        return {}
    alone = allocate_devices(state, request, policy=policy)
    return {} if isinstance(alone, DeviceShortfall) else wants


def _use_of(want: TypeWant, minor: int, first: int, classes: Sequence[int]) -> Use | None:
    """How a kind of pods uses a device; ``None`` where the device could never serve it."""
    if not (want.selected & want.serving) >> minor & 1:
        return None
    fitting = None
    if want.vf_ranks is not None:
        ranks = want.vf_ranks.get(minor, 0)
        fitting = tuple(first + place for place, mask in enumerate(classes) if mask & ranks)
        if not fitting:
            return None
    return Use(needs=want.needs[minor], classes=fitting, by_vf=want.by_vf)


def vf_classes(
    state: NodeDevices, kind: DeviceType, minor: int, requests: Sequence[DeviceRequest]
) -> list[int]:
    """Split a device's free VFs into classes that no pod of the batch tells apart, as masks of ranks."""
    shape = state.shape.types[kind]
    labels = shape.vf_labels.get(minor, ())
    free = ((1 << len(labels)) - 1) & ~state.use(kind).vfs[shape.position[minor]]
    classes = [free] if free else []
    selectors = {request.hint(kind).vf_selector for request in requests}
    for selector in sorted(filter(None, selectors), key=repr):
        chosen = sum(1 << rank for rank, own in enumerate(labels) if selector.matches(own))
        classes = [part for mask in classes for part in (mask & chosen, mask & ~chosen) if part]
    return classes


Unit: TypeAlias = tuple[tuple[int, ...], ...]
"""The devices of one switch, grouped by what tells them apart."""


def _blocks(devices: Sequence[Device]) -> list[list[list[list[Unit]]]]:
    """Arrange devices so that what is interchangeable stands in one list.

    Lists of NUMA nodes of one build, each a list of lists of switches of one build, each with its devices by
    kind. A switch whose devices sit on several NUMA nodes, or devices of unknown place, are like no other.
    """
    units: dict[str | None, list[int]] = {}
    for index, one in enumerate(devices):
        units.setdefault(one.pcie, []).append(index)
    numas: dict[Hashable, list[tuple[tuple[tuple[int, int], ...], Unit]]] = {}
    for pcie, own in units.items():
        by_kind: dict[int, list[int]] = {}
        for index in own:
            by_kind.setdefault(devices[index].alike, []).append(index)
        kinds = sorted(by_kind)
        sign = tuple((kind, len(by_kind[kind])) for kind in kinds)
        home = {devices[index].numa for index in own}
        place: Hashable = home.pop() if pcie is not None and len(home) == 1 else (pcie, "apart")
        numas.setdefault(place, []).append((sign, tuple(tuple(by_kind[kind]) for kind in kinds)))
    alike: dict[Hashable, list[list[list[Unit]]]] = {}
    for place, found in numas.items():
        block = []
        signs: list[Hashable] = []
        for kinds_here in sorted({kinds_of for kinds_of, _ in found}):
            same = [unit for kinds_of, unit in found if kinds_of == kinds_here]
            block.append(same)
            signs.append((kinds_here, len(same)))
        apart = place if isinstance(place, tuple) else None
        alike.setdefault((tuple(signs), apart), []).append(block)
    return list(alike.values())
