"""Where devices sit relative to each other, in ints and names only.

A *location* is ``(NUMA node, PCIe id)`` or ``None`` where it is unknown. A set of devices is a bit mask: bit
``m`` stands for minor ``m``. A *switch* is a PCIe id inside a NUMA node: the same PCIe id under two NUMA
nodes is two switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cached_property
from typing import Final, TypeAlias

import attrs

from koordcore._record import record

Location: TypeAlias = tuple[int, str] | None

HOPPER_MODELS: Final = ("H100", "H800", "H20")
"""Cards that an NVSwitch joins in groups of 1, 2, 4 and 8."""

HOPPER_PARTITIONS: Final[dict[int, tuple[tuple[int, ...], ...]]] = {
    1: tuple((minor,) for minor in range(8)),
    2: ((0, 1), (2, 3), (4, 5), (6, 7)),
    4: ((0, 1, 2, 3), (4, 5, 6, 7)),
    8: ((0, 1, 2, 3, 4, 5, 6, 7),),
}
"""Partition size to groups of minors; every group scores 1."""


def hopper_model(model: str) -> bool:
    """Tell whether a GPU model has the built-in partitions.

    These are the names that upstream knows, and the forms in which the driver really reports them (vendor
    before, memory or variant after), except the PCIe and NVL cards, which no switch joins.

    Examples
    --------
    >>> hopper_model("H20"), hopper_model("NVIDIA-H20"), hopper_model("H100-80GB-HBM3"), hopper_model("H200")
    (True, True, True, False)
    """
    name, _, variant = model.removeprefix("NVIDIA-").partition("-")
    return name in HOPPER_MODELS and not variant.startswith(("PCIe", "NVL"))


class TopologyScope(IntEnum):
    """How near the cards of one pod must be; a larger level is a smaller scope."""

    NODE = 1
    NUMA_NODE = 2
    PCIE = 3
    DEVICE = 4

    @classmethod
    def of(cls, word: str) -> TopologyScope:
        """Read upstream's word; a word that nobody knows demands no more than a known topology."""
        return _SCOPES.get(word, cls.NODE)


_SCOPES: Final = {
    "Node": TopologyScope.NODE,
    "NUMANode": TopologyScope.NUMA_NODE,
    "PCIe": TopologyScope.PCIE,
    "Device": TopologyScope.DEVICE,
}


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int, count: int) -> int:
    """Keep the ``count`` lowest set bits of a mask."""
    kept = 0
    for _ in range(count):
        low = mask & -mask
        kept |= low
        mask ^= low
    return kept


@record
class Switch:
    """A PCIe switch with its devices.

    Parameters
    ----------
    numa, pcie
        Its name.
    mask
        Its devices.
    """

    numa: int
    pcie: str
    mask: int


def _frozen(locations: Iterable[tuple[int, Location]]) -> tuple[tuple[int, Location], ...]:
    return tuple(locations)


@record
class DeviceLayout:
    """The devices of one type with their locations.

    Parameters
    ----------
    locations
        ``(minor, location)`` of every device, ascending.
    """

    locations: tuple[tuple[int, Location], ...] = attrs.field(converter=_frozen)

    @cached_property
    def complete(self) -> bool:
        """There are devices, and every one has a location (upstream then builds a topology tree)."""
        return bool(self.locations) and all(location is not None for _, location in self.locations)

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Switches in upstream's order: NUMA node, then PCIe id as text (``10`` before ``2``)."""
        masks: dict[tuple[int, str], int] = {}
        for minor, location in self.locations:
            if location is not None:
                masks[location] = masks.get(location, 0) | 1 << minor
        return tuple(Switch(numa, pcie, mask) for (numa, pcie), mask in sorted(masks.items()))

    @cached_property
    def numa_masks(self) -> dict[int, int]:
        """NUMA node to its devices, ascending; -1 is a group of its own."""
        masks: dict[int, int] = {}
        for switch in self.switches:
            masks[switch.numa] = masks.get(switch.numa, 0) | switch.mask
        return masks

    @cached_property
    def pcie_of(self) -> dict[int, str]:
        """PCIe id of each minor that has a location."""
        return {minor: location[1] for minor, location in self.locations if location is not None}

    @cached_property
    def pcie_masks(self) -> dict[str, int]:
        """PCIe id to its devices, whatever the NUMA node."""
        masks: dict[str, int] = {}
        for switch in self.switches:
            masks[switch.pcie] = masks.get(switch.pcie, 0) | switch.mask
        return masks

    def pcies(self, mask: int) -> tuple[str, ...]:
        """PCIe ids that a set of devices touches, in text order; devices without location have none."""
        return tuple(sorted(pcie for pcie, group in self.pcie_masks.items() if group & mask))

    def numa_nodes(self, mask: int) -> int:
        """Bit mask of the NUMA ids that a set of devices touches; unknown ones leave no bit."""
        return sum(1 << numa for numa, group in self.numa_masks.items() if numa >= 0 and group & mask)

    def spread(self, mask: int) -> tuple[int, int]:
        """Count the NUMA nodes and the switches that a set of devices touches."""
        numas = sum(1 for group in self.numa_masks.values() if group & mask)
        return numas, sum(1 for switch in self.switches if switch.mask & mask)

    def within(self, mask: int, scope: TopologyScope) -> bool:
        """Tell whether a set of devices lies inside one scope of that kind; an unknown place lies in none."""
        if scope is TopologyScope.NODE:
            return True
        if scope is TopologyScope.DEVICE:
            return mask & (mask - 1) == 0
        if mask & ~sum(self.pcie_masks.values()):
            return False
        numas, switches = self.spread(mask)
        return numas <= 1 if scope is TopologyScope.NUMA_NODE else switches <= 1

    def numa_filter(self, numa_nodes: int) -> int:
        """Devices that a NUMA affinity admits: inside it, or on an unknown NUMA node; never without location.

        Parameters
        ----------
        numa_nodes
            Bit mask of NUMA ids.
        """
        return sum(
            switch.mask for switch in self.switches if switch.numa < 0 or numa_nodes >> switch.numa & 1
        )
