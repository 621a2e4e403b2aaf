"""Evidence that nothing is cheaper than a plan for one member: by counting, else from the program."""

from __future__ import annotations

from math import comb
from typing import Final

import numpy as np

from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.model.proofs import EvictionEvidence
from koordcore.preemption.bounds import (
    eviction_problem,
    fewest_pods,
    holding,
    slots_up_to,
    usable_up_to,
    widest_slots,
)
from koordcore.preemption.exact import ExactAnswer, certify_plan
from koordcore.preemption.problem import Domains, PreemptionProblem
from koordcore.preemption.victim_program import Scope

_EVIDENT: Final = 200
"""Candidates up to which the program is written down for the sake of evidence."""
_MOST_TRIES: Final = 3_000_000
"""Sets of victims up to which it can be expected that somebody tries them all; some ten seconds."""


def with_evidence(
    problem: PreemptionProblem, domains: Domains, answer: ExactAnswer, limits: Limits
) -> Certificate:
    """Certify a plan for one member once more, with evidence where it is soon found.

    What dry runs refused is no part of it: it only takes plans away, and where a cheaper plan was refused
    there is no evidence.

    Parameters
    ----------
    problem, domains
        What is asked, and where the member may go.
    answer
        The plan, with what is known of its cost.
    limits
        Budget of the solver.
    """
    certificate = answer.certificate
    if not certificate.proven:
        return certificate
    asked = eviction_problem(problem, domains, Members.MINIMUM)
    leaving = EvictionEvidence(tuple(np.flatnonzero(answer.chosen).tolist()))
    proof = Certificate.make_proven(certificate.objective, asked, leaving)
    if _counted(problem, domains, certificate.objective) or _plain(problem, domains, answer):
        return proof
    if len(problem.candidates) <= _EVIDENT and check_certificate(asked, proof).accepted:
        return proof
    if len(problem.candidates) > _EVIDENT:
        return certificate
    scope = Scope(domains=domains, usable=usable_up_to(problem, None))
    return certify_plan(problem, scope, answer, limits)


def _plain(problem: PreemptionProblem, domains: Domains, answer: ExactAnswer) -> bool:
    """Tell whether trying everybody on every node, and amounts alone, comes to the same answer soon."""
    violations, highest, _, pods, *_, moves = answer.certificate.objective
    if violations or moves or not answer.first or problem.pools or len(problem.budgets):
        return False
    # Where amounts would do with less, something else was in the way, before any dry run.
    if holding(problem, slots_up_to(problem, highest - 1), domains, Members.MINIMUM).any():
        return False
    table, slack = problem.candidates, problem.jobs.slack
    usable = np.flatnonzero(usable_up_to(problem, highest))
    node, job = table.node[usable], table.job[usable]
    pairs, found = np.unique(node * len(slack) + job, return_counts=True)
    spared = slack[pairs % max(1, len(slack))]
    if ((spared > 1) & (found > spared)).any():
        # That no more leave than the job can spare is nothing that is counted then.
        return False
    number, nodes = np.unique(np.bincount(node), return_counts=True)
    tries = (sum(comb(many, few) for few in range(pods + 1)) for many in number.tolist())
    total = sum(one * times for one, times in zip(tries, nodes.tolist(), strict=True))
    return bool(total <= _MOST_TRIES)


def _counted(problem: PreemptionProblem, domains: Domains, objective: tuple[int, ...]) -> bool:
    """Tell whether counting shows that a damage is the least."""
    violations, highest, jobs, pods, priorities, restarts, moves = objective
    if violations or restarts or moves or jobs > 1:
        return False
    if highest == NO_PRIORITY:
        return True
    if holding(problem, slots_up_to(problem, highest - 1), domains, Members.MINIMUM).any():
        return False
    usable = usable_up_to(problem, highest)
    least = 1
    if jobs:
        spares = problem.jobs.spares
        spared = usable & spares[problem.candidates.job] if spares.any() else np.zeros_like(usable)
        if holding(problem, widest_slots(problem, spared), domains, Members.MINIMUM).any():
            return False
    elif pods > 1:
        slots = np.where(domains.home >= 0, widest_slots(problem, usable), 0)
        least = max(1, fewest_pods(problem, usable, slots, 1))
    priority = problem.candidates.priority
    lowest = int((priority if usable.all() else priority[usable]).min(initial=highest))
    return (pods, priorities) == (least, highest + (least - 1) * lowest)
