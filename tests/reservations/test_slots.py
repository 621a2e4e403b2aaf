"""Whose pod slots reservations hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore import Bound, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import container, node, obj, pod

USES = {"scheduling.koordinator.sh/reservation-allocated": json.dumps({"name": "r", "uid": "uid-r"})}


def asking(name: str, **rest: Any) -> dict[str, Any]:
    return pod(name, containers=[container(requests={"cpu": "1"})], **rest)


def reservation(*, once: bool, user: str = "") -> dict[str, Any]:
    users = [{"kind": "Pod", "namespace": "default", "name": user, "uid": f"u-{user}"}] if user else []
    amount = {"cpu": "4"}
    return obj(
        "Reservation",
        "r",
        "scheduling.koordinator.sh/v1alpha1",
        metadata={"uid": "uid-r"},
        spec={
            "ttl": "24h",
            "allocateOnce": once,
            "template": {"spec": {"containers": [container(requests=amount)]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "o"}}}],
        },
        status={
            "phase": "Available",
            "nodeName": "n1",
            "allocatable": amount,
            "currentOwners": users,
            **({"allocated": {"cpu": "1"}} if users else {}),
        },
    )


ROOM = node("n1", {"cpu": "8", "memory": "8Gi", "pods": "2"})
USER = asking("u", nodeName="n1", metadata={"uid": "u-u", "labels": {"app": "o"}, "annotations": USES})


@pytest.mark.parametrize(
    ("once", "labels", "fits"),
    [(True, {}, True), (True, {"app": "o"}, True), (False, {"app": "o"}, True), (False, {}, False)],
)
def test_a_reservation_that_is_over_with_its_user_holds_no_slot(
    once: bool, labels: dict[str, str], fits: bool
) -> None:
    """One that serves further users holds theirs."""
    asks = asking("asks", metadata={"labels": labels})
    snapshot = snapshot_from_objects([ROOM, reservation(once=once, user="u"), USER, asks]).snapshot
    result = schedule(snapshot)
    (one,) = result.decisions
    assert isinstance(one, Bound) is fits
    if not fits:
        assert getattr(one, "message", "") == "0/1 nodes are available: 1 Too many pods."
    assert verify(snapshot, result) == ()


def test_the_slot_is_free_as_soon_as_the_user_has_come() -> None:
    first, then = asking("u", metadata={"labels": {"app": "o"}}), asking("zz")
    snapshot = snapshot_from_objects([ROOM, reservation(once=True), first, then]).snapshot
    result = schedule(snapshot)
    assert [one.node for one in result.bound] == ["n1", "n1"]
    assert verify(snapshot, result) == ()
