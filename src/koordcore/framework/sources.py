"""What counts as gone for the pods of one class, and what they may draw from beside what is free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from koordcore._arrays import BoolVector, IntMatrix, IntVector, Rows
from koordcore._record import record
from koordcore.model.pods import HostPort, Pod, PodKey


@record(eq=False)
class Loan:
    """What pods of one class may draw from on one node, beside what is free there.

    Parameters
    ----------
    row
        The node.
    states
        Whose it is, and how much of it may be drawn; several only where pods take from all as if they held
        nothing.
    holders
        The pods that hold it on the node.
    together
        The pods take from all of them as if they held nothing.
    over
        The holders go on running: what they hold has to be part of what the pod gets.
    ports
        Host ports that the holders keep free for whoever draws.
    """

    row: int
    states: tuple[Any, ...]
    holders: tuple[Pod, ...]
    together: bool = False
    over: bool = False
    ports: tuple[HostPort, ...] = ()


class Loans(Protocol):
    """Loans on several nodes at once; a node may have several."""

    @property
    def rows(self) -> IntVector:
        """``(K,)``: node of each."""

    @property
    def lent(self) -> IntMatrix:
        """``(R, K)``: what each adds to what is free."""

    def loan(self, index: int) -> Loan:
        """Give one of them."""

    def only(self, index: int) -> Loans:
        """Leave only one of them."""


class Source(Protocol):
    """What counts as gone for the pods of one class, and which parts of it one pod may draw from."""

    @property
    def required(self) -> bool:
        """The pods may go nowhere but into a loan."""

    @property
    def gone(self) -> frozenset[PodKey]:
        """Pods that count as if they were not there."""

    def touched(self, rows: Rows) -> BoolVector:
        """Tell which of the nodes, ``(n,)``, offer anything else than a plain view says."""

    def lifted(self, rows: Rows, *, scored: bool = False) -> IntMatrix | None:
        """Give the amounts that go away with them on each node, ``(R, n)``; for scores on request."""

    def lifted_with(self, others: Iterable[Source]) -> IntMatrix | None:
        """Give the same, ``(R, N)``, where pods of other classes come as well: all that any of them lifts."""

    def loans(self, rows: Rows) -> Loans:
        """Give what one pod may draw from on some nodes."""

    def drawn_from(self, row: int) -> Loan | None:
        """Give the loan that pods would draw from on a node, as its filter has chosen; ``None`` for none."""

    def taken_from(self, row: int) -> Loans | None:
        """Give the one loan out of which a node serves a pod now; ``None`` where the node does by itself."""

    def beside(self, loan: Loan) -> tuple[Loan, ...]:
        """Give the other loans of its node that the pods might use as well."""
