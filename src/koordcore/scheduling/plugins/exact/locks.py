"""Nodes of vendors whose device plugin serves one pod after another and locks the node meanwhile."""

from __future__ import annotations

import numpy as np

from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace


class _Concerned:
    """Numbers of the nodes whose vendor's plugin has conditions of its own."""

    def __init__(self, workspace: Workspace) -> None:
        # What device plugins and Device objects say is read in the second call of a line at the earliest.
        from koordcore.protocol.device_object import GPU_VENDOR
        from koordcore.protocol.device_plugins import LOCKS

        vendors = workspace.layout.kinds.label(GPU_VENDOR)
        asking = vendors.judge(lambda vendor: vendor in LOCKS)
        self.rows = frozenset(np.flatnonzero(asking).tolist())

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left, if there are none; who joins is told by what it says."""
        return not self.rows


def locking_rows(workspace: Workspace) -> frozenset[int]:
    """Give the rows of the nodes whose vendor's plugin has conditions of its own."""
    return workspace.once(_Concerned).rows


def locked(workspace: Workspace) -> bool:
    """Tell whether a node carries the lock of a device plugin, which another time may end."""
    rows = locking_rows(workspace)
    if not rows:
        return False
    from koordcore.protocol.device_plugins import LOCKS

    return any(not set(LOCKS.values()).isdisjoint(workspace.layout.nodes[row].annotations) for row in rows)


def forget_vendors(workspace: Workspace) -> None:
    """Take note that nodes were replaced."""
    workspace.drop(_Concerned)
