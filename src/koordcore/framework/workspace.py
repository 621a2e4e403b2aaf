"""The private scratch copy inside one call: mutable columns with an operation log.

Nobody outside the call sees it. Every change is logged, so a gang, a dry run or a what-if rolls back to a
checkpoint; ``freeze`` turns the end state into a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from koordcore._arrays import AMOUNT_LIMIT, ClusterLayout, IntMatrix, freeze, node_columns
from koordcore._columns import ClusterColumns
from koordcore._vector import Vector
from koordcore.framework.node_moves import Departures, NodeMoves
from koordcore.framework.node_view import REQUESTED, Amounts, Shape
from koordcore.model.nodes import NodeState, node_state
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import counted
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, concerned, kept_values, node_values, state_at
from koordcore.snapshot.forking import hand_columns, with_states

_SHAPES_KEPT: Final = 1024
"""Shapes of pods whose amounts are remembered; where all pods differ they would be kept for nothing."""
_FEW: Final = 64
"""Nodes that are added up anew for columns of all, which else are made of those that were before."""

T = TypeVar("T")


class Workspace(Amounts):
    """Mutable working state over a snapshot.

    Attributes
    ----------
    snapshot
        What the present call started from; its records and pending pods are those of the call.
    start, origin
        What the ledgers of plugins that read the journal start from, and how much of it was before that.
    began
        Length of the journal when the present call began.
    stands
        How much of the journal the snapshot contains.
    journal
        ``(pod, row, +1 or -1)`` for every pod that came to or left a node, undone changes included; appended
        only. A ledger that reads it needs no undo of its own.
    now
        The clock of the call; ``None`` where the caller gave none.
    relabelled
        A node that was replaced before the present call says something else under a label that was looked at.
    """

    def __init__(self, snapshot: ClusterSnapshot, now: datetime | None = None) -> None:
        super().__init__(snapshot)
        self.snapshot = snapshot
        self.now = now
        self.journal: list[tuple[Pod, int, int]] = []
        self.start, self.origin = snapshot, 0
        self.began = self.stands = 0
        self.relabelled = False
        self._started = 0  # the era in which `start` stands
        self._made: dict[Callable[[Workspace], Any], Any] = {}
        self._pods: dict[int, dict[PodKey, Pod]] = {}
        self._values: dict[Callable[..., Any], list[Any]] = {}
        # The values as some snapshot keeps them, and how much had changed by then.
        self._kept: dict[Callable[..., Any], Vector[Any]] = {}
        self._kept_at = 0
        self._bound: dict[PodKey, Pod] = {}
        self._gone: dict[PodKey, int] = {}
        # How to undo each change: what to call, with what. Tuples, because a closure is five objects for the
        # garbage collector to look after.
        self._log: list[tuple[Any, ...]] = []
        # Values that were worked out when somebody had come or left: how long the log was, and where.
        self._late: list[tuple[int, Callable[[ClusterSnapshot, NodeState], Any], list[int]]] = []
        self._changes: dict[tuple[Shape, Shape], IntMatrix] = {}
        # Rows are those of a snapshot to which nobody has led yet: its nodes joined and left already.
        self._between: Departures | None = None

    def pods_on(self, row: int) -> dict[PodKey, Pod]:
        """Give the pods that hold room on a node now."""
        pods = self._pods.get(row)
        if pods is None:
            pods = self._pods[row] = {pod.key: pod for pod in state_at(self.snapshot, row).pods}
        return pods

    def came(self, key: PodKey) -> bool:
        """Tell whether a pod holds room now that it did not hold when the call began."""
        return key in self._bound

    def once(self, make: Callable[[Workspace], T]) -> T:
        """Give what ``make(self)`` gave first; plugins that need the same ledger share it this way."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def values(self, build: Callable[[ClusterSnapshot, NodeState], T]) -> list[T]:
        """Give the working list of one value per node (see :meth:`ClusterSnapshot.node_values`).

        Change it only through :meth:`put`, so that it can be undone.
        """
        values = self._values.get(build)
        if values is None:
            # Whoever was touched since the last freeze is looked at when the next snapshot is to keep them.
            self._kept[build] = node_values(self.snapshot, build)
            values = self._values[build] = list(self._kept[build])
            if self._between is not None:
                self._move_values(build, self._between)
            # Who came and left in this call before anybody asked.
            rows = self._changed()
            for row in rows:
                values[row] = build(self.snapshot, self.state_of(row))
            if rows and self._log:
                self._late.append((len(self._log), build, rows))
        return values

    def knows(self, build: Callable[[ClusterSnapshot, NodeState], Any]) -> bool:
        """Tell whether values were worked out already; others will count who is there by then."""
        return build in self._values

    def state_of(self, row: int) -> NodeState:
        """Give a node with the pods that hold room on it now."""
        return node_state(self.layout.nodes[row], self.pods_on(row).values())

    def put(self, values: list[T], row: int, value: T) -> None:
        """Replace one node's value in a list that :meth:`values` gave.

        Parameters
        ----------
        values, row, value
            The list itself, the node, and its new value.
        """
        self._log.append((self._set, values, row, values[row]))
        self._set(values, row, value)

    def _set(self, values: list[T], row: int, value: T) -> None:
        values[row] = value
        self.touched.append(row)

    def log(self, undo: Callable[[], None]) -> None:
        """Log how to undo a change made elsewhere, in a plugin's own ledger."""
        self._log.append((undo,))

    def _add(self, pod: Pod, row: int, sign: int, change: IntMatrix | None = None) -> None:
        """Count a pod's amounts on a node, or take them off again."""
        if change is None:
            key = (tuple(pod.requests.items()), tuple(pod.scored_requests.items()))
            change = self._changes.get(key)
            if change is None:
                if len(self._changes) >= _SHAPES_KEPT:
                    self._changes.clear()
                change = self._changes[key] = self.change_of(*key)
        there = self.by_node[row]
        if sign > 0:
            there += change.ravel()
        else:
            there -= change.ravel()
        self.touched.append(row)
        self.journal.append((pod, row, sign))

    def bind(self, pod: Pod, row: int, change: IntMatrix | None = None) -> None:
        """Put a pod, with its node and annotations set, on its node; room is not checked.

        Parameters
        ----------
        pod, row, change
            Who comes, the node, and what :meth:`change_of` gives, ``(4, R)``, if known.
        """
        self.pods_on(row)[pod.key] = pod
        self._bound[pod.key] = pod
        self._add(pod, row, 1, change)
        self._log.append((self._unbind, pod, row))

    def _unbind(self, pod: Pod, row: int) -> None:
        del self.pods_on(row)[pod.key]
        del self._bound[pod.key]
        self._add(pod, row, -1)

    def annotate(self, key: PodKey, row: int, annotations: Mapping[str, str]) -> None:
        """Write more on a pod that this workspace has bound; nothing that is counted may depend on it.

        Parameters
        ----------
        key, row, annotations
            The pod, its node, and what is added to what it has.
        """
        before = self.pods_on(row)[key]
        self._rewrite(before.at(before.node_name, annotations=annotations), row)
        self._log.append((self._rewrite, before, row))

    def _rewrite(self, pod: Pod, row: int) -> None:
        self.pods_on(row)[pod.key] = self._bound[pod.key] = pod

    def evict(self, key: PodKey, row: int) -> Pod:
        """Take a pod off its node."""
        pod = self.pods_on(row).pop(key)
        fresh = self._bound.pop(key, None)
        if fresh is None:  # it ran before this call; one that came in it only takes that back
            self._gone[key] = row
        self._add(pod, row, -1)
        self._log.append((self._return, pod, row, fresh))
        return pod

    def _return(self, pod: Pod, row: int, fresh: Pod | None) -> None:
        self.pods_on(row)[pod.key] = pod
        if fresh is None:
            del self._gone[pod.key]
        else:
            self._bound[pod.key] = fresh
        self._add(pod, row, 1)

    def checkpoint(self) -> int:
        """Mark the present state."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Go back to a mark."""
        while len(self._log) > mark:
            undo, *arguments = self._log.pop()
            undo(*arguments)
        # Values that were worked out after the mark know who was there by then; no log says who was before.
        kept = []
        for at, build, rows in self._late:
            if at > mark:
                values = self._values[build]
                for row in rows:
                    self._set(values, row, build(self.snapshot, self.state_of(row)))
            # At a mark above 0 somebody had come already: a later rollback below it works them out again.
            if at <= mark or mark:
                kept.append((min(at, mark), build, rows))
        self._late = kept

    def commit(self) -> None:
        """Forget how to go back: what was done so far stands, and every mark is void."""
        self._log.clear()
        self._late.clear()

    def freeze(self) -> ClusterSnapshot:
        """Give the snapshot of the present state; the workspace stands on it and may be used on.

        Whoever uses it on starts with an empty log and with nobody bound or gone.
        """
        rows = self._changed()
        if not rows:
            return self.snapshot
        bound, pending = self._bound, self.snapshot.pending
        waiting = [pod for pod in pending if pod.key not in bound]
        if len(waiting) < len(pending):
            pending = tuple(waiting)
        end = with_states(self.snapshot, {row: self.state_of(row) for row in rows}, pending)
        if self._grows():
            return end  # its columns have a row more than ours: it makes its own, and we cannot stand on it
        object.__setattr__(end, "layout", self.layout)
        hand_columns(self.snapshot, end, self._columns)
        object.__setattr__(end, "_node_memo", self._memo())
        self.snapshot = end
        self.stands = len(self.journal)
        return end

    def _columns(self) -> ClusterColumns | None:
        """Give the columns of a snapshot of the present state; ``None`` where counting anew is better."""
        # A pod that asks for more than there can be was counted with less.
        if len(self.shifted) > _FEW or self.amounts[: REQUESTED + 1].max(initial=0) >= AMOUNT_LIMIT:
            return None
        requested, scored = self.requested.copy(), self.scored.copy()
        for row in self.shifted:
            pods = self.pods_on(row).values()
            requested[:, row], scored[:, row] = node_columns(self.layout, self.layout.names[row], pods)
        return ClusterColumns(layout=self.layout, requested=freeze(requested), scored=freeze(scored))

    def _memo(self) -> dict[Callable[..., Any], Vector[Any]]:
        """Give the values of nodes as they are now, for a snapshot to keep."""
        rows = {*self.touched[self._kept_at :]}
        memo = {}
        for build, values in self._values.items():
            memo[build] = self._kept[build].changed({row: values[row] for row in rows})
        self._kept, self._kept_at = memo, len(self.touched)
        return memo

    def _changed(self) -> list[int]:
        """Give the rows of nodes where anybody came or left in this call."""
        row_of = self.layout.row_of
        return sorted({row_of[str(pod.node_name)] for pod in self._bound.values()}.union(self._gone.values()))

    def _grows(self) -> bool:
        """Tell whether a pod brought a resource that no column counts."""
        named = frozenset[str]().union(*(pod.requests for pod in self._bound.values()))
        return any(counted(name) for name in named.difference(self.layout.index))

    def advance(
        self,
        snapshot: ClusterSnapshot,
        changes: ClusterChanges,
        removed: Callable[[Pod, int], None],
        placed: Callable[[Pod, int], None],
    ) -> bool:
        """Go to another snapshot of the line with the same rows; nothing may be under way.

        Parameters
        ----------
        snapshot
            Where to go on.
        changes
            What lies between.
        removed, placed
            Whom to tell of each pod, once it is off its node or on it.

        Returns
        -------
        bool
            Whether it was possible; if not, the workspace is of no use any more.
        """
        index, layout = self.layout.index, self.layout
        counts = (name for pod, _, sign in changes.pods if sign > 0 for name in pod.requests)
        if any(name not in index and counted(name) for name in counts):
            return False
        if changes.nodes:
            layout = snapshot.layout
            if layout.resources != self.layout.resources:
                return False
            self.relabelled = self.layout.kinds.tell_apart(changes.nodes.values())
        for pod, row, sign in changes.pods:
            if sign < 0:
                self.evict(pod.key, row)
                removed(pod, row)
            else:
                self.bind(pod, row)
                placed(pod, row)
        self.offer(changes.nodes, layout)
        self._values_of(snapshot, changes)
        self.snapshot, self._between = snapshot, None
        self.settle()
        if self.era != self._started:
            self.start, self.origin, self._started = snapshot, len(self.journal), self.era
        return True

    def move(self, layout: ClusterLayout, between: Departures) -> None:
        """Let nodes join and leave and resources come in, before :meth:`advance` leads to that snapshot.

        Who was on nodes that left is gone already. What :meth:`once` gave is forgotten, but for what has a
        method ``moved`` of its own that says it has followed. Who reads ``touched`` or ``journal`` on has to
        have read it to the end, and to take rows for what they are now.

        Parameters
        ----------
        layout
            That of the snapshot, with the same resources and maybe more.
        between
            What lies between.
        """
        moves = between.moves
        self.settle()
        self._memo()  # what changed so far is told by the rows that nodes had
        if moves.resources:
            self._changes.clear()  # they tell amounts by the rows that resources had
        self._move_amounts(moves, layout)
        # Who was on other nodes that are the same nobody asks for before there is a snapshot again.
        changed = between.changes.states
        self._pods = {row: {pod.key: pod for pod in old.pods} for row, (old, _) in changed.items()}
        for build in self._values:
            self._move_values(build, between)
        self._between = between
        self._made = {make: made for make, made in self._made.items() if _moved(made, moves)}

    def _move_values(self, build: Callable[[ClusterSnapshot, NodeState], Any], between: Departures) -> None:
        """Give values the rows that nodes have after others joined and left."""
        moves, values = between.moves, self._values[build]
        self._kept[build] = self._kept[build].spliced(moves.edits, dict.fromkeys(moves.came))
        for at, gone, come in moves.edits:
            values[at : at + gone] = [None] * come
        for row in moves.came:
            values[row] = build(self.snapshot, between.changes.states[row][0])

    def _values_of(self, snapshot: ClusterSnapshot, changes: ClusterChanges) -> None:
        """Bring the values of nodes to another snapshot."""
        records = [pair for pairs in changes.records.values() for pair in pairs]
        for build, values in self._values.items():
            names = concerned(build, records)
            if names is None:  # it may read any record
                for row, value in enumerate(node_values(snapshot, build)):
                    if value is not values[row]:
                        self._set(values, row, value)
                continue
            row_of = self.layout.row_of
            rows = {*changes.states, *(row_of[name] for name in names if name in row_of)}
            kept = kept_values(snapshot, build)
            for row in sorted(rows):
                self._set(
                    values, row, build(snapshot, state_at(snapshot, row)) if kept is None else kept[row]
                )

    def made(self, make: Callable[[Workspace], Any]) -> bool:
        """Tell whether anybody has asked :meth:`once` for it."""
        return make in self._made

    def drop(self, make: Callable[[Workspace], Any]) -> None:
        """Forget what :meth:`once` gave, so that the next to ask makes it anew."""
        self._made.pop(make, None)

    def settle(self) -> None:
        """Begin anew: what was done so far stands, and nobody counts as bound or gone by this workspace."""
        self.commit()
        self._bound.clear()
        self._gone.clear()
        self.began = self.stands = len(self.journal)


def _moved(made: Any, moves: NodeMoves) -> bool:
    """Tell whether what a workspace keeps for plugins has followed nodes that joined and left."""
    follow = getattr(made, "moved", None)
    return follow is not None and follow(moves) is True
