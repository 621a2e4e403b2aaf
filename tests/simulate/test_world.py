"""A cluster in a bottle: runs follow from their seeds, what is broken is found, what is found is shrunk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, ModelError, PluginSetting, Policy, schedule
from koordcore.cli import main
from koordcore.controlplane import Feed, Moment, orders
from koordcore.model.load import LoadAwareArgs
from koordcore.simulate.world import (
    Act,
    FaultProfile,
    Listed,
    News,
    Post,
    Watched,
    injections,
    named_profile,
    own_scheduler,
    run_world,
    shrink_world,
)
from koordcore.simulate.world.own_loop import OwnScheduler
from koordcore.simulate.world.picture import draw_world
from koordcore.simulate.world.profile import PROFILES, SECOND
from koordcore.simulate.world.record import Rule, Standing, WorldRun


class Hasty:
    """Decides at every piece of news, and sends all that it decides at once and only once."""

    def __init__(self, seat: int = 0, seats: int = 1) -> None:
        self.feed, self.snapshot, self.tickets = Feed(), ClusterSnapshot(), 0
        self.seat, self.seats = seat, seats

    def books(self) -> None:
        return None

    def hear(self, news: News, moment: Moment) -> Iterator[Act]:
        match news:
            case Listed(kind, items, version):
                self.feed.listed(kind, items, version)
            case Watched(kind, what, item):
                self.feed.watched(kind, what, item)
            case _:
                return
        if self.feed.mirror.whole:
            self.snapshot = self.snapshot.apply(*self.feed.take()[0])
            mine = [pod for pod in self.snapshot.pending if int(pod.name[-1]) % self.seats == self.seat]
            result = schedule(self.snapshot, mine)
            for request in orders(self.snapshot, result, {}, now=moment.wall).requests:
                self.tickets += 1
                yield Post(self.tickets, request)


class Forgetful(OwnScheduler):
    """Loses every tenth piece of news about pods."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = 0

    def hear(self, news: News, moment: Moment) -> Iterator[Act]:
        if isinstance(news, Watched) and news.kind == "Pod":
            self.heard += 1
            if self.heard % 10 == 0:
                return
        yield from super().hear(news, moment)


def short(name: str, seconds: int = 40, **fields: int) -> FaultProfile:
    known: dict[str, Any] = attrs.asdict(named_profile(name))
    known |= {"seconds": seconds, "storm": 25, "calm": 15, **fields}
    return FaultProfile(**known)


def test_a_run_follows_from_its_seed() -> None:
    profile = short("storm", 20)
    first, again = (run_world(3, profile, own_scheduler, tell=True) for _ in range(2))
    assert first == again
    assert run_world(4, profile, own_scheduler).counts != first.counts


@pytest.mark.parametrize("name", list(PROFILES))
def test_the_rules_hold_for_the_loop_of_the_library(name: str) -> None:
    run = run_world(11, short(name), own_scheduler)
    assert run.breaches == ()
    assert run.counts["begin"] > 10  # pods started


def test_what_a_hasty_scheduler_breaks_is_found() -> None:
    """A binding overtakes the annotation that says which cards: the pod runs without any."""
    run = run_world(1, short("calm"), lambda seat: Hasty())
    assert run.breaches[0].rule is Rule.DEVICES


def test_two_who_decide_on_stale_views_are_found_out() -> None:
    profile = short("calm", schedulers=2, lag=2000, nodes=2, cards=0, quotas=0, most=40, arrival=400)
    run = run_world(2, profile, lambda seat: Hasty(seat, 2))
    assert run.breaches[0].rule is Rule.CAPACITY
    lenient = run_world(2, profile, lambda seat: Hasty(seat, 2), exclusive=False)
    assert lenient.breaches == ()  # what kubelets refused was repaired within the bound
    assert lenient.counts["replace"] > 10


def test_books_that_miss_news_are_found() -> None:
    run = run_world(1, short("calm"), lambda seat: Forgetful())
    assert run.breaches[0].rule is Rule.BOOKS


def test_changes_that_overtake_each_other_are_put_right() -> None:
    """Half of all changes of a kind come up to a second after later ones; some after the object has gone."""
    run = run_world(3, short("nodes", overtaken=500, delete=1500, kill=5000), own_scheduler)
    assert run.breaches == ()
    assert run.counts["begin"] > 10


_HOT = LoadAwareArgs(node_metric_expiration_seconds=20, usage_thresholds={"cpu": 60})
_COOL = Policy().with_plugin(PluginSetting(name="LoadAwareScheduling", args=_HOT))


@pytest.mark.parametrize(("seed", "name"), [(16, "calm"), (2, "nodes")])
def test_a_policy_that_waits_for_fresh_reports_lets_nobody_wait_for_ever(seed: int, name: str) -> None:
    profile = short(name, 80, metrics=5000, stale=8000, wall=5)
    run = run_world(seed, profile, partial(own_scheduler, policy=_COOL), reported=_HOT)
    assert run.breaches == ()
    assert run.counts["stale"] > 0
    assert run.counts["begin"] > 10


def test_room_on_hot_nodes_is_held_against_who_does_not_ask_for_reports() -> None:
    profile = short("calm", 60, metrics=5000)
    hot = attrs.evolve(_HOT, usage_thresholds={"cpu": 5})
    cool = Policy().with_plugin(PluginSetting(name="LoadAwareScheduling", args=hot))
    unsaid = run_world(1, profile, partial(own_scheduler, policy=cool))
    assert [one.rule for one in unsaid.breaches] == [Rule.LIVENESS]
    assert run_world(1, profile, partial(own_scheduler, policy=cool), reported=hot).breaches == ()


class Trusting(OwnScheduler):
    """Keeps what an old event says, although it has heard a later one."""

    def __init__(self) -> None:
        super().__init__()
        self.feed.mirror._known = lambda kind, key: 0  # type: ignore[method-assign]


def test_a_mirror_that_trusts_the_last_event_is_found() -> None:
    run = run_world(1, short("calm", overtaken=300), lambda seat: Trusting())
    assert run.breaches[0].rule is Rule.BOOKS
    assert "mirror" in run.breaches[0].what


def test_a_failing_run_is_shrunk_and_replays() -> None:
    profile = short("network")
    run = run_world(1, profile, lambda seat: Hasty())
    small = shrink_world(run, lambda seat: Hasty(), tries=40)
    assert len(small.injections) < len(run.injections)
    assert small.breaches[0].rule is run.breaches[0].rule
    replayed = run_world(1, profile, lambda seat: Hasty(), without=small.without, until=small.ended + 1000)
    assert replayed.breaches == small.breaches


def test_kinds_of_faults_are_drawn_apart() -> None:
    """Without one kind the others come when they came."""
    whole = [(one.time, one.about) for one in injections(5, named_profile("storm")) if one.what == "kill"]
    less = attrs.evolve(named_profile("storm"), cut=0, death=0)
    assert whole == [(one.time, one.about) for one in injections(5, less) if one.what == "kill"]
    assert all(named_profile("storm").storms(time) for time, _ in whole)


def test_a_profile_refuses_what_it_cannot_mean() -> None:
    for wrong in ({"nodes": 0}, {"lost": -1}, {"calm": 1.5}):
        with pytest.raises(ModelError, match=next(iter(wrong))):
            attrs.evolve(named_profile("storm"), **wrong)
    with pytest.raises(ModelError, match="hurricane"):
        named_profile("breeze")


def test_only_what_would_come_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    profile = FaultProfile(seconds=20, nodes=2, storm=0)
    last = len(injections(1, profile)) - 1
    assert run_world(1, profile, own_scheduler, without=frozenset({last})).breaches == ()
    for wrong in (last + 1, -1):
        with pytest.raises(ModelError, match=f"without: there is no injection {wrong}, only 0 to {last}"):
            run_world(1, profile, own_scheduler, without=frozenset({0, wrong}))
    assert main(["world", "--set", "seconds=3", "--without", "99999"]) == 2
    assert "without: there is no injection 99999" in capsys.readouterr().err


def test_one_line_replays_what_broke(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names what was set in the profile, and the policy, too."""
    monkeypatch.setattr("koordcore.cli.world.own_scheduler", lambda seat, policy: Hasty())
    sets = ["--set", "seconds=60", "--set", "storm=40"]
    assert main(["world", "--profile", "network", *sets, "--policy", "stock", "--shrink"]) == 1
    told = capsys.readouterr().out.splitlines()
    (line,) = (one for one in told if one.startswith("replay: koordcore "))
    assert "--set storm=40 --policy stock --without " in line
    assert main(line.split()[2:]) == 1
    again = capsys.readouterr().out.splitlines()
    assert [one for one in again if one.startswith("BROKEN")] == [
        one for one in told if one.startswith("BROKEN")
    ]


def test_the_command_tells_a_story_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["world", "--seed", "7", "--profile", "storm", "--set", "seconds=60", "--limit", "0"])
    told = capsys.readouterr().out
    assert code == 0
    assert "binds" in told
    assert "every rule holds" in told
    assert max(map(len, told.splitlines())) <= 80
    assert main(["world", "--set", "wind=3"]) == 2


def test_a_short_picture_parts_the_ends_of_its_axis() -> None:
    standing = Standing(time=0, used={"n": 0}, waiting=0, open=frozenset({"n"}))
    for columns, axis in ((1, "0 s 1 s"), (7, "0 s 1 s"), (10, "0 s    1 s")):
        told = WorldRun(seed=1, profile=PROFILES["calm"], standings=(standing,) * columns, ended=SECOND)
        assert f"{'':10}{axis}" in draw_world(told)


def test_the_command_takes_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    short_storm = ["world", "--seed", "3", "--set", "seconds=20", "--set", "wall=5"]
    assert main([*short_storm, "--policy", "koordinator"]) == 0
    assert "every rule holds" in capsys.readouterr().out
    assert main([*short_storm, "--policy", "koordinatr"]) == 2
    assert "did you mean koordinator?" in capsys.readouterr().err
