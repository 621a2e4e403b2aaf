"""The cluster as a value, and the changes that lead from one to the next."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.snapshot.changes import Change as Change
    from koordcore.snapshot.changes import NodeAdded as NodeAdded
    from koordcore.snapshot.changes import NodeRemoved as NodeRemoved
    from koordcore.snapshot.changes import NodeReplaced as NodeReplaced
    from koordcore.snapshot.changes import PodBound as PodBound
    from koordcore.snapshot.changes import PodEnded as PodEnded
    from koordcore.snapshot.changes import PodPending as PodPending
    from koordcore.snapshot.changes import PodUpdated as PodUpdated
    from koordcore.snapshot.changes import RecordAdded as RecordAdded
    from koordcore.snapshot.changes import RecordRemoved as RecordRemoved
    from koordcore.snapshot.changes import RecordReplaced as RecordReplaced
    from koordcore.snapshot.cluster import ClusterSnapshot as ClusterSnapshot
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.snapshot.changes": (
                "Change NodeAdded NodeRemoved NodeReplaced PodBound PodEnded PodPending "
                "PodUpdated RecordAdded RecordRemoved RecordReplaced"
            ),
            "koordcore.snapshot.cluster": "ClusterSnapshot",
        },
    )
