"""NodeNUMAResource: CPUs and memory of one pod from NUMA nodes, and devices where these hold them, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.allocators.node import NodeAllocation
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.framework.amounts import REQUESTED
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_view import Loans, NodeView
from koordcore.model.decisions import Shortfall
from koordcore.model.numa import OF_LOAN
from koordcore.model.resources import CPU
from koordcore.scheduling.plugins.exact.question import Question
from koordcore.scheduling.plugins.exact.reservations import ExactRooms
from koordcore.topology.numa import NUMATopologyPolicy


class NUMAEvaluator(Evaluator):
    """Filter and score of one kind of pods under the name NodeNUMAResource."""

    scope = Scope.NODE

    def __init__(self, question: Question, rooms: ExactRooms) -> None:
        assert question.cpu is not None
        self._question = question
        self._rooms = rooms
        self._states = question.states
        self._cpu = question.cpu

    def fits(self, view: NodeView) -> BoolVector:
        if view.drawn is not None:
            return self._inside(view, view.drawn)
        fitting = self._question.numa_fits(view.rows)
        loans = view.loans
        if loans is not None:
            inside = self.fits(view.inside(loans))
            served = view.where_any(loans, inside)
            # CPUs of the node are no help where a loan has to give them.
            told = self._refusals(view, served)
            refused = np.array([row in told for row in view.numbers.tolist()], bool)
            fitting = (fitting & ~refused) | served
        return fitting

    def _inside(self, view: NodeView, loans: Loans) -> BoolVector:
        lent = loans.lent[self._states.workspace.layout.index[CPU]]
        served = self._question.numa_fits(loans.rows, lent)
        for index in range(len(loans.rows)):
            loan = loans.loan(index)
            if self._rooms.holds(self._question, loan):
                asked = self._question.asked_at(loan.row)
                answer = self._rooms.fit(self._question, asked, loan, view.beside(loan))
                served[index] = not isinstance(answer, NUMARefusal)
        return served

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        found = self._question.numa_reasons(view.rows)
        refusals = self._refusals(view)
        if not refusals:
            return found
        at = {row: position for position, row in enumerate(view.numbers.tolist())}
        plain = np.ones(len(at), bool)
        masks: dict[tuple[str, int], BoolVector] = {}
        for row, told in refusals.items():
            plain[at[row]] = False
            for place, short in enumerate(told):
                # Each loan counts, also those that say the same.
                key = short.reason, [one.reason for one in told[:place]].count(short.reason)
                masks.setdefault(key, np.zeros(len(at), bool))[at[row]] = True
        return [(reason, mask & plain) for reason, mask in found] + [
            (reason, mask) for (reason, _), mask in masks.items()
        ]

    def _refusals(self, view: NodeView, served: BoolVector | None = None) -> dict[int, list[Shortfall]]:
        """Say by node why its loans do not serve a pod that must draw from one of them.

        ``served`` tells the nodes of the view, ``(n,)``, that need not be asked.
        """
        told: dict[int, list[Shortfall]] = {}
        loans = view.loans
        if loans is None or not view.required:
            return told
        skipped = set() if served is None else set(view.numbers[served].tolist())
        for index in range(len(loans.rows)):
            loan = loans.loan(index)
            if loan.row in skipped:
                continue
            found = self._rooms.refusal(self._question, loan, view.beside(loan))
            if found is None:
                continue
            here = told.setdefault(loan.row, [])
            of_its_own = [one for one in found.shortfalls if one.reason.startswith(OF_LOAN)]
            # What does not depend on the loan is said once, whatever numbers each has beside it.
            said = {one.reason for one in here}
            here += of_its_own or [one for one in found.shortfalls if one.reason not in said]
        return told

    def unresolvable(self, view: NodeView) -> BoolVector:
        hopeless = self._question.numa_unresolvable(view.rows)
        refusals = self._refusals(view)
        for position, row in enumerate(view.numbers.tolist() if refusals else ()):
            if row in refusals:
                hopeless[position] = not all(one.resolvable for one in refusals[row])
        return hopeless

    def _answer(self, row: int) -> NodeAllocation | NUMARefusal:
        question = self._question
        tied = question.asked_at(row, filtered=True) is question.request
        return (question.joint if tied and question.joint is not None else self._cpu).answer(row)

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        answer = self._answer(view.row)
        return answer.shortfalls if isinstance(answer, NUMARefusal) else ()

    def details(self, view: NodeView) -> tuple[str, ...]:
        row = view.row
        if not isinstance(self._answer(row), NUMARefusal):
            return ()
        asked = self._question.asked_at(row, filtered=True)
        offer = self._states.offer(row, with_devices=asked.devices is not None)
        return explain_node(offer, asked, self._question.args).lines

    def scores(self, view: NodeView) -> IntVector:
        scores = self._question.numa_scores(view.rows, self._lifted(view))
        if view.loans is not None:
            self._score_drawn(view, view.loans, scores)
        return scores

    def _score_drawn(self, view: NodeView, loans: Loans, scores: IntVector) -> None:
        """Score nodes under a topology policy by what the pod gets out of the loan it would draw from."""
        concerned = set(loans.rows.tolist())
        for position, row in enumerate(view.numbers.tolist() if concerned else ()):
            loan = view.drawn_from(row) if row in concerned else None
            if loan is None or not self._rooms.holds(self._question, loan):
                continue
            if self._question.policy_at(row) is not NUMATopologyPolicy.NONE:
                requested = view.at(row).amounts[REQUESTED][:, 0]
                scores[position] = self._rooms.score(self._question, loan, requested, view.beside(loan))

    def _lifted(self, view: NodeView) -> dict[str, IntVector] | None:
        """What counts as gone from the nodes, by resource."""
        if view.plain:
            return None
        lifted = view.workspace.at(view.rows)[REQUESTED] - view.amounts[REQUESTED]
        return {name: lifted[at] for name, at in view.workspace.layout.index.items()}
