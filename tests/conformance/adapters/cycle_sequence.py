"""Adapter of ``cycle.sequence``: pending pods one after another, the state carried over."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import attrs

from koordcore.allocators.reservation.lifecycle import made_available, synced
from koordcore.allocators.reservation.state import reserve_pod
from koordcore.explain.cycle import Cycle, FilterVerdict, explain_cycle
from koordcore.explain.post_filter import preemption_refusals, reservation_refusals
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.gang import binding_annotations, gang_name
from koordcore.schedule.jobs import Job, JobTable
from koordcore.snapshot import ClusterSnapshot, bind
from tests.conformance import Case, Verdict, equality, subject
from tests.conformance.adapters.cycle import shipped_policy
from tests.conformance.core import difference


def written(decision: Bound, marks: dict[str, str]) -> dict[str, Any]:
    """What PreBind writes on a pod, JSON values parsed."""
    found: dict[str, Any] = {}
    annotations = {key: json.loads(value) for key, value in decision.annotations.items()} | marks
    if annotations:
        found["annotations"] = annotations
    if decision.labels:
        found["labels"] = dict(decision.labels)
    return found


def chosen(cycle: Cycle, decision: Bound) -> dict[str, Any]:
    """Where the pod goes, and how clear that was."""
    step: dict[str, Any] = {"node": decision.node}
    if len(cycle.best) > 1:
        step["best"] = list(cycle.best)
    if not cycle.totals:
        step["onlyOne"] = True
    return step


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

    def reserve(self, name: str) -> dict[str, Any]:
        """Handle a Reservation that waits for a node."""
        one = self.snapshot.find(Reservation, name)
        assert one is not None
        pod = reserve_pod(one)
        cycle = explain_cycle(self.snapshot, pod, policy=self.policy, now=self.now)
        step: dict[str, Any] = {"pod": f"reservation/{name}", "node": None}
        if cycle.decision is None:
            # The reference looks for a pod of this name, and there is none.
            return step | {"message": cycle.message, "postFilter": f'preemption: pod "{pod.name}" not found'}
        decision = cycle.decision
        there = attrs.evolve(one, annotations={**one.annotations, **decision.annotations})
        self.snapshot = self.snapshot.with_records(made_available(there, decision.node, self.now))
        return step | chosen(cycle, decision) | written(decision, {})

    def sync(self) -> None:
        """Let the reservations' controller take its turn."""
        nodes = [state.name for state in self.snapshot.nodes]
        pods = list(self.snapshot.bound_pods())
        # Nothing in these cases grows old; without a time of creation it would have at once.
        before = [attrs.evolve(one, ttl=0) for one in self.snapshot.of(Reservation)]
        after = [synced(one, self.now, nodes, pods) for one in before]
        changed = [new for old, new in zip(before, after, strict=True) if new is not old]
        if changed:
            self.snapshot = self.snapshot.with_records(*changed)

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
            refused = Cycle(nodes=number, admission=FilterVerdict("Coscheduling", (text,), resolvable=False))
            reserved = reservation_refusals(self.snapshot, pod, refused)
            both = [never if pod.preemption_policy == "Never" else hopeless] * 2
            step["postFilter"] = ", ".join([*reserved, *both])
        else:
            cycle = explain_cycle(self.snapshot, pod, policy=self.policy, now=self.now)
            if cycle.decision is not None:
                step |= self.placed(pod, cycle, cycle.decision)
            else:
                told = preemption_refusals(self.snapshot, pod, cycle, policy=self.policy, now=self.now)
                reserved = reservation_refusals(self.snapshot, pod, cycle)
                step |= {"message": cycle.message, "postFilter": ", ".join([*reserved, *told])}
                if job is not None and job.strict:
                    step |= self.give_up(job, pod, cycle)
        if last and job is not None and self.held:
            step["rejected"] = {str(each): "all pending pods is already been attempted" for each in self.held}
            self.let_go()
        return step

    def placed(self, pod: Pod, cycle: Cycle, decision: Bound) -> dict[str, Any]:
        self.snapshot = self.snapshot.assume(bind(pod, decision))
        step = chosen(cycle, decision)
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
        self.sync()
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


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or different only where a ruling says so.

    Ruling 5 words refusals by NUMA nodes differently; by ruling 23 a pending Reservation counts in the
    request of its quota, so that it is placed where the reference refuses it, and what follows may differ.
    """
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    expected = case.expectations[0]
    for mine, theirs in zip(answer, expected, strict=True):
        if not difference(theirs, mine):
            continue
        refusal = str(theirs.get("message", ""))
        if theirs["node"] is None and mine["node"] is None:
            if "5" not in case.raw.get("touches", ()) or "NUMA" not in refusal + mine["message"]:
                return verdict, detail
        elif theirs["pod"].startswith("reservation/") and theirs["node"] is None and "quota" in refusal:
            placed = sum(step["node"] is not None for step in answer)
            better = placed > sum(step["node"] is not None for step in expected)
            return (Verdict.RULED, "23: a pending Reservation counts") if better else (verdict, detail)
        else:
            return verdict, detail
    return Verdict.RULED, "5: one joint answer, so refusals by NUMA nodes are worded differently"


@subject("cycle.sequence", judge=judge)
def sequence(case: Case) -> Any:
    given = case.input
    objects = [*case.tables["clusters"][given["cluster"]], *given.get("objects", ())]
    override = None if given["config"] == "default" else case.tables["configs"][given["config"]]
    snapshot = snapshot_from_objects([*objects, *given["pods"]]).snapshot
    policy = shipped_policy(override)
    stream = Stream(snapshot, policy, datetime.fromisoformat(given["now"]))
    steps = []
    following = [*given["pods"][1:], None]
    for raw, after in zip(given["pods"], following, strict=True):
        metadata = raw["metadata"]
        if raw["kind"] == "Reservation":
            steps.append(stream.reserve(metadata["name"]))
            continue
        last = after is None or gang_of(after) != gang_of(raw)
        steps.append(stream.step(PodKey(metadata["namespace"], metadata["name"]), last))
    return steps
