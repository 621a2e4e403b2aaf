"""What objects of one dump say about each other, and what release notes leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore import schedule
from koordcore.manifests import load, snapshot_from_objects
from koordcore.model.quotas import ElasticQuota
from tests.manifests.builders import container, node, obj, pod

SIGS = "scheduling.sigs.k8s.io/v1alpha1"
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
QUOTA = "quota.scheduling.koordinator.sh/"


def warnings(*objects: Any) -> list[str]:
    """What the loader says of each object, with its path."""
    return [
        f"{one.object_name}: {one.path}: {one.message}" for one in snapshot_from_objects(objects).warnings
    ]


# --- gangs ----------------------------------------------------------------------------------------------


def topology() -> dict[str, Any]:
    layers = [
        {"topologyLayer": "Rack", "labelKey": ["rack"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Rack"},
    ]
    spec = {"networkTopologySpec": layers}
    return obj("ClusterNetworkTopology", "default", "scheduling.koordinator.sh/v1alpha1", spec=spec)


def group(**rule: Any) -> dict[str, Any]:
    text = json.dumps({"gatherStrategy": [{"layer": "Rack", "strategy": "PreferGather", **rule}]})
    return obj("PodGroup", "g", SIGS, metadata={"annotations": {SPEC: text}}, spec={"minMember": 2})


@pytest.mark.parametrize(
    ("rule", "field", "told"),
    [
        ({"layer": "Rak"}, "layer", "ClusterTopologyLayer, Rack, NodeTopologyLayer; the rule is ignored"),
        ({"layer": "Rak", "strategy": "MustGather"}, "layer", "; no domain is one of it"),
        ({"strategy": "Mustgather"}, "strategy", '"Mustgather" is none of MustGather, PreferGather'),
        ({"podCountMultiple": -2}, "podCountMultiple", "-2 is below zero; it does not bind"),
        ({"podCountMultipel": 2}, "podCountMultipel", "unknown field; it is ignored"),
    ],
)
def test_misspelt_gathering_is_said_aloud(rule: dict[str, Any], field: str, told: str) -> None:
    (found,) = warnings(topology(), group(**rule))
    assert found.startswith(f"PodGroup default/g: metadata.annotations[{SPEC}].gatherStrategy[0].{field}: ")
    assert told in found
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1"}
    spec = group(**rule)["metadata"]["annotations"]
    (same,) = warnings(topology(), pod(metadata={"annotations": {**gang, **spec}}))
    assert same == found.replace("PodGroup default/g", "Pod default/web")


def test_gathering_as_documented_is_not_warned_of() -> None:
    assert warnings(topology(), group(strategy="MustGather", podCountMultiple=2)) == []


# --- quotas ---------------------------------------------------------------------------------------------


def quota(name: str, least: str = "1", most: str = "4", parent: str = "", **more: Any) -> dict[str, Any]:
    labels = {QUOTA + "parent": parent} if parent else {}
    metadata = {"labels": {**labels, **more.pop("labels", {})}, "namespace": more.pop("namespace", "default")}
    metadata["annotations"] = {QUOTA + key: text for key, text in more.items()}
    return obj(
        "ElasticQuota", name, SIGS, metadata=metadata, spec={"min": {"cpu": least}, "max": {"cpu": most}}
    )


INNER = {QUOTA + "is-parent": "true"}


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (
            [quota("q", "5")],
            "ElasticQuota default/q: : the webhook refuses it: resourceKey cpu of quota q min 5",
        ),
        ([quota("q", "-1")], "quota.Spec.Min's value < 0"),
        ([quota("q", parent="no")], "q has parentName no but not find parentInfo"),
        (
            [quota("p", labels=INNER), quota("a", "1", parent="p"), quota("b", "1", parent="p")],
            "ElasticQuota default/p: : the webhook refuses it: checkMinQuotaSum all children's MinQuota",
        ),
        ([quota("p"), quota("a", parent="p")], "the parentQuotaInfo's IsParent is false"),
        (
            [quota("q"), quota("q", namespace="other")],
            "ElasticQuota other/q: metadata.name: a quota of this name is in namespace default too",
        ),
        (
            [quota("a", namespaces='["x"]', namespace="z"), quota("b", namespaces='["x"]')],
            "refuses it: AddQuota quota a's annotation namespace x is already bound to quota b",
        ),
        (
            [quota("q"), pod(metadata={"labels": {QUOTA + "name": "no"}})],
            f'metadata.labels[{QUOTA}name]: no ElasticQuota "no"; the default quota counts it',
        ),
        (
            [quota("p", labels=INNER), pod(metadata={"labels": {QUOTA + "name": "p"}})],
            "pod can not be linked to a parentQuotaGroup,quota:p, pod:web",
        ),
    ],
)
def test_quotas_that_the_webhook_refuses_are_warned_of(objects: list[dict[str, Any]], told: str) -> None:
    (found,) = warnings(*objects)
    assert told in found


def test_a_legal_tree_is_not_warned_of() -> None:
    tree = {QUOTA + "tree-id": "t"}
    objects = [quota("p", "3", labels={**INNER, **tree}), quota("a", parent="p"), quota("b", "2", parent="p")]
    assert warnings(*objects, pod(metadata={"labels": {QUOTA + "name": "a"}})) == []


@pytest.mark.parametrize("order", [1, -1], ids=["downwards", "upwards"])
def test_a_tree_is_named_by_the_nearest_quota_above_however_far(order: int) -> None:
    line = [quota(f"q{depth}", parent=f"q{depth - 1}" if depth else "", labels=INNER) for depth in range(6)]
    line[2]["metadata"]["labels"][QUOTA + "tree-id"] = "t"
    told = sorted(one.split("refuses it: ")[1] for one in warnings(*line[::order]))
    # Those below belong to it; those above do not, and that is said of the pair.
    assert told == [
        "q1 tree id is different from child q2, [] vs [t]",
        "q2 tree id is different from parent q1, [t] vs []",
    ]


def test_a_profile_whose_quota_nobody_made_is_named() -> None:
    spec = {"quotaName": "pool", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    profile = obj("ElasticQuotaProfile", "e", "quota.koordinator.sh/v1alpha1", spec=spec)
    (found,) = warnings(profile)
    assert "not applied: the dump has no ElasticQuota pool" in found
    assert warnings(profile, quota("pool")) == []


QOS = "koordinator.sh/qosClass"


@pytest.mark.parametrize(
    ("quality", "priority", "said"),
    [
        ("LSR", 5500, "LSR together with priority class koord-batch"),
        ("LSR", 7500, "LSR together with priority class koord-mid"),
        ("LSR", 0, "LSR together with no priority class"),
        ("BE", 9500, "BE together with priority class koord-prod"),
        ("BE", 100, "BE together with no priority class"),
        ("LSE", 7500, ""),
        ("LSR", 9500, ""),
        ("BE", 5500, ""),
        ("LS", 0, ""),
    ],
)
def test_a_quality_that_does_not_suit_the_priority_is_warned_of(
    quality: str, priority: int, said: str
) -> None:
    cpus = [container(requests={"cpu": "2"}, limits={"cpu": "2"})]
    found = warnings(pod(metadata={"labels": {QOS: quality}}, priority=priority, containers=cpus))
    refused = [f"Pod default/web: metadata.labels[{QOS}]: the webhook refuses {said}"]
    assert found == (refused if said else [])


@pytest.mark.parametrize(
    ("quality", "asked", "said"),
    [
        ("LSR", {"cpu": "1500m"}, "LSR without whole CPUs: requested are 1500m"),
        ("LSE", {"memory": "1Gi"}, "LSE without whole CPUs: requested are none"),
        ("LS", {"kubernetes.io/batch-cpu": "1k"}, "kubernetes.io/batch-cpu without BE"),
        ("LS", {"cpu": "1500m"}, ""),
    ],
)
def test_a_quality_that_does_not_suit_the_amounts_is_warned_of(
    quality: str, asked: dict[str, str], said: str
) -> None:
    amounts = [container(requests=asked, limits=asked)]
    found = warnings(pod(metadata={"labels": {QOS: quality}}, priority=9500, containers=amounts))
    refused = [f"Pod default/web: metadata.labels[{QOS}]: the webhook refuses {said}"]
    assert found == (refused if said else [])


def test_the_name_of_a_class_that_the_dump_lacks_is_taken_for_the_class() -> None:
    cpus = [container(requests={"cpu": "2"}, limits={"cpu": "2"})]
    made = pod(metadata={"labels": {QOS: "LSR"}}, priorityClassName="koord-prod", containers=cpus)
    (found,) = warnings(made)
    assert "no PriorityClass koord-prod" in found


# --- runtime classes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adds", "told"),
    [
        ({"overhead": {"podFixed": {"cpu": "250m"}}}, "overhead of RuntimeClass kata are"),
        ({"scheduling": {"nodeSelector": {"vm": "yes"}}}, "scheduling of RuntimeClass kata are"),
        (
            {"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"tolerations": []}},
            "overhead and scheduling of RuntimeClass kata are",
        ),
        ({}, ""),
        (None, "the dump has no RuntimeClass kata; overhead and scheduling of it are"),
    ],
)
def test_a_runtime_class_of_which_something_may_be_missing_is_named_once(
    adds: dict[str, Any] | None, told: str
) -> None:
    """Pods with a uid have it all; so have those with overhead, where there is no more to their class."""
    found = [] if adds is None else [obj("RuntimeClass", "kata", "node.k8s.io/v1", handler="kata", **adds)]
    named = [pod(name, runtimeClassName="kata") for name in ("a", "b", "c")]
    message = f"Pod default/a: spec.runtimeClassName: {told} not added to the pod, as the API server would"
    assert warnings(*found, *named) == ([f"{message} (here and in 2 more)"] if told else [])
    assert warnings(*found, named[0]) == ([message] if told else [])
    stored = pod("a", runtimeClassName="kata", metadata={"uid": "u"})
    assert warnings(*found, stored, pod("b")) == []
    whole = pod("a", runtimeClassName="kata", overhead={"cpu": "250m"})
    assert warnings(*found, whole) == ([message] if "scheduling" in (adds or {}) else [])


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["kubernetes.io/gpu-core", "koordinator.sh/batch-cpu"])
def test_old_names_mean_the_same_on_nodes_pods_and_quotas(old: str) -> None:
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "9", old: "100"}
    asking = pod(containers=[container(requests={old: "60"}, limits={old: "60"})])
    limit = obj("ElasticQuota", "q", SIGS, spec={"min": {old: "10"}, "max": {old: "70"}})
    snapshot = snapshot_from_objects([node(allocatable=amounts), asking, limit]).snapshot
    (wish,) = snapshot.pending[0].requests
    assert wish != old
    assert snapshot.nodes[0].node.allocatable[wish] == 100
    assert snapshot.of(ElasticQuota)[0].max == {wish: 70}


def test_the_right_name_wins_where_both_stand() -> None:
    amounts = {"kubernetes.io/gpu-core": "100", "koordinator.sh/gpu-core": "200"}
    loaded = snapshot_from_objects([node(allocatable=amounts)])
    assert loaded.snapshot.nodes[0].node.allocatable == {"koordinator.sh/gpu-core": 200}
    (warning,) = loaded.warnings
    assert warning.path == "status.allocatable[kubernetes.io/gpu-core]"


def test_nameless_objects_are_called_after_file_and_document(tmp_path: Path) -> None:
    """Release notes print them so; whoever tries them sees them placed."""
    notes = tmp_path / "Release Notes v1.6.yaml"
    one = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c}]}\n"
    two = "apiVersion: v1\nkind: Pod\nmetadata: {labels: {a: b}}\nspec: {containers: [{name: c}]}\n"
    named = json.dumps(node())
    notes.write_text(f"{one}---\n{two}---\n{named}\n")
    loaded = load([notes])
    assert [str(one.path) for one in loaded.warnings] == ["metadata.name", "metadata.name"]
    bound = [one.pod.name for one in schedule(loaded.snapshot).bound]
    assert bound == ["release-notes-v1-6-1", "release-notes-v1-6-2"]
