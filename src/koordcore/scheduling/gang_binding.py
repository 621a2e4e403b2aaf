"""Binding of what was planned for a gang, and what is learned of nodes that do not take it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import IntMatrix
from koordcore._record import record
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin import Plugin, Together
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import PodDecision, Unschedulable
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.gang_input import Conflict, Denied, PlanningInput
from koordcore.scheduling.one_pod import place_there


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
    mark = workspace.checkpoint()
    found = _bind_nodes(workspace, plugins, inputs, by_node)
    if not isinstance(found, tuple) or len(by_node) < 2:
        return found
    rows = workspace.layout.row_of
    members = [(inputs.pod_of[key], rows[node]) for node, keys in by_node.items() for key in keys]
    return _bind_chosen(workspace, plugins, inputs, by_node, members, mark) or found


def _bind_nodes(
    workspace: Workspace,
    plugins: PluginSet,
    inputs: PlanningInput,
    by_node: Mapping[str, Sequence[str]],
    chosen: Collection[Plugin] = (),
) -> dict[PodKey, PodDecision] | Denied | tuple[Conflict, ...]:
    """Bind one node after another; some plugins have chosen already."""
    decisions: dict[PodKey, PodDecision] = {}
    conflicts: list[Conflict] = []
    for node, keys in by_node.items():
        row = workspace.layout.row_of[node]
        binder = _NodeBinder(workspace, plugins, inputs, row, chosen)
        found = binder.bind(keys)
        if isinstance(found, Denied):
            return tuple(conflicts) or attrs.evolve(found, before=found.before | decisions.keys())
        if isinstance(found, int):
            used = [workspace.layout.row_of[name] for name in by_node if name != node]
            conflicts.append(binder.conflict_on(keys, found, used))
        else:
            decisions |= found
    return tuple(conflicts) or decisions


def _bind_chosen(
    workspace: Workspace,
    plugins: PluginSet,
    inputs: PlanningInput,
    by_node: Mapping[str, Sequence[str]],
    members: Sequence[tuple[Pod, int]],
    mark: int,
) -> dict[PodKey, PodDecision] | None:
    """Bind all by what plugins choose on all nodes together, as all was at the mark.

    Where that does not go either, everything is as it was before.
    """
    if any(one.source is not None for one in inputs.classes):
        return None
    own = plugins.deciding(pod for pod, _ in members)
    wanting = [one for one in own if type(one).on_nodes is not Plugin.on_nodes]
    if not wanting:
        return None
    workspace.rollback(mark)
    chosen = [(plugin, plan) for plugin in wanting if (plan := plugin.on_nodes(members))]
    for plugin, plan in chosen:
        plugin.planned = plan
    there = {pod.key: row for pod, row in members}
    order = dict.fromkeys(workspace.layout.names[there[pod]] for _, plan in chosen for pod in plan)
    ordered = {node: by_node[node] for node in (*order, *by_node)}
    found = _bind_nodes(workspace, plugins, inputs, ordered, [one for one, _ in chosen]) if chosen else ()
    for plugin, _ in chosen:
        plugin.planned = {}
    if isinstance(found, dict):
        return found
    workspace.rollback(mark)
    return None


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
        for plugin in plugins.deciding(first)
        for row, every in plugin.never_together(first, demand, list(position)).items()
        for counts in every
        if sum(map(bool, counts)) > 1
    ]


def wherever(
    workspace: Workspace, plugins: PluginSet, inputs: PlanningInput, offers: IntMatrix, conflict: Conflict
) -> Conflict:
    """Say of all nodes that offer as much whether they do not take together what one of them does not."""
    if sum(conflict.counts) < 2:
        return conflict  # each node alone has said what it takes of one
    enough = (offers >= np.array(conflict.counts)[:, None]).all(axis=0)
    keys = [str(pod.key) for pod in inputs.members]
    alike = set(conflict.alike)
    for position in sorted(set(np.flatnonzero(enough).tolist()).difference(conflict.nodes)):
        binder = _NodeBinder(workspace, plugins, inputs, int(inputs.rows[position]))
        if binder.refuses(keys, conflict.counts):
            alike.add(position)
    return attrs.evolve(conflict, alike=tuple(sorted(alike)))


_ORDERS: Final = 24
"""Orders in which the shapes on one node are tried."""
_SHRUNK: Final = 12
"""Members on a node beyond which what does not go together is not made smaller."""


@record(eq=False)
class _NodeBinder:
    """Binds members to one node; which one comes first may decide whether all of them find cards and CPUs."""

    workspace: Workspace
    plugins: PluginSet
    inputs: PlanningInput
    row: int
    chosen: Collection[Plugin] = ()
    """Plugins that have chosen for members on all nodes."""

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
        for plugin in self.plugins.deciding(pods):
            if plugin in self.chosen:
                continue
            found = plugin.together(pods, self.row)
            if found is not None:
                yield plugin, found

    def _planned(self, keys: Sequence[str]) -> dict[PodKey, PodDecision] | None:
        """Bind all by the choices that plugins make for them together, each of what is its own.

        Of plugins that know of no choice each gets what there is in its turn.
        """
        asked = self._asked_together(keys)
        planned = [(plugin, found) for plugin, found in asked if found.plan]
        if not planned:
            return None
        mark = self.workspace.checkpoint()
        for plugin, found in planned:
            plugin.planned = found.plan
        bound = self._bind_in([str(key) for key in planned[0][1].plan])
        for plugin, _ in planned:
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
        return isinstance(self._tried(keys, counts), dict)

    def refuses(self, keys: Sequence[str], counts: Sequence[int]) -> bool:
        """Tell whether the node does not take so many of each shape, as all is now."""
        return isinstance(self._tried(keys, counts), int)

    def _tried(self, keys: Sequence[str], counts: Sequence[int]) -> dict[PodKey, PodDecision] | Denied | int:
        mark = self.workspace.checkpoint()
        found = self.bind(self._some(keys, counts))
        self.workspace.rollback(mark)
        return found

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
