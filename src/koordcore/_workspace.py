"""The private scratch copy inside one call: mutable columns with an operation log.

Nobody outside the call sees it. Every change is logged, so a gang, a dry run or a what-if rolls back to a
checkpoint; ``freeze`` turns the end state into a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import attrs

from koordcore._arrays import PODS_ROW, ClusterColumns, ClusterLayout, IntMatrix, Rows, freeze
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import counted
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Workspace"]

T = TypeVar("T")


class Workspace:
    """Mutable working state over a snapshot.

    Attributes
    ----------
    snapshot
        Where it started; never changed.
    layout
        The static columns, shared with the snapshot.
    requested, scored
        ``(R, N)`` working copies of the dynamic columns.
    free
        ``(R, N)``: allocatable less requested; negative where a node is overcommitted.
    touched
        Row of each change, appended only: a reader remembers how far it has read and refreshes those rows.
    journal
        ``(pod, row, +1 or -1)`` for every pod that came to or left a node, undone changes included; appended
        only. A ledger that reads it needs no undo of its own.
    now
        The clock of the call; ``None`` where the caller gave none.
    """

    def __init__(self, snapshot: ClusterSnapshot, now: datetime | None = None) -> None:
        self.snapshot = snapshot
        self.now = now
        self.layout: ClusterLayout = snapshot.layout
        self.requested = snapshot.columns.requested.copy()
        self.scored = snapshot.columns.scored.copy()
        self.free = snapshot.layout.allocatable - self.requested
        self.touched: list[int] = []
        self.journal: list[tuple[Pod, int, int]] = []
        self._made: dict[Callable[[Workspace], Any], Any] = {}
        self._pods: dict[int, dict[PodKey, Pod]] = {}
        self._values: dict[Callable[..., Any], list[Any]] = {}
        self._bound: dict[PodKey, Pod] = {}
        self._gone: dict[PodKey, int] = {}
        self._log: list[Callable[[], None]] = []
        self._gathered_for: Rows | None = None
        self._gathered_at = 0
        self._gathered: dict[int, IntMatrix] = {}

    def at(self, matrix: IntMatrix, rows: Rows) -> IntMatrix:
        """Give the columns of some nodes, ``(R, n)``.

        Several evaluators look at the same few nodes one after another: what was gathered for the last
        selection is kept until anything changes.
        """
        if isinstance(rows, slice):
            return matrix[:, rows]
        if self._gathered_for is not rows or self._gathered_at != len(self.touched):
            self._gathered_for, self._gathered_at, self._gathered = rows, len(self.touched), {}
        found = self._gathered.get(id(matrix))
        if found is None:
            found = self._gathered[id(matrix)] = matrix.take(rows, axis=1)
        return found

    def pods_on(self, row: int) -> dict[PodKey, Pod]:
        """Give the pods that hold room on a node now."""
        pods = self._pods.get(row)
        if pods is None:
            pods = self._pods[row] = {pod.key: pod for pod in self.snapshot.nodes[row].pods}
        return pods

    def once(self, make: Callable[[Workspace], T]) -> T:
        """Give what ``make(self)`` gave first; features that need the same ledger share it this way."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def values(self, build: Callable[[ClusterSnapshot, NodeState], T]) -> list[T]:
        """Give the working list of one value per node (see :meth:`ClusterSnapshot.node_values`).

        Change it only through :meth:`put`, so that it can be undone.
        """
        values = self._values.get(build)
        if values is None:
            values = self._values[build] = list(self.snapshot.node_values(build))
        return values

    def put(self, values: list[T], row: int, value: T) -> None:
        """Replace one node's value in a list that :meth:`values` gave."""
        before = values[row]
        values[row] = value
        self.touched.append(row)

        def undo() -> None:
            values[row] = before
            self.touched.append(row)

        self._log.append(undo)

    def log(self, undo: Callable[[], None]) -> None:
        """Log how to undo a change made elsewhere, in a feature's own ledger."""
        self._log.append(undo)

    def _add(self, pod: Pod, row: int, sign: int) -> None:
        """Count a pod's amounts on a node, or take them off again; a pod is one pod, whatever it asks for."""
        index = self.layout.index
        for name, amount in pod.requests.items():
            resource = index.get(name)
            if resource is not None and resource != PODS_ROW:
                self.requested[resource, row] += sign * amount
                self.free[resource, row] -= sign * amount
        for name, amount in pod.scored_requests.items():
            resource = index.get(name)
            if resource is not None and resource != PODS_ROW:
                self.scored[resource, row] += sign * amount
        self.requested[PODS_ROW, row] += sign
        self.free[PODS_ROW, row] -= sign
        self.scored[PODS_ROW, row] += sign
        self.touched.append(row)
        self.journal.append((pod, row, sign))

    def bind(self, pod: Pod, row: int) -> None:
        """Put a pod, with its node and annotations set, on its node; room is not checked."""
        pods = self.pods_on(row)
        pods[pod.key] = pod
        self._bound[pod.key] = pod
        self._add(pod, row, 1)

        def undo() -> None:
            del pods[pod.key]
            del self._bound[pod.key]
            self._add(pod, row, -1)

        self._log.append(undo)

    def annotate(self, key: PodKey, row: int, annotations: Mapping[str, str]) -> None:
        """Write more on a pod that this workspace has bound; nothing that is counted may depend on it."""
        pods = self.pods_on(row)
        before = pods[key]
        pods[key] = self._bound[key] = before.at(before.node_name, annotations=annotations)

        def undo() -> None:
            pods[key] = self._bound[key] = before

        self._log.append(undo)

    def evict(self, key: PodKey, row: int) -> Pod:
        """Take a pod off its node."""
        pods = self.pods_on(row)
        pod = pods.pop(key)
        fresh = self._bound.pop(key, None)
        if fresh is None:
            self._gone[key] = row
        self._add(pod, row, -1)

        def undo() -> None:
            pods[key] = pod
            if fresh is None:
                del self._gone[key]
            else:
                self._bound[key] = fresh
            self._add(pod, row, 1)

        self._log.append(undo)
        return pod

    def checkpoint(self) -> int:
        """Mark the present state."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Go back to a mark."""
        while len(self._log) > mark:
            self._log.pop()()

    def freeze(self) -> ClusterSnapshot:
        """Give the snapshot of the present state, with columns and node values already in place.

        The workspace must not be used afterwards.
        """
        rows = sorted(
            {self.layout.row_of[str(pod.node_name)] for pod in self._bound.values()}
            | set(self._gone.values())
        )
        if not rows:
            return self.snapshot
        nodes = list(self.snapshot.nodes)
        for row in rows:
            nodes[row] = NodeState(nodes[row].node, tuple(self.pods_on(row).values()))
        pending = tuple(pod for pod in self.snapshot.pending if pod.key not in self._bound)
        end = attrs.evolve(self.snapshot, nodes=tuple(nodes), pending=pending)
        if any(
            name not in self.layout.index and counted(name)
            for pod in self._bound.values()
            for name in pod.requests
        ):
            return end
        columns = ClusterColumns(
            layout=self.layout, requested=freeze(self.requested), scored=freeze(self.scored)
        )
        object.__setattr__(end, "layout", self.layout)
        object.__setattr__(end, "columns", columns)
        object.__setattr__(
            end, "_node_memo", {build: tuple(values) for build, values in self._values.items()}
        )
        return end
