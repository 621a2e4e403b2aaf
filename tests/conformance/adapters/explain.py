"""Subject ``explain.diagnosis``: records, tables and texts about failed attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from koordcore.explaining.diagnosis import (
    Diagnosis,
    NodeStatus,
    PreemptionDiagnosis,
    ScheduleDiagnosis,
    Suggestion,
    group_failures,
    offered_slots,
)
from koordcore.explaining.reservation_events import ReservationCounts, reservation_event, reservation_reasons
from koordcore.protocol.times import parse_timestamp
from tests.conformance.core import Case, subject
from tests.reference.score_table import NodeScore, render_score_table


def statuses(raw: Mapping[str, Any]) -> dict[str, NodeStatus]:
    return {
        node: NodeStatus(one["code"], one.get("plugin", ""), tuple(one.get("reasons") or ()))
        for node, one in raw.items()
    }


def dump(given: Mapping[str, Any]) -> Any:
    known = given["record"]
    waiting = given.get("waitingPodNodes") or ()
    message = known.get("preFilterMessage", "")
    record = Diagnosis(
        timestamp=parse_timestamp(given["timestamp"]),
        questioned_key=known["questionedKey"],
        nominated_node=known.get("nominatedNode", ""),
        pre_filter_message=message,
        topology_key_to_explain=known.get("topologyKeyToExplain", ""),
        is_root_cause_pod=known.get("isRootCausePod", True),
        schedule=ScheduleDiagnosis(
            already_wait_for_bound=len(waiting),
            node_offer_slot=offered_slots(waiting if given["mode"] == "Pod" else ()),
            node_failed_details=() if message else group_failures(statuses(given.get("statuses") or {})),
        ),
    )
    if given.get("hasPreemption"):
        details = group_failures(statuses(given.get("dryRunStatuses") or {}))
        dry_run = ScheduleDiagnosis(node_failed_details=details)
        record = attrs.evolve(record, preemption=PreemptionDiagnosis(dry_run=dry_run))
    accepted = []
    for one in given.get("suggestions") or ():
        accepted.append(record.suggestion is None)  # the first one stays
        record = attrs.evolve(record, suggestion=record.suggestion or Suggestion(one["type"], one["message"]))
    answer: dict[str, Any] = {"record": record.to_json()}
    if accepted:
        answer["suggestionAccepted"] = accepted
    return answer


def score_table(given: Mapping[str, Any]) -> Any:
    scores = [
        NodeScore(one["node"], one["total"], tuple((part["name"], part["score"]) for part in one["scores"]))
        for one in given["scores"]
    ]
    table = render_score_table(f"default/{given['pod']}", scores, given["topN"])
    return {"table": table} if table else {"empty": True}


def event(given: Mapping[str, Any]) -> Any:
    message = reservation_event(given["message"])
    return {"isReservation": False} if message is None else {"isReservation": True, "message": message}


def post_filter_reasons(given: Mapping[str, Any]) -> Any:
    counts = {
        node: ReservationCounts(
            owner_matched=one.get("ownerMatched", 0),
            name_matched=one.get("nameMatched", 0),
            name_unmatched=one.get("nameUnmatched", 0),
            affinity_unmatched=one.get("affinityUnmatched", 0),
            is_unschedulable_unmatched=one.get("isUnschedulableUnmatched", 0),
            not_exact_matched=one.get("notExactMatched", 0),
            taints_unmatched=one.get("taintsUnmatched") or {},
            node_reasons=tuple(one.get("nodeReasons") or ()),
        )
        for node, one in given["nodes"].items()
    }
    return {"reasons": list(reservation_reasons(counts, has_affinity=given["hasAffinity"]))}


OPERATIONS = {
    "dump": dump,
    "scoreTable": score_table,
    "event": event,
    "postFilterReasons": post_filter_reasons,
}


@subject("explain.diagnosis")
def diagnosis(case: Case) -> Any:
    return OPERATIONS[case.input["op"]](case.input)
