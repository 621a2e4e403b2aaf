"""Gangs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli import main

GROUP = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"


def dump(path: Path) -> str:
    """Two blocks of five nodes, and four gangs that fill them exactly, in an order that one by one wastes."""
    layers = [
        {"topologyLayer": "BlockLayer", "labelKey": ["network.topology.nvidia.com/block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    items: list[dict[str, object]] = [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "default"},
            "spec": {"networkTopologySpec": layers},
        }
    ]
    for block in "ab":
        for number in range(5):
            labels = {"network.topology.nvidia.com/block": block}
            status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10"}}
            meta = {"name": f"{block}{number}", "labels": labels}
            items.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    rule = {"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}
    for gang, size in zip("wxyz", (2, 2, 3, 3), strict=True):
        meta = {"name": gang, "namespace": "ml", "annotations": {SPEC: json.dumps(rule)}}
        items.append({**GROUP, "metadata": meta, "spec": {"minMember": size}})
        for number in range(size):
            labels = {"pod-group.scheduling.sigs.k8s.io": gang}
            meta = {"name": f"{gang}-{number}", "namespace": "ml", "labels": labels}
            spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}
            items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    return str(path)


@pytest.mark.solver
def test_gangs_of_the_queue_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cluster = dump(tmp_path / "cluster.json")
    assert main(["schedule", cluster]) == 1
    alone = capsys.readouterr().out
    assert "the best BlockLayer, b, has 2 of 3 slots; 1 more would do" in alone
    assert "Planned together" not in alone
    assert main(["schedule", cluster, "--joint-gangs"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "ml/w to ml/z, 4" in line]
    assert row.split()[4:] == ["4", "3", "-4", "-10", "4", "-4", "-10", "4", "proven"]


@pytest.mark.solver
def test_explain_plans_gangs_together_where_it_is_told_to(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The last gang of the queue starts only where the queue is planned as one; both commands say so."""
    cluster = dump(tmp_path / "cluster.json")
    assert main(["explain", "ml/z", cluster, "-q"]) == 1
    assert "3 of 3 members" not in capsys.readouterr().out
    assert main(["explain", "ml/z", cluster, "-q", "--joint-gangs"]) == 0
    assert "3 of 3 members get nodes" in capsys.readouterr().out


@pytest.mark.solver
def test_a_joint_plan_is_written_verified_and_made_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster, plan, record = dump(tmp_path / "c.json"), tmp_path / "plan.json", tmp_path / "call.json"
    assert main(["schedule", cluster, "--joint-gangs", "-o", "json", "--record", str(record)]) == 0
    written = capsys.readouterr().out
    assert json.loads(written)["together"][0]["oneByOne"] == 3
    plan.write_text(written, encoding="utf-8")
    assert main(["verify", cluster, "--plan", str(plan)]) == 0
    assert main(["simulate", str(record)]) == 0


def test_a_hold_that_is_over_counts_all_nodes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The event of a NonStrict gang that was not complete in time is about the nodes there are, not none."""
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "10"}
    items: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    ]
    mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    spec = {"minMember": 3, "scheduleTimeoutSeconds": 60}
    items.append({**GROUP, "metadata": {"name": "g", "namespace": "ml", "annotations": mode}, "spec": spec})
    for number in range(3):
        meta = {
            "name": f"g-{number}",
            "namespace": "ml",
            "labels": {"pod-group.scheduling.sigs.k8s.io": "g"},
            "creationTimestamp": "2026-11-01T12:00:00Z",
        }
        pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["schedule", str(path), "--now", "2026-11-01T12:05:00Z", "-o", "json"]) == 1
    told = [one["message"] for one in json.loads(capsys.readouterr().out)["decisions"]]
    assert all(text.startswith("0/1 nodes are available: ") for text in told), told
    assert sum("was not complete in time" in text for text in told) == 2
