"""Fewest nodes or the tightest fit for gathered gangs: by flag, by file and in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordcore import PluginSetting, Policy, schedule, verify
from koordcore.cli import main
from koordcore.manifests import load
from koordcore.model import CoschedulingArgs
from koordcore.model.gangs import GangFit

SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
GANG = "pod-group.scheduling.sigs.k8s.io"


def dump(
    path: Path, cards: Mapping[str, int], size: int, *, gather: str = "PreferGather", layer: str = "Rack"
) -> str:
    """Nodes with these cards, in the rack of their first letter, and a gang with a card for each member."""
    rule = {"gatherStrategy": [{"layer": layer, "strategy": gather}]}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/rack": name[0]}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": count}},
        }
        for name, count in cards.items()
    ]
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": size}}
    objects.append({**group, "metadata": {"name": "g", "annotations": {SPEC: json.dumps(rule)}}})
    for number in range(size):
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        meta = {"name": f"g-{number}", "labels": {GANG: "g"}}
        objects.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
        )
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return str(path)


def nodes(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """Nodes of the pods that ``schedule`` binds, once each."""
    assert main(["schedule", *argv, "-o", "json", "-q"]) == 0
    plan = json.loads(capsys.readouterr().out)
    return sorted({one["node"] for one in plan["decisions"]})


@pytest.mark.parametrize("policy", ["default", "stock", "spread"])
def test_one_roomy_node_or_two_that_are_full_then(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: str
) -> None:
    cluster = dump(tmp_path / "c.yaml", {"a1": 8, "b1": 2, "b2": 2}, 4)
    assert nodes(capsys, cluster, "--policy", policy) == ["a1"]
    assert nodes(capsys, cluster, "--policy", policy, "--gang-fit", "FewestNodes") == ["a1"]
    assert nodes(capsys, cluster, "--policy", policy, "--gang-fit", "TightestFit") == ["b1", "b2"]


def test_racks_come_before_either(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cluster = dump(tmp_path / "c.yaml", {"a1": 8, "b1": 2, "c1": 2}, 4)
    assert nodes(capsys, cluster, "--gang-fit", "TightestFit") == ["a1"]


def test_a_rule_about_nodes_stands_above_the_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = dump(tmp_path / "c.yaml", {"a1": 8, "b1": 2, "b2": 2}, 4, layer="NodeTopologyLayer")
    assert nodes(capsys, cluster, "--gang-fit", "TightestFit") == ["a1"]


def test_of_nodes_that_hold_everybody_the_smaller_one_is_tighter(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = dump(tmp_path / "c.yaml", {"a1": 8, "b1": 5}, 4)
    assert nodes(capsys, cluster, "--policy", "spread", "--gang-fit", "TightestFit") == ["b1"]


def test_the_larger_rack_stays_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Both racks take the gang on full nodes; the smaller one is left with less."""
    cards = {"a1": 4, "a2": 4, "b1": 2, "b2": 2, "b3": 2, "b4": 1}
    cluster = dump(tmp_path / "c.yaml", cards, 4)
    assert nodes(capsys, cluster) == ["a1"]
    assert nodes(capsys, cluster, "--gang-fit", "TightestFit") == ["b1", "b2"]


@pytest.mark.parametrize("fit", GangFit)
def test_a_configuration_says_which(capsys: pytest.CaptureFixture[str], tmp_path: Path, fit: GangFit) -> None:
    args = {"name": "Coscheduling", "args": {"kind": "CoschedulingArgs", "gangFit": fit.value}}
    profile: dict[str, Any] = {"schedulerName": "default-scheduler", "pluginConfig": [args]}
    profile["plugins"] = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}
    file = tmp_path / "policy.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        )
    )
    cluster = dump(tmp_path / "c.yaml", {"a1": 8, "b1": 2, "b2": 2}, 4)
    wanted = ["a1"] if fit is GangFit.FEWEST_NODES else ["b1", "b2"]
    assert nodes(capsys, cluster, "--policy", str(file)) == wanted
    assert main(["policy", str(file)]) in (0, 1)
    told = "".join(capsys.readouterr().out.split())
    assert ('"gangFit":"TightestFit"' in told) == (fit is GangFit.TIGHTEST_FIT)
    file.write_text(file.read_text().replace(fit.value, "Tightest"))
    assert main(["schedule", cluster, "--policy", str(file)]) == 2
    said = capsys.readouterr().err
    assert 'gangFit: expected FewestNodes or TightestFit, got "Tightest"' in said


@pytest.mark.solver
def test_members_of_two_shapes_and_the_proof(tmp_path: Path) -> None:
    """A member with two cards and two with one: three nodes that are full then, in one rack."""
    path = Path(dump(tmp_path / "c.yaml", {"a1": 8, "b1": 2, "b2": 1, "b3": 1}, 3))
    path.write_text(
        path.read_text().replace("limits:\n        nvidia.com/gpu: 1\n", "limits: {nvidia.com/gpu: 2}\n", 1)
    )
    snapshot = load([path]).snapshot
    assert sorted({one.node for one in schedule(snapshot).bound}) == ["a1"]
    tight = PluginSetting(name="Coscheduling", args=CoschedulingArgs(gang_fit=GangFit.TIGHTEST_FIT))
    result = schedule(snapshot, policy=Policy().with_plugin(tight))
    assert verify(snapshot, result) == ()
    (plan,) = result.jobs
    assert plan.certificate is not None
    assert plan.certificate.proven
    assert sorted({one.node for one in result.bound}) == ["b1", "b2", "b3"]
