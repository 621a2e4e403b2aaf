"""A job as the planner takes it, and a plan as the loop binds it.

Offer slots come from the plugins' own filters. A plan is bound member by member as pods of their own would
be; a node that takes fewer members than it offered is named, so that whoever plans can take that offer away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from koordcore._arrays import FIRST_RESOURCES, IntMatrix, IntVector
from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, Member, Shape, rank_order
from koordcore.framework.class_sources import lifted_in
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Unschedulable
from koordcore.model.gangs import GangFit, NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import PODS, counted
from koordcore.protocol.gang_names import topology_selector
from koordcore.scheduling.gang_groups import Job, rank_of
from koordcore.scheduling.gang_roles import per_node, roles_of, with_ties
from koordcore.scheduling.outcomes import NO_REFUSALS
from koordcore.scheduling.selector_counts import SelectorCounts
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.network import NetworkTopology


@record(eq=False)
class PlanningInput:
    """A job as the planner takes it, apart from the offers of the nodes."""

    members: tuple[Pod, ...]
    classes: tuple[SchedulingClass, ...]
    shape_of: Mapping[str, int]
    rows: IntVector
    """Row of each node of the tree."""
    scores: IntMatrix
    """What a member of each shape is worth on every node of the tree, before any is there."""
    ties: tuple[frozenset[str], ...] | None = ()
    """Members that have to be on one node; ``None`` where some may have to, and it is not known."""
    refused: Mapping[PodKey, Unschedulable] = NO_REFUSALS
    """Members of the job that no node is needed for to be refused; the planner knows nothing of them."""
    whole: bool = False
    """The nodes of the tree are all nodes, in the order of their rows."""

    @cached_property
    def pod_of(self) -> Mapping[str, Pod]:
        """The members by key."""
        return {str(pod.key): pod for pod in self.members}

    @property
    def needs_company(self) -> bool:
        """More members may go once others are there; what nodes offer now is no bound then."""
        return any(one.needs_company for one in self.classes)

    @property
    def undercounted(self) -> bool:
        """Nodes may take more members than their offers say: that these do not suffice is no proof."""
        return self.needs_company or any(one.undercounts for one in self.classes)

    def among(self, rows: IntVector) -> PlanningInput:
        """Give the same job on some of the nodes, which this one has all of in the order of their rows."""
        scores = self.scores[:, rows]
        return PlanningInput(self.members, self.classes, self.shape_of, rows, scores, self.ties, self.refused)


def planning_input_of(
    workspace: Workspace, plugins: PluginSet, pods: Sequence[Pod], tree: NetworkTopology
) -> PlanningInput | Unschedulable:
    """Sort pods by shape; or say why the first is refused where all of them are, whatever the node."""
    classes: dict[int, SchedulingClass] = {}
    numbers: dict[int, int] = {}
    shape_of: dict[str, int] = {}
    refusals: dict[PodKey, Unschedulable] = {}
    nodes = len(workspace.layout.names)
    for pod in pods:
        scheduling_class = plugins.class_of(pod)
        if isinstance(scheduling_class, Refusal):
            refusals[pod.key] = Unschedulable(pod=pod.key, nodes=nodes, refusal=scheduling_class.reason)
            continue
        refused = scheduling_class.refuse()
        if refused is not None:
            by, why = refused
            refusals[pod.key] = Unschedulable(
                pod=pod.key, nodes=nodes, refusal=why.reason, refused_by=by.name
            )
            continue
        shape_of[str(pod.key)] = numbers.setdefault(id(scheduling_class), len(numbers))
        classes[id(scheduling_class)] = scheduling_class
    if not classes:
        return next(iter(refusals.values()))
    able = [pod for pod in pods if pod.key not in refusals]
    rows, whole = once(workspace.snapshot, _rows_in, tree)
    scores = np.zeros((len(classes), len(rows)), np.int64)
    for number, one in enumerate(classes.values()):
        totals = np.maximum(0, one.totals(one.feasible()))
        scores[number] = totals if whole else totals[rows]
    ties = _ties(plugins, able)
    return PlanningInput(tuple(able), tuple(classes.values()), shape_of, rows, scores, ties, refusals, whole)


def _rows_in(snapshot: ClusterSnapshot, tree: NetworkTopology) -> tuple[IntVector, bool]:
    """Give the row of every node of a tree, and whether those are all rows in their order."""
    row_of = snapshot.layout.row_of
    rows = np.array([row_of[name] for name in tree.nodes], np.int64)
    return rows, np.array_equal(rows, np.arange(len(row_of)))


def _ties(plugins: PluginSet, pods: Sequence[Pod]) -> tuple[frozenset[str], ...] | None:
    found: list[frozenset[str]] = []
    for plugin in dict.fromkeys(chain.from_iterable(one.tying for one in plugins.sets_of(pods))):
        tied = plugin.tied(pods)
        if tied is None:
            return None
        found += [frozenset(map(str, keys)) for keys in tied]
    return tuple(found)


_LARGEST: Final = 1024
"""Slots beyond which nobody asks how much larger a node is."""


def offers_of(inputs: PlanningInput, fit: GangFit = GangFit.FEWEST_NODES) -> IntMatrix:
    """How many members of each shape every node of the tree takes: ``(shapes, nodes)``.

    For the tightest fit it counts how large a node is, too.
    """
    most = max(len(inputs.members), _LARGEST if fit is GangFit.TIGHTEST_FIT else 0)
    each = [one.slots(most) for one in inputs.classes]
    if not inputs.whole:
        each = [one[inputs.rows] for one in each]
    return each[0][None, :] if len(each) == 1 else np.stack(each)


def demand_of(
    workspace: Workspace,
    job: Job,
    spec: NetworkTopologySpec,
    tree: NetworkTopology,
    inputs: PlanningInput,
    offers: IntMatrix,
    conflicts: Sequence[Conflict] = (),
) -> GangDemand:
    """Write what a job asks of the tree; the input may know pods of further jobs, and less of its own."""
    roles = with_ties(roles_of(job, tree, inputs.shape_of), inputs.ties or ())
    resources = _resources(workspace, inputs)
    requests = [_amounts(resources, scheduling_class) for scheduling_class in inputs.classes]
    bound = np.zeros(len(tree.nodes), np.int64)
    for nodes in job.bound.values():
        bound += per_node(tree, nodes)
    free = _free(workspace, inputs, resources)
    offered = [request[:, None] * slots[None, :] for slots, request in zip(offers, requests, strict=True)]
    # A policy may leave amounts out of account, and claims serve others: what is offered beyond them is no
    # less to those who come together.
    free = np.where(np.any([one > free for one in offered], axis=0), sum(offered), free)
    return GangDemand(
        roles=roles.roles,
        units=roles.units,
        quorums=roles.quorums,
        shapes=tuple(
            Shape(slots=slots, request=request, scores=scores)
            for slots, request, scores in zip(offers, requests, inputs.scores, strict=True)
        ),
        free=free,
        spec=spec,
        bound=bound,
        near=_near(workspace, job, tree),
        resources=resources,
        conflicts=tuple((node, one.counts) for one in conflicts for node in one.nodes),
        fit=job.fit,
    )


def _resources(workspace: Workspace, inputs: PlanningInput) -> tuple[str, ...]:
    """Name what is counted, also what members ask for and no node has: one that is gone may have had it."""
    known = workspace.layout.resources
    asked = {name for one in inputs.classes for name in one.pod.requests if counted(name)}
    strange = asked.difference(workspace.layout.index)
    return (*FIRST_RESOURCES, *sorted(strange.union(known[len(FIRST_RESOURCES) :]))) if strange else known


def _amounts(resources: Sequence[str], scheduling_class: SchedulingClass) -> IntVector:
    requests = scheduling_class.pod.requests
    return np.array([1 if name == PODS else requests.get(name, 0) for name in resources], np.int64)


def _free(workspace: Workspace, inputs: PlanningInput, resources: Sequence[str]) -> IntMatrix:
    """Give what the nodes of the tree have left, without what counts as gone for any member: ``(R, n)``.

    Who may use what is found out by binding.
    """
    lifted = lifted_in(one.source for one in inputs.classes)
    most = workspace.free if lifted is None else workspace.free + lifted
    found: IntMatrix = most[:, inputs.rows]
    index = workspace.layout.index
    strange = [row for row, name in enumerate(resources) if name not in index]
    return np.insert(found, np.array(strange) - np.arange(len(strange)), 0, axis=0) if strange else found


def _near(workspace: Workspace, job: Job, tree: NetworkTopology) -> IntVector:
    """Count the pods that share the first member's network-topology selector, per node of the tree."""
    near = np.zeros(len(tree.nodes), np.int64)
    if not any(pod.annotations and topology_selector(pod.annotations) for pod in job.pods):
        return near
    by_key = {str(pod.key): pod for pod in job.pods}
    first = rank_order(Member(key, 0, rank_of(pod)) for key, pod in by_key.items())[0]
    selector = topology_selector(by_key[first.key].annotations)
    counts = workspace.once(SelectorCounts).of(selector) if selector else {}
    for node, count in counts.items():
        if node in tree.node_index:
            near[tree.node_index[node]] = count
    return near


def fit_error(inputs: PlanningInput) -> str:
    """What the filters say about the first member over all nodes."""
    scheduling_class = inputs.classes[0]
    return "" if scheduling_class.feasible().all() else scheduling_class.failure(inputs.members[0]).message


@record
class Conflict:
    """Members that a node does not take together, although it takes each kind of them.

    Parameters
    ----------
    node
        Position in the tree.
    counts
        Members per shape; so many of all of them, or more, do not go.
    alike
        Positions of nodes in the same state, of which it is proven as well; then it is of the node itself.
    """

    node: int
    counts: tuple[int, ...]
    alike: tuple[int, ...] = ()
    doubtful: bool = False
    """Another choice of cards and CPUs might have served all of them."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes that it holds for."""
        return tuple(sorted({self.node, *self.alike}))

    @property
    def alone(self) -> int | None:
        """The shape, where it is a single one that the node takes fewer of than it offered."""
        some = [shape for shape, count in enumerate(self.counts) if count]
        return some[0] if len(some) == 1 else None


@record
class Denied:
    """A member that no node is at fault for, such as one beyond its quota, and who was bound before it."""

    why: Unschedulable
    before: frozenset[PodKey]
