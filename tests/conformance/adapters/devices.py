"""Adapters of ``device.*``: they put wire objects into library calls and judge placements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from immutabledict import immutabledict

from koordcore.allocators.device import (
    DevicePolicy,
    DeviceReservation,
    NodeDevices,
    allocate_devices,
    allocate_reserved,
    device_hints,
    device_request_of,
    node_devices,
    normalize_scores,
    score_devices,
)
from koordcore.allocators.device.admission import complete_container, validate_containers
from koordcore.allocators.device.allocate import partition_of
from koordcore.allocators.device.node_resources import device_resources
from koordcore.allocators.device.view import view_of
from koordcore.allocators.device.wants import planned_types, wants_of
from koordcore.errors import ManifestError
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceRequest,
    DeviceShortfall,
    DeviceType,
    GPUPartition,
    PartitionAllocatePolicy,
    StatusCode,
)
from koordcore.model.pods import Container, Pod
from koordcore.model.resources import parse_resources
from koordcore.protocol.device import allocation_to_json, parse_allocation, replace_deprecated
from koordcore.protocol.device_args import device_policy_of
from koordcore.protocol.device_object import (
    GPU_MODEL,
    inventory_from_manifest,
    parse_partition_table,
    templates_from_manifest,
)
from koordcore.topology.devices import HOPPER_MODELS, hopper_model
from tests.conformance.core import Case, Verdict, difference, equality, subject
from tests.reference import devices as checker

_FINISHED = ("Succeeded", "Failed")


# --- wire objects ---------------------------------------------------------------------------------


def read_pod(raw: Mapping[str, Any]) -> Pod:
    """Read what the device room looks at."""
    spec = raw.get("spec", {})
    metadata = raw["metadata"]

    def container(one: Mapping[str, Any]) -> Container:
        amounts = (one.get("resources") or {}).get("requests") or {}
        return Container(
            name=one.get("name", ""),
            requests=parse_resources(replace_deprecated(amounts)),
            restarts_always=one.get("restartPolicy") == "Always",
        )

    return Pod(
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        containers=tuple(map(container, spec.get("containers") or [])),
        init_containers=tuple(map(container, spec.get("initContainers") or [])),
        overhead=parse_resources(replace_deprecated(spec.get("overhead") or {})),
        node_name=spec.get("nodeName"),
    )


def read_policy(case: Case) -> DevicePolicy:
    """Read DeviceShareArgs."""
    return device_policy_of(case.input.get("args") or {})


def read_request(case: Case, raw: Mapping[str, Any]) -> DeviceRequest | DeviceShortfall | None:
    pod = read_pod(raw)
    templates = case.input.get("templates")
    return device_request_of(
        pod.requests,
        annotations=pod.annotations,
        labels=pod.labels,
        templates=templates_from_manifest(templates or {}),
        policy=read_policy(case),
        designated=case.input.get("designated", False),
    )


def read_state(
    node: Mapping[str, Any],
    device: Mapping[str, Any] | None,
    pods: list[Mapping[str, Any]],
    reservations: list[Mapping[str, Any]] = [],  # noqa: B006 - never changed
) -> NodeDevices | None:
    name = node["metadata"]["name"]
    labels = node["metadata"].get("labels") or {}
    holders: dict[str, DeviceAllocation] = {}
    for raw in pods:
        spec = raw.get("spec", {})
        finished = (raw.get("status") or {}).get("phase") in _FINISHED
        if spec.get("nodeName") != name or finished:
            continue
        pod = read_pod(raw)
        try:
            held = parse_allocation(pod.annotations)
        except ManifestError:
            continue
        if held is not None:
            holders[str(pod.key)] = held
    for entry in reservations:
        reservation = entry["reservation"]
        held = parse_allocation(reservation["metadata"].get("annotations") or {})
        if held is not None:
            holders[holder_of(reservation)] = held
    inventory = None if device is None else inventory_from_manifest(device, labels)
    return node_devices(inventory, holders, node=name)


def holder_of(reservation: Mapping[str, Any]) -> str:
    return f"Reservation/{reservation['metadata']['name']}"


def refusal(stage: str, short: DeviceShortfall) -> dict[str, Any]:
    return {"stage": stage, "code": str(short.code), "reasons": sorted(short.reasons)}


_SKIP = {"stage": "prefilter", "code": "Skip", "reasons": []}


# --- device.request -------------------------------------------------------------------------------


def _names_an_alias(case: Case, answer: Any) -> tuple[Verdict, str]:
    verdict, detail = equality(case, answer)
    containers = case.input["pod"]["spec"].get("containers", [])
    if verdict is Verdict.WRONG and any(
        "koordinator.sh/gpu-shared" in ((one.get("resources") or {}).get("requests") or {})
        for one in containers
    ):
        return Verdict.RULED, "ruling 12: koordinator.sh/gpu-shared is read as gpu.shared"
    return verdict, detail


@subject("device.request", judge=_names_an_alias)
def request(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if found is None:
        return _SKIP
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    answer: dict[str, Any] = {
        "stage": "prefilter",
        "code": "Success",
        "reasons": [],
        "requests": {str(kind): dict(amounts) for kind, amounts in found.amounts.items()},
        "primary": str(found.joint.types[0]) if found.joint else "",
        "reservationRequired": found.reservation_required,
    }
    if found.joint_named:
        answer["jointTypes"] = [str(kind) for kind in found.joint.types] if found.joint else []
    if found.gpu is not None:
        spec = found.partition
        answer["gpu"] = {
            "count": found.gpu.count,
            "perDevice": dict(found.gpu.per_device),
            "shared": found.gpu.shared,
            "honorPartition": spec is not None,
            "restrictedPartition": spec is not None and spec.policy is PartitionAllocatePolicy.RESTRICTED,
            "ringBusBandwidth": None if spec is None else spec.ring_bus_bandwidth,
            "requiredTopologyScope": found.hint(DeviceType.GPU).required_topology_scope,
            "enforceTemplate": found.gpu.enforce_template,
        }
        if found.gpu.templates:
            answer["gpu"]["candidateTemplates"] = {
                model: list(names) for model, names in found.gpu.templates.items()
            }
    if "device" in case.input:
        answer["onNode"] = _on_node(case, found)
    return answer


def _on_node(case: Case, found: DeviceRequest) -> Any:
    state = read_state(case.input["node"], case.input["device"], case.input.get("pods", []))
    assert state is not None
    planned = planned_types(state.shape, found)
    seen = attrs.evolve(found, amounts=immutabledict({kind: found.amounts[kind] for kind in planned}))
    wants = wants_of(state.shape, seen, read_policy(case))
    if isinstance(wants, DeviceShortfall):
        return {"code": str(wants.code), "reasons": sorted(wants.reasons)}
    return {
        "code": "Success",
        "reasons": [],
        "types": {
            str(kind): {"perDevice": dict(want.per_device), "count": want.count}
            for kind, want in wants.items()
        },
    }


# --- device.partitions ----------------------------------------------------------------------------


def _ruled_tables(case: Case, answer: Any) -> tuple[Verdict, str]:
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    labels = case.input["device"]["metadata"].get("annotations") or {}
    if parse_partition_table(labels).aliases:
        return Verdict.RULED, "ruling 12: this spelling of the table is read"
    return _ruled_model(case, verdict, detail)


def _ruled_model(case: Case, verdict: Verdict, detail: str) -> tuple[Verdict, str]:
    model = (case.input["node"]["metadata"].get("labels") or {}).get(GPU_MODEL, "")
    if hopper_model(model) and model not in HOPPER_MODELS:
        return Verdict.RULED, "model names as the driver reports them have the built-in table"
    return verdict, detail


@subject("device.partitions", judge=_ruled_tables)
def partitions(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    device, node = case.input["device"], case.input["node"]
    inventory = inventory_from_manifest(device, node["metadata"].get("labels") or {})
    state = read_state(node, device, case.input.get("pods", []))
    assert found is not None
    assert state is not None
    table: Mapping[int, tuple[GPUPartition, ...]] = inventory.partitions or {}
    index: dict[str, dict[str, list[list[int]]]] = {}
    for size, entries in table.items():
        for one in entries:
            index.setdefault(str(size), {}).setdefault(str(one.allocation_score), []).append(list(one.minors))
    answer: dict[str, Any] = {
        "parseError": bool(parse_partition_table(device["metadata"].get("annotations") or {}).error),
        "source": str(inventory.source),
        "index": index,
        "honor": inventory.honor or found.partition is not None,
        "code": "Success",
        "reasons": [],
        "chosen": None,
    }
    wants = wants_of(state.shape, found, read_policy(case))
    chosen = (
        wants
        if isinstance(wants, DeviceShortfall)
        else partition_of(state.shape, found, view_of(state, wants[DeviceType.GPU]))
    )
    if isinstance(chosen, DeviceShortfall):
        return answer | {"code": str(chosen.code), "reasons": sorted(chosen.reasons)}
    return answer | {"chosen": list(chosen.minors)}


# --- device.allocate ------------------------------------------------------------------------------


def allocate_case(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if found is None:
        return _SKIP
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    entries = case.input.get("reservations", [])
    state = read_state(case.input["node"], case.input.get("device"), case.input.get("pods", []), entries)
    reservations = [
        DeviceReservation(
            holder=holder_of(entry["reservation"]),
            policy=entry["reservation"]["spec"].get("allocatePolicy", ""),
            consumers=tuple(entry.get("owners", ())),
            matched=entry["matched"],
        )
        for entry in entries
    ]
    affinity = case.input.get("numaAffinity")
    nominated = case.input.get("nominated")
    placed = allocate_reserved(
        state,
        found,
        reservations,
        nominated=None if nominated is None else f"Reservation/{nominated}",
        victims=case.input.get("victims", ()),
        numa_mask=None if affinity is None else sum(1 << numa for numa in affinity),
        policy=read_policy(case),
    )
    if isinstance(placed, DeviceShortfall):
        return refusal("filter", placed)
    return {
        "stage": "done",
        "code": str(StatusCode.SUCCESS),
        "reasons": [],
        "allocated": allocation_to_json(placed) if placed.devices else None,
    }


def judge_placement(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal; or legal and better by the documented objective; or the reference's own answer is illegal."""
    verdict, detail = equality(case, answer)
    placed = answer.get("allocated") if isinstance(answer, Mapping) else None
    illegal = checker.violations(case.input, placed) if placed else []
    if case.ruled:
        return _judge_ruled(case, placed, illegal)
    expected = case.expectations[0]
    if verdict is Verdict.EQUAL:
        return verdict, detail
    if illegal:
        return Verdict.WRONG, f"illegal: {illegal}"
    if expected.get("feasible") is True:
        return (Verdict.EQUAL, "") if placed else (Verdict.WRONG, detail)
    theirs = expected.get("allocated")
    if placed and theirs:
        unsound = checker.violations(case.input, theirs)
        if unsound:
            return Verdict.RULED, f"the reference places illegally: {unsound}"
        ours, other = checker.objective(case.input, placed), checker.objective(case.input, theirs)
        return (Verdict.BETTER, f"{ours} before {other}") if ours < other else (Verdict.WRONG, detail)
    same = checker.Wanted(case.input["pod"]).joint.get("requiredScope") == "SamePCIe"
    if placed and (same or expected["stage"] == "reserve" or _DEAD_END in expected["reasons"]):
        return Verdict.BETTER, "ruling 3: placed where the reference runs into a dead end"
    if theirs and checker.violations(case.input, theirs):
        return Verdict.RULED, f"the reference overcommits: {checker.violations(case.input, theirs)}"
    if checker.scope_binds_partition(case.input) and set(answer["reasons"]) & _SCOPED:
        return Verdict.RULED, "ruling 21: a partition must satisfy the required topology scope"
    return _ruled_model(case, verdict, detail)


def _judge_ruled(case: Case, placed: Any, illegal: list[str]) -> tuple[Verdict, str]:
    if illegal:
        return Verdict.WRONG, f"illegal: {illegal}"
    better = case.raw.get("better")
    if better:
        places = [
            checker.Machine(case.input).place("gpu", part["minor"]) for part in (placed or {}).get("gpu", [])
        ]
        spread = len({place[0] for place in places if place}), len(set(places))
        if not placed or spread > (better["numaNodes"], better["pcieSwitches"]):
            return Verdict.WRONG, f"spread over {spread}"
    return Verdict.RULED, str(case.raw.get("ruling", ""))


_DEAD_END = "node(s) Device Joint-Allocate rules violation"
_SCOPED = {"Insufficient Topology Scoped GPU Devices", "node(s) missing GPU Device Topology Tree"}

subject("device.allocate", judge=judge_placement)(allocate_case)
subject("device.missed", judge=judge_placement)(allocate_case)


# --- device.hints ---------------------------------------------------------------------------------


def judge_hints(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal; or every hint holds by itself, and none of the reference's is missing."""
    verdict, detail = equality(case, answer)
    given = answer.get("hints")
    masks = [hint["mask"] for hint in next(iter(given.values()), [])] if given else []
    if case.ruled:
        lacking = [mask for mask in case.raw.get("feasibleMasks", []) if mask not in masks]
        return (Verdict.WRONG, f"hints {masks} lack {lacking}") if lacking else (verdict, detail)
    if verdict is not Verdict.WRONG or not masks:
        return verdict, detail
    expected = case.expectations[0]
    if expected.get("hints"):
        theirs = [hint["mask"] for hint in next(iter(expected["hints"].values()))]
        if any(mask not in masks for mask in theirs):
            return verdict, detail
    elif checker.Wanted(case.input["pod"]).joint.get("requiredScope") != "SamePCIe":
        return verdict, detail
    wrong = _hint_faults(case, given)
    if wrong:
        return Verdict.WRONG, f"{detail}\n{wrong}"
    return (
        Verdict.RULED,
        "rulings 3 and 5: every mask holds, and 500 marks the cards that the node would give",
    )


def _hint_faults(case: Case, given: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Check each hint against the allocation inside its mask, and that against the rules."""
    found = read_request(case, case.input["pod"])
    state = read_state(case.input["node"], case.input["device"], case.input.get("pods", []))
    assert isinstance(found, DeviceRequest)
    policy = read_policy(case)
    (entries, *rest) = given.values()
    wrong = [] if all(other == entries for other in rest) else ["types differ"]
    placed = {}
    for hint in entries:
        mask = tuple(hint["mask"])
        inside = allocate_devices(state, found, sum(1 << numa for numa in mask), policy=policy)
        if isinstance(inside, DeviceShortfall):
            wrong.append(f"{mask} does not serve")
            continue
        placed[mask] = frozenset(inside.minors(DeviceType.GPU))
        scene = {**case.input, "numaAffinity": list(mask)}
        wrong.extend(checker.violations(scene, json.loads(json.dumps(allocation_to_json(inside)))))
    fewest, widest = min(placed, key=len), max(placed, key=len)
    for hint in entries:
        mask = tuple(hint["mask"])
        if hint["preferred"] != (len(mask) == len(fewest)):
            wrong.append(f"{mask}: preferred")
        if hint["score"] != (500 if placed.get(mask) == placed[widest] else 0):
            wrong.append(f"{mask}: score")
    return wrong


@subject("device.hints", judge=judge_hints)
def hints(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if found is None:
        return _SKIP
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    state = read_state(case.input["node"], case.input.get("device"), case.input.get("pods", []))
    given = device_hints(state, found, policy=read_policy(case))
    if isinstance(given, DeviceShortfall):
        return refusal("hints", given) | {"hints": None}
    shown = given and {
        str(kind): [
            {"mask": list(one.numa_nodes), "preferred": one.preferred, "score": one.score} for one in entries
        ]
        for kind, entries in given.items()
    }
    return {
        "stage": "hints",
        "code": "Success",
        "reasons": [],
        "hints": None if given is None else shown or {},
    }


# --- device.score ---------------------------------------------------------------------------------


def states_of(case: Case) -> dict[str, NodeDevices | None]:
    devices = {one["metadata"]["name"]: one for one in case.input["devices"]}
    return {
        node["metadata"]["name"]: read_state(
            node, devices.get(node["metadata"]["name"]), case.input.get("pods", [])
        )
        for node in case.input["nodes"]
    }


def minors_of(placed: DeviceAllocation) -> dict[str, list[int]]:
    return {str(kind): list(placed.minors(kind)) for kind in placed.devices}


def judge_score(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Everything equal but the minors, and these better."""
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG or "minors" not in answer:
        return verdict, detail
    expected = case.expectations[0]
    if difference({**expected, "minors": None}, {**answer, "minors": None}):
        return verdict, detail
    devices = {one["metadata"]["name"]: one for one in case.input["devices"]}
    for node in case.input["nodes"]:
        name = node["metadata"]["name"]
        ours, theirs = answer["minors"].get(name), expected["minors"].get(name)
        if ours == theirs:
            continue
        scene = {
            "node": node,
            "device": devices.get(name),
            "pods": case.input.get("pods", []),
            "pod": case.input["pod"],
        }
        if not checker.objective(scene, _as_parts(ours)) < checker.objective(scene, _as_parts(theirs)):
            return verdict, detail
    return Verdict.BETTER, detail


def _as_parts(minors: Mapping[str, list[int]]) -> dict[str, list[dict[str, Any]]]:
    whole = {checker.RATIO: "100"}
    return {kind: [{"minor": minor, "resources": whole} for minor in own] for kind, own in minors.items()}


@subject("device.score", judge=judge_score)
def score(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if found is None:
        return _SKIP
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    policy = read_policy(case)
    verdicts: dict[str, Any] = {}
    raw: dict[str, int] = {}
    minors: dict[str, Any] = {}
    for name, state in states_of(case).items():
        placed = allocate_devices(state, found, policy=policy)
        if isinstance(placed, DeviceShortfall):
            verdicts[name] = {"code": str(placed.code), "reasons": sorted(placed.reasons)}
            continue
        verdicts[name] = {"code": "Success", "reasons": []}
        raw[name] = score_devices(state, found, policy=policy)
        minors[name] = minors_of(placed) if placed.devices else None
    normalized = dict(zip(raw, normalize_scores(list(raw.values())), strict=True))
    return {"stage": "done", "filter": verdicts, "raw": raw, "normalized": normalized, "minors": minors}


# --- device.allocate_sequence ---------------------------------------------------------------------


class _Story:
    """One run of a sequence, checked step by step against what it itself placed before."""

    def __init__(self, case: Case) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in case.input["nodes"]}
        self.devices = {one["metadata"]["name"]: one for one in case.input["devices"]}
        self.held: dict[str, Any] = {}

    def scene(self, pod: Mapping[str, Any], node: str) -> dict[str, Any]:
        return {
            "node": self.nodes[node],
            "device": self.devices.get(node),
            "pods": list(self.held.values()),
            "pod": pod,
        }

    def take(self, event: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
        """Follow one step; list what is illegal about it."""
        if "release" in event:
            self.held.pop(event["release"], None)
            return []
        if not step.get("allocated"):
            return []
        wrong = checker.violations(self.scene(event["pod"], step["node"]), step["allocated"])
        self.held[step["pod"]] = {
            "metadata": {
                **event["pod"]["metadata"],
                "annotations": {checker.PREFIX + "device-allocated": json.dumps(step["allocated"])},
            },
            "spec": {"nodeName": step["node"], "containers": []},
        }
        return wrong


def judge_sequence(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal; or parting from the reference by a better or newly found placement, and legal throughout."""
    verdict, detail = equality(case, answer)
    ours, theirs = _Story(case), _Story(case)
    parted = case.ruled
    illegal: list[str] = []
    reference: Mapping[str, Any] = {"steps": [], "placed": 0} if case.ruled else case.expectations[0]
    for index, event in enumerate(case.input["events"]):
        mine = answer["steps"][index]
        other = reference["steps"][index] if index < len(reference["steps"]) else None
        if other is not None:
            unsound = theirs.take(event, other)
            illegal.extend(unsound)
            if other != mine and not parted:
                parted = bool(unsound) or _parts_well(ours, event, mine, other)
                if not parted and not case.raw.get("derived"):
                    return Verdict.WRONG, detail
        wrong = ours.take(event, mine)
        if wrong:
            return Verdict.WRONG, f"illegal: step {index}: {wrong}"
    if case.ruled or verdict is Verdict.EQUAL:
        return verdict, detail
    if illegal:
        return Verdict.RULED, f"the reference places illegally: {illegal}"
    if not parted or answer["placed"] < reference["placed"]:
        return Verdict.WRONG, detail
    return Verdict.BETTER, detail


def _parts_well(story: _Story, event: Mapping[str, Any], mine: Any, other: Any) -> bool:
    """Tell whether a step differs for the better, or because a ruling refuses what the reference takes."""
    pod = event["pod"]
    refused = [node for node in mine.get("failed", {}) if node not in other.get("failed", {})]
    if not all(checker.scope_binds_partition(story.scene(pod, node)) for node in refused):
        return False
    if mine.get("allocated") and other.get("allocated") and mine["node"] == other["node"]:
        scene = story.scene(pod, mine["node"])
        ours, theirs = mine["allocated"], other["allocated"]
        return ours == theirs or checker.objective(scene, ours) < checker.objective(scene, theirs)
    dead_ends = [node for node, why in (other.get("failed") or {}).items() if _DEAD_END in why["reasons"]]
    return bool(refused) or any(node not in mine.get("failed", {}) for node in dead_ends)


@subject("device.allocate_sequence", judge=judge_sequence)
def allocate_sequence(case: Case) -> Any:
    states = states_of(case)
    policy = read_policy(case)
    steps: list[Any] = []
    where: dict[str, str] = {}
    for event in case.input["events"]:
        if "release" in event:
            name = event["release"]
            node = where.pop(name, None)
            if node is not None:
                state = states[node]
                states[node] = None if state is None else state.forget(name)
            steps.append({"release": name, "freed": node is not None})
            continue
        steps.append(_place_one(case, event["pod"], states, policy, where))
    return {"steps": steps, "placed": sum(1 for step in steps if step.get("stage") == "done")}


def _place_one(
    case: Case,
    raw: Mapping[str, Any],
    states: dict[str, NodeDevices | None],
    policy: DevicePolicy,
    where: dict[str, str],
) -> dict[str, Any]:
    key = str(read_pod(raw).key)
    found = read_request(case, raw)
    assert found is not None
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found) | {"pod": key}
    failed: dict[str, Any] = {}
    scores: dict[str, int] = {}
    options: dict[str, DeviceAllocation] = {}
    for node, state in states.items():
        placed = allocate_devices(state, found, policy=policy)
        if isinstance(placed, DeviceShortfall):
            failed[node] = {"code": str(placed.code), "reasons": sorted(placed.reasons)}
        else:
            options[node] = placed
            scores[node] = score_devices(state, found, policy=policy)
    step: dict[str, Any] = {"pod": key, "failed": failed}
    if not options:
        return step | {"stage": "filter", "scores": {}}
    chosen = max(scores, key=lambda node: scores[node])
    state = states[chosen]
    if state is not None:
        states[chosen] = state.assume(key, options[chosen])
    where[key] = chosen
    allocated = allocation_to_json(options[chosen]) if options[chosen].devices else None
    return step | {"stage": "done", "scores": scores, "node": chosen, "allocated": allocated}


# --- device.webhook -------------------------------------------------------------------------------


@subject("device.webhook")
def webhook(case: Case) -> Any:
    containers = case.input["pod"]["spec"].get("containers", [])
    amounts = [
        ((one.get("resources") or {}).get("requests") or {}, (one.get("resources") or {}).get("limits") or {})
        for one in containers
    ]
    done = [complete_container(requests, limits) for requests, limits in amounts]
    verdict = validate_containers(requests for requests, _ in amounts)
    return {
        "mutate": {
            "mutated": any(one.mutated for one in done),
            "containers": [
                {"name": raw["name"], "requests": dict(one.requests), "limits": dict(one.limits)}
                for raw, one in zip(containers, done, strict=True)
            ],
        },
        "validate": {
            "allowed": verdict.allowed,
            "reason": verdict.reason,
            "errors": list(verdict.errors),
        },
    }


# --- device.node_resources ------------------------------------------------------------------------


@subject("device.node_resources")
def node_resources(case: Case) -> Any:
    node, device = case.input["node"], case.input.get("device")
    allocatable = (node.get("status") or {}).get("allocatable")
    if allocatable is None:
        return {"error": "missing essential arguments"}
    own = (device or {}).get("metadata", {}).get("labels") or {}
    done = device_resources(
        None if device is None else inventory_from_manifest(device),
        own,
        sync_gpu_shared=case.input["gateShared"],
    )
    return {
        "resources": dict(done.amounts),
        "resets": list(done.resets),
        "labels": dict(done.labels),
        "nodeAllocatable": dict(done.apply_to(parse_resources(allocatable))),
        "nodeLabels": {**(node["metadata"].get("labels") or {}), **done.labels},
    }
