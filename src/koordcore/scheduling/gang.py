"""A whole job at once: all of its minimum or nothing.

A job with a wish for gathering is planned over the network tree: offer slots come from the plugins' own
filters, the plan from :func:`~koordcore.allocators.gang.planner.place_gang`, and every member is then bound
as a pod of its own would be. A node that takes fewer members than it offered loses that offer, and the job is
planned again, so that a plan that is returned has been bound already. A job without such a wish goes member
by member, which is exact for equal members; where unequal ones get in each other's way it is planned too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._arrays import IntMatrix
from koordcore.allocators.gang.demand import GangDemand, Member, rank_order
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound, PodDecision, Unschedulable, Waiting
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.times import format_timestamp, moment_of
from koordcore.scheduling.gang_groups import Job, rank_of
from koordcore.scheduling.gang_input import Conflict, demand_of, fit_error, offers_of, planning_input_of
from koordcore.scheduling.gang_roles import counts_beyond_amounts
from koordcore.scheduling.gang_wish import Wish, wish_of
from koordcore.scheduling.group_plans import flat_tree, place_groups
from koordcore.scheduling.nominated_members import beside, bind_nominated, well_placed
from koordcore.scheduling.one_pod import place_pod, place_there
from koordcore.scheduling.outcomes import Outcome, finish, give_up, kept, marked, plan_of, unplaced, waiting
from koordcore.scheduling.permit_holds import FOR_EVER, NOBODY, Kept, again
from koordcore.scheduling.permit_wait import wait_ends
from koordcore.scheduling.planned import Failed, Planned, plan_and_bind

_OVER: Final = 'gang "{}" was not complete in time: it could keep its places{}'


def place_job(
    workspace: Workspace,
    plugins: PluginSet,
    job: Job,
    limits: Limits,
    kept_places: Mapping[PodKey, Kept] = NOBODY,
) -> Outcome:
    """Decide about all members of a job that are asked about.

    Parameters
    ----------
    kept_places
        What members kept from an earlier call; they hold it no more.

    Returns
    -------
    decisions
        One per member, gang after gang.
    plan
        What became of the job as a whole.
    """
    if job.waits_for:
        return waiting(job)
    gated = [pod for pod in job.pods if pod.gated]
    if job.refusal or gated or job.lacking():
        gate = f'waiting for pod "{gated[0].key}", which is gated' if gated else job.lacking()
        refused, plan = give_up(workspace, job, {}, job.refusal or gate)
        return refused, attrs.evolve(plan, malformed=bool(job.refusal) and not job.by_labels)
    if job.tree is not None:
        return place_groups(workspace, plugins, job, job.tree, limits)
    wish = wish_of(workspace, job)
    nominated = _as_nominated(workspace, plugins, job, wish, limits)
    if nominated is not None:
        return kept(job, marked(workspace, job, nominated))
    if wish is not None:
        return _planned(workspace, plugins, job, wish, limits)
    mark = workspace.checkpoint()
    decisions = _one_by_one(workspace, plugins, job, kept_places)
    short = [name for name in job.members if _placed(job, name, decisions) < job.least(name)]
    if not short:
        return kept(job, marked(workspace, job, decisions))
    if not job.strict:
        return _held(workspace, plugins, job, decisions, mark, kept_places)
    workspace.rollback(mark)
    # Extra members of an early gang may have taken what a later one needs for its minimum.
    mixed = len(job.members) > 1 or len({plugins.key_of(pod) for pod in job.pods}) > 1
    if not mixed and not counts_beyond_amounts(plugins, job.pods):
        return give_up(workspace, job, decisions, "")
    members, plan = _planned(workspace, plugins, job, (NetworkTopologySpec(), flat_tree(workspace)), limits)
    if mixed or plan.placed:
        return members, plan
    # Of equal members that nobody wants gathered, each one's own reasons say most.
    refused, plan_of_job = give_up(workspace, job, decisions, "")
    return refused, attrs.evolve(plan_of_job, certificate=plan.certificate, detail=plan.detail)


def _one_by_one(
    workspace: Workspace, plugins: PluginSet, job: Job, kept_places: Mapping[PodKey, Kept]
) -> dict[PodKey, PodDecision]:
    """Place the members in their order; those who kept a place have it first."""
    queue = _in_order(job)
    found: dict[PodKey, PodDecision] = {}
    for pod in queue if kept_places else ():
        own = again(workspace, plugins, pod, kept_places)
        if own is not None:
            found[pod.key] = own
    return found | {pod.key: place_pod(workspace, plugins, pod) for pod in queue if pod.key not in found}


def _in_order(job: Job) -> list[Pod]:
    ranks = [rank_of(pod) for pod in job.pods]
    if all(rank is None for rank in ranks):
        return list(job.pods)
    members = [Member(str(pod.key), 0, rank) for pod, rank in zip(job.pods, ranks, strict=True)]
    by_key = {str(pod.key): pod for pod in job.pods}
    return [by_key[member.key] for member in rank_order(members)]


def _nodes(decisions: Mapping[PodKey, PodDecision]) -> dict[PodKey, str]:
    return {key: one.node for key, one in decisions.items() if isinstance(one, Bound)}


def _placed(job: Job, gang_id: str, decisions: Mapping[PodKey, PodDecision]) -> int:
    return sum(isinstance(decisions[pod.key], Bound) for pod in job.members[gang_id])


def _held(
    workspace: Workspace,
    plugins: PluginSet,
    job: Job,
    decisions: Mapping[PodKey, PodDecision],
    mark: int,
    kept_places: Mapping[PodKey, Kept],
) -> Outcome:
    """NonStrict (ruling 8): who found a place keeps it for a while, until the others come."""
    until_of = {key: one.until for key, one in kept_places.items() if one.until is not None}
    ends = {
        pod.key: until_of.get(pod.key) or wait_ends(workspace.snapshot, job, pod, workspace.now)
        for pod in job.pods
    }
    now = None if workspace.now is None else moment_of(workspace.now)
    over = {key for key, end in ends.items() if now is not None and end is not None and end <= now}
    if any(isinstance(decisions[key], Bound) for key in over):
        workspace.rollback(mark)
        row_of = workspace.layout.row_of
        again = {
            pod.key: place_there(workspace, plugins, pod, row_of[own.node])
            for pod in _in_order(job)
            if pod.key not in over and isinstance(own := decisions[pod.key], Bound)
        }
        left = "no place is left beside the members that wait"
        decisions = {
            **decisions,
            **{key: one or unplaced(workspace, key, left) for key, one in again.items()},
        }
    listed: list[PodDecision] = []
    for pod in job.pods:
        decision, end = decisions[pod.key], ends[pod.key]
        if isinstance(decision, Bound):
            until = "" if end is None else f" until {format_timestamp(end)}"
            if pod.key in over:
                decision = unplaced(workspace, pod.key, _OVER.format(job.name, until))
            else:
                reason = f'gang "{job.name}" waits for its minimum{until}'
                decision = Waiting(pod=pod.key, reason=reason, held=_kept_at_permit(workspace, decision, end))
        listed.append(decision)
    number = sum(isinstance(one, Waiting) for one in listed)
    message = "waits for its minimum, keeping what it has" if number else "no member has a place"
    if not number and any(isinstance(decisions[key], Bound) for key in over):
        message = "its time to wait is over"
    return listed, plan_of(job, held=number, message=message)


def _kept_at_permit(workspace: Workspace, decision: Bound, end: int | None) -> Bound:
    """Mark a member that keeps its place without being bound: its gang has not started by it."""
    mark = {WAITS_AT_PERMIT: FOR_EVER if end is None else format_timestamp(end)}
    workspace.annotate(decision.pod, workspace.layout.row_of[decision.node], mark)
    return attrs.evolve(decision, annotations=immutabledict({**decision.annotations, **mark}))


# -- planning ------------------------------------------------------------------------------------------------


def _planned(workspace: Workspace, plugins: PluginSet, job: Job, wish: Wish, limits: Limits) -> Outcome:
    found = _plan_of(workspace, plugins, job, wish, limits)
    if isinstance(found, Planned):
        bound = marked(workspace, job, found.bound)
        return finish(workspace, job, bound, found.answer, cut=found.cut, refused=found.refused)
    known = {} if found.refused is None else {found.refused.pod: found.refused}
    decisions, plan = give_up(workspace, job, known, found.message)
    return decisions, attrs.evolve(plan, detail=found.detail, certificate=found.certificate)


def _plan_of(
    workspace: Workspace, plugins: PluginSet, job: Job, wish: Wish, limits: Limits
) -> Planned | Failed:
    spec, tree = wish
    inputs = planning_input_of(workspace, plugins, job.pods, tree)
    if isinstance(inputs, Unschedulable):
        return Failed(refused=inputs)

    def ask(offers: IntMatrix, conflicts: Sequence[Conflict]) -> GangDemand:
        return demand_of(workspace, job, spec, tree, inputs, offers, conflicts)

    fit = fit_error(inputs)
    return plan_and_bind(workspace, plugins, tree, inputs, offers_of(inputs, job.fit), ask, limits, fit)


# -- where room was made -------------------------------------------------------------------------------------


def _as_nominated(
    workspace: Workspace, plugins: PluginSet, job: Job, wish: Wish | None, limits: Limits
) -> dict[PodKey, PodDecision] | None:
    """Bind the members where room was made for them, and as many more as fit beside them.

    None where that is not for all of the minimum, or not as the job has to lie. Planning anew would often
    find other nodes, and what the evictions have won would be lost again.
    """
    row_of = workspace.layout.row_of
    if not any(pod.nominated_node in row_of for pod in job.pods):
        return None
    mark = workspace.checkpoint()
    first = bind_nominated(workspace, plugins, _in_order(job))
    if not first:
        return None
    decisions = (
        _one_by_one_beside(workspace, plugins, job, first)
        if wish is None
        else _planned_beside(workspace, plugins, job, first, wish, limits)
    )
    if decisions is None:
        workspace.rollback(mark)
    return decisions


def _one_by_one_beside(
    workspace: Workspace, plugins: PluginSet, job: Job, first: Mapping[PodKey, PodDecision]
) -> dict[PodKey, PodDecision] | None:
    others = (pod for pod in job.pods if pod.key not in first)
    decisions = {**first, **{pod.key: place_pod(workspace, plugins, pod) for pod in others}}
    enough = all(_placed(job, name, decisions) >= job.least(name) for name in job.members)
    return decisions if enough else None


def _planned_beside(
    workspace: Workspace,
    plugins: PluginSet,
    job: Job,
    first: Mapping[PodKey, PodDecision],
    wish: Wish,
    limits: Limits,
) -> dict[PodKey, PodDecision] | None:
    """Plan the other members as if those who were nominated ran already."""
    others = [pod.key for pod in job.pods if pod.key not in first]
    bound, refused, sure = dict(first), dict[PodKey, PodDecision](), False
    if others:
        mark = workspace.checkpoint()
        found = _plan_of(workspace, plugins, beside(job, first), wish, limits)
        if isinstance(found, Planned) and well_placed(job, *wish, _nodes({**first, **found.bound})):
            bound |= found.bound
            refused |= found.refused
            sure = found.answer.certificate.proven and not found.cut
        else:
            workspace.rollback(mark)
            if isinstance(found, Failed):
                sure = found.certificate is not None and found.certificate.proven
                if found.refused is not None:
                    refused[found.refused.pod] = found.refused
    if len(bound) == len(first) and not well_placed(job, *wish, _nodes(bound)):
        return None
    # Where the budget ran out, or what was planned could not be bound so, there may be one.
    left = f"no place {'is left' if sure else 'was found'} beside the nominated members"
    return bound | {
        key: refused.get(key) or unplaced(workspace, key, left) for key in others if key not in bound
    }
