"""What every node says about a pod, in columns: a node's words are made when somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, overload

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.framework.lacks import NodeLacks
from koordcore.framework.node_view import ALL_ROWS
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.model.decisions import Shortfall
from koordcore.model.mappings import EMPTY, frozen


@record(kw_only=True)
class NodeVerdict:
    """What one node says.

    Parameters
    ----------
    node
        Its name.
    plugin, shortfalls
        The first plugin that refused, and what all that refuse lack; empty where the pod fits.
    scores
        Plugin to score 0..100, before weights; empty where the pod does not fit.
    total
        Weighted sum; -1 where the pod does not fit.
    looked_at
        The search came to the node: it ends with a share of the nodes where the policy says so. Where it did
        not, nobody was asked, and the node counts as one on which the pod does not fit.
    """

    node: str
    plugin: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    scores: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    total: int = -1
    looked_at: bool = True

    @property
    def fits(self) -> bool:
        """The pod can go there."""
        return self.total >= 0


class RefusedNodes(NamedTuple):
    """Some nodes, what each plugin has against them, and how much they lack.

    Parameters
    ----------
    rows
        ``(n,)``: the nodes.
    by_plugin
        In filter order.
    most, whole
        ``(n,)``: the largest share of anything that a node lacks, in thousandths, and the sum of them. A lack
        that is no amount, such as a label, counts as everything.
    """

    rows: IntVector
    by_plugin: Sequence[tuple[str, NodeLacks]]
    most: IntVector
    whole: IntVector

    @classmethod
    def of(cls, scheduling_class: SchedulingClass, rows: IntVector, *, every: bool = False) -> RefusedNodes:
        """Ask every filter about some nodes, or all of them, as they stand."""
        most, whole = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        found = []
        view = scheduling_class.view(ALL_ROWS if every else rows)
        for part in scheduling_class.parts if len(rows) else ():
            if part.setting.filters:
                lacks = NodeLacks.of(part.evaluator, view)
                found.append((part.plugin.name, lacks))
                for shares in lacks.shares(len(rows)):
                    np.maximum(most, shares, out=most)
                    whole += shares
        return cls(rows, found, most, whole)

    def at(self, row: int) -> dict[str, tuple[Shortfall, ...]]:
        """Give every plugin that refuses a node, in filter order, with what it lacks there."""
        place = int(np.searchsorted(self.rows, row))
        lacking = ((name, lacks.at(place)) for name, lacks in self.by_plugin)
        return {name: shortfalls for name, shortfalls in lacking if shortfalls}

    def nearest(self) -> list[tuple[int, int]]:
        """Group the nodes by who refuses there: the one that lacks least, and how many there are.

        The group with the smallest lack comes first.
        """
        group = np.zeros(len(self.rows), np.int64)
        for _, lacks in self.by_plugin:
            refusing = lacks.counts(len(self.rows)) > 0
            if refusing.any():
                group = np.unique(2 * group + refusing, return_inverse=True)[1]
        counts = np.bincount(group)
        best = np.zeros(len(counts), np.int64)
        # Of several that are written to one place the last one stays: the nearest. What somebody's leaving
        # mends is nearer than what stays.
        unresolvable = np.zeros(len(self.rows), np.bool_)
        for _, lacks in self.by_plugin:
            unresolvable |= lacks.unresolvable(len(self.rows))
        order = np.lexsort((self.rows, self.whole, self.most, unresolvable))[::-1]
        best[group[order]] = order
        names = [tuple(self.at(int(self.rows[place]))) for place in best.tolist()]
        ranked = sorted(
            (int(self.most[place]), int(self.whole[place]), name, int(self.rows[place]), int(count))
            for place, name, count in zip(best.tolist(), names, counts.tolist(), strict=True)
        )
        return [(row, count) for *_, row, count in ranked]


class NodeVerdicts(Sequence[NodeVerdict]):
    """One verdict per node: best first; those that refuse by how little they lack, then those not looked at.

    Parameters
    ----------
    names, totals, scores
        Of all nodes, by row: names, weighted sums ``(N,)`` with -1 where the pod does not fit, and each
        plugin's score ``(N,)``.
    refused
        Those with -1.
    beside
        By row, what those lack that do not take the pod beside who is nominated there.
    seen
        ``(N,)``: the nodes that were looked at.
    """

    def __init__(
        self,
        names: Sequence[str],
        totals: IntVector,
        scores: Mapping[str, IntVector],
        refused: RefusedNodes,
        beside: Mapping[int, RefusedNodes],
        seen: BoolVector,
    ) -> None:
        self._names, self._totals, self._scores = names, totals, scores
        self._refused, self._beside, self._seen = refused, beside, seen

    @cached_property
    def _order(self) -> list[int]:
        most, whole = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        for one in (self._refused, *self._beside.values()):
            most[one.rows], whole[one.rows] = one.most, one.whole
        order: list[int] = np.lexsort((whole, most, -self._totals, ~self._seen)).tolist()
        return order

    def takes(self, row: int) -> bool:
        """Tell whether the node in a row takes the pod."""
        return bool(self._totals[row] >= 0)

    def _at(self, row: int) -> NodeVerdict:
        node, total = self._names[row], int(self._totals[row])
        if total >= 0:
            scores = {name: int(column[row]) for name, column in self._scores.items()}
            return NodeVerdict(node=node, scores=scores, total=total)
        if not self._seen[row]:
            return NodeVerdict(node=node, looked_at=False)
        refusing = self._beside.get(row, self._refused).at(row)
        shortfalls = tuple(chain.from_iterable(refusing.values()))
        return NodeVerdict(node=node, plugin=next(iter(refusing), ""), shortfalls=shortfalls)

    @overload
    def __getitem__(self, place: int) -> NodeVerdict: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[NodeVerdict, ...]: ...
    def __getitem__(self, place: int | slice) -> NodeVerdict | tuple[NodeVerdict, ...]:
        if isinstance(place, slice):
            return tuple(map(self._at, self._order[place]))
        return self._at(self._order[place])

    def __iter__(self) -> Iterator[NodeVerdict]:
        return map(self._at, self._order)

    def __len__(self) -> int:
        return len(self._totals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | NodeVerdicts) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Count them: written out they are as long as the cluster."""
        return f"<verdicts of {len(self)} nodes, {int((self._totals >= 0).sum())} of which take the pod>"
