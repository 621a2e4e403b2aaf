"""What a class of pods knows of all nodes, and what it takes over from other classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.state_scores import AmountAnswers, Membership
from koordcore.framework.static_result import Part

NOTHING: Final[IntVector] = np.empty(0, np.int64)
NOWHERE: Final[BoolVector] = np.empty(0, np.bool_)


class KnownAnswers:
    """What a class knows of all nodes; its kinds share it.

    Attributes
    ----------
    asked
        Somebody has asked for the best node before.
    follows, membership
        The states of nodes are followed, as far as is known; the place among the classes that do so.
    single
        Answers for one node at a time, once somebody has asked for them.
    feasible, score
        ``(N,)``: what node-local plugins allow, and their score, -1 where they do not. Empty before somebody
        needs it.
    read
        How much of the workspace's ``touched`` is in these; -1 before they are there.
    """

    __slots__ = ("asked", "feasible", "follows", "membership", "read", "score", "single")

    def __init__(self, *, follows: bool) -> None:
        self.asked = False
        self.follows = follows
        self.membership: Membership | None = None
        self.single: AmountAnswers | None = None
        self.feasible = NOWHERE
        self.score = NOTHING
        self.read = -1

    def moved(
        self, past: Sequence[tuple[int, NodeMoves]], touched: Sequence[int]
    ) -> tuple[BoolVector, IntVector, set[int]]:
        """Give what is known by the rows that nodes have now, and the rows of which it does not hold.

        Parameters
        ----------
        past
            How long ``touched`` was, and how rows changed, each time that nodes joined or left since.
        touched
            All rows that were touched.
        """
        feasible, score, read = self.feasible, self.score, self.read
        stale = set[int]()
        for end, moves in past:
            stale.update(touched[read:end])
            stale, read = {*map(moves.row, stale), *moves.came}, end
            feasible, score = moves.by_row(feasible), moves.by_row(score)
        stale.update(touched[read:])
        stale.discard(-1)
        return feasible, score, stale


class PlainAnswers(NamedTuple):
    """What nodes say to a class that its source does not touch.

    Parameters
    ----------
    update, known
        Of the class of pods that have no source and want the same of all other plugins.
    filters, scorers
        The parts that the class has besides.
    """

    update: Callable[[], None]
    known: KnownAnswers
    filters: Sequence[Part]
    scorers: Sequence[Part]

    def on(self, view: NodeView) -> tuple[BoolVector | None, IntVector]:
        """Answer for all nodes, in a plain view of them; the arrays are the caller's."""
        self.update()
        feasible, score = self.known.feasible.copy(), self.known.score.copy()
        for part in self.filters:
            mask = part.evaluator.fits(view)
            if mask is not None:
                feasible &= mask
        for part in self.scorers:
            more = part.evaluator.scores(view)
            if more is not None:
                score += part.setting.weight * more
        score[~feasible] = -1
        return feasible, score
