"""Near which NUMA nodes the devices of a node lie, as their drivers tell.

The standard attribute is an integer, or a list of integers: the NUMA node that a device is attached to, and
maybe others that are as near. A device that tells nothing lies anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore._record import record
from koordcore.allocators.claims.pools import PoolDevice
from koordcore.model.device_slices import AttributeKind
from koordcore.topology.numa import NUMAMask

NUMA_NODE: Final = ("resource.kubernetes.io", "numaNode")
"""Domain and name of the standard attribute: the NUMA node that a device is attached to, or those near it."""
OWN_NUMA_NODE: Final = "numaNode"
"""What drivers call it in their own domain."""
_MOST_NUMA: Final = 1024


@record
class NearNUMA:
    """Which devices lie near which NUMA nodes.

    Parameters
    ----------
    by_node
        By NUMA node: the devices near it.
    anywhere
        Devices that tell nothing.
    """

    by_node: Mapping[int, int]
    anywhere: int

    def devices(self, mask: NUMAMask) -> int:
        """Give the devices that may be used with some NUMA nodes."""
        found = self.anywhere
        for numa, mine in self.by_node.items():
            if mask >> numa & 1:
                found |= mine
        return found


def _near_of(one: PoolDevice) -> tuple[int, ...]:
    """Give the NUMA nodes that a device tells to be near, none where it tells nothing that can be used."""
    attributes = one.device.attributes
    names = ("/".join(NUMA_NODE), f"{one.id.driver}/{OWN_NUMA_NODE}", OWN_NUMA_NODE)
    value = next((attributes[name] for name in names if name in attributes), None)
    if value is None or value.kind is not AttributeKind.INT:
        return ()
    return tuple(numa for numa in value.values if isinstance(numa, int) and 0 <= numa < _MOST_NUMA)


def near_numa_of(devices: Sequence[PoolDevice]) -> NearNUMA:
    """Read of some devices, each a bit by its place, near which NUMA nodes they lie."""
    by_node: dict[int, int] = {}
    anywhere = 0
    for place, one in enumerate(devices):
        numas = _near_of(one)
        for numa in numas:
            by_node[numa] = by_node.get(numa, 0) | 1 << place
        anywhere |= 0 if numas else 1 << place
    return NearNUMA(by_node, anywhere)
