"""One member to be placed: the cheapest plans are tried one after the other, until one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.preemption.cost import broken_jobs
from koordcore.preemption.exact import ExactAnswer
from koordcore.preemption.lone import LoneSearch, Offers, Plan
from koordcore.preemption.moves import nobody_moves
from koordcore.preemption.node_victims import Cost
from koordcore.preemption.problem import Conflict, Domains, PreemptionProblem

_TRIES: Final = 32
"""Dry runs for each unit of the solver's budget."""


_LAST_TRIES: Final = 8
"""Dry runs when the budget has ended, to name some plan that holds."""


_FIRST_BATCH: Final = 16
"""Nodes that are asked at once whether they can serve at all; more each time."""


_MOST_SINGLY: Final = 32
"""Pods of a node each of whom is kept on trial, to see whether it has to leave."""


Try: TypeAlias = Callable[[IntMatrix, BoolVector, IntVector], Conflict | None]


class _Trials:
    """Dry runs of the plans of a search, as many as the budget allows."""

    def __init__(
        self, problem: PreemptionProblem, search: LoneSearch, dry_run: Try, offers: Offers | None, left: int
    ) -> None:
        self._problem, self._search, self._dry_run, self._offers = problem, search, dry_run, offers
        self.left = left
        self._looked_at: set[int] = set()
        self._batch = _FIRST_BATCH

    def holds(self, plan: Plan) -> bool:
        """Try a plan; where it does not hold, leave it out and see what its node needs."""
        _, row, ones = plan
        conflict = self._try(row, ones)
        if conflict is None:
            return True
        if conflict.node < 0:
            self._search.refuse_anywhere(conflict.gone)
            self._search.work_out(row)
            return False
        self._search.refuse(row, ones)
        if conflict.ways is not None:
            self._search.only(row, conflict.ways)
        elif row not in self._looked_at:
            self._looked_at.add(row)
            self._look_at(row, ones)
        self._search.work_out(row)
        return False

    def _try(self, row: int, ones: Iterable[int]) -> Conflict | None:
        self.left -= 1
        counts = np.zeros((1, len(self._problem.nodes)), dtype=np.int64)
        counts[0, row] = 1
        return self._dry_run(counts, _mask(self._problem, ones), nobody_moves(self._problem))

    def _look_at(self, row: int, ones: tuple[int, ...]) -> None:
        """Find out whether a node can serve at all, and who has to leave it whoever else does."""
        search = self._search
        if self._offers is not None:
            rows = np.append(search.upcoming(self._batch), row)
            self._batch *= 4
            self.left -= 1
            hopeless = rows[~self._offers(rows)]
            search.drop(hopeless)
            if row in hopeless:
                return
        everybody = search.everybody(row)
        elsewhere = frozenset(ones) - everybody
        conflict = self._try(row, self._with_gangs(everybody | elsewhere))
        if conflict is not None:
            if not conflict.elsewhere:
                search.drop(np.array([row]))
            return  # the member may need some of them beside it, or there is nothing to be won
        for one in sorted(everybody.difference(ones)) if len(everybody) <= _MOST_SINGLY else ():
            rest = everybody - {one}
            leaving = self._with_gangs(rest | elsewhere)
            if self.left > 0 and one not in leaving and self._try(row, leaving) is not None:
                search.refuse(row, rest | elsewhere)

    def _with_gangs(self, ones: frozenset[int]) -> frozenset[int]:
        """Add the rest of the gangs that break."""
        problem = self._problem
        broken = broken_jobs(problem, _mask(problem, ones)) & problem.jobs.breakable
        jobs = {int(problem.candidates.job[one]) for one in ones}
        return ones.union(*(problem.of_job(job).tolist() for job in jobs if broken[job]))

    def best(self) -> tuple[ExactAnswer, Plan | None] | CertificateStatus:
        """Give some plan that holds once the budget is used up, with what the others cost at least."""
        bound = self._search.bound()
        plans = self._search.candidates()
        costs = [plan[0] for plan in plans[:1]] + ([] if bound is None else [bound[0]])
        for plan in plans[:_LAST_TRIES]:
            if self._try(plan[1], plan[2]) is None:
                return _answer(self._problem, plan, min(costs)), None
        return CertificateStatus.HEURISTIC


def plan_alone(
    problem: PreemptionProblem,
    domains: Domains,
    limits: Limits,
    dry_run: Try | None,
    offers: Offers | None,
) -> tuple[ExactAnswer, Plan | None] | CertificateStatus:
    """Find the cheapest plan for one member that holds.

    Parameters
    ----------
    problem, domains
        What is asked, and where the member may go.
    limits
        Budget; it bounds the dry runs.
    dry_run
        Tells whether a plan holds, or what it runs into; ``None`` where every plan does.
    offers
        Tells which nodes would serve if everybody had left them; ``None`` for all.

    Returns
    -------
    tuple or CertificateStatus
        The plan, and the cheapest on another node as far as one dry run tells; ``INFEASIBLE`` when there is
        provably none, ``HEURISTIC`` when the budget ended before one was found that holds.
    """
    search = LoneSearch(problem, domains, limits)
    tries = max(_TRIES, int(_TRIES * limits.deterministic_time))
    trials = None if dry_run is None else _Trials(problem, search, dry_run, offers, tries)
    first = True
    while (plan := search.pop()) is not None:
        if trials is None or trials.holds(plan):
            bound = plan[0] if search.loose is None else min(plan[0], search.loose)
            search.drop(np.array([plan[1]]))
            other = search.pop() if plan[2] else None
            if other is not None and trials is not None and not trials.holds(other):
                other = None
            return attrs.evolve(_answer(problem, plan, bound), first=first), other
        first = False
        if trials.left <= 0:
            return trials.best()
    return CertificateStatus.INFEASIBLE if search.loose is None else CertificateStatus.HEURISTIC


def _answer(problem: PreemptionProblem, plan: Plan, bound: Cost) -> ExactAnswer:
    cost, row, ones = plan
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    counts[0, row] = 1
    return ExactAnswer(
        counts=counts,
        chosen=_mask(problem, ones),
        moves=nobody_moves(problem),
        certificate=Certificate.make_bounded((*cost, 0), (*bound, 0)),
    )


def _mask(problem: PreemptionProblem, ones: Iterable[int]) -> BoolVector:
    mask = np.zeros(len(problem.candidates), dtype=np.bool_)
    mask[list(ones)] = True
    return mask
