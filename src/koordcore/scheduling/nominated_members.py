"""Members of a job for whom room was made: bound there first, and the others beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import attrs
import numpy as np

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, Shape
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.gang_roles import per_node, roles_of
from koordcore.scheduling.one_pod import place_there
from koordcore.topology.network import NetworkTopology


def bind_nominated(
    workspace: Workspace, plugins: PluginSet, pods: Iterable[Pod]
) -> dict[PodKey, PodDecision]:
    """Bind those of some pods that are nominated, each on its node; nobody where one of them does not fit."""
    row_of = workspace.layout.row_of
    nominated = (pod for pod in pods if pod.nominated_node in row_of)
    return bind_each(workspace, plugins, ((pod, str(pod.nominated_node)) for pod in nominated))


def bind_each(
    workspace: Workspace, plugins: PluginSet, places: Iterable[tuple[Pod, str]]
) -> dict[PodKey, PodDecision]:
    """Bind pods one after another, each on the node that is given; nobody where one of them does not fit.

    Where it hangs on the others whether a node takes one, its turn may come after theirs.
    """
    row_of = workspace.layout.row_of
    mark = workspace.checkpoint()
    decisions: dict[PodKey, PodDecision] = {}
    left, waiting = [*places], list[tuple[Pod, str]]()
    while left:
        for pod, node in left:
            decision = place_there(workspace, plugins, pod, row_of[node])
            if decision is not None:
                decisions[pod.key] = decision
                continue
            waiting.append((pod, node))
            own = plugins.class_of(pod)
            if isinstance(own, Refusal) or not own.looks_elsewhere or len(waiting) == len(left):
                workspace.rollback(mark)
                return {}
        left, waiting = waiting, []
    return decisions


def beside(job: Job, decisions: Mapping[PodKey, PodDecision]) -> Job:
    """Give a job as it is once some of its members are bound: who is left, beside more that run."""
    there = {key: one.node for key, one in decisions.items() if isinstance(one, Bound)}
    members, bound, waiting = {}, {}, {}
    for name, pods in job.members.items():
        nodes = [there[pod.key] for pod in pods if pod.key in there]
        members[name] = tuple(pod for pod in pods if pod.key not in there)
        bound[name] = (*job.bound[name], *nodes)
        # They start with the others, so that they count however the gang counts.
        waiting[name] = job.waiting.get(name, 0) + len(nodes)
    return attrs.evolve(job, members=members, bound=bound, waiting=waiting, there={**job.there, **there})


def well_placed(
    job: Job, spec: NetworkTopologySpec, tree: NetworkTopology, there: Mapping[PodKey, str]
) -> bool:
    """Tell whether the members with a node are enough, and lie as they must beside those that run."""
    found = roles_of(job, tree, {str(pod.key): 0 for pod in job.pods})
    demand = GangDemand(
        roles=found.roles,
        units=found.units,
        quorums=found.quorums,
        # Their nodes have taken them: how many more these would take does not matter.
        shapes=(Shape(slots=np.full(len(tree.nodes), len(job.pods))),),
        spec=spec,
        bound=per_node(tree, chain.from_iterable(job.bound.values())),
    )
    return not placement_violations(tree, demand, {str(key): node for key, node in there.items()})
