"""Objects of the ``numa.*`` cases: decoding them, and putting pods on nodes one after another."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from koordcore.allocators.node import NodeOffer
from koordcore.allocators.node_batch import NodeVerdicts, node_table
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import (
    NodeAmounts,
    NUMAAllocation,
    allocate_numa,
    filter_numa,
)
from koordcore.allocators.numa_align import PLAIN_ROOM, NUMAAdmission, NUMARoom
from koordcore.allocators.numa_request import (
    CPURequest,
    NUMARefusal,
    completed_resource_spec,
    parse_cpu_request,
)
from koordcore.allocators.numa_state import NUMAState, allocation_of, numa_node_of
from koordcore.allocators.reservation_numa import NUMAReservation, ReservationUse, room_of
from koordcore.errors import ManifestError
from koordcore.model.numa import (
    DEFAULT_NUMA_ARGS,
    CPUAllocation,
    NUMAArgs,
    NUMANodeResource,
)
from koordcore.model.resources import Resources, make_resources, parse_resources, total
from koordcore.protocol.numa import (
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    format_resource_spec,
    format_resource_status,
    resource_spec_of,
)
from koordcore.protocol.numa_args import numa_args_of
from koordcore.protocol.numa_nodes import (
    node_resource_topology_of,
)
from koordcore.protocol.qos import ContainerResources
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from koordcore.topology.cpu import format_cpulist
from koordcore.topology.numa import (
    NUMATopologyPolicy,
    numa_ids,
)
from tests.reference.numa_score import score_numa
from tests.reference.pod_requests import effective_request


def labels_of(raw: Any) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}


def annotations_of(raw: Any) -> dict[str, str]:
    return raw["metadata"].get("annotations") or {}


def container_of(raw: Any) -> ContainerResources:
    resources = raw.get("resources") or {}
    return ContainerResources(
        parse_resources(resources.get("requests") or {}),
        parse_resources(resources.get("limits") or {}),
        raw.get("restartPolicy") == "Always",
    )


def requests_of(pod: Any) -> Resources:
    spec = pod["spec"]
    return make_resources(
        effective_request(
            map(container_of, spec.get("containers") or []),
            map(container_of, spec.get("initContainers") or []),
            overhead=parse_resources(spec.get("overhead") or {}),
        )
    )


def shown_amounts(entries: Sequence[NUMANodeResource]) -> list[dict[str, Any]]:
    return [{"node": entry.node, "resources": dict(entry.resources)} for entry in entries]


def request_of(pod: Any, args: NUMAArgs) -> CPURequest | NUMARefusal | None:
    return parse_cpu_request(
        labels_of(pod), annotations_of(pod), pod["spec"].get("priority"), requests_of(pod), args=args
    )


def status_of(refusal: NUMARefusal) -> dict[str, Any]:
    code = "Unschedulable" if refusal.resolvable else "UnschedulableAndUnresolvable"
    return {"code": code, "reasons": list(refusal.reasons)}


def pre_filter(pod: Any, args: NUMAArgs) -> tuple[dict[str, Any], CPURequest | None]:
    try:
        request = request_of(pod, args)
    except ManifestError:
        return {"code": "Error"}, None
    if request is None:
        return {"code": "Skip"}, None
    if isinstance(request, NUMARefusal):
        status = status_of(request)
        if ANNOTATION_RESOURCE_STATUS in request.reasons[0]:
            del status["reasons"]  # a decoder's message, whose text is free
        return status, None
    return {"code": "Success"}, request


class CaseNode:
    """A node of a case with what runs on it."""

    def __init__(self, raw: Any, nrt: Any, pods: Sequence[Any]) -> None:
        self.name = raw["metadata"]["name"]
        self.allocatable = trimmed_allocatable(
            parse_resources(raw["status"]["allocatable"]), annotations_of(raw)
        )
        self.node = numa_node_of(labels_of(raw), annotations_of(raw), nrt and node_resource_topology_of(nrt))
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}
        found = (self.allocation(pod) for pod in pods if not finished(pod))
        self.state = NUMAState.of(self.node, (one for one in found if one is not None))

    @staticmethod
    def allocation(pod: Any) -> CPUAllocation | None:
        meta = pod["metadata"]
        return allocation_of(
            meta.get("uid") or meta["name"],
            annotations_of(pod),
            namespace=meta.get("namespace", ""),
            name=meta["name"],
        )

    @property
    def amounts(self) -> NodeAmounts:
        return NodeAmounts(
            self.allocatable,
            total(
                requests_of(pod) for pod in self.pods.values() if pod["kind"] == "Pod" and not finished(pod)
            ),
        )


def holds_room(raw: Any) -> bool:
    return raw["kind"] == "Pod" and not finished(raw)


def finished(pod: Any) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def args_of(given: Any) -> NUMAArgs:
    return numa_args_of(given["args"]) if given.get("args") else DEFAULT_NUMA_ARGS


def node_of(given: Any) -> CaseNode:
    held = [*(given.get("reservations") or []), *(given.get("pods") or [])]
    return CaseNode(given["node"], given.get("nrt"), held)


def owns(reservation: Any, pod: Any) -> bool:
    """Tell whether a reservation is for a pod, by the label selectors of its owners."""
    return any(
        all(labels_of(pod).get(key) == value for key, value in labels.items())
        for owner in reservation["spec"]["owners"]
        if (labels := (owner.get("labelSelector") or {}).get("matchLabels"))
    )


def reserved_by(pod: Any) -> str:
    text = annotations_of(pod).get("scheduling.koordinator.sh/reservation-allocated")
    return json.loads(text)["uid"] if text else ""


def reservations_of(given: Any) -> list[NUMAReservation]:
    found = []
    for raw in given.get("reservations") or []:
        uid = raw["metadata"]["uid"]
        owners = [CaseNode.allocation(pod) for pod in given["pods"] if reserved_by(pod) == uid]
        found.append(
            NUMAReservation(
                name=raw["metadata"]["name"],
                uid=uid,
                matched=owns(raw, given["pod"]),
                restricted=raw["spec"].get("allocatePolicy") == "Restricted",
                allocation=CaseNode.allocation(raw) or CPUAllocation(uid=uid),
                owners=tuple(owner for owner in owners if owner is not None),
            )
        )
    return found


def rooms_of(given: Any) -> tuple[NUMARoom, NUMARoom]:
    """Where a pod may find room before and after a reservation is nominated."""
    reservations = reservations_of(given)
    if labels_of(given["pod"]).get("scheduling.koordinator.sh/reservation-ignored") == "true":
        room = room_of(reservations, use=ReservationUse.IGNORED)
        return room, room
    affinity = "scheduling.koordinator.sh/reservation-affinity" in annotations_of(given["pod"])
    use = ReservationUse.REQUIRED if affinity else ReservationUse.OPTIONAL
    nominated = next((one.uid for one in reservations if one.matched), None)
    return room_of(reservations, use=use), room_of(reservations, use=use, nominated=nominated)


def filter_case(
    node: CaseNode, request: CPURequest, args: NUMAArgs, room: NUMARoom = PLAIN_ROOM
) -> NUMAAdmission | NUMARefusal:
    return filter_numa(node.state, request, node.amounts, args=args, room=room)


def score_case(node: CaseNode, request: CPURequest, args: NUMAArgs, admission: NUMAAdmission) -> int:
    """Rate one node as the scheduler rates many.

    A node that upstream's filter lets pass and that cannot serve the pod is refused by the scheduler itself
    (NUMA-13) and never rated; what it would be is worked out aside.
    """
    verdicts = NodeVerdicts(
        node_table([NodeOffer(node.state)]),
        NodeRequest(cpu=request),
        NodeArgs(numa=args),
        allocatable={name: np.array([amount]) for name, amount in node.amounts.allocatable.items()},
        requested={
            name: np.array([node.amounts.requested.get(name, 0)]) for name in node.amounts.allocatable
        },
    )
    if not verdicts.fits()[0]:
        return score_numa(node.state, request, node.amounts, admission, args=args)
    return int(verdicts.scores()[0])


def filter_answer(admission: NUMAAdmission | NUMARefusal) -> dict[str, Any]:
    if isinstance(admission, NUMARefusal):
        return {"filter": status_of(admission)}
    answer: dict[str, Any] = {"filter": {"code": "Success"}}
    if admission.aligned:
        answer["affinity"] = None if admission.mask is None else list(numa_ids(admission.mask))
    return answer


def reserve_answer(
    pod: Any, node: CaseNode, request: CPURequest, allocation: NUMAAllocation | NUMARefusal
) -> dict[str, Any]:
    if isinstance(allocation, NUMARefusal):
        return {"reserve": status_of(allocation)}
    answer: dict[str, Any] = {"reserve": {"code": "Success"}}
    if allocation.written:
        answer["resourceStatus"] = {
            "cpuset": format_cpulist(allocation.status.cpuset),
            "numaNodeResources": shown_amounts(allocation.status.numa_node_resources),
        }
        answer["resourceStatusRaw"] = format_resource_status(allocation.status)
    if allocation.status.cpuset or ANNOTATION_RESOURCE_SPEC in annotations_of(pod):
        spec = completed_resource_spec(resource_spec_of(annotations_of(pod)), request, node.node)
        answer["resourceSpec"] = json.loads(format_resource_spec(spec))
    return answer


class CaseCluster:
    """Nodes of a case that pods are put on one after another."""

    def __init__(self, given: Any) -> None:
        self.args = args_of(given)
        nrts = {nrt["metadata"]["name"]: nrt for nrt in given["nrts"]}
        self.nodes: dict[str, CaseNode] = {}
        for raw in given["nodes"]:
            name = raw["metadata"]["name"]
            pods = [pod for pod in given.get("pods") or [] if pod["spec"].get("nodeName") == name]
            self.nodes[name] = CaseNode(raw, nrts.get(name), pods)

    @classmethod
    def copy(cls, other: CaseCluster) -> CaseCluster:
        """Same state, to be changed apart."""
        twin = copy.copy(other)
        twin.nodes = {name: copy.copy(node) for name, node in other.nodes.items()}
        for node in twin.nodes.values():
            node.pods = dict(node.pods)
        return twin

    def release(self, name: str) -> dict[str, Any]:
        for node in self.nodes.values():
            pod = node.pods.pop(name, None)
            if pod is not None:
                node.state = node.state.removing(pod["metadata"].get("uid") or name)
                return {"released": True}
        return {"released": False}

    def schedule(self, pod: Any) -> dict[str, Any]:
        status, request = pre_filter(pod, self.args)
        answer: dict[str, Any] = {"preFilter": status}
        if request is None:
            return answer
        admissions: dict[str, NUMAAdmission] = {}
        shown = answer["nodes"] = {}
        for name, node in self.nodes.items():
            admission = filter_case(node, request, self.args)
            shown[name] = filter_answer(admission)
            if isinstance(admission, NUMAAdmission):
                admissions[name] = admission
                shown[name]["score"] = score_case(node, request, self.args, admission)
        if not admissions:
            return answer
        chosen = min(admissions, key=lambda name: (-shown[name]["score"], name))
        node = self.nodes[chosen]
        allocation = allocate_numa(node.state, request, admissions[chosen], args=self.args)
        answer["selected"] = chosen
        answer |= reserve_answer(pod, node, request, allocation)
        if isinstance(allocation, NUMAAllocation):
            self._keep(pod, node, request, allocation)
            if admissions[chosen].policy is NUMATopologyPolicy.BEST_EFFORT and not request.designated:
                mask = allocation.mask
                shown[chosen]["affinity"] = None if mask is None else list(numa_ids(mask))
        return answer

    @staticmethod
    def _keep(pod: Any, node: CaseNode, request: CPURequest, allocation: NUMAAllocation) -> None:
        meta = pod["metadata"]
        node.pods[meta["name"]] = pod
        node.state = node.state.adding(
            CPUAllocation(
                uid=meta.get("uid") or meta["name"],
                cpuset=allocation.status.cpuset,
                exclusive=request.exclusive,
                numa_resources=allocation.status.numa_node_resources,
                namespace=meta.get("namespace", ""),
                name=meta["name"],
            )
        )
