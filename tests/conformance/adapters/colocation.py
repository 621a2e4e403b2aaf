"""Subjects ``colocation.*``: batch and mid overcommit, configuration, writing to nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from immutabledict import immutabledict

from koordcore.colocation.batch import Batch, Degraded, Failed, batch_of_node
from koordcore.colocation.config import (
    CONFIG_KEY,
    Admitted,
    ConfigState,
    admit_config,
    effective_strategy,
    is_disabled,
    is_node_strategy_valid,
    is_strategy_valid,
)
from koordcore.colocation.mid import Mid, mid_of_node
from koordcore.errors import ManifestError
from koordcore.model.colocation import NodeLoad, PodLoad
from koordcore.model.metrics import NOTHING_MEASURED, parse_measured
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol import qos
from koordcore.protocol.colocation import numa_nodes_of, parse_node_strategy, parse_strategy
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.reserved_on_node import reserved_exactly
from koordcore.protocol.times import parse_timestamp
from tests.conformance.adapters.colocation_qos import (
    decimal_text,
    kubernetes_qos_of_pod,
    request_of_pod,
)
from tests.conformance.core import Case, Missing, subject
from tests.reference.colocation_objects import format_config, format_strategy, parse_zones


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
        reserved=lenient(reserved_exactly, node["metadata"].get("annotations") or {}, NOTHING_MEASURED),
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


def state_answer(state: ConfigState) -> dict[str, Any]:
    return {
        "available": state.available,
        "errorStatus": state.error,
        "config": format_config(state.config),
    }


def config_load(given: Mapping[str, Any]) -> Any:
    state, answers = ConfigState(), []
    for index, step in enumerate(given["steps"]):
        before = state
        state = ConfigState.missing() if step is None else state.after(step.get("text"))
        changed = {"changed": state.config != before.config} if index else {}
        answers.append(state_answer(state) | changed)
    return answers


def config_effective(given: Mapping[str, Any]) -> Any:
    state = ConfigState().after(given["text"])
    if not state.available:
        return {"available": False}
    metadata = given["node"]["metadata"]
    strategy = effective_strategy(
        state.config, metadata.get("labels") or {}, metadata.get("annotations") or {}
    )
    return {
        "available": True,
        "disabled": is_disabled(state.config, strategy),
        "strategy": format_strategy(strategy),
    }


def config_admit(given: Mapping[str, Any], expected: Mapping[str, Any]) -> Any:
    nodes = [(node["metadata"]["name"], node["metadata"].get("labels") or {}) for node in given["nodes"]]
    verdict = admit_config(given["text"], old=given.get("old"), nodes=nodes)
    if isinstance(verdict, Admitted):
        return {"allowed": True}
    answer: dict[str, Any] = {"allowed": False, "reason": str(verdict.reason)}
    if verdict.strategies:
        answer["message"] = {"config": CONFIG_KEY, "strategies": list(verdict.strategies)} | (
            {"exampleNodes": list(verdict.example_nodes)} if verdict.example_nodes else {}
        )
    elif "message" in expected:
        answer["message"] = dict(verdict.fields) or verdict.message
    return answer


@subject("colocation.config")
def config(case: Case) -> Any:
    given = case.input
    match given["op"]:
        case "load":
            return config_load(given)
        case "effective":
            return config_effective(given)
        case "valid":
            strategy = given["strategy"]
            return {"valid": strategy is not None and is_strategy_valid(parse_strategy(strategy))}
        case "nodeCfgValid":
            entry = given["nodeConfig"]
            return {"valid": is_node_strategy_valid(None if entry is None else parse_node_strategy(entry))}
        case "admit":
            return config_admit(given, case.raw.get("expect") or {})
        case _:
            raise Missing(given["op"])
