"""Gangs: parsing, PodGroup phases, the gang cycle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from immutabledict import immutabledict

from koordcore.allocators.gang.cycle import before_pre_filter, permit
from koordcore.allocators.gang.events import add_pod, add_pod_group, post_bind
from koordcore.allocators.gang.podgroup import MemberPhase, next_status
from koordcore.allocators.gang.state import Code, GangRecord, GangState, GroupRecord, Step
from koordcore.errors import ManifestError, ModelError
from koordcore.model.durations import MILLISECOND
from koordcore.model.gangs import CoschedulingArgs, Gang, GangPod, gang_group_id
from koordcore.protocol.gang import (
    ParsedGangPod,
    binding_annotations,
    gang_from_pod_group,
    parse_gang_pod,
    parse_groups,
)
from koordcore.protocol.pod_group import format_pod_group_status, parse_coscheduling_args, parse_pod_group
from tests.conformance.core import Case, Verdict, equality, subject
from tests.reference import gang_cycle, gang_events
from tests.reference.fit_errors import fit_error
from tests.reference.formats import format_topology_spec

TERMINATED: Final = ("Succeeded", "Failed")
INNER: Final = ("recordId", "representative")
MIRRORED: Final = ("context", "activate", "activateOneOf", "patched", "anyOf")


def read_pod(raw: Mapping[str, Any], args: CoschedulingArgs) -> ParsedGangPod:
    """Take the pieces that the gang room reads from a Pod object."""
    metadata = raw["metadata"]
    return parse_gang_pod(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        created=metadata.get("creationTimestamp"),
        node_name=raw.get("spec", {}).get("nodeName", ""),
        terminated=raw.get("status", {}).get("phase") in TERMINATED,
        args=args,
    )


def gang_json(state: GangState, record: GangRecord) -> dict[str, Any]:
    gang, group = record.gang, state.group_of(record)
    attached = record.private is None
    shown = {
        "source": str(gang.source),
        "initialised": gang.initialised,
        "min": gang.min_available,
        "total": gang.total,
        "mode": str(gang.mode),
        "policy": str(gang.match_policy),
        "waitTimeMs": gang.wait_time // MILLISECOND,
        "group": list(gang.group),
        "groupId": gang.group_id,
        "topologySpec": None if gang.topology_spec is None else format_topology_spec(gang.topology_spec),
        "children": sorted(record.children),
        "pending": sorted(record.pending),
        "bound": sorted(record.bound),
        "once": group.satisfied,
        "record": {"id": gang.group_id if attached else "", "initialised": attached},
    }
    if gang.initialised:
        shown["createTime"] = gang.created
    return shown


@subject("gang.parse")
def gang_parse(case: Case) -> Any:
    given = case.input
    if "groups" in given:
        try:
            group = parse_groups(given["groups"])
        except ManifestError:
            return {"error": True}
        return {"list": list(group), "groupId": gang_group_id(group)}
    try:
        args = parse_coscheduling_args(given.get("args", {}))
    except ModelError as error:
        return {"argsError": str(error)}
    state = GangState(args=args)
    pods: dict[str, str | None] = {}
    errors: dict[str, list[str]] = {}
    for position, raw in enumerate(given["objects"]):
        if raw["kind"] == "Pod":
            parsed = read_pod(raw, args)
            pods[parsed.pod.key] = parsed.pod.gang_id or None
            state = add_pod(state, parsed.pod).state
            problems = parsed.unreadable
        else:
            configured = gang_from_pod_group(parse_pod_group(raw), args)
            state = add_pod_group(state, configured.gang).state
            problems = configured.unreadable
        if problems:
            errors[str(position)] = sorted(p.path.rpartition("/")[2].rstrip("]") for p in problems)
    return {
        "podGang": pods,
        "gangs": {gang_id: gang_json(state, record) for gang_id, record in state.gangs.items()},
        "records": sorted(state.groups),
        "fieldErrors": errors,
    }


@subject("gang.podgroup")
def gang_podgroup(case: Case) -> Any:
    pod_group = parse_pod_group(case.input["podGroup"])
    members = []
    for raw in case.input["pods"]:
        metadata = raw["metadata"]
        namespace = metadata.get("namespace", "default")
        members.append(
            MemberPhase(
                key=f"{namespace}/{metadata['name']}",
                phase=raw.get("status", {}).get("phase", ""),
                bound=bool(raw.get("spec", {}).get("nodeName")),
                owners=tuple(f"{namespace}/{owner['name']}" for owner in metadata.get("ownerReferences", [])),
            )
        )
    status = next_status(pod_group, members, now="now")
    if status is None:
        return {"examined": False}
    return {
        "examined": True,
        "patched": status != pod_group.status,
        "status": format_pod_group_status(status),
    }


class Script:
    """Drives the gang cycle through the steps of one case."""

    def __init__(self, case: Case) -> None:
        self.args = parse_coscheduling_args(case.input.get("args") or {})
        self.nodes = len(case.input["nodes"])
        self.state = GangState(args=self.args)
        self.pods: dict[str, GangPod] = {}
        self.now = 0
        self.root_cause: dict[str, bool] = {}

    def run(self, step: Mapping[str, Any]) -> dict[str, Any]:
        before = self.views()
        handler = getattr(
            self, "do_" + re.sub("[A-Z]", lambda capital: "_" + capital.group().lower(), step["op"])
        )
        answer: dict[str, Any] = handler(step)
        after = self.views()
        changes: dict[str, Any] = {}
        for gang_id in sorted({*before, *after}):
            if gang_id not in after:
                changes[gang_id] = None
                continue
            old = before.get(gang_id) or self.view(GangState(), GangRecord(gang=Gang(id=gang_id)))
            changed = {key: value for key, value in after[gang_id].items() if value != old[key]}
            if changed or gang_id not in before:
                changes[gang_id] = changed
        if changes:
            answer["gangs"] = changes
        return answer

    def views(self) -> dict[str, dict[str, Any]]:
        return {gang_id: self.view(self.state, record) for gang_id, record in self.state.gangs.items()}

    @staticmethod
    def view(state: GangState, record: GangRecord) -> dict[str, Any]:
        gang = record.gang
        group: GroupRecord = state.group_of(record)
        return {
            "min": gang.min_available,
            "init": gang.initialised,
            "mode": str(gang.mode),
            "policy": str(gang.match_policy),
            "groupId": gang.group_id,
            "children": len(record.children),
            "pending": sorted(record.pending),
            "waiting": sorted(record.waiting),
            "bound": sorted(record.bound),
            "once": group.satisfied,
            "waitingGangs": sorted(group.waiting_gangs),
            "bindingMembers": sorted(group.binding_members),
        }

    def take(self, step: Step) -> dict[str, Any]:
        self.state = step.state
        answer: dict[str, Any] = {}
        if step.rejected:
            answer["rejected"] = list(step.rejected)
            answer["rejectReason"] = [f"{gang_cycle.REJECT_TAG}: {step.reject_reason}"]
        if step.released:
            answer["released"] = list(step.released)
        return answer

    def verdict(self, step: Step) -> dict[str, Any]:
        answer = self.take(step)
        answer["code"] = str(step.code)
        if step.message:
            answer["message"] = step.message
        if step.code is Code.WAIT:
            answer["waitMs"] = step.wait // MILLISECOND
        return answer

    def object_pod(self, step: Mapping[str, Any]) -> GangPod:
        pod = read_pod(step["object"], self.args).pod
        self.pods[pod.key] = pod
        return pod

    def object_gang(self, step: Mapping[str, Any]) -> Gang:
        return gang_from_pod_group(parse_pod_group(step["object"]), self.args).gang

    def do_pod_add(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(add_pod(self.state, self.object_pod(step)))

    def do_pod_update(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(gang_events.update_pod(self.state, self.object_pod(step)))

    def do_pod_delete(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(gang_events.delete_pod(self.state, self.pods[step["pod"]]))

    do_pod_delete_tombstone = do_pod_delete

    def do_pod_group_add(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(add_pod_group(self.state, self.object_gang(step)))

    def do_pod_group_update(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(gang_events.update_pod_group(self.state, self.object_gang(step)))

    def do_pod_group_delete(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(gang_events.delete_pod_group(self.state, self.object_gang(step).id))

    def do_pre_enqueue(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.verdict(gang_cycle.pre_enqueue(self.state, self.pods[step["pod"]]))

    def do_before_pre_filter(self, step: Mapping[str, Any]) -> dict[str, Any]:
        done = before_pre_filter(self.state, self.pods[step["pod"]])
        return self.verdict(done) | {"rootCause": done.root_cause}

    def do_next_pod(self, step: Mapping[str, Any]) -> dict[str, Any]:
        done = gang_cycle.next_pod(self.state)
        return self.take(done) | {"pod": done.pod}

    def do_permit(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.verdict(permit(self.state, self.pods[step["pod"]], now=self.now))

    def do_fail(self, step: Mapping[str, Any]) -> dict[str, Any]:
        error = fit_error(self.nodes, step["reasons"])
        done = gang_cycle.after_post_filter(self.state, self.pods[step["pod"]], error)
        post = {"code": "Unschedulable", "message": ""}
        return self.take(done) | {"afterPostFilter": done.message, "postFilter": post}

    def do_unreserve(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(gang_cycle.unreserve(self.state, self.pods[step["pod"]]))

    def do_post_bind(self, step: Mapping[str, Any]) -> dict[str, Any]:
        return self.take(post_bind(self.state, self.pods[step["pod"]]))

    def do_binding_info(self, step: Mapping[str, Any]) -> dict[str, Any]:
        info = gang_cycle.binding_group(self.state, self.pods[step["pod"]])
        return {"annotations": None if info is None else binding_annotations(*info)}

    def do_tick(self, step: Mapping[str, Any]) -> dict[str, Any]:
        self.now = step["now"] * MILLISECOND
        done = gang_cycle.timeout(self.state, now=self.now)
        self.state = done.state
        return {"timedOut": list(done.timed_out)}


def outward(step: Mapping[str, Any], *, legal_next: bool) -> dict[str, Any]:
    """Leave out what only mirrors a cache; a legal next pod counts as the expected one."""
    kept = {key: value for key, value in step.items() if key not in (*MIRRORED, "gangs")}
    if legal_next:
        kept.pop("pod", None)
    changes = {
        gang_id: None if fields is None else {k: v for k, v in fields.items() if k not in INNER}
        for gang_id, fields in step.get("gangs", {}).items()
    }
    kept["gangs"] = {gang_id: fields for gang_id, fields in changes.items() if fields is None or fields}
    return kept


def judge_cycle(case: Case, answer: Any) -> tuple[Verdict, str]:
    if case.ruled:
        return equality(case, answer)
    expected, seen = [], []
    for wanted, given in zip(case.raw["expect"], answer, strict=True):
        legal = given.get("pod") is not None and given["pod"] in wanted.get("anyOf", [])
        expected.append(outward(wanted, legal_next=legal))
        seen.append(outward(given, legal_next=legal))
    stripped = Case(
        case.subject, case.id, case.why, case.input, {**case.raw, "expect": expected}, case.tables
    )
    return equality(stripped, seen)


@subject("gang.cycle", judge=judge_cycle)
def gang_cycle_script(case: Case) -> Any:
    script = Script(case)
    return [script.run(immutabledict(step)) for step in case.input["steps"]]
