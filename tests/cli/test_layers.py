"""The network by plain node labels: typed, found by themselves, from Kueue, and several in one cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.cli import main
from koordcore.errors import ModelError
from koordcore.model.gangs import PodGroup
from koordcore.model.network import label_layers

SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
GANG = "pod-group.scheduling.sigs.k8s.io"
Object = dict[str, Any]


def node(name: str, labels: Mapping[str, str], cards: int = 8) -> Object:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": amounts},
    }


def gang(name: str, size: int, layer: str, strategy: str = "MustGather", **selector: str) -> list[Object]:
    rule = {"gatherStrategy": [{"layer": layer, "strategy": strategy}]}
    meta = {"name": name, "namespace": "ml", "annotations": {SPEC: json.dumps(rule)}}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": size},
    }
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{rank}", "namespace": "ml", "labels": {GANG: name}},
            "spec": {"containers": [container], "nodeSelector": selector},
        }
        for rank in range(size)
    ]
    return [group, *pods]


def asked(
    capsys: pytest.CaptureFixture[str], path: Path, objects: Sequence[Object], *words: str
) -> tuple[int, Object, str]:
    """Exit code, plan by pod with what the network was read from, and warnings."""
    dump = path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    code = main(["schedule", str(dump), "-o", "json", *words])
    told = capsys.readouterr()
    plan = json.loads(told.out) if told.out else {}
    plan_file = path / "plan.json"
    plan_file.write_text(told.out)
    if plan:
        assert main(["verify", str(dump), "--plan", str(plan_file), *words, "-q"]) == 0
        capsys.readouterr()
    return code, plan, told.err


def nodes_of(plan: Object) -> list[str]:
    return sorted(one["node"] for one in plan["decisions"] if "node" in one)


def racks(block: str, rack: str) -> list[Object]:
    """Racks of one, three and two nodes; the first two in block b0."""
    return [
        node(f"n{number}{one}", {block: f"b{number // 2}", rack: f"r{number}"})
        for number, size in enumerate((1, 3, 2))
        for one in range(size)
    ]


@pytest.mark.parametrize("layer", ["rack", "Rack", "RackLayer", "example.com/rack"])
def test_layers_are_typed_by_label(capsys: pytest.CaptureFixture[str], tmp_path: Path, layer: str) -> None:
    """Three fit in one rack only, whatever the rule calls the layer."""
    objects = [*racks("example.com/block", "example.com/rack"), *gang("g", 3, layer)]
    words = ("--layers", "block=example.com/block,rack=example.com/rack")
    code, plan, _ = asked(capsys, tmp_path, objects, *words)
    assert code == 0
    assert nodes_of(plan) == ["n10", "n11", "n12"]
    assert plan["network"].endswith("(block = example.com/block, rack = example.com/rack)")
    assert plan["jobs"][0]["domains"] == {"block": 1, "rack": 1, "NodeTopologyLayer": 3}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("rack=example.com/rak", "no node has the label example.com/rak; did you mean example.com/rack?"),
        ("rack", "'rack': expected NAME=LABEL"),
        ("rack=a,rack=b", "'rack=b': stands there twice"),
        ("NodeTopologyLayer=a", "NodeTopologyLayer is there without being declared"),
    ],
)
def test_mistyped_layers_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, typed: str, told: str
) -> None:
    code, plan, said = asked(
        capsys, tmp_path, racks("example.com/block", "example.com/rack"), "--layers", typed
    )
    assert (code, plan) == (2, {})
    assert told in said


@pytest.mark.parametrize(
    ("upper", "lower", "layer", "source"),
    [
        ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/block", "BlockLayer", "topograph"),
        (
            "network.topology.nvidia.com/datacenter",
            "network.topology.nvidia.com/accelerator",
            "accelerator",
            "topograph",
        ),
        ("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "ZoneLayer", "Kubernetes"),
        ("topology.kubernetes.io/block", "topology.kubernetes.io/rack", "rack", "Kubernetes"),
        ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock", "subblock", "GKE"),
        ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-host", "HostLayer", "GKE"),
        (
            "topology.k8s.aws/network-node-layer-1",
            "topology.k8s.aws/network-node-layer-3",
            "topology.k8s.aws/network-node-layer-3",
            "EKS",
        ),
    ],
)
def test_known_labels_are_found_by_themselves(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, upper: str, lower: str, layer: str, source: str
) -> None:
    objects = [*racks(upper, lower), *gang("g", 3, layer)]
    code, plan, _ = asked(capsys, tmp_path, objects)
    assert (code, nodes_of(plan)) == (0, ["n10", "n11", "n12"])
    assert plan["network"].startswith(f"{source}'s node labels")
    assert f"= {lower}" in plan["network"]
    code, plan, _ = asked(capsys, tmp_path, [*racks(upper, lower), *gang("g", 4, layer)])
    assert (code, nodes_of(plan)) == (1, [])
    assert "has 3 of 4 slots; 1 more would do" in plan["jobs"][0]["detail"]


def test_a_zone_lies_above_a_cloud_providers_own_labels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = "topology.k8s.aws/network-node-layer-1"
    objects = [
        node(f"{zone}{number}", {key: f"nn-{zone}", "topology.kubernetes.io/zone": zone})
        for zone in ("a", "b")
        for number in range(2)
    ]
    _, plan, _ = asked(capsys, tmp_path, [*objects, *gang("g", 2, "zone")])
    assert plan["jobs"][0]["domains"] == {"ZoneLayer": 1, "NetworkLayer1": 1, "NodeTopologyLayer": 2}


def kueue(name: str, levels: Sequence[str], **labels: str) -> list[Object]:
    """A Topology and the flavor whose nodes are under it."""
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ResourceFlavor",
            "metadata": {"name": f"{name}-flavor"},
            "spec": {"nodeLabels": labels, "topologyName": name},
        },
    ]


def test_kueues_topologies_each_hold_for_their_flavors_nodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Both pools have a rack r1, and they are two; a third pool is in no network."""
    pools = {"a": ("cloud/block", "cloud/rack"), "b": ("cloud/rack",)}
    objects = [
        part
        for pool, levels in pools.items()
        for part in kueue(pool, (*levels, "kubernetes.io/hostname"), pool=pool)
    ]
    objects += [
        node(f"{pool}{one}", {"pool": pool, "cloud/block": "x", "cloud/rack": "r1"})
        for pool in ("a", "b", "c")
        for one in range(2)
    ]
    code, plan, _ = asked(capsys, tmp_path, [*objects, *gang("g", 2, "cloud/rack"), *gang("h", 2, "rack")])
    assert code == 0
    assert nodes_of(plan) == ["a0", "a1", "b0", "b1"]
    assert plan["network"] == (
        "Kueue's Topology a (block = cloud/block, rack = cloud/rack); Kueue's Topology b (rack = cloud/rack)"
    )
    code, plan, _ = asked(capsys, tmp_path, [*objects, *gang("g", 3, "rack")])
    assert (code, nodes_of(plan)) == (1, [])


def test_pools_of_two_clouds_are_one_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each gang finds the layer that it names, in whichever pool has it; nobody is gathered over both.

    Who shares a block shares what is above it, whether that has a name there or not.
    """
    spine, block = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"
    google, sub = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
    objects = [node(f"d{one}", {spine: "s", block: f"b{one // 2}"}) for one in range(4)]
    objects += [node(f"g{one}", {google: "b0", sub: f"c{one // 2}"}) for one in range(4)]
    wanted = [*gang("p", 2, "SubblockLayer"), *gang("q", 4, "SpineLayer")]
    code, plan, _ = asked(capsys, tmp_path, [*objects, *wanted])
    assert code == 0
    assert nodes_of(plan) == ["d0", "d1", "d2", "d3", "g0", "g1"]
    code, plan, _ = asked(capsys, tmp_path, [*objects, *gang("r", 4, "BlockLayer")])
    assert nodes_of(plan) == ["g0", "g1", "g2", "g3"]
    code, plan, _ = asked(capsys, tmp_path, [*objects, *gang("r", 5, "BlockLayer")])
    assert code == 1


def test_a_misread_layer_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [*racks("topology.kubernetes.io/block", "topology.kubernetes.io/rack")]
    _, _, said = asked(capsys, tmp_path, [*objects, *gang("g", 2, "rack"), *gang("h", 1, "rak")])
    assert '"rack" is read as RackLayer' in said
    assert '"rak" is none of ClusterTopologyLayer, BlockLayer, RackLayer, NodeTopologyLayer' in said


def test_the_tree_of_labels_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": racks("my/b", "my/r")}))
    assert main(["topology", str(dump)]) == 2
    assert "--layers block=LABEL,rack=LABEL says which labels count" in capsys.readouterr().err
    assert main(["topology", str(dump), "--layers", "block=my/b,rack=my/r"]) == 0
    shown = capsys.readouterr().out
    assert "(block = my/b, rack = my/r)" in shown
    assert "r2" in shown


def test_layers_in_python() -> None:
    """The record that ``--layers`` makes, with a second label for nodes that lack the first."""
    nodes = [
        Node(
            name=f"n{one}",
            labels={"old/rack" if one % 2 else "rack": "ab"[one // 2]},
            allocatable={"cpu": 1, "pods": 1},
        )
        for one in range(4)
    ]
    pods = [Pod(name=f"p{one}", labels={GANG: "g"}, requests={"cpu": 1}) for one in range(2)]
    rule = '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}'
    group = PodGroup(namespace="default", name="g", min_member=2, annotations={SPEC: rule})
    network = label_layers({"rack": ("rack", "old/rack")})
    snapshot = ClusterSnapshot(nodes=nodes, pending=pods, records=[network, group])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert {one.node for one in result.bound} == {"n0", "n1"}
    with pytest.raises(ModelError, match="expected a name and a label"):
        label_layers({"rack": ""})


def test_a_layer_that_does_not_exist_is_named_to_each_member(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, plan, _ = asked(
        capsys, tmp_path, [node("a", {"topology.kubernetes.io/rack": "r"}), *gang("g", 2, "Rak")]
    )
    assert code == 1
    told = {one["message"] for one in plan["decisions"]}
    (text,) = told
    assert text.endswith("desiredOfferSlot: 2, the network topology has no layer Rak.")
