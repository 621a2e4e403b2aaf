"""How good an answer is known to be, and how much work may be spent on knowing it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from koordcore.errors import ModelError

__all__ = ["DEFAULT_LIMITS", "Certificate", "CertificateStatus", "Limits"]


class CertificateStatus(StrEnum):
    """What is known about an answer.

    ``PROVEN``: no better answer exists. ``FEASIBLE``: legal, and the bound says how far from the best it can
    be at most; the budget ran out. ``HEURISTIC``: legal, no bound was asked for. ``INFEASIBLE``: it is
    proven that there is no answer at all.
    """

    PROVEN = "Proven"
    FEASIBLE = "Feasible"
    HEURISTIC = "Heuristic"
    INFEASIBLE = "Infeasible"


@attrs.frozen
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

    Raises
    ------
    ModelError
        When the parts contradict each other.
    """

    status: CertificateStatus
    objective: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.status is CertificateStatus.PROVEN and self.objective != self.bound:
            raise ModelError(f"proven, but the objective {self.objective} is not the bound {self.bound}")
        if self.status is CertificateStatus.INFEASIBLE and (self.objective or self.bound):
            raise ModelError("infeasible, but an objective is given")
        if self.objective and self.bound and self.bound > self.objective:
            raise ModelError(f"the objective {self.objective} is better than its bound {self.bound}")

    @property
    def proven(self) -> bool:
        """Nothing better exists, or nothing exists at all."""
        return self.status in (CertificateStatus.PROVEN, CertificateStatus.INFEASIBLE)

    @classmethod
    def make_proven(cls, objective: tuple[int, ...]) -> Certificate:
        """Certify an objective that no other answer beats."""
        return cls(CertificateStatus.PROVEN, objective, objective)

    @classmethod
    def make_bounded(cls, objective: tuple[int, ...], bound: tuple[int, ...]) -> Certificate:
        """Certify an objective with its bound: proven when they meet, else feasible."""
        met = objective == bound
        return cls(CertificateStatus.PROVEN if met else CertificateStatus.FEASIBLE, objective, bound)


@attrs.frozen
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
        if not 0.0 < self.deterministic_time < float("inf"):
            raise ModelError(f"deterministic_time: expected a positive number, got {self.deterministic_time}")
        if not 0 <= self.seed < 2**31:
            raise ModelError(f"seed: expected 0 up to 2^31 - 1, got {self.seed}")


DEFAULT_LIMITS: Final = Limits()
