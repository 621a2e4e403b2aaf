"""Many objects in, one snapshot out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordcore.errors import ManifestError
from koordcore.manifests import load, snapshot_from_objects
from koordcore.model.cluster import Namespace, PodDisruptionBudget, PriorityClass, RawObject, Workload
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota, QuotaProfile
from tests.manifests.builders import container, node, obj, pod


def problems(*objects: Any) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects(objects, strict=True)
    return [str(problem) for problem in caught.value.problems]


def owned(raw: dict[str, Any], kind: str, name: str, api_version: str = "apps/v1") -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return raw


def cluster() -> list[dict[str, Any]]:
    return [
        node("n1"),
        node("n2"),
        pod("bound", nodeName="n1", containers=[container(requests={"cpu": "2"})]),
        pod("waits", priorityClassName="high"),
        pod("waits", metadata={"namespace": "other"}),
        pod("done", nodeName="n1", status={"phase": "Succeeded"}),
        pod("lost", nodeName="n9"),
        obj("PriorityClass", "high", "scheduling.k8s.io/v1", value=100),
        obj("Namespace", "other", metadata={"labels": {"team": "a"}}),
        obj(
            "PodDisruptionBudget",
            "pdb",
            "policy/v1",
            spec={"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
            status={"disruptionsAllowed": 1, "expectedPods": 3},
        ),
        obj(
            "Deployment", "web", "apps/v1", spec={"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}
        ),
        obj("Service", "web", spec={"ports": [{"port": 80}]}),
        obj("Ingress", "web", "networking.k8s.io/v1"),
        obj("Job", "j", "batch/v1", spec={"parallelism": 4}),
    ]


def test_pods_stand_where_they_belong() -> None:
    loaded = snapshot_from_objects(cluster())
    snapshot = loaded.snapshot
    assert [state.name for state in snapshot.nodes] == ["n1", "n2"]
    assert [str(one.key) for one in snapshot.bound_pods()] == ["default/bound"]
    assert [str(one.key) for one in snapshot.pending] == ["default/waits", "other/waits"]
    assert [one.name for one in snapshot.of(Pod)] == ["done", "lost"]
    assert snapshot.pending[0].priority == 100
    assert [str(one) for one in loaded.warnings] == [
        "object 7: Pod default/lost: spec.nodeName: no node n9 in the dump; the pod holds nothing"
    ]


def test_small_kinds_become_records() -> None:
    snapshot = snapshot_from_objects(cluster()).snapshot
    assert snapshot.of(PriorityClass)[0].value == 100
    assert snapshot.of(Namespace)[0].labels == {"team": "a"}
    (budget,) = snapshot.of(PodDisruptionBudget)
    assert (budget.min_available, budget.disruptions_allowed, budget.expected_pods) == ("50%", 1, 3)
    assert budget.selector.matches({"app": "web"})
    assert [(one.kind, one.replicas) for one in snapshot.of(Workload)] == [("Deployment", 3), ("Job", 4)]


def test_what_no_plugin_reads_is_kept_and_counted() -> None:
    loaded = snapshot_from_objects(cluster())
    assert loaded.unread == {"Ingress.networking.k8s.io": 1}
    assert loaded.counts["Pod"] == 5
    ingress, raw = loaded.snapshot.of(RawObject)
    assert (ingress.kind, ingress.namespace) == ("Ingress", "")
    # Spread constraints read services out of their text.
    assert (raw.kind, raw.namespace, raw.name) == ("Service", "default", "web")
    assert json.loads(raw.text)["spec"] == {"ports": [{"port": 80}]}


def test_equal_objects_in_any_order_give_equal_snapshots() -> None:
    objects = cluster()
    expected = snapshot_from_objects(objects).snapshot
    for turn in range(len(objects)):
        for shuffled in (objects[turn:] + objects[:turn], (objects[turn:] + objects[:turn])[::-1]):
            assert snapshot_from_objects(shuffled).snapshot == expected


def test_one_error_lists_every_problem_of_every_object() -> None:
    found = problems(
        pod("a", priority="x", nodeSelector={"a": 1}),
        node("n1", {"cpu": "many"}),
        5,
        {"kind": "Pod", "metadata": {"name": "b"}},
        {"apiVersion": "v1", "metadata": {"name": "c"}},
        obj("PriorityClass", "p", "scheduling.k8s.io/v1"),
    )
    assert found == [
        'object 1: Pod a: spec.priority: expected int, got "x"',
        "object 1: Pod a: spec.nodeSelector[a]: expected string, got 1",
        'object 2: Node n1: status.allocatable[cpu]: expected a quantity, got "many"',
        "object 3: expected object, got 5",
        'object 4: Pod b: apiVersion: required (such as "v1")',
        "object 5: c: kind: required",
        "object 6: PriorityClass p: value: required",
    ]


def test_identical_copies_are_one_and_told_of() -> None:
    twice = [pod("a"), pod("a", metadata={"namespace": "default"}), node("a")]
    loaded = snapshot_from_objects(twice)
    told = "object 2: Pod default/a: stands twice; it came before in object 1, and says the same"
    assert [str(one) for one in loaded.warnings] == [told]
    assert [str(one.key) for one in loaded.snapshot.pending] == ["default/a"]
    assert problems(*twice) == [told]
    assert problems(obj("Service", "a"), obj("Service", "a")) == [
        "object 2: Service a: stands twice; it came before in object 1, and says the same"
    ]


def versioned(version: str, cpu: str) -> dict[str, Any]:
    return pod("a", metadata={"resourceVersion": version}, containers=[container(requests={"cpu": cpu})])


@pytest.mark.parametrize(
    ("first", "second", "cpu", "told"),
    [
        (("9", "1"), ("10", "2"), 2000, "object 2: Pod a: {}its resourceVersion is higher{} object 1"),
        (("10", "1"), ("9", "2"), 1000, "object 1: Pod a: {}its resourceVersion is higher{} object 2"),
        (("", "1"), ("9", "2"), 2000, "object 2: Pod a: {}it came later{} object 1"),
        (("9", "1"), ("", "2"), 2000, "object 2: Pod a: {}it came later{} object 1"),
        (("7", "1"), ("7", "2"), 2000, "object 2: Pod a: {}it came later{} object 1"),
    ],
)
def test_of_two_objects_of_one_name_the_newer_one_counts(
    first: tuple[str, str], second: tuple[str, str], cpu: int, told: str
) -> None:
    loaded = snapshot_from_objects([versioned(*first), versioned(*second)])
    (only,) = loaded.snapshot.pending
    assert only.requests == {"cpu": cpu}
    text = told.format("stands twice, and not alike: this one counts, because ", "; the other is in")
    assert [str(one) for one in loaded.warnings] == [text]
    assert loaded.problems == ()


def test_configurations_without_a_name_are_told_apart_by_content() -> None:
    shelf = {"apiVersion": "shop/v1", "kind": "Shelf", "size": 1}
    assert len(snapshot_from_objects([shelf, {**shelf, "size": 2}]).snapshot.of(RawObject)) == 2
    told = "object 2: Shelf: stands twice; it came before in object 1, and says the same"
    assert problems(shelf, dict(shelf)) == [told]


def test_kinds_of_different_groups_may_share_names() -> None:
    snapshot = snapshot_from_objects(
        [
            obj("Event", "a"),
            obj("Event", "a", "events.k8s.io/v1"),
            obj("Job", "a", "batch/v1"),
            obj("Job", "a", "x/v1"),
        ]
    ).snapshot
    assert len(snapshot.of(RawObject)) == 3


def test_cycles_among_owners_are_warned_of() -> None:
    a = owned(obj("ReplicaSet", "a", "apps/v1"), "ReplicaSet", "b")
    b = owned(obj("ReplicaSet", "b", "apps/v1"), "ReplicaSet", "a")
    found = snapshot_from_objects([a, b, owned(pod("p"), "ReplicaSet", "a")]).warnings
    assert [str(one) for one in found] == [
        (
            "object 1: ReplicaSet a: metadata.ownerReferences: owners form a cycle: "
            "ReplicaSet a -> ReplicaSet b -> ReplicaSet a"
        )
    ]
    itself = owned(obj("Thing", "t", "x/v1"), "Thing", "t", "x/v1")
    assert [str(one) for one in snapshot_from_objects([itself]).warnings] == [
        "object 1: Thing t: metadata.ownerReferences: owners form a cycle: Thing t -> Thing t"
    ]


def test_a_long_chain_of_owners_is_no_cycle() -> None:
    chain = [owned(obj("Thing", f"t{i}", "x/v1"), "Thing", f"t{i + 1}", "x/v1") for i in range(3000)]
    assert snapshot_from_objects(chain).counts == {"Thing.x": 3000}


def test_an_unknown_owner_of_pods_is_a_workload() -> None:
    loaded = snapshot_from_objects(
        [
            obj("CloneSet", "c", "apps.kruise.io/v1alpha1", spec={"replicas": 7}),
            obj("CloneSet", "idle", "apps.kruise.io/v1alpha1"),
            owned(pod("p"), "CloneSet", "c", "apps.kruise.io/v1alpha1"),
        ]
    )
    (workload,) = loaded.snapshot.of(Workload)
    assert (workload.kind, workload.name, workload.replicas) == ("CloneSet", "c", 7)
    assert loaded.unread == {"CloneSet.apps.kruise.io": 1}


def test_amounts_beyond_counting_cannot_be_read_where_they_count() -> None:
    huge = [container(requests={"memory": "8Ei"})]
    found = problems(node("n1"), pod("p", nodeName="n1", containers=huge))
    assert found == [
        (
            "object 2: Pod p: spec: requests 9223372036854775807 of memory; "
            "at most 70368744177664 can be counted"
        )
    ]
    assert len(snapshot_from_objects([node("n1"), pod("p", containers=huge)]).snapshot.pending) == 1


def test_a_node_without_room_is_warned_about() -> None:
    loaded = snapshot_from_objects([obj("Node", "n1")])
    assert [str(one) for one in loaded.warnings] == [
        "object 1: Node n1: status.allocatable: absent: no pod fits on this node"
    ]


def test_hand_written_annotations_become_json_text_with_a_warning() -> None:
    raw = pod("p", metadata={"annotations": {"a": ["x", "y"], "b": "z"}})
    loaded = snapshot_from_objects([raw])
    assert loaded.snapshot.pending[0].annotations == {"a": '["x", "y"]', "b": "z"}
    assert [str(one) for one in loaded.warnings] == [
        'object 1: Pod p: metadata.annotations[a]: expected string, got ["x", "y"]; taken as its JSON text'
    ]


def test_files_and_problems_of_many_sources(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\na: [\n")
    (tmp_path / "b.json").write_text(
        json.dumps({"kind": "List", "items": [pod("p", priority="x"), pod("q")]})
    )
    with pytest.raises(ManifestError) as caught:
        load([tmp_path, tmp_path / "none"])
    found = str(caught.value).replace(str(tmp_path), "")
    assert found.splitlines() == [
        "/a.yaml (document 2): not YAML: did not find expected node content: line 7",
        "/none: no such file or folder",
    ]
    with pytest.raises(ManifestError) as caught:
        load([tmp_path / "b.json"], strict=True)
    found = str(caught.value).replace(str(tmp_path), "")
    assert found == '/b.json (item 1): Pod p: spec.priority: expected int, got "x"'


def test_deep_objects_of_unknown_kinds_are_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert problems(obj("Service", "a", spec=deep)) == ["object 1: Service a: not JSON: nested too deeply"]


def test_reading_stops_after_very_many_problems() -> None:
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([5] * 20_000)  # type: ignore[list-item]  # as any of them might be
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == 10_002
    assert found[0] == "object 10001: too many problems; from here on the input was not looked at"


def quota(name: str, parent: str = "", **rest: Any) -> dict[str, Any]:
    labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
    return obj("ElasticQuota", name, "scheduling.sigs.k8s.io/v1alpha1", metadata={"labels": labels}, **rest)


def test_of_a_cycle_among_quotas_one_is_left_out() -> None:
    loaded = snapshot_from_objects([quota("a", "b"), quota("b", "a"), quota("c", "a"), quota("d")])
    assert [one.name for one in loaded.snapshot.of(ElasticQuota)] == ["b", "c", "d"]
    assert [str(one) for one in loaded.problems] == [
        (
            "object 1: ElasticQuota default/a: metadata.labels[quota.scheduling.koordinator.sh/parent]: "
            "parents form a cycle: a -> b -> a"
        )
    ]


def test_kinds_of_koordinator_become_records() -> None:
    snapshot = snapshot_from_objects(
        [
            quota("team", spec={"max": {"cpu": 4}, "min": {"cpu": "500m"}}),
            obj("PodGroup", "job", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 3}),
            obj(
                "NodeMetric",
                "n1",
                "slo.koordinator.sh/v1alpha1",
                status={"nodeMetric": {"nodeUsage": {"resources": {"cpu": "1"}}}},
            ),
            obj(
                "NodeResourceTopology", "n1", "topology.node.k8s.io/v1alpha1", topologyPolicies=["Restricted"]
            ),
            obj(
                "ClusterNetworkTopology",
                "default",
                "scheduling.koordinator.sh/v1alpha1",
                spec={
                    "networkTopologySpec": [
                        {"topologyLayer": "SpineLayer", "labelKey": ["spine"]},
                        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "SpineLayer"},
                    ]
                },
            ),
            obj("ElasticQuotaProfile", "p", "quota.koordinator.sh/v1alpha1", spec={"quotaName": "root"}),
        ]
    ).snapshot
    assert dict(snapshot.of(ElasticQuota)[0].min) == {"cpu": 500}
    assert (snapshot.of(PodGroup)[0].namespace, snapshot.of(PodGroup)[0].min_member) == ("default", 3)
    assert snapshot.of(NodeMetric)[0].name == "n1"
    assert snapshot.of(NodeResourceTopology)[0].name == "n1"
    assert [one.layer for one in snapshot.of(ClusterNetworkTopology)[0].layers] == [
        "SpineLayer",
        "NodeTopologyLayer",
    ]
    assert snapshot.of(QuotaProfile)[0].quota_name == "root"


def test_what_upstream_ignores_in_a_gang_is_a_warning() -> None:
    annotations = {
        "gang.scheduling.koordinator.sh/groups": ["default/a", "default/b"],
        "gang.scheduling.koordinator.sh/mode": "Loose",
    }
    group = obj("PodGroup", "a", "scheduling.sigs.k8s.io/v1alpha1", metadata={"annotations": annotations})
    loaded = snapshot_from_objects([group])
    assert loaded.snapshot.of(PodGroup)[0].annotations["gang.scheduling.koordinator.sh/groups"] == (
        '["default/a", "default/b"]'
    )
    first, second = map(str, loaded.warnings)
    assert "taken as its JSON text" in first
    assert second.startswith(
        "object 1: PodGroup a: metadata.annotations[gang.scheduling.koordinator.sh/mode]"
    )


def test_problems_of_koordinator_kinds_name_their_path() -> None:
    bad = obj("NodeMetric", "n1", "slo.koordinator.sh/v1alpha1", status={"updateTime": "soon"})
    assert problems(bad, quota("q", spec={"max": {"cpu": "x"}})) == [
        'object 1: NodeMetric n1: status.updateTime: expected an RFC 3339 time, got "soon"',
        'object 2: ElasticQuota q: spec.max[cpu]: expected a quantity, got "x"',
    ]


def test_a_known_kind_in_a_foreign_group_is_kept_with_a_warning() -> None:
    loaded = snapshot_from_objects([obj("ElasticQuota", "q", "scheduling.koordinator.sh/v1alpha1")])
    assert [str(one) for one in loaded.warnings] == [
        (
            "object 1: ElasticQuota q: apiVersion: not read: "
            "ElasticQuota is a kind of scheduling.sigs.k8s.io, not of scheduling.koordinator.sh"
        )
    ]


def test_lists_are_opened_wherever_they_stand() -> None:
    """Whoever hands over what kubectl printed has handed over its items."""
    bare = {name: value for name, value in pod("bare").items() if name not in ("apiVersion", "kind")}
    inner = {"apiVersion": "v1", "kind": "PodList", "items": [bare, 5]}
    loaded = snapshot_from_objects(
        [{"apiVersion": "v1", "kind": "List", "items": [node("n1"), inner, pod("p")]}]
    )
    assert loaded.counts == {"Node": 1, "Pod": 2}
    assert [str(one) for one in loaded.problems] == ["object 1 (item 2) (item 2): expected object, got 5"]
    odd = {"apiVersion": "shop/v1", "kind": "ShoppingList", "metadata": {"name": "a"}, "items": {"milk": 2}}
    assert snapshot_from_objects([odd]).unread == {"ShoppingList.shop": 1}


@pytest.mark.parametrize("kind", ["List", "PodList"])
@pytest.mark.parametrize("items", ["x", {}, 5, None, ...])
def test_a_list_without_items_is_refused_and_not_an_empty_cluster(
    kind: str, items: Any, tmp_path: Path
) -> None:
    """Nobody knows what stood there; only of one kind a server writes an empty list without any."""
    broken = {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "7"}}
    broken |= {} if items is ... else {"items": items}
    if kind == "PodList" and items in (None, ...):
        loaded = snapshot_from_objects([node("n1"), broken])
        assert loaded.counts == {"Node": 1}
        assert loaded.problems == ()
        return
    shown = json.dumps(None if items is ... else items)
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([node("n1"), broken])
    assert str(caught.value) == f"object 2: items: expected list, got {shown}"
    for file, text in (("a.json", json.dumps(broken)), ("b.yaml", yaml.safe_dump(broken))):
        (tmp_path / file).write_text(text)
        with pytest.raises(ManifestError) as caught:
            load(tmp_path / file)
        assert str(caught.value) == f"{tmp_path / file}: items: expected list, got {shown}"


def test_a_tuple_of_items_is_a_list() -> None:
    loaded = snapshot_from_objects({"apiVersion": "v1", "kind": "List", "items": (node("n1"), pod("p"))})
    assert loaded.counts == {"Node": 1, "Pod": 1}
