"""What is written down about a job: who got a node, who waits, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore.allocators.gang.demand import GangPlacement
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.decisions import (
    Bound,
    JobPlan,
    Nominated,
    PodDecision,
    Unschedulable,
    Waiting,
    bound_with,
)
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import PodKey
from koordcore.model.proofs import Leaf, LinearEvidence, LinearProblem, LinearStage
from koordcore.protocol.gang import binding_annotations
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.one_pod import refuse_pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NODE_LAYER

NO_MARKS: Final[immutabledict[str, str]] = immutabledict()
NO_REFUSALS: Final[Mapping[PodKey, Unschedulable]] = immutabledict()

Outcome: TypeAlias = tuple[list[PodDecision], JobPlan]
"""One decision per member, gang after gang, and what became of the job as a whole."""


def plan_of(job: Job, **changes: object) -> JobPlan:
    """Describe a job of whom nobody is placed, with some fields otherwise."""
    each = sorted(job.least(name) for name in job.own)
    told: dict[str, Any] = {"least": sum(each[: job.optional or None]), **changes}
    return JobPlan(job=job.name, members=len(job.pods), **told)


def marked(
    workspace: Workspace, job: Job, decisions: Mapping[PodKey, PodDecision]
) -> dict[PodKey, PodDecision]:
    """Write on members that start together who they are, as upstream does for two or more."""
    together = [one for one in decisions.values() if isinstance(one, Bound)]
    marked = dict(decisions)
    if len(together) < 2 or not job.by_labels:
        return marked
    gang_of = {pod.key: name for name, pods in job.members.items() for pod in pods}
    marks_of = {job.gangs[gang_of[one.pod]].group: NO_MARKS for one in together}
    for group in marks_of:
        internal = binding_annotations(group, len(together))
        # Upstream writes them for itself, and once more for those who look from outside.
        more = {key.removeprefix("internal."): text for key, text in internal.items()}
        marks_of[group] = immutabledict(internal | more)
    for one in together:
        marks = marks_of[job.gangs[gang_of[one.pod]].group]
        workspace.annotate(one.pod, workspace.layout.row_of[one.node], marks)
        noted = marks if one.annotations is EMPTY else immutabledict({**one.annotations, **marks})
        marked[one.pod] = bound_with(one, noted)
    return marked


def waiting(job: Job) -> Outcome:
    """Nobody is tried before what the job waits for is there."""
    listed = [refuse_pod(pod) or Waiting(pod=pod.key, reason=job.waits_for) for pod in job.pods]
    return listed, plan_of(job, message=job.waits_for)


@lru_cache(maxsize=1024)
def all_of(placed: int, members: int) -> Certificate | None:
    """Certify that every member is placed: there is nobody else to place. None where some are not."""
    if not 0 < placed == members:
        return None
    problem = LinearProblem(lower=(0,), upper=(members,), rows=(), stages=(LinearStage(((0, -1),)),))
    return Certificate.make_proven((-placed,), problem, LinearEvidence((placed,), (Leaf((), 1),)))


def kept(job: Job, decisions: Mapping[PodKey, PodDecision]) -> Outcome:
    """Every minimum is met; members beyond it may wait."""
    listed = [decisions[pod.key] for pod in job.pods]
    nodes = [one.node for one in listed if isinstance(one, Bound)]
    used = {NODE_LAYER: len(set(nodes))} if nodes else {}
    certificate = all_of(len(nodes), len(listed))
    return listed, plan_of(job, placed=len(nodes), domains=used, certificate=certificate)


def give_up(workspace: Workspace, job: Job, decisions: Mapping[PodKey, PodDecision], reason: str) -> Outcome:
    """Nobody is placed; the member that failed says why, the others point at it."""
    nodes = len(workspace.layout.names)
    failed = next((one for one in decisions.values() if isinstance(one, Unschedulable)), None)
    if not reason and failed is not None:
        group = ",".join(job.gangs) if job.tree is None else job.name
        reason = (
            f'GangGroup "{group}" gets rejected due to member Pod "{failed.pod}" is unschedulable '
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
    return listed, plan_of(job, message=reason)


def unplaced(workspace: Workspace, pod: PodKey, reason: str) -> Unschedulable:
    """Refuse a pod for a reason that is about no single node."""
    return Unschedulable(pod=pod, nodes=len(workspace.layout.names), refusal=reason)


def finish(
    workspace: Workspace,
    job: Job,
    bound: Mapping[PodKey, PodDecision],
    answer: GangPlacement,
    *,
    cut: bool,
    refused: Mapping[PodKey, Unschedulable] = NO_REFUSALS,
) -> Outcome:
    """Write down a plan whose members are bound.

    Parameters
    ----------
    cut
        An offer was lowered more than proven.
    refused
        Members that were left out of the plan.
    """
    left_out = 'no place is left for more than the minimum of gang "{}"'
    decisions = [
        bound.get(pod.key) or refused.get(pod.key) or unplaced(workspace, pod.key, left_out.format(name))
        for name, pods in job.members.items()
        for pod in pods
    ]
    plan = plan_of(
        job,
        placed=len(bound),
        domains=dict(answer.domains),
        certificate=weakened(answer.certificate) if cut else answer.certificate,
    )
    return decisions, plan


def weakened(certificate: Certificate) -> Certificate:
    """An offer was cut further than proven: the answer is legal, and its bound is not known any more."""
    return Certificate(CertificateStatus.HEURISTIC, certificate.objective)


def with_nominations(members: list[PodDecision], nominated: Sequence[Nominated]) -> list[PodDecision]:
    """Replace the decisions of those who are nominated."""
    known = {one.pod: one for one in nominated}
    return [known.get(one.pod, one) for one in members]


def nominate(
    end: ClusterSnapshot, decisions: Iterable[PodDecision], withdrawn: Iterable[PodKey]
) -> ClusterSnapshot:
    """Write the nominations on the pods that wait."""
    nodes: dict[PodKey, str | None] = dict.fromkeys(withdrawn)
    nodes |= {one.pod: one.node for one in decisions if isinstance(one, Nominated)}
    if not nodes:
        return end
    pods = [pod for pod in end.pending if pod.key in nodes]
    return end.with_pending(*(attrs.evolve(pod, nominated_node=nodes[pod.key]) for pod in pods))
