"""What events lead to is what loading the final objects gives, in whatever order they come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, ManifestError
from koordcore.errors import Problem
from koordcore.manifests import EventReader, snapshot_from_objects
from koordcore.manifests.objects import key_of
from koordcore.model.cluster import Unreadable
from koordcore.model.pods import PodKey
from koordcore.snapshot import Change

Object: TypeAlias = dict[str, Any]
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
KOORD = "koordinator.sh/"


def thing(version: str, kind: str, name: str, namespace: str | None = None, **fields: Any) -> Object:
    meta: Object = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("meta", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def node(rng: Random, name: str) -> Object:
    room = {"cpu": rng.choice(("4", "8")), "memory": "8Gi", "pods": "10"}
    return thing("v1", "Node", name, status={"allocatable": room})


def pod(rng: Random, name: str) -> Object:
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": {"cpu": rng.choice(("1", "2"))}}}]}
    if rng.random() < 0.6:
        spec["nodeName"] = rng.choice(("n0", "n1", "n2", "nowhere"))
    if rng.random() < 0.4:
        spec["priorityClassName"] = rng.choice(("high", "low"))
    if rng.random() < 0.1:
        spec["priority"] = "broken"
    if rng.random() < 0.3:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": rng.choice(("v0", "v1"))}}]
    if rng.random() < 0.3:
        spec["resourceClaims"] = [{"name": "d", "resourceClaimName": rng.choice(("d0", "d1"))}]
    if rng.random() < 0.2:
        spec["containers"][0]["resources"]["requests"][f"{KOORD}gpu"] = "100"
    labels = {
        "quota.scheduling.koordinator.sh/name": rng.choice(("q0", "nobody")),
        "pod-group.scheduling.sigs.k8s.io": rng.choice(("g", "nobody")),
        f"{KOORD}qosClass": rng.choice(("LSR", "BE")),
    }
    labels = {key: value for key, value in labels.items() if rng.random() < 0.3}
    owners = [
        {"apiVersion": "apps.kruise.io/v1", "kind": "CloneSet", "name": rng.choice(("c0", "c1")), "uid": "u"}
    ]
    meta: Object = {"ownerReferences": owners} if rng.random() < 0.3 else {}
    meta["labels"] = labels
    phase = rng.choice(("Running", "Running", "Succeeded"))
    return thing("v1", "Pod", name, "a", spec=spec, status={"phase": phase}, meta=meta)


def priority_class(rng: Random, name: str) -> Object:
    value, default = rng.choice((5, 10)), rng.random() < 0.5
    return thing("scheduling.k8s.io/v1", "PriorityClass", name, value=value, globalDefault=default)


def quota(rng: Random, name: str) -> Object:
    labels = {"quota.scheduling.koordinator.sh/parent": rng.choice(("q0", "q1", "koordinator-root-quota"))}
    return thing(SIGS, "ElasticQuota", name, "a", spec={"max": {"cpu": "4"}}, meta={"labels": labels})


def reservation(rng: Random, name: str) -> Object:
    uid = rng.choice(("p0", "r-uid"))
    template = {"spec": {"containers": [{"name": "c"}]}, "metadata": {"namespace": "a"}}
    owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
    version = "scheduling.koordinator.sh/v1alpha1"
    spec: Object = {"template": template, "owners": owners}
    if rng.random() < 0.3:
        spec["unheardOf"] = 1
    phase = {"phase": "Available", "nodeName": rng.choice(("n0", "nowhere"))} if rng.random() < 0.5 else {}
    return thing(version, "Reservation", name, spec=spec, meta={"uid": uid}, status=phase)


def clone_set(rng: Random, name: str) -> Object:
    owner = {"apiVersion": "apps.kruise.io/v1", "kind": "CloneSet", "name": "c0" if name == "c1" else "c1"}
    meta = {"ownerReferences": [{**owner, "uid": "u"}]} if rng.random() < 0.5 else {}
    spec = {"replicas": rng.choice((1, 2, "many"))}
    return thing("apps.kruise.io/v1", "CloneSet", name, "a", spec=spec, meta=meta)


def pod_group(rng: Random, name: str) -> Object:
    topology = {"gatherStrategy": [{"layer": rng.choice(("rack", "block")), "strategy": "MustGather"}]}
    meta = {"annotations": {"gang.scheduling.koordinator.sh/network-topology-spec": json.dumps(topology)}}
    spec = {"minMember": rng.randint(1, 3), **({"unheardOf": 1} if rng.random() < 0.3 else {})}
    return thing(SIGS, "PodGroup", name, "a", spec=spec, meta=meta if rng.random() < 0.5 else {})


def volume_claim(rng: Random, name: str) -> Object:
    spec = {"volumeName": "volume"} if rng.random() < 0.5 else {}
    return thing("v1", "PersistentVolumeClaim", name, "a", spec=spec)


def device_claim(rng: Random, name: str) -> Object:
    user = {"resource": "pods", "name": rng.choice(("p0", "p1")), "uid": "p0-0"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    found = {"driver": "d", "pool": "p", "device": "x", "request": "r"}
    status = {"reservedFor": [user], "allocation": {"devices": {"results": [found]}}}
    return thing("resource.k8s.io/v1", "ResourceClaim", name, "a", spec=spec, status=status)


def quota_profile(rng: Random, name: str) -> Object:
    spec = {"quotaName": rng.choice(("q0", "q9")), "nodeSelector": {"matchLabels": {"pool": "x"}}}
    return thing("quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile", name, "a", spec=spec)


MAKERS = {
    **{f"n{number}": node for number in range(3)},
    **{f"p{number}": pod for number in range(5)},
    "high": priority_class,
    "low": priority_class,
    "q0": quota,
    "q1": quota,
    "r0": reservation,
    "c0": clone_set,
    "c1": clone_set,
    "g": pod_group,
    "v0": volume_claim,
    "d0": device_claim,
    "d1": device_claim,
    "f": quota_profile,
}


KINDS = {(item["apiVersion"], item["kind"]) for item in (make(Random(0), "x") for make in MAKERS.values())}


def stamped(item: Object, version: int, uid: str) -> Object:
    meta = {"uid": uid, **item["metadata"], "resourceVersion": str(version)}
    return {**item, "metadata": meta}


def histories(rng: Random) -> tuple[list[list[tuple[str, Object]]], list[Object]]:
    """The events of each object in their order, and the objects that are left."""
    streams, final, version = [], [], 0
    for name, make in MAKERS.items():
        stream: list[tuple[str, Object]] = []
        life = 0
        item: Object | None = None
        for _ in range(rng.randint(0, 4)):
            version += 1
            if item is not None and rng.random() < 0.3:
                stream.append(("DELETED", stamped(item, version, f"{name}-{life}")))
                item, life = None, life + 1
                continue
            what = "ADDED" if item is None else "MODIFIED"
            item = stamped(make(rng, name), version, f"{name}-{life}")
            stream.append((what, item))
        streams.append(stream)
        final += [item] if item is not None else []
    return streams, final


def named_by(objects: list[Object]) -> set[str]:
    """The objects that loading complains about."""
    return {problem.object_name for problem in snapshot_from_objects(objects).problems}


@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_any_order_leads_to_what_is_loaded_in_the_end(seed: int) -> None:
    rng = Random(seed)
    streams, final = histories(rng)
    reader, snapshot = EventReader(), ClusterSnapshot()
    waiting = [list(reversed(stream)) for stream in streams if stream]
    while waiting:
        stream = rng.choice(waiting)
        what, item = stream.pop()
        if not (what == "DELETED" and rng.random() < 0.3 and not stream):  # the last one may get lost
            snapshot = snapshot.apply(*reader.event(what, item))
            assert reader.event(what, item) == (), "an event that comes twice changes nothing"
        waiting = [one for one in waiting if one]
    for version, kind in sorted(KINDS):
        bare = [
            {name: value for name, value in item.items() if name not in ("apiVersion", "kind")}
            for item in final
            if item["kind"] == kind
        ]
        snapshot = snapshot.apply(*reader.relist(version, kind, bare))
    assert {problem.object_name for problem in reader.problems} == named_by(final)
    assert snapshot == snapshot_from_objects(final).snapshot
    in_order = snapshot_from_objects(sorted(final, key=key_of))
    assert Counter(map(told, reader.warnings)) == Counter(map(told, in_order.warnings))


def told(warning: Problem) -> tuple[str, str, str]:
    return warning.object_name, warning.path, warning.message


def test_a_broken_object_hurts_itself_alone_and_is_named() -> None:
    reader = EventReader()
    good = thing("v1", "Pod", "good", "a", spec={})
    bad = thing("v1", "Pod", "bad", "a", spec={"priority": "high"})
    snapshot = ClusterSnapshot().apply(*reader.event("ADDED", good), *reader.event("ADDED", bad))
    assert [(one.name, one.unreadable) for one in snapshot.pending] == [
        ("bad", 'spec.priority: expected int, got "high"'),
        ("good", ""),
    ]
    (problem,) = reader.problems
    assert (problem.object_name, problem.path) == ("Pod a/bad", "spec.priority")
    snapshot = snapshot.apply(*reader.event("MODIFIED", {**bad, "spec": {}}))
    assert [(one.name, one.unreadable) for one in snapshot.pending] == [("bad", ""), ("good", "")]
    assert reader.problems == ()
    lost = thing("v1", "Node", "n", status={"allocatable": {"cpu": "many"}})
    snapshot = snapshot.apply(*reader.event("ADDED", lost))
    assert snapshot.nodes == ()
    assert [(one.kind, one.name) for one in snapshot.of(Unreadable)] == [("Node", "n")]
    snapshot = snapshot.apply(*reader.event("MODIFIED", {**lost, "status": {"allocatable": {"cpu": "4"}}}))
    assert ([one.name for one in snapshot.nodes], snapshot.of(Unreadable)) == (["n"], ())


def test_a_pod_before_its_node_and_its_class_comes_to_both() -> None:
    reader, rng = EventReader(), Random(0)
    spec = {"nodeName": "n0", "priorityClassName": "high"}
    snapshot = ClusterSnapshot().apply(*reader.event("ADDED", thing("v1", "Pod", "p", "a", spec=spec)))
    assert [one.path for one in reader.warnings] == ["spec.priorityClassName", "spec.nodeName"]
    snapshot = snapshot.apply(*reader.event("ADDED", node(rng, "n0")))
    (one,) = snapshot.bound_pods()
    assert one.priority == 0
    snapshot = snapshot.apply(*reader.event("ADDED", priority_class(rng, "high")))
    (one,) = snapshot.bound_pods()
    assert one.priority in (5, 10)


def test_the_end_of_a_later_one_of_a_name_ends_the_one_that_is_known() -> None:
    """A watch that was cut has shown neither the end of the first nor the second's beginning."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    reader = EventReader()
    reader.event("ADDED", stamped(node, 5, "first"))
    assert reader.event("DELETED", stamped(node, 4, "before")) == ()
    assert len(reader.event("DELETED", stamped(node, 9, "second"))) == 1


def test_late_news_of_an_earlier_one_of_a_name_change_nothing() -> None:
    """Two watches overlap, and the older one tells once more of the pod that was there before."""
    reader = EventReader()
    pod = thing("v1", "Pod", "p", "a", spec={})
    there = ClusterSnapshot().apply(*reader.event("ADDED", stamped(pod, 9, "second")))
    for what, version in (("ADDED", 4), ("MODIFIED", 5), ("DELETED", 6)):
        assert reader.event(what, stamped({**pod, "spec": {"nodeName": "n"}}, version, "first")) == ()
    assert [one.uid for one in there.pending] == ["second"]
    assert len(reader.event("DELETED", stamped(pod, 12, "second"))) == 1
    assert len(reader.relist("v1", "Pod", [stamped(pod, 3, "of a cluster made anew")])) == 1


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ManifestError, match="expected ADDED"):
        EventReader().event("ERROR", {"code": 410})
    assert EventReader().event("BOOKMARK", {"metadata": {"resourceVersion": "7"}}) == ()


def test_warnings_name_what_objects_say_of_each_other_until_that_has_changed() -> None:
    reader = EventReader()
    label = "pod-group.scheduling.sigs.k8s.io"
    waits = thing("v1", "Pod", "p", "a", spec={}, meta={"labels": {label: "g"}})
    reader.event("ADDED", waits)
    missing = (
        "Pod a/p",
        f"metadata.labels[{label}]",
        "the dump has no PodGroup a/g, so the pod waits for it",
    )
    assert list(map(told, reader.warnings)) == [missing]
    reader.event("ADDED", thing(SIGS, "PodGroup", "g", "a", spec={"minMember": 1}))
    assert reader.warnings == ()
    assert reader.warnings is reader.warnings, "without an event nothing is looked at anew"


def test_who_is_taken_for_bound_waits_for_no_pod_group() -> None:
    reader = EventReader()
    waits = thing("v1", "Pod", "p", "a", spec={}, meta={"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}})
    reader.event("ADDED", waits)
    reader.event("ADDED", node(Random(0), "n0"))
    reader.assume(Bound(pod=PodKey("a", "p"), node="n0"))
    assert reader.warnings == ()


def test_an_event_that_changes_nothing_that_is_read_is_no_change() -> None:
    reader, rng = EventReader(), Random(0)
    one = node(rng, "n0")

    def beat(at: str) -> Object:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": at}
        return {**one, "status": {**one["status"], "conditions": [ready]}}

    assert len(reader.event("ADDED", beat("then"))) == 1
    assert reader.event("MODIFIED", beat("now")) == ()


def waiting(version: int, name: str = "p", **spec: Any) -> Object:
    item = thing("v1", "Pod", name, "default", spec=spec)
    return stamped(item, version, name)


def test_a_pod_that_is_assumed_stays_until_the_watch_says_where_it_is() -> None:
    reader = EventReader()
    node_a = stamped(thing("v1", "Node", "a"), 1, "a")
    cluster = ClusterSnapshot().apply(*reader.event("ADDED", node_a), *reader.event("ADDED", waiting(2)))
    bound = Bound(pod=cluster.pending[0].key, node="a", annotations={"got": "this"})

    def follow(*changes: Change) -> list[tuple[str, str | None, dict[str, str]]]:
        nonlocal cluster
        cluster = cluster.apply(*changes)
        pods = (*cluster.bound_pods(), *cluster.pending)
        return [(pod.name, pod.node_name, dict(pod.annotations)) for pod in pods]

    assert follow(*reader.assume(bound)) == [("p", "a", {"got": "this"})]
    told = waiting(3)
    told["metadata"]["annotations"] = {"said": "that"}
    assert follow(*reader.event("MODIFIED", told)) == [("p", "a", {"said": "that", "got": "this"})]
    assert follow(*reader.forget("default/p")) == [("p", None, {"said": "that"})]
    assert reader.forget("default/p") == ()
    assert follow(*reader.assume(bound))[0][:2] == ("p", "a")
    assert follow(*reader.event("DELETED", stamped(thing("v1", "Node", "a"), 5, "a")))[0][:2] == ("p", None)
    assert follow(*reader.event("ADDED", stamped(thing("v1", "Node", "a"), 6, "a")))[0][:2] == ("p", None)
    follow(*reader.assume(bound))
    assert follow(*reader.event("MODIFIED", waiting(7, nodeName="a"))) == [("p", "a", {})]
    assert follow(*reader.event("DELETED", waiting(8))) == []


def test_what_is_assumed_is_of_the_very_pod() -> None:
    reader = EventReader()
    cluster = ClusterSnapshot().apply(
        *reader.event("ADDED", stamped(thing("v1", "Node", "a"), 1, "a")),
        *reader.event("ADDED", waiting(2)),
    )
    cluster = cluster.apply(*reader.assume(Bound(pod=cluster.pending[0].key, node="a")))
    anew = waiting(3)
    anew["metadata"]["uid"] = "another"
    cluster = cluster.apply(*reader.event("ADDED", anew))
    assert [(pod.uid, pod.node_name) for pod in cluster.pending] == [("another", None)]
    assert reader.assume(Bound(pod=PodKey("default", "stranger"), node="a")) == ()


@pytest.mark.parametrize("stray", [7, None, [], {"kind": 5}, {"apiVersion": []}])
def test_what_is_no_object_of_a_list_is_forgotten_with_the_next(stray: Any) -> None:
    reader = EventReader()
    reader.relist("v1", "Node", [stray])
    assert reader.problems
    reader.relist("v1", "Pod", [stray])
    reader.relist("v1", "Node", [])
    assert reader.problems, "it is still among the pods"
    reader.relist("v1", "Pod", [])
    assert not reader.problems


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda reader: reader.assume("x"), "decisions: expected Bound, got 'x'"),
        (lambda reader: reader.forget(None), r"pods: expected PodKey \| str, got None"),
        (lambda reader: reader.relist(None, "Pod", []), "api_version: expected str, got None"),
        (lambda reader: reader.relist("v1", "Pod", None), "items: expected Iterable"),
    ],
)
def test_a_reader_names_the_argument_that_is_wrong(
    call: Callable[[EventReader], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(EventReader())
