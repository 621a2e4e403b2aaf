"""Devices that follow the cards of a pod: NICs (or FPGAs) near the GPUs that were chosen.

Given the PCIe switches of the leading type, a :class:`Followers` tells what its own type costs there, and
then picks. All NICs that can serve are equal to a request but for their score, so counting them per switch
decides.
"""

from __future__ import annotations

from collections.abc import Collection

from koordcore.allocators.device.view import TypeView
from koordcore.topology.devices import bits

Picked = tuple[tuple[int, int], ...]
"""``(minor, how often)`` in the order of selection; more than once only for several VFs of one device."""


class Followers:
    """The usable devices of one following type.

    Parameters
    ----------
    view
        Its devices.
    same_pcie
        They must sit on exactly the switches of the leading type, one on each at least.
    """

    def __init__(self, view: TypeView, *, same_pcie: bool) -> None:
        self.view = view
        self.same_pcie = same_pcie
        self.count = view.want.count
        self.several = view.want.by_vf
        self._masks = view.shape.layout.pcie_masks

    @property
    def order(self) -> list[int]:
        """Usable devices, best first; most questions need their number only."""
        return self.view.order

    def _local(self, pcie: str) -> int:
        """Usable devices on a switch."""
        return self._masks.get(pcie, 0) & self.view.usable

    def capacity(self, minors: int) -> int:
        """Count how often a set of devices can give the request in all."""
        return sum(map(self.view.slots, bits(minors))) if self.several else minors.bit_count()

    @property
    def suffices(self) -> bool:
        """There are enough devices, wherever they sit."""
        # Several VFs of one device count only where different devices do not suffice.
        usable = self.view.usable
        return usable.bit_count() >= self.count or self.capacity(usable) >= self.count

    def desired(self, switches: Collection[str]) -> int:
        """How many devices must be found."""
        return max(self.count, len(switches)) if self.same_pcie else self.count

    def remote(self, switches: Collection[str]) -> int | None:
        """Count the devices that would have to come from other switches; ``None`` where it cannot be done."""
        if self.same_pcie:
            return self._beside(switches)
        if not self.suffices:
            return None
        local = 0
        for pcie in switches:
            local += self._local(pcie).bit_count()
        return max(0, self.count - local)

    def _beside(self, switches: Collection[str]) -> int | None:
        if not switches:
            placeless = self.view.usable & ~sum(self._masks.values())
            return 0 if placeless.bit_count() >= self.count else None
        found = 0
        for pcie in switches:
            own = self._local(pcie)
            if not own:
                return None
            found |= own
        desired = self.desired(switches)
        return 0 if found.bit_count() >= desired or self.capacity(found) >= desired else None

    def pick(self, switches: Collection[str], numa_nodes: int = 0) -> Picked:
        """Take devices near the switches: one per switch in turn, then second ones, then from elsewhere.

        Every switch brings one, also where that is more than was asked (upstream's secondary types).

        Parameters
        ----------
        numa_nodes
            Bit mask of the NUMA nodes of the leading type: among remote devices, those inside come first.
        """
        desired = self.desired(switches)
        most = max(desired, len(switches))
        near = self._round_robin(switches)
        chosen = near[:most]
        if self.same_pcie and not self._covers(switches, chosen):
            # Turns of devices that cannot serve have left a switch without: one on each comes first.
            places = [self._local(pcie) for pcie in switches]
            firsts = [next(minor for minor in self.order if place >> minor & 1) for place in places]
            chosen = (firsts + [minor for minor in near if minor not in firsts])[:most]
        if len(chosen) < desired:
            remote = self._elsewhere(switches, chosen, numa_nodes)[: desired - len(chosen)]
            chosen.extend(sorted(remote, key=self.order.index))
        often = dict.fromkeys(chosen, 1)
        missing = desired - len(chosen)
        while missing > 0:
            for minor in chosen:
                if missing and often[minor] < self.view.slots(minor):
                    often[minor] += 1
                    missing -= 1
        return tuple(often.items())

    def _covers(self, switches: Collection[str], chosen: Collection[int]) -> bool:
        pcie_of = self.view.shape.layout.pcie_of
        return {pcie_of[minor] for minor in chosen} == set(switches)

    def _round_robin(self, switches: Collection[str]) -> list[int]:
        """List the usable devices of some switches: the first of each, then the second of each, and so on.

        A device that cannot serve keeps its turn, as upstream has it.
        """
        view = self.view
        rounds: list[tuple[int, tuple[bool, int, int], int]] = []
        for pcie in switches:
            own = view.ranked(view.shape.layout.pcie_masks.get(pcie, 0) & view.allowed)
            rounds.extend((turn, rank, minor) for turn, (rank, minor) in enumerate(own))
        return [minor for _, _, minor in sorted(rounds) if view.usable >> minor & 1]

    def _elsewhere(self, switches: Collection[str], chosen: Collection[int], numa_nodes: int) -> list[int]:
        layout = self.view.shape.layout
        rest = [minor for minor in self.order if minor not in chosen]
        if self.same_pcie:
            return [] if switches else [minor for minor in rest if minor not in layout.pcie_of]
        if not numa_nodes:
            return rest
        inside = layout.numa_filter(numa_nodes)
        return sorted(rest, key=lambda minor: not inside >> minor & 1)
