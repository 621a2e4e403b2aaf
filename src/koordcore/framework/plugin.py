"""What a plugin is: one reason why a pod may or may not sit on a node, or why one node is better.

The loop in :mod:`koordcore.scheduling.cycle` knows nothing else about plugins than what stands here. A plugin
is made once per call over a workspace. For each class of equal pods it makes one *evaluator*, which answers
for all nodes at once or for the few that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from koordcore._arrays import IntMatrix, IntVector
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import PodDecision
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import PluginSetting
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges

if TYPE_CHECKING:
    from koordcore.framework.scheduling_class import SchedulingClass


@record(eq=False, kw_only=True)
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


@record(eq=False, kw_only=True)
class Countable:
    """Amounts that nodes have beside resources; none of them says more than is so.

    Parameters
    ----------
    requests
        What one pod of each kind needs at least, shape (K, pods).
    free
        What nodes have left at most, shape (K, N).
    gives
        What running pods give back at most, shape (K, running).
    """

    requests: IntMatrix
    free: IntMatrix
    gives: IntMatrix


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
    needs: ClassVar[frozenset[type | str] | None] = None
    """What has to be in the cluster before the plugin has anything to say: types of records, and marks of
    pods, which are fields of :class:`Pod` and keys of labels and annotations. While there is no such record,
    and no pod with such a mark runs, is nominated or is asked about, the plugin sleeps: it is not asked what
    pods want, nor told who comes and leaves, nor asked to :meth:`follow`. ``None``: it never sleeps."""
    amounts: ClassVar[bool] = False
    """Its requests are the amounts that a pod asks for: ``(requests, scored requests)`` as items."""
    by_template: ClassVar[bool] = False
    """What a pod asks of it lies in what its template says, not in the pod's name, uid or age, nor in what
    runs where: pods that are equal but for these are read once, as long as the plugin is not made anew."""
    serves_claims: ClassVar[bool] = False
    """It looks at resource claims of pods; without such a filter pods that name some are refused."""
    gives_first: ClassVar[bool] = False
    """What others give a pod hangs on what it gives: it is asked before them, wherever the policy has it."""
    joint: JointPlugin | None = None
    asleep = False
    """Nothing in the cluster concerns it yet; see :attr:`needs`."""
    arguments: ClassVar[type | None] = None
    """Class of its arguments; ``None`` for a plugin that takes none."""
    reads: ClassVar[frozenset[type] | None] = None
    """Types of the records that it reads; ``None`` where it may read any."""
    follows_pods: ClassVar[bool] = True
    """It asks to :meth:`follow` also where only pods came and left, of which it has been told."""
    looks_at: ClassVar[frozenset[str] | None] = None
    """Fields of :class:`Node` that its evaluators read, while it keeps nothing of nodes itself, or follows by
    its own; ``None`` where either may read any."""
    shifts: ClassVar[bool] = False
    """It counts amounts on nodes that no pod stands for when pods come (:meth:`Amounts.shift`)."""
    heeds_promised: ClassVar[bool] = True
    """Its filters may say otherwise where pods count as if they ran (:meth:`promised`)."""
    keeps_rows: ClassVar[bool] = True
    """It may keep things by rows of nodes itself; one that does not goes on where nodes join and leave."""
    only_refuses: ClassVar[bool] = False
    """Its evaluators refuse pods before any node is looked at, and say nothing of nodes: classes of pods that
    differ in what they want of it know the same of them."""
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
    def helped_with(cls, args: Any) -> frozenset[str] | None:
        """Give :attr:`helped_by`, where it hangs on the plugin's arguments."""
        return cls.helped_by

    @classmethod
    def waiting(cls, snapshot: ClusterSnapshot) -> Iterable[Pod]:
        """Give pods that wait beside those of the cluster: they stand for what this plugin places.

        As the next two, it is asked only where there are records that the plugin :attr:`needs`, if any.
        """
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

        ``None`` skips the plugin for this pod; a ManifestError about what the pod says is a refusal.
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

        Asked only when they were tried; whoever binds them then keeps it in :attr:`planned`. ``None``: none.
        """
        return None

    def on_nodes(
        self, pods: Sequence[tuple[Pod, int]], *, whole: bool = False
    ) -> Mapping[PodKey, Any] | None:
        """Choose what pods of a gang get on several nodes, each with the row of its own.

        The choice is kept in :attr:`planned` by whoever binds them, in the order of its pods. Empty: they do
        not fit together, nor with more unless they are the ``whole`` gang, and that is proven. ``None``:
        nothing is to be chosen, or the answer is not known.
        """
        return None

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        """Say which numbers of pods of several kinds nodes do not take together.

        By row, proven: so many of each kind, or more, do not fit. A node may be left out.

        Parameters
        ----------
        pods, demand, rows
            One pod of each kind, how many of each there are, and the nodes.
        """
        return {}

    def ways(
        self, pods: Sequence[Pod], row: int, going: Sequence[Pod], *, anywhere: bool = False
    ) -> tuple[frozenset[PodKey], ...] | None:
        """List the least sets of pods whose leaving lets this plugin take others on a node.

        Parameters
        ----------
        pods, row
            Who is refused, together, and where.
        going
            Pods on the node that may leave.
        anywhere
            Those elsewhere who are :meth:`reaching` are among them.

        Returns
        -------
        tuple of frozenset or None
            Whoever leaves so that they fit contains one of the sets; ``None`` where it is not known.
        """
        return None

    def reaching(self, pods: Sequence[Pod], running: Iterable[Pod]) -> frozenset[PodKey]:
        """Name those of some running pods who leave room for others on other nodes than their own, too."""
        return frozenset()

    def countable(self, pods: Sequence[Pod], running: Sequence[tuple[Pod, int]]) -> Countable | None:
        """Say in amounts what pods ask of nodes beside resources, and what running pods hold of it.

        For who plans evictions: what is lacking by these amounts is lacking, whatever else has to hold.

        Parameters
        ----------
        pods
            One of each kind.
        running
            Pods that may leave, with the rows of their nodes.
        """
        return None

    def tied(self, pods: Sequence[Pod]) -> tuple[frozenset[PodKey], ...] | None:
        """Say which pods of a gang have to be on one node, for what they share; ``None``: it is not known."""
        return ()

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
        those of the new call. Evaluators that were made before go on as well, but where :meth:`rereads`.
        """
        if changes.nodes and self.looks_at is None:
            return False
        return not changes.records or not self.concerned(changes)

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left, so that rows are others now; ``False`` to be made anew.

        Asked between two calls, before :meth:`follow`. Pods of nodes that left were told by :meth:`removed`;
        of nodes that joined nothing is known yet, and :meth:`follow` is told of them as of nodes that say
        something else. Evaluators are made anew where they are asked again, but for those that
        :meth:`Evaluator.moved`; what those of scope ``NODE`` said of other nodes holds. So it is where
        ``moves.resources`` came in, which nobody had named: then all evaluators are made anew.
        """
        return not self.keeps_rows

    def rereads(self, changes: ClusterChanges) -> bool:
        """Tell whether evaluators have to be made anew, because nodes say something else that they read.

        Otherwise they are asked anew about the rows of those nodes.
        """
        if self.looks_at is None:
            return bool(changes.nodes)
        return not self.looks_at.isdisjoint(changes.said)

    def concerned(self, changes: ClusterChanges) -> bool:
        """Tell whether records changed that the plugin reads."""
        return self.reads is None or not self.reads.isdisjoint(changes.records)

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
        """Tell whether a nominated pod keeps its room from another one, whatever their priorities.

        Asked the other way round as well: a pod does not heed nominated ones that it outranks.
        """
        return False

    def refuse_beside(self, pod: Pod, promised: Sequence[Pod]) -> Refusal | None:
        """Say why a pod is refused, on whatever node, beside those whom it has to leave their room.

        Parameters
        ----------
        promised
            Nominated pods that count against it, wherever they wait for room; ordered by node, then name.
        """
        return None

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
        """Give the plugin that filters and scores under one of the names, the same one each time.

        Classes of earlier calls have parts of it, and go on beside those that are made now.
        """
        raise NotImplementedError  # each joint plugin has its own

    def part(self, name: str, request: Any) -> Hashable | None:
        """Give what :meth:`evaluator` of an entry is asked, out of the joint plugin's own request.

        Parameters
        ----------
        name
            Of the entry.
        request
            What :meth:`request_of` gave, and no refusal; ``None`` for nothing.
        """
        raise NotImplementedError  # each joint plugin has its own


PluginFactory: TypeAlias = Callable[[Workspace, Any], Plugin]
