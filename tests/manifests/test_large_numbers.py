"""Numbers that no cluster has: whoever writes them is hurt alone, and nobody gives them room."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from koordcore import Bound, schedule, verify
from koordcore.descheduling.card_moves import fragments_of
from koordcore.explaining.node_states import cards_of
from koordcore.manifests import Loaded, snapshot_from_objects
from koordcore.model.devices import MOST_CARDS, DeviceObject
from koordcore.model.numa import NodeResourceTopology
from koordcore.simulate.cluster import nodes_of
from tests.manifests.builders import container, node, obj, pod

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/gpu-memory": "80Gi",
}
SHARE = {"koordinator.sh/gpu-core": "20", "koordinator.sh/gpu-memory-ratio": "20"}
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "10"}


def device(**entry: Any) -> dict[str, Any]:
    card = {"type": "gpu", "minor": 0, "id": "GPU-0", "health": True, "resources": CARD, **entry}
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": "n1"}}
    return {**kind, "spec": {"devices": [card]}}


def holding(note: Any, key: str = ALLOCATED) -> dict[str, Any]:
    """A pod that runs and says what it holds."""
    text = note if isinstance(note, str) else json.dumps(note)
    requests = [container(requests={"cpu": "1"})]
    return pod("old", nodeName="n1", containers=requests, metadata={"annotations": {key: text}})


def asking(name: str = "new", **requests: str) -> dict[str, Any]:
    return pod(name, containers=[container(requests=requests, limits=requests)])


def decided(*objects: Any) -> tuple[Loaded, dict[str, str]]:
    """What was read, and each pod's node or message; the plan is legal."""
    loaded = snapshot_from_objects([copy.deepcopy(one) for one in objects])
    result = schedule(loaded.snapshot)
    assert verify(loaded.snapshot, result) == ()
    told = {one.pod.name: one.node if isinstance(one, Bound) else str(one) for one in result.decisions}
    return loaded, told


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (ALLOCATED, "{", "unexpected end of JSON input"),
        (ALLOCATED, "[]", "cannot unmarshal array"),
        (ALLOCATED, {"gpu": [{"minor": -1}]}, "a minor is not negative: -1"),
        (
            ALLOCATED,
            {"gpu": [{"minor": 0, "resources": CARD}, {"minor": 1024}]},
            "a minor is at most 1023: 1024",
        ),
        (ALLOCATED, {"gpu": [{"minor": 10**19}]}, "a minor is at most 1023"),
        (STATUS, {"cpuset": "x"}, 'CPU list "x": expected a number, got "x"'),
        (STATUS, {"numaNodeResources": [{"node": 1024}]}, "expected a NUMA node of at most 1023, got 1024"),
    ],
)
def test_nobody_joins_a_pod_that_holds_what_cannot_be_read(key: str, text: Any, why: str) -> None:
    loaded, told = decided(node("n1", ROOM), device(), holding(text, key), asking(cpu="1"))
    (problem,) = loaded.problems
    assert problem.path.startswith(f"metadata.annotations[{key}]")
    assert why in problem.message
    assert "held a pod that cannot be read: default/old" in told["new"]


def test_who_holds_less_than_nothing_of_one_resource_holds_the_others() -> None:
    debt = {**CARD, "koordinator.sh/gpu-memory": "-5"}
    loaded, told = decided(
        node("n1", ROOM),
        device(),
        holding({"gpu": [{"minor": 0, "Resources": debt}, None]}),
        asking(cpu="1", **SHARE),
    )
    assert loaded.problems == ()
    assert [one.message for one in loaded.warnings if one.object_name == "Pod old"] == [
        '"-5" counts for nothing'
    ]
    assert "Insufficient" in told["new"]


def test_what_others_have_too_much_of_is_no_fault_of_who_takes_none() -> None:
    """The card reports no memory, of which an old pod holds some, and a share of it comes with none."""
    mine = {
        "koordinator.sh/gpu-core": "20",
        "koordinator.sh/gpu-memory-ratio": "20",
        "koordinator.sh/gpu-memory": "1Gi",
    }
    objects = [
        node("n1", ROOM),
        device(resources={**CARD, "koordinator.sh/gpu-memory": "0"}),
        holding({"gpu": [{"minor": 0, "resources": mine}]}),
        asking(cpu="1", **SHARE),
    ]
    assert decided(*objects)[1] == {"new": "n1"}


def test_a_node_that_keeps_back_less_than_nothing_offers_what_it_has() -> None:
    note = {"node.koordinator.sh/reservation": json.dumps({"resources": {"cpu": "-999999999999999999m"}})}
    one = node("n1", ROOM)
    one["metadata"]["annotations"] = note
    assert decided(one, asking("a", cpu="8"), asking("b", cpu="1"))[1]["a"] == "n1"
    assert "Insufficient cpu" in decided(one, asking("b", cpu="9"))[1]["b"]


def test_amounts_on_a_node_add_up_to_what_can_be_counted() -> None:
    """Two pods hold as much as can be read of one; with more, neither of them could be counted."""
    for amount, readable in ((2**53 >> 7, True), ((2**53 >> 7) + 1, False), (2**53, False)):
        held = [container(requests={"memory": str(amount)})]
        large = [pod(name, nodeName="n1", containers=held) for name in ("a", "b")]
        loaded, told = decided(node("n1", ROOM), node("n2", ROOM), *large, asking(cpu="1"))
        assert (loaded.problems == ()) is readable
        assert told["new"] == "n2"


def test_a_reservation_holds_what_can_be_counted() -> None:
    granted = {"cpu": "2", "memory": str(2**53)}
    template = {"spec": {"containers": [container(requests={"cpu": "2"})]}}
    held = obj(
        "Reservation",
        "r",
        apiVersion="scheduling.koordinator.sh/v1alpha1",
        spec={"template": template, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "ttl": "24h"},
        status={"phase": "Available", "nodeName": "n1", "allocatable": granted},
    )
    loaded, told = decided(node("n1", ROOM), held, asking("fits", cpu="6"), asking("late", cpu="1"))
    assert [one.object_name for one in loaded.problems] == ["Reservation r"]
    assert told["fits"] == "n1"
    assert "Insufficient cpu" in told["late"]


@pytest.mark.parametrize("skew", [2**31, 2**62])
def test_a_skew_is_of_32_bits(skew: int) -> None:
    spread = [{"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    wrong = asking("wrong", cpu="1")
    wrong["spec"]["topologySpreadConstraints"] = spread
    loaded, told = decided(node("n1", ROOM), wrong, asking(cpu="1"))
    assert [one.message for one in loaded.problems] == [f"expected an integer of 32 bits, got {skew}"]
    assert told["new"] == "n1"


def test_numbers_of_numa_nodes_are_bounded() -> None:
    loaded, _ = decided(node("n1", ROOM), device(topology={"nodeID": 2**40}))
    assert loaded.snapshot.of(DeviceObject) == ()
    zones = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
    }
    for numa in ("1024", "99999999999", "-1"):
        zone = {"name": f"node-{numa}", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]}
        loaded, told = decided(node("n1", ROOM), {**zones, "zones": [zone]}, asking(cpu="1"))
        assert [one.path for one in loaded.problems] == ["zones[0].name"]
        assert loaded.snapshot.of(NodeResourceTopology) == ()
        assert told["new"] == "n1"


@pytest.mark.parametrize(
    ("name", "amount"),
    [("nvidia.com/gpu", 10**6), ("alibabacloud.com/gpu-count", 10**6), ("koordinator.sh/gpu", 10**8)],
)
def test_of_more_cards_than_a_machine_has_the_first_are_looked_at(name: str, amount: int) -> None:
    """Amounts are counted whatever they are; lists of single cards are of a bounded length."""
    loaded, told = decided(node("n1", {**ROOM, name: str(amount)}), asking(cpu="1"))
    assert [(one.path, one.message) for one in loaded.warnings] == [
        (
            f"status.allocatable[{name}]",
            f"1000000 cards; where cards are looked at one by one, only {MOST_CARDS} of them are",
        )
    ]
    assert told["new"] == "n1"
    snapshot = loaded.snapshot
    (state,) = snapshot.nodes
    assert cards_of(snapshot, state).total == MOST_CARDS
    assert [len(one.cards) for one in nodes_of(snapshot)] == [MOST_CARDS]
    assert {len(one.cards) for one in fragments_of(snapshot).nodes} <= {MOST_CARDS}


def test_as_many_cards_as_a_machine_may_have_are_all_looked_at() -> None:
    loaded, _ = decided(node("n1", {**ROOM, "nvidia.com/gpu": str(MOST_CARDS)}))
    assert loaded.warnings == ()
    assert cards_of(loaded.snapshot, loaded.snapshot.nodes[0]).total == MOST_CARDS
