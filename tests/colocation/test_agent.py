"""What agents set for pods, from the objects of a dump to the lines of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli.main import main
from koordcore.colocation.agent import PodSetting, pod_settings
from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import container, node, pod

Object = dict[str, Any]
LABEL = "koordinator.sh/qosClass"
RESCTRL = "node.koordinator.sh/resctrl"
CPU_QOS = "koordinator.sh/cpuQOS"
ON = {"enable": True}
STRATEGY = {
    "lsrClass": {"cpuQOS": ON},
    "lsClass": {"cpuQOS": {**ON, "groupIdentity": 1}, "resctrlQOS": {**ON, "catRangeEndPercent": 80}},
    "beClass": {"cpuQOS": ON, "resctrlQOS": {**ON, "catRangeEndPercent": 40, "mbaPercent": 25}},
}


def config(strategy: Any = STRATEGY, nodes: Any = ()) -> Object:
    text = json.dumps({"clusterStrategy": strategy, "nodeStrategies": list(nodes)})
    where = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"resource-qos-config": text}}


def slo(name: str, strategy: Any) -> Object:
    made = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": name}}
    return {**made, "spec": {"resourceQOSStrategy": strategy}}


def hardware(name: str = "n1", mask: str = "fff", vendor: str = "GenuineIntel") -> Object:
    """Two sockets of four CPUs; caches of as many ways as the mask has bits."""
    detail = [{"id": cpu, "core": cpu, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
    notes = {
        "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
        "node.koordinator.sh/cpu-basic-info": json.dumps({"catL3CbmMask": mask, "vendorID": vendor}),
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": notes},
        "zones": [],
    }


def runs(name: str, qos: str = "", on: str = "n1", notes: Object | None = None) -> Object:
    said = (notes or {}).items()
    texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in said}
    labels = {LABEL: qos} if qos else {}
    cpu = container(requests={"cpu": "1"}, limits={"cpu": "1"})
    made = pod(
        name,
        metadata={"labels": labels, "annotations": texts, "uid": f"uid-{name}"},
        nodeName=on,
        containers=[cpu],
    )
    return {**made, "status": {"phase": "Running", "qosClass": "Burstable"}}


def settings(*objects: Object) -> dict[str, PodSetting]:
    return {one.pod.name: one for one in pod_settings(snapshot_from_objects(objects).snapshot)}


ROOM = {"cpu": "8", "memory": "8Gi", "pods": "20"}


def test_each_class_gets_its_rank_its_ways_and_its_bandwidth() -> None:
    classes = ("LSE", "LSR", "LS", "BE")
    found = settings(
        node("n1", ROOM), hardware(), config(), *(runs(one.lower(), one) for one in classes), runs("none")
    )
    assert {name: (one.identity, one.group) for name, one in found.items()} == {
        "lse": (2, "LSR"),
        "lsr": (2, "LSR"),
        "ls": (1, "LS"),
        "be": (-1, "BE"),
        "none": (1, "LS"),
    }
    assert found["lsr"].schemata == "L3:0=fff;1=fff;\nMB:0=100;1=100;\n"
    assert found["ls"].schemata == "L3:0=3ff;1=3ff;\nMB:0=100;1=100;\n"
    assert found["be"].schemata == "L3:0=1f;1=1f;\nMB:0=30;1=30;\n"


def test_a_pod_s_own_wish_has_a_group_of_its_own() -> None:
    llc = {"llc": {"schemata": {"range": [50, 100]}}}
    found = settings(
        node("n1", ROOM),
        hardware(),
        config(),
        runs("own", "LS", notes={RESCTRL: llc, CPU_QOS: {"enable": True, "groupIdentity": 2}}),
        runs("off", "LS", notes={CPU_QOS: {"enable": False}}),
    )
    assert (found["own"].group, found["own"].schemata) == ("koordlet-uid-own", "L3:0=fc0;1=fc0;\n")
    assert (found["own"].identity, found["off"].identity) == (2, 0)


def test_a_nodeslo_is_the_strategy_of_its_node_and_a_selector_lays_over_the_cluster() -> None:
    over = {"nodeSelector": {"matchLabels": {"pool": "b"}}, "beClass": {"resctrlQOS": {"mbaPercent": 70}}}
    found = settings(
        node("n1", ROOM),
        node("n2", ROOM),
        node("n3", ROOM, metadata={"labels": {"pool": "b"}}),
        *(hardware(name) for name in ("n1", "n2", "n3")),
        config(nodes=[over]),
        slo("n2", {"beClass": {"cpuQOS": {**ON, "groupIdentity": 0}}}),
        *(runs(f"be-{name}", "BE", on=name) for name in ("n1", "n2", "n3")),
    )
    assert [found[f"be-{name}"].identity for name in ("n1", "n2", "n3")] == [-1, 0, -1]
    assert found["be-n2"].group == ""
    assert found["be-n3"].schemata == "L3:0=1f;1=1f;\nMB:0=70;1=70;\n"


def test_what_is_not_known_or_cannot_be_read_is_said() -> None:
    (blind,) = settings(node("n1", ROOM), config(), runs("p", "BE")).values()
    assert (blind.identity, blind.schemata) == (-1, "")
    assert blind.problems == ("the node does not say what its caches are (NodeResourceTopology n1)",)
    wrong = runs("p", "LS", notes={CPU_QOS: {"groupIdentity": 7}, RESCTRL: "{"})
    (found,) = settings(node("n1", ROOM), hardware(), config(), wrong).values()
    assert found.identity is None
    assert [CPU_QOS in found.problems[0], RESCTRL in found.problems[1]] == [True, True]
    narrow = runs("p", "LS", notes={RESCTRL: {"llc": {"schemata": {"range": [99, 100]}}}})
    (none,) = settings(node("n1", ROOM), hardware(), narrow).values()
    assert none.problems == ("no valid line comes of it: the caches stay as they are",)


def test_without_a_strategy_and_a_wish_nothing_is_set() -> None:
    assert settings(node("n1", ROOM), hardware(), runs("p", "BE")) == {}
    off = {"beClass": {"cpuQOS": {"enable": False}, "resctrlQOS": {"enable": False}}}
    assert settings(node("n1", ROOM), hardware(), config(off), runs("p", "BE")) == {}


def test_a_strategy_that_cannot_be_read_is_a_warning_when_loaded_and_a_problem_when_used() -> None:
    broken = config({"beClass": {"cpuQOS": {"enable": "yes"}}})
    loaded = snapshot_from_objects([node("n1", ROOM), broken, runs("p", "BE")])
    assert any("resource-qos-config" in str(one) for one in loaded.warnings)
    (one,) = pod_settings(loaded.snapshot)
    assert (one.identity, one.schemata) == (None, "")
    (problem,) = one.problems
    assert problem.startswith("ConfigMap koordinator-system/slo-controller-config: data[resource-qos-config]")
    slo = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": "n1"},
        "spec": {"resourceQOSStrategy": {"beClass": 1}},
    }
    (own,) = settings(node("n1", ROOM), broken, slo, runs("p", "BE")).values()
    (problem,) = own.problems
    assert problem.startswith("NodeSLO n1: spec.resourceQOSStrategy")


@pytest.mark.parametrize("maker", ["GenuineIntel", "Intel", "genuineintel "])
def test_patches_end_with_what_agents_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], maker: str
) -> None:
    dump = tmp_path / "d.json"
    waiting = pod("new", metadata={"labels": {LABEL: "BE"}}, schedulerName="koord-scheduler", priority=5500)
    there = [node("n1", ROOM), hardware(vendor=maker), config(), runs("be", "BE"), waiting]
    dump.write_text(json.dumps(there))
    assert main(["colocation", str(dump), "-o", "patches"]) == 0
    (record,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert record == {
        "verb": "write",
        "path": "/api/v1/namespaces/default/pods/be",
        "node": "n1",
        "qosClass": "BE",
        "files": {"cpu.bvt_warp_ns": "-1", "resctrl/BE/schemata": "L3:0=1f;1=1f;\nMB:0=30;1=30;\n"},
        "resctrlGroup": "BE",
    }
    now = "2026-01-01T00:00:00Z"
    assert main(["schedule", str(dump), "--lend", "--now", now, "-o", "patches"]) == 0
    *_, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (last["verb"], last["path"]) == ("write", "/api/v1/namespaces/default/pods/new")
