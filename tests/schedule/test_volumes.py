"""Volumes that bind a pod to nodes."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.schedule import schedule

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


POD = {
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
