"""Nodes whose cards nobody knows yet are closed until their Device object is seen, and no longer."""

from __future__ import annotations

from tests.controlplane.played import Item, Scheduler, Server
from tests.controlplane.test_effects import pod

CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/gpu-memory": "16Gi",
}


def device(minor: object = 0) -> Item:
    cards = [{"type": "gpu", "minor": minor, "health": True, "id": "card", "resources": CARD}]
    return {"metadata": {"name": "n"}, "spec": {"devices": cards}}


def cluster() -> Server:
    """A node with one card, for which two pods wait."""
    server = Server()
    room = {"cpu": "4", "memory": "8Gi", "pods": "9", **CARD}
    server.put("Node", {"metadata": {"name": "n"}, "status": {"allocatable": room}})
    for name in ("p", "q"):
        asks = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
        containers = [{"name": "main", "resources": {"requests": asks, "limits": asks}}]
        server.put("Pod", pod(name, containers=containers))
    return server


def allocated(server: Server, name: str) -> bool:
    annotations = server.items["Pod", name]["metadata"].get("annotations") or {}
    return "scheduling.koordinator.sh/device-allocated" in annotations


def test_pods_hear_of_a_device_object_that_comes_late() -> None:
    server = cluster()
    scheduler = Scheduler(server).run(20)
    assert (server.node_of("p"), server.node_of("q")) == (None, None)
    server.put("Device", device())
    scheduler.run(20)
    assert (server.node_of("p"), server.node_of("q")) == ("n", None)
    assert allocated(server, "p")


def test_pods_hear_of_a_device_object_that_can_be_read_again() -> None:
    server = cluster()
    server.put("Device", device(minor="none"))
    scheduler = Scheduler(server).run(20)
    assert server.node_of("p") is None
    server.put("Device", device())
    assert scheduler.run(20).server.node_of("p") == "n"
