"""What becomes of Kubernetes' own groups in a call, as conditions of their objects.

As the stock scheduler writes them: on PodGroups only, never back to False once True, and nothing for a group
that waits outside the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    GroupCondition,
    SchedulingPodGroup,
    leaf_id,
)
from koordcore.result import ScheduleResult

SCHEDULED: Final = "PodGroupInitiallyScheduled"
SCHEDULER_ERROR: Final = "SchedulerError"
SCHEDULED_V1ALPHA2: Final = "PodGroupScheduled"
V1ALPHA2: Final = "scheduling.k8s.io/v1alpha2"


def group_conditions(result: ScheduleResult) -> Iterator[tuple[SchedulingPodGroup, GroupCondition]]:
    """Give the conditions that a call leaves on PodGroups, by name; unchanged ones are left out.

    Parameters
    ----------
    result
        What :func:`koordcore.schedule` decided.
    """
    groups = result.snapshot.of(SchedulingPodGroup)
    if not groups:
        return
    above = {one.id: one for one in result.snapshot.of(CompositePodGroup)}
    decided: dict[str, list[PodDecision]] = {}
    for decision in result.decisions:
        pod = result.snapshot.pod(decision.pod)
        if pod is not None and pod.scheduling_group is not None:
            decided.setdefault(leaf_id(pod), []).append(decision)
    plans = {plan.job: plan for plan in result.jobs}
    victims = {plan.job: len(plan.victims) for plan in result.preemptions}
    for group in groups:
        plan = plans.get(_root_of(group, above))
        kind = SCHEDULED_V1ALPHA2 if group.api_version == V1ALPHA2 else SCHEDULED
        before = next((one for one in group.conditions if one.type == kind), None)
        condition = GroupCondition(
            type=kind, status="True", reason="Scheduled", observed_generation=group.generation
        )
        found = decided.get(group.id, ())
        if not any(isinstance(one, Bound) for one in found):
            failed = [one for one in found if isinstance(one, Unschedulable | Nominated)]
            if not failed or plan is None or (before is not None and before.status == "True"):
                continue
            text = plan.message
            if plan.job in victims:
                number = victims[plan.job]
                more = f"found a placement for podgroup, preempting {number} victims"
                text = f"{text}, pod group preemption: {more}" if text else f"pod group preemption: {more}"
            reason = SCHEDULER_ERROR if plan.malformed else "Unschedulable"
            condition = attrs.evolve(condition, status="False", reason=reason, message=text)
        if condition != before:
            yield group, condition


def malformed_members(result: ScheduleResult) -> Mapping[PodKey, str]:
    """Give the texts for pods whose group is refused for what it says, not for want of room."""
    texts = {plan.job: plan.message for plan in result.jobs if plan.malformed}
    if not texts:
        return {}
    groups = {one.id: one for one in result.snapshot.of(SchedulingPodGroup)}
    above = {one.id: one for one in result.snapshot.of(CompositePodGroup)}
    found: dict[PodKey, str] = {}
    for decision in result.decisions:
        pod = result.snapshot.pod(decision.pod)
        if pod is None or pod.scheduling_group is None or not isinstance(decision, Unschedulable):
            continue
        leaf = leaf_id(pod)
        root = _root_of(groups[leaf], above) if leaf in groups else leaf
        if root in texts:
            found[decision.pod] = texts[root]
    return found


def _root_of(group: SchedulingPodGroup, above: Mapping[str, CompositePodGroup]) -> str:
    """Give the id of the topmost group that exists: what the plan is called."""
    path = [group.id]
    parent = above.get(group.parent_id)
    while parent is not None and parent.id not in path:
        path.append(parent.id)
        parent = above.get(parent.parent_id)
    return path[-1]
