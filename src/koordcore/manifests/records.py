"""Decisions as plain JSON, and back: for programs, for files, for a later check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from koordcore.errors import ManifestError
from koordcore.manifests.admitted_records import admitted_from_records, admitted_record
from koordcore.manifests.held_claims import held_claim_from_record, held_claim_record
from koordcore.manifests.preemption_records import (
    pod_key_from_record,
    preemption_from_record,
    preemption_record,
    victim_from_record,
    victim_record,
)
from koordcore.manifests.proof_records import certificate_from_record, claim_record
from koordcore.model.decisions import (
    Bound,
    JobPlan,
    JointPlan,
    NearMiss,
    Nominated,
    NotOurs,
    PodDecision,
    Rejection,
    Shortfall,
    Unschedulable,
    Waiting,
)
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_mapping,
    as_str,
    as_str_mapping,
    list_of,
    optional,
    required,
)
from koordcore.protocol.holdings import without
from koordcore.protocol.reservation import RESERVATION_ALLOCATED, format_allocated_reservation
from koordcore.protocol.reservation_status import made_available, made_nominated, with_decided_users
from koordcore.result import ScheduleResult, with_victims_leaving
from koordcore.result.networks import network_used
from koordcore.snapshot import ClusterSnapshot, PodEnded
from koordcore.snapshot.admitted_workloads import with_admitted
from koordcore.snapshot.claim_records import with_claims
from koordcore.snapshot.cluster import bind

FORMAT: Final = "koordcore/plan/v1"


def result_record(result: ScheduleResult) -> dict[str, Any]:
    """Write a result as JSON values, in the order of its decisions.

    A decision about the pod that stands for a reservation says so: ``standsFor`` is no pod's to be bound.
    """
    held = (one for one in result.snapshot.of(Reservation) if result.snapshot.pod(one.pod_key) is None)
    stands = {one.pod_key: {"standsFor": f"reservation/{one.name}"} for one in held}
    seldom = {
        "network": network_used(result),
        "together": [joint_record(one) for one in result.together],
        "preemptions": [preemption_record(one) for one in result.preemptions],
        "withdrawn": [str(pod) for pod in result.withdrawn],
        "workloads": [admitted_record(one) for one in result.admitted],
    }
    return {
        "format": FORMAT,
        "policy": result.policy.name,
        "decisions": [decision_record(one) | stands.get(one.pod, {}) for one in result.decisions],
        "jobs": [job_record(one) for one in result.jobs],
        **{name: value for name, value in seldom.items() if value},
        **_left_out(result),
        "stats": dict(result.stats),
    }


def _left_out(result: ScheduleResult) -> dict[str, Any]:
    """Write what no decision looked at; it follows from the rest, so it is not read back."""
    found = [{"what": one.what, "count": one.count, "why": one.why} for one in result.not_looked_at]
    return {"notLookedAt": found} if found else {}


def job_record(plan: JobPlan) -> dict[str, Any]:
    """Write the plan of a gang group as JSON values; what is empty is left out."""
    record: dict[str, Any] = {
        "job": plan.job,
        "members": plan.members,
        "placed": plan.placed,
        "atLeast": plan.least,
    }
    if plan.certificate is not None:
        record["certificate"] = claim_record(plan.certificate)
    extras = {
        "held": plan.held,
        "domains": dict(plan.domains),
        "message": plan.message,
        "detail": plan.detail,
        "malformed": plan.malformed,
    }
    return record | {key: value for key, value in extras.items() if value}


def joint_record(plan: JointPlan) -> dict[str, Any]:
    """Write the plan of a run of gang groups as JSON values."""
    return {
        "jobs": list(plan.jobs),
        "started": list(plan.started),
        "oneByOne": plan.one_by_one,
        "certificate": claim_record(plan.certificate),
    }


def _joint(value: Json) -> JointPlan:
    raw = as_mapping(value)
    return JointPlan(
        jobs=required(raw, "jobs", list_of(as_str)),
        started=required(raw, "started", list_of(as_str)),
        one_by_one=required(raw, "oneByOne", as_int),
        certificate=required(raw, "certificate", certificate_from_record),
    )


def _job(value: Json) -> JobPlan:
    raw = as_mapping(value)
    return JobPlan(
        job=required(raw, "job", as_str),
        members=required(raw, "members", as_int),
        placed=optional(raw, "placed", as_int, 0),
        held=optional(raw, "held", as_int, 0),
        least=optional(raw, "atLeast", as_int, 0),
        domains=optional(raw, "domains", _counts, {}),
        certificate=optional(raw, "certificate", certificate_from_record, None),
        message=optional(raw, "message", as_str, ""),
        detail=optional(raw, "detail", as_str, ""),
        malformed=optional(raw, "malformed", as_bool, False),
    )


def decision_record(decision: PodDecision) -> dict[str, Any]:
    """Write one decision as JSON values; what is empty is left out."""
    record: dict[str, Any] = {"pod": str(decision.pod), "decision": type(decision).__name__}
    match decision:
        case Bound():
            record |= {"node": decision.node, "score": decision.score, "feasible": decision.feasible}
            extras = {
                "annotations": dict(sorted(decision.annotations.items())),
                "labels": dict(sorted(decision.labels.items())),
                "reservation": decision.reservation,
                "notes": list(decision.notes),
                "over": [str(pod) for pod in decision.over],
                "dropped": list(decision.dropped),
                "claims": [held_claim_record(one) for one in decision.claims],
            }
            record |= {key: value for key, value in extras.items() if value}
        case Waiting():
            record["reason"] = decision.reason
            if decision.held is not None:
                record["held"] = decision_record(decision.held)
        case Nominated():
            record["node"] = decision.node
            record["victims"] = [victim_record(one) for one in decision.victims]
        case Unschedulable():
            record |= {"message": decision.message, "nodes": decision.nodes}
            if decision.refusal:
                record["refusal"] = decision.refusal
            record["rejections"] = [
                {
                    "plugin": one.plugin,
                    "reason": one.reason,
                    "nodes": one.nodes,
                    "resolvable": one.resolvable,
                }
                for one in decision.rejections
            ]
            if decision.nearest is not None:
                record["nearest"] = _near_miss_record(decision.nearest)
        case NotOurs():
            record["schedulerName"] = decision.scheduler_name
    return record


def _shortfall_record(one: Shortfall) -> dict[str, Any]:
    """Write a shortfall; amounts only where the reason is about amounts."""
    amounts = {"resource": one.resource, "requested": one.requested, "available": one.available}
    given = amounts if one.resource or one.requested else {}
    return {"reason": one.reason, **given, "resolvable": one.resolvable}


def _near_miss_record(nearest: NearMiss) -> dict[str, Any]:
    return {
        "node": nearest.node,
        "plugin": nearest.plugin,
        "shortfalls": [_shortfall_record(one) for one in nearest.shortfalls],
        **({"remarks": list(nearest.remarks)} if nearest.remarks else {}),
    }


def result_from_record(
    snapshot: ClusterSnapshot, record: Json, *, policy: Policy = Policy()
) -> ScheduleResult:
    """Read a result back, as a plan for a snapshot.

    Decisions that the snapshot cannot carry out (about an unknown pod or node, or a bound pod) stay decisions
    and change no snapshot; :func:`koordcore.verify` names them.

    Parameters
    ----------
    snapshot
        The cluster that the plan is for.
    record
        The plan as JSON.
    policy
        Of whoever made it.

    Raises
    ------
    ManifestError
        When the record is not of this format, with the path.
    """
    raw = as_mapping(record)
    if required(raw, "format", as_str) != FORMAT:
        raise ManifestError.at("format", f'expected "{FORMAT}"')
    decisions = required(raw, "decisions", list_of(decision_from_record))
    admitted = optional(raw, "workloads", admitted_from_records, ())
    snapshot = with_admitted(snapshot, admitted, decisions)
    pending = {pod.key: pod for pod in snapshot.pending}
    nodes = {state.name for state in snapshot.nodes}
    reservations = {one.pod_key: one for one in snapshot.of(Reservation) if one.pending}
    placed = {}
    held = []
    owners: list[Pod] = []
    for one in decisions:
        taken = one.held if isinstance(one, Waiting) else one
        if isinstance(taken, Bound) and taken.pod in pending and taken.node in nodes:
            placed[taken.pod] = bind(pending[taken.pod], taken)
        elif isinstance(taken, Bound) and taken.pod in reservations and taken.node in nodes:
            waiting = reservations[taken.pod]
            kept = without(waiting.annotations, taken.dropped)
            written = attrs.evolve(waiting, annotations={**kept, **taken.annotations})
            held.append(made_available(written, taken.node, None))
            text = format_allocated_reservation(waiting.name, waiting.uid)
            there = (pod for key in taken.over if (pod := snapshot.pod(key)) is not None)
            owners += [pod.at(pod.node_name, annotations={RESERVATION_ALLOCATED: text}) for pod in there]
        elif isinstance(one, Nominated) and one.pod in reservations:
            held.append(made_nominated(reservations[one.pod], one.node))
    after = snapshot.with_records(*held) if held else snapshot
    running = [pod for pod in owners if pod.node_name is not None]
    after = after.apply(*(PodEnded(pod.key) for pod in running)).assume(*placed.values(), *running)
    after, plans = (
        with_claims(after, decisions),
        optional(raw, "preemptions", list_of(preemption_from_record), ()),
    )
    used = with_decided_users(after.of(Reservation), decisions, lambda name: after.node(name).pods, None)
    return ScheduleResult(
        decisions=decisions,
        snapshot=with_victims_leaving(after.with_records(*used) if used else after, plans),
        jobs=optional(raw, "jobs", list_of(_job), ()),
        together=optional(raw, "together", list_of(_joint), ()),
        preemptions=plans,
        withdrawn=optional(raw, "withdrawn", list_of(pod_key_from_record), ()),
        admitted=admitted,
        policy=policy,
        stats=optional(raw, "stats", _counts, {}),
    )


def _counts(value: Json) -> dict[str, int]:
    raw = as_mapping(value)
    return {name: required(raw, name, as_int) for name in raw}


def decision_from_record(value: Json) -> PodDecision:
    """Read one decision back.

    Raises
    ------
    ManifestError
        When it is not of the form that :func:`decision_record` writes.
    """
    raw = as_mapping(value)
    pod = required(raw, "pod", pod_key_from_record)
    kind = required(raw, "decision", as_str)
    if kind not in _READERS:
        raise ManifestError.at("decision", f'expected one of {", ".join(_READERS)}, got "{kind}"')
    return _READERS[kind](pod, raw)


def _bound(pod: PodKey, raw: Mapping[str, Json]) -> Bound:
    return Bound(
        pod=pod,
        node=required(raw, "node", as_str),
        score=optional(raw, "score", as_int, 0),
        feasible=optional(raw, "feasible", as_int, 0),
        annotations=optional(raw, "annotations", as_str_mapping, {}),
        labels=optional(raw, "labels", as_str_mapping, {}),
        reservation=optional(raw, "reservation", as_str, ""),
        notes=optional(raw, "notes", list_of(as_str), ()),
        over=optional(raw, "over", list_of(pod_key_from_record), ()),
        dropped=optional(raw, "dropped", list_of(as_str), ()),
        claims=optional(raw, "claims", list_of(held_claim_from_record), ()),
    )


def _waiting(pod: PodKey, raw: Mapping[str, Json]) -> Waiting:
    held = optional(raw, "held", lambda value: _bound(pod, as_mapping(value)), None)
    return Waiting(pod=pod, reason=optional(raw, "reason", as_str, ""), held=held)


def _nominated(pod: PodKey, raw: Mapping[str, Json]) -> Nominated:
    return Nominated(
        pod=pod,
        node=required(raw, "node", as_str),
        victims=optional(raw, "victims", list_of(victim_from_record), ()),
    )


def _rejection(value: Json) -> Rejection:
    raw = as_mapping(value)
    return Rejection(
        required(raw, "plugin", as_str),
        required(raw, "reason", as_str),
        required(raw, "nodes", as_int),
        optional(raw, "resolvable", as_bool, True),
    )


def _shortfall(value: Json) -> Shortfall:
    raw = as_mapping(value)
    return Shortfall(
        required(raw, "reason", as_str),
        optional(raw, "resource", as_str, ""),
        optional(raw, "requested", as_int, 0),
        optional(raw, "available", as_int, 0),
        optional(raw, "resolvable", as_bool, True),
    )


def _near_miss(value: Json) -> NearMiss:
    raw = as_mapping(value)
    return NearMiss(
        required(raw, "node", as_str),
        required(raw, "plugin", as_str),
        optional(raw, "shortfalls", list_of(_shortfall), ()),
        optional(raw, "remarks", list_of(as_str), ()),
    )


def _unschedulable(pod: PodKey, raw: Mapping[str, Json]) -> Unschedulable:
    return Unschedulable(
        pod=pod,
        nodes=optional(raw, "nodes", as_int, 0),
        rejections=optional(raw, "rejections", list_of(_rejection), ()),
        nearest=optional(raw, "nearest", _near_miss, None),
        refusal=optional(raw, "refusal", as_str, ""),
    )


_READERS: Final[Mapping[str, Callable[[PodKey, Mapping[str, Json]], PodDecision]]] = {
    "Bound": _bound,
    "Waiting": _waiting,
    "Nominated": _nominated,
    "Unschedulable": _unschedulable,
    "NotOurs": lambda pod, raw: NotOurs(pod=pod, scheduler_name=required(raw, "schedulerName", as_str)),
}
