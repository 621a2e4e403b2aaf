"""A pod that brings its devices along, with a scheduling hint for DeviceShare, gets exactly these."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore import verify
from tests.scheduling.device_objects import (
    ALLOCATED,
    KOORD,
    Objects,
    bound,
    card,
    given,
    nic,
    node,
    pod,
    refusal,
    run,
)

HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
OLD_HINT = "scheduling.koordinator.sh/scheduling-hint"
STATUS = "scheduling.koordinator.sh/resource-status"
ONE = {KOORD + "gpu": "100"}
CARDS = [card(minor, numa=minor // 4, pcie=str(minor // 2)) for minor in range(8)]
CLUSTER = [*node("n1", *CARDS), *node("n2", *CARDS)]


def whole(*minors: int) -> dict[str, Any]:
    amounts = {KOORD + "gpu-core": "100", KOORD + "gpu-memory": "80Gi", KOORD + "gpu-memory-ratio": "100"}
    return {"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}


def hint(*plugins: str, nodes: tuple[str, ...] = ("n1",)) -> dict[str, Any]:
    return {"nodeNames": list(nodes), "extensions": {name: {} for name in plugins}}


def designated(
    name: str, devices: dict[str, Any], requests: dict[str, str] = ONE, key: str = HINT
) -> Objects:
    return pod(name, requests, {ALLOCATED: devices, key: hint("DeviceShare")})


@pytest.mark.parametrize("key", [HINT, OLD_HINT])
@pytest.mark.parametrize("minor", [0, 5])
def test_exactly_the_designated_card_is_given(key: str, minor: int) -> None:
    _, result = run(CLUSTER, designated("p", whole(minor), key=key))
    assert given(result, "p") == {"gpu": [minor]}
    assert bound(result, "p").node == "n1"


def test_without_the_hint_the_annotation_is_only_what_is_left_of_an_earlier_try() -> None:
    other = pod("q", ONE, {ALLOCATED: whole(6), HINT: {"nodeNames": ["n1"]}})
    _, result = run(CLUSTER, pod("p", ONE, {ALLOCATED: whole(5)}), other)
    assert given(result, "p") == {"gpu": [0]}
    assert given(result, "q") != {"gpu": [6]}


def test_amounts_need_not_be_written() -> None:
    """A minor alone means as much of the card as is asked for."""
    half = {KOORD + "gpu-core": "50", KOORD + "gpu-memory-ratio": "50"}
    _, result = run(
        CLUSTER, designated("p", {"gpu": [{"minor": 7}]}), designated("h", {"gpu": [{"minor": 3}]}, half)
    )
    assert (given(result, "p"), given(result, "h")) == ({"gpu": [7]}, {"gpu": [3]})


def test_a_card_that_another_pod_holds_is_refused_with_its_name() -> None:
    """Held before, or given away earlier in the same call."""
    running = pod("r", ONE, {ALLOCATED: whole(3)}, on="n1")
    _, result = run(
        CLUSTER, running, designated("a", whole(3)), designated("b", whole(4)), designated("c", whole(4))
    )
    assert "1 gpu 3 is held by default/r" in refusal(result, "a")
    assert given(result, "b") == {"gpu": [4]}
    assert "1 gpu 4 is held by default/b" in refusal(result, "c")


@pytest.mark.parametrize(
    ("devices", "requests", "why"),
    [
        (whole(9), ONE, "designated gpu 9 is not there or not healthy"),
        (whole(1), {KOORD + "gpu": "200"}, "designated gpu 1 is not the 2 asked for"),
        (whole(1, 2), ONE, "designated gpu 1,2 is not the 1 asked for"),
    ],
)
def test_what_cannot_be_given_is_refused(devices: dict[str, Any], requests: dict[str, str], why: str) -> None:
    _, result = run(CLUSTER, designated("p", devices, requests))
    assert refusal(result, "p") == f"0/2 nodes are available: 2 {why}."


def test_an_allocation_that_cannot_be_read_refuses_its_pod_alone() -> None:
    broken = pod("p", ONE, {ALLOCATED: "{", HINT: hint("DeviceShare")})
    _, result = run(CLUSTER, broken, pod("q", ONE))
    assert "unexpected end of JSON input" in refusal(result, "p")
    assert given(result, "q") == {"gpu": [0]}


def test_a_virtual_function_is_found_by_its_bus_on_each_node() -> None:
    """Bus ids are a node's own: of two nodes in equal states only the one with that bus serves the pod."""
    first, second = nic(0, vfs=2), nic(0, vfs=2)
    second["vfGroups"] = [{"vfs": [{"minor": -1, "busID": f"0000:2a:00.{number}"} for number in (1, 2)]}]
    vf = {
        "rdma": [
            {
                "minor": 0,
                "resources": {KOORD + "rdma": "1"},
                "extension": {"vfs": [{"minor": -1, "busID": "0000:2a:00.2"}]},
            }
        ]
    }
    annotations = {
        ALLOCATED: vf,
        HINT: {"extensions": {"DeviceShare": {}}},
        "scheduling.koordinator.sh/device-allocate-hint": {"rdma": {"vfSelector": {}}},
    }
    wants = pod("p", {KOORD + "rdma": "1"}, annotations)
    _, result = run(node("n1", first), node("n2", second), wants)
    decision = bound(result, "p")
    assert decision.node == "n2"
    held = json.loads(decision.annotations[ALLOCATED])["rdma"][0]
    assert held["extension"]["vfs"] == [{"minor": -1, "busID": "0000:2a:00.2"}]


def _topology(name: str) -> Objects:
    """Eight CPUs, four on each of two NUMA nodes."""
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 4, "socket": 0} for cpu in range(8)]
    zone = [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}]
    return [
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        }
    ]


@pytest.mark.parametrize("policy", ["", "Restricted"])
def test_cpus_and_cards_are_designated_together(policy: str) -> None:
    """Both plugins are named in one hint; under a NUMA policy the cards must sit where the CPUs are."""
    labels = {"node.koordinator.sh/numa-topology-policy": policy} if policy else {}
    machine = [*node("n1", *CARDS, labels=labels, amounts={"cpu": "8"}), *_topology("n1")]

    def wants(name: str, minor: int) -> Objects:
        status = {
            "cpuset": "6-7",
            "numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}],
        }
        return pod(
            name,
            {"cpu": "2", "memory": "1Gi", **ONE},
            {
                ALLOCATED: whole(minor),
                STATUS: status,
                HINT: hint("DeviceShare", "NodeNUMAResource"),
                "scheduling.koordinator.sh/resource-spec": {"preferredCPUBindPolicy": "FullPCPUs"},
            },
            labels={"koordinator.sh/qosClass": "LSR"},
        )

    _, result = run(machine, wants("p", 6))
    assert given(result, "p") == {"gpu": [6]}
    assert json.loads(bound(result, "p").annotations[STATUS])["cpuset"] == "6-7"


def test_verify_finds_other_cards_than_the_designated_ones() -> None:
    loaded, result = run(CLUSTER, designated("p", whole(5)))
    decision = bound(result, "p")
    text = json.dumps(whole(4))
    forged = attrs.evolve(decision, annotations={**decision.annotations, ALLOCATED: text})
    (held,) = result.snapshot.node("n1").pods
    snapshot = loaded.snapshot.assume(attrs.evolve(held, annotations={**held.annotations, ALLOCATED: text}))
    found = verify(loaded.snapshot, attrs.evolve(result, decisions=(forged,), snapshot=snapshot))
    assert [one.message for one in found] == ["holds gpu 4 instead of those that it was designated"]
