"""The cluster as a value, and the changes that lead from one to the next."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.snapshot.changes import (
        Change as Change,
        NodeAdded as NodeAdded,
        NodeRemoved as NodeRemoved,
        NodeReplaced as NodeReplaced,
        PodBound as PodBound,
        PodEnded as PodEnded,
        PodPending as PodPending,
        PodUpdated as PodUpdated,
        RecordAdded as RecordAdded,
        RecordRemoved as RecordRemoved,
        RecordReplaced as RecordReplaced,
    )
    from koordcore.snapshot.cluster import ClusterSnapshot as ClusterSnapshot
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.snapshot.changes": (
                "Change",
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
            ),
            "koordcore.snapshot.cluster": ("ClusterSnapshot",),
        },
    )
