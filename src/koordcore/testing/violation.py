"""What can be wrong with a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from koordcore._record import record
from koordcore.errors import KoordcoreError


class Clause(StrEnum):
    """The clauses of the contract, in the order in which they are checked."""

    CONCERN = "concern"
    """Some pod of the snapshots concerns the plugin; otherwise nothing was tested."""
    ERROR = "error"
    """No question raises an exception; a pod that says something wrong is refused."""
    REQUEST = "request"
    """What a pod wants is hashable, and the same each time."""
    TEMPLATE = "template"
    """With ``by_template``, pods that differ in name, uid and age only want the same."""
    EQUAL_REQUESTS = "equal requests"
    """Pods with equal requests get equal answers: they are one class."""
    SHAPE = "shape"
    """Answers are arrays of truth values or whole numbers, one for each node of the view."""
    PURITY = "purity"
    """The same question has the same answer, and asking changes nothing."""
    ROWS = "rows"
    """The same nodes in another order get the same answers in that order."""
    BATCH = "batch"
    """Answers about many nodes are those about each node alone."""
    EQUAL_AMOUNTS = "equal amounts"
    """With ``amounts_only``, nodes with equal amounts get equal answers."""
    SCORE = "score"
    """A normalised score lies within 0..100 on every feasible node."""
    REASONS = "reasons"
    """A node that is refused is refused for a reason."""
    RESERVE = "reserve"
    """What fits can be taken."""
    SCOPE = "scope"
    """Answers change only where the scope says that they may."""
    UNDO = "undo"
    """What was assumed and forgotten leaves no trace."""
    WARM = "warm"
    """Who followed pods that came and left, and nodes that said something else, answers as if made anew."""
    NEEDS = "needs"
    """Where there is nothing of what ``needs`` names, pods want nothing; when it comes, the plugin wakes."""
    LOOKS_AT = "looks at"
    """``looks_at`` names every field of a node that the answers hang on."""


@record
class ContractViolation:
    """One clause that a plugin breaks.

    Parameters
    ----------
    clause
        Which.
    plugin
        Name of the plugin.
    snapshot
        Number of the snapshot: first those handed over, then those of the kit; -1 for none in particular.
    message
        What was asked, and how the answers differ.
    """

    clause: Clause
    plugin: str
    snapshot: int
    message: str

    def __str__(self) -> str:
        where = "" if self.snapshot < 0 else f" (snapshot {self.snapshot})"
        return f"{self.plugin}: {self.clause}: {self.message}{where}"


class BrokenContractError(KoordcoreError, AssertionError):
    """A plugin does not keep the contract; ``violations`` says where."""

    def __init__(self, violations: Sequence[ContractViolation]) -> None:
        super().__init__("\n".join(map(str, violations)))
        self.violations = tuple(violations)
