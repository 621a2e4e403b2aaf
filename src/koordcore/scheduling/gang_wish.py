"""How a gang group has to lie, and whether it could start on the nodes that a plan of evictions names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from koordcore.framework.workspace import Workspace
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import PodKey
from koordcore.preemption.problem import PreemptionProblem
from koordcore.scheduling.dry_runs import DryRuns
from koordcore.scheduling.freeing import key_of
from koordcore.scheduling.gang_groups import NOWHERE, Job
from koordcore.scheduling.group_plans import flat_tree
from koordcore.scheduling.network_trees import network_tree
from koordcore.scheduling.nominated_members import well_placed
from koordcore.snapshot.following import once
from koordcore.topology.network import NetworkTopology

Wish: TypeAlias = tuple[NetworkTopologySpec, NetworkTopology]
"""How a job that is planned has to lie, and in which tree."""


def wish_of(workspace: Workspace, job: Job) -> Wish | None:
    """Tell how a job has to lie; ``None`` where it may go member by member."""
    spec = job.spec
    tree = once(workspace.snapshot, network_tree) if spec is not None or job.parts else None
    if job.together or (spec is not None and (tree is not None or not spec.needs_network)):
        return spec or NetworkTopologySpec(), flat_tree(workspace) if tree is None else tree
    return None


def serving(
    workspace: Workspace, job: Job, there: Mapping[PodKey, str] = NOWHERE
) -> Callable[[Mapping[str, str]], bool]:
    """Give what tells whether a job could start with members on some nodes, if these take them.

    Parameters
    ----------
    there
        Nodes of the members that have one already.
    """

    def serves(nodes: Mapping[str, str]) -> bool:
        placed = {**there, **{key_of(key): node for key, node in nodes.items()}}
        wish = wish_of(workspace, job)
        return job.started_with(placed) if wish is None else well_placed(job, *wish, placed)

    return serves


def own_layers(job: Job) -> Callable[[PreemptionProblem, DryRuns], PreemptionProblem] | None:
    """Give what has to be said of a job's problem where single gangs have wishes of their own."""
    if not job.own_specs and not job.parts:
        return None
    from koordcore.scheduling.group_preemption import with_own_layers

    return lambda problem, _: with_own_layers(job, problem)
