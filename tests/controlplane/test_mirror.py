"""What the mirror makes of events that come twice, late, or after the object has gone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from koordcore.controlplane import Mirror
from koordcore.errors import KoordcoreError


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


def fallen(mirror: Mirror, call: Callable[[Mirror], object]) -> str:
    """The error of a call, which has changed nothing."""
    before = (mirror.objects(), mirror.changes, mirror.followed("Pod"), mirror.newest("Pod"))
    with pytest.raises((KoordcoreError, TypeError)) as caught:
        call(mirror)
    assert (mirror.objects(), mirror.changes, mirror.followed("Pod"), mirror.newest("Pod")) == before
    return str(caught.value)


NAMELESS = {"metadata": {"resourceVersion": "12"}}
UNDATED = {"metadata": {"name": "a"}}


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda one: one.watched("Pod", "ERROR", pod(12)), 'type: expected ADDED, .* got "ERROR"'),
    (lambda one: one.watched("Pod", "ADDED", NAMELESS), "metadata.name: required"),
    (lambda one: one.watched("Pod", "ADDED", UNDATED), "metadata.resourceVersion: required"),
    (lambda one: one.watched("Pod", "BOOKMARK", UNDATED), "metadata.resourceVersion: required"),
    (lambda one: one.watched("Pod", "ADDED", {}), "metadata: required"),
    (lambda one: one.watched("Pod", "ADDED", None), "expected object, got null"),
    (lambda one: one.watched("Node", "ADDED", pod(12)), "kind: 'Node' has not been listed yet"),
    (lambda one: one.watched("Node", "BOOKMARK", pod(12)), "kind: 'Node' has not been listed yet"),
    (lambda one: one.watched([], "ADDED", pod(12)), "kind: expected str, got \\[\\]"),
    (lambda one: one.listed("Pod", [pod(12)], ""), 'version: expected the number of a version, got ""'),
    (lambda one: one.listed("Pod", [pod(12), UNDATED], "12"), r"items\[1\].metadata.resourceVersion"),
    (lambda one: one.listed("Pod", None, "12"), "items: expected Iterable"),
    (lambda one: one.listed("Node", [], "12"), "kind: 'Node' is not followed, only Pod"),
    (lambda one: one.version_of("Node"), "kind: 'Node' is not followed, only Pod"),
    (lambda one: one.follow("Node", "nodes"), "path: expected that of a collection"),
    (lambda one: one.at(None), "path: expected str, got None"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_news_of_a_kind_is_an_error_that_says_so_and_changes_nothing(
    call: Callable[[Mirror], object], message: str
) -> None:
    mirror = begun()
    mirror.watched("Pod", "ADDED", pod(11))
    assert re.match(message, fallen(mirror, call))
