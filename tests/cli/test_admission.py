"""Profiles are applied as the webhooks and controllers would, and the output says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, pod

PREFIX = "quota.scheduling.koordinator.sh/"
COLOCATION = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "selector": {"matchLabels": {"app": "spark"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "labels": {"touched": "yes"},
    },
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "koord-batch"},
    "value": 5500,
}
TREE: dict[str, Any] = {
    "apiVersion": "quota.koordinator.sh/v1alpha1",
    "kind": "ElasticQuotaProfile",
    "metadata": {"name": "pool-a", "namespace": "kube-system"},
    "spec": {"quotaName": "pool-a-root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
}


def written(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


def test_a_colocation_profile_makes_batch_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room = {
        "cpu": "8",
        "memory": "8Gi",
        "pods": "9",
        "kubernetes.io/batch-cpu": "2000",
        "kubernetes.io/batch-memory": "8Gi",
    }
    asked = {"cpu": "4", "memory": "1Gi"}
    spark = pod(
        "s", metadata={"labels": {"app": "spark"}}, containers=[container(requests=asked, limits=asked)]
    )
    dump = written(tmp_path / "d.json", node("n1", room), COLOCATION, CLASS, spark)
    assert main(["schedule", dump]) == 0  # as it is written, it takes four cores of prod's
    told = "warning: ClusterColocationProfile batch is not applied to 1 waiting pod (--admit)"
    assert told in capsys.readouterr().err
    assert main(["schedule", dump, "--admit"]) == 1
    out = capsys.readouterr()
    assert "admitted: ClusterColocationProfile batch applied to 1 pod" in out.err
    assert "not applied" not in out.err
    assert "batch-cpu" in out.out


@pytest.mark.parametrize("flag", [(), ("--admit",)])
def test_a_profile_that_chooses_by_labels_of_an_unknown_namespace_says_so(
    flag: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**COLOCATION["spec"], "namespaceSelector": {"matchLabels": {"team": "ml"}}}  # type: ignore[dict-item]
    pods = [pod(name, metadata={"labels": {"app": name}, "namespace": "far"}) for name in ("spark", "other")]
    there = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far", "labels": {"team": "ml"}}}
    found = [node("n1"), {**COLOCATION, "spec": spec}, CLASS, *pods]
    told = "ClusterColocationProfile batch chooses by labels of namespaces, and the dump lacks far"
    main(["schedule", written(tmp_path / "without.json", *found), *flag])
    assert told in " ".join(capsys.readouterr().err.split())
    main(["schedule", written(tmp_path / "with.json", *found, there), *flag])
    assert "the dump lacks" not in capsys.readouterr().err


def test_a_quota_profile_makes_the_root_of_its_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room = {"cpu": "40", "memory": "8Gi", "pods": "9"}
    mine, other = node("a", room), node("b", room)
    mine["metadata"]["labels"] = {"pool": "a"}
    dump = written(tmp_path / "d.json", mine, other, TREE)
    main(["quota", dump])
    assert "not applied" in capsys.readouterr().err
    assert main(["quota", dump, "--admit", "-o", "json"]) == 0
    out = capsys.readouterr()
    assert "admitted: ElasticQuotaProfile pool-a made ElasticQuota pool-a-root" in out.err
    rows = json.loads(out.out)["quotas"]
    assert {row["quota"]: row["min"] for row in rows if row["resource"] == "cpu"} == {"pool-a-root": 40_000}


def test_quotas_are_filled_in_from_their_parents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the webhook does when they are created: the tree of the parent, and weights that are not stated."""
    weight = PREFIX + "shared-weight"

    def quota(name: str, parent: str, **more: Any) -> dict[str, Any]:
        labels = {PREFIX + "parent": parent, PREFIX + "is-parent": "true"}
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "namespace": "kube-system", "labels": labels, **more},
            "spec": {"max": {"cpu": "100", "memory": "9Gi"}, "min": {}},
        }

    inner = {**TREE, "spec": {**TREE["spec"], "quotaLabels": {PREFIX + "is-parent": "true"}}}
    nodes = [
        node(f"n{n}", {"cpu": "5", "memory": "9Gi", "pods": "9"}, metadata={"labels": {"pool": "a"}})
        for n in (1, 2)
    ]
    waiting = [
        pod(
            f"p{n}",
            metadata={"labels": {PREFIX + "name": "team"}},
            containers=[container(requests={"cpu": 4})],
        )
        for n in (1, 2)
    ]
    half = {**inner, "spec": {**inner["spec"], "resourceRatio": "0.5"}}
    team = quota("team", "dept", annotations={weight: '{"cpu":"3"}'})
    gates = ["--admit", "--feature-gates", "MultiQuotaTree=true,SupportParentQuotaSubmitPod=true"]
    dump = written(tmp_path / "d.json", *nodes, half, team, quota("dept", "pool-a-root"), *waiting)
    assert main(["schedule", dump, *gates]) == 1
    told = capsys.readouterr()
    assert "1 of 2 pods placed" in told.out
    assert "exceedDimensions: [cpu]" in " ".join(told.out.split())
    assert "refuses" not in told.err
    (tree,) = [line for line in told.err.splitlines() if "tree id" in line]
    assert tree.startswith("admitted: tree id ")
    assert tree.endswith("filled in for 2 ElasticQuotas")
    assert "admitted: shared weight filled in for 1 ElasticQuota\n" in told.err
    # What was created is as it was left; a quota without a parent that is known is refused.
    made = [quota("team", "dept", uid="1"), quota("dept", "pool-a-root", uid="2"), quota("alone", "nobody")]
    dump = written(tmp_path / "d.json", *nodes, half, *made, *waiting)
    assert main(["schedule", dump, *gates]) == 0
    told = capsys.readouterr()
    assert "filled in" not in told.err
    assert "alone has parentName nobody but not find parentInfo" in told.err


@pytest.mark.parametrize("tree", ["", "tree-a"])
def test_pods_of_a_profile_s_tree_stay_on_its_nodes(
    tree: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the pod's label or by its namespace, and below what is required of the node anyway."""
    mine, other = node("z-mine"), node("a-other")
    mine["metadata"]["labels"] = {"pool": "a", "kubernetes.io/arch": "amd64"}
    profile = {**TREE, "metadata": {**TREE["metadata"], "labels": {PREFIX + "tree-id": tree} if tree else {}}}
    child = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": "team",
            "namespace": "team",
            "labels": {PREFIX + "parent": "pool-a-root"},
        },
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "4"}},
    }
    asked = [container(requests={"cpu": "1"})]
    labelled = pod("labelled", metadata={"labels": {PREFIX + "name": "team"}}, containers=asked)
    placed_by_name = pod("spaced", metadata={"namespace": "team"}, containers=asked)
    stranger = pod("stranger", containers=asked)
    items = (mine, other, profile, child, labelled, placed_by_name, stranger)
    dump = written(tmp_path / "d.json", *items)
    main(["schedule", dump, "--admit", "-o", "json"])
    told = capsys.readouterr()
    assert "admitted: ElasticQuotaProfile pool-a keeps 2 pods of its tree on its nodes" in told.err
    nodes = {one["pod"]: one.get("node") for one in json.loads(told.out)["decisions"]}
    assert (nodes["default/labelled"], nodes["team/spaced"]) == ("z-mine", "z-mine")
    assert nodes["default/stranger"] == "a-other"
    # What the webhook has seen before is not counted again.
    pool = {"key": "pool", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}, pool]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    labelled["spec"]["affinity"] = {"nodeAffinity": required}
    dump = written(tmp_path / "d.json", *items)
    main(["schedule", dump, "--admit"])
    assert "keeps 1 pod of its tree on its nodes" in capsys.readouterr().err


def test_a_pod_that_a_webhook_would_refuse_is_unschedulable_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its profile names a PriorityClass that is not there; no other pod hears of it."""
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "be"},
        "spec": {"selector": {"matchLabels": {"app": "batch"}}, "priorityClassName": "none-such"},
    }
    room = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": room},
        profile,
    ]
    for name, labels in (("batch", {"app": "batch"}), ("web", {})):
        meta = {"name": name, "labels": labels}
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["schedule", str(file), "--admit", "-o", "json"]) == 1
    record = json.loads(capsys.readouterr().out)
    told = 'spec.priorityClassName: priorityclasses.scheduling.k8s.io "none-such" not found'
    assert record["unreadable"] == [f"{file} (item 3): Pod batch: {told}"]
    outcomes = {one["pod"]: one for one in record["decisions"]}
    assert outcomes["default/web"]["node"] == "n1"
    assert told in json.dumps(outcomes["default/batch"], ensure_ascii=False).replace('\\"', '"')


def test_a_share_of_pods_is_about_that_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of one workload differ by a digit, and each profile draws for itself."""
    half = [
        {
            **COLOCATION,
            "metadata": {"name": name},
            "spec": {"probability": "50%", "labels": {name: "yes"}},
        }
        for name in ("first", "second")
    ]
    pods = [pod(f"spark-{number}", metadata={"labels": {}}) for number in range(100)]
    dump = written(tmp_path / "d.json", node("n", {"cpu": "8", "pods": "200"}), *half, *pods)
    main(["schedule", dump, "--admit", "-o", "json"])
    told = capsys.readouterr()
    counts = {
        name: int(told.err.split(f"ClusterColocationProfile {name} applied to ")[1].split()[0])
        for name in ("first", "second")
    }
    assert all(40 <= count <= 60 for count in counts.values()), counts
    main(["schedule", dump, "--admit", "-o", "json"])
    assert capsys.readouterr() == told


def test_pods_that_were_admitted_before_are_left_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dump of a live cluster has what the webhook has made of its pods."""
    spec: dict[str, Any] = {
        "qosClass": "BE",
        "labels": {"touched": "yes"},
        "labelSuffixes": {"app": "-batch"},
    }
    suffixed = {**COLOCATION, "spec": spec}
    labels = {"app": "spark-batch", "touched": "yes", "koordinator.sh/qosClass": "BE"}
    live = pod("live", metadata={"labels": labels, "uid": "1"})
    fresh = pod("fresh", metadata={"labels": {"app": "spark"}})
    dump = written(tmp_path / "d.json", node("n", {"cpu": "8", "pods": "9"}), suffixed, CLASS, live, fresh)
    main(["schedule", dump, "--admit"])
    assert "ClusterColocationProfile batch applied to 1 pod" in capsys.readouterr().err


def test_pods_that_are_still_to_be_made_are_admitted_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a Job that is shown as a gang: by profiles of colocation, and by those of quotas."""
    offered = {"kubernetes.io/batch-cpu": "8000", "kubernetes.io/batch-memory": "16Gi"}
    room = {"cpu": "2", "memory": "8Gi", "pods": "20", **offered}
    asked = {"cpu": "3", "memory": "1Gi"}
    spec = {"restartPolicy": "Never", "containers": [container(requests=asked)]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "default", "uid": "j"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"metadata": {"labels": {"app": "spark", PREFIX + "name": "team"}}, "spec": spec},
        },
    }
    elsewhere = node("other", room)
    inside = node("inside", room) | {"metadata": {"name": "inside", "labels": {"pool": "a"}}}
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "default", "labels": {PREFIX + "tree-id": "t"}},
        "spec": {"max": {"kubernetes.io/batch-cpu": "8000"}},
    }
    tree = TREE | {"metadata": TREE["metadata"] | {"labels": {PREFIX + "tree-id": "t"}}}
    dump = written(tmp_path / "d.json", elsewhere, inside, COLOCATION, CLASS, tree, quota, job)
    gates = ["--feature-gates", "MultiQuotaTree=true"]
    assert main(["schedule", dump, "--admit", "--as-gangs", *gates, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert "admitted: ClusterColocationProfile batch applied to 2 pods" in printed.err
    assert "admitted: ElasticQuotaProfile pool-a keeps 2 pods of its tree on its nodes" in printed.err
    assert {one["node"] for one in json.loads(printed.out)["decisions"]} == {"inside"}


@pytest.mark.parametrize("said", [{"priority": 5500}, {"priorityClassName": "koord-batch"}, {}])
def test_a_pod_has_the_priority_of_its_class_before_profiles_are_applied(
    said: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API server writes it before it asks webhooks; resources are moved by the class that follows."""
    profile = {**COLOCATION, "spec": {"selector": {"matchLabels": {"app": "spark"}}}}
    asked = {"cpu": "1", "memory": "1Gi"}
    spark = pod(
        "s",
        metadata={"labels": {"app": "spark", "koordinator.sh/qosClass": "LS"}},
        containers=[container(requests=asked)],
        **said,
    )
    room = {"cpu": "0", "memory": "0", "pods": "9", "kubernetes.io/batch-cpu": "2k"}
    found = [node("n1", {**room, "kubernetes.io/batch-memory": "8Gi"}), profile, spark]
    for default in (False, True):
        dump = written(tmp_path / "d.json", *found, {**CLASS, "globalDefault": default})
        assert main(["schedule", dump, "--admit"]) == (0 if said or default else 1)
        assert ("1 of 1 pods placed" in capsys.readouterr().out) == (bool(said) or default)


def test_annotations_without_quotes_are_read_as_without_admission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {PREFIX + "shared-weight": {"cpu": 4}, PREFIX + "namespaces": ["default"]}
    team = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "kube-system", "annotations": notes},
        "spec": {"max": {"cpu": "9", "memory": "9Gi"}, "min": {"cpu": "1"}},
    }
    record = {"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1k"}}}}
    noted = {"annotations": {"node.koordinator.sh/extended-resource-spec": record}}
    asked = container(requests={"kubernetes.io/batch-cpu": "1k"})
    room = {"cpu": "8", "memory": "8Gi", "pods": "9", "kubernetes.io/batch-cpu": "2k"}
    waiting = pod("p", metadata=noted, containers=[asked])
    dump = written(tmp_path / "d.json", node("n1", room), team, waiting)
    assert main(["schedule", dump, "--admit"]) == 0
    told = capsys.readouterr()
    assert "1 of 1 pods placed" in told.out
    assert "admitted: shared weight filled in for 1 ElasticQuota\n" in told.err
    assert "taken as its JSON text" in told.err


def test_what_a_later_profile_writes_over_an_earlier_one_is_no_mark_of_the_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "spark"}}}
    both: dict[str, Any] = {
        "p1": {"labels": {"team": "x", "kind": "k"}, "labelSuffixes": {"queue": "-a", "kind": "-b"}},
        "p2": {"labels": {"team": "y"}, "labelSuffixes": {"queue": "-c", "none": "-d"}},
    }
    profiles = [
        {**COLOCATION, "metadata": {"name": name}, "spec": {**spec, **said}} for name, said in both.items()
    ]
    labels = {"app": "spark", "team": "y", "kind": "k-b", "queue": "q-a-c"}
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({}, []),
        ({"team": "x"}, ["p2"]),
        ({"kind": "k"}, ["p1"]),
    ]
    for changed, missed in cases:
        live = pod("live", metadata={"labels": {**labels, **changed}, "uid": "1"})
        dump = written(tmp_path / "d.json", node("n1"), *profiles, live)
        main(["schedule", dump])
        told = capsys.readouterr().err
        assert [name for name in both if f"{name} is not applied to 1 waiting pod" in told] == missed
        main(["schedule", dump, "--admit"])
        assert ("applied to 1 pod" in capsys.readouterr().err) == bool(missed)
