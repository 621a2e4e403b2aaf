"""A plan that the checker refuses, or that no solver makes, stops whom it befalls and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koordcore.checking import Violation, ViolationKind, verify
from koordcore.controlplane import loop
from koordcore.errors import SolverError
from koordcore.result import ScheduleResult
from koordcore.scheduling.entry import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.controlplane.played import Item, Scheduler, Server

GANG = "pod-group.scheduling.sigs.k8s.io"


def node() -> Item:
    room = {"cpu": "16", "memory": "16Gi", "pods": "32"}
    return {"metadata": {"name": "n1"}, "status": {"allocatable": room, "capacity": room}}


def pod(name: str, **labels: str) -> Item:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "koord-scheduler", "containers": [container]}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def cluster(*pods: Item) -> Server:
    server = Server()
    server.put("Node", node())
    for one in pods:
        server.put("Pod", one)
    return server


def against(*names: str) -> Callable[..., tuple[Violation, ...]]:
    """A checker that holds something against the places of some pods."""

    def checked(snapshot: ClusterSnapshot, result: ScheduleResult, **kwargs: Any) -> tuple[Violation, ...]:
        found = [
            Violation(ViolationKind.GANG, str(one.pod), "what it says does not hold")
            for one in result.bound
            if one.pod.name in names
        ]
        return (*found, *verify(snapshot, result, **kwargs))

    return checked


def condition(server: Server, name: str) -> str:
    conditions = server.items["Pod", name]["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == "PodScheduled"))


def test_one_pod_whose_plan_is_refused_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = cluster(*(pod(f"p{number}") for number in range(7)))
    monkeypatch.setattr(loop, "verify", against("p3"))
    scheduler = Scheduler(server).run(5)
    bound = [f"p{number}" for number in range(7) if server.node_of(f"p{number}")]
    assert bound == ["p0", "p1", "p2", "p4", "p5", "p6"]
    assert condition(server, "p3") == (
        "0/1 nodes are available: no legal plan was found: gang: default/p3: what it says does not hold."
    )
    assert any("no legal plan for 7 pods" in text for text in scheduler.said)


def test_it_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = cluster(pod("p0"))
    monkeypatch.setattr(loop, "verify", against("p0"))
    scheduler = Scheduler(server).run(5)
    assert server.node_of("p0") is None
    monkeypatch.setattr(loop, "verify", verify)
    server.put("Node", {**node(), "metadata": {"name": "n2"}})
    scheduler.run(20)
    assert server.node_of("p0") is not None


def test_a_gang_is_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [pod(f"w{number}", **{GANG: "train"}) for number in range(4)]
    server = cluster(pod("a"), *members, pod("z"))
    group = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 2}}
    server.put("PodGroup", group)
    monkeypatch.setattr(loop, "verify", against("w2"))
    Scheduler(server).run(8)
    assert [name for name in ("a", "w0", "w1", "w2", "w3", "z") if server.node_of(name)] == ["a", "z"]


def test_a_solver_that_fails_for_one_pod_fails_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(snapshot: ClusterSnapshot, pods: Any, **kwargs: Any) -> ScheduleResult:
        if any(one.name == "p2" for one in pods):
            raise SolverError("the answer does not hold")
        return schedule(snapshot, pods, **kwargs)

    server = cluster(*(pod(f"p{number}") for number in range(4)))
    monkeypatch.setattr(loop, "schedule", decided)
    Scheduler(server).run(5)
    assert [name for name in ("p0", "p1", "p2", "p3") if server.node_of(name)] == ["p0", "p1", "p3"]
    assert "the answer does not hold" in condition(server, "p2")
