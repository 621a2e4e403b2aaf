"""``koordcore rebalance --jobs``: which of the dump's waiting migration jobs may go ahead now."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

import attrs

from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import for_programs, print_record
from koordcore.cli.selection import selection_of
from koordcore.cli.tables import say, show
from koordcore.cli.words import many
from koordcore.descheduling.migration.arbitrate import arbitrate
from koordcore.descheduling.migration.filter import MigrationFilter, passed
from koordcore.model.cluster import Workload
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import MigrationControllerArgs
from koordcore.protocol.migration import ANNOTATION_ARBITRATING, ANNOTATION_PASSED
from koordcore.snapshot import ClusterSnapshot


def print_arbitration(
    snapshot: ClusterSnapshot, args: MigrationControllerArgs, arguments: argparse.Namespace
) -> int:
    """Arbitrate once, as the migration controller does every half second; 1 where a job waits or fails."""
    # A job that was just written has no phase yet; its controller makes it Pending.
    jobs = [
        attrs.evolve(job, phase=JobPhase.PENDING) if job.phase is JobPhase.NONE else job
        for job in snapshot.of(PodMigrationJob)
    ]
    waiting = [job for job in jobs if job.phase is JobPhase.PENDING and not passed(job)]
    # Pods that have ended, and those of nodes that the dump lacks, are there as well.
    standing = (*snapshot.of(Pod), *snapshot.bound_pods(), *snapshot.pending)
    pods = {pod.key: pod for pod in standing}
    rules = MigrationFilter(args, pods.values(), snapshot.of(Workload), jobs)
    decided = arbitrate([job for job in waiting if not job.paused], pods, rules)
    paused = [job for job in waiting if job.paused]
    rows = [(job.name, str(job.pod or ""), *_outcome(job, rules, pods)) for job in decided]
    rows += [(job.name, str(job.pod or ""), "waits", "is paused") for job in paused]
    selection = selection_of(arguments)
    chosen = {str(pod.key) for pod in pods.values() if selection.pod(pod)}
    if for_programs(arguments):
        heads = ("job", "pod", "outcome", "why")
        print_record(arguments, {"jobs": [dict(zip(heads, row, strict=True)) for row in rows]})
    elif arguments.output == "patches":
        for job in decided:
            patch = _patch(job)
            if patch is not None:
                print(json.dumps(patch))
    else:
        titles = (
            Column("JOB", tone=Tone.NAME),
            Column("POD"),
            Column("OUTCOME"),
            Column("WHY", tone=Tone.BAD, text=True),
        )
        shown = [row for row in rows if selection.all or row[1] in chosen]
        if rows:
            show(Table(title="Migration jobs, in the order of their turns", columns=titles, rows=shown))
        running = sum(job.active for job in jobs) - len(waiting)
        through = sum(row[2] == "passes" for row in rows)
        say(f"{many(len(rows), 'job')} wait{'s' * (len(rows) == 1)} · {through} pass · {running} under way")
    return 0 if all(row[2] == "passes" for row in rows) else 1


def _outcome(job: PodMigrationJob, rules: MigrationFilter, pods: Mapping[PodKey, Pod]) -> tuple[str, str]:
    """Say what becomes of a job; who waits is told which limit those before it have reached."""
    pod = None if job.pod is None else pods.get(job.pod)
    if job.phase is JobPhase.FAILED:
        never = None if pod is None else rules.permanent(pod)
        return "fails", job.message if never is None else f"{job.message}: {never.rule}"
    if passed(job):
        return "passes", "" if pod is not None else "the dump has no such pod: its controller ends the job"
    marked = None if pod is None else pod.at(pod.node_name, annotations={ANNOTATION_ARBITRATING: "true"})
    refused = None if marked is None else rules.retryable(marked)
    return "waits", refused.rule if refused is not None else ""


def _patch(job: PodMigrationJob) -> dict[str, object] | None:
    path = f"/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs/{job.name}"
    body: dict[str, object]
    if job.phase is JobPhase.FAILED:
        path += "/status"
        body = {"status": {"phase": "Failed", "reason": job.reason, "message": job.message}}
    elif passed(job):
        body = {"metadata": {"annotations": {ANNOTATION_PASSED: "true"}}}
    else:
        return None
    return {"verb": "patch", "path": path, "contentType": "application/merge-patch+json", "body": body}
