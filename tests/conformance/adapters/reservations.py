"""Reservations: matching, filter, nomination, life cycle and pre-allocation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from koordcore.errors import ManifestError
from koordcore.manifests.encode import format_time
from koordcore.manifests.pods import pod_from_manifest
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.pods import PodPhase
from koordcore.model.reservations import Reservation, ReservationCondition
from koordcore.reservations.lifecycle import (
    collected,
    made_available,
    made_expired,
    made_succeeded,
    made_unschedulable,
    needs_expiration,
    next_sync,
    synced,
)
from koordcore.reservations.state import reservation_state, reserve_pod
from tests.conformance.core import Case, Missing, subject


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", (), [])}


def _condition(one: ReservationCondition) -> dict[str, Any]:
    return _given(
        {
            "type": one.kind,
            "status": str(one.status),
            "reason": one.reason,
            "message": one.message,
            "lastProbeTime": one.probed and format_time(one.probed),
            "lastTransitionTime": one.changed and format_time(one.changed),
        }
    )


def _status(one: Reservation) -> dict[str, Any]:
    status = one.status
    return {
        "phase": str(status.phase),
        **_given(
            {
                "nodeName": status.node_name,
                "allocatable": None if status.allocatable is None else dict(status.allocatable),
                "allocated": None if status.allocated is None else dict(status.allocated),
                "currentOwners": [
                    _given({"namespace": owner.namespace, "name": owner.name, "uid": owner.uid})
                    for owner in status.current_owners
                ],
                "conditions": [_condition(condition) for condition in status.conditions],
            }
        ),
    }


def _now(given: Any) -> datetime:
    return datetime.fromisoformat(given["now"])


def _reservation(given: Any) -> Reservation:
    return reservation_from_manifest(given["reservation"])


def _sync(given: Any) -> Any:
    before, now = _reservation(given), _now(given)
    after = synced(before, now, given["nodes"], [pod_from_manifest(pod) for pod in given["pods"]])
    return {
        "changed": after is not before,
        "status": _status(after),
        "requeueAfterSeconds": next_sync(after, now) // 10**9,
        "needExpiration": needs_expiration(before, now),
    }


def _gc(given: Any) -> Any:
    keep = timedelta(seconds=given["gcDurationSeconds"])
    listed = [reservation_from_manifest(raw) for raw in given["reservations"]]
    gone = [one.name for one in listed if collected(one, _now(given), given["nodes"], keep=keep)]
    return {"deleted": sorted(gone)}


def _set_available(given: Any) -> Any:
    try:
        return {"status": _status(made_available(_reservation(given), given["node"], _now(given)))}
    except ManifestError:
        return {"error": True}


def _predicates(given: Any) -> Any:
    one = _reservation(given)
    return {
        "active": one.active,
        "available": one.available,
        "succeeded": one.succeeded,
        "failed": one.failed,
        "expired": one.expired,
        "valid": not one.problem,
        **_given({"message": one.problem}),
    }


def _reserve_pod(given: Any) -> Any:
    pod = reserve_pod(_reservation(given))
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": dict(pod.labels),
        "annotations": dict(pod.annotations),
        "nodeName": pod.node_name or "",
        "schedulerName": pod.scheduler_name,
        "priority": pod.priority,
        "phase": "" if pod.phase is PodPhase.PENDING else str(pod.phase),
        "requests": dict(pod.requests),
        **_given({"containers": [one.name for one in pod.containers]}),
    }


def _info(given: Any) -> Any:
    one = _reservation(given)
    state = reservation_state(one, [pod_from_manifest(pod) for pod in given["pods"]])
    cpu, memory = state.scored
    shown = {
        "allocatable": dict(state.allocatable),
        "resourceNames": list(state.names),
        "available": {"cpu": 0, "memory": 0, **state.available},
        "non0MilliCPU": cpu,
        "non0Memory": memory,
        "assigned": len(state.assigned),
        "matchable": state.matchable,
        "unschedulable": one.admits_nobody,
        "parseError": state.unreadable,
    }
    if state.reserved:
        shown["reserved"] = dict(state.reserved)
    if state.assigned:
        shown["allocated"] = dict(state.allocated)
    return shown


_OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "sync": _sync,
    "gc": _gc,
    "setAvailable": _set_available,
    "setUnschedulable": lambda given: {
        "status": _status(made_unschedulable(_reservation(given), given["message"], _now(given)))
    },
    "setExpired": lambda given: {"status": _status(made_expired(_reservation(given), _now(given)))},
    "setSucceeded": lambda given: {"status": _status(made_succeeded(_reservation(given), _now(given)))},
    "predicates": _predicates,
    "reservePod": _reserve_pod,
    "info": _info,
}


@subject("reservation.lifecycle")
def lifecycle(case: Case) -> Any:
    operation = _OPERATIONS.get(case.input["op"])
    if operation is None:
        raise Missing(f"no operation {case.input['op']}")
    return operation(case.input)
