"""Resource names of v0.7 on every kind of object that carries amounts."""

from __future__ import annotations

from typing import Any

from koordcore import Bound
from koordcore.manifests import snapshot_from_objects
from koordcore.model.quotas import ElasticQuota
from tests.scheduling.device_objects import ALLOCATED, KOORD, Objects, card, given, node, pod, refusal, run

OLD = "kubernetes.io/"
HALF = {OLD + "gpu-core": "50", OLD + "gpu-memory": "4Gi"}
CARD = {OLD + "gpu-core": "100", OLD + "gpu-memory": "8Gi", OLD + "gpu-memory-ratio": "100"}
QUOTA = "quota.scheduling.koordinator.sh/name"


def quota(minimum: dict[str, str], maximum: dict[str, str]) -> Objects:
    return [
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "labels": {"quota.scheduling.koordinator.sh/is-parent": "false"}},
            "spec": {"min": minimum, "max": maximum},
        }
    ]


def reservation(status: dict[str, Any]) -> Objects:
    requests = {OLD + "gpu-core": "100", OLD + "gpu-memory": "8Gi"}
    return [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "held", "uid": "u"},
            "spec": {
                "allocateOnce": False,
                "ttl": "0s",
                "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
            },
            "status": {"allocatable": requests, **status},
        }
    ]


AVAILABLE = {
    "phase": "Available",
    "nodeName": "n",
    "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
}


def placed(result: Any) -> list[str]:
    return sorted(one.pod.name for one in result.decisions if isinstance(one, Bound))


def test_nodes_without_devices_offer_what_they_say_in_old_names() -> None:
    """Two halves are one; the third waits, in whatever spelling it asks."""
    amounts = {OLD + "gpu-core": "100", OLD + "gpu-memory": "8Gi", KOORD + "batch-cpu": "4k"}
    new = {KOORD + "gpu-core": "50", KOORD + "gpu-memory": "4Gi"}
    batch = pod("batch", {OLD + "batch-cpu": "3k"})
    more = pod("more", {KOORD + "batch-cpu": "2k"})
    _, result = run(node("n", amounts=amounts), pod("a", HALF), pod("b", new), pod("c", HALF), batch, more)
    assert placed(result) == ["a", "b", "batch"]
    assert "1 Insufficient koordinator.sh/gpu-core" in refusal(result, "c")
    assert "Insufficient kubernetes.io/batch-cpu" in refusal(result, "more")


def test_devices_and_what_pods_hold_of_them_are_read_in_old_names() -> None:
    half = {"minor": 0, "resources": {OLD + "gpu-core": "50", OLD + "gpu-memory": "4Gi"}}
    running = pod("r", HALF, {ALLOCATED: {"gpu": [half]}}, on="n")
    machine = node("n", card(0, CARD), card(1, CARD))
    _, result = run(machine, running, pod("whole", {OLD + "gpu": "100"}), pod("p", HALF))
    assert given(result, "whole") == {"gpu": [1]}
    assert given(result, "p") == {"gpu": [0]}


def test_quotas_in_old_names_limit_pods_in_any_spelling() -> None:
    limits = quota({OLD + "gpu-core": "100"}, {OLD + "gpu-core": "200", KOORD + "batch-cpu": "1k"})
    (read,) = snapshot_from_objects(limits).snapshot.of(ElasticQuota)
    assert dict(read.max) == {KOORD + "gpu-core": 200, OLD + "batch-cpu": 1000}
    labels = {QUOTA: "team"}
    spellings: list[dict[str, str]] = [
        {OLD + "gpu-core": "100", OLD + "gpu-memory-ratio": "100"},
        {KOORD + "gpu": "100"},
        {OLD + "gpu": "100"},
    ]
    waiting = [pod(f"p{number}", requests, labels=labels) for number, requests in enumerate(spellings)]
    batch = pod("q", {KOORD + "batch-cpu": "2k"}, labels=labels)
    machine = node("n", *[card(minor) for minor in range(4)], amounts={OLD + "batch-cpu": "9k"})
    _, result = run(machine, limits, *waiting, batch)
    assert placed(result) == ["p0", "p1"]
    assert "koordinator.sh/gpu-core" in refusal(result, "p2")
    assert "kubernetes.io/batch-cpu" in refusal(result, "q")


def test_a_quota_in_cores_counts_pods_that_ask_for_whole_cards() -> None:
    """The webhook splits ``koordinator.sh/gpu``, so the quota of a cluster never sees it."""
    limits = quota({}, {KOORD + "gpu-core": "200", KOORD + "gpu-memory-ratio": "300"})
    held = {KOORD + "gpu-core": "100", KOORD + "gpu-memory-ratio": "100"}
    running = {"gpu": [{"minor": 0, "resources": held}]}
    labels = {QUOTA: "team"}
    whole = {KOORD + "gpu": "100"}
    machine = node("n", *[card(minor) for minor in range(4)])
    holder = pod("r", whole, {ALLOCATED: running}, labels=labels, on="n")
    _, result = run(machine, limits, holder, *[pod(name, whole, labels=labels) for name in "ab"])
    assert placed(result) == ["a"]
    assert "exceedDimensions: [koordinator.sh/gpu-core]" in refusal(result, "b")


def test_reservations_hold_and_serve_in_old_names() -> None:
    """Pending ones are placed; available ones give their owners what they hold."""
    machine = node("n", amounts={OLD + "gpu-core": "100", OLD + "gpu-memory": "8Gi"})
    owner = pod("owner", HALF, labels={"app": "a"})
    stranger = pod("stranger", HALF)
    _, result = run(machine, reservation(AVAILABLE), owner, stranger)
    assert placed(result) == ["owner"]
    pending = reservation({})
    _, result = run(machine, pending, stranger)
    assert placed(result) == ["u"]
