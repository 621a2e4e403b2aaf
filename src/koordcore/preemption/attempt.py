"""One attempt from the failing pod to the outcome, with the record that upstream keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.model.pods import Pod
from koordcore.model.preemption import NotHelpful, PreemptionDiagnosis, PreemptionPlan
from koordcore.preemption.candidates import Failure
from koordcore.preemption.eligible import ATTEMPTED, attempted_message, check_eligible

__all__ = ["SUCCESS", "Attempt", "attempt_preemption", "nominations_after"]

SUCCESS: Final = "preempt success, alreadyWaitingForBound: %d/%d"
NO_NODES: Final = "no nodes available"
NOT_HELPFUL: Final = "preemption not helpful"


@attrs.frozen(kw_only=True)
class Attempt:
    """What came of it.

    Parameters
    ----------
    code
        ``Success``, ``Unschedulable`` or ``Error``.
    nominated
        Node of the trigger; empty where nothing helps, None where nothing was tried and nominations stay.
    told
        What later pods of the same cycle are told.
    diagnosis
        The record.
    failure
        Details of a planning that failed.
    plan
        Who leaves and where the members go.
    """

    code: str
    nominated: str | None
    told: str
    diagnosis: PreemptionDiagnosis
    failure: Failure | None = None
    plan: PreemptionPlan | None = None


def attempt_preemption(
    trigger: Pod,
    *,
    preemptor: str,
    pending: Sequence[Pod],
    waiting: Sequence[Pod] = (),
    on_node: Mapping[str, Sequence[Pod]],
    statuses: Mapping[str, str],
    earlier: str = "",
    find: Callable[[], PreemptionPlan | NotHelpful],
    explain: Callable[[], Failure],
) -> Attempt:
    """Run the workflow once (``preempt.go``).

    Parameters
    ----------
    trigger
        The member that failed.
    preemptor
        Group id of its job, or its own key.
    pending, waiting
        Members without a node, and members that hold one at Permit.
    on_node
        Pods of every node, in the node's order.
    statuses
        What the filters said about the trigger, by node.
    earlier
        Message of an attempt earlier in the same cycle.
    find
        Plans; called only for an eligible job.
    explain
        Says why nothing helps; called only after a plan was not found.
    """
    key = str(trigger.key)
    if earlier:
        record = PreemptionDiagnosis(trigger=key, reason=ATTEMPTED, message=earlier)
        return Attempt(code="Unschedulable", nominated=None, told=earlier, diagnosis=record)
    eligibility = check_eligible(trigger, pending, on_node, statuses)
    if not eligibility.eligible:
        record = PreemptionDiagnosis(
            trigger=key,
            preemptor=preemptor,
            reason=eligibility.reason,
            message=eligibility.reason,
            terminating=eligibility.terminating,
        )
        return _ended(record, code="Unschedulable", nominated=None)
    if not on_node:
        record = PreemptionDiagnosis(trigger=key, preemptor=preemptor, reason=NO_NODES, message=NO_NODES)
        return _ended(record, code="Error", nominated=None)
    plan = find()
    if isinstance(plan, NotHelpful):
        failure = explain()
        record = PreemptionDiagnosis(
            trigger=key,
            preemptor=preemptor,
            reason=NOT_HELPFUL,
            message=failure.message,
            mode=failure.mode,
            slots=failure.slots,
            unschedulable=failure.unschedulable,
        )
        return attrs.evolve(_ended(record, code="Unschedulable", nominated=""), failure=failure)
    held = {str(pod.key): str(pod.node_name) for pod in waiting}
    record = PreemptionDiagnosis(
        trigger=key,
        preemptor=preemptor,
        reason=SUCCESS,
        message=SUCCESS % (len(waiting), len(pending) + len(waiting)),
        nominations=immutabledict({**plan.nominations, **held}),
        mode="Job" if plan.layer else "Pod",
        victims=plan.victims,
    )
    node = plan.nominations.get(key, "")
    return attrs.evolve(_ended(record, code="Success", nominated=node), plan=plan)


def _ended(record: PreemptionDiagnosis, *, code: str, nominated: str | None) -> Attempt:
    told = attempted_message(record.trigger, record.message)
    return Attempt(code=code, nominated=nominated, told=told, diagnosis=record)


def nominations_after(
    attempt: Attempt,
    *,
    members: Sequence[Pod],
    nominated: Sequence[Pod],
    trigger: Pod,
) -> dict[str, str]:
    """Give who is nominated where once the attempt is over.

    A success nominates the whole job and clears less important pods of others from the nodes that lose pods;
    a failure clears the job's; where nothing was tried nothing changes.

    Parameters
    ----------
    members
        Pods of the job, those that wait at Permit included.
    nominated
        Pods of others with a nominated node.
    """
    others = {str(pod.key): str(pod.nominated_node) for pod in nominated if pod.nominated_node}
    own = {str(pod.key): str(pod.nominated_node) for pod in members if pod.nominated_node}
    if attempt.nominated is None:
        return {**others, **own}
    if attempt.plan is None:
        return others
    losing = {victim.node for victim in attempt.plan.victims}
    for pod in nominated:
        if pod.nominated_node in losing and pod.priority < trigger.priority:
            others.pop(str(pod.key), None)
    return {**others, **attempt.diagnosis.nominations}
