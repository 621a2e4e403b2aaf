"""What the states of nodes are worth to classes of pods, worked out for several classes at once.

A state comes up once and then every class wants to know about it. Asking for all classes together takes as
many calls of the kernels as asking for one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, IntCube, IntMatrix, IntVector
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_states import AmountStates, StateTables
from koordcore.framework.node_view import ALL_ROWS, NodeView
from koordcore.framework.static_result import StaticResult
from koordcore.framework.workspace import Workspace

MOST_MEMBERS: Final = 256
"""Classes of a group; with more of them the kernels take longer than their calls."""
_RANK: Final = 32
"""Bits that a score is shifted by to make room for the row of a node."""
_UNFIT: Final = -(2**61)
_SIGN: Final = 63
"""A number shifted by so many bits is -1 where it is negative, else 0."""
_AHEAD: Final = 8
_FARTHEST: Final = 64
"""So many states of a node are looked at in one go, one pod more in each; twice as many where it is the same
node again."""
_MOST: Final = 2**12
"""States of which it is remembered what they are worth; then all of them are forgotten."""


class Choice(NamedTuple):
    """The best node for a pod.

    Parameters
    ----------
    row, score
        Which, and its weighted sum; both -1 where no node is feasible.
    feasible
        How many nodes are.
    """

    row: int
    score: int
    feasible: int


def first_of(feasible: BoolVector | None, totals: IntVector) -> Choice:
    """Give the first of the nodes that score best; what is not feasible has a total of -1."""
    row = int(totals.argmax())
    score = int(totals[row])
    if score < 0:
        return Choice(-1, -1, 0)
    return Choice(row, score, len(totals) if feasible is None else int(np.count_nonzero(feasible)))


class AmountParts(NamedTuple):
    """The evaluators of a class that look at amounts only.

    Parameters
    ----------
    scorers
        With their weights.
    filters
        In filter order.
    """

    scorers: tuple[tuple[int, Evaluator], ...]
    filters: tuple[Evaluator, ...]

    def answers(self, view: NodeView) -> tuple[IntVector | None, BoolVector | None]:
        """Give the weighted score, ``None`` for 0, and where amounts suffice, ``None`` for everywhere."""
        score: IntVector | None = None
        for weight, evaluator in self.scorers:
            one = evaluator.scores(view)
            if one is not None:
                one = one if weight == 1 else weight * one
                score = one if score is None else np.add(score, one, out=score)
        enough: BoolVector | None = None
        for evaluator in self.filters:
            if view.rows is ALL_ROWS and evaluator.fits_everywhere():
                continue
            mask = evaluator.fits(view)
            if mask is not None:
                enough = mask if enough is None else enough & mask
        return score, enough

    @property
    def batch_key(self) -> Hashable:
        """What is equal for classes that can be answered for together; ``None`` where none can."""
        every = [*(evaluator for _, evaluator in self.scorers), *self.filters]
        parts = tuple([evaluator.batch_key for evaluator in every])
        return None if None in parts else (parts, tuple([weight for weight, _ in self.scorers]))

    @staticmethod
    def together(ones: Sequence[AmountParts]) -> AmountParts:
        """Join the parts of classes of one batch key; answers have a row for each of them, ``(C, n)``."""
        first = ones[0]
        if len(ones) == 1:
            return first
        scorers = [
            (weight, evaluator.together([one.scorers[place][1] for one in ones]))
            for place, (weight, evaluator) in enumerate(first.scorers)
        ]
        filters = [
            evaluator.together([one.filters[place] for one in ones])
            for place, evaluator in enumerate(first.filters)
        ]
        return AmountParts(tuple(scorers), tuple(filters))


class _StateGroup:
    """Classes of one static result and one batch key, and what each state is worth to each of them."""

    def __init__(self, workspace: Workspace, states: AmountStates, static: StaticResult) -> None:
        self._workspace = workspace
        self.states = states
        self.static = static
        self._members: dict[int, AmountParts] = {}
        self._together: AmountParts | None = None
        self._rows_of_members: IntVector = np.empty(0, np.int64)
        # (C, S): the score in the high bits; a state that is not known to all was never learned.
        self._rank: IntMatrix = np.full((1, len(states.first)), _UNFIT)
        self._known = bytearray(len(states.first))
        self._seen_states = 0
        self._some_unfit = False

    @property
    def inhabited(self) -> bool:
        return bool(self._members)

    @property
    def full(self) -> bool:
        return len(self._members) >= MOST_MEMBERS

    def join(self, parts: AmountParts) -> int:
        """Take in a class that knows nothing yet; gives its number."""
        self._learn()
        number = next(number for number in range(MOST_MEMBERS) if number not in self._members)
        states = self.states
        inhabited = states.count[: states.size] > 0
        # What nobody is in now stays unknown to this class, and so to the group, until it is born anew.
        self._known[: states.size] = inhabited.tobytes()
        here = np.flatnonzero(inhabited)
        if number == len(self._rank):
            self._rank = np.concatenate([self._rank, self._rank])
        self._rank[number] = _UNFIT
        self._rank[number, here] = self._worth(parts, states.first[here])
        self._members[number] = parts
        self._together = None
        return number

    def leave(self, number: int) -> None:
        """Let a class go."""
        del self._members[number]
        self._together = None

    def _worth(self, parts: AmountParts, rows: IntVector) -> IntMatrix:
        """Rank the states of some nodes: ``(n,)``, or ``(C, n)`` for several classes together."""
        score, enough = parts.answers(NodeView(self._workspace, rows))
        static = self.static
        rank: IntMatrix = static.score[rows] if score is None else score + static.score[rows]
        rank <<= _RANK
        mask = static.mask[rows] if enough is None else static.mask[rows] & enough
        if np.count_nonzero(mask) < mask.size:
            rank[~np.broadcast_to(mask, rank.shape)] = _UNFIT
            self._some_unfit = True
        return rank

    def _learn(self) -> None:
        """Work out what is not known yet of the states that nodes are in."""
        states, known = self.states, self._known
        came = states.new_states[self._seen_states :]
        self._seen_states += len(came)
        # What nobody is in any more comes up anew before it counts.
        new = [state for state in came if not known[state] and states.count[state]]
        if not new or not self._members:
            return
        if self._together is None:
            self._together = AmountParts.together([*self._members.values()])
            self._rows_of_members = np.array([*self._members], np.int64)[:, None]
        self._rank[self._rows_of_members, new] = self._worth(self._together, states.first[new])
        for state in new:
            known[state] = 1

    def ready(self) -> bool:
        """Bring the ranks up to date; tell whether states can be used."""
        if not self.states.ready():
            return False
        if self._seen_states != len(self.states.new_states):
            self._learn()
        return True

    def answers(self, number: int, rows: IntVector) -> tuple[BoolVector, IntVector]:
        """Tell on which of the nodes a class fits, and its score there."""
        ranks = self._rank[number, self.states.at(rows)]
        return ranks >= 0, ranks >> _RANK

    def best(self, number: int) -> Choice:
        """Find the best node for a class."""
        states = self.states
        size = states.size
        # The highest score comes first and among equals the first node: both in one number.
        ranks = self._rank[number, :size]
        state = int((ranks - states.first[:size]).argmax())
        rank = int(ranks[state])
        if rank < 0:
            return Choice(-1, -1, 0)
        feasible = len(self.static.mask)
        if self._some_unfit:
            feasible += int(states.count[:size].dot(ranks >> _SIGN))  # less the nodes whose rank is negative
        return Choice(int(states.first[state]), rank >> _RANK, feasible)


class Membership(NamedTuple):
    """A class in its group; :meth:`ready` comes before every other question."""

    group: _StateGroup
    number: int

    def ready(self) -> bool:
        """Bring what is known up to date; tell whether states can be used."""
        return self.group.ready()

    def answers(self, rows: IntVector) -> tuple[BoolVector, IntVector]:
        """Tell on which of the nodes static plugins and amounts let the pods, and their score there."""
        return self.group.answers(self.number, rows)

    def best(self) -> Choice:
        """Find the best node."""
        return self.group.best(self.number)

    def leave(self) -> None:
        """Leave the group for good."""
        self.group.leave(self.number)


class StateGroups:
    """All groups of one plugin set, by static result and batch key."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._groups: dict[Hashable, list[_StateGroup]] = {}

    def keep(self, results: Iterable[StaticResult]) -> None:
        """Forget the groups of other grounds, and those that nobody belongs to any more."""
        known = {*map(id, results)}
        self._groups = {
            key: kept
            for key, groups in self._groups.items()
            if (kept := [one for one in groups if one.inhabited and id(one.static) in known])
        }

    def tables(self) -> Iterator[AmountStates]:
        """Give the states that groups follow."""
        return (one.states for groups in self._groups.values() for one in groups)

    def states_of(self, static: StaticResult) -> AmountStates | None:
        """Give the states in which the nodes of a static result are; ``None`` where they are not followed."""
        return self._workspace.once(StateTables).of(static.kinds)

    def join(self, static: StaticResult, parts: AmountParts) -> Membership | None:
        """Bring a class to others like it; ``None`` where the states of its nodes are not followed."""
        states = self.states_of(static)
        if states is None or not states.ready():
            return None
        batch_key = parts.batch_key
        groups = [] if batch_key is None else self._groups.setdefault((id(static), batch_key), [])
        group = next((one for one in groups if not one.full), None)
        if group is None:
            group = _StateGroup(self._workspace, states, static)
            groups.append(group)
        return Membership(group, group.join(parts))


class AmountAnswers:
    """What parts that look at amounts alone say of single nodes, remembered by the amounts.

    A class that is asked again and again looks at the one node that its last pod went to. The kernels take as
    long for one node as for ten, so they are asked as well about that node with more pods of the class on it.

    Parameters
    ----------
    workspace
        Where the nodes are.
    parts
        Who is asked.
    change
        What each pod of the class adds to a node's amounts, ``(4, R)``; ``None`` where they differ.
    """

    def __init__(self, workspace: Workspace, parts: AmountParts, change: IntMatrix | None) -> None:
        self._workspace = workspace
        self._parts = parts
        self._change, self._row, self._number = change, -1, 1
        self._known: dict[bytes, tuple[bool, int]] = {}

    def of(self, row: int) -> tuple[bool, int]:
        """Tell whether amounts suffice on a node that is seen as it is, and its weighted score."""
        here = self._workspace.by_node[row].tobytes()
        found = self._known.get(here)
        return self._learn(row, here) if found is None else found

    def _learn(self, row: int, here: bytes) -> tuple[bool, int]:
        amounts: IntCube = self._workspace.amounts[:, :, row, None]
        if self._change is not None:
            self._number = min(2 * self._number, _FARTHEST) if row == self._row else _AHEAD
            self._row = row
            amounts = amounts + self._change[:, :, None] * np.arange(self._number)
        view = NodeView.supposed(self._workspace, np.full(self._number, row), amounts)
        score, enough = self._parts.answers(view)
        scores = [0] * self._number if score is None else score.tolist()
        fits = [True] * self._number if enough is None else enough.tolist()
        if len(self._known) >= _MOST:
            self._known.clear()
        known = self._known
        for place, answer in enumerate(zip(fits, scores, strict=True)):
            known[amounts[:, :, place].tobytes()] = answer
        return known[here]
