"""Subjects ``qos.*``: classes and priorities, cpu group identity, resctrl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.errors import ManifestError
from koordcore.model.quantity import NANO, parse_exact_quantity
from koordcore.protocol import qos
from tests.conformance.core import Case, subject


def exact(raw: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: parse_exact_quantity(text) for name, text in (raw or {}).items()}


def container_of(raw: Mapping[str, Any]) -> qos.ContainerResources:
    resources = raw.get("resources") or {}
    return qos.ContainerResources(
        requests=exact(resources.get("requests")),
        limits=exact(resources.get("limits")),
        restartable=raw.get("restartPolicy") == "Always",
    )


def kubernetes_qos_of_pod(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec") or {}
    stated = str((pod.get("status") or {}).get("qosClass") or "")
    return stated or qos.kubernetes_qos_of(
        [container_of(raw) for raw in spec.get("containers") or []],
        [container_of(raw) for raw in spec.get("initContainers") or []],
        container_of(spec) if spec.get("resources") else None,
    )


def request_of_pod(pod: Mapping[str, Any]) -> dict[str, int]:
    """Effective request in billionths."""
    spec = pod.get("spec") or {}
    return qos.effective_request(
        [container_of(raw) for raw in spec.get("containers") or []],
        [container_of(raw) for raw in spec.get("initContainers") or []],
        overhead=exact(spec.get("overhead")),
        pod_level=exact((spec.get("resources") or {}).get("requests")),
    )


def shown_amount(name: str, amount: int) -> int | str:
    """Milli-cores of cpu, bytes of the rest; a decimal text where bytes are broken."""
    if name == "cpu":
        return -(-amount // 1_000_000)
    return amount // NANO if amount % NANO == 0 else decimal_text(amount)


def decimal_text(amount: int) -> str:
    """Billionths as a decimal text of at least three places, as the vectors print a broken byte."""
    sign, whole, part = "-" if amount < 0 else "", abs(amount) // NANO, abs(amount) % NANO
    return f"{sign}{whole}.{f'{part:09d}'.rstrip('0'):0<3}"


@subject("qos.priority")
def priority(case: Case) -> Any:
    given = case.input
    if given["op"] == "class":
        parsed = qos.parse_priority_class(given["class"])
        return {
            "name": qos.resource_name(given["class"], given["resource"]) or "",
            "defaultPriority": qos.DEFAULT_PRIORITY[parsed],
            "parsed": str(parsed),
        }
    pod = given["pod"]
    labels = pod["metadata"].get("labels") or {}
    number = pod["spec"].get("priority")
    kube = kubernetes_qos_of_pod(pod)
    name = qos.priority_class_with_default(labels, number, kube)
    answer = {
        "priorityClassRaw": str(qos.priority_class_of(labels, number)),
        "priorityClass": str(name),
        "qosRaw": str(qos.qos_class_of(labels)),
        "qos": str(qos.qos_class_with_default(labels, kube)),
        "kubeQoS": str(kube),
        "priorityValue": qos.priority_value(labels, number, kube),
        "cpuName": qos.resource_name(name, "cpu") or "",
        "memoryName": qos.resource_name(name, "memory") or "",
        "request": {
            key: shown_amount(key, amount)
            for key, amount in request_of_pod(pod).items()
            if key in ("cpu", "memory")
        },
    }
    try:
        answer["subPriority"] = qos.sub_priority(labels)
    except ManifestError:
        answer["subPriorityError"] = True
    return answer
