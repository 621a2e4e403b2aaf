"""Members of NonStrict gangs keep their places from turn to turn, as long as their time lasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from koordcore.controlplane import RESOURCES
from koordcore.controlplane.steps import Look, Moment
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from tests.controlplane.played import Scheduler, Server as Played
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


# -- with a clock that is played -----------------------------------------------------------------------------


def holding() -> tuple[Played, Scheduler]:
    """Two members of three keep the places of a node."""
    played = Played()
    played.put("Node", node("n", 4))
    played.put("PodGroup", elastic(3, 600))
    for number in range(3):
        played.put("Pod", pod(f"w{number}", 2, gang="train"))
    scheduler = Scheduler(played).run(5)
    assert [said_of(played, f"w{number}").startswith("gang") for number in range(3)] == [True, True, False]
    return played, scheduler


def said_of(played: Played, name: str) -> str:
    (condition,) = played.items["Pod", name]["status"]["conditions"]
    return str(condition["message"])


def test_they_start_when_no_other_member_is_needed_any_more() -> None:
    """Nobody of the gang is left to be asked about but those that keep places."""
    played, scheduler = holding()
    played.remove("Pod", "w2")
    played.put("PodGroup", elastic(2, 600))
    scheduler.run(5)
    assert [played.node_of(name) for name in ("w0", "w1")] == ["n", "n"]


def test_two_that_are_too_few_give_up_their_places_and_rest() -> None:
    played, scheduler = holding()
    played.remove("Pod", "w2")
    scheduler.run(20)
    assert "child pod not collect enough" in said_of(played, "w0")
    taken = scheduler.loop._queue.take(scheduler.loop.snapshot, now=scheduler.now)
    assert taken == []


def test_who_waits_hears_of_a_place_whose_keeper_is_gone() -> None:
    played, scheduler = holding()
    played.put("Pod", pod("late", 2))
    assert scheduler.run(20).server.node_of("late") is None
    played.remove("Pod", "w0")
    assert scheduler.run(20).server.node_of("late") == "n"


def test_who_waits_hears_of_a_place_that_is_given_up() -> None:
    """The gang comes to need more members than there are, and keeps nothing."""
    played, scheduler = holding()
    played.put("Pod", pod("late", 2))
    assert scheduler.run(20).server.node_of("late") is None
    played.put("PodGroup", elastic(9, 600))
    assert scheduler.run(30).server.node_of("late") == "n"


def test_another_gang_that_comes_takes_no_place_away() -> None:
    played, scheduler = holding()
    played.put("PodGroup", pod_group("other", 2))
    told: list[str] = []
    played.listeners.append(lambda kind, what, item: told.append(item["metadata"]["name"]))
    for number in range(2):
        played.put("Pod", pod(f"o{number}", 2, gang="other"))
    scheduler.run(20)
    assert {played.node_of(f"o{number}") for number in range(2)} == {None}
    assert "w0" not in told
