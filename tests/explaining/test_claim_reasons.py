"""What a pod is told whose claims no device satisfies."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.claims_data import CLASSES, GPU as GPU_DRIVER, claim, mig_cards, request
from koordcore import explain
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import DeviceCapacity, DeviceTaint, ResourceSlice
from koordcore.model.nodes import NodeState
from koordcore.model.quantity import NANO
from koordcore.model.records import ClusterRecord
from koordcore.protocol.claims import claim_name
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims import GPU, TEMPLATES, cluster, gpus, node, pod

TAINT = DeviceTaint(key="xid", value="79", effect="NoSchedule")


def with_slice(changed: ResourceSlice) -> ClusterSnapshot:
    known = cluster({"a": 0}, pending=[pod("p", "two")])
    records: list[ClusterRecord] = [GPU, *TEMPLATES, changed]
    return ClusterSnapshot(nodes=[one.node for one in known.nodes], pending=known.pending, records=records)


def tainted() -> ResourceSlice:
    one, other = gpus("a", 2).devices
    return attrs.evolve(gpus("a", 2), devices=(attrs.evolve(one, taints=(TAINT,)), other))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            tainted(),
            "1 of 2 devices can be had (1 suit: 1 with taints that it does not tolerate: xid=79:NoSchedule)",
        ),
        (
            attrs.evolve(gpus("a", 2), slice_count=2),
            "(none suits); slices of gpu.example.com/a are missing or contradict each other",
        ),
    ],
)
def test_what_keeps_devices_from_a_request_is_named(changed: ResourceSlice, told: str) -> None:
    explained = explain(with_slice(changed), "default/p")
    lines = [line for one in explained.help for line in one.details]
    assert any(line.endswith(told) for line in lines), lines


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"memory": 8 << 30}, "(1 suit: 1 that cannot give memory 8Gi, whoever holds them)"),
        ({"vfs": 1}, "(0 suit: 2 that cannot give vfs 1, whoever holds them)"),
    ],
)
def test_devices_that_never_have_the_capacity_are_told(asked: dict[str, int], told: str) -> None:
    """A selector is not to blame."""
    one, other = gpus("a", 2).devices
    sizes = [{"memory": DeviceCapacity(size * 2**30 * NANO, binary=True)} for size in (4, 8)]
    devices = [attrs.evolve(each, capacity=size) for each, size in zip((one, other), sizes, strict=True)]
    amounts = {name: amount * NANO for name, amount in asked.items()}
    form = DeviceSubRequest(class_name="gpu", count=2, capacity=amounts)
    template = ResourceClaimTemplate(name="two", spec=ClaimSpec((ClaimRequest("main", (form,)),)))
    known = with_slice(attrs.evolve(gpus("a", 2), devices=tuple(devices))).with_records(template)
    lines = [line for each in explain(known, "default/p").help for line in each.details]
    assert any(line.endswith(told) for line in lines), lines


def test_a_pod_is_told_of_its_own_claim() -> None:
    """Two pods out of one template are of one class, whoever was asked about first."""
    snapshot = cluster({"a": 1}, pending=[pod("alice", "two"), pod("bob", "two")])
    for name in ("alice", "bob"):
        ((line,),) = [one.details for one in explain(snapshot, f"default/{name}").help]
        assert line.startswith(f"claim {name}-")


def test_devices_without_an_attribute_that_must_agree_are_told() -> None:
    both = tuple(ClaimRequest(name, (DeviceSubRequest(class_name="gpu"),)) for name in ("one", "other"))
    rule = DeviceConstraint(("one", "other"), match_attribute="gpu.example.com/root")
    template = ResourceClaimTemplate(name="alike", spec=ClaimSpec(both, (rule,)))
    explained = explain(cluster({"a": 2}, template, pending=[pod("p", "alike")]), "default/p")
    lines = [line for one in explained.help for line in one.details]
    assert len(lines) == 2
    assert all(
        one.endswith("0 of 1 devices can be had (2 suit: 2 without gpu.example.com/root)") for one in lines
    )


def partitioned(**taken: tuple[str, ...]) -> ClusterSnapshot:
    """Make a node with four cards, by card what is taken of it, and a pod that wants three of 3g."""
    results = tuple(
        DeviceResult(request="r", driver=GPU_DRIVER, pool="m", device=f"{card.replace('_', '-')}-{one}")
        for card, ones in taken.items()
        for one in ones
    )
    wants = ResourceClaimTemplate(name="three", spec=claim("c", [request("part", "mig", 3, "3g.40gb")]).spec)
    used = ResourceClaim(
        name="used", allocation=ClaimAllocation(results=results), reserved_for=(ClaimConsumer("runs"),)
    )
    running = attrs.evolve(pod("runs", claim="used"), node_name="m")
    return ClusterSnapshot(
        nodes=[NodeState(node("m"), (running,))],
        pending=[pod("p", "three")],
        records=[*CLASSES.values(), wants, used, *mig_cards("m", 4)],
    )


NARROW = ("4g-40gb-0", "1g-10gb-4", "1g-10gb-6")
HALF = ("4g-40gb-0",)


@pytest.mark.parametrize(
    ("snapshot", "told", "cards"),
    [
        (
            partitioned(gpu_0=HALF, gpu_1=HALF, gpu_2=NARROW, gpu_3=NARROW),
            "2 of 3 devices can be had (8 suit: 6 short of counters)",
            "counters of gpu-2 and gpu-3 allow 1g.10gb only",
        ),
        (
            partitioned(gpu_0=("7g-80gb-0",), gpu_1=("7g-80gb-0",), gpu_2=("7g-80gb-0",), gpu_3=NARROW),
            "0 of 3 devices can be had (8 suit: 8 short of counters)",
            "counters of gpu-0, gpu-1 and gpu-2 allow nothing more; counters of gpu-3 allow 1g.10gb only",
        ),
        (
            partitioned(
                gpu_0=("7g-80gb-0",), gpu_1=("7g-80gb-0",), gpu_2=("7g-80gb-0",), gpu_3=("1g-10gb-0",)
            ),
            "1 of 3 devices can be had (8 suit: 7 short of counters)",
            "counters of gpu-0, gpu-1 and gpu-2 allow nothing more",
        ),
    ],
    ids=["two of three", "none", "one"],
)
def test_cards_that_stand_in_the_way_are_named_with_what_they_still_allow(
    snapshot: ClusterSnapshot, told: str, cards: str
) -> None:
    explained = explain(snapshot, "default/p")
    assert [line for one in explained.help for line in one.details] == [
        f"claim {claim_name(pod('p'), 'gpu')}, request part: {told}; {cards}",
        "without default/runs it would do",
    ]


def test_partitions_that_can_be_had_one_by_one_and_not_together_are_counted_together() -> None:
    """Two starts of a card are free, and its compute slices suffice for one of them."""
    taken = ("7g-80gb-0",)
    snapshot = partitioned(gpu_0=("1g-10gb-0", "1g-10gb-1"), gpu_1=taken, gpu_2=taken, gpu_3=taken)
    (found, _) = (line for one in explain(snapshot, "default/p").help for line in one.details)
    assert "1 of 3 devices can be had (" in found


def test_the_pools_of_the_node_itself_are_named() -> None:
    """Both nodes look the same to every claim; one of them lacks something else, too."""
    slices = [attrs.evolve(gpus(name, 2), slice_count=2) for name in "ab"]
    closed = attrs.evolve(node("a"), unschedulable=True)
    snapshot = ClusterSnapshot(
        nodes=[closed, node("b")], pending=[pod("p", "two")], records=[GPU, *TEMPLATES, *slices]
    )
    said = [(one.nearest, line) for one in explain(snapshot, "default/p").help for line in one.details]
    assert {name for name, _ in said} == {"a", "b"}
    for name, line in said:
        assert line.endswith(f"; slices of gpu.example.com/{name} are missing or contradict each other")
