"""Labels, annotations and NodeResourceTopology objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.errors import ManifestError, ModelError
from koordcore.model.numa import (
    CPUBindPolicy,
    KubeletCPUManager,
    NodeCPUBindPolicy,
    NUMAAllocateStrategy,
    NUMAArgs,
    NUMANodeResource,
    amplify,
)
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.resources import make_resources
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT
from koordcore.protocol.numa import (
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    ResourceSpec,
    ResourceStatus,
    designated_status,
    format_resource_spec,
    format_resource_status,
    numa_topology_spec_of,
    parse_resource_status,
    resource_spec_of,
    resource_status_of,
)
from koordcore.protocol.numa_args import numa_args_of
from koordcore.protocol.numa_nodes import (
    node_allocate_strategy,
    node_bind_policy,
    node_resource_topology_of,
    node_topology_policy,
)
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from koordcore.topology.cpu import format_cpulist, parse_cpulist
from koordcore.topology.numa import NUMATopologyPolicy

DETAIL = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 4} for cpu in range(8)]


def nrt(**annotations: object) -> dict[str, Any]:
    texts = {
        f"node.koordinator.sh/{key.replace('_', '-')}": value if isinstance(value, str) else json.dumps(value)
        for key, value in ({"cpu_topology": {"detail": DETAIL}} | annotations).items()
    }
    zones = [
        {"name": f"node-{numa}", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]}
        for numa in (1, 0)
    ]
    return {"metadata": {"name": "n", "annotations": texts}, "zones": zones}


def spec(text: str) -> ResourceSpec:
    return resource_spec_of({ANNOTATION_RESOURCE_SPEC: text})


def test_a_resource_spec_is_read_leniently() -> None:
    """Keys without case, unknown ones ignored, null and {} mean defaults."""
    assert spec('{"RequiredCPUBindPolicy":"FullPCPUs","x":1}') == ResourceSpec("FullPCPUs")
    assert spec("null") == spec("{}") == resource_spec_of({}) == ResourceSpec()


@pytest.mark.parametrize("text", ["", "[]", "{bad", '{"requiredCPUBindPolicy":1}'])
def test_a_broken_resource_spec_is_an_error_with_its_path(text: str) -> None:
    """The path names the annotation."""
    with pytest.raises(
        ManifestError, match=r"metadata\.annotations\[scheduling\.koordinator\.sh/resource-spec"
    ):
        spec(text)


def test_specs_and_statuses_round_trip() -> None:
    """What is written reads back; empty fields are left out."""
    status = ResourceStatus(
        0b1111, (NUMANodeResource(1, make_resources({"cpu": 3500, "memory": 2**30, "hugepages-2Mi": 2**21})),)
    )
    text = format_resource_status(status)
    assert text == (
        '{"cpuset":"0-3","numaNodeResources":[{"node":1,"resources":'
        '{"cpu":"3500m","hugepages-2Mi":"2Mi","memory":"1Gi"}}]}'
    )
    assert parse_resource_status(text) == status
    assert format_resource_status(ResourceStatus()) == "{}"
    wish = ResourceSpec("", "SpreadByPCPUs", "PCPULevel")
    assert spec(format_resource_spec(wish)) == wish


def test_an_unreadable_status_holds_nothing() -> None:
    """As upstream takes it."""
    assert resource_status_of({ANNOTATION_RESOURCE_STATUS: '{"cpuset":"x"}'}) is None
    assert resource_status_of({}) is None


def test_a_designation_needs_a_hint_for_the_plugin() -> None:
    """The key alone counts; another plugin's hint does not."""
    status = {ANNOTATION_RESOURCE_STATUS: '{"cpuset":"0-3"}'}
    own = {ANNOTATION_SCHEDULING_HINT: '{"extensions":{"NodeNUMAResource":null}}'}
    other = {ANNOTATION_SCHEDULING_HINT: '{"extensions":{"DeviceShare":{}}}'}
    assert designated_status(status | own) == ResourceStatus(0b1111)
    assert designated_status(status | other) is None
    assert designated_status(status) is None
    assert designated_status(own) is None
    assert designated_status(own | {ANNOTATION_RESOURCE_STATUS: "{}"}) is None
    with pytest.raises(ManifestError):
        designated_status(own | {ANNOTATION_RESOURCE_STATUS: "{"})


def test_a_topology_spec() -> None:
    """Texts as they are; the node judges them."""
    key = "scheduling.koordinator.sh/numa-topology-spec"
    found = numa_topology_spec_of({key: '{"numaTopologyPolicy":"Bogus"}'})
    assert found.numa_topology_policy == "Bogus"


def test_reserved_cpus_come_from_four_places() -> None:
    """Kubelet, its pods, the node reservation, exclusive SYSTEM; zones shrink by them."""
    raw = nrt(
        pod_cpu_allocs=[
            {"uid": "u", "cpuset": "2", "managedByKubelet": True},
            {"uid": "u", "cpuset": "3"},
            {"cpuset": "4", "managedByKubelet": True},
        ],
        reservation={"reservedCPUs": "6"},
        system_qos_resource={"cpuset": "7"},
    )
    raw["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"] = (
        '{"policy":"static","reservedCPUs":"0"}'
    )
    found = node_resource_topology_of(raw)
    assert format_cpulist(found.reserved_cpus) == "0,2,6-7"
    assert [(zone.node, zone.resources["cpu"]) for zone in found.zones] == [(0, 2000), (1, 2000)]
    open_system = nrt(system_qos_resource={"cpuset": "7", "cpusetExclusive": False})
    assert node_resource_topology_of(open_system).reserved_cpus == 0


def test_unreadable_annotations_count_as_absent() -> None:
    """The node stays usable without CPUs; a broken CPU manager is told apart."""
    found = node_resource_topology_of(nrt(cpu_topology="{", pod_cpu_allocs="{", system_qos_resource="["))
    assert not found.topology.valid
    assert found.reserved_cpus == 0
    assert len(found.zones) == 2
    raw = nrt()
    raw["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"] = "{"
    assert node_resource_topology_of(raw).kubelet is None


def test_zone_names() -> None:
    """Only type Node, only one number after ``node-``."""
    raw = nrt()
    raw["zones"] = [
        {"name": name, "type": kind, "resources": [{"name": "cpu", "allocatable": "1"}]}
        for name, kind in [("x-node-3", "Node"), ("node-a", "Node"), ("node-1", "Socket"), ("numa-1", "Node")]
    ]
    assert [zone.node for zone in node_resource_topology_of(raw).zones] == [3]


def test_shared_pools_are_kept() -> None:
    """What LS pods run on, as the node reports it."""
    found = node_resource_topology_of(nrt(cpu_shared_pools=[{"socket": 0, "node": 1, "cpuset": "4-7"}]))
    [pool] = found.shared_pools
    assert (pool.node, pool.cpuset) == (1, parse_cpulist("4-7"))


@pytest.mark.parametrize(
    ("names", "policy"),
    [
        (["SingleNUMANodePodLevel"], NUMATopologyPolicy.SINGLE_NUMA_NODE),
        (["x", "Restricted", "BestEffort"], NUMATopologyPolicy.RESTRICTED),
        (["RestrictedPodLevel"], NUMATopologyPolicy.NONE),
        (["SingleNUMANodeContainerLevel"], NUMATopologyPolicy.NONE),
        ([], NUMATopologyPolicy.NONE),
    ],
)
def test_kubelet_policies(names: list[str], policy: NUMATopologyPolicy) -> None:
    """The first known name; what koordlet writes for the first two is not known upstream."""
    assert node_resource_topology_of(nrt() | {"topologyPolicies": names}).policy is policy


def test_policies_of_a_node() -> None:
    """Labels first, then the kubelet; unknown texts say nothing, or are refused later."""
    bind = "node.koordinator.sh/cpu-bind-policy"
    static = KubeletCPUManager(policy="static", options={"full-pcpus-only": "true"})
    assert node_bind_policy({bind: "SpreadByPCPUs"}) is NodeCPUBindPolicy.SPREAD_BY_PCPUS
    assert node_bind_policy({bind: "SpreadByPCPUs"}, static) is NodeCPUBindPolicy.FULL_PCPUS_ONLY
    assert node_bind_policy({bind: "bogus"}) is NodeCPUBindPolicy.NONE
    assert node_bind_policy({}, KubeletCPUManager(policy="static")) is NodeCPUBindPolicy.NONE
    topology = "node.koordinator.sh/numa-topology-policy"
    assert node_topology_policy({topology: "None"}, NUMATopologyPolicy.RESTRICTED) == "None"
    assert node_topology_policy({topology: ""}, NUMATopologyPolicy.RESTRICTED) == "Restricted"
    strategy = "node.koordinator.sh/numa-allocate-strategy"
    assert node_allocate_strategy({strategy: "typo"}) is NUMAAllocateStrategy.LEAST_ALLOCATED
    assert node_allocate_strategy({strategy: "MostAllocated"}) is NUMAAllocateStrategy.MOST_ALLOCATED
    assert node_allocate_strategy({}) is None


def test_amplification() -> None:
    """Double arithmetic rounded up, and capped."""
    assert [amplify(3000, ratio) for ratio in (1.1, 1.0, 0.5)] == [3301, 3000, 3000]
    assert amplify(10**18, 1e300) == 2**63 - 1


def test_a_node_reservation_trims_allocatable() -> None:
    """Listed CPUs count instead of the quantity; batch amounts appear; nothing goes below zero."""
    free = {"cpu": 8000, "memory": 4}
    trimmed = trimmed_allocatable(free, _reservation({"resources": {"cpu": "10"}, "reservedCPUs": "0-1"}))
    assert trimmed == {
        "cpu": 6000,
        "memory": 4,
        "kubernetes.io/batch-cpu": 0,
        "kubernetes.io/batch-memory": 0,
    }
    assert trimmed_allocatable(free, _reservation({"resources": {"memory": "9"}}))["memory"] == 0
    only = {"resources": {"cpu": "2"}, "applyPolicy": "ReservedCPUsOnly"}
    for raw in (only, {"reservedCPUs": "x"}, {}):
        assert trimmed_allocatable(free, _reservation(raw)) == free


def _reservation(raw: object) -> dict[str, str]:
    return {"node.koordinator.sh/reservation": json.dumps(raw)}


def test_arguments() -> None:
    """Defaults stand for a strategy as a whole."""
    assert numa_args_of({}) == NUMAArgs()
    most = numa_args_of({"numaScoringStrategy": {"type": "MostAllocated"}})
    assert most.allocate_strategy is NUMAAllocateStrategy.MOST_ALLOCATED
    assert most.weights == (("cpu", 1), ("memory", 1))
    assert numa_args_of({"scoringStrategy": {"type": "MostAllocated"}}).weights == ()
    assert numa_args_of({"defaultCPUBindPolicy": ""}).default_bind_policy is None


@pytest.mark.parametrize(
    "raw",
    [
        {"defaultCPUBindPolicy": "Default"},
        {"scoringStrategy": {"type": "Bogus"}},
        {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 0}]}},
    ],
)
def test_arguments_that_upstream_refuses(raw: dict[str, object]) -> None:
    """Each with its path."""
    with pytest.raises(ManifestError):
        numa_args_of(raw)


def test_arguments_are_checked_when_made_by_hand() -> None:
    """The record refuses what no configuration may hold."""
    with pytest.raises(ModelError):
        NUMAArgs(default_bind_policy=CPUBindPolicy.CONSTRAINED_BURST)
    with pytest.raises(ModelError):
        NUMAArgs(weights=(("cpu", 101),))
    with pytest.raises(ModelError):
        NUMAArgs(scoring=ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO)
