"""Audits of a stream: who waits, why and since when; and what goes wrong with workloads that preempt.

:class:`Audit` follows the decisions of successive calls. :func:`audit_workloads` reads a stream of events as
upstream's workload auditor does and gives its alerts and observations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import PodKey
from koordcore.protocol.times import format_timestamp

# -- decisions -------------------------------------------------------------------------------------------


def reason_of(decision: PodDecision) -> str:
    """Give the text that says why a pod has no node yet; empty where it has one."""
    match decision:
        case Bound():
            return ""
        case Nominated(node=node):
            return f"waits for victims to leave {node}"
        case Waiting(reason=reason):
            return reason
        case Unschedulable():
            return decision.message
        case NotOurs(scheduler_name=name):
            return f"waits for the scheduler {name}"


def reason_histogram(decisions: Iterable[PodDecision]) -> tuple[tuple[str, int], ...]:
    """Count the pods that each reason keeps waiting, most first, as events show them.

    A pod that nodes refuse for several reasons counts for each of them once.
    """
    found: Counter[str] = Counter()
    for one in decisions:
        if isinstance(one, Unschedulable) and one.rejections:
            found.update({rejection.reason for rejection in one.rejections})
        elif reason_of(one):
            found[one.refusal if isinstance(one, Unschedulable) and one.refusal else reason_of(one)] += 1
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


@record(kw_only=True)
class WaitRecord:
    """One pod that waits.

    Parameters
    ----------
    since, changed, last
        Moments in nanoseconds: of the first failed decision, of the present reason, of the last decision.
    attempts
        Failed decisions so far.
    reason
        The present one.
    """

    pod: PodKey
    since: int
    changed: int
    last: int
    attempts: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Give the record for programs."""
        return {
            "pod": str(self.pod),
            "since": format_timestamp(self.since),
            "reasonSince": format_timestamp(self.changed),
            "last": format_timestamp(self.last),
            "attempts": self.attempts,
            "reason": self.reason,
        }


@record
class Audit:
    """Who waits after a number of calls; a value, each :meth:`record` gives a new one."""

    records: immutabledict[PodKey, WaitRecord] = EMPTY

    def record(self, decisions: Iterable[PodDecision], now: int) -> Audit:
        """Take note of the decisions of one call.

        Parameters
        ----------
        decisions
            In any order; a pod that got a node leaves the audit.
        now
            Moment of the call, in nanoseconds.
        """
        records = dict(self.records)
        for one in decisions:
            reason = reason_of(one)
            before = records.pop(one.pod, None)
            if not reason:
                continue
            if before is None:
                records[one.pod] = WaitRecord(
                    pod=one.pod, since=now, changed=now, last=now, attempts=1, reason=reason
                )
            else:
                records[one.pod] = attrs.evolve(
                    before,
                    last=now,
                    attempts=before.attempts + 1,
                    reason=reason,
                    changed=before.changed if before.reason == reason else now,
                )
        return Audit(immutabledict(records))

    def waiting(self) -> tuple[WaitRecord, ...]:
        """List who waits, longest first, then by key."""
        return tuple(sorted(self.records.values(), key=lambda one: (one.since, one.pod)))


# -- workloads -------------------------------------------------------------------------------------------


class RecordType(StrEnum):
    """What can happen to a workload."""

    GATED_BY_QUEUE_ADMISSION = "gatedByQueueAdmission"
    ADMISSION_PASSED = "admissionPassed"
    CREATE = "create"
    SCHEDULED = "scheduled"
    DELETED = "deleted"
    PREEMPT_NOMINATED = "preemptNominated"
    PREEMPT_VICTIM_DELETING = "preemptVictimDeleting"
    PREEMPT_FAILURE = "preemptFailure"
    SCHEDULE_FAILURE = "scheduleFailure"
    GANG_ALL_PODS_ALREADY_ATTEMPTED = "gangAllPodsAlreadyAttempted"
    VICTIM_ALL_DELETED = "victimAllDeleted"
    GANG_MIN_MEMBER_SATISFIED = "gangMinMemberSatisfied"


class AuditRule(StrEnum):
    """What the auditor watches for."""

    REPEATED_PREEMPTION = "repeatedPreemption"
    INVALIDATION = "preemptionInvalidated"
    RESCHEDULE_LATENCY = "victimRescheduleLatency"
    PREEMPTION_CYCLE = "preemptionCycle"
    EVENT_INTERVAL = "eventInterval"
    FINAL_COUNTS = "finalCounts"


_FAILURES: Final = (RecordType.SCHEDULE_FAILURE, RecordType.PREEMPT_FAILURE)
_ENDS: Final = (RecordType.SCHEDULED, RecordType.DELETED)
_STARTS: Final = (
    RecordType.CREATE,
    RecordType.ADMISSION_PASSED,
    RecordType.GANG_MIN_MEMBER_SATISFIED,
)


@record(kw_only=True)
class WorkloadEvent:
    """One event.

    Parameters
    ----------
    time
        Moment in nanoseconds.
    workload
        ``namespace/name/uid`` of a pod, or the key of a gang.
    type
        What happened.
    attempt
        Number of the scheduling attempt; a failure counts once per number, 0 always.
    """

    time: int
    workload: str
    type: RecordType = attrs.field(converter=RecordType)
    attempt: int = 0


@record(kw_only=True)
class AuditLimits:
    """Beyond which values an observation is an alert; durations in nanoseconds."""

    reschedule_latency: int = 10 * SECOND
    cycle_duration: int = 30 * SECOND
    cycle_retries: int = 3
    event_interval: int = 5 * MINUTE


@record(kw_only=True)
class Observation:
    """A measured value: nanoseconds, or a number of retries."""

    time: int
    workload: str
    rule: AuditRule
    value: int
    retries: int = 0


@record
class Anomaly:
    """An alert."""

    time: int
    workload: str
    rule: AuditRule
    message: str


@record
class WorkloadAudit:
    """What a stream of events shows.

    Parameters
    ----------
    anomalies, observations
        In the order of the events.
    finished
        Workload to the number of its events by type, for those that were scheduled or deleted.
    """

    anomalies: tuple[Anomaly, ...]
    observations: tuple[Observation, ...]
    finished: immutabledict[str, immutabledict[str, int]]


@attrs.define
class _State:
    counts: Counter[RecordType] = attrs.field(factory=Counter)
    attempt: int = 0
    nominated: int | None = None
    invalidated: bool = True
    deleting: int = 0
    victims_gone: int | None = None
    last_event: int | None = None


def audit_workloads(events: Iterable[WorkloadEvent], limits: AuditLimits = AuditLimits()) -> WorkloadAudit:
    """Read a stream of events in the order of time.

    Parameters
    ----------
    events
        Of all workloads together.
    limits
        When an observation becomes an alert.
    """
    auditor = _Auditor(limits)
    for event in events:
        auditor.read(event)
    finished = {name: immutabledict(counts) for name, counts in sorted(auditor.finished.items())}
    return WorkloadAudit(tuple(auditor.anomalies), tuple(auditor.observations), immutabledict(finished))


class _Auditor:
    def __init__(self, limits: AuditLimits) -> None:
        self._limits = limits
        self._states: dict[str, _State] = {}
        self.anomalies: list[Anomaly] = []
        self.observations: list[Observation] = []
        self.finished: dict[str, Mapping[str, int]] = {}

    def read(self, event: WorkloadEvent) -> None:
        state = self._states.setdefault(event.workload, _State())
        if event.type is RecordType.SCHEDULE_FAILURE and event.attempt:
            if event.attempt <= state.attempt:
                return
            state.attempt = event.attempt
        state.counts[event.type] += 1
        self._interval(state, event)
        self._latency(state, event)
        self._cycle(state, event)
        self._preemption(state, event)
        if event.type in _ENDS:
            self.finished[event.workload] = {str(kind): count for kind, count in sorted(state.counts.items())}
            del self._states[event.workload]

    def _alert(self, event: WorkloadEvent, rule: AuditRule, message: str) -> None:
        self.anomalies.append(Anomaly(event.time, event.workload, rule, message))

    def _observe(self, event: WorkloadEvent, rule: AuditRule, value: int, retries: int = 0) -> None:
        self.observations.append(
            Observation(time=event.time, workload=event.workload, rule=rule, value=value, retries=retries)
        )

    def _interval(self, state: _State, event: WorkloadEvent) -> None:
        """Nothing happens to a workload for too long."""
        if event.type is RecordType.GATED_BY_QUEUE_ADMISSION:
            state.last_event = None
        elif event.type in _STARTS:
            state.last_event = event.time
        elif event.type is not RecordType.VICTIM_ALL_DELETED:
            if state.last_event is not None:
                passed = event.time - state.last_event
                self._observe(event, AuditRule.EVENT_INTERVAL, passed)
                if passed > self._limits.event_interval:
                    self._alert(event, AuditRule.EVENT_INTERVAL, f"no event for {passed // SECOND} s")
            state.last_event = event.time

    def _latency(self, state: _State, event: WorkloadEvent) -> None:
        """A workload is not tried again soon after its victims have gone."""
        if event.type is RecordType.GATED_BY_QUEUE_ADMISSION:
            state.victims_gone = None
        elif event.type in (*_FAILURES, RecordType.PREEMPT_NOMINATED, RecordType.SCHEDULED):
            if state.victims_gone is not None:
                passed = event.time - state.victims_gone
                self._observe(event, AuditRule.RESCHEDULE_LATENCY, passed)
                if passed > self._limits.reschedule_latency:
                    text = f"tried again {passed // SECOND} s after its victims had gone"
                    self._alert(event, AuditRule.RESCHEDULE_LATENCY, text)
            state.victims_gone = None

    def _cycle(self, state: _State, event: WorkloadEvent) -> None:
        """A preemption takes long, or needs many tries to delete its victims."""
        interrupts = (*_FAILURES, *_ENDS, RecordType.PREEMPT_NOMINATED, RecordType.VICTIM_ALL_DELETED)
        if state.nominated is not None and event.type in interrupts:
            passed, retries = event.time - state.nominated, state.deleting
            self._observe(event, AuditRule.PREEMPTION_CYCLE, passed, retries)
            if passed > self._limits.cycle_duration or retries > self._limits.cycle_retries:
                text = f"preemption took {passed // SECOND} s and {retries} deletions"
                self._alert(event, AuditRule.PREEMPTION_CYCLE, text)
            state.nominated = None
        if event.type is RecordType.PREEMPT_VICTIM_DELETING:
            state.deleting += 1
        elif event.type is RecordType.VICTIM_ALL_DELETED:
            state.victims_gone = event.time

    def _preemption(self, state: _State, event: WorkloadEvent) -> None:
        """A nomination comes to nothing, or a workload preempts again and again."""
        if event.type in (*_FAILURES, RecordType.PREEMPT_NOMINATED) and not state.invalidated:
            state.invalidated = True
            self._alert(event, AuditRule.INVALIDATION, f"its nomination was followed by {event.type}")
        if event.type is RecordType.PREEMPT_NOMINATED:
            state.nominated, state.invalidated, state.deleting = event.time, False, 0
            times = state.counts[RecordType.PREEMPT_NOMINATED]
            if times > 1:
                self._alert(event, AuditRule.REPEATED_PREEMPTION, f"nominated {times} times")
