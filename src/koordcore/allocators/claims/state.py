"""What of the devices is in use: the sum of what all claims of the cluster hold (section 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.features import ALL_FEATURES, ClaimFeature
from koordcore.model.claims import (
    ClaimAllocation,
)
from koordcore.model.device_slices import (
    DeviceId,
)
from koordcore.model.mappings import EMPTY


@record
class DevicesInUse:
    """Devices that are held, whole or in shares.

    Parameters
    ----------
    dedicated
        Devices that one claim holds.
    shares
        Number of shares of the devices that several claims share.
    consumed
        What shares take of a device, by capacity.
    """

    dedicated: frozenset[DeviceId] = frozenset()
    shares: immutabledict[DeviceId, int] = EMPTY
    consumed: immutabledict[DeviceId, Mapping[str, int]] = EMPTY

    def charges(self, device: DeviceId) -> bool:
        """Tell whether the device's counters are charged already."""
        return device in self.dedicated or device in self.shares or device in self.consumed


def devices_in_use(
    allocations: Iterable[ClaimAllocation], features: frozenset[ClaimFeature] = ALL_FEATURES
) -> DevicesInUse:
    """Sum up allocations; devices taken with admin access are not held by it."""
    dedicated: set[DeviceId] = set()
    shares: dict[DeviceId, int] = {}
    consumed: dict[DeviceId, dict[str, int]] = {}
    sharing = ClaimFeature.CONSUMABLE_CAPACITY in features
    for allocation in allocations:
        for result in allocation.results:
            if result.admin_access:
                continue
            if result.share_id is None or not sharing:
                dedicated.add(result.id)
                continue
            shares[result.id] = shares.get(result.id, 0) + 1
            amounts = consumed.setdefault(result.id, {})
            for name, amount in result.consumed_capacity.items():
                amounts[name] = amounts.get(name, 0) + amount
    return DevicesInUse(frozenset(dedicated), immutabledict(shares), immutabledict(consumed))
