"""How good an answer is known to be, and how much work may be spent on knowing it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields
from koordcore.model.proofs import Evidence, Problem


class CertificateStatus(StrEnum):
    """What is known about an answer.

    ``PROVEN``: no better answer exists, and the certificate says why, so that anybody can check it.
    ``PROVEN_BY_SOLVER``: no better answer exists, on the word of what decided. ``FEASIBLE``: legal, and the
    bound says how far from the best it can be at most; the budget ran out. ``HEURISTIC``: legal, no bound was
    asked for. ``INFEASIBLE``, ``INFEASIBLE_BY_SOLVER``: there is no answer at all, with evidence or without.
    """

    PROVEN = "Proven"
    PROVEN_BY_SOLVER = "ProvenBySolver"
    FEASIBLE = "Feasible"
    HEURISTIC = "Heuristic"
    INFEASIBLE = "Infeasible"
    INFEASIBLE_BY_SOLVER = "InfeasibleBySolver"

    @property
    def text(self) -> str:
        """The status in words: ``proven by solver``."""
        return "".join(f" {one}" if one.isupper() else one for one in self.value).strip().lower()


_PROVEN: Final = (CertificateStatus.PROVEN, CertificateStatus.PROVEN_BY_SOLVER)
_INFEASIBLE: Final = (CertificateStatus.INFEASIBLE, CertificateStatus.INFEASIBLE_BY_SOLVER)


@record
class Certificate:
    """The objective reached and the best one that can exist, both compared lexicographically.

    Smaller is better in every position; what is maximised is written negated.

    Parameters
    ----------
    status
        What is known.
    objective
        The objective of the answer, most important part first; empty when there is no answer.
    bound
        No answer has a lexicographically smaller objective. Equal to ``objective`` when proven, empty when
        nothing is known.
    problem, evidence
        The question in plain integers and why nothing is better, for
        :func:`koordcore.checking.certificates.check_certificate`; ``None`` where nothing was kept. A
        question that can be answered once more is its own evidence. Certificates are compared without them.

    Raises
    ------
    ModelError
        When the parts contradict each other.
    """

    status: CertificateStatus
    objective: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    problem: Problem | None = attrs.field(default=None, eq=False, repr=False)
    evidence: Evidence | None = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.status in _PROVEN and self.objective != self.bound:
            raise ModelError(f"proven, but the objective {self.objective} is not the bound {self.bound}")
        if self.status in _INFEASIBLE and (self.objective or self.bound):
            raise ModelError("infeasible, but an objective is given")
        if self.objective and self.bound and self.bound > self.objective:
            raise ModelError(f"the objective {self.objective} is better than its bound {self.bound}")

    @property
    def proven(self) -> bool:
        """Nothing better exists, or nothing exists at all."""
        return self.status in (*_PROVEN, *_INFEASIBLE)

    @property
    def infeasible(self) -> bool:
        """There is no answer at all."""
        return self.status in _INFEASIBLE

    @classmethod
    def make_proven(
        cls,
        objective: tuple[int, ...],
        problem: Problem | None = None,
        evidence: Evidence | None = None,
    ) -> Certificate:
        """Certify an objective that no other answer beats; without a problem nobody can check that.

        Parameters
        ----------
        objective
            Values of the objective, most important first.
        problem
            What was decided, for who checks it.
        evidence
            Why nothing beats it.
        """
        status = CertificateStatus.PROVEN if problem is not None else CertificateStatus.PROVEN_BY_SOLVER
        return cls(status, objective, objective, problem, evidence)

    @classmethod
    def make_bounded(cls, objective: tuple[int, ...], bound: tuple[int, ...]) -> Certificate:
        """Certify an objective with its bound: proven when they meet, else feasible."""
        if objective == bound:
            return cls.make_proven(objective)
        return cls(CertificateStatus.FEASIBLE, objective, bound)

    @classmethod
    def make_infeasible(cls, problem: Problem | None = None, evidence: Evidence | None = None) -> Certificate:
        """Certify that there is no answer."""
        known = problem is not None
        status = CertificateStatus.INFEASIBLE if known else CertificateStatus.INFEASIBLE_BY_SOLVER
        return cls(status, problem=problem, evidence=evidence)


@record
class Limits:
    """The budget of one solver call; the same limits give the same answer on every machine.

    Parameters
    ----------
    deterministic_time
        Work units of CP-SAT over all stages of one call, roughly seconds of a quiet machine. Counted, not
        measured, so that a slow machine gives the same answer later and not another one.
    seed
        Seed of the solver's search.

    Raises
    ------
    ModelError
        When a value is out of range.
    """

    deterministic_time: float = 10.0
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if not 0.0 < self.deterministic_time < float("inf"):
            raise ModelError(f"deterministic_time: expected a positive number, got {self.deterministic_time}")
        if not 0 <= self.seed < 2**31:
            raise ModelError(f"seed: expected 0 up to 2^31 - 1, got {self.seed}")


DEFAULT_LIMITS: Final = Limits()
