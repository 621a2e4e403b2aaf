"""What reservations lend to pods that may use them: a source of views of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector, Rows
from koordcore._record import record
from koordcore.framework.sources import Loan, Source
from koordcore.model.pods import PodKey
from koordcore.protocol.reservation import is_operating_pod
from koordcore.reservations.cache import ReservationLedger

_FEW: Final = 32
"""Nodes that are looked up one by one."""


@record(eq=False)
class ReservationLoans:
    """What reservations of several nodes lend.

    Parameters
    ----------
    rows
        ``(K,)``: node of each.
    lent
        ``(R, K)``: what it adds to what is free.
    ids
        Numbers of the reservations in the ledger.
    """

    rows: IntVector
    lent: IntMatrix
    ids: tuple[tuple[int, ...], ...]
    ledger: ReservationLedger
    together: bool = False

    def loan(self, index: int) -> Loan:
        """Give one of them."""
        ledger, ids = self.ledger, self.ids[index]
        holders = tuple(ledger.holders[one] for one in ids)
        # A pod that acts as a reservation uses its own ports.
        keeping = (pod for pod in holders if pod.host_ports and not is_operating_pod(pod))
        return Loan(
            row=int(self.rows[index]),
            states=tuple(ledger.states[one] for one in ids),
            holders=holders,
            together=self.together,
            ports=tuple(port for pod in keeping for port in pod.host_ports),
        )

    def only(self, index: int) -> ReservationLoans:
        """Leave only one of them."""
        return self.some(np.array([index], np.int64))

    def some(self, picked: IntVector) -> ReservationLoans:
        """Leave only some of them."""
        ids = tuple(self.ids[index] for index in picked.tolist())
        return attrs.evolve(self, rows=self.rows[picked], lent=self.lent[:, picked], ids=ids)


class Lending:
    """What reservations lend to one class of pods: the source of its views.

    Parameters
    ----------
    matched
        ``(M,)``: those that the pods may use.
    together
        The pods ignore reservations: all of a node lend together.
    required
        The pods may go nowhere but into a reservation.
    """

    def __init__(
        self, ledger: ReservationLedger, matched: BoolVector, *, together: bool, required: bool = False
    ) -> None:
        self.ledger = ledger
        self.required = required
        self.matched = matched
        self.together = together

    @property
    def gone(self) -> frozenset[PodKey]:
        """Names of the pods that stand for the reservations which the pods may use."""
        return frozenset(self.ledger.holders[one].key for one in np.flatnonzero(self.matched).tolist())

    def beside(self, loan: Loan) -> tuple[Loan, ...]:
        """Give the other loans of its node; none where all lend together, or running pods do."""
        if loan.together or loan.over:
            return ()
        loans = self.loans(slice(loan.row, loan.row + 1))
        every = (loans.loan(index) for index in range(len(loans.rows)))
        return tuple(one for one in every if one.holders != loan.holders)

    def _numbers(self, rows: Rows) -> IntVector:
        """Give the reservations on some nodes that are open to the pods."""
        ledger = self.ledger
        if isinstance(rows, slice) and rows == slice(None):
            return np.flatnonzero(self.matched & ledger.open)
        number = len(ledger.workspace.layout.names)
        if not isinstance(rows, slice) and len(rows) > _FEW:
            there = np.zeros(number, bool)
            there[rows] = True
            # A row of -1, for one that waits for a node, is not open.
            return np.flatnonzero(self.matched & ledger.open & there[ledger.row])
        wanted = range(number)[rows] if isinstance(rows, slice) else rows.tolist()
        found = [
            one
            for row in dict.fromkeys(wanted)
            for one in ledger.by_row.get(row, ())
            if self.matched[one] and ledger.open[one]
        ]
        return np.array(found, np.int64)

    def touched(self, rows: Rows) -> BoolVector:
        """Tell which of the nodes have reservations that the pods may use, ``(n,)``."""
        found = np.zeros(len(self.ledger.workspace.layout.names), bool)
        found[self.ledger.row[self._numbers(rows)]] = True
        there: BoolVector = found[rows]
        return there

    def lifted(self, rows: Rows, *, scored: bool = False) -> IntMatrix | None:
        """Give what goes away on each node when all that the pods may use is taken off it: ``(R, n)``."""
        numbers = self._numbers(rows)
        if not len(numbers):
            return None
        whole = self.ledger.lift_scored if scored else self.ledger.lift
        number = len(self.ledger.workspace.layout.names)
        if (len(range(number)[rows]) if isinstance(rows, slice) else len(rows)) == 1:
            lifted: IntMatrix = whole[:, numbers].sum(axis=1, keepdims=True)
            return lifted
        spread = np.zeros((number, len(whole)), np.int64)
        np.add.at(spread, self.ledger.row[numbers], whole[:, numbers].T)
        return spread[rows].T

    def lifted_with(self, others: Iterable[Source]) -> IntMatrix | None:
        """Give what goes away on each node when pods of other classes come as well: ``(R, N)``."""
        matched = self.matched.copy()
        for other in others:
            assert isinstance(other, Lending)
            matched |= other.matched
        return Lending(self.ledger, matched, together=self.together).lifted(slice(None))

    def loans(self, rows: Rows) -> ReservationLoans:
        """Give what the pods may draw from on some nodes."""
        ledger = self.ledger
        numbers = self._numbers(rows)
        at = ledger.row[numbers]
        if not self.together:
            lent = ledger.left[:, numbers].copy()
            lent[PODS_ROW] = ledger.lift[PODS_ROW, numbers]
            return ReservationLoans(at, lent, tuple((one,) for one in numbers.tolist()), ledger)
        by_row: dict[int, list[int]] = {}
        for one, row in zip(numbers.tolist(), at.tolist(), strict=True):
            by_row.setdefault(row, []).append(one)
        lent = np.zeros((len(ledger.lift), len(by_row)), np.int64)
        for place, ids in enumerate(by_row.values()):
            lent[:, place] = ledger.lift[:, ids].sum(axis=1)
        every = tuple(map(tuple, by_row.values()))
        return ReservationLoans(np.array(list(by_row), np.int64), lent, every, ledger, together=True)
