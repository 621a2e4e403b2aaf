"""Pods that ask for extended resources which device classes serve."""

from __future__ import annotations

import json
from typing import Any

import attrs

from koordcore import PreemptionRules, ViolationKind, schedule, verify
from koordcore.manifests.plan_patches import patches
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimArgs,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.containers import Container
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodResourceClaim
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.protocol.claims import claim_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims_gangs import GANG

DRIVER, GPU = "gpu.example.com", "example.com/gpu"
CLASS = DeviceClass(
    name="gpu", selectors=(f"device.attributes['{DRIVER}'].kind == 'gpu'",), extended_resource_name=GPU
)


def gpus(node: str, count: int) -> ResourceSlice:
    kind = {"kind": AttributeValue(AttributeKind.STRING, ("gpu",))}
    devices = tuple(SliceDevice(name=f"gpu-{n}", attributes=kind) for n in range(count))
    return ResourceSlice(name=node, driver=DRIVER, pool=node, node_name=node, devices=devices)


def pod(name: str, gpus_wanted: int, resource: str = GPU) -> Pod:
    requests = {"cpu": 1000, resource: gpus_wanted}
    return Pod(name=name, uid=f"uid-{name}", requests=requests, containers=(Container("main", requests),))


def cluster(
    *pods: Pod, plugin: dict[str, int] | None = None, records: tuple[ClusterRecord, ...] = (CLASS,)
) -> ClusterSnapshot:
    listed = plugin or {}
    nodes = [
        Node(
            name=name,
            allocatable={"cpu": 8000, "pods": 10, **({GPU: listed[name]} if name in listed else {})},
        )
        for name in ("a", "b")
    ]
    return ClusterSnapshot(nodes=nodes, pending=pods, records=(*records, gpus("a", 2), gpus("b", 1)))


def legal(snapshot: ClusterSnapshot, **rest: Any) -> ScheduleResult:
    result = schedule(snapshot, **rest)
    assert verify(snapshot, result) == ()
    return result


def got(result: ScheduleResult) -> dict[str, list[str]]:
    return {
        one.pod.name: [
            f"{each.pool}/{each.device}" for held in one.claims for each in held.allocation.results
        ]
        for one in result.bound
    }


def test_devices_are_given_although_no_node_lists_the_resource() -> None:
    result = legal(cluster(pod("two", 2), pod("one", 1), pod("more", 1)))
    assert got(result) == {"more": ["b/gpu-0"], "one": ["a/gpu-0"]}
    refused = [one for one in result.decisions if isinstance(one, Unschedulable)]
    assert [one.message for one in refused] == ["0/2 nodes are available: 2 cannot allocate all claims."]


def test_what_a_pod_without_containers_asks_for_is_claimed_as_for_one_container() -> None:
    """And its object, which has one container, means the same."""
    bare = attrs.evolve(pod("p", 2), containers=())
    (calls, same) = (
        [one.to_json() for one in patches(legal(cluster(asking)))]
        for asking in (bare, attrs.evolve(pod("p", 2), containers=(Container("main", bare.requests),)))
    )
    assert got(legal(cluster(bare))) == {"p": ["a/gpu-0", "a/gpu-1"]}
    assert calls == same
    assert not legal(cluster(attrs.evolve(bare, requests={"cpu": 1000, GPU: 3}))).bound


def test_every_class_has_a_name_of_its_own() -> None:
    result = legal(cluster(pod("p", 2, "deviceclass.resource.kubernetes.io/gpu")))
    assert got(result) == {"p": ["a/gpu-0", "a/gpu-1"]}
    (decision,) = result.bound
    assert [(one.entry, one.name) for one in decision.claims] == [
        ("", claim_name(pod("p", 2), "extended-resources"))
    ]
    made, reserved, told, bound = (call.to_json() for call in patches(result))
    assert made["body"]["spec"]["devices"]["requests"] == [
        {
            "name": "container-0-request-1",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        }
    ]
    assert len(reserved["body"]["status"]["allocation"]["devices"]["results"]) == 2
    assert "extendedResourceClaimStatus" in told["body"]["status"]
    assert bound["path"].endswith("/binding")


def test_what_was_given_is_held_in_the_next_call() -> None:
    end = legal(cluster(pod("p", 2))).snapshot
    again = legal(end.with_pending(pod("q", 1)))
    assert got(again) == {"q": ["b/gpu-0"]}
    assert not legal(again.snapshot.with_pending(pod("r", 1))).bound


def test_the_claim_of_a_running_pod_holds_its_devices() -> None:
    result = DeviceResult(request="container-0-request-1", driver=DRIVER, pool="b", device="gpu-0")
    claim = ResourceClaim(
        name="runs-extended-resources-x2x2x",
        owner="uid-runs",
        extended=True,
        allocation=ClaimAllocation(results=(result,)),
        reserved_for=(ClaimConsumer("runs", "uid-runs"),),
    )
    snapshot = cluster(pod("p", 1), pod("q", 1), pod("r", 1), records=(CLASS, claim))
    running = pod("runs", 1).at("b")
    snapshot = snapshot.assume(running)
    assert sorted(one for devices in got(legal(snapshot)).values() for one in devices) == [
        "a/gpu-0",
        "a/gpu-1",
    ]


def test_who_runs_with_a_claim_that_was_made_for_it_is_as_it_should_be() -> None:
    """A cluster as it stands: the claim says whose it is, and what has come true is told by nothing else."""
    result = DeviceResult(request="container-0-request-1", driver=DRIVER, pool="b", device="gpu-0")
    request = ClaimRequest("container-0-request-1", (DeviceSubRequest(class_name="gpu"),))
    claim = ResourceClaim(
        name="runs-x2x2x",
        owner="uid-runs",
        spec=ClaimSpec((request,)),
        allocation=ClaimAllocation(results=(result,)),
        reserved_for=(ClaimConsumer("runs", "uid-runs"),),
    )
    asks, claims = pod("runs", 1), pod("runs", 1, "cpu")
    claims = attrs.evolve(claims, resource_claims=(PodResourceClaim("dev", template="t"),))
    only = NodeSelector(
        (NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("a",)),)),)
    )
    elsewhere = ClaimAllocation(results=(attrs.evolve(result, pool="a"),), node_selector=only)
    for one, made in ((asks, {"extended": True}), (claims, {"pod_claim_name": "dev"})):
        own = attrs.evolve(claim, **made)
        assert verify(cluster(records=(CLASS, own)).assume(one.at("b"))) == ()
        moved = cluster(records=(CLASS, attrs.evolve(own, allocation=elsewhere))).assume(one.at("b"))
        assert {each.kind for each in verify(moved)} == {ViolationKind.CLAIM}


def test_a_claim_from_an_earlier_attempt_is_used() -> None:
    result = DeviceResult(request="container-0-request-1", driver=DRIVER, pool="a", device="gpu-1")
    only = NodeSelector(
        (NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("a",)),)),)
    )
    claim = ResourceClaim(
        name="p-extended-resources-x2x2x",
        owner="uid-p",
        extended=True,
        allocation=ClaimAllocation(results=(result,), node_selector=only),
    )
    (decision,) = legal(cluster(pod("p", 1), records=(CLASS, claim))).bound
    assert decision.node == "a"
    assert [(one.name, one.fresh, one.planned) for one in decision.claims] == [(claim.name, False, False)]


def test_nodes_with_a_device_plugin_and_nodes_with_a_driver_serve_one_resource_side_by_side() -> None:
    pods = [pod(f"p{number}", 1) for number in range(5)]
    result = legal(cluster(*pods, plugin={"b": 2}))
    # Of node b the plugin gives two, although a driver publishes a device there, too.
    assert sorted((one.node, bool(one.claims)) for one in result.bound) == [
        ("a", True),
        ("a", True),
        ("b", False),
        ("b", False),
    ]
    (refused,) = (one for one in result.decisions if isinstance(one, Unschedulable))
    assert refused.message == (
        f"0/2 nodes are available: 1 Insufficient {GPU}, 1 cannot allocate all claims."
    )
    calls = [one.to_json() for one in patches(result)]
    assert sum("resourceclaims" in one["path"] and one["verb"] == "create" for one in calls) == 2


def test_who_leaves_a_device_plugin_makes_room_beside_claims() -> None:
    """On node a a claim is in the way, on node b a pod of the plugin; who is cheaper leaves."""
    low = [attrs.evolve(pod("claims", 2), priority=5), attrs.evolve(pod("plugin", 2), priority=4)]
    start = legal(cluster(low[0], plugin={"b": 2})).snapshot
    start = legal(start.with_pending(low[1])).snapshot
    assert {one.name: one.node_name for one in start.bound_pods()} == {"claims": "a", "plugin": "b"}
    asked = start.with_pending(attrs.evolve(pod("high", 2), priority=9))
    (plan,) = legal(asked, preempt=PreemptionRules()).preemptions
    assert [victim.pod.name for victim in plan.victims] == ["plugin"]
    assert plan.certificate.proven


def test_devices_of_the_claim_for_extended_resources_are_kept_for_a_nominated_pod() -> None:
    """Nobody less important takes those that are free already, neither in that call nor in later ones."""
    full = legal(cluster(attrs.evolve(pod("stays", 1), priority=200), pod("low", 1))).snapshot
    assert {one.name: one.node_name for one in full.bound_pods()} == {"stays": "b", "low": "a"}
    waiting = [attrs.evolve(pod("top", 2), priority=100), attrs.evolve(pod("other", 1), priority=10)]
    snapshot = full.with_pending(*waiting)
    for expected in (["low"], [], []):
        result = legal(snapshot, preempt=PreemptionRules())
        assert [one.pod.name for plan in result.preemptions for one in plan.victims] == expected
        assert got(result) == {}
        snapshot = result.snapshot


def test_a_gang_spreads_over_device_plugins_and_drivers() -> None:
    notes = {f"{GANG}name": "g", f"{GANG}min-available": "4"}
    gang = [attrs.evolve(pod(f"p{number}", 1), annotations=notes) for number in range(4)]
    assert len(legal(cluster(*gang, plugin={"b": 2})).bound) == 4
    assert not legal(cluster(*gang, plugin={"b": 1})).bound


def test_without_the_plugin_or_the_class_nodes_must_have_it() -> None:
    plain = Policy(name="plain", plugins=(PluginSetting(name="NodeResourcesFit"),))
    for result in (legal(cluster(pod("p", 1)), policy=plain), legal(cluster(pod("p", 1), records=()))):
        (decision,) = result.decisions
        assert isinstance(decision, Unschedulable)
        assert decision.message == f"0/2 nodes are available: 2 Insufficient {GPU}."


def test_a_plan_that_gives_no_devices_is_not_verified() -> None:
    snapshot = cluster(pod("p", 1))
    result = schedule(snapshot)
    (bound,) = result.bound
    bare = attrs.evolve(bound, claims=())
    end = result.snapshot.forget(bound.pod).assume(pod("p", 1).at(bound.node))
    forged = attrs.evolve(result, decisions=(bare,), snapshot=end)
    assert any("is not allocated" in str(one) for one in verify(snapshot, forged))


def test_neither_the_claim_of_a_template_nor_that_of_extended_resources_exists_beforehand() -> None:
    """Who waits for the controllers waits for the first alone, whatever the pod asks for besides."""
    spec = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="gpu"),)),))
    records = (CLASS, ResourceClaimTemplate(name="one", spec=spec))
    both = attrs.evolve(pod("both", 1), resource_claims=(PodResourceClaim("c", template="one"),))
    (bound,) = legal(cluster(both, records=records)).bound
    assert [(one.entry, one.planned) for one in bound.claims] == [("c", True), ("", True)]
    awaiting = Policy().with_plugin(PluginSetting(name="DynamicResources", args=ClaimArgs(await_claims=True)))
    alone, waits = legal(cluster(pod("alone", 1), both, records=records), policy=awaiting).decisions
    assert isinstance(alone, Bound)
    assert isinstance(waits, Unschedulable)
    assert waits.refusal == 'pod "default/both": ResourceClaim not created yet'


def test_unlike_members_that_each_fit_a_node_once_have_what_claims_serve_there_together() -> None:
    """Amounts of the node let in one of each kind; devices are there for both."""
    gathered = json.dumps({"gatherStrategy": [{"layer": "NodeTopologyLayer", "strategy": "MustGather"}]})
    notes = {f"{GANG}name": "g", f"{GANG}min-available": "2", f"{GANG}network-topology-spec": gathered}
    members = [
        attrs.evolve(one, annotations=notes, requests={**one.requests, **asked})
        for one, asked in ((pod("p", 1), {"cpu": 5000}), (pod("q", 1), {"memory": 5}))
    ]
    snapshot = cluster(*members)
    nodes = [
        attrs.evolve(one.node, allocatable={**one.node.allocatable, "memory": 8}) for one in snapshot.nodes
    ]
    assert {one.node for one in legal(snapshot.with_nodes(*nodes)).bound} == {"a"}
