"""A job as the planner takes it, and a plan as the loop binds it.

Offer slots come from the plugins' own filters. A plan is bound member by member as pods of their own would
be; a node that takes fewer members than it offered is named, so that whoever plans can take that offer away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, permutations
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import FIRST_RESOURCES, IntMatrix, IntVector
from koordcore.allocators.gang.demand import GangDemand, Member, Shape, rank_order
from koordcore.framework.evaluator import Refusal
from koordcore.framework.node_view import FREE
from koordcore.framework.plugin import Plugin, Together
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import PodDecision, Unschedulable
from koordcore.model.gangs import GangFit, NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import PODS, counted
from koordcore.protocol.gang_names import topology_selector
from koordcore.scheduling.gang_groups import Job, rank_of
from koordcore.scheduling.gang_roles import per_node, roles_of, with_ties
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.outcomes import NO_REFUSALS
from koordcore.scheduling.selector_counts import SelectorCounts
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.network import NetworkTopology


@attrs.frozen(eq=False)
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
            refusals[pod.key] = Unschedulable(pod=pod.key, nodes=nodes, refusal=refused[1].reason)
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
    for plugin in plugins.tying:
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
    for slots, request in zip(offers, requests, strict=True):
        # A policy may leave amounts out of account.
        free = np.maximum(free, request[:, None] * slots[None, :])
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
    """Give what the nodes of the tree have left, without what counts as gone for some members: ``(R, n)``.

    Who may use what is found out by binding.
    """
    most: IntMatrix = workspace.free
    for scheduling_class in inputs.classes:
        if scheduling_class.source is not None:
            most = np.maximum(most, scheduling_class.view().amounts[FREE])
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


@attrs.frozen
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


@attrs.frozen
class Denied:
    """A member that no node is at fault for, such as one beyond its quota, and who was bound before it."""

    why: Unschedulable
    before: frozenset[PodKey]


def bind_plan(
    workspace: Workspace, plugins: PluginSet, inputs: PlanningInput, nodes: Mapping[str, str]
) -> dict[PodKey, PodDecision] | Denied | tuple[Conflict, ...]:
    """Bind the plan node by node.

    Or say what did not go together on each node where that is so, or which member is refused wherever it
    would go, such as by its quota.
    """
    by_node: dict[str, list[str]] = {}
    for key, node in nodes.items():
        by_node.setdefault(node, []).append(key)
    decisions: dict[PodKey, PodDecision] = {}
    conflicts: list[Conflict] = []
    for node, keys in by_node.items():
        row = workspace.layout.row_of[node]
        binder = _NodeBinder(workspace, plugins, inputs, row)
        found = binder.bind(keys)
        if isinstance(found, Denied):
            return tuple(conflicts) or attrs.evolve(found, before=found.before | decisions.keys())
        if isinstance(found, int):
            used = [workspace.layout.row_of[name] for name in by_node if name != node]
            conflicts.append(binder.conflict_on(keys, found, used))
        else:
            decisions |= found
    return tuple(conflicts) or decisions


def never_together(
    plugins: PluginSet, inputs: PlanningInput, offers: IntMatrix, among: Collection[int]
) -> list[Conflict]:
    """List what the plugins know that nodes do not take together of several shapes that they take alone.

    ``among`` has the positions of the nodes in the tree.
    """
    if len(inputs.classes) < 2 or any(one.source is not None for one in inputs.classes):
        return []
    shapes = [inputs.shape_of[str(pod.key)] for pod in inputs.members]
    demand = np.bincount(shapes, minlength=len(inputs.classes)).tolist()
    first = [inputs.members[shapes.index(number)] for number in range(len(inputs.classes))]
    several = np.flatnonzero((offers > 0).sum(axis=0) > 1).tolist()
    position = {int(inputs.rows[at]): at for at in several if at in among}
    return [
        Conflict(position[row], counts, (position[row],))
        for plugin in plugins.plugins
        for row, every in plugin.never_together(first, demand, list(position)).items()
        for counts in every
        if sum(map(bool, counts)) > 1
    ]


_ORDERS: Final = 24
"""Orders in which the shapes on one node are tried."""
_SHRUNK: Final = 12
"""Members on a node beyond which what does not go together is not made smaller."""


@attrs.frozen(eq=False)
class _NodeBinder:
    """Binds members to one node; which one comes first may decide whether all of them find cards and CPUs."""

    workspace: Workspace
    plugins: PluginSet
    inputs: PlanningInput
    row: int

    def bind(self, keys: Sequence[str]) -> dict[PodKey, PodDecision] | Denied | int:
        """Bind all; or say how many went in their own order."""
        first: dict[PodKey, PodDecision] | Denied | int | None = None
        for order in self._orders(keys):
            mark = self.workspace.checkpoint()
            found = self._bind_in(order)
            if isinstance(found, dict):
                return found
            self.workspace.rollback(mark)
            if isinstance(found, Denied):
                return found
            first = found if first is None else first
        return self._planned(keys) or (0 if first is None else first)

    def _asked_together(self, keys: Sequence[str]) -> Iterator[tuple[Plugin, Together]]:
        """Ask the plugins for a choice for all of them; none where they may draw from loans."""
        shapes = {self.inputs.shape_of[key] for key in keys}
        if any(self.inputs.classes[shape].source is not None for shape in shapes):
            return
        pods = [self.inputs.pod_of[key] for key in keys]
        for plugin in self.plugins.plugins:
            found = plugin.together(pods, self.row)
            if found is not None:
                yield plugin, found

    def _planned(self, keys: Sequence[str]) -> dict[PodKey, PodDecision] | None:
        """Bind all by the choices that plugins make for them together, each of what is its own."""
        asked = list(self._asked_together(keys))
        if not asked or not all(found.plan for _, found in asked):
            return None
        mark = self.workspace.checkpoint()
        for plugin, found in asked:
            plugin.planned = found.plan
        bound = self._bind_in([str(key) for key in asked[0][1].plan])
        for plugin, _ in asked:
            plugin.planned = {}
        if isinstance(bound, dict):
            return bound
        self.workspace.rollback(mark)
        return None

    def conflict_on(self, keys: Sequence[str], went: int, used: Sequence[int]) -> Conflict:
        """Say what does not go; nodes that are used otherwise are not as they were when they were asked."""
        counts = self._least_refused(keys, went)
        alike: list[int] = []
        doubtful = sum(map(bool, counts)) > 1
        for _, found in self._asked_together(self._some(keys, counts)):
            rows = np.setdiff1d(found.rows, np.array(used, np.int64))
            alike += np.flatnonzero(np.isin(self.inputs.rows, rows)).tolist()
            doubtful = not len(found.rows)
        position = int(np.flatnonzero(self.inputs.rows == self.row)[0])
        return Conflict(position, counts, tuple(alike), doubtful)

    def _some(self, keys: Sequence[str], counts: Sequence[int]) -> list[str]:
        """Take the first members of each shape."""
        left, some = list(counts), []
        for key in keys:
            shape = self.inputs.shape_of[key]
            if left[shape]:
                left[shape] -= 1
                some.append(key)
        return some

    def _least_refused(self, keys: Sequence[str], went: int) -> tuple[int, ...]:
        """Count per shape the fewest members found that do not go together; ``went`` is from ``bind``."""
        shapes = len(self.inputs.classes)
        counts = [0] * shapes
        for key in keys:
            counts[self.inputs.shape_of[key]] += 1
        if sum(map(bool, counts)) == 1:
            most = max(counts)
            while most > went + 1 and not self._goes(keys, [min(count, most - 1) for count in counts]):
                most -= 1
            return tuple(min(count, most) for count in counts)
        for shape in range(shapes):
            while counts[shape] and len(keys) <= _SHRUNK:
                fewer = [count - (number == shape) for number, count in enumerate(counts)]
                if not any(fewer) or self._goes(keys, fewer):
                    break
                counts = fewer
        return tuple(counts)

    def _goes(self, keys: Sequence[str], counts: Sequence[int]) -> bool:
        some = self._some(keys, counts)
        mark = self.workspace.checkpoint()
        found = self.bind(some)
        self.workspace.rollback(mark)
        return isinstance(found, dict)

    def _orders(self, keys: Sequence[str]) -> Iterator[Sequence[str]]:
        """Give the members' own order, then shape after shape in every order."""
        yield keys
        shapes = sorted({self.inputs.shape_of[key] for key in keys})
        if len(shapes) > 1:
            for order in islice(permutations(shapes), _ORDERS):
                yield [key for shape in order for key in keys if self.inputs.shape_of[key] == shape]

    def _class_of(self, pod: Pod) -> SchedulingClass | Refusal:
        """Give the class of a member now: who was bound before it may have terms that concern it."""
        if len(self.inputs.classes) > 1:
            return self.plugins.class_of(pod)
        return self.inputs.classes[self.inputs.shape_of[str(pod.key)]]

    def _denied(self, pod: Pod, refusal: Refusal, before: Collection[PodKey]) -> Denied:
        nodes = len(self.workspace.layout.names)
        why = Unschedulable(pod=pod.key, nodes=nodes, refusal=refusal.reason)
        return Denied(why, frozenset(before))

    def _bind_in(self, keys: Sequence[str]) -> dict[PodKey, PodDecision] | Denied | int:
        decisions: dict[PodKey, PodDecision] = {}
        for number, key in enumerate(keys):
            pod = self.inputs.pod_of[key]
            scheduling_class = self._class_of(pod)
            if isinstance(scheduling_class, Refusal):
                return self._denied(pod, scheduling_class, decisions)
            refused = scheduling_class.refuse()
            if refused is not None:
                return self._denied(pod, refused[1], decisions)
            decision = place_there(self.workspace, self.plugins, pod, self.row, scheduling_class)
            if decision is None:
                return number
            decisions[pod.key] = decision
        return decisions
