"""Adapters of ``device.*``: they put wire objects into library calls and judge placements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from immutabledict import immutabledict

from koordcore.allocators.device import (
    DevicePolicy,
    NodeDevices,
    allocate_devices,
    device_request_of,
    node_devices,
    score_devices,
)
from koordcore.allocators.device.admission import complete_container, validate_containers
from koordcore.allocators.device.allocate import partition_of
from koordcore.allocators.device.answers import planned_types
from koordcore.allocators.device.reservations import DeviceReservation
from koordcore.allocators.device.view import view_of
from koordcore.allocators.device.wants import wants_of
from koordcore.errors import ManifestError
from koordcore.model.containers import Container
from koordcore.model.device_requests import (
    DeviceRequest,
    PartitionAllocatePolicy,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
    GPUPartition,
    StatusCode,
)
from koordcore.model.pods import Pod
from koordcore.model.resources import parse_resources
from koordcore.protocol.device import allocation_to_json, parse_allocation, replace_deprecated
from koordcore.protocol.device_amounts import device_resources
from koordcore.protocol.device_args import device_policy_of
from koordcore.protocol.device_object import (
    device_object_from_manifest,
    inventory_of,
    parse_partition_table,
    templates_from_manifest,
)
from tests.conformance.core import Case, subject
from tests.conformance.device_judge import (
    judge_hints,
    judge_partitions,
    judge_placement,
    judge_request,
    judge_score,
    judge_sequence,
)
from tests.reference.device_hints import device_hints
from tests.reference.device_scores import normalize_scores
from tests.reference.reserved_devices import allocate_reserved

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
    inventory = None if device is None else inventory_of(device_object_from_manifest(device), labels)
    return node_devices(inventory, holders, node=name)


def holder_of(reservation: Mapping[str, Any]) -> str:
    return f"Reservation/{reservation['metadata']['name']}"


def refusal(stage: str, short: DeviceShortfall) -> dict[str, Any]:
    return {"stage": stage, "code": str(short.code), "reasons": sorted(short.reasons)}


_SKIP = {"stage": "prefilter", "code": "Skip", "reasons": []}


# --- device.request -------------------------------------------------------------------------------


@subject("device.request", judge=judge_request)
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
        "reservationRequired": found.loan_required,
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


@subject("device.partitions", judge=judge_partitions)
def partitions(case: Case) -> Any:
    found = read_request(case, case.input["pod"])
    if isinstance(found, DeviceShortfall):
        return refusal("prefilter", found)
    device, node = case.input["device"], case.input["node"]
    inventory = inventory_of(device_object_from_manifest(device), node["metadata"].get("labels") or {})
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


subject("device.allocate", judge=judge_placement)(allocate_case)
subject("device.missed", judge=judge_placement)(allocate_case)


# --- device.hints ---------------------------------------------------------------------------------


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
        None if device is None else inventory_of(device_object_from_manifest(device)),
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
