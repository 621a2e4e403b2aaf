"""Members of a job for whom room was made: bound there first, as they must lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, Shape
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
    mark = workspace.checkpoint()
    decisions: dict[PodKey, PodDecision] = {}
    for pod in pods:
        if pod.nominated_node not in row_of:
            continue
        decision = place_there(workspace, plugins, pod, row_of[str(pod.nominated_node)])
        if decision is None:
            workspace.rollback(mark)
            return {}
        decisions[pod.key] = decision
    return decisions


def well_placed(
    job: Job, spec: NetworkTopologySpec, tree: NetworkTopology, decisions: Mapping[PodKey, PodDecision]
) -> bool:
    """Tell whether the members that are bound are enough, and lie as they must beside those that run."""
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
    nodes = {str(key): one.node for key, one in decisions.items() if isinstance(one, Bound)}
    return not placement_violations(tree, demand, nodes)
