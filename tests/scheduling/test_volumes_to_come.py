"""Claims that wait for their first pod: where a volume can be made, or one that is there would serve."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, patches, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.model.volumes import NO_PROVISIONER, PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.scheduling.test_volumes import NODES, POD, ZONE, claim as bound_claim, outcome, volume as zonal

Object = dict[str, Any]
WITH_CLAIM: Object = dict(POD)
NOT_FOUND = "node(s) didn't find available persistent volumes to bind"


def made(provisioner: str = "disk.example.com", *zones: str, mode: str = "WaitForFirstConsumer") -> Object:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [*zones]}]}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **({"allowedTopologies": terms} if zones else {}),
    }


def claim(**spec: Any) -> Object:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"storageClassName": "fast", **wanted},
    }


def with_uid(uid: str, **spec: Any) -> Object:
    one = claim(**spec)
    one["metadata"]["uid"] = uid
    return one


def local(
    zone: str = "z2", phase: str = "Available", labels: dict[str, str] | None = None, **spec: Any
) -> Object:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "20Gi"},
        "storageClassName": "fast",
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "w", "labels": labels or {}},
        "spec": {**wanted, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        "status": {"phase": phase},
    }


HERE = {"namespace": "default", "name": "c"}
BY_HAND = made(NO_PROVISIONER)
NOWHERE = f"0/3 nodes are available: 3 {NOT_FOUND}."


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([claim(), made()], "a"),
        ([claim(), made("disk.example.com", "z2")], "b"),
        ([claim(), made("disk.example.com", "z9")], NOWHERE),
        ([claim(), made("disk.example.com", "z9"), local()], "b"),
        ([claim(), made("disk.example.com", "z1"), local()], "a"),
        ([claim(), BY_HAND], "a"),
        ([claim(), BY_HAND, local()], "b"),
        ([claim(), BY_HAND, local(phase="Released")], NOWHERE),
        ([claim(), BY_HAND, local(phase="Pending")], NOWHERE),
        ([claim(), BY_HAND, local(phase="Pending", claimRef=HERE)], "b"),
        ([claim(), BY_HAND, local(claimRef=HERE, storageClassName="", accessModes=[])], "b"),
        ([claim(), BY_HAND, local(claimRef={**HERE, "name": "other"})], NOWHERE),
        ([claim(), BY_HAND, local(claimRef={**HERE, "namespace": "other"})], NOWHERE),
        ([claim(), BY_HAND, local(claimRef=HERE, capacity={"storage": "9Gi"})], NOWHERE),
        ([claim(), BY_HAND, local(capacity={"storage": "9Gi"})], NOWHERE),
        ([claim(), BY_HAND, local(storageClassName="slow")], NOWHERE),
        ([claim(), BY_HAND, local(volumeMode="Block")], NOWHERE),
        ([claim(volumeMode="Block"), BY_HAND, local(volumeMode="Block")], "b"),
        ([claim(), BY_HAND, local(accessModes=["ReadOnlyMany"])], NOWHERE),
        ([claim(selector={"matchLabels": {"kind": "ssd"}}), BY_HAND, local()], NOWHERE),
        ([claim(selector={"matchLabels": {"kind": "ssd"}}), BY_HAND, local(labels={"kind": "ssd"})], "b"),
        ([claim(storageClassName="unknown"), BY_HAND, local()], "a"),
        ([claim(volumeAttributesClassName="gold"), BY_HAND, local()], NOWHERE),
        ([claim(), BY_HAND, local(volumeAttributesClassName="gold")], NOWHERE),
        ([claim(), BY_HAND, local(volumeAttributesClassName="gold", claimRef=HERE)], NOWHERE),
        ([claim(volumeAttributesClassName="gold"), BY_HAND, local(volumeAttributesClassName="gold")], "b"),
        ([with_uid("u"), BY_HAND, local(claimRef={**HERE, "uid": "u"})], "b"),
        ([with_uid("new"), BY_HAND, local(claimRef={**HERE, "uid": "old"})], NOWHERE),
        ([claim(), BY_HAND, local(claimRef={**HERE, "uid": "u"})], "b"),
    ],
)
def test_a_pod_goes_where_a_volume_can_be_made_or_found(objects: Sequence[Object], expected: str) -> None:
    assert outcome(*objects) == expected


@pytest.mark.parametrize(
    ("one", "volume", "wrong"),
    [
        (claim(), {}, False),
        (claim(volumeAttributesClassName="gold"), {}, True),
        (claim(), {"volumeAttributesClassName": "gold"}, True),
        (with_uid("new"), {"claimRef": {**HERE, "uid": "new"}}, False),
        (with_uid("new"), {"claimRef": {**HERE, "uid": "old"}}, True),
    ],
)
def test_the_checker_knows_for_whom_a_volume_is(one: Object, volume: dict[str, Any], wrong: bool) -> None:
    here = [node for node in NODES if node["metadata"]["labels"].get(ZONE) == "z2"]
    snapshot = snapshot_from_objects([*here, WITH_CLAIM, one, BY_HAND, local(**volume)]).snapshot
    heedless = Policy(plugins=tuple(one for one in Policy().plugins if one.name != "VolumeBinding"))
    result = schedule(snapshot, policy=heedless)
    assert len(result.bound) == 1
    assert bool(verify(snapshot, attrs.evolve(result, policy=Policy()))) == wrong


def selected(node: str) -> Object:
    one = claim()
    one["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": node}
    return one


def test_a_volume_that_is_being_made_holds_its_pod_to_the_node() -> None:
    assert outcome(selected("c"), made()) == "c"
    assert outcome(selected("gone"), made()) == NOWHERE
    assert outcome(selected("c"), made("disk.example.com", "z2")) == NOWHERE


def test_both_reasons_are_told() -> None:
    """One volume is bound in one zone, the other can be made in another one only."""
    pod = copy.deepcopy(WITH_CLAIM)
    pod["spec"]["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "d"}})
    other = bound_claim()
    other["metadata"]["name"] = "d"
    objects = [*NODES, pod, claim(), made("disk.example.com", "z1"), other, zonal(names=["z2"])]
    (decision,) = schedule(snapshot_from_objects(objects).snapshot).decisions
    reasons = f"2 {NOT_FOUND}, 2 node(s) didn't match PersistentVolume's node affinity"
    assert getattr(decision, "message", "") == f"0/3 nodes are available: {reasons}."


# -- what is written ----------------------------------------------------------------------------------------


def calls_of(*objects: Object) -> list[tuple[str, dict[str, Any]]]:
    result = schedule(snapshot_from_objects([*NODES, *objects]).snapshot)
    calls = [one.to_json() for one in patches(result)]
    return [(one["path"], one["body"]) for one in calls if "persistentvolumeclaims" in one["path"]]


def test_claims_are_told_for_which_node_their_volume_is_to_be_made() -> None:
    """Before the binding, and once; whoever has been told, or may take a volume that is there, is not."""
    written = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}}}
    path = "/api/v1/namespaces/default/persistentvolumeclaims/c"
    in_b = made("disk.example.com", "z2")
    assert calls_of(WITH_CLAIM, claim(), in_b) == [(path, written)]
    again = copy.deepcopy(WITH_CLAIM)
    again["metadata"]["name"] = "q"
    assert calls_of(WITH_CLAIM, again, claim(), in_b) == [(path, written)]
    assert calls_of(WITH_CLAIM, selected("b"), in_b) == []
    assert calls_of(WITH_CLAIM, claim(), in_b, local()) == []
    assert calls_of(WITH_CLAIM, claim(), BY_HAND, local()) == []
    assert calls_of(WITH_CLAIM, claim(storageClassName="unknown")) == []
    assert calls_of(WITH_CLAIM, claim(), made(mode="Immediate")) == []
    result = schedule(snapshot_from_objects([*NODES, WITH_CLAIM, claim(), in_b]).snapshot)
    first, second = patches(result)
    assert (first.volume_claim, second.subresource) == ("c", "binding")


# -- laws ---------------------------------------------------------------------------------------------------

ZONES = ("z0", "z1", "z2")


def in_zones(zones: Sequence[str]) -> NodeSelector:
    wanted = Requirement(ZONE, SelectorOperator.IN, tuple(zones))
    return NodeSelector((NodeSelectorTerm(expressions=(wanted,)),))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """A node in each zone, two classes, a few volumes, and pods with claims."""
    zones = st.lists(st.sampled_from(ZONES), min_size=1, max_size=2, unique=True).map(in_zones)
    names = st.sampled_from(("fast", "slow"))
    size = st.sampled_from((1, 2))
    records: list[Any] = [
        StorageClass(
            name=name,
            provisioner=draw(st.sampled_from((NO_PROVISIONER, "disk"))),
            immediate=False,
            topologies=draw(st.none() | zones),
        )
        for name in ("fast", "slow")
    ]
    records += [
        PersistentVolume(
            name=f"v{number}",
            storage_class=draw(names),
            capacity=draw(size),
            node_affinity=draw(st.none() | zones),
            claim=draw(st.sampled_from(("", "", "default/c0", "default/x"))),
            available=draw(st.sampled_from((True, True, False))),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    records += [
        PersistentVolumeClaim(
            name=f"c{number}",
            storage_class=draw(names),
            request=draw(size),
            selected_node=draw(st.sampled_from(("", "", "", "z1"))),
        )
        for number in range(3)
    ]
    pods = [
        Pod(name=f"p{number}", claims=tuple(draw(st.lists(st.sampled_from(("c0", "c1", "c2")), unique=True))))
        for number in range(3)
    ]
    nodes = [Node(name=zone, labels={ZONE: zone}, allocatable={"pods": 10}) for zone in ZONES]
    return ClusterSnapshot(nodes=nodes, pending=pods, records=records)


def obtains(snapshot: ClusterSnapshot, name: str, zone: str) -> bool:
    """The rule, claim by claim and volume by volume."""
    one = snapshot.find(PersistentVolumeClaim, name, "default")
    assert one is not None
    assert one.storage_class is not None
    kind = snapshot.find(StorageClass, one.storage_class)
    assert kind is not None
    labels = {ZONE: zone}
    allowed = kind.topologies is None or kind.topologies.matches(zone, labels)
    if one.selected_node:
        return one.selected_node == zone and allowed
    volumes = snapshot.of(PersistentVolume)
    if allowed if kind.provisioner == "disk" else not volumes:
        return True
    return any(
        volume.available
        and volume.capacity >= one.request
        and (volume.node_affinity is None or volume.node_affinity.matches(zone, labels))
        and (
            volume.claim == f"default/{name}"
            or (not volume.claim and volume.storage_class == one.storage_class)
        )
        for volume in volumes
    )


@given(clusters())
@settings(max_examples=17)
def test_pods_go_where_all_their_claims_get_volumes_and_nowhere_else(snapshot: ClusterSnapshot) -> None:
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    pods = {pod.key: pod for pod in snapshot.pending}
    for decision in result.decisions:
        claims = pods[decision.pod].claims
        good = [zone for zone in ZONES if all(obtains(snapshot, name, zone) for name in claims)]
        assert decision.node in good if isinstance(decision, Bound) else not good
