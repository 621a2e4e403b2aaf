"""Kubernetes' own groups where people ask about them: when, explain, inspect, simulate."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.cli import main
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup, SchedulingWorkload
from koordcore.protocol.expectations import EXPECTED_END
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from koordcore.simulate.cluster import arrivals_of
from koordcore.simulate.events import Arrival, GangArrival
from koordcore.simulate.scheduled import PodArrival, replay_schedule
from tests.reservations.test_future import NOW

Object = dict[str, Any]
DAY = "2026-01-01T"
VERSION = "scheduling.k8s.io/v1alpha3"
OF: Object = {"workloadRef": {"workloadName": "w", "templateName": "t"}}


def node(name: str, rack: str) -> Object:
    offers = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    meta = {"name": name, "labels": {"rack": rack}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": offers}}


def pod(name: str, cpu: int, group: str = "", on: str = "", end: str = "") -> Object:
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
    meta: Object = {"name": name, "namespace": "ml", **({"annotations": {EXPECTED_END: end}} if end else {})}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def group(name: str, least: int, **spec: Any) -> Object:
    body = {"schedulingPolicy": {"gang": {"minCount": least}}, **spec}
    return {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": body,
    }


def group_of_groups(name: str, least: int, **spec: Any) -> Object:
    body = {"schedulingPolicy": {"gang": {"minGroupCount": least}}, **OF, **spec}
    meta = {"name": name, "namespace": "ml"}
    return {"apiVersion": VERSION, "kind": "CompositePodGroup", "metadata": meta, "spec": body}


RACKED = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
BUSY = [
    node("a1", "a"),
    node("a2", "a"),
    node("b1", "b"),
    pod("r1", 4, on="a1", end=f"{DAY}03:00:00Z"),
    pod("r2", 4, on="a2", end=f"{DAY}02:00:00Z"),
]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """A gang of four that needs a rack of its own, which is busy until three o'clock."""
    objects = [*BUSY, group("train", 4, **RACKED), *(pod(f"t{rank}", 2, "train") for rank in range(4))]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(path)


@pytest.mark.parametrize(
    "name", ["podgroup/train", "podgroup/ml/train", "podgroup:ml/train", "train", "ml/train", "t0"]
)
def test_when_knows_a_group_by_its_name_and_by_its_pods(
    capsys: pytest.CaptureFixture[str], dump: str, name: str
) -> None:
    assert main(["when", name, dump, "--now", f"{DAY}00:00:00Z", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["start"] == f"{DAY}03:00:00Z"
    assert sorted(answer["nodes"].values()) == ["a1", "a1", "a2", "a2"]
    assert answer["proven"]


def test_when_knows_a_group_of_groups_and_says_why_one_never_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tree = group_of_groups("job", 2)
    below: Object = {"parentCompositePodGroupName": "job", **OF}
    path = tmp_path / "tree.json"

    def asked(least: int) -> Object:
        objects = [*BUSY, tree, group("x", 2, **below, **RACKED), group("y", least, **below, **RACKED)]
        objects += [pod(f"{name}{rank}", 2, name) for name in "xy" for rank in range(least)]
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        code = main(["when", "compositepodgroup/job", str(path), "--now", f"{DAY}00:00:00Z", "-o", "json"])
        answer: Object = json.loads(capsys.readouterr().out)
        assert code == (answer["start"] is None)
        return answer

    assert asked(2)["start"] == f"{DAY}02:00:00Z"
    assert len(asked(2)["pods"]) == 4
    assert "minGroupCount (2) of job is not satisfied" in asked(5)["message"]


def test_explain_and_inspect_name_the_group(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    assert main(["explain", "podgroup/train", dump]) == 1
    told = capsys.readouterr().out
    assert "podgroup:ml/train: at least 4, 0 run, 4 wait, in rack" in told
    assert "the best rack, b, has 2 of 4 slots; 2 more would do" in told
    assert main(["inspect", dump]) == 0
    assert "podgroup:ml/train" in capsys.readouterr().out
    assert main(["explain", "podgroup:ml/train", dump]) == 1
    assert main(["explain", "podgroup:ml/none", dump]) == 2
    assert main(["explain", "podgroup/none", dump]) == 2
    assert "no podgroup none with waiting pods in the dump" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["schedule"], ["inspect"], ["explain", "t0"]])
def test_commands_answer_beside_a_group_of_groups_without_children(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, asked: list[str]
) -> None:
    below: Object = {"parentCompositePodGroupName": "job"}
    objects = [*BUSY, group_of_groups("job", 1), group_of_groups("empty", 1, **below)]
    objects.append(group("train", 2, **OF, **below))
    objects += [pod(f"t{rank}", 2, "train") for rank in range(2)]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert main([*asked, str(path)]) == 0
    assert "compositepodgroup:ml/job" in capsys.readouterr().out


def test_a_group_whose_members_leave_does_not_only_gain() -> None:
    """Two of three run; once they are gone the late pod waits for more, so that later is not better."""
    runs = [
        Pod(name=f"m{rank}", requests={"cpu": 1000}, scheduling_group=SchedulingGroup("g"), node_name="n1")
        for rank in range(2)
    ]
    late = Pod(name="late", requests={"cpu": 4000}, scheduling_group=SchedulingGroup("g"))
    other = Pod(name="other", requests={"cpu": 2000}, node_name="n1")
    cluster = ClusterSnapshot(
        nodes=[Node(name="n1", allocatable={"cpu": 6000, "pods": 9})],
        records=[SchedulingPodGroup(name="g", min_count=3)],
        pending=[late],
    ).assume(*runs, other)
    first, last = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    ends = {other.key: first, **{one.key: last for one in runs}}
    answer = earliest_start(cluster, [late], ends, now=NOW)
    assert isinstance(answer, EarliestStart)
    assert answer.start == first


def test_groups_are_replayed_whole(capsys: pytest.CaptureFixture[str], dump: str, tmp_path: Path) -> None:
    call = tmp_path / "call.json"
    assert main(["schedule", dump, "--record", str(call)]) == 1
    capsys.readouterr()
    assert main(["simulate", str(call)]) == 0
    assert "the same 4 decisions" in capsys.readouterr().out
    records = [CompositePodGroup(name="job", min_groups=2)]
    leaves = [
        SchedulingPodGroup(name=name, parent="job", min_count=2, topology_keys=("rack",)) for name in "xy"
    ]
    nodes = [
        Node(name=f"n{one}", labels={"rack": "ab"[one // 2]}, allocatable={"cpu": 4000, "pods": 9})
        for one in range(4)
    ]
    pods = [
        Pod(name=f"{name}{rank}", requests={"cpu": 4000}, scheduling_group=SchedulingGroup(name))
        for name in "xy"
        for rank in range(2)
    ]
    cluster = ClusterSnapshot(nodes=nodes, records=[*records, *leaves])
    events = [PodArrival(time=time, pod=one, duration=100) for time, one in enumerate(pods)]
    played = replay_schedule(cluster, events)
    assert [one.time for one in played.placements] == [3, 3, 3, 3]


def test_arrivals_take_gangs_and_leave_basic_groups_apart() -> None:
    pods = [
        Pod(name=f"{name}{rank}", scheduling_group=SchedulingGroup(name)) for name in "gb" for rank in "01"
    ]
    groups = [SchedulingPodGroup(name="g", min_count=2), SchedulingPodGroup(name="b")]
    kinds = [type(one) for one in arrivals_of(pods, groups)]
    assert sorted(kinds, key=str) == sorted([GangArrival, Arrival, Arrival], key=str)


def test_replicas_of_a_workload_arrive_as_gangs_of_their_own() -> None:
    pods = [
        Pod(
            name=f"{group}{replica}{rank}",
            scheduling_group=SchedulingGroup(group, workload="w", replica=replica),
        )
        for group in ("g", "b")
        for replica in "01"
        for rank in "01"
    ]
    groups = [SchedulingWorkload(name="w", pod_groups=immutabledict({"g": 2, "b": None}))]
    found = [one for one in arrivals_of(pods, groups) if isinstance(one, GangArrival)]
    assert [len(one.tasks) for one in found] == [2, 2]
