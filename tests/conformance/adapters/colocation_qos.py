"""Subjects ``qos.*``: classes and priorities, cpu group identity, resctrl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.colocation.cpuqos import (
    group_identity_rule,
    merged_cpu_qos,
    pod_identity,
)
from koordcore.colocation.resctrl import (
    cache_mask,
    class_schemata,
    new_tasks,
    parse_mask,
    pod_group,
    pod_schemata,
    resctrl_group,
)
from koordcore.errors import ManifestError, ModelError
from koordcore.model.quantity import NANO, parse_exact_quantity
from koordcore.protocol import qos
from koordcore.protocol.pod_qos import ResourceQoS, parse_resctrl, parse_resource_qos
from tests.conformance.core import Case, Missing, subject
from tests.reference import pod_requests


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
    return pod_requests.effective_request(
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
        "priorityValue": pod_requests.priority_value(labels, number, kube),
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


def strategy_of(given: Mapping[str, Any]) -> ResourceQoS | None:
    raw = given.get("resourceQOSStrategy")
    return None if raw is None else parse_resource_qos(raw)


def resctrl_pod(given: Mapping[str, Any]) -> Any:
    schemata = pod_schemata(
        parse_resctrl(given["annotation"]),
        vendor=given["vendor"],
        root=parse_mask(given["cbm"]),
        caches=given["cacheIds"],
    )
    return {
        "group": pod_group(given["uid"]),
        "schemata": schemata.text,
        "l3": {str(cache): f"{mask:x}" for cache, mask in schemata.l3.items()},
        "mb": {str(cache): number for cache, number in schemata.mb.items()},
    }


def resctrl_groups(given: Mapping[str, Any]) -> Any:
    groups = class_schemata(
        strategy_of(given), vendor=given["vendor"], root=parse_mask(given["cbm"]), caches=given["cacheIds"]
    )
    return {
        str(name): {"l3": one.l3, "mb": one.mb} | ({"l3Error": True} if one.problem else {})
        for name, one in groups.items()
    }


def resctrl_answer(given: Mapping[str, Any]) -> Any:
    match given["op"]:
        case "mask":
            return {"mask": f"{cache_mask(parse_mask(given['cbm']), given['start'], given['end']):x}"}
        case "pod":
            return resctrl_pod(given)
        case "groups":
            return resctrl_groups(given)
        case "podGroup":
            pod = given["pod"]
            labels = pod["metadata"].get("labels") or {}
            name = qos.qos_class_with_default(labels, kubernetes_qos_of_pod(pod))
            return {"group": str(resctrl_group(name))}
        case "tasks":
            return {"new": list(new_tasks(given["ids"], given["known"]))}
        case _:
            raise Missing(given["op"])


@subject("qos.resctrl")
def resctrl(case: Case) -> Any:
    try:
        return resctrl_answer(case.input)
    except (ManifestError, ModelError) as error:
        return {"error": (case.raw.get("expect") or {}).get("error", str(error))}


@subject("qos.cpu")
def cpu(case: Case) -> Any:
    given = case.input
    strategy = strategy_of(given)
    rule = group_identity_rule(strategy)
    if given["op"] == "pod":
        pod = given["pod"]
        labels, notes = (pod["metadata"].get(field) or {} for field in ("labels", "annotations"))
        try:
            value = pod_identity(rule, labels, notes, kubernetes_qos_of_pod(pod))
        except ManifestError:
            return {"error": True}
        return {"groupIdentity": value}
    classes = [name for name in qos.QoSClass if name]
    guaranteed = qos.KubernetesQoS.GUARANTEED
    return {
        "enabled": rule.enabled,
        "byKoordQoS": {
            str(name): pod_identity(rule, {qos.LABEL_QOS_CLASS: name}, {}, guaranteed) for name in classes
        },
        "byKubeQoS": {str(name): rule.of_kubernetes(name) for name in qos.KubernetesQoS},
        "kubeQoSDirs": {str(name): rule.of_directory(name) for name in qos.KubernetesQoS},
        "hostApp": {str(name): rule.of_host_application(name) for name in qos.QoSClass},
        "mergedCPUQOS": {
            str(name): {
                "enable": one.enable,
                "groupIdentity": one.group_identity,
                "schedIdle": one.sched_idle,
                "coreExpeller": one.core_expeller,
            }
            for name, one in merged_cpu_qos(strategy).items()
        },
    }
