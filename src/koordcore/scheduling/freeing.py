"""What plugins know of who has to leave a node: in amounts before a plan, in sets of pods after a dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.plugin import Plugin
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.preemption.problem import Conflict, PreemptionProblem

_MOST_NODES: Final = 256
"""Nodes that are asked at once about single members of a job."""


def key_of(text: str) -> PodKey:
    """Read ``namespace/name``."""
    return PodKey(*text.split("/", 1))


@attrs.define(eq=False)
class Freeing:
    """Asks the plugins for one job.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    members
        Pods of the job, by ``namespace/name``.
    undisturbed
        Opens the state in which nobody has left whom a plan names.
    """

    workspace: Workspace
    plugins: PluginSet
    members: Mapping[str, Pod]
    undisturbed: Callable[[], AbstractContextManager[None]]
    _others: tuple[Conflict, ...] | None = None

    def explained(self, problem: PreemptionProblem, conflict: Conflict, pods: Sequence[Pod]) -> Conflict:
        """Add to a conflict which sets of candidates would do, as far as a plugin knows.

        All nodes are asked once about single members, too: most of them are in the same case.

        Parameters
        ----------
        pods
            The members that its node does not take together.
        """
        with self.undisturbed():
            ways = self._ways(problem, pods, conflict.node)
            left = frozenset(np.flatnonzero(conflict.gone).tolist())
            if ways is not None and any(way <= left for way in ways):
                ways = None  # it is not for this plugin that they were refused
            others = self._elsewhere(problem, conflict) if ways is not None else ()
        return attrs.evolve(conflict, ways=ways, others=others)

    def _elsewhere(self, problem: PreemptionProblem, conflict: Conflict) -> tuple[Conflict, ...]:
        far = bool(problem.reaching.any())
        rows = (
            range(len(problem.nodes)) if far else np.unique(problem.candidates.node[problem.usable]).tolist()
        )
        if len(problem.members) == 1 or len(rows) > _MOST_NODES:
            return ()
        if self._others is not None:
            return self._others
        first = {member.shape: self.members[member.key] for member in problem.members[::-1]}
        found = []
        for shape, pod in sorted(first.items(), key=lambda one: one[0]):
            alone = np.zeros(len(problem.all_shapes), dtype=np.int64)
            alone[shape] = 1
            for row in rows:
                ways = self._ways(problem, [pod], row) if problem.shapes[shape].allowed[row] else None
                if ways is not None and frozenset() not in ways:
                    found.append(Conflict(row, alone, conflict.gone, ways=ways))
        self._others = tuple(found)
        return self._others

    def _ways(
        self, problem: PreemptionProblem, pods: Sequence[Pod], row: int
    ) -> tuple[frozenset[int], ...] | None:
        table = problem.candidates
        number = {key_of(table.keys[one]): one for one in problem.near(row).tolist()}
        going = []
        for key, one in sorted(number.items()):
            there = self.workspace.pods_on(int(table.node[one]))
            going += [there[key]] if key in there else []
        for plugin in self.plugins.deciding(pods):
            found = plugin.ways(pods, row, going, anywhere=True)
            if found is not None:
                return tuple(frozenset(number[key] for key in keys) for keys in found)
        return None


def with_reaching(
    workspace: Workspace, plugins: PluginSet, problem: PreemptionProblem, pods: Sequence[Pod]
) -> PreemptionProblem:
    """Add who leaves room for the members of a job on other nodes than his own to a problem.

    Parameters
    ----------
    pods
        Those of the job.
    """
    table = problem.candidates
    found: set[str] = set()
    for plugin in plugins.deciding(pods):
        if type(plugin).reaching is Plugin.reaching:
            continue
        if any(plugin.request_of(pod) is not None for pod in pods):
            found.update(map(str, plugin.reaching(pods, (pod for pod, _ in _running(workspace, problem)))))
    if not found:
        return problem
    reaches: BoolVector = np.fromiter((key in found for key in table.keys), np.bool_, len(table))
    return attrs.evolve(problem, reaches=reaches)


def _running(workspace: Workspace, problem: PreemptionProblem) -> Iterator[tuple[Pod, int]]:
    """Give the pods of the candidates with their rows, each looked up when its turn comes."""
    table = problem.candidates
    for key, row in zip(map(key_of, table.keys), table.node.tolist(), strict=True):
        yield workspace.pods_on(row)[key], row


def with_amounts(
    workspace: Workspace, plugins: PluginSet, problem: PreemptionProblem, members: Mapping[str, Pod]
) -> PreemptionProblem:
    """Add what plugins count of nodes beside resources, such as devices, to a problem.

    Parameters
    ----------
    members
        Pods of the job, by ``namespace/name``.
    """
    first = {member.shape: members[member.key] for member in problem.members[::-1]}
    pods = [first[shape] for shape in range(len(problem.shapes)) if shape in first]
    if len(pods) < len(problem.shapes):
        return problem
    table = problem.candidates
    running: list[tuple[Pod, int]] | None = None
    for plugin in plugins.deciding(pods):
        if type(plugin).countable is Plugin.countable:
            continue
        if all(plugin.request_of(pod) is None for pod in pods):
            continue  # before everybody who runs is looked up
        running = running or [*_running(workspace, problem)]
        found = plugin.countable(pods, running)
        if found is None or not len(found.requests):
            continue
        shapes = zip(problem.shapes, found.requests.T, strict=True)
        table = attrs.evolve(table, amounts=np.vstack([table.amounts, found.gives]), by_node=None)
        problem = attrs.evolve(
            problem,
            free=np.vstack([problem.free, found.free]),
            candidates=table,
            shapes=tuple(
                attrs.evolve(shape, request=np.concatenate([shape.request, more])) for shape, more in shapes
            ),
        )
    return problem
