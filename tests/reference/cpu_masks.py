"""CPU masks as ids."""

from __future__ import annotations

from koordcore.topology.cpu import (
    CPUSet,
)


def cpu_ids(cpus: CPUSet) -> tuple[int, ...]:
    """List the members in ascending order.

    Examples
    --------
    >>> cpu_ids(11)
    (0, 1, 3)
    """
    found = []
    while cpus:
        low = cpus & -cpus
        found.append(low.bit_length() - 1)
        cpus ^= low
    return tuple(found)
