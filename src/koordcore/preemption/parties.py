"""Who takes part in a preemption, as columns: members that need room, who may leave, and their jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record

BoolMatrix: TypeAlias = NDArray[np.bool_]


def no_counts() -> IntVector:
    """Give no counts, shape (0,)."""
    return np.zeros(0, dtype=np.int64)


def few_distinct(values: IntVector) -> list[int]:
    """Give the values that occur, ascending: quickly where there are few, such as priorities."""
    found = list[int]()
    while len(values) and len(found) < 8:
        found.append(int(values.min()))
        values = values[values > found[-1]]
    return found + np.unique(values).tolist() if len(values) else found


class Names(Sequence[str]):
    """Names that are made when somebody asks for one: of thousands of candidates a few are ever told."""

    def __init__(self, size: int, name: Callable[[int], str]) -> None:
        self._size, self._name = size, name

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self._name(one) for one in range(self._size)[index])
        return self._name(range(self._size)[index])


@record(eq=False, kw_only=True)
class MemberShape:
    """Members that are interchangeable for every filter.

    Parameters
    ----------
    request
        Amounts per resource, shape (R,).
    allowed
        Nodes that may take one once the right pods have left, shape (N,): labels, taints, cordons.
    most
        Members of this shape that each node takes alone once everybody has left, as far as that is known
        beside the amounts, shape (N,); empty for no such limit.
    now
        Nodes that the filters let take one as things stand, shape (N,); empty where only amounts are known.
    elsewhere
        What the filters say of a node hangs on who runs on others, too.
    """

    request: IntVector
    allowed: BoolVector
    most: IntVector = attrs.field(factory=no_counts)
    now: BoolVector = attrs.field(factory=lambda: np.zeros(0, dtype=np.bool_))
    elsewhere: bool = False


@record(eq=False)
class ByNode:
    """What pods that are in the order of their nodes come to on each, worked out once for all who ask.

    Parameters
    ----------
    node
        Row of the node of each, ascending, shape (V,).
    amounts
        What each holds, shape (R, V).
    nodes
        How many nodes there are.
    """

    node: IntVector
    amounts: IntMatrix
    nodes: int
    _sums: dict[int, IntVector] = attrs.field(factory=dict, init=False)
    _largest: dict[int, IntVector] = attrs.field(factory=dict, init=False)

    @cached_property
    def starts(self) -> IntVector:
        """Where each node's pods begin, shape (N + 1,)."""
        return np.searchsorted(self.node, np.arange(self.nodes + 1)).astype(np.int64)

    def sums(self, resource: int) -> IntVector:
        """Give how much of a resource all pods of each node hold, shape (N,)."""
        if resource not in self._sums:
            self._sums[resource] = self.added(self.amounts[resource])
        return self._sums[resource]

    def largest(self, resource: int) -> IntVector:
        """Give the most of a resource that a single pod of each node holds, shape (N,)."""
        if resource not in self._largest:
            self._largest[resource] = self._each(np.maximum, self.amounts[resource])
        return self._largest[resource]

    def added(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up what is said of each pod, shape (..., V), on each node, shape (..., N)."""
        return self._each(np.add, values)

    def _each(self, joined: np.ufunc, values: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.zeros((*values.shape[:-1], self.nodes), dtype=np.int64)
        rows, starts = self._occupied
        if len(rows):
            found[..., rows] = joined.reduceat(values, starts, axis=-1)
        return found

    @cached_property
    def _occupied(self) -> tuple[IntVector, IntVector]:
        """Rows of the nodes with pods, and where each one's begin."""
        rows = np.flatnonzero(self.starts[1:] > self.starts[:-1])
        return rows, self.starts[rows]


@record(eq=False, kw_only=True)
class Candidates:
    """Pods that may be evicted; V of them.

    Parameters
    ----------
    keys
        ``namespace/name``.
    node
        Row of the node that each runs on, shape (V,).
    amounts
        What each gives back, shape (R, V).
    priority
        Shape (V,).
    job
        Index of the job that each belongs to, shape (V,).
    restart
        Cost of restarting each, as the caller says, shape (V,); empty for none.
    covered
        Which disruption budgets select each, shape (B, V).
    source
        Where each stands among the running pods, shape (V,); empty where nobody asks.
    by_node
        What those of each node come to, where they are in the order of their nodes and it is known.
    """

    keys: Sequence[str]
    node: IntVector
    amounts: IntMatrix
    priority: IntVector
    job: IntVector
    restart: IntVector = attrs.field(factory=no_counts)
    covered: BoolMatrix = attrs.field(factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    source: IntVector = attrs.field(factory=no_counts)
    by_node: ByNode | None = None

    def __len__(self) -> int:
        return len(self.keys)


@record(eq=False, kw_only=True)
class Jobs:
    """Jobs of the candidates; J of them. A pod without a gang is a job of one with a minimum of one.

    Parameters
    ----------
    names
        Gang id, or the pod's key.
    least
        Minimum of each, shape (J,).
    running
        Bound pods of each, evictable or not, shape (J,).
    protected
        Those of them that may not be evicted, shape (J,).
    gang
        Which of them are gangs, shape (J,).
    """

    names: Sequence[str]
    least: IntVector
    running: IntVector
    protected: IntVector
    gang: BoolVector

    @cached_property
    def slack(self) -> IntVector:
        """How many pods of each may go without breaking it, shape (J,), to be read only."""
        if not self.gang.any():
            return np.broadcast_to(np.int64(0), len(self.least))
        slack: IntVector = np.maximum(0, self.running - self.least)
        return slack

    @cached_property
    def spares(self) -> BoolVector:
        """Which of them can spare a pod, shape (J,)."""
        return self.slack > 0 if self.gang.any() else np.zeros(len(self.least), dtype=np.bool_)

    @cached_property
    def several(self) -> BoolVector:
        """Which of them have more than one pod, shape (J,)."""
        return self.running > 1 if self.gang.any() else np.zeros(len(self.least), dtype=np.bool_)

    @cached_property
    def breakable(self) -> BoolVector:
        """Which jobs may be broken: all their pods may be evicted, shape (J,)."""
        if not self.gang.any():
            return np.ones(len(self.least), dtype=np.bool_)
        breakable: BoolVector = self.protected == 0
        return breakable
