"""Subjects ``colocation.*``: batch and mid overcommit, configuration, writing to nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from immutabledict import immutabledict

from koordcore.colocation.batch import Batch, Degraded, Failed, batch_of_node
from koordcore.colocation.mid import Mid, mid_of_node
from koordcore.errors import ManifestError
from koordcore.model.colocation import NodeLoad, PodLoad
from koordcore.model.metrics import NOTHING_MEASURED, parse_measured
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol import qos
from koordcore.protocol.colocation import numa_nodes_of, parse_strategy, parse_zones, reserved_of
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.times import parse_timestamp
from tests.conformance.adapters.colocation_qos import (
    decimal_text,
    kubernetes_qos_of_pod,
    request_of_pod,
)
from tests.conformance.core import Case, subject


def lenient(read: Callable[[Mapping[str, str]], Any], annotations: Mapping[str, str], default: Any) -> Any:
    try:
        return read(annotations)
    except ManifestError:
        return default


def pod_load(pod: Mapping[str, Any]) -> PodLoad:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    kube = kubernetes_qos_of_pod(pod)
    return PodLoad(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        request=immutabledict(request_of_pod(pod)),
        priority_class=qos.priority_class_with_default(labels, pod["spec"].get("priority"), kube),
        qos=qos.qos_class_with_default(labels, kube),
        phase=(pod.get("status") or {}).get("phase", ""),
        numa_nodes=lenient(numa_nodes_of, metadata.get("annotations") or {}, ()),
    )


def node_load(given: Mapping[str, Any]) -> NodeLoad:
    node = given["node"]
    status = node.get("status") or {}
    allocatable = status.get("allocatable")
    metric = given.get("nodeMetric")
    topology = given.get("nodeResourceTopology")
    if topology and topology["metadata"].get("name") != node["metadata"]["name"]:
        topology = None
    return NodeLoad(
        name=node["metadata"]["name"],
        capacity=parse_measured(status.get("capacity") or {}),
        allocatable=None if allocatable is None else parse_measured(allocatable),
        reserved=lenient(reserved_of, node["metadata"].get("annotations") or {}, NOTHING_MEASURED),
        pods=tuple(pod_load(pod) for pod in given.get("pods") or []),
        metric=parse_node_metric(metric) if metric else None,
        zones=parse_zones(topology),
    )


def batch_answer(given: Mapping[str, Any]) -> dict[str, Any]:
    outcome = batch_of_node(
        node_load(given), parse_strategy(given.get("strategy") or {}), parse_timestamp(given["now"])
    )
    match outcome:
        case Batch():
            answer: dict[str, Any] = {
                "result": "ok",
                "resources": {
                    name: amount // 10**9 if amount % 10**9 == 0 else decimal_text(amount)
                    for name, amount in outcome.exact.items()
                },
                "messages": {BATCH_CPU: outcome.cpu.message, BATCH_MEMORY: outcome.memory.message},
            }
            if outcome.zones:
                answer["zones"] = {name: dict(amounts) for name, amounts in outcome.zones.items()}
            return answer
        case Degraded(message):
            return {"result": "degraded", "messages": {BATCH_CPU: message, BATCH_MEMORY: message}}
        case Failed():
            return {"result": "error"}


@subject("colocation.batch")
def batch(case: Case) -> Any:
    return batch_answer(case.input)


@subject("colocation.batch_numa")
def batch_numa(case: Case) -> Any:
    return batch_answer(case.input)


@subject("colocation.mid")
def mid(case: Case) -> Any:
    given = case.input
    outcome = mid_of_node(
        node_load(given), parse_strategy(given.get("strategy") or {}), parse_timestamp(given["now"])
    )
    match outcome:
        case Mid():
            return {
                "result": "ok",
                "resources": dict(outcome.resources),
                "messages": {MID_CPU: outcome.cpu.message, MID_MEMORY: outcome.memory.message},
            }
        case Degraded(message):
            return {"result": "degraded", "messages": {MID_CPU: message, MID_MEMORY: message}}
        case Failed(message):
            expected = case.raw.get("expect") or {}
            return {"result": "error"} | ({"error": message} if "error" in expected else {})
