"""Members of NonStrict gangs keep their places from turn to turn, as long as their time lasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from koordcore.controlplane import RESOURCES
from koordcore.controlplane.steps import Look, Moment
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from tests.examples.test_kubernetes import Server, node, pod, pod_group, scheduler, server, settle

START = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]
MODE = "gang.scheduling.koordinator.sh/mode"


def elastic(least: int, seconds: int) -> Object:
    group = pod_group("train", least)
    group["metadata"]["annotations"] = {MODE: "NonStrict"}
    group["spec"]["scheduleTimeoutSeconds"] = seconds
    return group


def member(number: int) -> Object:
    """Half of a node, made when the test begins."""
    one = pod(f"w{number}", 2, gang="train")
    one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return one


class Clock:
    """A scheduler whose clock is set by hand."""

    def __init__(self, api: Server) -> None:
        self.api, self.at, self.scheduler = api, START, scheduler(api)
        carry_out = self.scheduler._carry_out

        def told(step: object) -> object:
            if isinstance(step, Look):
                return Moment((self.at - START).total_seconds(), self.at)
            return carry_out(step)  # type: ignore[arg-type]

        self.scheduler._carry_out = told  # type: ignore[method-assign]

    def turns(self, after: float = 0) -> dict[str, str | None]:
        self.at += timedelta(seconds=after)
        settle(self.scheduler)
        return self.api.pods()

    def comes(self, kind: str, one: Object) -> None:
        self.api.put(RESOURCES[kind], one)
        name = one["metadata"]["name"]
        mirror = self.scheduler.follower.mirror
        space = one["metadata"].get("namespace", "")
        assert self.scheduler.follower.wait(lambda: mirror.find(kind, name, space) is not None, 60)


def test_nobody_takes_a_place_that_is_kept_and_the_gang_starts_with_its_last_member() -> None:
    clock = Clock(server(elastic(3, 600), *map(member, range(3)), nodes=1))
    assert set(clock.turns().values()) == {None}
    clock.comes("Pod", pod("late", 3))
    assert set(clock.turns(5).values()) == {None}
    clock.comes("Node", node("n9", 2))
    found = clock.turns(5)
    assert {found[f"w{number}"] for number in range(3)} == {"n0", "n9"}
    assert found["late"] is None
    written = clock.api.items[RESOURCES["Pod"]]["default", "w0"]["metadata"]["annotations"]
    assert WAITS_AT_PERMIT not in written


def test_the_places_go_to_others_when_time_is_up() -> None:
    clock = Clock(server(elastic(3, 60), *map(member, range(3)), nodes=1))
    clock.turns()
    clock.comes("Pod", pod("late", 4))
    assert set(clock.turns(30).values()) == {None}
    found = clock.turns(31)
    assert found.pop("late") == "n0"
    assert set(found.values()) == {None}


def test_who_is_gone_keeps_nothing() -> None:
    clock = Clock(server(elastic(3, 600), *map(member, range(3)), nodes=1))
    clock.turns()
    clock.api.delete(RESOURCES["Pod"], "default", "w0")
    mirror = clock.scheduler.follower.mirror
    assert clock.scheduler.follower.wait(lambda: mirror.find("Pod", "w0", "default") is None, 60)
    clock.comes("Pod", pod("small", 2, priority=99))
    assert clock.turns(1)["small"] == "n0"
