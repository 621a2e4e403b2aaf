"""What a pod must have and a plan leaves out or gives otherwise is named; what schedule decides is not.

Every case is a plan that ``schedule`` made; the corruption changes what is written on one pod, in decision
and snapshot alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, Reservation, ScheduleResult, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound
from koordcore.snapshot import PodBound, PodEnded, RecordReplaced
from koordcore.snapshot.cluster import bind

Json = dict[str, Any]

S, K, N = "scheduling.koordinator.sh/", "koordinator.sh/", "node.koordinator.sh/"
STATUS, DEVICES, RESERVATION = S + "resource-status", S + "device-allocated", S + "reservation-allocated"
LSR = {K + "qosClass": "LSR"}
CARDS = {
    "nvidia.com/gpu": "4",
    K + "gpu-core": "400",
    K + "gpu-memory-ratio": "400",
    K + "gpu-memory": "64Gi",
}
SHARED = {K + "gpu.shared": "400", K + "rdma": "200"}
CARD = {K + "gpu-core": "100", K + "gpu-memory-ratio": "100", K + "gpu-memory": "16Gi"}
SINGLE, RESTRICTED = ({N + "numa-topology-policy": one} for one in ("SingleNUMANode", "Restricted"))
AMPLIFIED = {N + "resource-amplification-ratio": '{"cpu":1.5}', N + "raw-allocatable": '{"cpu":"8"}'}


def node(labels: Json | None = None, notes: Json | None = None, **amounts: str) -> Json:
    room = {"cpu": "8", "memory": "8Gi", "pods": "10", **CARDS, **SHARED, **amounts}
    metadata = {"name": "n", "labels": labels or {}, "annotations": notes or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": room}}


def pod(
    requests: Json, labels: Json | None = None, notes: Json | None = None, name: str = "p", **spec: Any
) -> Json:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": labels or {},
        "annotations": notes or {},
    }
    containers = [{"name": "c", "resources": {"requests": requests, "limits": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def lsr(cpu: int, notes: Json | None = None, labels: Json | None = None) -> Json:
    return pod({"cpu": str(cpu)}, {**LSR, **(labels or {})}, notes, priority=9500)


def topology(numas: int = 2, **kubelet: str) -> Json:
    """Four cores of two CPUs on each NUMA node."""
    rows = [{"id": c, "core": c // 2, "socket": c // 4, "node": c // 4} for c in range(8)]
    zones = [
        {
            "name": f"node-{numa}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                for name, amount in (("cpu", "4"), ("memory", "4Gi"))
            ],
        }
        for numa in range(numas)
    ]
    notes = {N + "cpu-topology": json.dumps({"detail": rows})}
    if kubelet:
        notes["kubelet.koordinator.sh/cpu-manager-policy"] = json.dumps(
            {"policy": "static", "options": kubelet}
        )
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "annotations": notes},
        "zones": zones,
    }


def devices() -> Json:
    """Two cards and a NIC on each NUMA node."""
    cards = [("gpu", minor, CARD, minor // 2) for minor in range(4)]
    nics = [("rdma", minor, {K + "rdma": "100"}, minor) for minor in range(2)]
    found = [
        {
            "type": kind,
            "minor": minor,
            "id": f"{kind}-{minor}",
            "health": True,
            "resources": amounts,
            "topology": {"nodeID": numa, "socketID": numa, "pcieID": f"switch-{numa}"},
        }
        for kind, minor, amounts, numa in (*cards, *nics)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n"},
        "spec": {"devices": found},
    }


def reservation(amounts: Json, notes: Json, policy: str = "Restricted") -> Json:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "uid-r", "annotations": notes},
        "spec": {
            "ttl": "0s",
            "allocateOnce": False,
            "allocatePolicy": policy,
            "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
            "template": template,
        },
        "status": {"phase": "Available", "nodeName": "n", "allocatable": amounts},
    }


def gpu(*minors: int, **changed: str) -> Json:
    amounts = {**CARD, **{K + name.replace("_", "-"): amount for name, amount in changed.items()}}
    kept = {name: amount for name, amount in amounts.items() if amount}
    return {"gpu": [{"minor": minor, "resources": kept} for minor in minors]}


def nic(minor: int) -> Json:
    return {"rdma": [{"minor": minor, "resources": {K + "rdma": "100"}}]}


def zones(**amounts: Json) -> Json:
    return {"numaNodeResources": [{"node": int(name[1:]), "resources": one} for name, one in amounts.items()]}


def planned(*objects: Json) -> tuple[ClusterSnapshot, ScheduleResult]:
    snapshot = snapshot_from_objects(list(objects)).snapshot
    result = schedule(snapshot)
    assert [one.pod.name for one in result.bound] == ["p"]
    assert verify(snapshot, result) == ()
    return snapshot, result


def rewritten(snapshot: ClusterSnapshot, result: ScheduleResult, notes: Mapping[str, Any]) -> ScheduleResult:
    """The plan with other annotations on the pod; ``None`` takes one away."""
    (decision,) = result.bound
    texts = {key: json.dumps(value) for key, value in notes.items() if value is not None}
    kept = {key: text for key, text in decision.annotations.items() if key not in notes}
    changed = attrs.evolve(decision, annotations={**kept, **texts})
    waiting = snapshot.pod(decision.pod)
    assert waiting is not None
    after = result.snapshot.apply(PodEnded(decision.pod), PodBound(bind(waiting, changed)))
    return attrs.evolve(result, decisions=(changed,), snapshot=after)


def told(notes: Mapping[str, Any], *objects: Json) -> list[str]:
    """What is wrong with the plan for some objects once other annotations stand on the pod."""
    snapshot, result = planned(*objects)
    return [one.message for one in verify(snapshot, rewritten(snapshot, result, notes))]


def spec(policy: str) -> Json:
    return {S + "resource-spec": json.dumps({"requiredCPUBindPolicy": policy})}


@pytest.mark.parametrize("status", [None, {}, {"cpuset": ""}, {"cpuset": "0"}, {"cpuset": "0-2"}])
def test_a_pod_that_is_bound_holds_as_many_cpus_as_it_asked_for(status: Json | None) -> None:
    held = {None: 0, "": 0, "0": 1, "0-2": 3}[(status or {}).get("cpuset")]
    wrong = f"asked for 2000 milli-CPU, holds {held} CPUs"
    assert told({STATUS: status}, node(), topology(), lsr(2)) == [wrong]


@pytest.mark.parametrize(
    ("labels", "kubelet"),
    [({N + "cpu-bind-policy": "FullPCPUsOnly"}, {}), ({}, {"full-pcpus-only": "true"})],
)
def test_a_node_may_bind_every_pod(labels: Json, kubelet: Json) -> None:
    objects = node(labels), topology(**kubelet), pod({"cpu": "2"})
    assert told({STATUS: None}, *objects) == ["asked for 2000 milli-CPU, holds 0 CPUs"]
    assert told({STATUS: {"cpuset": "0,2"}}, *objects) == ["FullPCPUs is required, holds 2 CPUs of 2 cores"]
    assert told({STATUS: {"cpuset": "2-3"}}, *objects) == []


@pytest.mark.parametrize(("policy", "fine", "cores"), [("FullPCPUs", "4-5", 2), ("SpreadByPCPUs", "4,6", 1)])
def test_a_required_bind_policy_holds(policy: str, fine: str, cores: int) -> None:
    objects = node(), topology(), lsr(2, spec(policy))
    broken = "0,2" if policy == "FullPCPUs" else "0-1"
    wrong = f"{policy} is required, holds 2 CPUs of {cores} cores"
    assert told({STATUS: {"cpuset": broken}}, *objects) == [wrong]
    assert told({STATUS: {"cpuset": fine}}, *objects) == []


def test_who_only_prefers_a_bind_policy_or_may_not_be_bound_is_not_held_to_one() -> None:
    assert told({STATUS: {"cpuset": "0,2"}}, node(), topology(), lsr(2)) == []
    assert told({STATUS: None}, node(), topology(), pod({"cpu": "2"})) == []


@pytest.mark.parametrize("policy", [SINGLE, RESTRICTED])
@pytest.mark.parametrize(
    ("status", "lacking"),
    [
        (None, {"cpu": 0, "memory": 0}),
        (zones(n0={"cpu": "2"}), {"memory": 0}),
        (zones(n0={"cpu": "2", "memory": "1Gi"}), {"memory": 2**30}),
        (zones(n0={"cpu": "1", "memory": "2Gi"}), {"cpu": 1000}),
        (zones(n1={"cpu": "2", "memory": "2Gi"}), {}),
    ],
)
def test_amounts_on_numa_nodes_are_those_asked_for(policy: Json, status: Json, lacking: Json) -> None:
    asked = {"cpu": 2000, "memory": 2**31}
    wrong = [f"asked for {asked[name]} {name}, holds {held} on NUMA nodes" for name, held in lacking.items()]
    objects = node(policy), topology(), pod({"cpu": "2", "memory": "2Gi"})
    assert told({STATUS: status}, *objects) == wrong


def test_a_policy_of_the_pod_binds_like_one_of_the_node() -> None:
    own = {S + "numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'}
    asks = pod({"cpu": "2"}, None, own)
    assert told({STATUS: None}, node(), topology(), asks) == ["asked for 2000 cpu, holds 0 on NUMA nodes"]
    _, result = planned(node(), topology(), asks)
    other = snapshot_from_objects([node(RESTRICTED), topology(), asks]).snapshot
    moved = attrs.evolve(result, snapshot=other.apply(PodBound(bind(other.pending[0], result.bound[0]))))
    assert [one.message for one in verify(other, moved)] == ["wants SingleNUMANode, n is Restricted"]
    bare = snapshot_from_objects([node(), asks]).snapshot
    moved = attrs.evolve(result, snapshot=bare.apply(PodBound(bind(bare.pending[0], result.bound[0]))))
    wrong = "is under SingleNUMANode, and n tells no NUMA nodes"
    assert wrong in [one.message for one in verify(bare, moved)]


@pytest.mark.parametrize("policy", [{}, {N + "numa-topology-policy": "BestEffort"}])
def test_without_a_policy_that_must_hold_nothing_is_missed(policy: Json) -> None:
    assert told({STATUS: None}, node(policy), topology(), pod({"cpu": "2"})) == []


def test_who_asks_for_nothing_goes_anywhere() -> None:
    own = {S + "numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'}
    assert told({}, node(RESTRICTED), pod({}, LSR, own, priority=9500)) == []


def test_on_a_single_numa_node_there_is_nothing_to_write() -> None:
    assert told({STATUS: None}, node(SINGLE), topology(numas=1), pod({"cpu": "2"})) == []


APART = "is under SingleNUMANode and lies on NUMA nodes 0, 1"


def test_a_single_numa_node_holds_all() -> None:
    both = zones(n0={"cpu": "1", "memory": "1Gi"}, n1={"cpu": "1", "memory": "1Gi"})
    assert told({STATUS: both}, node(SINGLE), topology(), pod({"cpu": "2", "memory": "2Gi"})) == [APART]
    asks = pod({"cpu": "1", "nvidia.com/gpu": "2"})
    here = zones(n0={"cpu": "1"})
    for given, wrong in ((gpu(0, 1), []), (gpu(1, 2), [APART]), (gpu(2, 3), [APART])):
        assert told({STATUS: here, DEVICES: given}, node(SINGLE), topology(), devices(), asks) == wrong
        assert told({STATUS: here, DEVICES: given}, node(RESTRICTED), topology(), devices(), asks) == []


@pytest.mark.parametrize(
    ("cpus", "status", "wrong"),
    [
        ("0-1", zones(n1={"cpu": "2"}), ["0 CPUs of NUMA node 1 and 2000", "2 CPUs of NUMA node 0 and 0"]),
        ("0,4", zones(n0={"cpu": "2"}), ["1 CPUs of NUMA node 0 and 2000", "1 CPUs of NUMA node 1 and 0"]),
        ("0,4", zones(n0={"cpu": "1"}, n1={"cpu": "1"}), []),
    ],
)
def test_cpus_lie_where_the_amounts_are(cpus: str, status: Json, wrong: list[str]) -> None:
    given = {STATUS: {**status, "cpuset": cpus}}
    expected = [f"holds {one} milli-CPU there" for one in wrong]
    assert told(given, node(RESTRICTED), topology(), lsr(2)) == expected
    assert told(given, node(SINGLE), topology(), lsr(2)) == [*expected, APART]


def test_who_runs_with_nothing_written_was_placed_by_others() -> None:
    snapshot, result = planned(node(SINGLE), topology(), devices(), lsr(2))
    assert verify(rewritten(snapshot, result, {STATUS: None}).snapshot) == ()
    less = rewritten(snapshot, result, {STATUS: {**zones(n0={"cpu": "2"}), "cpuset": "0"}}).snapshot
    assert "asked for 2000 milli-CPU, holds 1 CPUs" in [one.message for one in verify(less)]
    near = pod({"cpu": "1", K + "rdma": "100"})
    snapshot, result = planned(node(), topology(), devices(), near)
    assert verify(rewritten(snapshot, result, {DEVICES: None}).snapshot) == ()
    assert len(verify(rewritten(snapshot, result, {DEVICES: nic(0) | {"rdma": []}}).snapshot)) == 1


@pytest.mark.parametrize(
    ("asked", "given", "wrong"),
    [
        ({K + "rdma": "100"}, None, f"asked for 100 {K}rdma, holds 0"),
        ({K + "rdma": "200"}, nic(0), f"asked for 200 {K}rdma, holds 100"),
        ({K + "rdma": "100", "nvidia.com/gpu": "1"}, gpu(0), f"asked for 100 {K}rdma, holds 0"),
        (
            {"nvidia.com/gpu": "1"},
            gpu(0, 1, gpu_core="50", gpu_memory_ratio="50"),
            "asked for 1 cards, holds 2",
        ),
        (
            {K + "gpu-core": "100", K + "gpu-memory-ratio": "100", K + "gpu.shared": "2"},
            gpu(0),
            "asked for 2 cards, holds 1",
        ),
        (
            {"nvidia.com/gpu": "1"},
            gpu(0, gpu_memory=""),
            f"does not say how much {K}gpu-memory it holds of gpu 0",
        ),
        (
            {K + "gpu-memory": "8Gi"},
            gpu(0, gpu_core="", gpu_memory_ratio="", gpu_memory="8Gi"),
            f"does not say how much {K}gpu-memory-ratio it holds of gpu 0",
        ),
    ],
)
def test_devices_are_those_asked_for(asked: Json, given: Json | None, wrong: str) -> None:
    assert told({DEVICES: given}, node(), devices(), pod(asked)) == [wrong]


def test_every_card_has_its_even_share() -> None:
    uneven = {"gpu": [*gpu(0, gpu_core="150")["gpu"], *gpu(1, gpu_core="50")["gpu"]]}
    found = told({DEVICES: uneven}, node(), devices(), pod({"nvidia.com/gpu": "2"}))
    assert [one for one in found if "share" in one] == [
        f"holds 150 {K}gpu-core of gpu 0, a share is 100",
        f"holds 50 {K}gpu-core of gpu 1, a share is 100",
    ]


def test_nics_for_all_are_told_per_nic() -> None:
    hint = {S + "device-allocate-hint": '{"rdma":{"allocateStrategy":"ApplyForAll"}}'}
    objects = node(), devices(), pod({K + "rdma": "200"}, None, hint)
    assert told({}, *objects) == []
    assert told({DEVICES: {}}, *objects) == [f"asked for 100 {K}rdma, holds 0"]


def reserved(notes: Mapping[str, Any], *objects: Json) -> list[str]:
    return told({RESERVATION: {"name": "r", "uid": "uid-r"}, **notes}, *objects)


def test_an_owner_of_a_restricted_reservation_takes_what_it_holds() -> None:
    owner = pod({"nvidia.com/gpu": "1"}, {"app": "x"})
    for policy, wrong in (("Restricted", ["takes gpu 1, which r does not hold"]), ("Aligned", [])):
        there = reservation({"nvidia.com/gpu": "1"}, {DEVICES: json.dumps(gpu(0))}, policy)
        assert reserved({DEVICES: gpu(1)}, node(), devices(), there, owner) == wrong
        assert reserved({DEVICES: gpu(0)}, node(), devices(), there, owner) == []
    held = reservation({"cpu": "2"}, {STATUS: '{"cpuset":"0-1"}'})
    bound = lsr(2, None, {"app": "x"})
    wrong = ["takes CPUs 2, which r does not hold", "takes CPUs 2,3, which r does not hold"]
    assert reserved({STATUS: {"cpuset": "1-2"}}, node(), topology(), held, bound) == wrong[:1]
    assert reserved({STATUS: {"cpuset": "2-3"}}, node(), topology(), held, bound) == wrong[1:]


def with_reservation(change: Json, result: ScheduleResult) -> ScheduleResult:
    one = result.snapshot.find(Reservation, "r")
    assert one is not None
    return attrs.evolve(result, snapshot=result.snapshot.apply(RecordReplaced(attrs.evolve(one, **change))))


def closed(notes: Json, **change: Any) -> list[str]:
    """What is wrong with an owner's plan once its reservation was another one all along."""
    owner = pod({"cpu": "1"}, {"app": "x"}, notes)
    before, result = planned(node(), reservation({"cpu": "2"}, {}, "Aligned"), owner)
    one = before.find(Reservation, "r")
    assert one is not None
    other = before.apply(RecordReplaced(attrs.evolve(one, **change)))
    return [one.message for one in verify(other, with_reservation(change, result))]


def test_a_closed_reservation_takes_nobody_who_is_not_invited() -> None:
    affinity = S + "reservation-affinity"
    tolerant = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    assert closed({}) == []
    assert closed({}, unschedulable=True) == ["uses r, which is closed to new owners"]
    assert closed({affinity: '{"name":"r"}'}, unschedulable=True) == []
    assert closed({affinity: json.dumps(tolerant)}, unschedulable=True) == []


def test_an_exact_match_is_exact() -> None:
    key = S + "exact-match-reservation"
    owner = pod({"cpu": "2"}, {"app": "x"}, {key: '{"resourceNames":["cpu"]}'})
    before, result = planned(node(), reservation({"cpu": "2"}, {}, "Aligned"), owner)
    assert result.bound[0].reservation == "r"
    one = before.find(Reservation, "r")
    assert one is not None
    held: Json = {"status": attrs.evolve(one.status, allocatable={"cpu": 3000})}
    other = before.apply(RecordReplaced(attrs.evolve(one, **held)))
    after = result.snapshot.find(Reservation, "r")
    assert after is not None
    used: Json = {"status": attrs.evolve(after.status, allocatable={"cpu": 3000})}
    found = [one.message for one in verify(other, with_reservation(used, result))]
    assert found == ["must match exactly and asks for 2000 cpu, r has 3000"]


def test_cpus_that_are_bound_count_amplified() -> None:
    def running(cpu: int) -> Json:
        return pod({"cpu": str(cpu)}, name="old", nodeName="n")

    there = node(None, AMPLIFIED, cpu="12"), topology()
    _, result = planned(*there, running(6), lsr(4))
    planned(*there, running(8), pod({"cpu": "4"}))
    more = snapshot_from_objects([*there, running(8), lsr(4)]).snapshot
    moved = attrs.evolve(result, snapshot=more.apply(PodBound(bind(more.pending[0], result.bound[0]))))
    assert [one.message for one in verify(more, moved)] == [
        "cpu: 14000 requested with what is bound amplified, 12000 allocatable"
    ]


def test_cpus_that_are_bound_count_amplified_once_as_much_is_requested() -> None:
    """Whoever comes is judged by what is requested before: 100m of a whole CPU does not count as one."""
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0"}'}

    def beside(cpu: str) -> Json:
        return pod({"cpu": cpu}, {}, status, name="old", nodeName="n")

    there = node(None, AMPLIFIED, cpu="3500m")
    for more in ((), (topology(),)):
        planned(there, *more, beside("100m"), pod({"cpu": "3"}))
        planned(there, *more, beside("1"), pod({"cpu": "2"}))
        # Of two who come, the second meets as much requested as is bound.
        comes = [pod({"cpu": "1600m"}, name=f"p{number}") for number in (1, 2)]
        both = snapshot_from_objects([there, *more, beside("100m"), *comes]).snapshot
        forged = attrs.evolve(
            schedule(both),
            decisions=tuple(Bound(pod=one.key, node="n") for one in both.pending),
            snapshot=both.assume(*(attrs.evolve(one, node_name="n") for one in both.pending)),
        )
        assert [one.message for one in verify(both, forged)] == [
            "cpu: 3800 requested with what is bound amplified, 3500 allocatable"
        ]


@pytest.mark.parametrize(
    ("labels", "notes"),
    [
        ({"pod-group.scheduling.sigs.k8s.io": "g"}, {}),
        ({}, {"gang.scheduling.koordinator.sh/name": "g"}),
    ],
)
def test_a_gang_that_nothing_configures_gets_nobody(labels: Json, notes: Json) -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 1},
    }
    asks = pod({"cpu": "1"}, labels, notes)
    _, result = planned(node(), group, asks)
    alone = snapshot_from_objects([node(), asks]).snapshot
    assert not schedule(alone).bound
    moved = attrs.evolve(result, snapshot=alone.apply(PodBound(bind(alone.pending[0], result.bound[0]))))
    assert [str(one) for one in verify(alone, moved)] == [
        "gang: default/g: has a new member, and nothing configures it"
    ]
    assert verify(moved.snapshot) == ()


def test_a_hint_allows_the_nodes_that_it_names() -> None:
    key = "internal.scheduling.koordinator.sh/scheduling-hint"
    for hint, wrong in (
        ({"nodeNames": ["m"]}, ["its hint allows m, not n"]),
        ({"preferredNodeNames": ["m"]}, []),
    ):
        asks = pod({"cpu": "1"}, None, {key: json.dumps(hint)})
        snapshot = snapshot_from_objects([node(), asks]).snapshot
        placed = Bound(pod=snapshot.pending[0].key, node="n")
        after = snapshot.apply(PodBound(bind(snapshot.pending[0], placed)))
        result = ScheduleResult(decisions=(placed,), snapshot=after)
        assert [one.message for one in verify(snapshot, result)] == wrong
