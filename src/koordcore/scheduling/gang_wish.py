"""How a gang group has to lie, for which members room is made, and whether it could start with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.gangs import MatchPolicy, NetworkTopologySpec
from koordcore.model.pods import PodKey
from koordcore.preemption.identify import PreemptingJob, identify_job, triggering
from koordcore.preemption.problem import PreemptionProblem
from koordcore.scheduling.dry_runs import DryRuns
from koordcore.scheduling.freeing import key_of
from koordcore.scheduling.gang_groups import NOWHERE, Job
from koordcore.scheduling.gang_roles import MOST_CHOICES, JobPart, needed_parts
from koordcore.scheduling.group_plans import flat_tree
from koordcore.scheduling.network_trees import network_tree
from koordcore.scheduling.nominated_members import well_placed
from koordcore.snapshot.following import once
from koordcore.topology.network import NetworkTopology

Wish: TypeAlias = tuple[NetworkTopologySpec, NetworkTopology]
"""How a job that is planned has to lie, and in which tree."""
_CHOICES: Final = 16
"""Choices of members for which room is sought, one after the other, until there is some."""


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


def starts_later(job: Job, placed: Collection[PodKey]) -> bool:
    """Tell whether those of a job who are not placed now may start in a later call.

    A gang that counts waiting members only needs its minimum of them once more.
    """
    anew = [name for name, gang in job.gangs.items() if gang.match_policy == MatchPolicy.ONLY_WAITING]
    left = {name: sum(pod.key not in placed for pod in job.members[name]) for name in anew}
    enough = (name in job.free or left[name] >= job.gangs[name].min_available for name in anew)
    return not placed or all(enough)


def own_layers(job: Job) -> Callable[[PreemptionProblem, DryRuns], PreemptionProblem] | None:
    """Give what has to be said of a job's problem where single gangs have wishes of their own."""
    if not job.own_specs and not job.parts:
        return None
    from koordcore.scheduling.group_preemption import with_own_layers

    return lambda problem, _: with_own_layers(job, problem)


def asked_for(
    workspace: Workspace, plugins: PluginSet, job: Job, *, everybody: bool
) -> Iterator[PreemptingJob]:
    """Give in turn the members for which room may be made so that a job starts; the first choice comes first.

    Choices that are alike are one, and some are enough: each costs a search.

    Parameters
    ----------
    everybody
        Make room for all of its parts, also where fewer would do.
    """
    least = {name: job.least(name) for name in job.members}
    whole = identify_job(triggering(job.pods), group=job.own, pending=job.pods, minimums=least)
    whole = attrs.evolve(whole, serves=serving(workspace, job))
    if not job.together:
        yield whole
        return
    seen = set[frozenset[object]]()
    for parts in islice(needed_parts(job, everybody=everybody), MOST_CHOICES):
        if not (everybody or any(part.least for part in parts)):
            return  # what runs is enough
        alike = frozenset(Counter(_like(plugins, part) for part in parts).items())
        if alike in seen or len(seen) >= _CHOICES:
            continue
        seen.add(alike)
        pending = tuple(pod for part in parts for pod in part.pods)
        yield attrs.evolve(
            whole,
            trigger=triggering(pending, whole.trigger),  # not all gangs are needed
            pending=pending,
            parts=immutabledict({part.name: (part.pods, part.least) for part in parts if part.pods}),
        )


def _like(plugins: PluginSet, part: JobPart) -> Hashable:
    """Give what tells parts apart for which room is made."""
    pods = Counter((plugins.key_of(pod), pod.priority) for pod in part.pods)
    return part.gang, part.entry, part.least, part.nodes, frozenset(pods.items())
