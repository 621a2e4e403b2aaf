"""Kueue's Workloads on the command line: who of them starts, and what the others lack."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from koordcore.cli.tables import Column, Table
from koordcore.controlplane.admission import WorkloadDecision, admit_workloads
from koordcore.controlplane.workload_pods import workload_of
from koordcore.model.kueue import KueueWorkload
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot


@attrs.frozen
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
        return Decided(snapshot, schedule(snapshot, policy=policy, now=now, preempt=preempt))
    plan = admit_workloads(snapshot, policy=policy, now=now, preempt=preempt)
    return Decided(plan.before, plan.result, plan.workloads)


def in_queue(snapshot: ClusterSnapshot, pod: Pod) -> bool:
    """Tell whether a pod belongs to a Workload that waits."""
    named = workload_of(pod)
    return any(one.waits and one.key == named for one in snapshot.of(KueueWorkload)) if named else False


def said(one: WorkloadDecision) -> str:
    """Say in a line what became of a Workload."""
    where = f"in ClusterQueue {one.queue}" if one.queue else "in no queue"
    if not one.admitted:
        return f"Workload {one.workload} waits {where}: {one.reason}"
    borrowing = ", borrowing" if one.borrows else ""
    return f"Workload {one.workload} starts {where} on {_flavors(one)}{borrowing}"


def workloads_table(workloads: Sequence[WorkloadDecision]) -> Table:
    """One row per Workload that waited, in the order in which they were decided."""
    titles = ("WORKLOAD", "QUEUE", "PODS", "OUTCOME", "FLAVORS", "WHY")
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
    columns = [Column(name, number=name == "PODS") for name in titles]
    return Table(title="Workloads of Kueue", columns=tuple(columns), rows=rows)


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
    }
