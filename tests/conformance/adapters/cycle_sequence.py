"""Adapter of ``cycle.sequence``: pending pods one after another, the state carried over."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import attrs

from koordcore.explain.cycle import Cycle, explain_cycle
from koordcore.explain.post_filter import preemption_refusals
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.protocol.gang import binding_annotations, gang_name
from koordcore.schedule.jobs import Job, JobTable
from koordcore.snapshot import ClusterSnapshot, bind
from tests.conformance import Case, Missing, subject
from tests.conformance.adapters.cycle import shipped_policy


def written(decision: Bound, marks: dict[str, str]) -> dict[str, Any]:
    """What PreBind writes on a pod, JSON values parsed."""
    found: dict[str, Any] = {}
    annotations = {key: json.loads(value) for key, value in decision.annotations.items()} | marks
    if annotations:
        found["annotations"] = annotations
    if decision.labels:
        found["labels"] = dict(decision.labels)
    return found


@attrs.define
class Stream:
    """The state between two steps."""

    snapshot: ClusterSnapshot
    policy: Policy
    now: datetime
    held: dict[PodKey, Bound] = attrs.Factory(dict)
    failed: dict[str, str] = attrs.Factory(dict)
    """Why a gang group was given up, by its name."""

    def job_of(self, pod: Pod) -> Job | None:
        turn = next(JobTable(self.snapshot).turns([pod]))
        return turn if isinstance(turn, Job) else None

    def step(self, key: PodKey, last: bool) -> dict[str, Any]:
        pod = self.snapshot.pod(key)
        assert pod is not None
        job = self.job_of(pod)
        step: dict[str, Any] = {"pod": str(key), "node": None}
        if job is not None and job.name in self.failed:
            text = self.failed[job.name]
            number = len(self.snapshot.nodes)
            step["message"] = f"0/{number} nodes are available: {text}."
            hopeless = (
                f"preemption: 0/{number} nodes are available: {number} "
                "Preemption is not helpful for scheduling."
            )
            never = "preemption: not eligible due to preemptionPolicy=Never."
            step["postFilter"] = ", ".join([never if pod.preemption_policy == "Never" else hopeless] * 2)
        else:
            cycle = explain_cycle(self.snapshot, pod, policy=self.policy, now=self.now)
            if cycle.decision is not None:
                step |= self.placed(pod, cycle, cycle.decision)
            else:
                told = preemption_refusals(self.snapshot, pod, cycle, policy=self.policy, now=self.now)
                step |= {"message": cycle.message, "postFilter": ", ".join(told)}
                if job is not None and job.strict:
                    step |= self.give_up(job, pod, cycle)
        if last and job is not None and self.held:
            step["rejected"] = {str(each): "all pending pods is already been attempted" for each in self.held}
            self.let_go()
        return step

    def placed(self, pod: Pod, cycle: Cycle, decision: Bound) -> dict[str, Any]:
        self.snapshot = self.snapshot.assume(bind(pod, decision))
        step: dict[str, Any] = {"node": decision.node}
        if len(cycle.best) > 1:
            step["best"] = list(cycle.best)
        if not cycle.totals:
            step["onlyOne"] = True
        if cycle.waits:
            self.held[pod.key] = decision
            return step | {"permit": "Wait"}
        together = len(self.held) + 1
        job = self.job_of(pod) if self.held else None
        marks: dict[str, str] = {}
        if job is not None:
            internal = binding_annotations(tuple(sorted(job.gangs)), together)
            marks = internal | {key.removeprefix("internal."): text for key, text in internal.items()}
        if self.held:
            step["released"] = {
                str(each): {"node": bound.node} | written(bound, marks) for each, bound in self.held.items()
            }
        self.held.clear()
        return step | written(decision, marks)

    def give_up(self, job: Job, pod: Pod, cycle: Cycle) -> dict[str, Any]:
        reason = cycle.message
        if not cycle.admission.passed:
            number = cycle.nodes
            reason = f"0/{number} nodes are available: {number} {', '.join(cycle.admission.reasons)}."
        text = (
            f'GangGroup "{job.name}" gets rejected due to member Pod "{pod.key}" is unschedulable '
            f'with reason "{reason}", alreadyWaitForBound: {len(self.held)}'
        )
        self.failed[job.name] = text
        rejected = {str(each): text for each in self.held}
        self.let_go()
        return {"rejected": rejected} if rejected else {}

    def let_go(self) -> None:
        for key in self.held:
            pod = self.snapshot.pod(key)
            assert pod is not None
            free = attrs.evolve(pod, node_name=None)
            self.snapshot = self.snapshot.forget(key).with_pending(free)
        self.held.clear()


def gang_of(raw: dict[str, Any]) -> str:
    metadata = raw["metadata"]
    marks = metadata.get("labels", {}) | metadata.get("annotations", {})
    return gang_name(marks, marks)


@subject("cycle.sequence")
def sequence(case: Case) -> Any:
    given = case.input
    objects = [*case.tables["clusters"][given["cluster"]], *given.get("objects", ())]
    if "eservation" in json.dumps([objects, given["pods"]]):
        raise Missing("reservations")
    override = None if given["config"] == "default" else case.tables["configs"][given["config"]]
    snapshot = snapshot_from_objects([*objects, *given["pods"]]).snapshot
    policy = shipped_policy(override).without_feature("Reservation")
    stream = Stream(snapshot, policy, datetime.fromisoformat(given["now"]))
    steps = []
    following = [*given["pods"][1:], None]
    for raw, after in zip(given["pods"], following, strict=True):
        metadata = raw["metadata"]
        last = after is None or gang_of(after) != gang_of(raw)
        steps.append(stream.step(PodKey(metadata["namespace"], metadata["name"]), last))
    return steps
