"""Nodes by what they say: the values of a label, the taints, the cordon.

A selector looks at few labels, and these have few values; it is judged once per value. Columns are made when
they are first asked for, and follow nodes that are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._moved_rows import SPARE, moved_rows
from koordcore._vector import Splice, Table, Vector
from koordcore.model.affinity import Taint
from koordcore.model.nodes import Node

K = TypeVar("K", bound=Hashable)
IntVector: TypeAlias = NDArray[np.int64]

_MANY: Final = 256
"""Values beyond which a column with others is not written down anew."""
_STALE: Final = 64
"""Values that no node has any more are kept until there are so many of them, and as many as nodes."""


def _zeros(block: NDArray[np.int64] | None, number: int) -> IntVector:
    """Give so many zeros, of a block of these where that is long enough."""
    if block is None or len(block) < number:
        block = np.zeros(number + number // SPARE + 1, np.int64)
    return block[:number]


class NodeColumn(NamedTuple, Generic[K]):
    """One thing that nodes say.

    Parameters
    ----------
    ids
        ``(N,)``: number of each node's value.
    values
        By number; some may be those of no node any more.
    number
        Value to number.
    """

    ids: IntVector
    values: Sequence[K]
    number: Mapping[K, int]

    @classmethod
    def of(cls, said: Sequence[K]) -> NodeColumn[K]:
        """Number what nodes say, in the order of the nodes."""
        number: dict[K, int] = {}
        ids = np.array([number.setdefault(value, len(number)) for value in said], np.int64)
        return cls(ids, tuple(number), number)

    def changed(self, said: Mapping[int, K], edits: Sequence[Splice] = ()) -> NodeColumn[K]:
        """Give the column with other values in some rows.

        Parameters
        ----------
        said
            By row, all that come in among them.
        edits
            Rows that are taken out and put in before, where nodes join or leave.
        """
        if not edits and all(self.values[int(self.ids[row])] == value for row, value in said.items()):
            return self
        values, number = self.values, self.number
        new = [value for value in dict.fromkeys(said.values()) if value not in number]
        if new:
            places = range(len(values), len(values) + len(new))
            end = (Splice(len(values), 0, len(new)),)
            # Of names there are as many as nodes: they share with those of before what is the same.
            values = Vector(values) if len(values) > _MANY and not isinstance(values, Vector) else values
            number = Table(number) if len(values) > _MANY and not isinstance(number, Table) else number
            if isinstance(values, Vector) and isinstance(number, Table):
                values = values.spliced(end, dict(zip(places, new, strict=True)))
                number = number.changed((), dict(zip(new, places, strict=True)))
            else:
                values, number = (*values, *new), {**number, **dict(zip(new, places, strict=True))}
        if len(number) == 1:  # all nodes say the same
            length = len(self.ids) + sum(come - gone for _, gone, come in edits)
            return NodeColumn(_zeros(self.ids.base, length), values, number)
        ids = moved_rows(self.ids, edits) if edits else self.ids.copy()
        for row, value in said.items():
            ids[row] = number[value]
        if len(number) > 2 * len(ids) + _STALE:
            return NodeColumn.of([values[one] for one in ids.tolist()])
        return NodeColumn(ids, values, number)

    def judge(self, verdict: Callable[[K], int]) -> IntVector:
        """Evaluate a function of the value on all nodes, once per value: ``(N,)``."""
        return Judged(self, verdict).at()


class Judged(Generic[K]):
    """A function of what nodes say, evaluated once per value.

    Attributes
    ----------
    same
        The one thing that it gives for every value; ``None`` where it gives several.
    """

    def __init__(self, column: NodeColumn[K], verdict: Callable[[K], int]) -> None:
        self._verdict = verdict
        self._values: Sequence[K] | None = None
        self.follow(column)

    def follow(self, column: NodeColumn[K]) -> None:
        """Go on with what nodes say now, maybe others than before."""
        self._ids = column.ids
        if column.values is not self._values:
            self._values = column.values
            found = [self._verdict(value) for value in column.values]
            self._found: IntVector = np.array(found, np.int64)
            self.same = int(found[0]) if len({*found}) == 1 else None

    def at(self, rows: IntVector | slice = slice(None)) -> IntVector:
        """Give what the function says of some nodes: ``(n,)``."""
        ids = self._ids[rows]
        # Mostly all nodes say the same.
        return self._found[ids] if self.same is None else np.full(len(ids), self.same, np.int64)


class NodeColumns:
    """What the nodes of a layout say, column by column."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._labels: dict[str, NodeColumn[str | None]] = {}
        self._taints: NodeColumn[tuple[Taint, ...]] | None = None
        self._cordons: NodeColumn[bool] | None = None

    def label(self, key: str) -> NodeColumn[str | None]:
        """Give the values of a label; ``None`` where a node does not have it."""
        found = self._labels.get(key)
        if found is None:
            found = NodeColumn.of([node.labels.get(key) for node in self._nodes])
            self._labels[key] = found
        return found

    @property
    def taints(self) -> NodeColumn[tuple[Taint, ...]]:
        """The taints of each node."""
        if self._taints is None:
            self._taints = NodeColumn.of([node.taints for node in self._nodes])
        return self._taints

    @property
    def cordons(self) -> NodeColumn[bool]:
        """Whether each node is cordoned."""
        if self._cordons is None:
            self._cordons = NodeColumn.of([node.unschedulable for node in self._nodes])
        return self._cordons

    def tell_apart(self, pairs: Iterable[tuple[Node, Node]]) -> bool:
        """Tell whether any of some nodes differ in a label of which somebody has asked for the values."""
        keys = [*self._labels]
        return any(
            one.labels is not two.labels and any(one.labels.get(key) != two.labels.get(key) for key in keys)
            for one, two in pairs
        )

    def changed(
        self, nodes: Sequence[Node], rows: Sequence[int], edits: Sequence[Splice] = ()
    ) -> NodeColumns:
        """Give the columns where nodes in some rows say something else; see :meth:`NodeColumn.changed`."""
        made = NodeColumns(nodes)
        for key, column in list(self._labels.items()):
            made._labels[key] = column.changed({row: nodes[row].labels.get(key) for row in rows}, edits)
        if self._taints is not None:
            made._taints = self._taints.changed({row: nodes[row].taints for row in rows}, edits)
        if self._cordons is not None:
            made._cordons = self._cordons.changed({row: nodes[row].unschedulable for row in rows}, edits)
        return made
