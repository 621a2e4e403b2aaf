"""How many members of a gang nodes take one after the other, by plain resources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore.allocators.gang.demand import IntMatrix, IntVector, Member


def shared_slots(
    members: Sequence[Member], requests: Sequence[IntVector], slots: Sequence[IntVector], free: IntMatrix
) -> IntVector:
    """Count how many members each node takes one after the other until the first that does not fit.

    Parameters
    ----------
    members
        In the order in which they are tried.
    requests, slots
        Per shape: amounts of one member, shape (R,); what each node takes of it alone, shape (nodes,).
    free
        What each node has left, shape (R, nodes).
    """
    if len(requests) == 1:
        return np.minimum(slots[0], len(members))
    left = free.copy()
    going = np.ones(free.shape[1], dtype=np.bool_)
    taken = np.zeros(free.shape[1], dtype=np.int64)
    held = np.zeros((len(requests), free.shape[1]), dtype=np.int64)
    for member in members:
        request = requests[member.shape][:, None]
        fits = ((left >= request) | (request <= 0)).all(axis=0) & (held[member.shape] < slots[member.shape])
        going &= fits
        left -= request * going
        held[member.shape] += going
        taken += going
    return taken
