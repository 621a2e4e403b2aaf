"""From a solver's word to a certificate: with evidence that anybody can check, where it is soon found."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._cpsat import Outcome, OutcomeStatus
from koordcore._duals import MOST_WORK, evidence_for
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.model.proofs import LinearProblem


def certify(problem: LinearProblem, outcome: Outcome, limits: Limits = DEFAULT_LIMITS) -> Certificate:
    """Say what is known as a certificate, with evidence where it is soon found.

    Parameters
    ----------
    problem
        What was solved, with one stage for each place of the objective.
    limits
        A budget below one unit shortens the search for evidence as well.
    """
    if outcome.status is OutcomeStatus.UNKNOWN:
        return Certificate(CertificateStatus.HEURISTIC)
    if outcome.status is OutcomeStatus.FEASIBLE:
        return Certificate.make_bounded(outcome.objective, outcome.bound)
    return certified(problem, outcome.values if outcome.solved else None, limits)


def certified(
    problem: LinearProblem, values: Sequence[int] | None, limits: Limits = DEFAULT_LIMITS
) -> Certificate:
    """Certify an answer that is known to be the best, or, for ``None``, that there is none."""
    work = int(MOST_WORK * min(1.0, limits.deterministic_time))
    evidence = evidence_for(problem, values, work=work)
    known = (problem, evidence) if evidence is not None else (None, None)
    if values is None:
        return Certificate.make_infeasible(*known)
    objective = []
    for stage in problem.stages:
        value = stage.constant + sum(c * values[v] for v, c in stage.terms)
        objective.append(stage.levels[value] if stage.levels else value)
    return Certificate.make_proven(tuple(objective), *known)
