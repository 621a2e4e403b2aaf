"""Kubernetes' own groups as a dump of each dialect holds them, from manifests to patches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main

Object = dict[str, Any]
API = "scheduling.k8s.io"
RACK = "topology.kubernetes.io/rack"


def node(name: str, rack: str, cpu: int = 4) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {RACK: rack, "kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}},
    }


def pod(
    name: str, group: str = "", cpu: int = 4, *, where: str = "", priority: int = 0, **more: Any
) -> Object:
    """A pod; ``group`` is a PodGroup's name, or ``workload/group/replica`` of v1alpha1."""
    spec: Object = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
        "priority": priority,
        **more.pop("spec", {}),
    }
    if group.count("/") == 2:
        names = ("name", "podGroup", "podGroupReplicaKey")
        spec["workloadRef"] = dict(zip(names, group.split("/"), strict=True))
    elif group:
        spec["schedulingGroup"] = {"podGroupName": group}
    status: Object = {"phase": "Running" if where else "Pending", **more}
    if where:
        spec["nodeName"] = where
    meta = {"name": name, "namespace": "ml", "creationTimestamp": "2026-01-01T00:00:00Z", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def group(name: str, version: str, least: int, **spec: Any) -> Object:
    return {
        "apiVersion": f"{API}/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml", "generation": 3},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, **spec},
    }


def topology(key: str = RACK) -> Object:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def planned(
    capsys: pytest.CaptureFixture[str], path: Path, objects: list[Object], *words: str
) -> tuple[Object, list[Object]]:
    """The plan, and the calls that carry it out."""
    dump = path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert main(["schedule", str(dump), "-q", "-o", "json", *words]) in (0, 1)
    plan: Object = json.loads(capsys.readouterr().out)
    main(["schedule", str(dump), "-q", "-o", "patches", *words])
    calls: list[Object] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return plan, calls


def places(plan: Object) -> dict[str, str]:
    bound = (one for one in plan["decisions"] if one.get("outcome") == "bound" or "node" in one)
    return {one["pod"].partition("/")[2]: one["node"] for one in bound}


def why(plan: Object, name: str) -> str:
    (one,) = (one for one in plan["decisions"] if one["pod"] == f"ml/{name}")
    return json.dumps(one)


@pytest.mark.parametrize(
    ("records", "named", "gone"),
    [
        ([group("v", "v1beta1", 2)], "v", 1),
        ([group("v", "v1beta1", 2, disruptionMode={"single": {}})], "v", 1),
        ([group("v", "v1beta1", 2, disruptionMode={"all": {}})], "v", 3),
        ([group("v", "v1alpha3", 2, disruptionMode={"single": {}})], "v", 1),
        ([group("v", "v1alpha3", 2, disruptionMode={"all": {}})], "v", 3),
        ([group("v", "v1alpha2", 2)], "v", 1),
        ([group("v", "v1alpha2", 2, disruptionMode="Pod")], "v", 1),
        ([group("v", "v1alpha2", 2, disruptionMode="PodGroup")], "v", 3),
        (
            [
                {
                    "apiVersion": f"{API}/v1alpha1",
                    "kind": "Workload",
                    "metadata": {"name": "w", "namespace": "ml"},
                    "spec": {"podGroups": [{"name": "v", "policy": {"gang": {"minCount": 2}}}]},
                }
            ],
            "w/v/0",
            1,
        ),
        (
            [
                group(
                    "v",
                    "v1alpha3",
                    2,
                    parentCompositePodGroupName="top",
                    workloadRef={"workloadName": "w", "templateName": "v"},
                ),
                {
                    "apiVersion": f"{API}/v1alpha3",
                    "kind": "CompositePodGroup",
                    "metadata": {"name": "top", "namespace": "ml"},
                    "spec": {
                        "schedulingPolicy": {"basic": {}},
                        "disruptionMode": {"all": {}},
                        "workloadRef": {"workloadName": "w", "templateName": "top"},
                    },
                },
            ],
            "v",
            3,
        ),
    ],
)
def test_who_goes_with_a_victim_is_said_in_every_dialect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, records: list[Object], named: str, gone: int
) -> None:
    racks = [node(f"n{number}", "a") for number in range(3)]
    running = [pod(f"v-{number}", named, where=f"n{number}") for number in range(3)]
    plan, calls = planned(capsys, tmp_path, [*racks, *records, *running, pod("new", priority=9)], "--preempt")
    (one,) = plan["preemptions"]
    assert len(one["victims"]) == gone
    targets = [call for call in calls if "DisruptionTarget" in json.dumps(call)]
    assert len(targets) == gone
    assert sum(call["path"].endswith("/eviction") for call in calls) == gone


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_a_replaced_member_goes_where_the_others_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str
) -> None:
    """Rack b is empty; the failed member is nobody's member any more, and its place is free."""
    racks = [node("a1", "a"), node("a2", "a"), node("a3", "a"), node("b1", "b", 16)]
    record = group("g", version, 3, **topology())
    running = [pod(f"g-{number}", "g", where=f"a{number}") for number in (1, 2)]
    failed = pod("g-3", "g", where="a3", phase="Failed")
    new = pod("g-4", "g")
    plan, _ = planned(capsys, tmp_path, [*racks, record, *running, failed, new])
    assert places(plan) == {"g-4": "a3"}
    full = pod("other", where="a3")
    plan, calls = planned(capsys, tmp_path, [*racks, record, *running, full, new])
    assert places(plan) == {}
    (call,) = (one for one in calls if "podgroups" in json.dumps(one))
    assert '"False"' in json.dumps(call)
    # One that runs and one that is new are two of three, whatever room there is.
    plan, calls = planned(capsys, tmp_path, [*racks, record, running[0], new])
    assert places(plan) == {}
    assert "waiting for minCount pods from a gang to appear in scheduling queue" in why(plan, "g-4")
    assert not any("podgroups" in json.dumps(one) for one in calls)


def test_a_closed_gate_of_one_member_holds_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gated = pod("g-2", "g", cpu=1, spec={"schedulingGates": [{"name": "quota"}]})
    members = [pod("g-0", "g", cpu=1), pod("g-1", "g", cpu=1)]
    record = group("g", "v1beta1", 2)
    plan, calls = planned(capsys, tmp_path, [node("n", "a"), record, *members, gated])
    assert places(plan) == {}
    # Nobody says Unschedulable of who waits outside the queue: no autoscaler is to add nodes.
    (call,) = calls
    assert ("pods/g-2/status" in call["path"], '"SchedulingGated"' in json.dumps(call)) == (True, True)
    plan, _ = planned(capsys, tmp_path, [node("n", "a"), record, *members])
    assert places(plan) == {"g-0": "n", "g-1": "n"}


@pytest.mark.parametrize(
    ("spec", "priority", "starts"),
    [
        ({"priority": 5}, 5, True),
        ({"priority": 5}, 0, False),
        ({}, 5, False),
        ({"priorityClassName": "high"}, 7, True),
        ({"priorityClassName": "high"}, 5, False),
    ],
)
def test_members_have_the_priority_of_their_group(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, spec: Object, priority: int, starts: bool
) -> None:
    high = {
        "apiVersion": f"{API}/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 7,
    }
    record = group("g", "v1beta1", 1, **spec)
    plan, calls = planned(
        capsys, tmp_path, [node("n", "a"), high, record, pod("g-0", "g", priority=priority)]
    )
    assert bool(places(plan)) is starts
    (call,) = (one for one in calls if "podgroups" in json.dumps(one))
    told = json.dumps(call)
    assert ("SchedulerError" in told) is not starts
    assert ("same priority as the pod group's priority" in told) is not starts
    for one in calls:
        if "/pods/" in one["path"] and not starts:
            (condition,) = one["body"]["status"]["conditions"]
            # No node is at fault: an autoscaler must not add one.
            assert condition["reason"] == "SchedulerError"
            assert condition["message"].startswith("all pods in a single pod group should have")


def test_nominated_members_keep_their_domain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Rack a would be fuller; room was made in b."""
    racks = [node("a1", "a"), node("b1", "b"), node("b2", "b")]
    record = group("g", "v1beta1", 2, **topology())
    members = [pod(f"g-{number}", "g", cpu=2, nominatedNodeName=f"b{number + 1}") for number in range(2)]
    plan, _ = planned(capsys, tmp_path, [*racks, record, *members])
    assert places(plan) == {"g-0": "b1", "g-1": "b2"}
    alone = [pod(f"g-{number}", "g", cpu=2) for number in range(2)]
    plan, _ = planned(capsys, tmp_path, [*racks, record, *alone])
    assert places(plan) == {"g-0": "a1", "g-1": "a1"}


def test_a_group_that_makes_room_binds_nobody_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    racks = [node("a1", "a"), node("a2", "a")]
    record = group("g", "v1beta1", 2, priority=9)
    low = [pod("low", where="a1")]
    members = [pod(f"g-{number}", "g", priority=9) for number in range(2)]
    plan, calls = planned(capsys, tmp_path, [*racks, record, *low, *members], "--preempt")
    assert [one["victims"] for one in plan["preemptions"]]
    (call,) = (one for one in calls if "podgroups" in json.dumps(one))
    told = json.dumps(call)
    assert "pod group preemption: found a placement for podgroup, preempting 1 victims" in told
    assert '"observedGeneration": 3' in told
    assert not any("binding" in json.dumps(one) for one in calls)
