"""What many nodes lack for a pod, kept in columns: words are made of those that somebody looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.decisions import NearMiss, Rejection, Shortfall, Unschedulable

if TYPE_CHECKING:
    from koordcore.framework.evaluator import Evaluator
    from koordcore.framework.node_view import NodeView
    from koordcore.framework.plugin import Plugin
    from koordcore.framework.static_result import Part
    from koordcore.framework.workspace import Workspace
    from koordcore.model.pods import Pod

_LOOKED_AT: Final = 256
"""How many refused nodes are searched for the nearest miss; more would cost more than the decision."""
_WHOLE: Final = 1000
"""All of a request, in thousandths."""


class Lack(NamedTuple):
    """One thing that some nodes of a view lack; what :class:`Shortfall` says of one node.

    Parameters
    ----------
    where
        ``(n,)``: which of the nodes lack it.
    reason, resource, requested
        As :class:`Shortfall` has them.
    available
        ``(n,)``, in the resource's unit; ``None`` where the reason is not about amounts.
    unresolvable
        ``(n,)``: where no eviction would help; ``None`` for nowhere.
    """

    where: BoolVector
    reason: str
    resource: str = ""
    requested: int = 0
    available: IntVector | None = None
    unresolvable: BoolVector | None = None

    def at(self, place: int) -> Shortfall:
        """Say it of one of the nodes."""
        available = 0 if self.available is None else int(self.available[place])
        resolvable = self.unresolvable is None or not self.unresolvable[place]
        return Shortfall(self.reason, self.resource, self.requested, available, resolvable)

    def shares(self, otherwise: int) -> IntVector:
        """Give the part of the request that each node lacks, in thousandths: ``(n,)``, 0 for nothing.

        Parameters
        ----------
        otherwise
            Stands for a lack that is no amount, such as a label.
        """
        if not self.requested or self.available is None:
            return np.where(self.where, otherwise, 0)
        lacking = np.maximum(self.requested - self.available, 0)
        # In two steps, because a thousand times the largest amount is more than fits.
        whole, rest = np.divmod(lacking, self.requested)
        return np.where(self.where, whole * _WHOLE + rest * _WHOLE // self.requested, 0)


class NodeLacks(NamedTuple):
    """All that the nodes of a view lack by one evaluator.

    Parameters
    ----------
    columns
        What can be said of many nodes at once.
    singles
        By the node's place in the view, what was asked of each by itself.
    """

    columns: Sequence[Lack]
    singles: Mapping[int, tuple[Shortfall, ...]]

    @classmethod
    def of(cls, evaluator: Evaluator, view: NodeView) -> NodeLacks:
        """Ask about all nodes of a view."""
        columns = evaluator.lacks(view)
        if columns is not None:
            return cls(columns, {})
        fits = evaluator.fits(view)
        if fits is None:
            return cls((), {})
        there = zip(np.flatnonzero(~fits).tolist(), view.numbers[~fits].tolist(), strict=True)
        return cls((), {place: evaluator.shortfalls(view.at(row)) for place, row in there})

    def at(self, place: int) -> tuple[Shortfall, ...]:
        """Say it of one of the nodes; empty where it lacks nothing."""
        return self.singles.get(place) or tuple(one.at(place) for one in self.columns if one.where[place])

    def counts(self, number: int) -> IntVector:
        """Count what each of the nodes lacks: ``(n,)``."""
        found = np.zeros(number, np.int64)
        for one in self.columns:
            found += one.where
        for place, shortfalls in self.singles.items():
            found[place] = len(shortfalls)
        return found

    def unresolvable(self, number: int) -> BoolVector:
        """Tell which of the nodes lack something that no eviction mends: ``(n,)``."""
        found = np.zeros(number, np.bool_)
        for one in self.columns:
            if one.unresolvable is not None:
                found |= one.where & one.unresolvable
        for place, shortfalls in self.singles.items():
            found[place] = any(not one.resolvable for one in shortfalls)
        return found

    def shares(self, number: int, otherwise: int = _WHOLE) -> Iterator[IntVector]:
        """Give the parts of requests that the nodes lack, in thousandths: ``(n,)`` for each lack.

        Parameters
        ----------
        number, otherwise
            Of nodes; what stands for a lack that is no amount.
        """
        for one in self.columns:
            yield one.shares(otherwise)
        for place in range(max(map(len, self.singles.values()), default=0)):
            found = np.zeros(number, np.int64)
            for row, shortfalls in self.singles.items():
                if place < len(shortfalls):
                    lack = shortfalls[place]
                    asked = lack.requested
                    found[row] = lack.lacking * _WHOLE // asked if asked else otherwise
            yield found


def refusal_of(
    workspace: Workspace,
    parts: Sequence[Part],
    view: Callable[..., NodeView],
    remarking: Sequence[Plugin],
    pod: Pod,
    among: BoolVector | None,
) -> Unschedulable:
    """Say which plugins refuse a pod, on how many nodes for which reason, and what the nearest node lacks.

    Parameters
    ----------
    parts
        Of the pod's class, in filter order.
    view
        Gives nodes, all or some rows, as pods of the class see them.
    remarking
        Who may have more to say of the nearest node.
    among
        Look at these nodes alone, ``(N,)``; at all for ``None``.
    """
    number, all_nodes = len(workspace.layout.names), view()
    alive = np.ones(number, bool) if among is None else among.copy()
    rejections: list[Rejection] = []
    nearest: NearMiss | None = None
    latest: tuple[Part, BoolVector] | None = None
    for part in parts:
        mask = part.evaluator.fits(all_nodes) if part.setting.filters else None
        if mask is None or mask[alive].all():
            continue
        refused = alive & ~mask
        unresolvable = part.evaluator.unresolvable(all_nodes)
        for reason, holds in part.evaluator.reasons(all_nodes):
            here = holds & refused
            count = int(np.count_nonzero(here))
            if count:
                resolvable = unresolvable is None or bool((here & ~unresolvable).any())
                rejections.append(Rejection(part.plugin.name, reason, count, resolvable))
        latest = (part, refused)
        alive &= mask
    if latest is not None:
        part, refused = latest
        rows = np.flatnonzero(refused)[:_LOOKED_AT]
        nearest = _nearest(workspace, part, view(rows), rows, remarking, pod)
    merged = tuple(sorted(rejections, key=lambda one: (one.reason, one.plugin)))
    return Unschedulable(pod=pod.key, nodes=number, rejections=merged, nearest=nearest)


def _nearest(
    workspace: Workspace, part: Part, view: NodeView, rows: IntVector, remarking: Sequence[Plugin], pod: Pod
) -> NearMiss | None:
    """Of the nodes that got furthest, the one that lacks the least share of anything."""
    lacks = NodeLacks.of(part.evaluator, view)
    counts, number = lacks.counts(len(rows)), len(rows)
    if not counts.any():
        return None
    missing = sum(lacks.shares(number, otherwise=0), np.zeros(number, np.int64))
    place = next(at for at in np.lexsort((missing, counts)).tolist() if counts[at])
    row = int(rows[place])
    remarks = (text for one in remarking for text in one.remarks(pod, row))
    return NearMiss(workspace.layout.names[row], part.plugin.name, lacks.at(place), tuple(remarks))
