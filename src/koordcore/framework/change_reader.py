"""Following what changes within a call: each reader goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

E = TypeVar("E")


class ChangeReader(Generic[E]):
    """Goes through a growing list, such as the journal of a workspace, every entry once.

    Where a list is read for every pod, as in :class:`~koordcore.framework.scheduling_class.SchedulingClass`,
    a number of its own takes the reader's place.

    Parameters
    ----------
    entries
        The list; it only ever grows.
    behind
        Begin with its first entry. Otherwise what is there already counts as read.
    """

    __slots__ = ("_entries", "_read")

    def __init__(self, entries: Sequence[E], *, behind: bool = False) -> None:
        self._entries = entries
        self._read = 0 if behind else len(entries)

    def unread(self) -> Sequence[E]:
        """Give the entries that came since the last call; empty for none."""
        begin, self._read = self._read, len(self._entries)
        return self._entries[begin : self._read]
