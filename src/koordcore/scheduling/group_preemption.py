"""Whom Kubernetes' own groups want room for: as many as could start if everybody less important had left.

What that is, the planner of the groups says on the emptied cluster. For so many the cheapest victims are
sought, in whichever domain: placement and victims are one question.
"""

from __future__ import annotations

from collections import Counter

import attrs
import numpy as np

from koordcore._arrays import IntVector
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound
from koordcore.preemption.problem import Domains, Multiple, PreemptionProblem
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.gang_roles import parts_of
from koordcore.scheduling.group_goals import shares_of
from koordcore.scheduling.group_plans import Groups
from koordcore.scheduling.group_tree import GroupTree
from koordcore.topology.network import NetworkTopology


def aim(
    workspace: Workspace, plugins: PluginSet, job: Job, problem: PreemptionProblem, limits: Limits
) -> PreemptionProblem | None:
    """Say of a problem whom it has to place, and in which domains; ``None`` where nobody can start.

    Parameters
    ----------
    workspace
        Without anybody who may leave.
    """
    assert job.tree is not None, "only groups of Kubernetes aim"
    groups = Groups(workspace, plugins, job, job.tree, limits)
    homes = groups.preferred_domains() if job.tree.key else None
    placed = {one.pod for one in groups.decide_anew()[0] if isinstance(one, Bound)}
    if not placed:
        return None
    wanted = {name: sum(pod.key in placed for pod in pods) for name, pods in job.members.items()}
    roles = tuple(attrs.evolve(role, min_available=wanted[role.name]) for role in problem.roles)
    position = {role.name: number for number, role in enumerate(roles)}
    gathers = tuple(
        (frozenset(position[leaf.id] for leaf in group.leaves), groups.domains_of(group))
        for group in _below(job.tree)
        if group.key and group.leaves
    )
    # Where not everybody starts, who else could is a choice.
    choice = any(role.min_available < len(role.members) for role in roles)
    several = sum(bool(role.members) for role in roles) > 1
    shares = shares_of(job, job.tree, roles) if choice and several else None
    return attrs.evolve(problem, roles=roles, homes=homes, gathers=gathers, shares=shares)


def with_own_layers(job: Job, problem: PreemptionProblem) -> PreemptionProblem:
    """Hold the members of single gangs, and of parts of them, together that want a layer for themselves."""
    tree = problem.tree
    if tree is None:
        return problem
    specs = {name: (spec, job.bound[name]) for name, spec in job.own_specs.items()}
    specs |= {part.name: (part.spec, part.nodes) for part in parts_of(job) if part.spec is not None}
    gathers, multiples = [], []
    for name, (spec, nodes) in specs.items():
        layer = spec.must_layer(tree.layers)
        depth = tree.depth_of(layer) if layer else 0
        mine = frozenset(
            number
            for number, role in enumerate(problem.roles)
            if name in (role.name, role.name.rpartition(":")[0])
        )
        if layer and mine:
            home = _home_of(problem, tree, depth)
            held = {home[row] for row, node in enumerate(problem.nodes) if node in nodes} - {-1}
            allowed = np.isin(home, list(held)) if held else home >= 0
            number = 0 if depth is None else len(tree.domains_at(depth))
            gathers.append((mine, Domains(np.where(allowed, home, -1), number)))
        for counted, size in spec.multiples.items() if mine else ():
            below = tree.depth_of(counted)
            if below is not None:
                start, row_of = tree.layer_start[below], tree.node_index
                before = Counter(int(tree.ancestors[below][row_of[n]] - start) for n in nodes if n in row_of)
                multiples.append(Multiple(mine, _home_of(problem, tree, below), size, before))
    return attrs.evolve(problem, gathers=tuple(gathers), multiples=tuple(multiples))


def _home_of(problem: PreemptionProblem, tree: NetworkTopology, depth: int | None) -> IntVector:
    """Give the domain of every node on a layer, -1 outside the tree and where there is no such layer."""
    if depth is None or not tree.nodes:
        return np.full(len(problem.nodes), -1, dtype=np.int64)
    home = tree.ancestors[depth][np.maximum(problem.place, 0)] - tree.layer_start[depth]
    return np.where(problem.place >= 0, home, -1)


def _below(tree: GroupTree) -> list[GroupTree]:
    return [group for child in tree.children for group in (child, *_below(child))]
