"""Placing a reservation over running pods, in the flow: which pods of a node it would take in."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import PODS_ROW, IntMatrix, Rows
from koordcore.allocators.reservation.filter import ReservationRefusal, ReservedNode
from koordcore.allocators.reservation.preallocation import (
    PreAllocation,
    is_candidate,
    order_candidates,
    pre_allocate,
)
from koordcore.allocators.reservation.state import ReservationState
from koordcore.model.pods import Pod
from koordcore.model.reservations import ReservationArgs
from koordcore.model.resources import PODS, make_resources
from koordcore.schedule.reserved import Lending, ReservationLedger

__all__ = ["PreAllocating"]


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
        return pre_allocate(self._pod, self._state, seen, candidates, args=self._args)

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
