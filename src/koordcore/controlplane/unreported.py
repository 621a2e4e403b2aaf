"""Nodes whose cards nobody knows yet: they offer what is counted out of a Device object, and there is none.

Kinds are watched apart, so that a node may be seen before its Device object, or after that has gone. A pod
that is placed there then gets no cards; until the object is seen, nobody is placed there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from koordcore.model.devices import FPGA, GPU, GPU_CORE, RDMA, DeviceObject
from koordcore.model.nodes import Node, NodeState
from koordcore.snapshot import (
    Change,
    ClusterSnapshot,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

_COUNTED: Final = frozenset({GPU, GPU_CORE, RDMA, FPGA})
"""What Koordinator's manager writes on a node out of its Device object, and nobody else does."""


class UnreportedNodes:
    """Follows which nodes these are."""

    def __init__(self) -> None:
        self._offer: set[str] = set()
        self._reported: set[str] = set()
        self._unreported: set[str] = set()

    def notice(self, changes: Iterable[Change]) -> list[str]:
        """Take note of what has changed in the cluster; gives the nodes whose Device object came by it."""
        before = self._unreported.copy()
        for change in changes:
            match change:
                case NodeAdded(node) | NodeReplaced(node):
                    self._note(node.node if isinstance(node, NodeState) else node)
                case NodeRemoved(name):
                    self._tell(self._offer, name, there=False)
                case RecordAdded(DeviceObject() as record) | RecordReplaced(DeviceObject() as record):
                    self._tell(self._reported, record.name, there=True)
                case RecordRemoved(DeviceObject() as record):
                    self._tell(self._reported, record.name, there=False)
                case _:
                    pass
        return sorted((before - self._unreported) & self._offer)

    def _note(self, node: Node) -> None:
        self._tell(self._offer, node.name, there=not _COUNTED.isdisjoint(node.allocatable))

    def _tell(self, names: set[str], name: str, *, there: bool) -> None:
        """Let a name stand among some, or not, and see what that makes of the node."""
        (names.add if there else names.discard)(name)
        lacks = name in self._offer and name not in self._reported
        (self._unreported.add if lacks else self._unreported.discard)(name)

    def closed(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Close these nodes."""
        unreported = sorted(self._unreported)
        nodes = (snapshot.node(name).node for name in unreported)
        return snapshot.apply(*(NodeReplaced(attrs.evolve(node, unschedulable=True)) for node in nodes))
