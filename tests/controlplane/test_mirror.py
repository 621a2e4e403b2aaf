"""What the mirror makes of events that come twice, late, or after the object has gone."""

from __future__ import annotations

from typing import Any

from koordcore.controlplane import Mirror


def pod(version: int, uid: str = "u", node: str = "") -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "d", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}}


def begun() -> Mirror:
    mirror = Mirror({"Pod": "/api/v1/pods"})
    mirror.listed("Pod", [], "10")
    return mirror


def version(mirror: Mirror) -> str | None:
    found = mirror.find("Pod", "a", "d")
    return None if found is None else str(found["metadata"]["resourceVersion"])


def test_an_event_that_a_later_one_of_its_object_has_overtaken_is_passed_over() -> None:
    mirror = begun()
    assert mirror.watched("Pod", "MODIFIED", pod(13, node="n")) is not None
    before = mirror.changes
    assert mirror.watched("Pod", "ADDED", pod(12)) is None
    assert mirror.watched("Pod", "MODIFIED", pod(13, node="n")) is None
    assert (version(mirror), mirror.changes, mirror.followed("Pod"), mirror.newest("Pod")) == (
        "13", before, 13, 13
    )  # fmt: skip


def test_what_was_told_of_an_object_before_its_end_does_not_bring_it_back() -> None:
    mirror = begun()
    mirror.watched("Pod", "ADDED", pod(11))
    mirror.watched("Pod", "DELETED", pod(14))
    assert mirror.watched("Pod", "MODIFIED", pod(12)) is None
    assert version(mirror) is None
    # Another one of the name is news; so is nothing that a bookmark or a list has counted in.
    assert mirror.watched("Pod", "ADDED", pod(15, uid="v")) is not None
    mirror.watched("Pod", "DELETED", pod(16, uid="v"))
    mirror.watched("Pod", "BOOKMARK", {"metadata": {"resourceVersion": "17"}})
    assert mirror.watched("Pod", "MODIFIED", pod(15, uid="v")) is None
    mirror.listed("Pod", [pod(20)], "30")
    assert mirror.watched("Pod", "DELETED", pod(25)) is None
    assert version(mirror) == "20"
