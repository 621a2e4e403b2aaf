"""Volumes that bind a pod to nodes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot, NodeAdded

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def node(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }


def zoned(name: str, zone: str) -> dict[str, Any]:
    made = node(name)
    made["metadata"]["labels"] = {ZONE: zone}
    return made


def claim(volume: str = "v", **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default", **metadata},
        "spec": {"volumeName": volume},
    }


def volume(labels: dict[str, str] | None = None, names: list[str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v", "labels": labels or {}},
        "spec": {},
    }
    if names is not None:
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": names}]}
        made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return made


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
    },
}
NODES = [zoned("a", "z1"), zoned("b", "z2"), node("c")]


def outcome(*objects: dict[str, Any], nodes: list[dict[str, Any]] | None = None) -> str:
    snapshot = snapshot_from_objects([*(NODES if nodes is None else nodes), POD, *objects]).snapshot
    (decision,) = schedule(snapshot).decisions
    if isinstance(decision, Bound):
        return decision.node
    assert isinstance(decision, Unschedulable)
    return decision.message


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], "a"),
        ([claim(""), volume(names=["z2"])], "a"),
        ([claim(), volume(names=["z2"])], "b"),
        (
            [claim(), volume(names=["z9"])],
            "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
        ),
        (
            [claim("gone")],
            (
                "0/3 nodes are available: 3 node(s) unavailable due to one or more pvc(s) bound to "
                "non-existent pv(s)."
            ),
        ),
        ([claim(name="other")], '0/3 nodes are available: persistentvolumeclaim "c" not found.'),
        (
            [claim(deletionTimestamp="2026-01-01T00:00:00Z")],
            '0/3 nodes are available: persistentvolumeclaim "c" is being deleted.',
        ),
        ([claim(), volume({ZONE: "z2__z3"})], "b"),
    ],
)
def test_a_pod_goes_where_its_volumes_are(objects: list[dict[str, Any]], expected: str) -> None:
    assert outcome(*objects) == expected


def test_zones_bind_only_nodes_that_name_one() -> None:
    told = outcome(claim(), volume({ZONE: "z9"}), nodes=[zoned("a", "z1"), zoned("b", "z2")])
    assert told == "0/2 nodes are available: 2 node(s) had no available volume zone."
    assert outcome(claim(), volume({ZONE: "z9"})) == "c"


def forged(snapshot: ClusterSnapshot, node: str) -> list[str]:
    """Bind all who wait to a node in spite of everything, and give what is wrong with their volumes."""
    pods = [attrs.evolve(pod, node_name=node) for pod in snapshot.pending]
    decisions = tuple(Bound(pod=pod.key, node=node) for pod in pods)
    plan = attrs.evolve(schedule(snapshot), decisions=decisions, snapshot=snapshot.assume(*pods))
    return [one.message for one in verify(snapshot, plan) if one.kind is ViolationKind.VOLUME]


OLD_REGION, REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("here", "of_the_volume", "fits"),
    [
        ({ZONE: "z2"}, {REGION: "r1"}, False),
        ({REGION: "r1"}, {ZONE: "z1"}, False),
        ({OLD_ZONE: "z1"}, {REGION: "r1"}, False),
        ({ZONE: "z1", REGION: "r2"}, {ZONE: "z1", REGION: "r1"}, False),
        ({ZONE: "z1", REGION: "r1"}, {ZONE: "z1", REGION: "r1"}, True),
        ({ZONE: "z2"}, {OLD_ZONE: "z1"}, False),
        ({ZONE: "z1"}, {OLD_ZONE: "z1"}, True),
        ({REGION: "r1"}, {OLD_REGION: "r0__ r1"}, True),
        ({OLD_ZONE: "z2", ZONE: "z1"}, {OLD_ZONE: "z1"}, False),
        ({OLD_ZONE: "z1"}, {ZONE: "z1"}, False),
        ({ZONE: "z2"}, {ZONE: "z1__"}, True),
        ({"elsewhere": "z2"}, {ZONE: "z1", OLD_REGION: "r1"}, True),
    ],
)
def test_a_node_that_names_a_zone_or_a_region_is_held_to_both(
    here: dict[str, str], of_the_volume: dict[str, str], fits: bool
) -> None:
    """By the new name where the volume has the old one, too; and the checker says the same."""
    there = node("a")
    there["metadata"]["labels"] = here
    snapshot = snapshot_from_objects([there, POD, claim(), volume(of_the_volume)]).snapshot
    (decision,) = schedule(snapshot).decisions
    assert isinstance(decision, Bound) is fits
    assert forged(snapshot, "a") == ([] if fits else ["volume v is of another zone or region than a"])


def test_nobody_starts_with_a_claim_that_has_lost_its_volume() -> None:
    """Whether the volume is shown or not; and nobody starts with one that is being deleted."""
    lost = {**claim(), "status": {"phase": "Lost"}}
    for there in ([], [volume()]):
        assert outcome(lost, *there) == (
            '0/3 nodes are available: persistentvolumeclaim "c" bound to non-existent persistentvolume "v".'
        )
        snapshot = snapshot_from_objects([*NODES, POD, lost, *there]).snapshot
        assert forged(snapshot, "a") == ["claim c has lost its volume v"]
    leaves = claim(deletionTimestamp="2026-01-01T00:00:00Z")
    snapshot = snapshot_from_objects([*NODES, POD, leaves, volume()]).snapshot
    assert forged(snapshot, "a") == ["claim c is being deleted"]


@pytest.mark.parametrize(
    ("uid", "owner", "fits"),
    [
        ("u", {"kind": "Pod", "name": "p", "uid": "u", "controller": True}, True),
        ("u", {"kind": "Pod", "name": "p", "uid": "u9", "controller": True}, False),
        ("u", {"kind": "Pod", "name": "other", "uid": "u9", "controller": True}, False),
        ("u", {"kind": "Pod", "name": "p", "uid": "u"}, False),
        ("u", None, False),
        ("", {"kind": "Pod", "name": "p", "uid": "u", "controller": True}, True),
        ("", {"kind": "Pod", "name": "p", "controller": True}, True),
        ("u", {"kind": "Pod", "name": "p", "controller": True}, True),
        ("", {"kind": "Pod", "name": "other", "controller": True}, False),
        ("", {"kind": "Job", "name": "p", "controller": True}, False),
    ],
)
def test_an_ephemeral_volume_is_on_a_claim_of_the_pods_own(
    uid: str, owner: dict[str, Any] | None, fits: bool
) -> None:
    """By uid; by name where the pod or the reference has none."""
    pod = {**POD, "metadata": {"name": "p", "uid": uid}}
    pod["spec"] = {**POD["spec"], "volumes": [{"name": "c", "ephemeral": {}}]}
    owners = [] if owner is None else [{"apiVersion": "v1", **owner}]
    there = claim()
    there["metadata"] = {"name": "p-c", "namespace": "default", "ownerReferences": owners}
    snapshot = snapshot_from_objects([*NODES, pod, there, volume()]).snapshot
    (decision,) = schedule(snapshot).decisions
    if fits:
        assert isinstance(decision, Bound)
        assert forged(snapshot, "a") == []
    else:
        assert isinstance(decision, Unschedulable)
        assert decision.message == (
            "0/3 nodes are available: PVC default/p-c was not created for pod default/p (pod is not owner)."
        )
        assert forged(snapshot, "a") == ["claim p-c is not that of p, which has it made"]
    shared = {**POD, "spec": {**POD["spec"], "volumes": [{"persistentVolumeClaim": {"claimName": "p-c"}}]}}
    (other,) = schedule(snapshot_from_objects([*NODES, shared, there, volume()]).snapshot).decisions
    assert isinstance(other, Bound)


def test_an_ephemeral_volume_waits_for_its_claim() -> None:
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "c", "ephemeral": {}}]}}
    (decision,) = schedule(snapshot_from_objects([*NODES, pod, claim()]).snapshot).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/3 nodes are available: waiting for ephemeral volume controller to create the "
        'persistentvolumeclaim "p-c".'
    )


def test_the_claim_of_an_ephemeral_volume_is_held_to_the_zone_of_its_volume() -> None:
    """Whoever makes the claim, the volume is where it is; a pod elsewhere would never start."""
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "c", "ephemeral": {}}]}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
    mine = claim()
    mine["metadata"] = {"name": "p-c", "namespace": "default", "ownerReferences": [owner]}
    nodes = [zoned("a", "z1"), zoned("b", "z2")]
    for zone, found in (("z1", "a"), ("z2", "b")):
        snapshot = snapshot_from_objects([*nodes, pod, mine, volume({ZONE: zone})]).snapshot
        (decision,) = schedule(snapshot).decisions
        assert isinstance(decision, Bound)
        assert decision.node == found
        assert forged(snapshot, "b" if zone == "z1" else "a")


# -- volumes in use -----------------------------------------------------------------------------------------


def named_claim(name: str, volume: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": volume, **spec},
    }


def disk(name: str, driver: str = "disk.example.com") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"csi": {"driver": driver, "volumeHandle": f"handle-{name}"}},
    }


def csi_node(name: str, count: int | None) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": "disk.example.com", "nodeID": name}
    if count is not None:
        driver["allocatable"] = {"count": count}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }


def user(name: str, *claims: str, on: str = "", cpu: str = "100m") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        "volumes": [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims],
    }
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec}


def placed(*objects: dict[str, Any]) -> dict[str, str]:
    """Schedule, verify, and give each pod's node or message."""
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return {
        one.pod.name: one.node if isinstance(one, Bound) else getattr(one, "message", "")
        for one in result.decisions
    }


def test_a_node_attaches_no_more_volumes_than_it_can() -> None:
    """Two of a driver on a, one on b; the third waits, and a pod without volumes does not."""
    disks = [disk(f"v{number}") for number in range(4)]
    claims = [named_claim(f"c{number}", f"v{number}") for number in range(4)]
    nodes = [node("a"), node("b"), csi_node("a", 2), csi_node("b", 1)]
    found = placed(
        *nodes, *disks, *claims, *(user(f"p{number}", f"c{number}") for number in range(4)), user("q")
    )
    assert [found[f"p{number}"] for number in range(4)].count("a") == 2
    assert [found[f"p{number}"] for number in range(4)].count("b") == 1
    assert found["p3"] == "0/2 nodes are available: 2 node(s) exceed max volume count."
    assert found["q"] in ("a", "b")


def test_a_volume_that_is_there_already_costs_nothing() -> None:
    """A full node still takes a pod that shares a volume of it; the other one would need a second place."""
    objects = [
        node("a"),
        csi_node("a", 1),
        disk("v"),
        disk("w"),
        named_claim("c", "v"),
        named_claim("d", "w"),
    ]
    found = placed(*objects, user("runs", "c", on="a"), user("same", "c"), user("more", "d"))
    assert found["same"] == "a"
    assert "exceed max volume count" in found["more"]


def test_a_node_that_tells_no_number_has_no_limit() -> None:
    objects = [node("a"), csi_node("a", None), *(disk(f"v{n}") for n in range(3))]
    claims = [named_claim(f"c{n}", f"v{n}") for n in range(3)]
    assert set(placed(*objects, *claims, *(user(f"p{n}", f"c{n}") for n in range(3))).values()) == {"a"}


def test_a_volume_yet_to_be_made_counts_for_its_driver() -> None:
    """The storage class says who will make it; the decision says that there is none yet."""
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claims = [named_claim(name, storageClassName="late") for name in ("c", "d")]
    loaded = snapshot_from_objects(
        [node("a"), csi_node("a", 1), late, *claims, user("p", "c"), user("q", "d")]
    )
    first, second = schedule(loaded.snapshot).decisions
    assert isinstance(first, Bound)
    assert first.notes == ("volume of c yet to be bound",)
    assert isinstance(second, Unschedulable)
    assert "exceed max volume count" in second.message
    assert any("no volume is bound to c" in str(warning) for warning in loaded.warnings)


def test_a_volume_that_is_not_shown_counts_for_the_driver_of_its_class() -> None:
    """A dump may have claims and no volumes; one of no class, or of one not shown, tells no driver."""
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    for of_whom, fits in (("late", False), ("", True), ("unknown", True)):
        there = named_claim("c", "not-shown", storageClassName=of_whom)
        claims = [there, named_claim("d", storageClassName="late")]
        objects = [node("a"), csi_node("a", 1), late, *claims, user("runs", "c", on="a"), user("p", "d")]
        message = "0/1 nodes are available: 1 node(s) exceed max volume count."
        assert placed(*objects)["p"] == ("a" if fits else message)
        expected = [] if fits else ["2 volumes of disk.example.com on a, which attaches 1"]
        assert forged(snapshot_from_objects(objects).snapshot, "a") == expected


def test_an_immediate_claim_without_volume_waits() -> None:
    at_once = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "now"}}
    found = placed(node("a"), at_once, named_claim("c", storageClassName="now"), user("p", "c"))
    assert found["p"] == "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def test_a_claim_of_no_class_never_waits_for_a_pod() -> None:
    """Without a uid a claim that names no class may yet get the default one; with it, it has none."""
    waits = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    for claim, fits in (
        (named_claim("c"), True),
        (named_claim("c", storageClassName=""), False),
        ({**named_claim("c"), "metadata": {"name": "c", "namespace": "default", "uid": "1"}}, False),
    ):
        assert placed(node("a"), claim, user("p", "c"))["p"] == ("a" if fits else waits)
        snapshot = snapshot_from_objects([node("a"), claim, user("p", "c")]).snapshot
        said = ["claim c has no volume, and no class that waits for pods"]
        assert forged(snapshot, "a") == ([] if fits else said)


def test_a_claim_of_one_pod_keeps_the_next_away() -> None:
    """The second waits for the first, wherever it would go; evicting the first would help."""
    claim = named_claim("c", "v", accessModes=["ReadWriteOncePod"])
    found = placed(node("a"), node("b"), disk("v"), claim, user("p", "c"), user("q", "c"))
    assert found["p"] == "a"
    assert found["q"] == (
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod "
        "access mode already in-use by another pod."
    )


def test_dumps_without_claims_are_told_apart() -> None:
    (warning,) = snapshot_from_objects([node("a"), user("p", "c")]).warnings
    assert "the dump has no PersistentVolumeClaim" in str(warning)


def test_forged_plans_are_found() -> None:
    """One volume too many, one claim for two pods, one volume out of reach."""
    claim = named_claim("c", "v", accessModes=["ReadWriteOncePod"])
    far = disk("w")
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}
    far["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    objects = [
        zoned("a", "z1"),
        zoned("b", "z2"),
        csi_node("a", 1),
        disk("v"),
        far,
        claim,
        named_claim("d", "w"),
    ]
    snapshot = snapshot_from_objects([*objects, user("p", "c"), user("q", "c"), user("r", "d")]).snapshot
    assert forged(snapshot, "a") == [
        "2 volumes of disk.example.com on a, which attaches 1",
        "claim c is for one pod only",
        "claim c is for one pod only",
        "2 volumes of disk.example.com on a, which attaches 1",
        "volume w cannot be reached from a",
    ]


def test_a_node_that_joins_and_tells_of_a_driver_nobody_told_of_has_its_limit() -> None:
    """What pods ask for was read, and kept, before any node had a limit."""
    disks = [*(disk(name) for name in "vw"), named_claim("c", "v"), named_claim("d", "w")]
    pods = [user("a", "c", "d", cpu="8"), user("b", "c", cpu="8")]
    line = snapshot_from_objects([node("small"), csi_node("n", 1), *disks, *pods]).snapshot
    for _ in range(2):
        line = schedule(line).snapshot
    large = attrs.evolve(line.nodes[0].node, name="n", allocatable={"cpu": 64_000, "pods": 10})
    result = schedule(line.apply(NodeAdded(large)))
    assert {one.pod.name for one in result.bound} == {"b"}
