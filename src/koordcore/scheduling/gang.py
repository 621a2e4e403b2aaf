"""A whole job at once: all of its minimum or nothing.

A job with a wish for gathering is planned over the network tree: offer slots come from the plugins' own
filters, the plan from :func:`~koordcore.allocators.gang.planner.place_gang`, and every member is then bound
as a pod of its own would be. A node that takes fewer members than it offered loses that offer, and the job is
planned again, so that a plan that is returned has been bound already. A job without such a wish goes member
by member, which is exact for equal members; where unequal ones get in each other's way it is planned too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.allocators.gang.demand import (
    GangPlacement,
    GangShortfall,
    Member,
    rank_order,
)
from koordcore.allocators.gang.planner import place_gang
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound, JobPlan, PodDecision, Unschedulable, Waiting
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import binding_annotations
from koordcore.scheduling.gang_groups import Job, network_tree, rank_of
from koordcore.scheduling.gang_input import Barred, bind_plan, demand_of, fit_error, offers_of, outline_of
from koordcore.scheduling.one_pod import place_pod, place_there, refuse_pod
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree

__all__ = ["finish", "flat_tree", "marked", "place_job"]

_REPLANS: Final = 64
"""Each replan takes an offer away that did not hold; plugins that count by node need none."""


def place_job(
    workspace: Workspace, plugins: PluginSet, job: Job, limits: Limits
) -> tuple[list[PodDecision], JobPlan]:
    """Decide about all members of a job that are asked about.

    Returns
    -------
    decisions
        One per member, gang after gang.
    plan
        What became of the job as a whole.
    """
    gated = [pod for pod in job.pods if pod.gated]
    if job.refusal or gated:
        reason = job.refusal or f'waiting for pod "{gated[0].key}", which is gated'
        return _give_up(workspace, job, {}, reason)
    spec, tree = job.spec, workspace.snapshot.once(network_tree)
    kept = _as_nominated(workspace, plugins, job)
    if kept is not None:
        return _kept(job, marked(workspace, job, kept))
    if spec is not None and tree is not None:
        return _planned(workspace, plugins, job, spec, tree, limits)
    mark = workspace.checkpoint()
    decisions = {pod.key: place_pod(workspace, plugins, pod) for pod in _in_order(job)}
    short = [name for name in job.members if _placed(job, name, decisions) < job.least(name)]
    if not short:
        return _kept(job, marked(workspace, job, decisions))
    if not job.strict:
        return _held(job, decisions)
    workspace.rollback(mark)
    if len({plugins.key_of(pod) for pod in job.pods}) > 1:
        return _planned(workspace, plugins, job, NetworkTopologySpec(), flat_tree(workspace), limits)
    return _give_up(workspace, job, decisions, "")


def _as_nominated(workspace: Workspace, plugins: PluginSet, job: Job) -> dict[PodKey, PodDecision] | None:
    """Bind the members where room was made for them; None where that is not for all of the minimum.

    Planning anew would often find other nodes, and what the evictions have won would be lost again.
    """
    row_of = workspace.layout.row_of
    nominated = [pod for pod in _in_order(job) if pod.nominated_node in row_of]
    if not nominated:
        return None
    mark = workspace.checkpoint()
    decisions: dict[PodKey, PodDecision] = {}
    for pod in nominated:
        decision = place_there(workspace, plugins, pod, row_of[str(pod.nominated_node)])
        if decision is None:
            workspace.rollback(mark)
            return None
        decisions[pod.key] = decision
    for pod in job.pods:
        if pod.key not in decisions:
            decisions[pod.key] = (
                place_pod(workspace, plugins, pod)
                if job.spec is None
                else Unschedulable(pod=pod.key, refusal="no place is left beside the nominated members")
            )
    if any(_placed(job, name, decisions) < job.least(name) for name in job.members):
        workspace.rollback(mark)
        return None
    return decisions


def _in_order(job: Job) -> list[Pod]:
    members = [Member(str(pod.key), 0, rank_of(pod)) for pod in job.pods]
    by_key = {str(pod.key): pod for pod in job.pods}
    if all(member.rank is None for member in members):
        return list(job.pods)
    return [by_key[member.key] for member in rank_order(members)]


def _placed(job: Job, gang_id: str, decisions: Mapping[PodKey, PodDecision]) -> int:
    return sum(isinstance(decisions[pod.key], Bound) for pod in job.members[gang_id])


def flat_tree(workspace: Workspace) -> NetworkTopology:
    """Give the tree of a cluster without a network: all nodes under the root."""
    return build_tree([LayerSpec(NODE_LAYER)], {name: {} for name in workspace.layout.names})


# -- outcomes ------------------------------------------------------------------------------------------------


def _plan_of(job: Job, **changes: object) -> JobPlan:
    least = sum(job.least(name) for name in job.members)
    plan = JobPlan(job=job.name, members=len(job.pods), least=least)
    return attrs.evolve(plan, **changes)  # type: ignore[arg-type]  # fields of the record


def marked(
    workspace: Workspace, job: Job, decisions: Mapping[PodKey, PodDecision]
) -> dict[PodKey, PodDecision]:
    """Write on members that start together who they are, as upstream does for two or more."""
    together = [one for one in decisions.values() if isinstance(one, Bound)]
    marked = dict(decisions)
    if len(together) < 2:
        return marked
    internal = binding_annotations(tuple(sorted(job.gangs)), len(together))
    # Upstream writes them for itself, and once more for those who look from outside.
    marks = internal | {key.removeprefix("internal."): text for key, text in internal.items()}
    for one in together:
        workspace.annotate(one.pod, workspace.layout.row_of[one.node], marks)
        marked[one.pod] = attrs.evolve(one, annotations=immutabledict({**one.annotations, **marks}))
    return marked


def _kept(job: Job, decisions: Mapping[PodKey, PodDecision]) -> tuple[list[PodDecision], JobPlan]:
    """Every minimum is met; members beyond it may wait."""
    listed = [decisions[pod.key] for pod in job.pods]
    nodes = [one.node for one in listed if isinstance(one, Bound)]
    plan = _plan_of(job, placed=len(nodes), domains={NODE_LAYER: len(set(nodes))} if nodes else {})
    return listed, plan


def _held(job: Job, decisions: Mapping[PodKey, PodDecision]) -> tuple[list[PodDecision], JobPlan]:
    """NonStrict (ruling 8): who found a place keeps it while the job waits for the others."""
    listed: list[PodDecision] = []
    for pod in job.pods:
        decision = decisions[pod.key]
        if isinstance(decision, Bound):
            reason = f'gang "{job.name}" waits for its minimum'
            decision = Waiting(pod=pod.key, reason=reason, held=decision)
        listed.append(decision)
    number = sum(isinstance(one, Waiting) for one in listed)
    return listed, _plan_of(job, held=number, message="waits for its minimum, keeping what it has")


def _give_up(
    workspace: Workspace, job: Job, decisions: Mapping[PodKey, PodDecision], reason: str
) -> tuple[list[PodDecision], JobPlan]:
    """Nobody is placed; the member that failed says why, the others point at it."""
    nodes = len(workspace.layout.names)
    failed = next((one for one in decisions.values() if isinstance(one, Unschedulable)), None)
    if not reason and failed is not None:
        reason = (
            f'GangGroup "{job.name}" gets rejected due to member Pod "{failed.pod}" is unschedulable '
            f'with reason "{failed.message}"'
        )
    if not reason:
        short = ", ".join(
            f"{name}: {len(pods)} wait, {job.least(name)} are needed"
            for name, pods in job.members.items()
            if len(pods) < job.least(name)
        )
        reason = f'GangGroup "{job.name}" lacks members that wait ({short})'
    listed: list[PodDecision] = []
    for pod in job.pods:
        own = decisions.get(pod.key)
        if pod.gated:
            listed.append(refuse_pod(pod) or Waiting(pod=pod.key, reason=reason))
        elif isinstance(own, Unschedulable):
            listed.append(own)
        else:
            listed.append(Unschedulable(pod=pod.key, nodes=nodes, refusal=reason))
    return listed, _plan_of(job, message=reason)


# -- planning ------------------------------------------------------------------------------------------------


def _planned(
    workspace: Workspace,
    plugins: PluginSet,
    job: Job,
    spec: NetworkTopologySpec,
    tree: NetworkTopology,
    limits: Limits,
) -> tuple[list[PodDecision], JobPlan]:
    outline = outline_of(workspace, plugins, job.pods, tree)
    if isinstance(outline, Unschedulable):
        return _give_up(workspace, job, {outline.pod: outline}, "")
    offers = offers_of(outline)
    barred: list[Barred] = []
    for _ in range(_REPLANS):
        demand = demand_of(workspace, job, spec, tree, outline, offers, barred)
        cut = bool(barred)
        answer = place_gang(tree, demand, fit_error=fit_error(outline), limits=limits)
        if isinstance(answer, GangShortfall):
            decisions, plan = _give_up(workspace, job, {}, answer.message)
            certificate = _weakened(answer.certificate) if cut else answer.certificate
            return decisions, attrs.evolve(plan, detail=answer.detail, certificate=certificate)
        mark = workspace.checkpoint()
        bound = bind_plan(workspace, plugins, outline, answer.nodes)
        if isinstance(bound, dict):
            return finish(job, marked(workspace, job, bound), answer, cut=cut)
        workspace.rollback(mark)
        if isinstance(bound, Unschedulable):
            return _give_up(workspace, job, {bound.pod: bound}, "")
        if bound.alone is not None:
            offers[bound.alone, bound.node] = bound.counts[bound.alone] - 1
        else:
            # Other cards and CPUs for each might have served all of them; then this was forbidden in vain.
            barred.append(bound)
    return _give_up(workspace, job, {}, "no plan was found whose members can all be bound")


def finish(
    job: Job, bound: Mapping[PodKey, PodDecision], answer: GangPlacement, *, cut: bool
) -> tuple[list[PodDecision], JobPlan]:
    """Write down a plan whose members are bound; ``cut`` says that an offer was lowered more than proven."""
    left_out = 'no place is left for more than the minimum of gang "{}"'
    decisions = [
        bound.get(pod.key, Unschedulable(pod=pod.key, refusal=left_out.format(name)))
        for name, pods in job.members.items()
        for pod in pods
    ]
    plan = _plan_of(
        job,
        placed=len(bound),
        domains=dict(answer.domains),
        certificate=_weakened(answer.certificate) if cut else answer.certificate,
    )
    return decisions, plan


def _weakened(certificate: Certificate) -> Certificate:
    """An offer was cut further than proven: the answer is legal, and its bound is not known any more."""
    return Certificate(CertificateStatus.HEURISTIC, certificate.objective)
