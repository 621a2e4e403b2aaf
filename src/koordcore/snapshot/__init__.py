"""The cluster as a value, and the changes that lead from one to the next."""

from __future__ import annotations

from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from koordcore.snapshot.cluster import ClusterSnapshot, bind, changed_on
from koordcore.snapshot.node_values import per_node

__all__ = [
    "Change",
    "ClusterSnapshot",
    "NodeAdded",
    "NodeRemoved",
    "NodeReplaced",
    "PodBound",
    "PodEnded",
    "PodPending",
    "PodUpdated",
    "RecordAdded",
    "RecordRemoved",
    "RecordReplaced",
    "bind",
    "changed_on",
    "per_node",
]
