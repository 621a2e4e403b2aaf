"""Pod slots that reservations hold: each is for the users of its own reservation."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore import ScheduleResult, schedule, verify
from koordcore.checking.violation import ViolationKind
from koordcore.manifests import snapshot_from_objects
from koordcore.model import Reservation
from koordcore.snapshot import ClusterSnapshot, RecordReplaced

Object = dict[str, Any]
USED = "scheduling.koordinator.sh/reservation-allocated"


def node(pods: int) -> Object:
    amounts = {"cpu": "8", "memory": "64Gi", "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": amounts},
    }


def pod(name: str, *owned: str, inside: str = "") -> Object:
    """A pod of one CPU that owns reservations; ``inside`` one it runs."""
    meta: Object = {"name": name, "uid": f"u-{name}", "labels": dict.fromkeys(owned, "yes")}
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    if inside:
        meta["annotations"] = {USED: json.dumps({"name": inside, "uid": f"r-{inside}"})}
        spec["nodeName"] = "n"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def reservation(name: str, *users: str) -> Object:
    """A reservation of two CPUs that many pods may use, for pods with its name as a label."""
    holds = {"cpu": "2"}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"r-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {name: "yes"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": holds}}]}},
        },
        "status": {
            "phase": "Available",
            "nodeName": "n",
            "allocatable": holds,
            "currentOwners": [{"namespace": "default", "name": one, "uid": f"u-{one}"} for one in users],
            **({"allocated": {"cpu": "1"}} if users else {}),
        },
    }


def decided(*objects: Object) -> tuple[ClusterSnapshot, ScheduleResult]:
    snapshot = snapshot_from_objects(objects).snapshot
    return snapshot, schedule(snapshot)


def test_who_owns_two_does_not_take_the_slot_of_the_other() -> None:
    """The node has two slots: one is the user's of ``a``, the other is kept for the users of ``b``."""
    there = (reservation("a", "user"), reservation("b"), pod("user", "a", inside="a"))
    snapshot, result = decided(node(2), *there, pod("both", "a", "b"))
    assert not result.bound
    assert verify(snapshot, result) == ()
    snapshot, result = decided(node(3), *there, pod("both", "a", "b"))
    assert len(result.bound) == 1
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize("labels", [("a",), ("a", "b")])
def test_the_checker_counts_slots_that_reservations_keep(labels: tuple[str, ...]) -> None:
    """What is legal on a node of three slots is not on one of two, although only two pods are there."""
    there = (reservation("a", "user"), reservation("b"), pod("user", "a", inside="a"))
    _, wide = decided(node(3), *there, pod("late", *labels))
    (late,) = [one for one in wide.snapshot.bound_pods() if one.name == "late"]
    (used,) = [one for one in wide.snapshot.of(Reservation) if one.name == "a"]
    small = snapshot_from_objects([node(2), *there, pod("late", *labels)]).snapshot
    forged = attrs.evolve(wide, snapshot=small.assume(late).apply(RecordReplaced(used)))
    assert [one.kind for one in verify(small, forged)] == [ViolationKind.POD_COUNT]
