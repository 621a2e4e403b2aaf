"""Where a reservation that waits for a node may be placed: on what is free, or over running pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from koordcore._arrays import BoolVector, Rows
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Reserved, Scope
from koordcore.framework.node_view import NodeView, Others, Rating
from koordcore.framework.sources import Source
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod
from koordcore.model.reservations import AllocatePolicy, ReservationArgs
from koordcore.reservations.cache import ReservationLedger
from koordcore.reservations.filter import POLICY_CONFLICT, WRONG_NODE, ReservationRefusal
from koordcore.scheduling.plugins.reservation_pre_allocation import PreAllocating


@record
class WaitingReservation:
    """A reservation that is to be placed."""

    policy: AllocatePolicy
    node: str
    over: str = ""
    """Uid of a reservation that may be placed over running pods: no two are alike."""


class _Placing(Protocol):
    """The plugin for which a reservation is placed."""

    ledger: ReservationLedger
    args: ReservationArgs

    def take_in(self, holder: Pod, row: int, pods: Iterable[Pod]) -> None:
        """Write on running pods that they use the reservation."""


def agreeing(ledger: ReservationLedger, policy: AllocatePolicy, rows: Rows) -> BoolVector:
    """Tell on which nodes a policy goes with those of the reservations there."""
    agrees = np.ones(len(ledger.workspace.layout.names), bool)
    for row in ledger.by_row:
        others = ledger.policies_on(row)
        agrees[row] = not any(one != policy and AllocatePolicy.DEFAULT in (one, policy) for one in others)
    return agrees[rows]


class HolderEvaluator(Evaluator):
    """Where a reservation that waits for a node may be placed."""

    scope = Scope.NODE

    def __init__(self, plugin: _Placing, pod: Pod, holder: WaitingReservation) -> None:
        ledger = plugin.ledger
        self._plugin = plugin
        self._over: PreAllocating | None = None
        if holder.over:
            state = ledger.states[ledger.number_of[pod.key]]
            self._over = PreAllocating(ledger, pod, state, plugin.args)
        self._ledger = ledger
        self._holder = holder
        self._names = ledger.workspace.layout.names

    def _pinned(self, rows: Rows) -> BoolVector:
        if not self._holder.node:
            return np.ones(len(self._names), bool)[rows]
        return np.array([name == self._holder.node for name in self._names], bool)[rows]

    def _agrees(self, rows: Rows) -> BoolVector:
        return agreeing(self._ledger, self._holder.policy, rows)

    def sources(self, others: Others, rating: Rating) -> Source | None:
        if self._over is not None:
            self._over.others = others
        return self._over

    def _refusals(self, rows: Rows) -> list[ReservationRefusal | None]:
        """What running pods have to say: why the reservation cannot be placed over those of a node."""
        numbers = range(len(self._names))[rows] if isinstance(rows, slice) else rows.tolist()
        if self._over is None:
            return [None] * len(numbers)
        answers = map(self._over.answer, numbers)
        return [one if isinstance(one, ReservationRefusal) else None for one in answers]

    def fits(self, view: NodeView) -> BoolVector:
        rows = view.rows
        allowed = self._pinned(rows) & self._agrees(rows)
        allowed &= [one is None for one in self._refusals(rows)]
        return allowed

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        rows = view.rows
        pinned, agrees = self._pinned(rows), self._agrees(rows)
        refusals = self._refusals(rows)
        texts = sorted({text for one in refusals if one is not None for text in one.reasons})
        said = [
            (text, pinned & agrees & np.array([one is not None and text in one.reasons for one in refusals]))
            for text in texts
        ]
        return [(WRONG_NODE, ~pinned), (POLICY_CONFLICT, pinned & ~agrees), *said]

    def unresolvable(self, view: NodeView) -> BoolVector:
        rows = view.rows
        return ~(self._pinned(rows) & self._agrees(rows))

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        if view.drawn is None:
            return None  # what is free needs no word
        holders = view.drawn.loan(0).holders
        self._plugin.take_in(pod, view.row, holders)
        over = tuple(one.key for one in holders)
        return Reserved(notes=("over " + ", ".join(map(str, over)),), over=over)

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        return tuple(Shortfall(text, resolvable=False) for text, mask in self.reasons(view) if mask[0])
