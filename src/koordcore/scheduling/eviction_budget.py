"""What a plugin limits over the whole cluster, as who plans evictions asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from koordcore._arrays import BoolVector
from koordcore.model.pods import Pod, PodKey
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.preemption.running import Leaving


class EvictionBudget(Protocol):
    """Limits as they stand when a plugin gives them (:meth:`koordcore.framework.Plugin.budget`)."""

    def pools(
        self, problem: PreemptionProblem, members: Mapping[str, Pod], *, widest: bool
    ) -> tuple[Pool, ...]:
        """Write what is left, and what victims give back.

        Parameters
        ----------
        problem
            The question, with the candidates.
        members
            Pods of the job, by ``namespace/name``.
        widest
            By the limits that hold once everybody has left who may; by those of now otherwise.
        """

    def left(self, members: Mapping[str, Pod]) -> list[tuple[Mapping[str, int], int]]:
        """Say what is left for some pods if nobody leaves, limits that cannot bind left out.

        Returns
        -------
        list of tuple
            For each limit and resource: what each of the pods below it takes, by ``namespace/name``, and
            how much there is for all of them.
        """

    def charged(self, leaving: Collection[Pod], members: Collection[Pod]) -> frozenset[PodKey]:
        """Give the victims that go on counting: nobody gets more because they leave."""

    def entitled(self, members: Sequence[Pod]) -> bool:
        """Tell whether all of some pods together stay within what they are promised."""

    def givers(self, members: Sequence[Pod]) -> frozenset[str] | None:
        """Name the limits below which others have to give what some pods are promised.

        Empty where anybody may give; ``None`` where the pods may not have it back.
        """

    def lent(
        self,
        members: Sequence[Pod],
        priority: int,
        below: frozenset[str] | None,
        gone: Collection[Leaving],
    ) -> tuple[BoolVector, BoolVector]:
        """Tell which running pods of others hold what others have lent them.

        Parameters
        ----------
        priority
            Of those for whom room is made.
        below
            From :meth:`givers`: what was lent there is had back, whatever the priorities; ``None`` where the
            less important leave alone.
        gone
            Who has left by earlier plans of the call, with the rows of their nodes.

        Returns
        -------
        theirs, beyond : ndarray of bool, shape (V,)
            Over :func:`~koordcore.preemption.running.running_on`: who holds something of others, and who
            of them may leave.
        """

    def borrowers(self, gone: Mapping[PodKey, Pod]) -> tuple[str, ...]:
        """Name those that give back what they have borrowed when some pods leave, sorted."""

    def giving(self, problem: PreemptionProblem, members: Collection[Pod]) -> BoolVector:
        """Tell which candidates may leave for the sake of the members' limits, shape (V,)."""
