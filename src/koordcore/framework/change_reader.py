"""Following what changes: within a call, each reader goes on where it stopped; and from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from koordcore._record import differing
from koordcore.snapshot.following import net_records

if TYPE_CHECKING:
    from koordcore._line import Delta, RecordPair
    from koordcore.model.nodes import Node, NodeState
    from koordcore.model.pods import Pod

E = TypeVar("E")


class ChangeReader(Generic[E]):
    """Goes through a growing list, such as the journal of a workspace, every entry once.

    Where a list is read for every pod, as in :class:`~koordcore.framework.scheduling_class.SchedulingClass`,
    a number of its own takes the reader's place.

    Parameters
    ----------
    entries
        The list; it only ever grows.
    start
        Place of the first entry to be read; when left out, what is there already counts as read.
    """

    __slots__ = ("_entries", "_read")

    def __init__(self, entries: Sequence[E], start: int | None = None) -> None:
        self._entries = entries
        self._read = len(entries) if start is None else start

    def unread(self) -> Sequence[E]:
        """Give the entries that came since the last call; empty for none."""
        begin, self._read = self._read, len(self._entries)
        return self._entries[begin : self._read]


class ClusterChanges(NamedTuple):
    """What came, left and was replaced between two snapshots with the same rows.

    Parameters
    ----------
    pods
        ``(pod, row, +1 or -1)`` for every pod that came or left; one that says something else did both.
    nodes
        Row, and the node itself before and after, of each that was replaced.
    records
        Type, and what was there before and after, of each record that was added, replaced or removed.
    states
        Row, and the node with its pods before and after, of each that is not the same object.
    said
        Names of the fields of :class:`Node` in which any node that was replaced says something else.
    """

    pods: Sequence[tuple[Pod, int, int]]
    nodes: Mapping[int, tuple[Node, Node]]
    records: Mapping[type, Sequence[RecordPair]]
    states: Mapping[int, tuple[NodeState, NodeState]]
    said: frozenset[str] = frozenset()


def changes_between(path: Sequence[Delta]) -> ClusterChanges:
    """Add steps up in which no nodes joined or left."""
    states: dict[int, tuple[NodeState, NodeState]] = {}
    for delta in path:
        for row, before, after in delta.nodes:
            assert before is not None and after is not None  # noqa: PT018  # they would have joined or left
            states[row] = (states[row][0] if row in states else before, after)
    return changes_of(states, path)


def changes_of(states: Mapping[int, tuple[NodeState, NodeState]], path: Sequence[Delta]) -> ClusterChanges:
    """Tell what changed by the nodes that are not the same, by row, and the steps that led there."""
    pods: list[tuple[Pod, int, int]] = []
    for row in sorted(states):
        pods += _moved(row, *states[row])
    nodes = {
        row: (before.node, after.node)
        for row, (before, after) in states.items()
        if before.node is not after.node
    }
    by_type: dict[type, list[RecordPair]] = {}
    for old, new in net_records(path):
        by_type.setdefault(type(new if old is None else old), []).append((old, new))
    pods.sort(key=lambda moved: moved[2])  # who leaves goes first
    return ClusterChanges(pods, nodes, by_type, states, _said(nodes.values()))


def _said(replaced: Iterable[tuple[Node, Node]]) -> frozenset[str]:
    """Give the names of the fields in which nodes say something else."""
    return frozenset().union(*(differing(before, after) for before, after in replaced))


def _moved(row: int, before: NodeState, after: NodeState) -> Iterable[tuple[Pod, int, int]]:
    """Give who left a node and who came."""
    old = {pod.key: pod for pod in before.pods}
    came = []
    for pod in after.pods:
        if old.get(pod.key) is pod:
            del old[pod.key]
        else:
            came.append((pod, row, 1))
    return [*((pod, row, -1) for pod in old.values()), *came]
