"""Proofs repeated: whether nothing better exists, by code that shares nothing with what decided.

Only integers are added up and compared. A certificate without evidence is not rejected, it is not checked: a
solver's word is all that there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import gcd
from typing import TypeAlias

from koordcore._record import record
from koordcore.checking.cover_proof import least_cooling, least_vacating
from koordcore.checking.eviction_proof import eviction_fault, floor_fault
from koordcore.checking.gathering_proof import best_gathering
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.proofs import (
    Branch,
    CoolingProblem,
    EvictionProblem,
    Evidence,
    LinearEvidence,
    LinearProblem,
    Problem,
    ProofTree,
    TreeProblem,
    VacatingProblem,
)

Terms: TypeAlias = dict[int, int]
"""Coefficients of variables."""
Value: TypeAlias = tuple[int, ...]
"""Whole numbers: an answer, or an objective."""


class CertificateCheck(StrEnum):
    """What came of checking a certificate."""

    ACCEPTED = "Accepted"
    REJECTED = "Rejected"
    NOT_CHECKED = "NotChecked"


@record
class CheckedProof:
    """Whether a proof holds.

    Parameters
    ----------
    outcome
        Accepted: it was repeated here. Rejected: it does not show what is claimed. Not checked: nothing is
        claimed, or there is no evidence.
    reason
        Why it was not accepted.
    """

    outcome: CertificateCheck
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """It holds."""
        return self.outcome is CertificateCheck.ACCEPTED


def check_certificate(problem: Problem | None, certificate: Certificate) -> CheckedProof:
    """Repeat the proof that nothing better exists.

    Parameters
    ----------
    problem
        What was asked: the certificate's own ``problem``, or one that was made from the same facts elsewhere.
    certificate
        What is claimed, with the evidence.

    Returns
    -------
    CheckedProof
        Accepted only where the claim follows from the problem: an answer of this objective exists (for linear
        problems, where the evidence holds it) and none is lexicographically smaller, or there is none at all.
    """
    if certificate.status not in (CertificateStatus.PROVEN, CertificateStatus.INFEASIBLE) or problem is None:
        return CheckedProof(CertificateCheck.NOT_CHECKED, f"{certificate.status.text}: no evidence is kept")
    try:
        fault = _fault(problem, certificate)
    except (IndexError, KeyError, ValueError, OverflowError):
        fault = "the question or its evidence names what does not exist"
    return CheckedProof(CertificateCheck.REJECTED if fault else CertificateCheck.ACCEPTED, fault)


def _fault(problem: Problem, certificate: Certificate) -> str:
    """Say why a proof does not hold; empty where it does."""
    objective = None if certificate.infeasible else certificate.objective
    match problem:
        case TreeProblem():
            found = best_gathering(problem)
            return "" if found == objective else f"the best there is has objective {found}"
        case EvictionProblem(rest=LinearProblem() as rest) if objective is not None:
            return floor_fault(problem, objective) or _linear_fault(rest, objective, certificate.evidence)
        case EvictionProblem():
            return eviction_fault(problem, objective, certificate.evidence)
        case CoolingProblem() | VacatingProblem():
            least = least_cooling(problem) if isinstance(problem, CoolingProblem) else least_vacating(problem)
            return "" if objective == least else f"no more than {least} is shown"
        case LinearProblem():
            return _linear_fault(problem, objective, certificate.evidence)


def _linear_fault(problem: LinearProblem, objective: Value | None, evidence: Evidence | None) -> str:
    """Say what is wrong with a proof about a linear problem; empty where nothing is."""
    if not isinstance(evidence, LinearEvidence):
        return "no evidence"
    proof = _LinearProof(problem)
    if objective is None:
        fine = len(evidence.trees) == 1 and proof.shows({}, None, evidence.trees[0])
        return "" if fine else "the sums leave room for an answer"
    if len(evidence.values) != len(problem.lower) or not proof.holds(evidence.values):
        return "the answer breaks a row"
    if len(evidence.trees) != len(problem.stages):
        return "not every part of the objective has a proof"
    reached = []
    for number, (stage, tree) in enumerate(zip(problem.stages, evidence.trees, strict=True)):
        terms = _add({}, stage.terms)
        value = sum(coefficient * evidence.values[variable] for variable, coefficient in terms.items())
        if not proof.shows(terms, value, tree):
            return f"part {number + 1} of the objective may be better"
        proof.kept.append((terms, value))
        shown = value + stage.constant
        if stage.levels:
            if list(stage.levels) != sorted(set(stage.levels)) or not 0 <= shown < len(stage.levels):
                return f"part {number + 1} of the objective stands for nothing"
            shown = stage.levels[shown]
        reached.append(shown)
    return "" if tuple(reached) == objective else f"the answer has objective {tuple(reached)}"


def _add(total: Terms, terms: Iterable[tuple[int, int]], weight: int = 1) -> Terms:
    """Add terms to a sum, so many times."""
    for variable, coefficient in terms:
        total[variable] = total.get(variable, 0) + weight * coefficient
    return total


class _LinearProof:
    """Rows as sums "no more than", and the bounds that follow from adding them up.

    What is kept are the earlier parts of the objective with their optimum, which they have from then on.
    """

    def __init__(self, problem: LinearProblem) -> None:
        self._problem = problem
        self.kept: list[tuple[Terms, int]] = []

    def holds(self, values: Value) -> bool:
        """Tell whether an answer keeps to the ranges and rows."""
        problem = self._problem
        if any(not low <= value <= high for low, value, high in zip(problem.lower, values, problem.upper)):  # noqa: B905
            return False
        for row in problem.rows:
            total = sum(c * values[v] for v, c in zip(row.variables, row.coefficients, strict=True))
            if all(values[variable] == wanted for variable, wanted in row.conditions) and (
                (row.lower is not None and total < row.lower) or (row.upper is not None and total > row.upper)
            ):
                return False
        return True

    def shows(self, terms: Terms, value: int | None, tree: ProofTree) -> bool:
        """Tell whether a tree shows that no answer has less than a value; None: that there is no answer."""
        stack = [(tree, dict(enumerate(self._problem.lower)), dict(enumerate(self._problem.upper)))]
        while stack:
            one, lower, upper = stack.pop()
            if isinstance(one, Branch):
                stack.append((one.below, lower, upper | {one.variable: min(upper[one.variable], one.at)}))
                stack.append((one.above, lower | {one.variable: max(lower[one.variable], one.at + 1)}, upper))
                continue
            if one.scale < 0 or (one.scale and value is None):
                return False
            total, least = _add({}, terms.items(), one.scale), 0
            for number, weight in one.weights:
                row, limit = self._at_most(number, above=weight < 0)
                _add(total, row.items(), abs(weight))
                least -= abs(weight) * limit
            least += sum(min(c * lower[v], c * upper[v]) for v, c in total.items())
            # Whole numbers: more than the next better value is as much as the value itself.
            if least <= one.scale * (0 if value is None else value - max(1, gcd(*terms.values()))):
                return False
        return True

    def _at_most(self, number: int, *, above: bool) -> tuple[Terms, int]:
        """Write a row as "sum no more than", one side of it; conditions become terms that free it.

        Raises
        ------
        IndexError
            When there is no such row.
        """
        sign, rows = -1 if above else 1, self._problem.rows
        if number >= len(rows):
            kept, value = self.kept[number - len(rows)]
            return _add({}, kept.items(), sign), sign * value
        row = rows[number]
        bound = row.lower if above else row.upper
        if bound is None:
            return {}, 0
        terms = _add({}, zip(row.variables, row.coefficients, strict=True), sign)
        limit, low, high = sign * bound, self._problem.lower, self._problem.upper
        slack = sum(max(c * low[v], c * high[v]) for v, c in terms.items()) - limit
        for variable, wanted in row.conditions if slack > 0 else ():
            if low[variable] < 0 or high[variable] > 1:
                return {}, 0
            terms[variable] = terms.get(variable, 0) + (slack if wanted else -slack)
            limit += slack if wanted else 0
        return terms, limit
