"""Cards, NICs, CPUs and NUMA amounts that a plan gives away wrongly are named, each for its own reason."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    Policy,
    ScheduleResult,
    ViolationKind,
    verify,
)
from koordcore.model.devices import (
    Device,
    DeviceObject,
    DeviceTopology,
    DeviceType,
    GPUPartition,
    SharedTemplates,
    VFGroup,
    VirtualFunction,
)
from koordcore.model.numa import NodeResourceTopology, NUMANodeResource
from koordcore.model.records import ClusterRecord
from koordcore.topology.cpu import CPUTopology

SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
CORE, RATIO, RDMA = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/rdma"
MEMORY = "koordinator.sh/gpu-memory"
ROOM = {
    "cpu": 64_000,
    "pods": 20,
    CORE: 400,
    RATIO: 400,
    RDMA: 200,
    "huawei.com/npu-core": 80,
    "koordinator.sh/gpu.shared": 40,
}
WHOLE = {CORE: 100, RATIO: 100}
SWITCHES = {0: "a", 1: "a", 2: "b", 3: "b"}


def card(minor: int, *, health: bool = True, topology: bool = True) -> Device:
    place = DeviceTopology(node_id=minor // 2, pcie_id=SWITCHES[minor]) if topology else None
    return Device(type=DeviceType.GPU, minor=minor, resources=WHOLE, topology=place, health=health)


def nic(minor: int, switch: str) -> Device:
    place = DeviceTopology(node_id=minor, pcie_id=switch)
    return Device(type=DeviceType.RDMA, minor=minor, resources={RDMA: 100}, topology=place)


NODE = DeviceObject(name="n", devices=(*map(card, range(4)), nic(0, "a"), nic(1, "b")))


def gives(*minors: int, amounts: dict[str, int] | None = None, kind: str = "gpu") -> dict[str, Any]:
    texts = {name: str(amount) for name, amount in (amounts or WHOLE).items()}
    return {kind: [{"minor": minor, "resources": texts} for minor in minors]}


def told(
    given: dict[str, str],
    requests: dict[str, int],
    *running: Pod,
    records: tuple[ClusterRecord, ...] = (NODE,),
    asks: dict[str, str] | None = None,
    policy: Policy | None = None,
    **node: Any,
) -> list[str]:
    """What is wrong once a pod with these requests and annotations got what is given."""
    one = Node(**{"name": "n", "allocatable": ROOM, **node})
    pod = Pod(name="p", requests=requests, annotations=asks or {})
    states = [NodeState(one, tuple(other.at("n") for other in running))]
    snapshot = ClusterSnapshot(nodes=states, pending=[pod], records=records)
    decision = Bound(pod=pod.key, node="n", annotations=given)
    after = snapshot.assume(pod.at("n", annotations=given))
    result = ScheduleResult(decisions=(decision,), snapshot=after, policy=policy or Policy())
    found = verify(snapshot, result)
    assert {each.kind for each in found} <= {ViolationKind.DEVICE, ViolationKind.CPU, ViolationKind.NUMA}
    return [each.message for each in found]


def devices(*parts: dict[str, Any]) -> dict[str, str]:
    return {ALLOCATED: json.dumps({kind: entries for one in parts for kind, entries in one.items()})}


def cards(number: int) -> dict[str, int]:
    return {CORE: 100 * number, RATIO: 100 * number}


def test_whole_cards_and_nothing_else() -> None:
    assert told(devices(gives(0, 1)), cards(2)) == []
    assert told(devices(gives(0)), cards(2)) == [
        f"asked for 200 {CORE}, holds 100",
        f"asked for 200 {RATIO}, holds 100",
    ]
    assert told(devices(gives(0, 1)), cards(1)) == [
        f"asked for 100 {CORE}, holds 200",
        f"asked for 100 {RATIO}, holds 200",
    ]


def test_memory_of_cards_is_given_as_it_is_asked_for() -> None:
    large = attrs.evolve(card(0), resources={**WHOLE, MEMORY: 80})
    device = DeviceObject(name="n", devices=(large,))
    room = {**ROOM, MEMORY: 80}
    half, asked = {CORE: 50, RATIO: 50, MEMORY: 40}, {CORE: 50, MEMORY: 40}
    assert told(devices(gives(0, amounts=half)), asked, records=(device,), allocatable=room) == []
    less = {**half, MEMORY: 30}
    assert told(devices(gives(0, amounts=less)), asked, records=(device,), allocatable=room) == [
        f"asked for 40 {MEMORY}, holds 30"
    ]


def test_nobody_is_asked_on_a_node_without_devices_or_without_the_plugin() -> None:
    assert told(devices(gives(7)), cards(1), records=()) == []
    assert told(devices(gives(7)), cards(1), policy=Policy().without_plugin("DeviceShare")) == []
    # Whoever came without devices is in nobody's way, whatever others hold.
    old = Pod(name="old", requests={"cpu": 1}, annotations=devices(gives(9)))
    assert told({}, {"cpu": 1}, old) == []


def test_cards_that_are_there_healthy_and_free() -> None:
    sick = attrs.evolve(NODE, devices=(card(0), card(1, health=False)))
    assert told(devices(gives(1)), cards(1), records=(sick,)) == ["gpu 1 of n is not healthy"]
    assert told(devices(gives(3)), cards(1), records=(sick,)) == ["gpu 3 of n does not exist"]
    half = Pod(name="old", requests={"cpu": 1}, annotations=devices(gives(0, amounts={CORE: 50, RATIO: 50})))
    assert told(devices(gives(0, amounts={CORE: 50, RATIO: 50})), {CORE: 50, RATIO: 50}, half) == []
    assert told(devices(gives(0, amounts={CORE: 51, RATIO: 50})), {CORE: 51, RATIO: 50}, half) == [
        f"gpu 0 of n: 101 of 100 {CORE} given away"
    ]
    twice = told(devices(gives(0, 0, amounts={CORE: 50, RATIO: 50})), cards(1))
    assert twice == ["holds one card twice"]


def test_a_card_gives_only_what_it_reports() -> None:
    strange = {**WHOLE, "example.com/magic": 1}
    assert told(devices(gives(0, amounts=strange)), cards(1)) == ["gpu 0 of n has no example.com/magic"]
    assert told(devices(gives(0, amounts={**WHOLE, "example.com/magic": 0})), cards(1)) == []
    # What somebody else wrote on himself is not held against the new pod.
    old = Pod(name="old", annotations=devices(gives(0, amounts={"example.com/magic": 1})))
    assert told(devices(gives(0)), cards(1), old) == []


def test_a_share_of_memory_is_told_of_a_card_that_reports_no_ratio() -> None:
    """It is worked out for the node's agent; who asks for a ratio does not get such a card."""
    amounts = {CORE: 50, MEMORY: 8, RATIO: 10}
    nothing: dict[str, int] = {}
    for reported in (nothing, {RATIO: 0}):
        resources = {CORE: 100, MEMORY: 80, **reported}
        bare = (DeviceObject(name="n", devices=(attrs.evolve(card(0), resources=resources),)),)
        held = devices(gives(0, amounts=amounts))
        by_bytes = {CORE: 50, MEMORY: 8}
        assert told(held, by_bytes, records=bare, allocatable={**ROOM, MEMORY: 80}) == []
        by_ratio = devices(gives(0, amounts={CORE: 50, RATIO: 10}))
        assert len(told(by_ratio, {CORE: 50, RATIO: 10}, records=bare)) == 1


def test_virtual_functions_are_given_once() -> None:
    def functions(*names: str) -> dict[str, Any]:
        entry = {
            "minor": 0,
            "resources": {RDMA: "1"},
            "extension": {"vfs": [{"busID": one} for one in names]},
        }
        return {"rdma": [entry]}

    old = Pod(name="old", annotations=devices(functions("0.1")))
    group = VFGroup(vfs=(VirtualFunction("0.1"), VirtualFunction("0.2")))
    there = (DeviceObject(name="n", devices=(attrs.evolve(nic(0, "a"), vf_groups=(group,)),)),)
    wish = {HINT: json.dumps({"rdma": {"vfSelector": {}}})}

    def given(name: str) -> list[str]:
        return told({**wish, **devices(functions(name))}, {RDMA: 1}, old, records=there, asks=wish)

    assert given("0.2") == []
    assert given("0.1") == ["VF 0.1 of rdma 0 of n is given twice"]


@pytest.mark.parametrize(
    ("minor", "scope", "kinds", "message"),
    [
        (0, "SamePCIe", ["gpu", "rdma"], ""),
        (1, "SamePCIe", ["gpu", "rdma"], "devices are not on the same PCIe switches: gpu on a; rdma on b"),
        (1, "", ["gpu", "rdma"], ""),
        (1, "SamePCIe", ["gpu"], ""),
        (1, "SamePCIe", ["gpu", "fpga"], ""),
        (1, "SamePCIe", None, ""),
    ],
)
def test_joint_devices_share_their_switch_where_they_must(
    minor: int, scope: str, kinds: list[str] | None, message: str
) -> None:
    wish = {JOINT: json.dumps({"deviceTypes": kinds, "requiredScope": scope})}
    given = {**wish, **devices(gives(0, 1), gives(minor, kind="rdma", amounts={RDMA: 1}))}
    assert told(given, {**cards(2), RDMA: 1}, asks=wish) == ([message] if message else [])


def hinted(scope: str) -> dict[str, str]:
    return {HINT: json.dumps({"gpu": {"requiredTopologyScope": scope}})}


@pytest.mark.parametrize(
    ("scope", "minors", "fine"),
    [
        ("Device", (0,), True),
        ("Device", (0, 1), False),
        ("PCIe", (0, 1), True),
        ("PCIe", (1, 2), False),
        ("NUMANode", (2, 3), True),
        ("NUMANode", (0, 3), False),
        ("Rack", (0, 3), True),
    ],
)
def test_cards_lie_inside_the_scope_that_is_asked_for(
    scope: str, minors: tuple[int, ...], fine: bool
) -> None:
    given = {**hinted(scope), **devices(gives(*minors))}
    shown = ", ".join(map(str, minors))
    expected = [] if fine else [f"cards {shown} are not inside one {scope}"]
    assert told(given, cards(len(minors)), asks=hinted(scope)) == expected


def test_cards_whose_place_is_not_known_are_inside_no_scope_but_their_own() -> None:
    unknown = attrs.evolve(NODE, devices=(card(0, topology=False), card(1, topology=False)))
    for scope, fine in (("Device", True), ("PCIe", False), ("NUMANode", False)):
        given = {**hinted(scope), **devices(gives(1))}
        assert bool(told(given, cards(1), asks=hinted(scope), records=(unknown,))) != fine


TABLE = immutabledict(
    {
        1: tuple(GPUPartition(minors=(minor,), allocation_score=1) for minor in range(4)),
        2: (GPUPartition(minors=(0, 2), allocation_score=2), GPUPartition(minors=(1, 3), allocation_score=1)),
    }
)
TABLED = attrs.evolve(NODE, partitions=TABLE)
HONORED = attrs.evolve(TABLED, labels=immutabledict({"node.koordinator.sh/gpu-partition-policy": "Honor"}))


def test_partitions_bind_whole_cards_where_the_node_or_the_pod_says_so() -> None:
    outside = "cards {0, 1} are no partition of the node"
    assert told(devices(gives(0, 1)), cards(2), records=(TABLED,)) == []
    assert told(devices(gives(0, 1)), cards(2), records=(HONORED,)) == [outside]
    assert told(devices(gives(0, 2)), cards(2), records=(HONORED,)) == []
    spec = {SPEC: "{}"}
    assert told({**spec, **devices(gives(0, 1))}, cards(2), records=(TABLED,), asks=spec) == [outside]
    assert told({**spec, **devices(gives(1, 3))}, cards(2), records=(TABLED,), asks=spec) == []
    assert told({**spec, **devices(gives(0))}, cards(1), asks=spec) == [
        "cards {0} are no partition of the node"
    ]
    # Shares of cards are no whole cards.
    halves = {CORE: 50, RATIO: 50}
    both = {**cards(1), "koordinator.sh/gpu.shared": 2}
    assert told(devices(gives(0, 1, amounts=halves)), both, records=(HONORED,)) == []


def test_a_restricted_pod_has_the_best_partition() -> None:
    spec = {SPEC: '{"allocatePolicy": "Restricted"}'}
    for minors, wrong in (((0, 2), []), ((1, 3), ["partition {1, 3} is not of the best score 2"])):
        assert told({**spec, **devices(gives(*minors))}, cards(2), records=(TABLED,), asks=spec) == wrong
    # Kept scope: a wish that says nothing of a scope asks for none.
    empty = {HINT: '{"gpu": {}}'}
    assert told({**empty, **devices(gives(0, 3))}, cards(2), asks=empty) == []
    nothing = {HINT: "null"}
    assert told({**nothing, **devices(gives(0, 3))}, cards(2), asks=nothing) == []


MARKED = {"internal.scheduling.koordinator.sh/scheduling-hint": '{"extensions": {"DeviceShare": {}}}'}


def test_designated_devices_are_those_that_a_pod_holds() -> None:
    asks = {**MARKED, **devices(gives(2))}
    assert told(devices(gives(2)), cards(1), asks=asks) == []
    wrong = "holds gpu 1 instead of those that it was designated"
    assert told(devices(gives(1)), cards(1), asks=asks) == [wrong]
    # Without the hint that makes it one, what stands on a pod that waits is no designation.
    assert told(devices(gives(1)), cards(1), asks=devices(gives(2))) == []
    assert told(devices(gives(1)), cards(1), asks=MARKED) == []
    off = Policy().without_plugin("DeviceShare")
    assert told(devices(gives(1)), cards(1), asks=asks, policy=off) == []


def test_virtual_cards_are_those_of_their_vendors_template() -> None:
    npu = Device(
        type=DeviceType.GPU,
        minor=0,
        resources={**WHOLE, "huawei.com/npu-core": 20},
    )
    amounts = {"huawei.com/npu-core": 5, RATIO: 25}
    templates = SharedTemplates(
        "gpu-shared-resource-templates",
        "koordinator-system",
        immutabledict({"huawei-910": immutabledict({"vir05": immutabledict({"huawei.com/npu-core": 5})})}),
    )
    records = (DeviceObject(name="n", devices=(npu,)), templates)
    labels = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": "910"}

    def asked(template: str, held: dict[str, int], shared: int = 1, **node: Any) -> list[str]:
        given = gives(0, amounts=held)
        given["gpu"][0]["extension"] = {"gpuSharedResourceTemplate": template}
        requests = {
            "koordinator.sh/gpu.shared": shared,
            RATIO: 25,
            "huawei.com/npu-core": held["huawei.com/npu-core"],
        }
        return told(devices(given), requests, records=records, **node)

    wrong = ["gpu 0 is no virtual card of a template of its vendor"]
    assert asked("vir05", amounts, labels=labels) == []
    assert asked("vir10", amounts, labels=labels) == wrong
    assert asked("vir05", {**amounts, "huawei.com/npu-core": 6}, labels=labels) == wrong
    assert asked("vir05", amounts, labels={}) == wrong
    assert asked("vir10", amounts, shared=0, labels=labels) == []


# -- CPUs and NUMA nodes -----------------------------------------


CPUS = NodeResourceTopology(
    name="n",
    topology=CPUTopology.of([(cpu, cpu // 2, cpu // 4, 0) for cpu in range(8)]),
    zones=tuple(NUMANodeResource(numa, {"cpu": 4000}) for numa in range(2)),
    reserved_cpus=0b1,
)


def bound(cpus: str, **zones: int) -> dict[str, str]:
    listed = [
        {"node": int(name[1:]), "resources": {"cpu": f"{amount}m"}} for name, amount in sorted(zones.items())
    ]
    return {STATUS: json.dumps({"cpuset": cpus, "numaNodeResources": listed})}


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ("1-2", ""),
        ("2,9", "n has no CPU 9"),
        ("0,2", "CPU 0 of n is reserved"),
        ("2,7", "CPU 7 of n is given 2 times, at most 1"),
        ("1-3", "asked for 2000 milli-CPU, holds 3 CPUs"),
    ],
)
def test_cpus_are_there_free_and_as_many_as_asked_for(cpus: str, message: str) -> None:
    old = Pod(name="old", annotations=bound("7"), requests={"cpu": 1000})
    assert told(bound(cpus), {"cpu": 2000}, old, records=(CPUS,)) == ([message] if message else [])


def test_a_node_may_let_several_pods_have_one_cpu() -> None:
    shared = attrs.evolve(CPUS, max_ref_count=2)
    old = [Pod(name=f"old{n}", annotations=bound("7"), requests={"cpu": 1000}) for n in range(2)]
    assert told(bound("2,7"), {"cpu": 2000}, old[0], records=(shared,)) == []
    assert told(bound("2,7"), {"cpu": 2000}, *old, records=(shared,)) == [
        "CPU 7 of n is given 3 times, at most 2"
    ]


def test_cpus_of_a_node_that_tells_nothing_do_not_exist() -> None:
    assert told(bound("1"), {"cpu": 1000}, records=()) == ["n has no CPU 1"]
    off = Policy().without_plugin("NodeNUMAResource")
    assert told(bound("1"), {"cpu": 2000}, records=(), policy=off) == []


def test_amounts_on_a_numa_node_fit_it() -> None:
    old = Pod(name="old", annotations=bound("", n0=3000), requests={"cpu": 3000})
    assert told(bound("", n0=1000), {"cpu": 1000}, old, records=(CPUS,)) == []
    assert told(bound("", n0=1001), {"cpu": 1001}, old, records=(CPUS,)) == [
        "cpu on NUMA node 0 of n: 4001 of 4000"
    ]
    assert told(bound("", n1=4000), {"cpu": 4000}, old, records=(CPUS,)) == []
    assert told(bound("", n2=1), {"cpu": 1}, records=(CPUS,)) == ["n has no NUMA node 2"]


@pytest.mark.parametrize("told_by", ["node", "topology"])
@pytest.mark.parametrize(
    ("cpus", "most"),
    [("1-2", 3000), ("", 4000), ("5-6", 4000)],
)
def test_cpus_of_ones_own_count_as_often_as_a_numa_node_has_more(told_by: str, cpus: str, most: int) -> None:
    """NUMA node 0 has 6000 at ratio 1.5, of which one pod holds 2000; where these are CPUs, they are 3000."""
    records = CPUS
    if told_by == "topology":
        zones = tuple(NUMANodeResource(numa, {"cpu": 6000}) for numa in range(2))
        records = attrs.evolve(CPUS, zones=zones, amplification_ratios={"cpu": 1.5})
    notes = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu": 1.5}'}
    old = Pod(name="old", annotations=bound(cpus, n0=2000), requests={"cpu": 2000})
    for amount, wrong in ((most, []), (most + 1, ["cpu on NUMA node 0 of n: 6001 of 6000"])):
        given = bound("", n0=amount)
        assert told(given, {"cpu": amount}, old, records=(records,), annotations=notes) == wrong


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (
            {},
            bound("2,7", n0=1000, n1=1000),
            "is across NUMA nodes, and on 0 is default/alone, which is there alone",
        ),
        ({"singleNUMANodeExclusive": "Preferred"}, bound("2,7", n0=1000, n1=1000), ""),
        ({"numaTopologyPolicy": "BestEffort"}, bound("2,7", n0=1000, n1=1000), ""),
        ({}, bound("6-7", n1=2000), ""),
    ],
)
def test_a_pod_across_numa_nodes_keeps_off_those_of_pods_that_are_there_alone(
    spec: dict[str, str], given: dict[str, str], message: str
) -> None:
    wish = {TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "Restricted", **spec})}
    alone = Pod(name="alone", annotations=bound("1", n0=1000), requests={"cpu": 1000})
    found = told(given, {"cpu": 2000}, alone, records=(CPUS,), asks=wish)
    assert found == ([message] if message else [])
    across = Pod(name="x", annotations=bound("3,4", n0=1000, n1=1000), requests={"cpu": 2000})
    # Where a pod across is already, another one does no harm.
    assert told(given, {"cpu": 2000}, alone, across, records=(CPUS,), asks=wish) == []


def test_a_pod_of_one_numa_node_keeps_off_pods_across_several() -> None:
    across = Pod(name="across", annotations=bound("3,6", n0=1000, n1=1000), requests={"cpu": 2000})
    message = "is on NUMA node 1 alone, and default/across, which is across several, is there"
    for spec, wrong in (("{}", []), ('{"numaTopologyPolicy": "SingleNUMANode"}', [message])):
        given = told(bound("4", n1=1000), {"cpu": 1000}, across, records=(CPUS,), asks={TOPOLOGY_SPEC: spec})
        assert given == wrong


def test_what_cannot_be_read_is_said_of_the_new_pod_only() -> None:
    broken = {STATUS: "{"}
    assert told(broken, {"cpu": 1000}, records=(CPUS,)) == [f"{STATUS} cannot be read"]
    old = Pod(name="old", annotations=broken, requests={"cpu": 1000})
    assert told(bound("2"), {"cpu": 1000}, old, records=(CPUS,)) == []
    unread = {ALLOCATED: "[]"}
    assert told(unread, cards(1)) == [f"{ALLOCATED} cannot be read"]
    assert told(devices(gives(0)), cards(1), Pod(name="old", annotations=unread)) == []
