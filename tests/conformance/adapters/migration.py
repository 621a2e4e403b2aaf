"""Subjects ``migration.*``: filter, arbitration and limits of pod migration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from koordcore.descheduling.migration.arbitrate import arbitrate, arbitration_order
from koordcore.descheduling.migration.filter import MigrationFilter, passed
from koordcore.descheduling.migration.limits import EvictionCounts, LimiterState
from koordcore.descheduling.migration.max_unavailable import max_unavailable
from koordcore.descheduling.migration.workloads import Workloads
from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading
from koordcore.manifests.workloads import read_workload
from koordcore.model.cluster import Workload
from koordcore.model.durations import MILLISECOND
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.pods import PodKey
from koordcore.protocol.migration import parse_job
from koordcore.protocol.rebalance import migration_controller_args, parse_eviction_limits
from tests.conformance.adapters.load import pod_of
from tests.conformance.core import Case, subject


def workload_of(raw: Mapping[str, Any]) -> Workload:
    reading = Reading()
    workload = read_workload(reading, raw)
    reading.finish()
    return workload


def key_of(text: str) -> PodKey:
    namespace, _, name = text.partition("/")
    return PodKey(namespace, name)


def pods_of(given: Mapping[str, Any]) -> dict[PodKey, Any]:
    return {pod.key: pod for pod in map(pod_of, given.get("pods") or [])}


def filter_of(given: Mapping[str, Any], pods: Mapping[PodKey, Any]) -> MigrationFilter:
    return MigrationFilter(
        migration_controller_args(given["args"]),
        pods.values(),
        map(workload_of, given.get("workloads") or []),
        map(parse_job, given.get("podMigrationJobs") or []),
    )


@subject("migration.max_unavailable")
def limit(case: Case) -> Any:
    try:
        return max_unavailable(case.input["replicas"], case.input["value"])
    except ManifestError as error:
        return {"error": str(error)}


@subject("migration.evict_total")
def evict_total(case: Case) -> Any:
    given = case.input
    pods = pods_of(given)
    empty = EvictionCounts(limits=parse_eviction_limits(given.get("limits") or {}))
    refused = [] if given.get("frameworkDryRun") else (given.get("evictor") or {}).get("refuse") or []
    counts, answers = empty, []
    for step in given["steps"]:
        answer: Any = None
        match step["op"]:
            case "evict":
                pod = pods[key_of(step["pod"])]
                answer = counts.allows(pod) and step["pod"] not in refused
                counts = counts.counted(pod) if answer else counts
            case "allow":
                answer = counts.allows(pods[key_of(step["pod"])])
            case "nextCycle":
                counts = empty
            case "nodeLimitExceeded":
                answer = counts.per_node.get(step["node"], 0) == counts.limits.per_node
            case "namespaceLimitExceeded":
                answer = counts.per_namespace.get(step["namespace"], 0) == counts.limits.per_namespace
            case _:
                answer = {
                    "total": counts.total,
                    "node": counts.per_node.get(step.get("node"), 0),
                    "namespace": counts.per_namespace.get(step.get("namespace"), 0),
                }
        answers.append(answer)
    return answers


@subject("migration.filter")
def migration_filter(case: Case) -> Any:
    pods = pods_of(case.input)
    rules = filter_of(case.input, pods)
    answer = {}
    for text in case.input["query"]:
        refusal = rules.refusal(pods[key_of(text)])
        answer[text] = {"migratable": refusal is None, "why": refusal and refusal.rule}
    return answer


@subject("migration.arbitrate")
def arbitration(case: Case) -> Any:
    given = case.input
    if given["kind"] == "sort":
        jobs = {job.name: job for job in map(parse_job, given["podMigrationJobs"])}
        order = arbitration_order([jobs[name] for name in given["waiting"]], pods_of(given), jobs.values())
        return {
            "byCreationTime": [job.name for job in order.by_creation],
            "byPod": [job.name for job in order.by_pod],
            "byController": [job.name for job in order.by_controller],
            "byMigratingNum": [job.name for job in order.by_migrating],
        }
    return _rounds(given) if given["kind"] == "round" else _buckets(given)


def _rounds(given: Mapping[str, Any]) -> Any:
    pods = pods_of(given)
    jobs = {job.name: job for job in map(parse_job, given.get("podMigrationJobs") or [])}
    waiting, answers = list(given["waiting"]), []
    for step in given["rounds"]:
        waiting += step.get("submit") or []
        for name, phase in (step.get("setPhase") or {}).items():
            jobs[name] = attrs.evolve(jobs[name], phase=JobPhase(phase))
        for text in step.get("deletePods") or []:
            pods.pop(key_of(text), None)
        rules = MigrationFilter(
            migration_controller_args(given["args"]),
            pods.values(),
            map(workload_of, given.get("workloads") or []),
            jobs.values(),
        )
        outcome = {}
        for job in arbitrate([jobs[name] for name in waiting], pods, rules):
            jobs[job.name] = job
            outcome[job.name] = _verdict(job)
        answers.append(outcome)
        waiting = [name for name in waiting if outcome[name] == "waiting"]
    return answers


def _verdict(job: PodMigrationJob) -> str:
    if job.phase is JobPhase.FAILED:
        return f"failed:{job.reason}:{job.message}"
    return "passed" if passed(job) else "waiting"


def _buckets(given: Mapping[str, Any]) -> Any:
    pods = pods_of(given)
    workloads = Workloads(map(workload_of, given.get("workloads") or []), pods.values())
    state, answers = LimiterState(args=migration_controller_args(given["args"])), []
    for step in given["steps"]:
        now, pod = step["atMs"] * MILLISECOND, pods[key_of(step["pod"])]
        answer: Any = None
        match step["op"]:
            case "evicted":
                state = state.evicted(pod, workloads, now)
            case "check":
                answer = state.limited(pod, now)
            case _:
                answer = {f"{kind}:{key}": f"{left:.6f}" for (kind, key), left in state.tokens(now).items()}
        answers.append(answer)
    return answers
