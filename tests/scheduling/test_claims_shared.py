"""Claims that several pods name: one allocation for all of them, wherever and however it came about."""

from __future__ import annotations

import json

import attrs
import pytest

from koordcore import Node, PreemptionRules, SchedulingGroup, Unschedulable, explain, schedule, verify
from koordcore.manifests import named_policy
from koordcore.model.claims import (
    AllocationMode,
    ClaimAllocation,
    ClaimArgs,
    ClaimConsumer,
    DeviceResult,
    ResourceClaim,
)
from koordcore.model.device_slices import ResourceSlice, SliceDevice
from koordcore.model.pods import Pod, PodKey, PodResourceClaim
from koordcore.model.scheduling_groups import GroupClaim, SchedulingPodGroup
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.scheduling.plugins.claims_together import sharing_one_claim
from tests.scheduling.test_claims import DRIVER, GPU, ONE, cluster, devices, legal, pod
from tests.scheduling.test_claims_gangs import GANG

SHARED = ResourceClaim(name="shared", spec=ONE)


def gang(*members: Pod) -> list[Pod]:
    """Pods that start together or not at all."""
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(len(members))}
    return [attrs.evolve(one, annotations=notes) for one in members]


@pytest.mark.parametrize("claims", [True, False])
def test_where_a_claim_is_by_now_is_known_of_all_nodes(claims: bool) -> None:
    """No node has room for both members of the gang, so that what the first one got on ``a`` is free again.

    Then a small pod fills ``a``, with the claim or without it; only then the last one finds its place on
    ``b``. Of many nodes only those are asked again on which something changed.
    """
    sizes = {"a": 1, "b": 1, **{f"c{number:02}": 0 for number in range(80)}}
    large = [pod(name, claim="shared", cpu=5000, priority=9) for name in ("g0", "g1")]
    small = pod("small", claim="shared", cpu=4000, priority=5)
    small = small if claims else attrs.evolve(small, resource_claims=())
    late = pod("late", claim="shared", cpu=5000, priority=1)
    result = legal(cluster(sizes, SHARED, pending=[*gang(*large), small, late]))
    assert [one.node for one in result.bound if one.pod.name == "small"] == ["a"]
    assert devices(result) == ({"small": ["a/gpu-0"]} if claims else {"small": [], "late": ["b/gpu-0"]})


def test_what_a_pod_gets_beside_a_claim_that_others_use_already_is_its_own() -> None:
    """Of two devices one is shared with a pod that runs; the other is gone once the new pod is there."""
    result = DeviceResult(request="gpu", driver=DRIVER, pool="a", device="gpu-0")
    taken = attrs.evolve(
        SHARED,
        allocation=ClaimAllocation(results=(result,)),
        reserved_for=(ClaimConsumer("runs", "uid-runs"),),
    )
    both = attrs.evolve(
        pod("both"),
        resource_claims=(PodResourceClaim("s", claim="shared"), PodResourceClaim("own", template="one")),
        priority=9,
    )
    snapshot = cluster({"a": 2}, taken, pending=[both, pod("late")])
    found = legal(snapshot.assume(pod("runs", claim="shared").at("a")))
    assert devices(found) == {"both": ["a/gpu-0", "a/gpu-1"]}
    assert isinstance(found.decisions[-1], Unschedulable)


def both(name: str) -> Pod:
    """A pod with a claim that others name, and one of its own."""
    entries = (PodResourceClaim("s", claim="shared"), PodResourceClaim("own", template="one"))
    return attrs.evolve(pod(name), resource_claims=entries)


@pytest.mark.parametrize("together", [True, False], ids=["a gang", "each by itself"])
@pytest.mark.parametrize("mode", AllocationMode)
def test_equal_pods_that_share_a_claim_get_a_device_of_their_own_each(
    mode: AllocationMode, together: bool
) -> None:
    """What the first was given of its own says nothing of what the next still needs."""
    pods = [both(name) for name in "pqr"]
    if together:
        notes = {f"{GANG}name": "g", f"{GANG}min-available": "2"}
        pods = [attrs.evolve(one, annotations=notes) for one in pods]
    policy = named_policy("default")
    settings = {one.name: one for one in policy.plugins}
    plugin = attrs.evolve(settings["DynamicResources"], args=ClaimArgs(mode=mode))
    snapshot = cluster({"a": 3, "b": 1}, SHARED, pending=pods)
    result = schedule(snapshot, policy=policy.with_plugin(plugin))
    assert verify(snapshot, result) == ()
    assert devices(result) == {"p": ["a/gpu-0", "a/gpu-1"], "q": ["a/gpu-0", "a/gpu-2"]}
    (refused,) = (one for one in result.decisions if isinstance(one, Unschedulable))
    assert "1 cannot allocate all claims" in refused.message
    assert explain(snapshot, pods[1]).fitting == ("a",)


def test_equal_pods_that_share_a_claim_get_extended_resources_of_their_own_each() -> None:
    served = attrs.evolve(GPU, extended_resource_name="example.com/gpu")
    pods = [attrs.evolve(pod(name, claim="shared"), requests={"example.com/gpu": 1}) for name in "pqr"]
    result = legal(cluster({"a": 3}, SHARED, pending=pods).with_records(served))
    assert devices(result) == {"p": ["a/gpu-0", "a/gpu-1"], "q": ["a/gpu-0", "a/gpu-2"]}


@pytest.mark.parametrize("told", [True, False], ids=["by its status", "by its owner"])
def test_a_claim_that_is_made_for_one_pod_is_shared_with_one_that_names_it(told: bool) -> None:
    """One device is enough for both, on one node."""
    made = ResourceClaim(name="made", spec=ONE, owner="uid-p", pod_claim_name="gpu")
    own = PodResourceClaim("gpu", claim="made" if told else "", template="one")
    pods = [attrs.evolve(pod("p"), resource_claims=(own,)), pod("q", claim="made")]
    gathered = {"gatherStrategy": [{"layer": "NodeTopologyLayer", "strategy": "MustGather"}]}
    notes = {f"{GANG}network-topology-spec": json.dumps(gathered)}
    members = [attrs.evolve(one, annotations={**one.annotations, **notes}) for one in gang(*pods)]
    result = legal(cluster({"a": 0, "b": 1}, made, pending=members))
    assert devices(result) == {"p": ["b/gpu-0"], "q": ["b/gpu-0"]}


def test_one_device_is_enough_to_be_evicted_for_members_that_share_a_claim() -> None:
    first = legal(cluster({"a": 1}, pending=[pod("low")])).snapshot
    members = gang(*(pod(f"g{number}", claim="shared", priority=9) for number in range(3)))
    asked = first.with_records(SHARED).with_pending(*members)
    result = legal(asked, PreemptionRules())
    (plan,) = result.preemptions
    assert [victim.pod.name for victim in plan.victims] == ["low"]
    assert len(plan.nominations) == 3


def test_pods_are_tied_by_a_claim_that_two_name_and_through_a_third_that_shares_with_both() -> None:
    a, b, c, d, e = (PodKey("default", name) for name in "abcde")
    x, y, z = (("default", name) for name in "xyz")
    named = [(a, [x]), (b, [y]), (c, [x, y]), (d, [z]), (e, [])]
    assert sharing_one_claim(named) == (frozenset({a, b, c}),)
    assert sharing_one_claim([*named, (PodKey("default", "f"), [z])]) == (
        frozenset({a, b, c}),
        frozenset({d, PodKey("default", "f")}),
    )
    assert sharing_one_claim(named[:2]) == ()


def test_a_group_of_which_no_domain_takes_all_gets_what_was_chosen_for_its_members_together() -> None:
    """Racks are compared by trial; what members with a common claim get is bound again as it was chosen."""

    def of_rack(rack: str) -> ResourceSlice:
        term = NodeSelectorTerm(expressions=(Requirement("rack", SelectorOperator.IN, (rack,)),))
        pool, devices = f"rack-{rack}", (SliceDevice(name="gpu-0"),)
        return ResourceSlice(
            name=pool, driver=DRIVER, pool=pool, node_selector=NodeSelector(terms=(term,)), devices=devices
        )

    common, own = PodResourceClaim("c", template="one"), PodResourceClaim("own", template="one")
    asks = ((2000, True), (1000, False), (2000, False), (500, True), (1000, False))
    members = [
        Pod(
            name=f"g-{number}",
            uid=f"u{number}",
            requests={"cpu": cpu},
            resource_claims=(common, own) if more else (common,),
            scheduling_group=SchedulingGroup("g"),
        )
        for number, (cpu, more) in enumerate(asks)
    ]
    nodes = {"n0": ("a", 3000), "n1": ("b", 2000), "n2": ("b", 4000)}
    snapshot = cluster(
        {"n0": 1, "n1": 2, "n2": 1},
        SchedulingPodGroup(
            name="g", min_count=2, topology_keys=("rack",), claims=(GroupClaim(name="c", template="one"),)
        ),
        *map(of_rack, "ab"),
        pending=members,
    ).with_nodes(
        *(
            Node(name=name, labels={"rack": rack}, allocatable={"cpu": cpu, "pods": 10})
            for name, (rack, cpu) in nodes.items()
        )
    )
    result = legal(snapshot)
    assert {nodes[one.node][0] for one in result.bound} == {"b"}
    assert len(result.bound) == 4
