"""Kueue's Workloads on the command line: who of them starts, and what the others lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.placing import place
from koordcore.cli.progress import working
from koordcore.controlplane.admission import AdmissionPlan, WorkloadDecision, admit_workloads
from koordcore.controlplane.admission_review import PlacedWorkload, review_admitted
from koordcore.model.kueue import KueueWorkload
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.protocol.workload_pods import workload_of
from koordcore.result import ScheduleResult
from koordcore.scheduling.serving import QueuedStart
from koordcore.snapshot import ClusterSnapshot


@record
class Decided:
    """A plan, with the cluster that it holds for and what became of Workloads."""

    before: ClusterSnapshot
    result: ScheduleResult
    workloads: tuple[WorkloadDecision, ...] = ()


def decide(
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime | None,
    preempt: PreemptionRules | None = None,
    *,
    as_gangs: bool,
) -> Decided:
    """Schedule; with ``--as-gangs`` Workloads of Kueue get their quota and places with the rest."""
    if not (as_gangs and any(one.waits for one in snapshot.of(KueueWorkload))):
        return Decided(snapshot, place(snapshot, policy, now, preempt))
    with working("deciding quota and places") as step:
        plan = admit_workloads(snapshot, policy=policy, now=now, preempt=preempt, progress=step)
    return Decided(plan.before, plan.result, plan.workloads)


def in_queue(snapshot: ClusterSnapshot, pod: Pod) -> bool:
    """Tell whether a pod belongs to a Workload that waits."""
    named = workload_of(pod)
    return any(one.waits and one.key == named for one in snapshot.of(KueueWorkload)) if named else False


def waiting_members(snapshot: ClusterSnapshot) -> tuple[PodKey, ...]:
    """List the pods that belong to Workloads that wait."""
    names = {one.key for one in snapshot.of(KueueWorkload) if one.waits}
    return tuple(pod.key for pod in snapshot.pending if names and workload_of(pod) in names)


def workload_starts(decided: Decided, now: datetime) -> list[QueuedStart]:
    """Say of each Workload that it starts now, or what it lacks; quota given back later is not foreseen."""
    members: dict[str, list[PodKey]] = {}
    for pod in decided.before.pending:
        members.setdefault(workload_of(pod), []).append(pod.key)
    nodes = {one.pod: one.node for one in decided.result.bound}
    return [
        QueuedStart(
            name=f"workload/{one.workload}",
            pods=tuple(pods := members.get(one.workload, [])),
            start=now if one.admitted else None,
            nodes=immutabledict({key: nodes[key] for key in pods if key in nodes}),
            message="" if one.admitted else f"now {one.reason}",
        )
        for one in decided.workloads
    ]


def said(one: WorkloadDecision) -> str:
    """Say in a line what became of a Workload."""
    where = f"in ClusterQueue {one.queue}" if one.queue else "in no queue"
    if not one.admitted:
        reason = one.reason.replace(f"ClusterQueue {one.queue}: ", "")
        return f"Workload {one.workload} waits {where}: {reason}"
    borrowing = ", borrowing" if one.borrows else ""
    return f"Workload {one.workload} starts {where} on {_flavors(one)}{borrowing}"


def workloads_table(workloads: Sequence[WorkloadDecision]) -> Table:
    """One row per Workload that waited, in the order in which they were decided."""
    rows = [
        (
            one.workload,
            one.queue,
            f"{one.pods}/{one.asked}",
            ("borrows" if one.borrows else "starts") if one.admitted else "waits",
            _flavors(one),
            one.reason
            or "; ".join(f"not {why}" if why.startswith("on ") else why for why in one.passed_over),
        )
        for one in workloads
    ]
    columns = (
        Column("WORKLOAD"),
        Column("QUEUE", rank=2),
        Column("PODS", number=True),
        Column("OUTCOME", tone=Tone.GOOD),
        Column("FLAVORS", text=True, rank=1),
        Column("WHY", text=True),
    )
    return Table(title="Workloads of Kueue", columns=columns, rows=rows)


@record
class QueueComparison:
    """Kueue's own rule beside the library's plan.

    Parameters
    ----------
    ours, theirs
        The same Workloads with places in mind, and by quota alone.
    running
        Admitted ones where they run and where they could.
    """

    ours: AdmissionPlan
    theirs: AdmissionPlan
    running: tuple[PlacedWorkload, ...]

    @property
    def pairs(self) -> list[tuple[WorkloadDecision, WorkloadDecision]]:
        """What became of each Workload, in our order: by Kueue's rule, and here."""
        known = {one.workload: one for one in self.theirs.workloads}
        return [(known[one.workload], one) for one in self.ours.workloads]


def compare_queues(snapshot: ClusterSnapshot, policy: Policy, now: datetime | None) -> QueueComparison:
    """Decide waiting Workloads by quota and places, and by quota alone as Kueue does, and review the rest."""
    return QueueComparison(
        ours=admit_workloads(snapshot, policy=policy, now=now),
        theirs=admit_workloads(snapshot, policy=policy, now=now, by_quota_alone=True),
        running=review_admitted(snapshot, policy=policy, now=now),
    )


def comparison_tables(found: QueueComparison) -> Iterator[Table]:
    """Who starts by which rule; and which of those that run lie in more domains than they need."""
    if found.pairs:
        columns = [
            Column(name, text=name != "WORKLOAD")
            for name in ("WORKLOAD", "BY KUEUE'S RULE", "HERE", "WHY NOT")
        ]
        rows = [
            (ours.workload, _outcome(theirs), _outcome(ours), theirs.reason or ours.reason)
            for theirs, ours in found.pairs
        ]
        started = [sum(one.pods == one.asked > 0 for one in part) for part in zip(*found.pairs, strict=True)]
        note = f"whole Workloads: {started[0]} by Kueue's rule (flavors by quota alone), {started[1]} here"
        yield Table(title="Workloads of Kueue", columns=tuple(columns), rows=rows, note=note)
    if found.running:
        columns = [
            Column(name, text=name.endswith("IN")) for name in ("WORKLOAD", "PODS", "RUNS IN", "COULD RUN IN")
        ]
        lying = [
            (one.workload, str(one.pods), _domains(one.now), _domains(one.best) if one.worse else "the same")
            for one in found.running
        ]
        worse = sum(one.worse for one in found.running)
        note = f"{worse} of {len(lying)} lie in more domains than they need, everybody else staying"
        yield Table(title="Admitted by Kueue", columns=tuple(columns), rows=lying, note=note)


def comparison_record(found: QueueComparison) -> dict[str, Any]:
    """Write a comparison as JSON values."""
    return {
        "workloads": [
            {"here": workload_record(ours), "byKueuesRule": workload_record(theirs)}
            for theirs, ours in found.pairs
        ],
        "admitted": [
            {
                "workload": one.workload,
                "clusterQueue": one.queue,
                "pods": one.pods,
                "now": dict(one.now),
                "best": dict(one.best),
                "worse": one.worse,
            }
            for one in found.running
        ],
    }


def _outcome(one: WorkloadDecision) -> str:
    if not one.admitted:
        more = f" and {len(one.evicts) - 2} more" if len(one.evicts) > 3 else ""
        return f"evicts {', '.join(one.evicts[: 2 if more else 3])}{more}" if one.evicts else "waits"
    part = "" if one.pods == one.asked else f", {one.pods} of {one.asked} pods"
    return f"{_flavors(one)}{part}{', borrowing' if one.borrows else ''}"


def _domains(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count} {level.rpartition('/')[2]}{'s' * (count != 1)}" for level, count in counts.items()
    )


def _flavors(one: WorkloadDecision) -> str:
    return ", ".join(dict.fromkeys(one.flavors.values()))


def workload_record(one: WorkloadDecision) -> dict[str, Any]:
    """Write what became of a Workload as JSON values."""
    return {
        "workload": one.workload,
        "clusterQueue": one.queue,
        "admitted": one.admitted,
        "pods": one.pods,
        "asked": one.asked,
        "flavors": dict(one.flavors),
        "borrows": one.borrows,
        "reason": one.reason,
        "passedOver": list(one.passed_over),
        "evicts": list(one.evicts),
    }
