"""A control plane in sixty lines, against a server that does what it is told and tells everybody."""

from __future__ import annotations

from typing import Any

from examples.control_plane import ControlPlane
from koordcore.controlplane import Request
from koordcore.model import Unschedulable
from tests.manifests.builders import container, node, pod

CARDS = "nvidia.com/gpu"
ROOM = {"cpu": "32", "memory": "128Gi", "pods": "110", CARDS: "8"}


class Server:
    """Keeps objects; every write is an event."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 0
        self.news: list[tuple[str, dict[str, Any]]] = []
        self.told: list[str] = []

    def put(self, item: dict[str, Any], what: str = "ADDED") -> None:
        self.version += 1
        meta = {"namespace": "default", **item["metadata"], "resourceVersion": str(self.version)}
        meta.setdefault("uid", meta["name"])
        item = {**item, "metadata": meta}
        self.objects[item["kind"], meta["name"]] = item
        self.news.append((what, item))

    def send(self, request: Request) -> None:
        """Bind, evict, or write a status, as the path says."""
        name, subresource = request.path.split("/")[-2:]
        self.told.append(f"{subresource} {name}")
        if subresource == "eviction":
            self.news.append(("DELETED", self.objects.pop(("Pod", name))))
        elif subresource == "binding":
            item = self.objects["Pod", name]
            self.put(
                {**item, "spec": {**item["spec"], "nodeName": request.body["target"]["name"]}}, "MODIFIED"
            )


def wanting(name: str, cards: int, priority: int = 0) -> dict[str, Any]:
    return pod(name, priority=priority, containers=[container(requests={"cpu": "1", CARDS: str(cards)})])


def lived(plane: ControlPlane, server: Server, start: float, seconds: int) -> list[str]:
    """Let time pass, a turn a second; the watch delivers what the turns brought about."""
    server.told.clear()
    for second in range(seconds):
        now = start + second
        for what, item in server.news:
            plane.watched(what, item, now)
        server.news.clear()
        plane.turn(now)
    return list(dict.fromkeys(server.told))


def test_pods_start_wait_and_make_room() -> None:
    server = Server()
    plane = ControlPlane(server.send)
    plane.listed("Node", [node("a", ROOM)], 0.0)
    server.put(wanting("first", 3))
    server.put(wanting("second", 8))
    assert lived(plane, server, 0.0, 3) == ["binding first", "status second"]
    server.put(node("b", ROOM))
    assert lived(plane, server, 20.0, 3) == ["binding second"]
    server.put(wanting("urgent", 8, priority=1000))
    told = lived(plane, server, 40.0, 20)
    assert [one for one in told if not one.startswith("status")] == ["eviction first", "binding urgent"]
    assert {str(key): where for key, where in plane.cluster.location.items()} == {
        "default/second": "b",
        "default/urgent": "a",
    }


def test_what_fits_nowhere_says_why() -> None:
    plane = ControlPlane(Server().send)
    plane.listed("Node", [node("a", ROOM)], 0.0)
    plane.listed("Pod", [{**wanting("huge", 16), "kind": "Pod"}], 0.0)
    result = plane.turn(0.0)
    assert result is not None
    (decision,) = result.decisions
    assert isinstance(decision, Unschedulable)
    assert decision.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert plane.turn(1.0) is None
