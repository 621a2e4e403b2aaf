"""Where a pod stands for a reader of events, and the changes that lead there from where it stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from koordcore.model.pods import Pod
from koordcore.snapshot.changes import (
    Change,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

Standing: TypeAlias = tuple[str, Pod]
"""A pod that ``waits``, is ``bound``, or is a ``record`` and holds nothing."""

_ARRIVALS: Final[Mapping[str, Callable[[Pod], Change]]] = {
    "waits": PodPending,
    "bound": PodBound,
    "record": RecordAdded,
}
_UPDATES: Final[Mapping[str, Callable[[Pod], Change]]] = {
    "waits": PodPending,
    "bound": PodUpdated,
    "record": RecordReplaced,
}


def moves(before: Standing | None, after: Standing | None) -> Iterator[Change]:
    """Give the changes that lead from one to the other; ``None`` for a pod that is not there."""
    if before == after:
        return
    if before is not None and after is not None and _same_place(before, after):
        yield _UPDATES[after[0]](after[1])
        return
    if before is not None:
        old = before[1]
        yield RecordRemoved(old) if before[0] == "record" else PodEnded(old.key)
    if after is not None:
        yield _ARRIVALS[after[0]](after[1])


def _same_place(before: Standing, after: Standing) -> bool:
    return (before[0], before[1].node_name, before[1].uid) == (after[0], after[1].node_name, after[1].uid)
