"""One attempt from the failing pod to the outcome, with the record that upstream keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore.model.decisions import Victim
from koordcore.model.mappings import EMPTY, frozen_texts
from koordcore.model.pods import Pod
from koordcore.model.preemption import NotHelpful, PreemptionPlan
from koordcore.preemption.eligible import check_eligible
from tests.reference.preemption_refusals import Failure

__all__ = [
    "SUCCESS",
    "Attempt",
    "PreemptionDiagnosis",
    "attempt_preemption",
    "format_diagnosis",
    "nominations_after",
]

SUCCESS: Final = "preempt success, alreadyWaitingForBound: %d/%d"
NO_NODES: Final = "no nodes available"
NOT_HELPFUL: Final = "preemption not helpful"


ATTEMPTED: Final = "preemption already attempted by %s with message %s"


@attrs.frozen(kw_only=True)
class PreemptionDiagnosis:
    """The record that upstream keeps of one attempt (``PreemptionDiagnosis``).

    Parameters
    ----------
    trigger, preemptor
        Key of the failing pod; group id or pod key of the job.
    reason, message
        Outcome; the reason of a success is upstream's unformatted template.
    terminating
        Victims of an earlier attempt that still hold a nominated node: pod key to node.
    nominations
        Pod key to node.
    mode
        ``Pod`` or ``Job``; empty when nothing was planned.
    slots
        Offer slots per node where a planned placement failed; None otherwise.
    unschedulable
        Pods without a place.
    victims
        Who leaves.
    """

    trigger: str
    preemptor: str = ""
    reason: str = ""
    message: str = ""
    terminating: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    nominations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    mode: str = ""
    slots: immutabledict[str, int] | None = None
    unschedulable: tuple[str, ...] = ()
    victims: tuple[Victim, ...] = ()


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
    told = ATTEMPTED % (record.trigger, record.message)
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


def format_diagnosis(diagnosis: PreemptionDiagnosis, uids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Write the record as upstream does; lower-case fields that are zero or empty are left out.

    Parameters
    ----------
    uids
        Uid of every victim, by ``namespace/name``.
    """
    slots = diagnosis.slots
    record: dict[str, Any] = {
        "TriggerPodKey": diagnosis.trigger,
        "preemptorKey": diagnosis.preemptor,
        "reason": diagnosis.reason,
        "message": diagnosis.message,
        "terminatingPodOnNominatedNode": dict(diagnosis.terminating),
        "podToNominatedNode": dict(diagnosis.nominations),
        "SchedulingMode": diagnosis.mode,
        "NodeToOfferSlot": None if slots is None else dict(slots),
        "unschedulablePodsNumber": len(diagnosis.unschedulable),
        "victims": _victims(diagnosis, uids or {}),
    }
    return {key: value for key, value in record.items() if value or key[0].isupper()}


def _victims(diagnosis: PreemptionDiagnosis, uids: Mapping[str, str]) -> list[dict[str, Any]]:
    by_node: dict[str, list[dict[str, str]]] = {}
    for victim in sorted(diagnosis.victims, key=lambda one: (one.node, one.pod)):
        pod = {"namespace": victim.pod.namespace, "name": victim.pod.name}
        uid = uids.get(str(victim.pod), "")
        by_node.setdefault(victim.node, []).append({**pod, "uid": uid} if uid else pod)
    return [{"nodeName": node, "possibleVictims": pods} for node, pods in by_node.items()]
