"""Placing a reservation over running pods, in the flow: which pods of a node it would take in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, Rows
from koordcore._record import record
from koordcore.framework.node_view import NodeView, Others
from koordcore.framework.sources import Loan
from koordcore.model.pods import Pod
from koordcore.model.reservations import ReservationArgs
from koordcore.model.resources import PODS, make_resources
from koordcore.reservations.cache import ReservationLedger
from koordcore.reservations.filter import ReservationRefusal, ReservedNode
from koordcore.reservations.lending import Lending, ReservationLoans
from koordcore.reservations.preallocation import (
    PreAllocation,
    is_candidate,
    order_candidates,
    pre_allocate,
)
from koordcore.reservations.state import ReservationState


@record(eq=False)
class _OverPods(ReservationLoans):
    """What running pods lend.

    Parameters
    ----------
    given
        One for each of ``rows``.
    """

    given: tuple[Loan, ...] = ()

    def loan(self, index: int) -> Loan:
        """Give one of them."""
        return self.given[index]


class PreAllocating(Lending):
    """What running pods lend to a reservation that is placed over them: the room they have already.

    Parameters
    ----------
    pod
        The pod that stands for the reservation.
    state
        The reservation, without users yet.
    """

    def __init__(
        self, ledger: ReservationLedger, pod: Pod, state: ReservationState, args: ReservationArgs
    ) -> None:
        super().__init__(ledger, np.zeros(len(ledger.states), bool), together=False)
        self._pod = pod
        self._state = state
        self._args = args
        self.others: Others = lambda view: np.ones(view.size, bool)
        """Whether what filters says that pods that are taken in lend enough of everything."""
        self._answers: dict[int, PreAllocation | ReservationRefusal] = {}
        self._known_at = -1

    def answer(self, row: int) -> PreAllocation | ReservationRefusal:
        """Choose the pods of a node, or say why there are none."""
        workspace = self.ledger.workspace
        if self._known_at != len(workspace.touched):
            self._answers, self._known_at = {}, len(workspace.touched)
        if row not in self._answers:
            self._answers[row] = self._ask(row)
        return self._answers[row]

    def _ask(self, row: int) -> PreAllocation | ReservationRefusal:
        workspace = self.ledger.workspace
        node = workspace.layout.nodes[row]
        there = workspace.pods_on(row).values()
        candidates = order_candidates(
            [pod for pod in there if is_candidate(pod, self._state, node, self._args)],
            self._state,
            self._args,
        )
        requested = make_resources(
            {
                name: int(workspace.requested[at, row])
                for name, at in workspace.layout.index.items()
                if name != PODS
            }
        )
        number = int(workspace.requested[PODS_ROW, row])
        seen = ReservedNode(node=node, requested=requested, restored=requested, pods=number - len(candidates))

        def serves(pods: tuple[Pod, ...]) -> bool:
            if not pods:
                return bool(self.others(NodeView(workspace, slice(row, row + 1)))[0])
            loans = self._over({row: pods})
            return bool(self.others(NodeView(workspace, loans.rows, self, loans))[0])

        return pre_allocate(self._pod, self._state, seen, candidates, args=self._args, serves=serves)

    def _over(self, taken: Mapping[int, tuple[Pod, ...]]) -> _OverPods:
        index = self.ledger.workspace.layout.index
        lent = np.zeros((len(index), len(taken)), np.int64)
        given = []
        for place, (row, pods) in enumerate(taken.items()):
            for pod in pods:
                for name, amount in pod.requests.items():
                    if name in index and name != PODS:
                        lent[index[name], place] += amount
            lent[PODS_ROW, place] = len(pods)
            ports = tuple(port for pod in pods for port in pod.host_ports)
            given.append(Loan(row=row, states=(self._state,), holders=pods, over=True, ports=ports))
        rows = np.array(list(taken), np.int64)
        return _OverPods(rows, lent, ((),) * len(taken), self.ledger, given=tuple(given))

    def touched(self, rows: Rows) -> BoolVector:
        """Any node may have pods that would be taken in."""
        return np.ones(len(self.ledger.workspace.layout.names), bool)[rows]

    def loans(self, rows: Rows) -> ReservationLoans:
        """Give what the pods lend that are taken in, one loan for each node where any are."""
        numbers = range(len(self.ledger.workspace.layout.names))[rows] if isinstance(rows, slice) else rows
        taken = {int(row): self.taken(int(row)) for row in numbers}
        return self._over({row: pods for row, pods in taken.items() if pods})

    def drawn_from(self, row: int) -> Loan | None:
        """Give the loan of a node; ``None`` where no pods are taken in."""
        loans = self.taken_from(row)
        return None if loans is None else loans.loan(0)

    def taken_from(self, row: int) -> ReservationLoans | None:
        """Give the same as loans."""
        loans = self.loans(slice(row, row + 1))
        return loans if len(loans.rows) else None

    def taken(self, row: int) -> tuple[Pod, ...]:
        """Give the pods of a node that the reservation takes in; none where it needs none, or none serve."""
        answer = self.answer(row)
        if isinstance(answer, ReservationRefusal):
            return ()
        return answer.selected if answer.nominated is None else (answer.nominated,)

    def lifted(self, rows: Rows, *, scored: bool = False) -> IntMatrix | None:
        """Give what the pods that are taken in ask for: the reservation will hold it in their place."""
        layout = self.ledger.workspace.layout
        numbers = range(len(layout.names))[rows] if isinstance(rows, slice) else rows.tolist()
        spread = np.zeros((len(layout.resources), len(numbers)), np.int64)
        for place, row in enumerate(numbers):
            for pod in self.taken(row):
                for name, amount in (pod.scored_requests if scored else pod.requests).items():
                    if name in layout.index:
                        spread[layout.index[name], place] += amount
                spread[PODS_ROW, place] += 1
        return spread
