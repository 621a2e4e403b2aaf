"""Whatever stands in annotations and objects: an error with a path, or an answer; never anything else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings, strategies as st

from koordcore.allocators.node import NodeOffer
from koordcore.allocators.node_batch import NodeVerdicts, node_table
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa import NodeAmounts
from koordcore.allocators.numa_request import CPURequest, parse_cpu_request
from koordcore.allocators.numa_state import NUMAState, allocation_of, numa_node_of
from koordcore.errors import ManifestError
from koordcore.model.resources import make_resources
from koordcore.protocol.numa_nodes import node_resource_topology_of
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from tests.reference.numa_score import fit_numa

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-2, 70) | st.floats(allow_nan=False)
WORDS = st.sampled_from(
    [
        "0-3",
        "0-1,4",
        "x",
        "cpu",
        "memory",
        "4",
        "1e30",
        "-1",
        "8Gi",
        "node-0",
        "node-1",
        "node--1",
        "node-99999999999",
        "Node",
        "FullPCPUs",
        "Default",
        "SingleNUMANode",
        "static",
        "2000m",
    ]
) | st.just("")
KEYS = st.sampled_from(
    [
        "cpuset",
        "numaNodeResources",
        "node",
        "resources",
        "detail",
        "id",
        "core",
        "socket",
        "policy",
        "reservedCPUs",
        "options",
        "requiredCPUBindPolicy",
        "preferredCPUBindPolicy",
        "numaTopologyPolicy",
        "extensions",
        "NodeNUMAResource",
        "cpu",
        "memory",
        "uid",
        "managedByKubelet",
        "cpusetExclusive",
        "name",
        "type",
        "allocatable",
        "zones",
        "applyPolicy",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TEXTS = JSON.map(json.dumps) | st.sampled_from(["", "{", "[", "null", '{"cpu":1e999}'])


def _annotations(keys: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), TEXTS, max_size=len(keys))


POD = _annotations(
    [
        "scheduling.koordinator.sh/resource-spec",
        "scheduling.koordinator.sh/resource-status",
        "scheduling.koordinator.sh/numa-topology-spec",
        "internal.scheduling.koordinator.sh/scheduling-hint",
    ]
)
NODE = _annotations(
    [
        "node.koordinator.sh/resource-amplification-ratio",
        "node.koordinator.sh/reservation",
        "node.koordinator.sh/cpu-topology",
        "node.koordinator.sh/pod-cpu-allocs",
        "node.koordinator.sh/system-qos-resource",
        "node.koordinator.sh/cpu-shared-pools",
        "kubelet.koordinator.sh/cpu-manager-policy",
    ]
)
ZONE = st.fixed_dictionaries(
    {"name": WORDS, "type": st.just("Node")},
    optional={"resources": st.lists(st.fixed_dictionaries({"name": WORDS, "allocatable": JSON}), max_size=3)},
)


@settings(max_examples=43, deadline=None)
@given(POD, NODE, st.lists(ZONE | JSON, max_size=3), st.dictionaries(KEYS, NUMBERS, max_size=3))
def test_hostile_input_is_an_error_or_an_answer(
    pod: dict[str, str], node: dict[str, str], zones: list[Any], amounts: dict[str, Any]
) -> None:
    raw = {"metadata": {"name": "n", "annotations": node}, "zones": zones}
    try:
        nrt = node_resource_topology_of(raw)
    except ManifestError:
        nrt = None
    labels = {"node.koordinator.sh/numa-topology-policy": "Restricted"}
    trimmed_allocatable({"cpu": 8000}, node)
    held = allocation_of("u", pod)
    state = NUMAState.of(numa_node_of(labels, node, nrt), [] if held is None else [held])
    requests = {name: abs(int(amount)) for name, amount in amounts.items() if abs(amount) < 2**63}
    try:
        request = parse_cpu_request({"koordinator.sh/qosClass": "LSR"}, pod, 9500, requests | {"cpu": 2000})
    except ManifestError:
        return
    if not isinstance(request, CPURequest):
        return
    fit_numa(state, request, NodeAmounts(make_resources({"cpu": 10**6})))
    fit_numa(NUMAState(state.node), request)
    verdicts = NodeVerdicts(node_table([NodeOffer(state)]), NodeRequest(cpu=request))
    verdicts.fits()
    verdicts.reasons()
    verdicts.scores()
