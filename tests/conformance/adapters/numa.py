"""CPUs and NUMA nodes in themselves: ``cpu.take``, ``numa.merge``, ``numa.spec``."""

from __future__ import annotations

from typing import Any

from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.allocators.cpuset import allocate_cpus, available_cpus
from koordcore.allocators.numa_request import (
    CPURequest,
    NUMARefusal,
    demand_on,
)
from koordcore.allocators.numa_state import numa_node_of
from koordcore.errors import ManifestError
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMAAllocateStrategy,
    amplify,
)
from koordcore.model.resources import CPU, make_resources, parse_resources
from koordcore.protocol.normalization import parse_amplification
from koordcore.protocol.numa import (
    resource_spec_of,
)
from koordcore.protocol.numa_args import numa_args_of
from koordcore.protocol.numa_nodes import LABEL_NODE_NUMA_ALLOCATE_STRATEGY, node_resource_topology_of
from koordcore.protocol.qos import (
    kubernetes_qos_of,
    may_use_cpuset,
    priority_class_of,
    priority_class_with_default,
    qos_class_of,
    qos_class_with_default,
)
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from koordcore.topology.cpu import CPUTopology, format_cpulist, parse_cpulist
from koordcore.topology.numa import NUMAExclusive, NUMAHint, NUMAStatus, NUMATopologyPolicy, mask_of, numa_ids
from tests.conformance.core import Case, Verdict, equality, subject
from tests.conformance.numa_objects import (
    annotations_of,
    container_of,
    labels_of,
    pre_filter,
    shown_amounts,
)
from tests.reference.cpu_masks import cpu_ids
from tests.reference.numa_merge import merge_hints


def _known(kind: Any, text: str, default: Any) -> Any:
    """Read an enum; a text that names nothing means the default, as in the reference."""
    return kind(text) if text in list(kind) else default


@subject("cpu.take")
def take(case: Case) -> Any:
    given = case.input
    topology = CPUTopology.of(
        (cpu, core, numa, socket) for socket, numa, core, *cpus in given["cores"] for cpu in cpus
    )
    holdings = CPUHoldings()
    for holder in given["holders"]:
        exclusive = _known(CPUExclusivePolicy, holder["exclusive"], CPUExclusivePolicy.NONE)
        holdings = holdings.taking(parse_cpulist(holder["cpuset"]), exclusive)
    preferred = parse_cpulist(given["preferred"])
    holdings = holdings.giving_back(preferred).giving_back(parse_cpulist(given["preemptible"]))
    wish = CPUWish(
        bind_policy=_known(CPUBindPolicy, given["bindPolicy"], CPUBindPolicy.DEFAULT),
        required=given["required"],
        exclusive=_known(CPUExclusivePolicy, given["exclusive"], CPUExclusivePolicy.NONE),
        strategy=_known(NUMAAllocateStrategy, given["strategy"], NUMAAllocateStrategy.LEAST_ALLOCATED),
        max_ref_count=given["maxRefCount"],
    )
    reserved = parse_cpulist(given["reserved"])
    free = available_cpus(topology, holdings, reserved=reserved, max_ref_count=wish.max_ref_count)
    answer: dict[str, Any] = {"available": format_cpulist(free)}
    taken = allocate_cpus(topology, holdings, given["n"], wish, reserved=reserved, preferred=preferred)
    if isinstance(taken, CPUShortage):
        return answer | {"error": str(taken)}
    return answer | {"cpuset": format_cpulist(taken), "size": taken.bit_count()}


def _hint_of(raw: Any) -> NUMAHint:
    mask = None if raw["mask"] is None else mask_of(raw["mask"])
    return NUMAHint(mask, raw["preferred"], raw["score"], raw["unsatisfied"])


def _free_reasons(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Judge by equality; an expected reason ``?`` leaves the text free."""
    expected = case.raw.get("expect")
    if isinstance(expected, dict) and expected.get("reasons") == ["?"] and answer["reasons"]:
        answer = answer | {"reasons": ["?"]}
    return equality(case, answer)


@subject("numa.merge", judge=_free_reasons)
def merge(case: Case) -> Any:
    given = case.input
    policy = NUMATopologyPolicy.NONE if given["policy"] == "none" else NUMATopologyPolicy(given["policy"])
    providers = [
        provider
        and {
            name: None if hints is None else [_hint_of(hint) for hint in hints]
            for name, hints in provider.items()
        }
        for provider in given["providers"]
    ]
    merged = merge_hints(
        policy,
        given["numaNodes"],
        providers,
        exclusive=NUMAExclusive(given["exclusive"]),
        status={numa: NUMAStatus(text) for numa, text in enumerate(given["numaStatus"])},
    )
    answer: dict[str, Any] = {"admit": merged.admitted, "reasons": list(merged.reasons)}
    if merged.admitted:
        mask = merged.hint.mask
        answer["hint"] = {
            "mask": None if mask is None else list(numa_ids(mask)),
            "preferred": merged.hint.preferred,
            "score": merged.hint.score,
        }
    return answer


@subject("numa.spec")
def spec(case: Case) -> Any:
    return _SPECS[case.input["kind"]](case.input)


def _spec_cpuset(given: Any) -> Any:
    try:
        cpus = parse_cpulist(given["text"])
    except ManifestError:
        return {"error": True}
    answer: dict[str, Any] = {"text": format_cpulist(cpus)}
    return answer if cpus.bit_count() > 64 else answer | {"cpus": list(cpu_ids(cpus))}


def _spec_amplify(given: Any) -> Any:
    return {"value": amplify(given["value"], given["ratio"])}


def _spec_args(given: Any) -> Any:
    try:
        args = numa_args_of(given["args"])
    except ManifestError:
        return {"error": True}
    return {
        "defaultCPUBindPolicy": args.default_bind_policy or "",
        "numaAllocateStrategy": args.allocate_strategy,
        "numaScoring": args.numa_scoring,
        "scoring": args.scoring,
        "weights": dict(args.weights),
    }


def _spec_pod(given: Any) -> Any:
    pod = given["pod"]
    labels, priority, pod_spec = labels_of(pod), pod["spec"].get("priority"), pod["spec"]
    kubernetes_qos = kubernetes_qos_of(
        map(container_of, pod_spec.get("containers") or []),
        map(container_of, pod_spec.get("initContainers") or []),
    )
    status, request = pre_filter(pod, numa_args_of(given.get("args") or {}))
    answer = {
        "qosRaw": qos_class_of(labels),
        "qos": qos_class_with_default(labels, kubernetes_qos),
        "priorityClassRaw": priority_class_of(labels, priority),
        "priorityClass": priority_class_with_default(labels, priority, kubernetes_qos),
        "mayUseCPUSet": may_use_cpuset(labels, priority),
        "preFilter": status,
    }
    if request is None:
        return answer
    written = resource_spec_of(annotations_of(pod)).preferred_cpu_exclusive_policy
    state: dict[str, Any] = {
        "bind": request.bind,
        "cpusNeeded": request.cpus_needed,
        "exclusive": written if request.bind else "",
        "numaExclusive": request.numa_exclusive,
        "numaPolicy": request.numa_policy,
        "preferred": request.preferred or "",
        "requests": dict(request.requests),
        "required": request.required or "",
    }
    if request.designated is not None:
        state["designated"] = {
            "cpuset": format_cpulist(request.designated.cpuset),
            "numaNodeResources": shown_amounts(request.designated.numa_node_resources),
        }
    return answer | {"state": state}


def _spec_nrt(given: Any) -> Any:
    nrt = node_resource_topology_of(given["nrt"])
    topology = nrt.topology
    answer: dict[str, Any] = {
        "maxRefCount": nrt.max_ref_count,
        "numaTopologyPolicy": nrt.policy,
        "reservedCPUs": format_cpulist(nrt.reserved_cpus),
        "topology": {
            "cores": topology.num_cores,
            "cpus": topology.num_cpus,
            "cpusPerCore": topology.cpus_per_core,
            "cpusPerNode": topology.cpus_per_node,
            "cpusPerSocket": topology.cpus_per_socket,
            "nodes": topology.num_nodes,
            "sockets": topology.num_sockets,
            "valid": topology.valid,
        },
        "zones": shown_amounts(nrt.zones),
    }
    if nrt.kubelet is not None:
        fields: dict[str, Any] = {
            "policy": nrt.kubelet.policy,
            "options": dict(nrt.kubelet.options),
            "reservedCPUs": format_cpulist(nrt.kubelet.reserved_cpus),
        }
        answer["kubeletPolicy"] = {name: value for name, value in fields.items() if value}
    if nrt.amplification_ratios:
        answer["amplificationRatios"] = dict(nrt.amplification_ratios)
    return answer


def _spec_node(given: Any) -> Any:
    raw = given["node"]
    labels, annotations = labels_of(raw), annotations_of(raw)
    nrt = node_resource_topology_of(given["nrt"])
    node = numa_node_of(labels, annotations, nrt)
    strategy = node.strategy or numa_args_of(given.get("args") or {}).allocate_strategy
    merged = demand_on(CPURequest(requests=make_resources({CPU: 1000}), numa_policy=given["podPolicy"]), node)
    answer: dict[str, Any] = {
        "allocatable": dict(trimmed_allocatable(parse_resources(raw["status"]["allocatable"]), annotations)),
        "cpuBindPolicy": node.bind_policy or "None",
        # The reference shows the label as it is, the library what it orders like.
        "numaAllocateStrategy": labels.get(LABEL_NODE_NUMA_ALLOCATE_STRATEGY) or strategy,
        "numaTopologyPolicy": node.policy,
    }
    if isinstance(merged, NUMARefusal):
        answer["mergedError"] = merged.reasons[0]
    else:
        answer["mergedPolicy"] = merged.policy
    try:
        answer["cpuRatio"] = parse_amplification(annotations).get(CPU, -1)
    except ManifestError:
        answer["cpuRatioError"] = True
        answer["amplifyError"] = True
    else:
        answer["amplifiedZones"] = shown_amounts(node.zones)
    return answer


_SPECS = {
    "cpuset": _spec_cpuset,
    "amplify": _spec_amplify,
    "args": _spec_args,
    "pod": _spec_pod,
    "nrt": _spec_nrt,
    "node": _spec_node,
}
