"""Adapter of ``cycle.sequence``: pending pods one after another, the state carried over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from koordcore.explaining.cycle import Cycle, FilterVerdict
from koordcore.explaining.post_filter import preemption_refusals, reservation_refusals
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.gang import binding_annotations
from koordcore.protocol.gang_names import WAITS_AT_PERMIT, gang_name
from koordcore.reservations.lifecycle import made_available, synced
from koordcore.reservations.state import reserve_pod
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind
from tests.conformance import Case, Verdict, equality, subject
from tests.conformance.adapters.cycle import shipped_policy
from tests.conformance.core import difference
from tests.conformance.cycle_judge import judge_step, quota_refusals_differ
from tests.conformance.cycles import Scene, decided
from tests.conformance.eviction_words import evictions_differ, reserved_amounts_differ
from tests.conformance.node_judge import why_worded
from tests.conformance.numa_words import same_but_words


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

    def reserve(self, name: str, scene: Scene) -> dict[str, Any]:
        """Handle a Reservation that waits for a node."""
        one = self.snapshot.find(Reservation, name)
        assert one is not None
        pod, cycle = scene.pod, scene.cycle
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

    def step(self, scene: Scene, last: bool) -> dict[str, Any]:
        pod = scene.pod
        job = self.job_of(pod)
        step: dict[str, Any] = {"pod": str(pod.key), "node": None}
        if job is not None and job.name in self.failed:
            text = self.failed[job.name]
            number = len(self.snapshot.nodes)
            step["message"] = f"0/{number} nodes are available: {text}."
            refused = Cycle(nodes=number, admission=FilterVerdict("Coscheduling", (text,), resolvable=False))
            reserved = reservation_refusals(self.snapshot, pod, refused)
            told = preemption_refusals(self.snapshot, pod, refused, policy=self.policy, now=self.now)
            step["postFilter"] = ", ".join([*reserved, *told])
        else:
            cycle = scene.cycle
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
        job = self.job_of(pod) if self.held else None
        there = bind(pod, decision)
        self.snapshot = self.snapshot.assume(
            there.at(there.node_name, annotations={WAITS_AT_PERMIT: "true"}) if cycle.waits else there
        )
        step = chosen(cycle, decision)
        if cycle.waits:
            self.held[pod.key] = decision
            return step | {"permit": "Wait"}
        together = len(self.held) + 1
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


def open_stream(case: Case) -> Stream:
    """Start with the cluster of a case, everything that waits included."""
    given = case.input
    override = None if given["config"] == "default" else case.tables["configs"][given["config"]]
    snapshot = snapshot_from_objects([*objects_of(case), *given["pods"]], strict=True).snapshot
    return Stream(snapshot, shipped_policy(override), datetime.fromisoformat(given["now"]))


def objects_of(case: Case) -> list[dict[str, Any]]:
    """Give the wire objects that are there from the beginning."""
    return [*case.tables["clusters"][case.input["cluster"]], *case.input.get("objects", ())]


def advance(stream: Stream, pods: Sequence[dict[str, Any]], index: int, scene: Scene) -> dict[str, Any]:
    """Handle one item."""
    raw = pods[index]
    if raw["kind"] == "Reservation":
        return stream.reserve(raw["metadata"]["name"], scene)
    after = pods[index + 1] if index + 1 < len(pods) else None
    last = after is None or gang_of(after) != gang_of(raw)
    return stream.step(scene, last)


def scene_of(case: Case, stream: Stream, raw: Mapping[str, Any]) -> Scene:
    """Show what stands before an item is handled."""
    metadata = raw["metadata"]
    if raw["kind"] == "Reservation":
        one = stream.snapshot.find(Reservation, metadata["name"])
        pod = None if one is None else reserve_pod(one)
    else:
        pod = stream.snapshot.pod(PodKey(metadata["namespace"], metadata["name"]))
    assert pod is not None
    return Scene(stream.snapshot, pod, stream.policy, stream.now, objects_of(case))


@attrs.frozen(eq=False)
class Walk:
    """The library's way through a stream: what stood before each item, and how it went."""

    case: Case
    scenes: Sequence[Scene]
    steps: Sequence[dict[str, Any]]


_LAST: list[Walk] = []
"""The stream walked last: adapter and judge look at the same one."""


def walk_of(case: Case) -> Walk:
    """Handle every item of a case in turn."""
    if not _LAST or _LAST[0].case.input is not case.input:
        stream, pods = open_stream(case), case.input["pods"]
        scenes, steps = [], []
        for index, raw in enumerate(pods):
            scenes.append(scene_of(case, stream, raw))
            steps.append(advance(stream, pods, index, scenes[-1]))
        _LAST[:] = [Walk(case, scenes, steps)]
    return _LAST[0]


def completed(steps: Sequence[Mapping[str, Any]], index: int, *, marks: bool = False) -> dict[str, Any]:
    """Give a step with what is written on its pod, also where that is told only when its gang is released.

    ``marks`` keeps what says with how many others the pod was bound, which no placement hangs on.
    """
    step = dict(steps[index])
    if step.get("permit") == "Wait":
        later = (
            one["released"][step["pod"]] for one in steps[index:] if step["pod"] in one.get("released", ())
        )
        step |= {key: value for key, value in next(later, {}).items() if key != "node"}
    if "annotations" in step and not marks:
        kept = {key: value for key, value in step["annotations"].items() if "/bind-gang-" not in key}
        step["annotations"] = kept
    return step


def placed(steps: Sequence[Mapping[str, Any]]) -> int:
    """Count who has a node in the end."""
    lost = {name for step in steps for name in step.get("rejected", ())}
    return sum(step["node"] is not None and step["pod"] not in lost for step in steps)


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or different only where ours is better or a ruling says so; then legal to the end."""
    verdict, detail = equality(case, answer)
    if case.ruled:
        fault = ruled_fault(case, answer)
        return (Verdict.WRONG, fault) if fault else (verdict, detail)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    reports = [judge_steps(case, answer, expected) for expected in case.expectations]
    return next((one for one in reports if one is not None), (verdict, detail))


def judge_steps(case: Case, answer: Any, expected: Any) -> tuple[Verdict, str] | None:
    """Walk along both, side by side until they part; ``None`` where nothing speaks for ours."""
    notes: list[tuple[Verdict, str]] = []
    parted, owes = False, False
    for index, scene in enumerate(walk_of(case).scenes):
        mine, theirs = completed(answer, index), completed(expected, index)
        if parted and mine["node"] is not None:
            faults = placement_faults(scene, mine)
            if faults:
                return Verdict.WRONG, f"[{index}] illegal: {faults}"
        elif not parted and difference(
            completed(expected, index, marks=True), completed(answer, index, marks=True)
        ):
            if not difference(theirs, mine):
                return None
            found = judge_item(case, scene, mine, theirs)
            if found is None or found[0] is Verdict.WRONG:
                return found
            notes.append((found[0], f"[{index}] {found[1]}"))
            parted = decided(scene.pod, mine) != decided(scene.pod, theirs)
            owes = owes or found[0] is Verdict.BETTER or theirs["node"] is None
    if not notes or (owes and placed(answer) < placed(expected)):
        return None
    kinds = [kind for kind, _ in notes]
    return (Verdict.RULED if Verdict.RULED in kinds else Verdict.BETTER), "\n".join(text for _, text in notes)


def ruled_fault(case: Case, answer: Any) -> str:
    """Say what is illegal about a stream of which a ruling decides some part, or who has no node any more."""
    upstream = case.raw["upstream"]
    for index, scene in enumerate(walk_of(case).scenes):
        mine = completed(answer, index)
        if mine["pod"] != upstream[index]["pod"] or (mine["node"] is None) != ("message" in mine):
            return f"[{index}] {mine['pod']}: {mine['node']}"
        if mine["node"] is not None and (faults := placement_faults(scene, mine)):
            return f"[{index}] illegal: {faults}"
    return ""


def placement_faults(scene: Scene, mine: Mapping[str, Any]) -> list[str]:
    """List what is illegal about a step's placement."""
    decision = decided(scene.pod, mine)
    if mine.get("permit") == "Wait" and not (decision and decision.annotations):
        decision = scene.cycle.decision  # what is held for who is never released is told nowhere
    return ["no decision"] if decision is None else scene.faults(decision)


def judge_item(
    case: Case, scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[Verdict, str] | None:
    """Judge one step.

    Ruling 23 lets a pending Reservation count in the request of its quota, and knows no refusal after the
    filter; rulings 5 and 10 change the words of refusals.
    """
    refusal = str(theirs.get("message", ""))
    if theirs["node"] is None and mine["node"] is None:
        refused = [one for one in scene.cycle.filters.values() if one.plugin == "NodeNUMAResource"]
        if same_but_words(scene.pod, len(refused), mine, theirs):
            return Verdict.RULED, "5: one joint answer, so refusals by NUMA nodes are worded differently"
        why = quota_refusals_differ(scene, mine, theirs) or why_worded(scene, mine, theirs)
        why = why or evictions_differ(scene, mine, theirs) or reserved_amounts_differ(scene, mine, theirs)
        return (Verdict.RULED, why) if why else None
    if theirs["node"] is None and "quota" in refusal and theirs["pod"].startswith("reservation/"):
        return Verdict.RULED, "23: a pending Reservation counts"
    if theirs.get("stage") == "reserve":
        return Verdict.RULED, "23: nothing is refused after the filter"
    return judge_step(scene, mine, theirs)


@subject("cycle.sequence", judge=judge)
def sequence(case: Case) -> Any:
    return list(walk_of(case).steps)
