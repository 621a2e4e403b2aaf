"""Claims on nodes whose topology policy holds pods to NUMA nodes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, PluginSetting, Policy, Unschedulable, schedule, verify
from koordcore.checking.violation import ViolationKind
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.model.claims import AllocationMode, ClaimArgs, DeviceClass, ResourceClaim
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.records import ClusterRecord
from koordcore.result import ScheduleResult
from tests.property.test_claims_numa_laws import CLASS, claiming, published
from tests.scheduling.test_numa import node, status_of

FIRST_FIT = Policy().with_plugin(
    PluginSetting(name="DynamicResources", args=ClaimArgs(mode=AllocationMode.FIRST_FIT))
)


def cluster(
    near: tuple[Any, ...], *pods: list[dict[str, Any]], policy: str = "SingleNUMANode"
) -> ClusterSnapshot:
    objects = [*node("n1", policy=policy), published(near), CLASS]
    return snapshot_from_objects([*objects, *(one for parts in pods for one in parts)]).snapshot


def devices(result: ScheduleResult, name: str) -> list[str]:
    bound = next(one for one in result.bound if one.pod.name == name)
    return [one.id.device for held in bound.claims for one in held.allocation.results]


def numa_nodes(result: ScheduleResult, name: str) -> list[int]:
    return [entry["node"] for entry in status_of(result, name)["numaNodeResources"]]


def test_cpus_come_from_where_the_only_device_is() -> None:
    """NUMA node 0 would come first, but the device is near node 1."""
    snapshot = cluster((1,), claiming("p", 2, 0, ("a",), bound=True))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert devices(result, "p") == ["d-0"]
    assert numa_nodes(result, "p") == [1]


def test_devices_come_from_where_the_cpus_are_left() -> None:
    """The first pod leaves one CPU of NUMA node 0, so that the second takes the second device."""
    snapshot = cluster(
        (0, 0, 1), claiming("first", 3, 0, ("b",), bound=False), claiming("second", 3, 0, ("a",), bound=False)
    )
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert (devices(result, "first"), numa_nodes(result, "first")) == (["d-1"], [0])
    assert (devices(result, "second"), numa_nodes(result, "second")) == (["d-2"], [1])


def test_devices_and_cpus_on_different_numa_nodes_are_no_place() -> None:
    """Each is there, but not together; the reason says which NUMA node has what."""
    snapshot = cluster(
        (0, 0), claiming("first", 2, 0, ("b",), bound=False), claiming("second", 3, 0, ("a",), bound=False)
    )
    result = schedule(snapshot)
    refused = next(one for one in result.decisions if isinstance(one, Unschedulable))
    assert refused.pod.name == "second"
    assert [(one.plugin, one.nodes) for one in refused.rejections] == [("DynamicResources", 1)]
    assert "claimed devices prefer [01]" in refused.rejections[0].reason
    explained = explain(result.snapshot, "default/second")
    lines = [line for one in explained.help for line in one.details]
    assert "NUMA node 0 has enough claimed devices and memory, lacks cpu (2 of 3)" in lines
    assert "NUMA node 1 has enough cpu and memory, lacks claimed devices" in lines


def test_a_device_near_several_numa_nodes_serves_either() -> None:
    """Lists are what drivers of machines with several NUMA nodes a socket tell."""
    snapshot = cluster(
        ((0, 1), (0, 1)),
        claiming("first", 4, 0, ("a",), bound=False),
        claiming("second", 4, 0, ("b",), bound=False),
    )
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert {name: numa_nodes(result, name) for name in ("first", "second")} == {"first": [0], "second": [1]}


def test_a_claim_that_is_allocated_already_keeps_later_pods_to_its_numa_node() -> None:
    """Two pods share a claim, whose device is near NUMA node 1; there is no room there for both."""
    parts = claiming("first", 3, 0, ("a",), bound=False)
    later = claiming("second", 3, 0, ("a",), bound=False)[0]
    later["spec"]["resourceClaims"][0]["resourceClaimName"] = "first-c"
    snapshot = cluster((1,), parts, [later])
    result = schedule(snapshot)
    assert [one.pod.name for one in result.bound] == ["first"]
    small = claiming("second", 1, 0, ("a",), bound=False)[0]
    small["spec"]["resourceClaims"][0]["resourceClaimName"] = "first-c"
    snapshot = cluster((1,), parts, [small])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert numa_nodes(result, "second") == [1]


@pytest.mark.parametrize(("near", "kinds"), [((0, 1, 1), "ab"), ((0, 0, 1), "ba")])
def test_the_order_of_the_plugins_makes_no_difference(near: tuple[int, ...], kinds: str) -> None:
    """What is chosen first is chosen first wherever a configuration names it."""
    names = ("first", "second")
    pods = (claiming(name, 3, 0, (kind,), bound=True) for name, kind in zip(names, kinds, strict=True))
    snapshot = cluster(near, *pods)
    policy = Policy()
    plugins = sorted(policy.plugins, key=lambda one: one.name != "DynamicResources")
    other = attrs.evolve(policy, plugins=tuple(plugins))
    plain, turned = schedule(snapshot), schedule(snapshot, policy=other)
    assert [devices(plain, name) for name in names] == [devices(turned, name) for name in names]
    assert verify(snapshot, turned) == ()


def test_first_fit_looks_at_no_numa_nodes() -> None:
    """As upstream, where the kubelet's topology manager knows nothing of claims."""
    snapshot = cluster((1,), claiming("p", 2, 0, ("a",), bound=True))
    result = schedule(snapshot, policy=FIRST_FIT)
    assert verify(snapshot, result) == ()
    assert numa_nodes(result, "p") == [0]


def test_best_effort_goes_on_where_nothing_is_near() -> None:
    """CPUs on one NUMA node, the device near the other."""
    snapshot = cluster(
        (0, 0),
        claiming("first", 3, 0, ("a",), bound=True),
        claiming("second", 3, 0, ("b",), bound=True),
        policy="BestEffort",
    )
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert len(result.bound) == 2


def test_members_of_a_gang_get_their_devices_near_their_cpus() -> None:
    """Four members, two to a NUMA node."""
    parts = [claiming(f"m{number}", 2, 0, ("ab",), bound=False) for number in range(4)]
    for one, _ in parts:
        one["metadata"]["annotations"] = {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "4",
        }
    snapshot = cluster((0, 1, 1, 0), *parts)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert len(result.bound) == 4


def test_members_forgo_devices_for_each_other_on_a_node_that_tells_its_topology() -> None:
    """Each would rather have both devices; of CPUs each gets what there is in its turn."""
    parts = [claiming(f"m{number}", 2, 0, ("ab",), bound=False) for number in range(2)]
    for one, claim in parts:
        one["metadata"]["annotations"] = {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
        (request,) = claim["spec"]["devices"]["requests"]
        forms = [{"name": f"of-{count}", "deviceClassName": "any", "count": count} for count in (2, 1)]
        claim["spec"]["devices"]["requests"] = [{"name": request["name"], "firstAvailable": forms}]
    snapshot = cluster((0, 0), *parts, policy="")
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert sorted(devices(result, one.pod.name) for one in result.bound) == [["d-0"], ["d-1"]]


def test_a_device_far_from_the_numa_node_is_found_by_the_checker() -> None:
    """The plan is changed so that the pod gets the other device."""
    snapshot = cluster((0, 1), claiming("p", 2, 0, ("ab",), bound=False))
    result = schedule(snapshot)
    (bound,) = result.bound
    assert isinstance(bound, Bound)
    (held,) = bound.claims
    (one,) = held.allocation.results
    far = {"d-0": "d-1", "d-1": "d-0"}[one.device]
    allocation = attrs.evolve(held.allocation, results=(attrs.evolve(one, device=far),))
    changed = attrs.evolve(bound, claims=(attrs.evolve(held, allocation=allocation),))
    found = verify(snapshot, attrs.evolve(result, decisions=(changed,)))
    assert ViolationKind.NUMA in {one.kind for one in found}


def bare(*wanted: str) -> list[dict[str, Any]]:
    """A pod that has a claim and requests nothing."""
    one, claim = claiming("p", 1, 0, wanted, bound=False)
    one["spec"]["containers"] = [{"name": "main"}]
    return [one, claim]


def test_a_pod_that_requests_nothing_gets_the_devices_of_its_claims_from_one_numa_node() -> None:
    apart = cluster((0, 1), bare("ab", "ab"))
    (refused,) = schedule(apart).decisions
    assert isinstance(refused, Unschedulable)
    assert "Unaligned NUMA Hint" in refused.message
    assert "claimed devices" in refused.message
    for near, policy, expected in (
        ((0, 1, 1), "SingleNUMANode", ["d-1", "d-2"]),
        ((None, 1, 1), "SingleNUMANode", ["d-0", "d-1"]),
        (((0, 1), 1), "SingleNUMANode", ["d-0", "d-1"]),
        ((0, 1, 1), "Restricted", ["d-1", "d-2"]),
        ((0, 1), "BestEffort", ["d-0", "d-1"]),
    ):
        snapshot = cluster(near, bare("ab", "ab"), policy=policy)
        result = schedule(snapshot)
        assert verify(snapshot, result) == ()
        assert devices(result, "p") == expected


def test_a_pod_that_requests_nothing_needs_no_numa_nodes_where_its_node_tells_none() -> None:
    told = cluster((0, 1), bare("ab", "ab"))
    records: list[ClusterRecord] = [*told.of(DeviceClass), *told.of(ResourceClaim), *told.of(ResourceSlice)]
    snapshot = ClusterSnapshot(nodes=told.nodes, pending=told.pending, records=records)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert devices(result, "p") == ["d-0", "d-1"]


def test_devices_of_a_pod_that_requests_nothing_on_two_numa_nodes_are_named() -> None:
    snapshot = cluster((0, 1), bare("ab", "ab"))
    anywhere = schedule(snapshot, policy=FIRST_FIT)
    assert verify(snapshot, anywhere) == ()
    found = verify(snapshot, attrs.evolve(anywhere, policy=Policy()))
    assert [(one.kind, one.message) for one in found] == [
        (ViolationKind.NUMA, "no NUMA node is near all devices of its claims")
    ]
