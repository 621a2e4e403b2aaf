"""NodeNUMAResource: CPUs and memory of one pod from NUMA nodes, and devices where these hold them, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.node import NodeAllocation
from koordcore.allocators.numa import OF_RESERVATION
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.framework.plugin import Evaluator, Scope
from koordcore.model.decisions import Shortfall
from koordcore.model.resources import CPU
from koordcore.reservations.cache import Lending, Room, Rooms
from koordcore.scheduling.plugins.exact.question import Question
from koordcore.scheduling.plugins.exact.rooms import ExactRooms
from koordcore.topology.numa import NUMATopologyPolicy

__all__ = ["NUMAEvaluator"]


class NUMAEvaluator(Evaluator):
    """Filter and score of one kind of pods under the name NodeNUMAResource."""

    scope = Scope.NODE

    def __init__(self, question: Question, rooms: ExactRooms) -> None:
        assert question.cpu is not None
        self._question = question
        self._rooms = rooms
        self._states = question.states
        self._cpu = question.cpu
        self._number = len(question.states.workspace.layout.names)

    def fits(self, rows: Rows) -> BoolVector:
        fitting = self.fits_outside(rows)
        if self.lending is not None:
            rooms = self.lending.rooms(rows)
            served = rooms.any_at(self.fits_from(rooms), self._number)
            refused = np.zeros(len(served), bool)
            # CPUs of the node are no help where a reservation has to give them.
            refused[list(self._reserved_refusals(rows, served))] = True
            fitting = (fitting & ~refused[rows]) | served[rows]
        return fitting

    def fits_from(self, rooms: Rooms) -> BoolVector:
        lent = rooms.lent[self._states.workspace.layout.index[CPU]]
        served = self._question.numa_fits(rooms.rows, lent)
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            if self._rooms.holds(self._question, room):
                served[index] = not isinstance(self._from_room(room), NUMARefusal)
        return served

    def _from_room(self, room: Room) -> NodeAllocation | NUMARefusal:
        others = () if self.lending is None else self.lending.beside(room)
        return self._rooms.fit(self._question, self._question.asked_at(room.row), room, others)

    def fits_outside(self, rows: Rows) -> BoolVector:
        return self._question.numa_fits(rows)

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        found = self._question.numa_reasons(rows)
        reserved = self._reserved_refusals(rows)
        if not reserved:
            return found
        at = {row: position for position, row in enumerate(np.arange(self._number)[rows].tolist())}
        plain = np.ones(len(at), bool)
        masks: dict[tuple[str, int], BoolVector] = {}
        for row, told in reserved.items():
            plain[at[row]] = False
            for place, short in enumerate(told):
                # Each reservation counts, also those that say the same.
                key = short.reason, [one.reason for one in told[:place]].count(short.reason)
                masks.setdefault(key, np.zeros(len(at), bool))[at[row]] = True
        return [(reason, mask & plain) for reason, mask in found] + [
            (reason, mask) for (reason, _), mask in masks.items()
        ]

    def _reserved_refusals(self, rows: Rows, served: BoolVector | None = None) -> dict[int, list[Shortfall]]:
        """Say by node why its reservations do not serve a pod that must sit in one of them.

        ``served`` tells the nodes, ``(N,)``, that need not be asked.
        """
        told: dict[int, list[Shortfall]] = {}
        lending = self.lending
        if lending is None or not lending.required:
            return told
        rooms = lending.rooms(rows)
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            if served is not None and served[room.row]:
                continue
            found = self._rooms.refusal(self._question, room, lending.beside(room))
            if found is None:
                continue
            here = told.setdefault(room.row, [])
            of_its_own = [one for one in found.shortfalls if one.reason.startswith(OF_RESERVATION)]
            # What does not depend on the reservation is said once.
            here += of_its_own or [one for one in found.shortfalls if one not in here]
        return told

    def unresolvable(self, rows: Rows) -> BoolVector:
        hopeless = self._question.numa_unresolvable(rows)
        reserved = self._reserved_refusals(rows)
        if not reserved:
            return hopeless
        found = hopeless.copy()
        for position, row in enumerate(np.arange(self._number)[rows].tolist()):
            if row in reserved:
                found[position] = not all(one.resolvable for one in reserved[row])
        return found

    def _answer(self, row: int) -> NodeAllocation | NUMARefusal:
        question = self._question
        tied = question.asked_at(row, filtered=True) is question.request
        return (question.joint if tied and question.joint is not None else self._cpu).answer(row)

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        answer = self._answer(row)
        return answer.shortfalls if isinstance(answer, NUMARefusal) else ()

    def details(self, row: int) -> tuple[str, ...]:
        if not isinstance(self._answer(row), NUMARefusal):
            return ()
        asked = self._question.asked_at(row, filtered=True)
        offer = self._states.offer(row, with_devices=asked.devices is not None)
        return explain_node(offer, asked, self._question.args).lines

    def scores(self, rows: Rows) -> IntVector:
        scores = self._question.numa_scores(rows, self._lifted(rows))
        if self.lending is not None:
            self._score_lent(self.lending, scores, rows)
        return scores

    def _score_lent(self, lending: Lending, scores: IntVector, rows: Rows) -> None:
        """Score nodes under a topology policy by what the pod gets there out of its reservation."""
        concerned = set(lending.rooms(rows).rows.tolist())
        if not concerned:
            return
        for position, row in enumerate(np.arange(self._number)[rows].tolist()):
            room = lending.drawn_from(row) if row in concerned else None
            if room is None or not self._rooms.holds(self._question, room):
                continue
            if self._question.policy_at(row) is not NUMATopologyPolicy.NONE:
                lifted = lending.lifted(slice(row, row + 1))
                scores[position] = self._rooms.score(self._question, room, lifted, lending.beside(room))

    def _lifted(self, rows: Rows) -> dict[str, IntVector] | None:
        """What reservations that the pod may use take of the nodes, by resource."""
        lifted = None if self.lending is None else self.lending.lifted(rows)
        if lifted is None:
            return None
        return {name: lifted[row] for name, row in self._states.workspace.layout.index.items()}
