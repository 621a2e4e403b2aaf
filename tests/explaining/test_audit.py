"""Who waits and since when; what the auditor of workloads alerts on."""

from __future__ import annotations

import pytest

from koordcore.explaining.audit import (
    Audit,
    AuditRule,
    WorkloadEvent,
    audit_workloads,
    reason_histogram,
)
from koordcore.model.decisions import Bound, Nominated, PodDecision, Rejection, Unschedulable, Waiting
from koordcore.model.durations import SECOND
from koordcore.model.pods import PodKey

A, B = PodKey("default", "a"), PodKey("default", "b")
FULL = Unschedulable(pod=A, nodes=3, rejections=(Rejection("NodeResourcesFit", "Insufficient cpu", 3),))


def test_a_pod_waits_since_its_first_failure_until_it_is_bound() -> None:
    gated = Waiting(pod=A, reason="gated")
    audit = Audit().record([gated], 1 * SECOND).record([gated], 2 * SECOND).record([FULL], 5 * SECOND)
    (one,) = audit.waiting()
    assert (one.since, one.changed, one.last, one.attempts) == (1 * SECOND, 5 * SECOND, 5 * SECOND, 3)
    assert one.reason == "0/3 nodes are available: 3 Insufficient cpu."
    assert one.to_json()["since"] == "1970-01-01T00:00:01Z"
    assert audit.record([Bound(pod=A, node="n")], 6 * SECOND).waiting() == ()
    assert audit.waiting() == (one,)


def test_the_longest_wait_comes_first() -> None:
    audit = Audit().record([Waiting(pod=B, reason="x")], 1).record([FULL, Waiting(pod=B, reason="x")], 2)
    assert [str(one.pod) for one in audit.waiting()] == ["default/b", "default/a"]


def test_reasons_are_counted_by_pods() -> None:
    twice = Unschedulable(
        pod=B,
        nodes=2,
        rejections=(
            Rejection("X", "Insufficient cpu", 1),
            Rejection("X", "Insufficient cpu", 1, resolvable=False),
        ),
    )
    decisions: list[PodDecision] = [
        FULL,
        twice,
        Bound(pod=A, node="n"),
        Unschedulable(pod=A, nodes=2, refusal="no quota"),
        Nominated(pod=B, node="n"),
    ]
    assert reason_histogram(decisions) == (
        ("Insufficient cpu", 2),
        ("no quota", 1),
        ("waits for victims to leave n", 1),
    )


def alerts(*events: tuple[int, str] | tuple[int, str, int]) -> list[tuple[AuditRule, int]]:
    stream = [
        WorkloadEvent(time=one[0] * SECOND, workload="w", type=one[1], attempt=one[2] if len(one) == 3 else 0)
        for one in events
    ]
    return [(one.rule, one.time // SECOND) for one in audit_workloads(stream).anomalies]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [(0, "preemptNominated"), (1, "preemptFailure"), (2, "scheduleFailure")],
            [("preemptionInvalidated", 1)],
        ),
        (
            [(0, "preemptNominated"), (1, "victimAllDeleted"), (2, "preemptNominated")],
            [("preemptionInvalidated", 2), ("repeatedPreemption", 2)],
        ),
        ([(0, "victimAllDeleted"), (10, "scheduled")], []),
        ([(0, "victimAllDeleted"), (11, "scheduled")], [("victimRescheduleLatency", 11)]),
        ([(0, "victimAllDeleted"), (1, "gatedByQueueAdmission"), (20, "scheduled")], []),
        ([(0, "preemptNominated"), (31, "victimAllDeleted")], [("preemptionCycle", 31)]),
        (
            [(0, "preemptNominated"), *[(1, "preemptVictimDeleting")] * 4, (2, "victimAllDeleted")],
            [("preemptionCycle", 2)],
        ),
        ([(0, "create"), (301, "scheduled")], [("eventInterval", 301)]),
        ([(0, "create"), (1, "gatedByQueueAdmission"), (400, "admissionPassed"), (401, "scheduled")], []),
        ([(0, "create"), (250, "victimAllDeleted"), (400, "deleted")], [("eventInterval", 400)]),
    ],
)
def test_alerts(events: list[tuple[int, str]], expected: list[tuple[str, int]]) -> None:
    assert alerts(*events) == expected


def test_a_failure_counts_once_per_attempt_and_the_end_gives_the_counts() -> None:
    stream = [
        WorkloadEvent(time=time, workload="w", type=kind, attempt=attempt)
        for time, kind, attempt in (
            (0, "create", 0),
            (1, "scheduleFailure", 1),
            (2, "scheduleFailure", 1),
            (3, "scheduleFailure", 2),
            (4, "scheduled", 0),
        )
    ]
    assert audit_workloads(stream).finished == {"w": {"create": 1, "scheduleFailure": 2, "scheduled": 1}}
