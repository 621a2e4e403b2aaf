"""Which reservation serves pods of one class, on which node, and how good it is.

A pod that may use some reservations is served by one of these or by the node itself, in everything that it
asks for together: amounts, CPUs and devices (rulings 3, 5 and 23). Each other plugin answers for the node as
if the reservations that the pod may use were gone; here it is decided whether one of them serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntVector, Rows
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved, Scope
from koordcore.framework.node_view import NodeView, Others, Rating
from koordcore.framework.sources import Loan, Source
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod
from koordcore.model.reservations import (
    AllocatePolicy,
)
from koordcore.model.resources import PODS, counted
from koordcore.protocol.reservation import (
    RESERVATION_ALLOCATED,
    ReservationWish,
    format_allocated_reservation,
)
from koordcore.reservations.cache import ReservationLedger
from koordcore.reservations.filter import (
    NO_RESERVATION,
    POLICY_CONFLICT,
)
from koordcore.reservations.lending import Lending, ReservationLoans
from koordcore.reservations.match import AFFINITY_REFUSED
from koordcore.reservations.nominate import PREFERRED_SCORE
from koordcore.scheduling.plugins.reserve_pod import agreeing
from koordcore.scoring.resources import default_normalise
from koordcore.snapshot.following import ChangeReader

if TYPE_CHECKING:
    from koordcore.scheduling.plugins.reservation import ReservationPlugin


_NO_LOAN: Final = -1
_BY_NODE: Final = " by node"


@record
class Wanted:
    """What a pod wants of reservations: its own words, and the numbers of those that it may use."""

    wish: ReservationWish
    matched: tuple[int, ...]
    requests: tuple[tuple[str, int], ...]
    acts: bool = False
    """It will act as a reservation, beside such as do not go with that on one node."""
    planned: int | None = None
    """The reservation that is meant for it, when all pods of a call are matched together."""


def _unrated(view: NodeView) -> Sequence[IntVector]:
    del view
    return ()


class _Matched(Lending):
    """What reservations lend to pods that may use them, and which of them would serve on each node.

    Attributes
    ----------
    choose
        Gives the reservation that would serve the pods on a node now, negative for none.
    others
        Whether all other filters take the pods in a view.
    """

    def __init__(
        self, ledger: ReservationLedger, matched: BoolVector, *, together: bool, required: bool = False
    ) -> None:
        super().__init__(ledger, matched, together=together, required=required)
        self.choose: Callable[[int], int] = lambda row: _NO_LOAN
        self.others: Others = lambda view: np.ones(view.size, bool)

    def drawn_from(self, row: int) -> Loan | None:
        """Give what the pods would draw from on a node: one reservation, or all that they ignore."""
        loans = self._at(row)
        return None if loans is None else loans.loan(0)

    def taken_from(self, row: int) -> ReservationLoans | None:
        """Give the same, but nothing where the pods ignore reservations and the node has enough without."""
        if self.together and self.others(NodeView(self.ledger.workspace, slice(row, row + 1)))[0]:
            return None
        return self._at(row)

    def _at(self, row: int) -> ReservationLoans | None:
        chosen = _NO_LOAN if self.together else self.choose(row)
        if not self.together and chosen == _NO_LOAN:
            return None
        loans = self.loans(slice(row, row + 1))
        if not len(loans.rows):
            return None
        return loans if self.together else loans.only(loans.ids.index((chosen,)))


class _Choices(NamedTuple):
    """Which reservation would serve the pods of a class on each node.

    Parameters
    ----------
    chosen
        ``(N,)``: its number, negative for none.
    raw
        ``(N,)``: its score.
    order
        ``(N,)``: the smallest order among those that concern the pods there, 0 for none.
    """

    chosen: IntVector
    raw: IntVector
    order: IntVector

    @classmethod
    def none(cls, number: int) -> _Choices:
        """Make the table of so many nodes, with nothing chosen."""
        return cls(
            np.full(number, _NO_LOAN, np.int64), np.zeros(number, np.int64), np.zeros(number, np.int64)
        )


class ReservationEvaluator(Evaluator):
    """Filter, score and choice for one class of pods that reservations concern."""

    scope = Scope.NODE
    normalises = True

    def __init__(self, plugin: ReservationPlugin, pod: Pod, wanted: Wanted) -> None:
        self._plugin = plugin
        self._ledger = plugin.ledger
        self._wish = wanted.wish
        self._required = wanted.wish.affinity is not None
        self._acts = wanted.acts
        self._planned = wanted.planned
        matched = np.zeros(len(self._ledger.states), bool)
        matched[list(wanted.matched)] = True
        # Who ignores reservations goes where one is if it has to, and takes what is free beside it as well.
        required = self._required and not wanted.wish.ignored
        self._lent = _Matched(self._ledger, matched, together=wanted.wish.ignored, required=required)
        self._rating: Rating = _unrated
        index = plugin.workspace.layout.index
        self._asked = [
            (index[name], amount)
            for name, amount in pod.requests.items()
            if amount > 0
            and name in index
            and name != PODS
            and counted(name)
            and not plugin.args.ignores(name)
        ]
        self._names = set(pod.requests)
        self._screened = self._ledger.screened(pod)
        number = len(plugin.workspace.layout.names)
        self._lent.choose = lambda row: int(self._choices(slice(row, row + 1)).chosen[row])
        # Choices are worked out for nodes that somebody asks about, and anew where anything was touched;
        # there are none where nothing stands that the pods may use.
        self._known = _Choices.none(number)
        self._fresh = np.ones(number, np.bool_)
        self._fresh[[row for row in self._ledger.row[matched].tolist() if row >= 0]] = False
        self._changes = ChangeReader(plugin.workspace.touched)

    def sources(self, others: Others, rating: Rating) -> Source | None:
        self._lent.others, self._rating = others, rating
        return self._lent

    def refuse(self) -> Refusal | None:
        if not self._required or (self._lent.matched & self._ledger.open).any():
            return None
        return Refusal(AFFINITY_REFUSED)

    def restriction(self) -> BoolVector | None:
        if not self._required:
            return None
        there = np.zeros(len(self._fresh), bool)
        there[self._ledger.row[self._lent.matched & self._ledger.open]] = True
        return there

    def _account(self, loans: ReservationLoans) -> BoolVector:
        """Tell which loans' accounts allow the pod, and concern it at all."""
        serves = np.ones(len(loans.rows), bool)
        if self._lent.together or not len(loans.rows):
            return serves
        numbers = np.array([ids[0] for ids in loans.ids], np.int64)
        account = self._ledger.account
        for resource, amount in ((PODS_ROW, 1), *self._asked):
            serves &= account[resource, numbers] >= amount
        if not self._required:
            states = self._ledger.states
            # Without a wish of its own the pod is held only against what keeps account of what it asks for.
            serves &= [not self._names.isdisjoint(states[one].names) for one in numbers.tolist()]
        return serves

    def _serving(self, loans: ReservationLoans) -> BoolVector:
        serves = self._account(loans)
        if serves.any():
            serves &= self._lent.others(self._inside(loans))
        return serves

    def _inside(self, loans: ReservationLoans) -> NodeView:
        return NodeView(self._plugin.workspace, loans.rows, self._lent, loans)

    def serving(self) -> BoolVector:
        """Tell which reservations would serve the pods now, each by itself: ``(M,)``."""
        found = np.zeros(len(self._ledger.states), bool)
        loans = self._lent.loans(slice(None))
        if not self._lent.together and len(loans.rows):
            found[[ids[0] for ids in loans.ids]] = self._serving(loans)
        return found

    def _outside(self, rows: Rows) -> BoolVector:
        return self._lent.others(NodeView(self._plugin.workspace, rows))

    def fits(self, view: NodeView) -> BoolVector:
        served = self._served(view)
        if self._acts:
            served &= agreeing(self._ledger, AllocatePolicy.ALIGNED, view.rows)
        return served

    def _served(self, view: NodeView) -> BoolVector:
        rows = view.rows
        loans = self._lent.loans(slice(0, 0) if view.plain else rows)
        if not len(loans.rows):
            return np.full(view.size, not self._required)
        serves = self._serving(loans)
        self._remember(rows, loans, serves)
        inside = self._at_any(loans, serves, rows)
        if self._required and not self._lent.together:
            return inside
        concerned = self._at_any(loans, np.ones_like(serves), rows)
        if self._lent.together:
            return (inside | self._outside(rows)) & (concerned | (not self._required))
        return inside | ~concerned | self._outside(rows)

    def _at_any(self, loans: ReservationLoans, serves: BoolVector, rows: Rows) -> BoolVector:
        return NodeView(self._plugin.workspace, rows).where_any(loans, serves)

    def _choices(self, rows: Rows) -> _Choices:
        """Give what is chosen on some nodes now; of others it may be out of date."""
        self._forget()
        if not self._fresh[rows].all():
            stale = np.arange(len(self._fresh))[rows]
            stale = stale[~self._fresh[stale]]
            loans = self._lent.loans(stale)
            self._remember(stale, loans, self._serving(loans))
        return self._known

    def _forget(self) -> None:
        for row in self._changes.unread():
            self._fresh[row] = False

    def _remember(self, rows: Rows, loans: ReservationLoans, serves: BoolVector) -> None:
        """Keep what is chosen on some nodes, once it is known which of their loans serve."""
        if self._lent.together:
            return
        self._forget()
        known = self._known
        known.chosen[rows], known.raw[rows], known.order[rows] = _NO_LOAN, 0, 0
        self._fresh[rows] = True
        if len(loans.rows):
            self._choose(loans, serves)

    def _choose(self, loans: ReservationLoans, serves: BoolVector) -> None:
        """Note the best loan of each node, its score, and the smallest order that stands there."""
        ledger = self._ledger
        numbers = np.array([ids[0] for ids in loans.ids], np.int64)
        order = ledger.order[numbers]
        ordered = order != 0
        if ordered.any():
            there, first = loans.rows[ordered], self._known.order
            first[there] = np.iinfo(np.int64).max
            np.minimum.at(first, there, order[ordered])
        picked = np.flatnonzero(serves)
        if not len(picked):
            return
        numbers, rows = numbers[picked], loans.rows[picked]
        scores, exact = self._scores(numbers)
        order = ledger.order[numbers]
        # With an order first, by it; then by score, by the exact share, and by name (numbers go by name).
        summed = scores + self._further_scores(loans, picked)
        keys = (numbers, -exact, -summed, order, order == 0, rows)
        ranked = np.lexsort(keys)
        there = rows[ranked]
        best = ranked[np.concatenate([[True], there[1:] != there[:-1]])]
        self._known.chosen[rows[best]] = numbers[best]
        self._known.raw[rows[best]] = scores[best]

    def _further_scores(self, loans: ReservationLoans, picked: IntVector) -> IntVector:
        """Add up what other plugins say about the loans of a node that serve, each scaled to 100 there.

        Where one loan serves there is nothing to compare, and nobody is asked.
        """
        found = np.zeros(len(picked), np.int64)
        rows = loans.rows[picked]
        several = np.flatnonzero(np.bincount(rows)[rows] > 1)
        if not len(several):
            return found
        for raw in self._rating(self._inside(loans.some(picked[several]))):
            best = np.ones(len(self._fresh), np.int64)
            np.maximum.at(best, rows[several], raw)
            found[several] += raw * 100 // best[rows[several]]
        return found

    def _scores(self, numbers: IntVector) -> tuple[IntVector, Any]:
        """Score reservations as :func:`score_reservation` does, and with exact shares."""
        ledger = self._ledger
        capacity = ledger.capacity[:, numbers]
        used = ledger.used[:, numbers].copy()
        for resource, amount in self._asked:
            used[resource] += amount
        within = (capacity > 0) & (used <= capacity)
        parts = np.where(within, 100 * used // np.maximum(capacity, 1), 0).sum(axis=0)
        exact = np.where(within, 100.0 * used / np.maximum(capacity, 1), 0.0).sum(axis=0)
        number = np.maximum(ledger.named[numbers], 1)
        return parts // number, exact / number

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        rows = view.rows
        loans = self._lent.loans(rows)
        concerned = self._at_any(loans, np.ones(len(loans.rows), bool), rows)
        found: list[tuple[str, BoolVector]] = []
        if self._acts:
            found.append((POLICY_CONFLICT, ~agreeing(self._ledger, AllocatePolicy.ALIGNED, rows)))
        if self._required:
            found.append((AFFINITY_REFUSED, ~concerned))
        names = self._plugin.workspace.layout.resources
        free = self._plugin.workspace.free
        explained = np.zeros(len(self._fresh), bool)
        by_text: dict[str, IntVector] = {}

        def note(text: str, mask: BoolVector) -> None:
            if mask.any():
                explained[loans.rows[mask]] = True
                there = by_text.setdefault(text, np.zeros(len(self._fresh), np.int64))
                np.add.at(there, loans.rows[mask], 1)

        numbers = np.array([ids[0] for ids in loans.ids], np.int64)
        if len(numbers):
            for resource, amount in ((PODS_ROW, 1), *self._asked):
                lacking = free[resource, loans.rows] + loans.lent[resource] < amount
                note(f"Insufficient {names[resource]}{_BY_NODE}", lacking)
                if self._required and not self._lent.together:
                    text = "Too many pods" if resource == PODS_ROW else f"Insufficient {names[resource]}"
                    short = self._ledger.account[resource, numbers] < amount
                    for suffix, mask in self._amounts(resource, amount, numbers, short):
                        note(f"Reservation(s) {text}{suffix}", mask)
        if not self._required:
            # No account allows the pod, so the node itself would have to serve it.
            at = np.flatnonzero(self._at_any(loans, np.ones(len(loans.rows), bool), slice(None)) & ~explained)
            for resource, amount in ((PODS_ROW, 1), *self._asked):
                short = at[free[resource, at] < amount]
                if len(short):
                    explained[short] = True
                    text = f"Insufficient {names[resource]}{_BY_NODE}"
                    by_text.setdefault(text, np.zeros(len(self._fresh), np.int64))[short] = 1
        for text, counts in sorted(by_text.items()):
            # What the node lacks is said once, what reservations lack for each of them.
            most = 1 if text.endswith(_BY_NODE) else int(counts.max())
            found += [(text, counts[rows] > place) for place in range(most)]
        found.append((NO_RESERVATION, concerned & ~explained[rows]))
        return found

    def _amounts(
        self, resource: int, amount: int, numbers: IntVector, short: BoolVector
    ) -> list[tuple[str, BoolVector]]:
        """Who asked for one reservation by its name is told the amounts as well."""
        affinity = self._wish.affinity
        if affinity is None or not affinity.name:
            return [("", short)]
        found = []
        for place in np.flatnonzero(short).tolist():
            number = int(numbers[place])
            pods = len(self._ledger.states[number].assigned)
            used = pods if resource == PODS_ROW else int(self._ledger.used[resource, number])
            capacity = int(self._ledger.account[resource, number]) + used
            mask = np.zeros(len(numbers), bool)
            mask[place] = True
            found.append((f", requested: {amount}, used: {used}, capacity: {capacity}", mask))
        return found

    def unresolvable(self, view: NodeView) -> BoolVector:
        rows = view.rows
        loans = self._lent.loans(rows)
        concerned = self._at_any(loans, np.ones(len(loans.rows), bool), rows)
        unresolvable = ~concerned if self._required else np.zeros_like(concerned)
        if self._acts:
            unresolvable |= ~agreeing(self._ledger, AllocatePolicy.ALIGNED, rows)
        return unresolvable

    def scores(self, view: NodeView) -> IntVector | None:
        matched = (self._lent.matched & self._ledger.open).any()
        silent = not matched and not self._ledger.used_on(self._screened)
        return None if self._wish.ignored or silent else self._choices(view.rows).raw[view.rows]

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        order = self._choices(slice(None)).order
        candidates = np.flatnonzero(feasible & (order != 0))
        if len(candidates):
            raw = raw.copy()
            raw[candidates[order[candidates].argmin()]] = PREFERRED_SCORE
        return default_normalise(raw, feasible)

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        loan = None if view.drawn is None else view.drawn.loan(0)
        if loan is None or loan.together:
            return None
        one = loan.states[0].reservation
        written = {RESERVATION_ALLOCATED: format_allocated_reservation(one.name, one.uid)}
        return Reserved(written, notes=(f"reservation {one.name}",), loan=one.name)
