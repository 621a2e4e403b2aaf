"""Amounts by resource and node, and what nodes offer to pods of one class: as they are, or under a source.

What a node offers depends on who asks. A *source* says what counts as gone for a class of pods: pods and
amounts on some nodes. The framework makes the views; an evaluator answers for the view that it is given and
does not know more of the source than the view tells.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import (
    AMOUNT_LIMIT,
    PODS_ROW,
    BoolVector,
    ClusterLayout,
    FloatCube,
    FloatMatrix,
    IntCube,
    IntMatrix,
    IntVector,
    Rows,
    with_resources,
)
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.sources import Loan, Loans, Source
from koordcore.model.pods import PodKey
from koordcore.model.resources import PODS
from koordcore.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from koordcore.framework.workspace import Workspace

Scalar = TypeVar("Scalar", bound=np.generic)

SCORED: Final = 0
REQUESTED: Final = 1
SPARE: Final = 2
FREE: Final = 3
_DIVIDED: Final = slice(REQUESTED, SPARE + 1)
"""What is requested and what is spare: what kernels divide."""
_FACTORS: Final[FloatCube] = np.array([1.0, 100.0])[:, None, None]

Shape: TypeAlias = tuple[tuple[str, int], ...]
"""Items of some amounts by resource."""


_MOVES_KEPT: Final = 16
"""How many times nodes may join or leave before what nobody has asked for since is forgotten."""


def _by_node(cube: NDArray[Scalar]) -> NDArray[Scalar]:
    """Give the same memory with all of a node in a row, ``(N, K R)``."""
    kinds, resources, nodes = cube.shape
    return cube.reshape(kinds * resources, nodes).T


class Amounts:
    """What is requested and free on each node now.

    Attributes
    ----------
    layout
        The static columns, shared with the snapshot.
    amounts
        ``(4, R, N)``: the four matrices below in one block, because whoever looks at some nodes gathers all.
    by_node
        ``(N, 4 R)``: the same memory, what is counted of a node in one row: one axis is read and added to in
        half the time.
    requested, scored
        ``(R, N)`` working copies of the dynamic columns, views of ``amounts``.
    free
        ``(R, N)``: allocatable less requested; negative where a node is overcommitted.
    spare
        ``(R, N)``: allocatable less scored.
    touched
        Row of each change, appended only: a reader remembers how far it has read and refreshes those rows.
        Where nodes joined or left rows are others from then on, see :meth:`moved_since`.
    era
        How many times nodes joined or left, or resources came in.
    shifted
        Rows whose amounts may not be the sum of what the node's pods ask for.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.layout: ClusterLayout = snapshot.layout
        taken, scored = snapshot.columns.requested, snapshot.columns.scored
        whole = snapshot.layout.allocatable
        self._hold(np.stack([scored, taken, whole - scored, whole - taken]), whole.shape[1])
        self.touched: array[int] = array("q")
        self.shifted: set[int] = set()
        # Where nodes joined or left: how long `touched` was, and how rows changed. The last ones are kept.
        self._moves: list[tuple[int, NodeMoves]] = []
        self.era = 0
        self._real: FloatCube | None = None
        self._real_at = 0
        self._gathered_for: Rows | None = None
        self._gathered_at = 0
        self._gathered: IntCube = self.amounts

    def _hold(self, block: IntCube, number: int) -> None:
        """Hold the amounts of so many nodes in a block that may have room for more of them."""
        self._block = block
        self.amounts: IntCube = block[:, :, :number]
        self.scored, self.requested, self.spare, self.free = self.amounts
        self.by_node: IntMatrix = _by_node(block)[:number]

    def at(self, rows: Rows) -> IntCube:
        """Give the amounts of some nodes, ``(4, R, n)``, to be read only.

        ``REQUESTED``, ``SCORED``, ``FREE`` and ``SPARE`` tell them apart. Several evaluators look at the same
        few nodes one after another: what was gathered for the last selection is kept until anything changes.
        """
        if isinstance(rows, slice):
            return self.amounts[:, :, rows]
        if self._gathered_for is not rows or self._gathered_at != len(self.touched):
            self._gathered_for, self._gathered_at = rows, len(self.touched)
            self._gathered = self._block.take(rows, axis=2)
        return self._gathered

    @property
    def real(self) -> FloatCube:
        """What is requested, and a hundred times what is spare, as float64: ``(2, R, N)``, to be read only.

        For kernels that divide on all nodes, where converting would take as long as dividing.
        """
        touched = self.touched
        if self._real is None:
            self._real = self.amounts[_DIVIDED] * _FACTORS
            self._real_by_node: FloatMatrix = _by_node(self._real)
            self._factors = np.repeat(_FACTORS, len(self.requested))
        elif self._real_at + 1 == len(touched):
            row, number = touched[-1], len(self._factors) // 2
            divided = self.by_node[row, REQUESTED * number : (SPARE + 1) * number]
            np.multiply(divided, self._factors, out=self._real_by_node[row])
        elif self._real_at < len(touched):
            rows = np.frombuffer(touched[self._real_at :], np.int64)
            self._real[:, :, rows] = self.amounts[_DIVIDED, :, rows] * _FACTORS
        self._real_at = len(touched)
        return self._real

    def running(self) -> int:
        """Count the pods on all nodes."""
        return int(self.requested[PODS_ROW].sum())

    def change_of(self, requested: Shape, scored: Shape) -> IntMatrix:
        """Give what a pod adds to a node's amounts, ``(4, R)``; a pod is one pod, whatever it asks for.

        Parameters
        ----------
        requested, scored
            The items of its requests, and of those that scores read.
        """
        return self._change(requested, scored, pods=1)

    def _change(
        self, requested: Iterable[tuple[str, int]], scored: Iterable[tuple[str, int]], pods: int = 0
    ) -> IntMatrix:
        """What requests, and those that scores read, add to a node's amounts: ``(4, R)``."""
        index, number = self.layout.index, len(self.layout.resources)
        flat = [0] * (4 * number)
        for start, asked in ((0, scored), (number, requested)):
            for name, amount in asked:
                if name in index:
                    # More is on no node, so such a pod is never bound where amounts are looked at.
                    flat[start + index[name]] = min(amount, AMOUNT_LIMIT)
            flat[start + PODS_ROW] = pods
        flat[2 * number :] = [-amount for amount in flat[: 2 * number]]
        return np.array(flat, np.int64).reshape(4, number)

    def shift(self, row: int, requested: Mapping[str, int], scored: Mapping[str, int], sign: int) -> None:
        """Count amounts on a node that no pod stands for, or take them off; undoing it is the caller's.

        Parameters
        ----------
        row, sign
            The node; 1 to count them, -1 to take them off.
        requested, scored
            Amounts by resource, as filters and as scores count them; slots of pods as ``pods``.
        """
        slots = requested.get(PODS, 0)
        self.amounts[:, :, row] += sign * self._change(requested.items(), scored.items(), pods=slots)
        self.touched.append(row)
        if requested or scored:
            self.shifted.add(row)

    def offer(self, rows: Iterable[int], layout: ClusterLayout) -> None:
        """Take in that nodes offer what a layout says now."""
        for row in rows:
            offered = layout.offers.at(row)
            self.amounts[FREE, :, row] = offered - self.requested[:, row]
            self.amounts[SPARE, :, row] = offered - self.scored[:, row]
            self.touched.append(row)
        self.layout = layout

    def _move_amounts(self, moves: NodeMoves, layout: ClusterLayout) -> None:
        """Let nodes join, with nothing on them and nothing offered, and leave; let resources come in."""
        self._moves = [*self._moves[-_MOVES_KEPT + 1 :], (len(self.touched), moves)]
        self.era += 1
        number, block = self.amounts.shape[-1], self._block
        if moves.resources:
            block = np.ascontiguousarray(with_resources(self.amounts, layout, moves.resources))
        self.layout = layout
        self._hold(*moves.within(block, number))
        self._real = self._gathered_for = None
        shifted = moves.rows(np.array([*self.shifted], np.int64))
        self.shifted = {row for row in shifted.tolist() if row >= 0}

    def moved_since(self, era: int) -> Sequence[tuple[int, NodeMoves]] | None:
        """Give how long ``touched`` was and how rows changed, each time since an era; ``None``: too often."""
        number = self.era - era
        return None if number > len(self._moves) else self._moves[len(self._moves) - number :]

    @property
    def moved_at(self) -> int:
        """How long ``touched`` was when nodes joined or left last; 0 where they never did."""
        return self._moves[-1][0] if self._moves else 0


ALL_ROWS: Final = slice(None)
_NOBODY: Final = frozenset[PodKey]()


class NodeView:
    """Some nodes under a source.

    Three kinds of views answer all questions about one class. Without a source: the nodes *as they are*. With
    one: *restored*, as if all that it holds for the class were gone; the loans of each node then are what one
    pod may really draw from. With ``drawn`` as well: *inside*, one loan for each row, from which the pod
    draws, beside what is free on the node; a node stands there once for each of its loans.

    It is made for one question: what it says is worked out once and does not follow later changes.

    Parameters
    ----------
    workspace
        The working state of the call.
    rows
        The nodes: ``(n,)`` of them.
    source
        What counts as gone; ``None`` for nothing.
    drawn
        The loans that are drawn from; ``None`` for a view of nodes.
    """

    __slots__ = ("_amounts", "_loans", "drawn", "rows", "source", "workspace")

    def __init__(
        self,
        workspace: Workspace,
        rows: Rows = ALL_ROWS,
        source: Source | None = None,
        drawn: Loans | None = None,
    ) -> None:
        self.workspace = workspace
        self.rows = rows
        self.source = source
        self.drawn = drawn
        self._amounts: IntCube | None = None
        self._loans = drawn

    @classmethod
    def supposed(cls, workspace: Workspace, rows: IntVector, amounts: IntCube) -> NodeView:
        """Give a plain view of nodes as they would be with other amounts.

        Parameters
        ----------
        workspace
            The cluster as it stands.
        rows
            ``(n,)``: the nodes.
        amounts
            ``(4, R, n)``: of each resource what :attr:`amounts` of a view holds, for these nodes.
        """
        made = cls(workspace, rows)
        made._amounts = amounts
        return made

    def inside(self, loans: Loans) -> NodeView:
        """Give the view in which pods draw from loans of the same source."""
        return NodeView(self.workspace, loans.rows, self.source, loans)

    @property
    def plain(self) -> bool:
        """The nodes as they are."""
        return self.source is None and self.drawn is None

    @property
    def all_plain(self) -> bool:
        """All nodes, as they are."""
        return self.plain and self.rows is ALL_ROWS

    @property
    def numbers(self) -> IntVector:
        """``(n,)``: number of each node."""
        rows = self.rows
        return np.arange(len(self.workspace.layout.names))[rows] if isinstance(rows, slice) else rows

    @property
    def size(self) -> int:
        """How many nodes it shows."""
        rows = self.rows
        return len(range(len(self.workspace.layout.names))[rows]) if isinstance(rows, slice) else len(rows)

    @property
    def row(self) -> int:
        """The number of the node in a view of one."""
        rows = self.rows
        if isinstance(rows, slice) and rows.start is not None and rows.stop == rows.start + 1:
            return int(rows.start)
        (row,) = self.numbers.tolist()
        return int(row)

    @property
    def gone(self) -> frozenset[PodKey]:
        """Pods that count as if they were not there."""
        return _NOBODY if self.source is None else self.source.gone

    @property
    def required(self) -> bool:
        """The pods may go nowhere but into a loan."""
        return self.source is not None and self.source.required

    @property
    def amounts(self) -> IntCube:
        """``(4, R, n)``, to be read only: scored, requested, spare and free, without what counts as gone.

        Inside loans only what is free counts, with what the loan adds to it.
        """
        if self._amounts is None:
            self._amounts = self._work_out()
        return self._amounts

    def _work_out(self) -> IntCube:
        there = self.workspace.at(self.rows)
        if self.drawn is not None:
            there = there.copy()
            there[REQUESTED] -= self.drawn.lent
            there[FREE] += self.drawn.lent
            return there
        lifted = None if self.source is None else self.source.lifted(self.rows)
        if lifted is None or self.source is None:
            return there
        there = there.copy()
        there[REQUESTED] -= lifted
        there[FREE] += lifted
        scored = self.source.lifted(self.rows, scored=True)
        if scored is not None:
            there[SCORED] -= scored
            there[SPARE] += scored
        return there

    def requested(self, resource: str) -> IntVector:
        """Give what pods have asked for of a resource, ``(n,)``, in its unit; 0 where nobody names it."""
        return self._amount(REQUESTED, resource)

    def free(self, resource: str) -> IntVector:
        """Give what is left of a resource, ``(n,)``, in its unit; 0 where nobody names it."""
        return self._amount(FREE, resource)

    def _amount(self, kind: int, resource: str) -> IntVector:
        place = self.workspace.layout.index.get(resource)
        if place is None:
            return np.zeros(self.size, np.int64)
        found: IntVector = self.amounts[kind, place]
        return found

    @property
    def loans(self) -> Loans | None:
        """What pods may draw from on the nodes of a restored view, or do draw from inside, if anything."""
        if self._loans is None and self.source is not None:
            self._loans = self.source.loans(self.rows)
        return self._loans

    def drawn_from(self, row: int) -> Loan | None:
        """Give the loan that would serve the pods on a node; ``None`` for the node itself."""
        return None if self.source is None else self.source.drawn_from(row)

    def beside(self, loan: Loan) -> tuple[Loan, ...]:
        """Give the other loans of its node that the pods might use as well."""
        return () if self.source is None else self.source.beside(loan)

    def where_any(self, loans: Loans, serves: BoolVector) -> BoolVector:
        """Tell at which nodes, ``(n,)``, one of the loans serves, by an answer for each loan, ``(K,)``."""
        found = np.zeros(len(self.workspace.layout.names), np.bool_)
        found[loans.rows[serves]] = True
        there: BoolVector = found[self.rows]
        return there

    def at(self, row: int) -> NodeView:
        """Give the view of one node under the same source."""
        return NodeView(self.workspace, slice(row, row + 1), self.source)


Others: TypeAlias = Callable[[NodeView], BoolVector]
"""Whether all other filters that look at single nodes take the pods, ``(n,)``, in a view."""

Rating: TypeAlias = Callable[[NodeView], Sequence[IntVector]]
"""What those who rate one loan of a node against another say inside loans: one ``(K,)`` for each of them."""
