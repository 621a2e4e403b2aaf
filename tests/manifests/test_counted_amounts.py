"""Amounts that columns do not hold: what one object says so hurts that object alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.manifests import EventReader, snapshot_from_objects
from koordcore.protocol.reservation import RESIZE_ALLOCATABLE

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "10"}},
}
ODD = (-1, "-5", 10**30, "9" * 40, "9e15")


def pod(name: str, requests: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container], **spec},
    }


def reservation(
    asks: Any = "1", granted: Any = "1", *, resized: Any = None, there: bool = True
) -> dict[str, Any]:
    notes = {} if resized is None else {RESIZE_ALLOCATABLE: json.dumps({"resources": {"cpu": resized}})}
    status: dict[str, Any] = {"phase": "Available", "nodeName": "n0"}
    if granted is not None:
        status["allocatable"] = {"cpu": granted}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "r", "annotations": notes},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": asks}}}]}},
        },
        "status": status if there else {},
    }


@pytest.mark.parametrize("amount", ODD)
@pytest.mark.parametrize("where", ["asks", "granted", "both", "resized"])
@pytest.mark.parametrize("there", [True, False])
def test_a_reservation_of_uncountable_amounts_stops_nobody_else(
    where: str, amount: Any, *, there: bool
) -> None:
    said = {"asks": amount, "granted": amount} if where == "both" else {where: amount}
    loaded = snapshot_from_objects([NODE, reservation(**said, there=there), pod("p", {"cpu": "1"})])
    if where in ("granted", "both") and there:
        assert any("status.allocatable[cpu]" in str(one) for one in loaded.problems)
    result = schedule(loaded.snapshot)
    assert [one.pod.name for one in result.bound if one.pod.name == "p"] == ["p"]
    assert verify(loaded.snapshot, result) == ()


@pytest.mark.parametrize("amount", [*ODD[2:], "1e400"])
@pytest.mark.parametrize("granted", [None, {"memory": "1Gi"}])
def test_a_reservation_that_holds_an_uncountable_template_stops_nobody_else(
    granted: Any, amount: Any
) -> None:
    held = reservation(amount, None)
    if granted:
        held["status"]["allocatable"] = granted
    loaded = snapshot_from_objects([NODE, held, pod("p", {"cpu": "1"})])
    assert any("Reservation r: spec.template: requests" in str(one) for one in loaded.problems)
    result = schedule(loaded.snapshot)
    assert [one.pod.name for one in result.bound] == ["p"]
    assert verify(loaded.snapshot, result) == ()
    reader, snapshot = EventReader(), ClusterSnapshot()
    for one in (NODE, reservation("1", None), held, pod("p", {"cpu": "1"})):
        snapshot = snapshot.apply(*reader.event("ADDED", one))
    assert [one.pod.name for one in schedule(snapshot).bound] == ["p"]


def test_a_broken_pod_that_asks_for_more_than_can_be_counted_keeps_its_node_and_stops_nobody_else() -> None:
    broken = {**pod("r", {"memory": "9" * 40}, nodeName="n0"), "apiVersion": 10**30}
    other = {**NODE, "metadata": {"name": "n1"}}
    loaded = snapshot_from_objects([NODE, other, broken, pod("p", {"cpu": "1"})])
    result = schedule(loaded.snapshot)
    assert [(one.pod.name, one.node) for one in result.bound] == [("p", "n1")]


def test_an_event_about_a_pod_whose_namespace_is_none_does_not_pass_for_news_of_another() -> None:
    reader = EventReader()
    there = pod("p", {"cpu": "1"}, nodeName="n0")
    odd = {**there, "metadata": {**there["metadata"], "namespace": {"": ""}}}
    snapshot = ClusterSnapshot()
    for one in (NODE, there, odd):
        snapshot = snapshot.apply(*reader.event("ADDED", one))
    assert sorted(str(one.key) for one in snapshot.bound_pods()) == ["default/p", '{"": ""}/p']
    snapshot = snapshot.apply(*reader.event("DELETED", odd))
    assert [str(one.key) for one in snapshot.bound_pods()] == ["default/p"]


@pytest.mark.parametrize("amount", [*ODD[:-1], "91e14"])
def test_a_device_of_uncountable_amounts_stops_nobody_else(amount: Any) -> None:
    """A node that does not offer its cards takes the amounts from its Device."""
    card = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": amount}}
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n0"},
        "spec": {"devices": [card]},
    }
    loaded = snapshot_from_objects([NODE, device, pod("p", {"cpu": "1"})])
    assert ["spec.devices" in str(one) for one in loaded.problems] == [True]
    result = schedule(loaded.snapshot)
    assert [one.pod.name for one in result.bound] == ["p"]
    assert verify(loaded.snapshot, result) == ()
