"""How many pods of one shape nodes take by amounts alone."""

from __future__ import annotations

import numpy as np

from koordcore.allocators.gang.demand import IntMatrix, IntVector


def offer_slots(free: IntMatrix, request: IntVector, *, most: int) -> IntVector:
    """Count how many members of one shape every node takes.

    Parameters
    ----------
    free
        What each node has left, shape (R, nodes).
    request
        What one member asks for, shape (R,).
    most
        Upper limit, the number of members.

    Returns
    -------
    IntVector
        Shape (nodes,).
    """
    slots = np.full(free.shape[1], most, dtype=np.int64)
    for row in np.flatnonzero(request > 0):
        np.minimum(slots, free[row] // request[row], out=slots)
    return np.maximum(slots, 0, out=slots)
