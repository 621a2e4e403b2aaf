"""Manifests of release notes do what the notes say of them, entered as a reader would."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from koordcore import (
    Bound,
    Nominated,
    Policy,
    ScheduleResult,
    Unschedulable,
    Waiting,
    schedule,
    verify,
)
from koordcore.manifests import snapshot_from_objects
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import ElasticQuota
from koordcore.protocol.pod_qos import parse_cpu_qos, parse_resctrl
from tests.scheduling.device_objects import (
    KOORD,
    Objects,
    bound,
    card,
    given,
    node,
    pod,
    refusal,
    run,
)

SCHED = "scheduling.koordinator.sh/"
GANG = "gang.scheduling.koordinator.sh/"
GROUP = "pod-group.scheduling.sigs.k8s.io"
EIGHT = [card(minor, numa=minor // 4, pcie=str(minor // 2)) for minor in range(8)]


def placed(result: ScheduleResult) -> dict[str, str]:
    return {one.pod.name: one.node for one in result.decisions if isinstance(one, Bound)}


def alone(name: str, amounts: dict[str, str], **metadata: Any) -> Objects:
    """A node that offers just this."""
    status = {"allocatable": {"pods": "110", **amounts}}
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "status": status}]


def sigs(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Objects:
    api = "scheduling.sigs.k8s.io/v1alpha1"
    return [{"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}]


# --- quota, gangs, network --------------------------------------------------------------------------------


def test_a_quota_and_its_child() -> None:
    """The pod counts in the child, whose runtime lies between min and max when it asks for that much."""
    label = "quota.scheduling.koordinator.sh/"
    parent = sigs(
        "ElasticQuota",
        "parentA",
        {"max": {"cpu": "100", "memory": "200Gi"}, "min": {"cpu": "100", "memory": "200Gi"}},
        labels={label + "is-parent": "true", label + "allow-lent-resource": "true"},
    )
    child = sigs(
        "ElasticQuota",
        "childA1",
        {"max": {"cpu": "40", "memory": "100Gi"}, "min": {"cpu": "20", "memory": "40Gi"}},
        labels={label + "is-parent": "false", label + "parent": "parentA"},
    )
    waiting = [
        pod(f"p{number}", {"cpu": "10", "memory": "8Gi"}, labels={label + "name": "childA1"})
        for number in range(5)
    ]
    machine = node("n", amounts={"cpu": "100", "memory": "200Gi"})
    _, result = run(machine, parent, child, *waiting)
    assert len(placed(result)) == 4  # the max of 40, not the node's 100
    assert {one.name for one in result.snapshot.of(ElasticQuota)} == {"parentA", "childA1"}
    assert "quotaName: childA1" in refusal(result, "p4")


@pytest.mark.parametrize("members", [4, 5])
def test_five_pods_by_annotation_start_together_or_not_at_all(members: int) -> None:
    said = {GANG + "name": "pod-group-a", GANG + "min-available": "5"}
    _, result = run(node("n"), *[pod(f"p{number}", {"cpu": "1"}, said) for number in range(members)])
    assert len(placed(result)) == (5 if members == 5 else 0)


@pytest.mark.parametrize("cpus", [4, 5])
def test_two_pod_groups_of_two_namespaces_are_one(cpus: int) -> None:
    """The list of groups is a text in one and YAML in the other."""
    names = ["namespaceA/podGroupA", "namespaceB/podGroupB"]
    groups = [
        *sigs(
            "PodGroup",
            "podGroupA",
            {"minMember": 2},
            namespace="namespaceA",
            annotations={GANG + "groups": json.dumps(names), GANG + "mode": "NonStrict"},
        ),
        *sigs(
            "PodGroup",
            "podGroupB",
            {"minMember": 3},
            namespace="namespaceB",
            annotations={GANG + "groups": names},
        ),
    ]
    members = []
    for space, count in (("A", 2), ("B", 3)):
        for number in range(count):
            (one,) = pod(f"{space.lower()}{number}", {"cpu": "1"}, labels={GROUP: f"podGroup{space}"})
            one["metadata"]["namespace"] = f"namespace{space}"
            members.append(one)
    _, result = run(alone("n", {"cpu": str(cpus), "memory": "9Gi"}), groups, members)
    assert len(placed(result)) == (5 if cpus == 5 else 0)


@pytest.mark.parametrize("second", ["4", "2"])
def test_a_gang_preempts_only_if_both_members_then_fit(second: str) -> None:
    classes: Objects = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("high-priority", 1_000_000), ("low-priority", 1000))
    ]
    low = [*pod("l1", {"cpu": "4"}, on="a"), *pod("l2", {"cpu": second}, on="b")]
    high = [one for name in ("w1", "w2") for one in pod(name, {"cpu": "3"}, labels={GROUP: "job"})]
    for one in (*low, *high):
        one["spec"]["priorityClassName"] = "high-priority" if one in high else "low-priority"
    objects = [
        *alone("a", {"cpu": "4"}),
        *alone("b", {"cpu": second}),
        *classes,
        *sigs("PodGroup", "job", {"minMember": 2, "scheduleTimeoutSeconds": 300}, namespace="default"),
        *low,
        *high,
    ]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    nominated = [one for one in result.decisions if isinstance(one, Nominated)]
    victims = sorted(str(one.pod) for plan in result.preemptions for one in plan.victims)
    assert (len(nominated), victims) == ((2, ["default/l1", "default/l2"]) if second == "4" else (0, []))


def test_eight_members_gather_in_one_block_if_they_can() -> None:
    """The larger block takes all of them, though the smaller one comes first by name."""
    prefix = "network.topology.nvidia.com/"
    nodes = [
        one
        for block, count in (("b1", 3), ("b2", 4))
        for number in range(count)
        for one in alone(
            f"{block}-{number}",
            {"cpu": "4", "memory": "8Gi"},
            labels={prefix + "block": block, prefix + "spine": "s1"},
        )
    ]
    layers = [
        {"labelKey": [prefix + "spine"], "topologyLayer": "SpineLayer"},
        {"labelKey": [prefix + "block"], "parentTopologyLayer": "SpineLayer", "topologyLayer": "BlockLayer"},
        {"parentTopologyLayer": "BlockLayer", "topologyLayer": "NodeTopologyLayer"},
    ]
    topology: Objects = [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "default"},
            "spec": {"networkTopologySpec": layers},
        }
    ]
    spec = {"gatherStrategy": [{"layer": "BlockLayer", "strategy": "PreferGather"}]}
    group = sigs(
        "PodGroup",
        "training-job",
        {"minMember": 8},
        namespace="default",
        annotations={GANG + "network-topology-spec": json.dumps(spec)},
    )
    members = [pod(f"t{number}", {"cpu": "2"}, labels={GROUP: "training-job"}) for number in range(8)]
    _, result = run(nodes, topology, group, *members)
    assert {where.partition("-")[0] for where in placed(result).values()} == {"b2"}


def test_cards_cores_and_memory_from_one_numa_node() -> None:
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 64, "socket": cpu // 64} for cpu in range(128)]
    amounts = {"cpu": "64", "memory": "500Gi"}
    zone = [
        {"name": key, "capacity": one, "allocatable": one, "available": one} for key, one in amounts.items()
    ]
    told: Objects = [
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": "n",
                "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        }
    ]
    wish = {
        SCHED + "numa-topology-spec": {
            "numaTopologyPolicy": "Restricted",
            "singleNUMANodeExclusive": "Preferred",
        }
    }
    wants = pod("p", {KOORD + "gpu": "200", "cpu": "64", "memory": "500Gi"}, wish)
    machine = node("n", *EIGHT, amounts={"cpu": "128", "memory": "1000Gi"})
    running = pod("other", {"cpu": "1"}, {SCHED + "resource-status": _on_zone(0, "1")}, on="n")
    _, result = run(machine, told, running, wants)
    assert given(result, "p")["gpu"] in ([4, 5], [6, 7])
    status = json.loads(bound(result, "p").annotations[SCHED + "resource-status"])
    assert [one["node"] for one in status["numaNodeResources"]] == [1]


def _on_zone(number: int, cpus: str) -> dict[str, Any]:
    return {"numaNodeResources": [{"node": number, "resources": {"cpu": cpus}}]}


def test_cache_and_bandwidth_of_a_pod_are_read() -> None:
    """They change no placement; the node's agent reads them."""
    resctrl = '{"llc": {"schemata": {"range": [0, 30]}}, "mb": {"schemata": {"percent": 20}}}'
    said = {"node.koordinator.sh/resctrl": resctrl, "koordinator.sh/cpuQOS": '{"groupIdentity": 1}'}
    loaded, result = run(node("n"), pod("p", {}, said))
    assert not loaded.warnings
    assert placed(result) == {"p": "n"}
    limits, identity = parse_resctrl(resctrl), parse_cpu_qos(said["koordinator.sh/cpuQOS"])
    assert limits.llc is not None
    assert (limits.llc.range, identity.group_identity) == ((0, 30), 1)


# --- reservations -----------------------------------------------------------------------------------------


def reservation(name: str, requests: dict[str, str], *, available: bool = True, **spec: Any) -> Objects:
    status = {
        "phase": "Available",
        "nodeName": "n",
        "allocatable": requests,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
    }
    template = {"spec": {"containers": [{"name": "hold", "resources": {"requests": requests}}]}}
    return [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
                "ttl": "0s",
                "template": template,
                **spec,
            },
            **({"status": status} if available else {}),
        }
    ]


DEMO = {"app": "demo"}
AFFINITY = SCHED + "reservation-affinity"


def test_a_reservation_by_name_and_one_with_a_taint() -> None:
    taint = {"effect": "NoSchedule", "key": "k", "value": "v"}
    plain = reservation("plain", {"cpu": "4"}, allocateOnce=False)
    tainted = reservation("tainted", {"cpu": "4"}, allocateOnce=False, taints=[taint])
    toleration = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    named = pod("named", {"cpu": "1"}, {AFFINITY: {"name": "plain"}}, labels=DEMO)
    other = pod("other", {"cpu": "1"}, {AFFINITY: {"name": "elsewhere"}}, labels=DEMO)
    bears = pod(
        "bears", {"cpu": "1"}, {AFFINITY: {"name": "tainted", "tolerations": [toleration]}}, labels=DEMO
    )
    _, result = run(alone("n", {"cpu": "8"}), plain, tainted, named, other, bears)
    assert bound(result, "named").reservation == "plain"
    assert "no reservations match reservation affinity" in refusal(result, "other")
    assert bound(result, "bears").reservation == "tainted"


def test_an_exact_match_takes_only_the_equal_reservation() -> None:
    wants = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    exact = {SCHED + "exact-match-reservation": {"resourceNames": ["cpu", "memory", "nvidia.com/gpu"]}}
    machine = alone("n", {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "8"})
    larger, same = reservation("larger", {**wants, "cpu": "8"}), reservation("same", wants)
    _, result = run(machine, larger, same, pod("p", wants, exact, labels=DEMO))
    assert bound(result, "p").reservation == "same"


def test_reserved_room_that_nobody_uses_can_be_ignored() -> None:
    labels = {SCHED + "reservation-ignored": "true"}
    held = reservation("r", {"cpu": "8"})
    _, result = run(
        alone("n", {"cpu": "8"}), held, pod("ignores", {"cpu": "4"}, labels=labels), pod("not", {"cpu": "4"})
    )
    assert placed(result) == {"ignores": "n"}


# --- configurations ---------------------------------------------------------------------------------------


def policy(profile: dict[str, Any], version: str = "v1") -> Policy:
    (read,) = snapshot_from_objects(
        [
            {
                "apiVersion": f"kubescheduler.config.k8s.io/{version}",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        ]
    ).policies
    return read.of_all_schedulers()


GPU = "nvidia.com/gpu"
MIXED = [
    *alone("cpu-only", {"cpu": "32", "memory": "64Gi"}),
    *alone("idle", {"cpu": "32", "memory": "64Gi", GPU: "8"}),
    *alone("used", {"cpu": "32", "memory": "64Gi", GPU: "8"}),
    *pod("running", {GPU: "2", "cpu": "1"}, on="used"),
]


def test_the_stock_strategy_spreads() -> None:
    strategy = {
        "type": "LeastAllocated",
        "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", GPU)],
    }
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}
    _, result = run(MIXED, pod("p", {GPU: "1", "cpu": "1"}), policy=policy(profile))
    assert placed(result) == {"p": "idle"}


def test_gpus_are_packed_and_others_kept_off_their_nodes() -> None:
    plus = {
        GPU: {"type": "MostAllocated", "weight": 2},
        "cpu": {"type": "LeastAllocated", "weight": 1},
        "memory": {"type": "LeastAllocated", "weight": 1},
    }
    enabled = [{"name": name, "weight": 2} for name in ("NodeResourcesFitPlus", "ScarceResourceAvoidance")]
    profile = {
        "schedulerName": "koord-scheduler",
        "pluginConfig": [
            {"name": "NodeResourcesFitPlus", "args": {"resources": plus}},
            {"name": "ScarceResourceAvoidance", "args": {"resources": [GPU]}},
        ],
        "plugins": {"score": {"enabled": enabled, "disabled": [{"name": "*"}]}},
    }
    web = [pod(f"web{number}", {"cpu": "2"}) for number in range(3)]
    _, result = run(MIXED, *web, pod("train", {GPU: "1", "cpu": "1"}), policy=policy(profile))
    assert placed(result) == {"web0": "cpu-only", "web1": "cpu-only", "web2": "cpu-only", "train": "used"}


def test_a_reservation_preempts_as_the_notes_configure_it() -> None:
    """An old version, and ``pluginConfigs`` as printed."""
    version = "v1beta3"
    api = f"kubescheduler.config.k8s.io/{version}"
    args = {"apiVersion": api, "kind": "ReservationArgs", "enablePreemption": True}
    after = {"disabled": [{"name": "DefaultPreemption"}], "enabled": [{"name": "Reservation"}]}
    profile = {"pluginConfigs": [{"name": "Reservation", "args": args}], "plugins": {"postFilter": after}}
    held = reservation("r", {"cpu": "6"}, available=False)
    held[0]["spec"]["template"]["spec"]["priority"] = 1000
    low = pod("low", {"cpu": "6"}, on="n")
    low[0]["spec"]["priority"] = 100
    snapshot = snapshot_from_objects([*alone("n", {"cpu": "8"}), *held, *low]).snapshot
    result = schedule(snapshot, policy=policy(profile, version), preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert [str(one.pod) for plan in result.preemptions for one in plan.victims] == ["default/low"]


@pytest.mark.parametrize(
    ("status", "now", "held"),
    [
        ({"scheduleStartTime": "2026-11-01T12:00:00Z"}, "2026-11-01T12:05:00+00:00", "2026-11-01T12:10:00Z"),
        ({"scheduleStartTime": "2026-11-01T12:00:00Z"}, "2026-11-01T12:10:00+00:00", ""),
        ({}, "2026-11-01T13:00:00+00:00", "2026-11-01T13:10:00Z"),
    ],
)
def test_members_without_times_keep_their_places_for_a_time_that_is_told(
    status: dict[str, str], now: str, held: str
) -> None:
    """By what the PodGroup says of the start, else from the moment of the call on."""
    notes = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "annotations": notes},
        "spec": {"minMember": 2, "scheduleTimeoutSeconds": 600},
        "status": status,
    }
    room = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": room},
        group,
    ]
    for name in ("a", "b"):
        labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
        meta = {"name": name, "labels": labels}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, now=datetime.fromisoformat(now))
    first = result.decision("a")
    if held:
        assert isinstance(first, Waiting)
        assert first.reason == f'gang "default/g" waits for its minimum until {held}'
    else:
        assert isinstance(first, Unschedulable)
        assert "was not complete in time" in first.message
    assert verify(snapshot, result) == ()
