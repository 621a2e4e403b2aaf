"""What a plugin answers about one class of equal pods."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

import attrs
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.framework.lacks import Lack
from koordcore.framework.node_view import NodeView, Others, Rating
from koordcore.framework.sources import Source
from koordcore.model.claims import HeldClaim
from koordcore.model.decisions import Shortfall
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PodKey

LEAVING: Final = "without "
"""How a line of ``details`` begins that names whose leaving would do."""
_SELDOM: Final = ("fits", "scores", "refuse", "allocate", "sources")


class Scope(StrEnum):
    """What makes an evaluator's answer for a node out of date."""

    STATIC = "static"
    """Nothing, while the nodes are the same."""
    NODE = "node"
    """A pod that is bound to, or taken off, that very node."""
    CLUSTER = "cluster"
    """Any pod anywhere; the answer is asked for anew each time."""


@record
class Refusal:
    """A pod that no node needs to be asked about, such as one with an illegal request.

    Parameters
    ----------
    reason
        Upstream's wording.
    resolvable
        Evicting pods may help.
    """

    reason: str
    resolvable: bool = False


@record
class Reserved:
    """What a pod gets on its node from one plugin, as it is written on the pod."""

    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    notes: tuple[str, ...] = ()
    loan: str = ""
    over: tuple[PodKey, ...] = ()
    claims: tuple[HeldClaim, ...] = ()


class Evaluator:
    """One plugin's answers for one class of equal pods; the defaults say "any node, no preference".

    ``fits`` and ``scores`` are called for all nodes first and later for those that changed, as ``scope``
    says. Scores are raw; ``normalise`` maps them to 0..100 over the feasible nodes.
    """

    scope: ClassVar[Scope] = Scope.STATIC
    normalises: ClassVar[bool] = False
    amounts_only: ClassVar[bool] = False
    """With scope ``NODE``: nodes with equal amounts, had and taken, get equal answers in a plain view.

    Amounts are read from the view, because it may show a node as it would be with more pods. ``scores``
    gives a new array each time; the class adds to it in place.
    """
    answers: ClassVar[frozenset[str]] = frozenset()
    """Which of the questions that many evaluators leave to the defaults it answers itself."""
    rates_loans: ClassVar[bool] = False
    """Its ``scores`` tell which of several loans of a node is the better one."""

    undercounts: bool = False
    """A node may take more of such pods together than ``slots`` told last, so that this is no bound."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.answers = frozenset(one for one in _SELDOM if getattr(cls, one) is not getattr(Evaluator, one))

    def moved(self) -> bool:
        """Go on where nodes joined and left, so that rows are others now; ``False`` to be made anew.

        Asked before the next question, of evaluators of scope ``NODE`` whose plugin went on, and of those of
        scope ``STATIC``; these may be asked several times, and take in what any node says now.
        """
        return False

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        """Whether the pod fits, and the raw score, where that is known to be the same on every node.

        The score is ``None`` for no preference, all of it ``None`` where nodes may differ. Asked of
        evaluators of scope ``STATIC``, before they are asked about nodes.
        """
        return None

    def refuse(self) -> Refusal | None:
        """Tell whether the pod is refused before any node is looked at, now."""
        return None

    def restriction(self) -> BoolVector | None:
        """Tell which nodes are to be looked at at all, ``(N,)``; ``None`` for all.

        What lies outside must not pass ``fits`` either; the difference is only in how it is reported.
        """
        return None

    def fits(self, view: NodeView) -> BoolVector | None:
        """Tell which of the view's nodes can take the pod, ``(n,)``; ``None`` stands for all of them."""
        return None

    @property
    def amounts(self) -> IntVector | None:
        """What one of the pods counts against a node, ``(R,)``; ``None`` where it looks at no amounts."""
        return None

    def fits_everywhere(self) -> bool:
        """Tell that all nodes can take the pod now, where that is known without looking at them."""
        return False

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        """Give each reason with the nodes that it holds for, ``(n,)``; a node may have several."""
        return ()

    def unresolvable(self, view: NodeView) -> BoolVector | None:
        """Tell at which of the nodes no eviction would help, ``(n,)``; ``None`` stands for none of them."""
        return None

    def lacks(self, view: NodeView) -> Sequence[Lack] | None:
        """Tell in numbers what nodes lack, all at once; as it stands, their reasons without numbers.

        ``None`` where each node is asked by itself: then :meth:`shortfalls` answers.
        """
        if type(self).shortfalls is not Evaluator.shortfalls:
            return None
        fits = self.fits(view)
        if fits is None or fits.all():
            return ()
        unresolvable = self.unresolvable(view)
        # What is kept must not follow what happens later.
        unresolvable = None if unresolvable is None else unresolvable.copy()
        return [Lack(holds & ~fits, text, unresolvable=unresolvable) for text, holds in self.reasons(view)]

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        """Tell in numbers what the one node of a view lacks."""
        return tuple(one.at(0) for one in self.lacks(view) or () if one.where[0])

    def details(self, view: NodeView) -> tuple[str, ...]:
        """Say more about why the one node of a view refuses, and what would help there.

        Lines that begin with :data:`LEAVING` are left out where another plugin says that no eviction helps.
        """
        return ()

    @property
    def batch_key(self) -> Hashable:
        """With ``amounts_only``: what is equal for evaluators that :meth:`together` can join, or ``None``."""
        return None

    def together(self, ones: Sequence[Any]) -> Evaluator:
        """Join evaluators of one batch key, this one among them.

        ``fits`` and ``scores`` of what it gives have a row for each of them, ``(C, n)``; it is asked about
        selections of nodes only, never about all of them. Not asked of evaluators without a batch key.
        """
        raise NotImplementedError  # without a batch key there is nothing to join

    def scores(self, view: NodeView) -> IntVector | None:
        """Score the nodes, ``(n,)``; ``None`` where the plugin has no preference about this pod."""
        return None

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        """Map raw scores of all nodes, ``(N,)``, to 0..100; only the feasible ones count."""
        return raw

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        """Tell how many such pods each node takes one after another, up to ``most``: ``(n,)``.

        Only nodes that ``fits`` lets through count, and an answer that is too high is only slower: whoever
        plans with it binds the plan before returning it. ``None`` stands for as many as one likes.
        """
        return None

    def needs_company(self) -> bool:
        """Tell whether pods that come anywhere may make a node fit that is refused now, or was once full.

        What such a filter says before a gang has come is no bound on what it says afterwards.
        """
        return self.scope is Scope.CLUSTER and "fits" in self.answers

    def shares(self) -> bool:
        """Tell whether pods on a node may bring what this one would have to bring itself, such as a volume.

        One that only counts as if it ran has brought nothing yet. Other filters that look at single nodes can
        but refuse more where somebody counts who does not run.
        """
        return False

    def sources(self, others: Others, rating: Rating) -> Source | None:
        """Give what counts as gone for these pods, and what they may draw from instead, if there is anything.

        Asked once, before any other question.

        Parameters
        ----------
        others
            Whether all other filters that look at single nodes take the pods in a view.
        rating
            What those who rate loans say inside some.
        """
        return None

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        """Take exactly what the pod gets on the one node of a view; ``None`` where there is no choice.

        The view is plain, or inside the loan out of which the node serves the pod. Changes the plugin's own
        ledger through the workspace's log, so that it can be undone. A shortfall after ``fits`` said yes is a
        defect of the plugin.
        """
        return None
