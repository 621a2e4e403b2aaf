"""CPUs that only the Node reserves are kept back as its agent would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.manifests import snapshot_from_objects
from koordcore.model.numa import NodeResourceTopology
from tests.scheduling.device_objects import Objects, bound, pod, refusal, run

RESERVATION = "node.koordinator.sh/reservation"
STATUS = "scheduling.koordinator.sh/resource-status"
EXCLUSIVE = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}


def machine(on_node: dict[str, Any] | None = None, on_topology: dict[str, Any] | None = None) -> Objects:
    """Eight CPUs, four on each of two NUMA nodes."""
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 4, "socket": 0} for cpu in range(8)]
    zone = [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}]
    told = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    own = {} if on_node is None else {RESERVATION: json.dumps(on_node)}
    copied = {} if on_topology is None else {RESERVATION: json.dumps(on_topology)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "annotations": own},
            "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n", "annotations": {**told, **copied}},
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        },
    ]


@pytest.mark.parametrize("policy", ["", "ReservedCPUsOnly"])
def test_cpus_that_the_node_reserves_are_handed_to_nobody(policy: str) -> None:
    """Whatever becomes of the amounts."""
    reserved = {"reservedCPUs": "0-1,4-5", **({"applyPolicy": policy} if policy else {})}
    wants = [pod(name, {"cpu": "2", "memory": "1Gi"}, labels=EXCLUSIVE) for name in ("a", "b", "c")]
    loaded, result = run(machine(reserved), *wants)
    cpus = [json.loads(bound(result, name).annotations[STATUS])["cpuset"] for name in ("a", "b")]
    assert sorted(cpus) == ["2-3", "6-7"]
    assert refusal(result, "c")
    (warning,) = loaded.warnings
    assert warning.object_name == "NodeResourceTopology n"
    assert warning.message == "CPUs 0-1,4-5 of its Node are reserved here too, as the agent does"


def test_a_topology_that_has_the_copy_says_nothing_more() -> None:
    """Both ways of writing give the same record."""
    reserved = {"reservedCPUs": "0-1"}
    known = snapshot_from_objects(machine(reserved, reserved))
    assert not known.warnings
    (copied,) = known.snapshot.of(NodeResourceTopology)
    (synced,) = snapshot_from_objects(machine(reserved)).snapshot.of(NodeResourceTopology)
    assert synced == copied
    assert [zone.resources["cpu"] for zone in synced.zones] == [2000, 4000]


@pytest.mark.parametrize(
    "text", [{}, {"reservedCPUs": "x"}, {"resources": {"cpu": "2"}}, {"reservedCPUs": "64"}]
)
def test_a_reservation_that_names_no_cpu_of_the_node_keeps_none_back(text: dict[str, Any]) -> None:
    (found,) = snapshot_from_objects(machine(text)).snapshot.of(NodeResourceTopology)
    assert found.reserved_cpus == 0
