"""Batch and mid pods are placed on what nodes lend, and what nodes lend is written as patches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.model.quantity import parse_quantity
from tests.manifests.builders import container, node, pod

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {"colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": 60})},
}


def metric(name: str) -> dict[str, Any]:
    used = {"cpu": "4", "memory": "8Gi"}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": used}, "systemUsage": {"resources": used}},
        },
    }


@pytest.fixture
def dump(tmp_path: Path) -> str:
    room = {"cpu": "100", "memory": "200Gi", "pods": "110"}
    stocked = node("n1", room)
    stocked["status"]["capacity"] = room
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "topologyPolicies": ["None"],
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in (("cpu", "50"), ("memory", "100Gi"))
                ],
            }
            for zone in (0, 1)
        ],
    }
    wanted = {"kubernetes.io/batch-cpu": "5000", "kubernetes.io/batch-memory": "1Gi"}
    batch = pod("b", containers=[container(requests=wanted, limits=wanted)])
    path = tmp_path / "d.json"
    items = [stocked, CONFIG, metric("n1"), topology, batch]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def test_batch_pods_are_placed_on_what_is_lent_first(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", dump]) == 1
    capsys.readouterr()
    assert main(["schedule", dump, "--lend", "-o", "json"]) == 0
    out = capsys.readouterr()
    assert "lent: 1 of 1 nodes offer batch or mid resources" in out.err
    plan = Path(dump).with_name("p.json")
    plan.write_text(out.out)
    assert main(["verify", dump, "--plan", str(plan), "--lend"]) == 0
    assert main(["verify", dump, "--plan", str(plan)]) == 1
    assert main(["explain", "b", dump, "--lend"]) == 0
    capsys.readouterr()
    # A report of yesterday lends nothing.
    assert main(["schedule", dump, "--lend", "--now", "2026-01-02T00:00:00Z"]) == 1
    assert "lent: 0 of 1" in capsys.readouterr().err


def test_nodes_and_their_zones_are_patched(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["colocation", dump, "-o", "patches"]) == 0
    calls = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    status = next(one["body"]["status"] for one in calls if one["path"] == "/api/v1/nodes/n1/status")
    (zones,) = (one["body"]["zones"] for one in calls if "noderesourcetopologies" in one["path"])
    lent = parse_quantity(status["allocatable"]["kubernetes.io/batch-cpu"])
    assert lent > 0
    assert "cpu" not in status["allocatable"]
    by_zone = {
        one["name"]: parse_quantity(entry["allocatable"])
        for one in zones
        for entry in one["resources"]
        if entry["name"] == "kubernetes.io/batch-cpu"
    }
    assert set(by_zone) == {"node-0", "node-1"}
    assert 0 < sum(by_zone.values()) <= lent


@pytest.mark.parametrize(
    "words",
    [["colocation"], ["colocation", "-o", "patches"], ["colocation", "--node", "n2"], ["schedule", "--lend"]],
)
def test_an_absurd_usage_is_named_and_all_others_are_decided(
    words: list[str], dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = json.loads(Path(dump).read_text())
    bad = metric("n2")
    bad["status"]["nodeMetric"]["nodeUsage"]["resources"] = {"cpu": "5Gi", "memory": "1Gi"}
    objects["items"] += [node("n2"), bad]
    Path(dump).write_text(json.dumps(objects))
    assert main([words[0], dump, *words[1:]]) == 0
    told = capsys.readouterr()
    assert told.out
    place = "NodeMetric n2: status.nodeMetric.nodeUsage.resources.cpu"
    assert f"warning: Node n2 lends nothing: {place}: an amount is too large" in told.err
