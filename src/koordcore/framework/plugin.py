"""What a plugin is: one reason why a pod may or may not sit on a node, or why one node is better.

The loop in :mod:`koordcore.scheduling.cycle` knows nothing else about plugins than what stands here. A plugin
is made once per call over a workspace. For each class of equal pods it makes one *evaluator*, which answers
for all nodes at once or for the few that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.cluster_changes import ClusterChanges
from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.node_view import ALL_ROWS, NodeView, Others, Rating, Source
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.claims import HeldClaim
from koordcore.model.decisions import PodDecision, Shortfall
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import PluginSetting
from koordcore.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from koordcore.framework.scheduling_class import SchedulingClass

__all__ = [
    "ALL_ROWS",
    "Evaluator",
    "JointPlugin",
    "Plugin",
    "PluginFactory",
    "Refusal",
    "Reserved",
    "Scope",
    "Together",
    "default_normalise",
]

_SELDOM: Final = ("fits", "refuse", "allocate", "sources")


class Scope(StrEnum):
    """What makes an evaluator's answer for a node out of date."""

    STATIC = "static"
    """Nothing, while the nodes are the same."""
    NODE = "node"
    """A pod that is bound to, or taken off, that very node."""
    CLUSTER = "cluster"
    """Any pod anywhere; the answer is asked for anew each time."""


@attrs.frozen
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


@attrs.frozen
class Reserved:
    """What a pod gets on its node from one plugin, as it is written on the pod."""

    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    notes: tuple[str, ...] = ()
    reservation: str = ""
    over: tuple[PodKey, ...] = ()
    claims: tuple[HeldClaim, ...] = ()


def default_normalise(raw: IntVector, feasible: BoolVector, *, reverse: bool = False) -> IntVector:
    """Scale raw scores so that the largest feasible one becomes 100 (``DefaultNormalizeScore``)."""
    top = int(raw[feasible].max(initial=0))
    if top == 0:
        return np.full_like(raw, 100 if reverse else 0)
    scaled: IntVector = raw * 100 // top
    return 100 - scaled if reverse else scaled


class Evaluator:
    """One plugin's answers for one class of equal pods; the defaults say "any node, no preference".

    ``fits`` and ``scores`` are called for all nodes first and later for those that changed, as ``scope``
    says. Scores are raw; ``normalise`` maps them to 0..100 over the feasible nodes.
    """

    scope: ClassVar[Scope] = Scope.STATIC
    normalises: ClassVar[bool] = False
    amounts_only: ClassVar[bool] = False
    """With scope ``NODE``: nodes with equal amounts, had and taken, get equal answers in a plain view.

    ``scores`` then gives a new array each time; the class adds to it in place.
    """
    answers: ClassVar[frozenset[str]] = frozenset()
    """Which of the questions that many evaluators leave to the defaults it answers itself."""
    rates_loans: ClassVar[bool] = False
    """Its ``scores`` tell which of several loans of a node is the better one."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.answers = frozenset(one for one in _SELDOM if getattr(cls, one) is not getattr(Evaluator, one))

    def refuse(self) -> Refusal | None:
        """Tell whether the pod is refused before any node is looked at, now."""
        return None

    def restriction(self) -> BoolVector | None:
        """Tell which nodes are to be looked at at all, ``(N,)``; ``None`` for all.

        What lies outside must not pass ``fits`` either; the difference is only in how it is reported.
        """
        return None

    def fits(self, view: NodeView) -> BoolVector | None:
        """Tell which of the nodes can take the pod; ``None`` stands for all of them."""
        return None

    @property
    def amounts(self) -> IntVector | None:
        """What one of the pods counts against a node, ``(R,)``; ``None`` where it looks at no amounts."""
        return None

    def fits_everywhere(self) -> bool:
        """Tell that all nodes can take the pod now, where that is known without looking at them."""
        return False

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        """Give each reason with the nodes that it holds for; a node may have several."""
        return ()

    def unresolvable(self, view: NodeView) -> BoolVector | None:
        """Tell at which of the nodes no eviction would help; ``None`` stands for none of them."""
        return None

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        """Tell in numbers what the one node of a view lacks; as it stands, its reasons without numbers."""
        fits = self.fits(view)
        if fits is None or fits[0]:
            return ()
        hopeless = self.unresolvable(view)
        resolvable = hopeless is None or not hopeless[0]
        return tuple(Shortfall(text, resolvable=resolvable) for text, holds in self.reasons(view) if holds[0])

    def details(self, view: NodeView) -> tuple[str, ...]:
        """Say more about why the one node of a view refuses, and what would help there."""
        return ()

    @property
    def likeness(self) -> Hashable:
        """With ``amounts_only``: what is equal for evaluators that :meth:`together` can join, or ``None``."""
        return None

    def together(self, ones: Sequence[Any]) -> Evaluator:
        """Join evaluators of one likeness, this one among them.

        ``fits`` and ``scores`` of what it gives have a row for each of them, ``(C, n)``; it is asked about
        selections of nodes only, never about all of them. Not asked of evaluators without a likeness.
        """
        raise NotImplementedError  # without a likeness there is nothing to join

    def scores(self, view: NodeView) -> IntVector | None:
        """Score the nodes; ``None`` where the plugin has no preference about this pod."""
        return None

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        """Map raw scores of all nodes to 0..100; only the feasible ones count."""
        return raw

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        """Tell how many such pods each node takes one after another, up to ``most``: ``(n,)``.

        Only nodes that ``fits`` lets through count, and an answer that is too high is only slower: whoever
        plans with it binds the plan before returning it. ``None`` stands for as many as one likes.
        """
        return None

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


@attrs.frozen(eq=False, kw_only=True)
class Together:
    """What several pods get on one node, or that they do not fit together.

    Parameters
    ----------
    plan
        What each gets, in the order in which they are to be bound; empty for none that is known.
    rows
        Where the plan is empty: all nodes in the same state, where it is proven that there is none, shape
        (n,); empty where that is not known.
    """

    plan: Mapping[PodKey, Any]
    rows: IntVector


class Plugin:
    """One plugin over one workspace; the defaults say "this pod does not concern me".

    Parameters
    ----------
    workspace
        The working state of the call.
    args
        The plugin's arguments from the policy, or ``None`` for its defaults.

    Attributes
    ----------
    scored
        Whether the policy asks for its scores.
    plan
        What pods were matched with before the call began; see :meth:`match`.
    planned
        What pods get that are bound next, by pod: of a choice that :meth:`together` made.
    served
        Extended resources that devices of claims serve: no node has to have them.
    joint
        The plugin behind this one, where several names of the policy share one; then only that one is asked
        what tells the classes of pods apart.
    """

    name: ClassVar[str]
    """What a policy and messages call it; that of the class, where it says nothing."""
    amounts: ClassVar[bool] = False
    """Its requests are the amounts that a pod asks for: ``(requests, scored requests)`` as items."""
    serves_claims: ClassVar[bool] = False
    """It looks at resource claims of pods; without such a filter pods that name some are refused."""
    joint: JointPlugin | None = None
    arguments: ClassVar[type | None] = None
    """Class of its arguments; ``None`` for a plugin that takes none."""
    reads: ClassVar[frozenset[type] | None] = None
    """Types of the records that it reads; ``None`` where it may read any."""
    refuses_at: ClassVar[int] = 0
    """Place among those who refuse before any node is looked at; the order of upstream's PreFilter."""
    helped_by: ClassVar[frozenset[str] | None] = None
    """Kinds of changes that can lift a refusal (:mod:`koordcore.framework.hints`); ``None`` for any."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        self.workspace = workspace
        self.args = args
        self.scored = True
        self.planned: Mapping[PodKey, Any] = {}
        self.served: frozenset[str] = frozenset()
        self.plan: Mapping[PodKey, int] = EMPTY

    @classmethod
    def waiting(cls, snapshot: ClusterSnapshot) -> Iterable[Pod]:
        """Give pods that wait beside those of the cluster: they stand for what this plugin places."""
        return ()

    @classmethod
    def opened(cls, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Give the cluster as all plugins are to see it, such as with what is held for some pods.

        The nodes are the same; the very snapshot where there is nothing to add.
        """
        return snapshot

    @classmethod
    def closed(
        cls,
        start: ClusterSnapshot,
        end: ClusterSnapshot,
        decisions: Sequence[PodDecision],
        now: datetime | None,
    ) -> ClusterSnapshot:
        """Take back what :meth:`opened` added, and write what was decided on records of this plugin.

        Parameters
        ----------
        start
            The cluster as the caller knows it.
        end
            The cluster after the decisions, as the plugins of the policy before this one left it.
        decisions
            One for each pod.
        now
            The clock of the call.
        """
        return end

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        """Read what the pod wants of this plugin: a hashable value that tells pod classes apart.

        ``None``: the plugin is skipped for this pod. A ManifestError about what the pod says is a refusal
        with its text.
        """
        return None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        """Make the evaluator of a pod class; ``pod`` is any pod of it."""
        return Evaluator()

    @property
    def prefers(self) -> bool:
        """It may know of nodes to try first, and is asked before each choice."""
        return type(self).preferred is not Plugin.preferred

    def preferred(self, pod: Pod) -> tuple[str, ...]:
        """Give names of nodes to try first, in this order; the first that takes the pod gets it."""
        return ()

    def remarks(self, pod: Pod, row: int) -> tuple[str, ...]:
        """Say what the plugin knows of a node that refuses a pod, whether the pod concerns it or not."""
        return ()

    def together(self, pods: Sequence[Pod], row: int) -> Together | None:
        """Choose what several pods of a gang get on one node, where one after another they do not all fit.

        Asked only when they were tried; the choice is kept in :attr:`planned` by whoever binds them then.
        ``None``: there is nothing to choose.
        """
        return None

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        """Say which numbers of pods of several kinds nodes do not take together.

        Parameters
        ----------
        pods, demand
            One pod of each kind, and how many of each there are.
        rows
            The nodes.

        Returns
        -------
        mapping
            By row, proven: so many of each kind, or more, do not fit. A node may be left out.
        """
        return {}

    def placed(self, pod: Pod, row: int) -> None:
        """Take note of a pod that was bound to a node, of any class, also where ``request_of`` gave ``None``.

        Changes of the plugin's ledger go through the workspace's log.
        """

    def removed(self, pod: Pod, row: int) -> None:
        """Take note of a pod that was taken off a node."""

    def follow(self, changes: ClusterChanges) -> bool:
        """Go on in a later call on a changed cluster; ``False`` to be made anew.

        Pods that came and left have been told by :meth:`placed` and :meth:`removed`; they stand in the
        workspace's columns, values and journal. Its layout and snapshot, the clock and the pods that wait are
        those of the new call. Where nodes were replaced, no evaluator that was made before is asked again.
        """
        return not changes.nodes and (not changes.records or not self.concerned(changes))

    def concerned(self, changes: ClusterChanges) -> bool:
        """Tell whether records changed that the plugin reads."""
        return self.reads is None or any(kind in self.reads for kind in changes.records)

    @property
    def matches(self) -> bool:
        """It matches the pods of a call with what it holds, all together, before the first has its turn."""
        return False

    def match(
        self,
        pods: Sequence[Pod],
        class_of: Callable[[Pod], SchedulingClass | Refusal],
        limits: Limits,
    ) -> MatchPlan:
        """Choose what single pods are meant for; ``plan`` tells the plugin of the next attempt.

        Parameters
        ----------
        pods
            The queue.
        class_of
            Gives a pod's class, or why no node needs to be asked.
        limits
            Budget and seed of the solver.
        """
        return MatchPlan()

    def may_preempt(self, pod: Pod) -> bool:
        """Tell whether others may be evicted for a pod."""
        return True

    def outranks(self, waiting: Pod, pod: Pod) -> bool:
        """Tell whether a nominated pod keeps its room from another one, whatever their priorities."""
        return False

    def evicted(self, pod: Pod, *, charged: bool) -> None:
        """Take note that a pod that was taken off its node asks again: whoever made it makes it anew.

        Parameters
        ----------
        charged
            It goes on counting as if it ran; see :meth:`budget`.
        """

    def budget(self) -> Any | None:
        """Give what it limits over the whole cluster, as it stands now, for who plans evictions.

        An object that answers the questions of ``koordcore.scheduling.eviction_budget.EvictionBudget``;
        ``None`` where it limits nothing.
        """
        return None

    def promised(self, pod: Pod, row: int) -> None:
        """Take note of a nominated pod: it counts on its node before it is there."""
        self.placed(pod, row)

    def withdrawn(self, pod: Pod, row: int) -> None:
        """Take back what :meth:`promised` did."""
        self.removed(pod, row)


class JointPlugin(Plugin):
    """One plugin behind several names of a policy, because what they ask about is decided together.

    It is made once per workspace. Each of its names filters and scores by an entry of its own; what a pod
    gets is asked of the joint plugin itself (``request_of``, ``evaluator``, :meth:`Evaluator.allocate`),
    once, and only it is told of pods that come and go. Its request holds what all entries want; where one of
    these refuses a pod, so does it. So the order of the names makes no difference to placements. Every name
    that the policy has filters: what is taken has to be there.

    Parameters
    ----------
    workspace
        The working state of the call.
    settings
        What the policy says about each of its names that it has, in the policy's order.
    """

    entry_arguments: ClassVar[Mapping[str, type]]
    """Class of the arguments of each of its names."""

    def __init__(self, workspace: Workspace, settings: Mapping[str, PluginSetting]) -> None:
        super().__init__(workspace)

    def entry(self, name: str) -> Plugin:
        """Give the plugin that filters and scores under one of the names."""
        raise NotImplementedError  # each joint plugin has its own


PluginFactory: TypeAlias = Callable[[Workspace, Any], Plugin]
