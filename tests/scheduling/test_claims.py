"""Pods with ResourceClaims through the whole flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from benchmarks.claims_data import CLASSES, claim, mig_cards, request
from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.checking.violation import ViolationKind
from koordcore.manifests import named_policy
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DerivedAttribute,
    DeviceClass,
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CounterConsumption,
    CounterSet,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.pods import PodResourceClaim
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator

DRIVER = "gpu.example.com"
GPU = DeviceClass(name="gpu", selectors=(f"device.driver == '{DRIVER}'",))
ONE = ClaimSpec((ClaimRequest("gpu", (DeviceSubRequest(class_name="gpu"),)),))
TWO = ClaimSpec((ClaimRequest("gpu", (DeviceSubRequest(class_name="gpu", count=2),)),))
TEMPLATES = (ResourceClaimTemplate(name="one", spec=ONE), ResourceClaimTemplate(name="two", spec=TWO))


def node(name: str) -> Node:
    return Node(name=name, allocatable={"cpu": 8000, "memory": 2**34, "pods": 110})


def gpus(name: str, count: int) -> ResourceSlice:
    devices = tuple(SliceDevice(name=f"gpu-{number}") for number in range(count))
    return ResourceSlice(name=name, driver=DRIVER, pool=name, node_name=name, devices=devices)


def pod(name: str, template: str = "one", *, claim: str = "", priority: int = 0, cpu: int = 100) -> Pod:
    entry = PodResourceClaim("gpu", claim=claim, template="" if claim else template)
    return Pod(
        name=name, uid=f"uid-{name}", requests={"cpu": cpu}, resource_claims=(entry,), priority=priority
    )


def cluster(sizes: dict[str, int], *records: ClusterRecord, pending: Sequence[Pod] = ()) -> ClusterSnapshot:
    return ClusterSnapshot(
        nodes=[node(name) for name in sizes],
        pending=pending,
        records=[GPU, *TEMPLATES, *(gpus(name, count) for name, count in sizes.items()), *records],
    )


def legal(snapshot: ClusterSnapshot, preempt: PreemptionRules | None = None) -> ScheduleResult:
    result = schedule(snapshot, preempt=preempt)
    assert verify(snapshot, result) == ()
    return result


def devices(result: ScheduleResult) -> dict[str, list[str]]:
    return {
        one.pod.name: [f"{got.pool}/{got.device}" for held in one.claims for got in held.allocation.results]
        for one in result.bound
    }


def test_each_pod_gets_a_device_of_its_own_and_the_rest_is_told_why() -> None:
    snapshot = cluster({"a": 1, "b": 1}, pending=[pod("p"), pod("q"), pod("r")])
    result = legal(snapshot)
    assert sorted(map(tuple, devices(result).values())) == [("a/gpu-0",), ("b/gpu-0",)]
    refused = next(one for one in result.decisions if not isinstance(one, Bound))
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/2 nodes are available: 2 cannot allocate all claims."
    assert refused.nearest is not None
    assert [(one.resource, one.requested, one.available) for one in refused.nearest.shortfalls] == [
        ("gpu", 1, 0)
    ]


def test_what_was_decided_is_held_in_the_next_call_and_free_when_the_pod_has_gone() -> None:
    first = legal(cluster({"a": 2}, pending=[pod("p", "two")])).snapshot
    full = legal(first.with_pending(pod("q")))
    assert not full.bound
    again = legal(first.forget(pod("p").key).with_pending(pod("q")))
    assert devices(again) == {"q": ["a/gpu-0"]}


def test_a_claim_of_its_own_object_is_written_back() -> None:
    claim = ResourceClaim(name="mine", spec=ONE)
    end = legal(cluster({"a": 1}, claim, pending=[pod("p", claim="mine")])).snapshot
    written = end.find(ResourceClaim, "mine", "default")
    assert written is not None
    assert written.allocation is not None
    assert [one.name for one in written.reserved_for] == ["p"]
    assert written.allocation.node_selector is not None
    # A pod that is gone reserves nothing, although the claim still says so.
    freed = legal(end.forget(pod("p").key).with_pending(pod("q")))
    assert devices(freed) == {"q": ["a/gpu-0"]}


def test_pods_that_share_a_claim_follow_the_first_and_are_not_charged_again() -> None:
    shared = ResourceClaim(name="shared", spec=ONE)
    pods = [pod(name, claim="shared", cpu=3000) for name in ("p", "q", "r")]
    result = legal(cluster({"a": 1, "b": 1}, shared, pending=pods))
    assert devices(result) == {"p": ["a/gpu-0"], "q": ["a/gpu-0"]}
    assert [one.claims[0].fresh for one in result.bound] == [True, False]
    refused = result.decision(pods[2].key)
    assert isinstance(refused, Unschedulable)
    assert "resourceclaim not available on the node" in refused.message


def test_a_claim_that_names_its_pod_without_a_uid_is_not_reserved_for_it_twice() -> None:
    for uid, users in (("", ["p"]), ("uid-p", ["p"]), ("uid-of-another", ["p", "p"])):
        claim = ResourceClaim(name="mine", spec=ONE, reserved_for=(ClaimConsumer("p", uid),))
        end = legal(cluster({"a": 1}, claim, pending=[pod("p", claim="mine")])).snapshot
        (written,) = (one for one in end.of(ResourceClaim) if one.name == "mine")
        assert [one.name for one in written.reserved_for] == users


def test_devices_of_running_pods_are_told_by_their_claims() -> None:
    only = NodeSelector(
        (NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("a",)),)),)
    )
    got = DeviceResult(request="gpu", driver=DRIVER, pool="a", device="gpu-0")
    claim = ResourceClaim(
        name="c",
        spec=ONE,
        allocation=ClaimAllocation(results=(got,), node_selector=only),
        reserved_for=(ClaimConsumer("runs", "uid-runs"),),
    )
    running = pod("runs", claim="c").at("a")
    snapshot = cluster({"a": 1}, claim).assume(running).with_pending(pod("p"))
    assert not legal(snapshot).bound
    assert devices(legal(snapshot.forget(running.key))) == {"p": ["a/gpu-0"]}


def taken(name: str, device: str, *users: str, deleting: bool = False) -> ResourceClaim:
    """Make a claim that has a device of node a and is reserved for pods."""
    got = DeviceResult(request="gpu", driver=DRIVER, pool="a", device=device)
    consumers = tuple(ClaimConsumer(user, f"uid-{user}") for user in users)
    return ResourceClaim(
        name=name,
        spec=ONE,
        allocation=ClaimAllocation(results=(got,)),
        reserved_for=consumers,
        deleting=deleting,
    )


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ([taken("c", "gpu-0", "runs", deleting=True)], ["c"]),
        ([taken("c", "gpu-0", deleting=True)], ["c"]),
        ([taken("c", "gpu-0", "runs")], ["c", "missing"]),
        ([taken("c", "gpu-0", "runs")], []),
        ([taken("c", "gpu-0", "runs")], ["missing"]),
    ],
    ids=["deleted", "deleted, not reserved", "another is missing", "not named", "another is named"],
)
def test_a_running_pod_keeps_its_devices_whatever_becomes_of_its_claims(
    claims: list[ResourceClaim], named: list[str]
) -> None:
    entries = tuple(PodResourceClaim(name, claim=name) for name in named)
    running = attrs.evolve(pod("runs"), resource_claims=entries).at("a")
    snapshot = cluster({"a": 2}, *claims).assume(running).with_pending(pod("p"), pod("q"))
    assert devices(legal(snapshot)) == {"p": ["a/gpu-1"]}
    if claims[0].reserved_for:  # what nobody in particular holds stays held
        assert len(legal(snapshot.forget(running.key)).bound) == 2


def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "4"}
    members = [attrs.evolve(pod(f"m{number}"), annotations=gang) for number in range(4)]
    placed = legal(cluster({"a": 2, "b": 2}, pending=members))
    assert len(placed.bound) == 4
    short = legal(cluster({"a": 2, "b": 1}, pending=members))
    assert not short.bound


def test_a_victim_frees_its_claims() -> None:
    holding = [pod("low-1", "one", priority=1), pod("low-2", "two", priority=2)]
    start = legal(cluster({"a": 3}, pending=holding)).snapshot
    result = legal(start.with_pending(pod("high", "one", priority=9)), PreemptionRules())
    assert [str(one.pod) for plan in result.preemptions for one in plan.victims] == ["default/low-1"]
    two = legal(start.with_pending(pod("high", "two", priority=9)), PreemptionRules())
    assert [str(one.pod) for plan in two.preemptions for one in plan.victims] == ["default/low-2"]


def test_no_eviction_where_the_node_never_has_the_devices() -> None:
    start = legal(cluster({"a": 1}, pending=[pod("low", "one", priority=1)])).snapshot
    result = legal(start.with_pending(pod("high", "two", priority=9)), PreemptionRules())
    assert not result.preemptions


def test_a_plan_that_gives_a_device_twice_is_not_legal() -> None:
    snapshot = cluster({"a": 2}, pending=[pod("p"), pod("q")])
    result = legal(snapshot)
    first, second = result.bound
    stolen = attrs.evolve(second.claims[0], allocation=first.claims[0].allocation)
    forged = attrs.evolve(second, claims=(stolen,))
    decisions = tuple(forged if one is second else one for one in result.decisions)
    found = verify(snapshot, attrs.evolve(result, decisions=decisions))
    assert ViolationKind.CLAIM in {one.kind for one in found}


def test_refusals_before_any_node_is_asked() -> None:
    unknown = ResourceClaim(
        name="unknown", spec=ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="no"),)),))
    )
    forms = (DeviceSubRequest(name="best", class_name="no"),)
    either = ResourceClaim(name="either", spec=ClaimSpec((ClaimRequest("r", forms, prioritized=True),)))
    pods = [pod("p", claim="absent"), pod("q", claim="unknown"), pod("s", claim="either")]
    result = legal(cluster({"a": 1}, unknown, either, pending=pods))
    messages = [one.message for one in result.decisions if isinstance(one, Unschedulable)]
    assert 'resourceclaim "absent" not found' in messages[0]
    assert "request r: device class no does not exist" in messages[1]
    assert "request r/best: device class no does not exist" in messages[2]


def test_a_node_with_the_better_alternative_goes_before_a_fuller_one() -> None:
    forms = (
        DeviceSubRequest(class_name="gpu", name="two", count=2),
        DeviceSubRequest(class_name="gpu", name="one"),
    )
    spec = ClaimSpec((ClaimRequest("gpu", forms, True),))
    template = ResourceClaimTemplate(name="either", spec=spec)
    result = legal(cluster({"full": 1, "large": 8}, template, pending=[pod("p", "either")]))
    assert devices(result) == {"p": ["large/gpu-0", "large/gpu-1"]}


def test_an_incomplete_pool_of_another_driver_does_not_keep_all_devices_from_a_claim() -> None:
    """Pools of the driver that the class demands do: nobody knows how many devices there are."""
    every = ClaimSpec((ClaimRequest("gpu", (DeviceSubRequest(class_name="gpu", mode="All", count=0),)),))
    parts = {
        driver: ResourceSlice(
            name=f"n-{driver}",
            driver=driver,
            pool="half",
            node_name="n",
            slice_count=2,
            devices=(SliceDevice(name="x"),),
        )
        for driver in ("other.example.com", DRIVER)
    }
    template = ResourceClaimTemplate(name="all", spec=every)
    for driver, fits in (("other.example.com", True), (DRIVER, False)):
        snapshot = cluster({"n": 2}, template, parts[driver], pending=[pod("p", "all")])
        result = legal(snapshot)
        assert bool(result.bound) is fits
    # Two nodes that differ in nothing else are told apart.
    own = attrs.evolve(parts[DRIVER], name="m-half", pool="z", node_name="m")
    both = cluster({"m": 2, "n": 2}, template, own, parts["other.example.com"], pending=[pod("p", "all")])
    assert devices(legal(both)) == {"p": ["n/gpu-0", "n/gpu-1"]}


@pytest.mark.parametrize("told", [2, 3])
@pytest.mark.parametrize("beside", ["card", "other"])
def test_counters_are_drawn_on_by_devices_of_slices_that_a_node_does_not_count(
    told: int, beside: str
) -> None:
    """On ``a`` the pool is complete by the count of its counters' slice; the device on ``b`` is of it, too.

    That device draws on the same card, or on one that the slices on ``a`` do not have.
    """

    def part(name: str, on: str, count: int, **fields: Any) -> ResourceSlice:
        return attrs.evolve(gpus(name, 0), pool="span", node_name=on, slice_count=count, **fields)

    def drawing(name: str, amount: int, card: str = "card") -> tuple[SliceDevice, ...]:
        draws = (CounterConsumption("card", {"slices": 1}), CounterConsumption(card, {"slices": amount}))
        return (SliceDevice(name=name, consumes_counters=draws if card != "card" else draws[1:]),)

    slices = [
        part("s0", "a", told, shared_counters=(CounterSet("card", {"slices": 3}),)),
        part("s1", "a", 3, devices=drawing("p", 3)),
        part("s2", "b", 3, devices=drawing("q", 2, beside)),
    ]
    if beside == "other":
        slices[2] = attrs.evolve(slices[2], shared_counters=(CounterSet("other", {"slices": 3}),))
    held = ClaimAllocation(
        results=(DeviceResult(request="gpu", driver=DRIVER, pool="span", device="q"),), node_selector=None
    )
    taken = ResourceClaim(name="taken", spec=ONE, allocation=held, reserved_for=(ClaimConsumer("gone", "g"),))
    free = cluster({"a": 0, "b": 0}, *slices, pending=[pod("p")])
    assert devices(legal(free)) == {"p": ["span/p"]}
    assert not legal(free.with_records(taken)).bound


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("broken", ["incomplete", "invalid"])
def test_an_alternative_that_asks_for_all_devices_of_a_pool_not_known_in_full_leaves_the_others(
    broken: str, *, first: bool
) -> None:
    """Whether it stands before or behind them; the error is the answer where none of these fits."""
    every = DeviceSubRequest(class_name="gpu", name="every", mode="All", count=0)
    state = "being updated" if broken == "incomplete" else "invalid"
    text = f"asks for all devices, but resource pool {DRIVER}/part is currently {state}."
    for count, fits in ((2, True), (3, False)):
        some = DeviceSubRequest(class_name="gpu", name="some", count=count)
        forms = (every, some) if first else (some, every)
        either = ResourceClaimTemplate(name="either", spec=ClaimSpec((ClaimRequest("gpu", forms, True),)))
        many, twice = (2, 1) if broken == "incomplete" else (1, 2)
        names = (SliceDevice(name="x"),) * twice
        part = attrs.evolve(gpus("part", 0), node_name="n", slice_count=many, devices=names)
        result = legal(cluster({"n": 2}, either, part, pending=[pod("p", "either")]))
        assert devices(result) == ({"p": ["n/gpu-0", "n/gpu-1"]} if fits else {})
        assert getattr(result.decisions[0], "message", "").endswith("" if fits else text)


def test_room_is_made_for_an_alternative_beside_one_that_asks_for_all_devices_of_an_incomplete_pool() -> None:
    forms = (
        DeviceSubRequest(class_name="gpu", name="every", mode="All", count=0),
        DeviceSubRequest(class_name="gpu", name="two", count=2),
    )
    either = ResourceClaimTemplate(name="either", spec=ClaimSpec((ClaimRequest("gpu", forms, True),)))
    part = attrs.evolve(gpus("part", 1), node_name="n", slice_count=2)
    full = legal(cluster({"n": 2}, either, part, pending=[pod("low")])).snapshot
    asked = full.with_pending(pod("high", "either", priority=9))
    (refused,) = legal(asked).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.nearest is not None
    assert [one.resolvable for one in refused.nearest.shortfalls] == [True]
    (plan,) = legal(asked, PreemptionRules()).preemptions
    assert [one.pod.name for one in plan.victims] == ["low"]


def test_a_partition_goes_to_the_node_whose_cards_lose_least() -> None:
    """A fresh card is broken only where no broken one takes the pod, however full its node is."""
    templates = [
        ResourceClaimTemplate(name=name, spec=claim("c", [request("r", "mig", 1, name)]).spec)
        for name in ("1g.10gb", "2g.20gb", "7g.80gb")
    ]
    start = ClusterSnapshot(
        nodes=[node("a"), node("b")],
        records=[*CLASSES.values(), *templates, *mig_cards("a", 2), *mig_cards("b", 1)],
    )
    order = (("first", "7g.80gb"), ("second", "1g.10gb"), ("third", "2g.20gb"), ("fourth", "1g.10gb"))
    where = {}
    for name, template in order:
        result = schedule(start.with_pending(pod(name, template)))
        assert verify(start.with_pending(pod(name, template)), result) == ()
        ((device,),) = devices(result).values()
        where[name] = "-".join(device.split("-")[:2])
        start = result.snapshot
    assert where["first"] != where["second"]
    assert where["second"] == where["third"] == where["fourth"]


def test_the_spread_policy_spreads_devices_of_claims_too() -> None:
    pods = [pod(f"p{number}") for number in range(4)]
    snapshot = cluster({"a": 4, "b": 4}, pending=pods)
    packed = schedule(snapshot)
    spread = schedule(snapshot, policy=named_policy("spread"))
    assert len({one.node for one in packed.bound}) == 1
    assert len({one.node for one in spread.bound}) == 2


def test_devices_whose_kubelet_may_skip_operations_need_a_node_that_declares_it() -> None:
    skipping = attrs.evolve(gpus("a", 1), skip_node_operations=("NodePrepareResources",))
    known = cluster({"a": 0}, pending=[pod("p")])
    for features, number in (((), 0), (("DRAOptionalNodeOperations",), 1)):
        nodes = [attrs.evolve(one.node, features=features) for one in known.nodes]
        snapshot = ClusterSnapshot(nodes=nodes, pending=known.pending, records=[GPU, *TEMPLATES, skipping])
        assert len(legal(snapshot).bound) == number


def test_a_count_that_is_none_is_refused() -> None:
    spec = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="gpu", count=-1),)),))
    template = ResourceClaimTemplate(name="none", spec=spec)
    (refused,) = legal(cluster({"a": 1}, template, pending=[pod("p", "none")])).decisions
    assert isinstance(refused, Unschedulable)
    assert "unsupported count -1" in refused.message


def of_models(models: dict[str, Sequence[str]]) -> ClusterSnapshot:
    """Cards by node, and three pods that want two of one generation each: what the model begins with."""
    generation = DerivedAttribute(
        name=f"{DRIVER}/generation", expression=f"device.attributes['{DRIVER}'].model.split('-')[0]"
    )
    pair = DeviceSubRequest(class_name="gpu", count=2, derived_attributes=(generation,))
    alike = DeviceConstraint(match_attribute=f"{DRIVER}/generation")
    slices = [
        attrs.evolve(
            gpus(name, 0),
            devices=tuple(
                SliceDevice(
                    name=f"gpu-{number}",
                    attributes={"model": AttributeValue(AttributeKind.STRING, (model,))},
                )
                for number, model in enumerate(there)
            ),
        )
        for name, there in models.items()
    ]
    template = ResourceClaimTemplate(name="alike", spec=ClaimSpec((ClaimRequest("gpu", (pair,)),), (alike,)))
    return ClusterSnapshot(
        nodes=[node(name) for name in models],
        pending=[pod(name, "alike") for name in "pqr"],
        records=[GPU, template, *slices],
    )


def test_attributes_that_are_derived_have_to_agree_and_the_checker_derives_them_too() -> None:
    result = legal(of_models({"a": ("h100-80", "h100-94", "a100-40"), "b": ("a100-80", "l40", "a100-40")}))
    assert sorted(devices(result).values()) == [["a/gpu-0", "a/gpu-1"], ["b/gpu-0", "b/gpu-2"]]
    others = of_models({"a": ("h100-80", "b200", "a100-40"), "b": ("a100-80", "l40", "b200")})
    messages = [one.message for one in verify(others, result)]
    assert sum(f"devices do not agree in {DRIVER}/generation" in one for one in messages) == 2
