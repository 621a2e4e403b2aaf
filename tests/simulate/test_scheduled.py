"""Pods over time, placed by ``schedule``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest

from koordcore.errors import ModelError
from koordcore.model.nodes import Node
from koordcore.model.plugin_args import FitArgs, ScoringStrategy
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.scheduling import schedule
from koordcore.scheduling.plugins.gpu_share import GpuShareArgs
from koordcore.scoring.gpu_policies import PolicyName, make_policy
from koordcore.scoring.gpu_share import GpuNode
from koordcore.simulate import (
    Departure,
    NodeArrival,
    NodeDrained,
    NodeFailed,
    PodArrival,
    replay,
    replay_schedule,
)
from koordcore.simulate.cluster import nodes_of
from koordcore.simulate.scheduled import ClusterEvent, NodeJoined, ScheduledReplay, stream_of
from koordcore.simulate.trace import untimed_events
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_gpu_share import pod as card_pod, small_snapshot
from tests.simulate.small import small_mix, small_trace


def node(name: str, cpu: int = 1000) -> Node:
    return Node(name=name, allocatable={"cpu": cpu, "pods": 10})


def pod(name: str, priority: int = 0, node_name: str | None = None) -> Pod:
    return Pod(name=name, requests={"cpu": 1000}, priority=priority, node_name=node_name)


def run(*events: ClusterEvent, nodes: tuple[Node, ...] = (node("a"),)) -> ScheduledReplay:
    return replay_schedule(ClusterSnapshot(nodes=nodes), events)


def places(result: ScheduledReplay) -> list[tuple[str, str, int, int]]:
    return [(one.task.removeprefix("default/"), one.node, one.time, one.waited) for one in result.placements]


def test_pods_wait_for_those_that_end() -> None:
    result = run(PodArrival(0, pod("x"), 10), PodArrival(3, pod("y"), 5), PodArrival(10, pod("z")))
    assert places(result) == [("x", "a", 0, 0), ("y", "a", 10, 7), ("z", "a", 15, 5)]
    assert result.time.tolist() == [0, 3, 10, 15]
    assert result.pending.tolist() == [0, 1, 1, 0]
    assert result.waited.tolist() == [0, 0, 7, 5]
    assert result.requested[0].tolist() == [1000, 1000, 1000, 1000]


def test_more_important_pods_overtake() -> None:
    """What a queue does, a replay of schedule does."""
    result = run(
        PodArrival(0, pod("x"), 10), PodArrival(1, pod("low")), PodArrival(2, pod("high", priority=9), 10)
    )
    assert [one[0] for one in places(result)] == ["x", "high", "low"]


def test_nodes_drain_fail_and_come_back() -> None:
    drained = run(
        PodArrival(0, pod("x"), 5), NodeDrained(1, "a"), PodArrival(2, pod("y")), NodeJoined(9, node("a"))
    )
    assert places(drained) == [("x", "a", 0, 0), ("y", "a", 9, 7)]
    failed = run(
        PodArrival(0, pod("x"), 50),
        NodeFailed(10, "a"),
        PodArrival(20, pod("y")),
        nodes=(node("a"), node("b")),
    )
    assert places(failed) == [("x", "a", 0, 0), ("x", "b", 10, 0), ("y", "b", 60, 40)]
    assert [state.name for state in failed.snapshot.nodes] == ["b"]


def member(name: str) -> Pod:
    """One of a NonStrict gang of three."""
    prefix = "gang.scheduling.koordinator.sh/"
    gang = {f"{prefix}name": "g", f"{prefix}min-available": "3", f"{prefix}mode": "NonStrict"}
    return attrs.evolve(pod(name), annotations=gang)


def test_members_that_keep_places_wait() -> None:
    """They count as pods that wait, and wait from their arrival on until the others have come."""
    two = [PodArrival(0, member("g0")), PodArrival(3, member("g1"))]
    nodes = (node("a"), node("b"))
    assert run(*two, nodes=nodes).pending.tolist() == [1, 2]
    result = run(*two, PodArrival(5, member("g2")), NodeJoined(9, node("c")), nodes=nodes)
    assert result.pending.tolist() == [1, 2, 3, 0]
    assert result.requested[0].tolist() == [0, 0, 2000, 3000], "places are kept once all have come"
    assert sorted(places(result)) == [("g0", "a", 9, 9), ("g1", "b", 9, 6), ("g2", "c", 9, 4)]


def test_members_ask_again_where_the_node_fails_on_which_they_keep_places() -> None:
    gang = [PodArrival(0, member(f"g{turn}")) for turn in range(3)]
    failed = run(*gang, NodeFailed(10, "a"), nodes=(node("a"), node("b")))
    assert failed.pending.tolist() == [3, 3]
    assert not failed.placements
    joined = run(
        *gang,
        NodeFailed(10, "a"),
        *(NodeJoined(20, node(name)) for name in "ac"),
        nodes=(node("a"), node("b")),
    )
    assert {(one.task, one.time, one.waited) for one in joined.placements} == {
        (f"default/g{turn}", 20, 20) for turn in range(3)
    }


def test_places_that_are_kept_come_free_when_their_time_is_up() -> None:
    """Nothing else happens then: others get the room at that second, and nobody holds it any longer."""
    wait = {"gang.scheduling.koordinator.sh/waiting-time": "9500ms"}
    gang = [attrs.evolve(one, annotations={**one.annotations, **wait}) for one in map(member, ("g0", "g1"))]
    two = [PodArrival(0, one) for one in gang]
    last = run(*two, PodArrival(3, member("g2")), PodArrival(5, pod("late"), 30))
    assert places(last) == [("late", "a", 13, 8)]
    assert last.time.tolist() == [0, 3, 5, 13, 43]
    between = run(*two, PodArrival(3, member("g2")), PodArrival(99, pod("late")))
    assert (between.time.tolist(), between.requested[0].tolist()) == ([0, 3, 13, 99], [0, 1000, 0, 1000])
    alone = run(*two, PodArrival(3, member("g2")))
    assert alone.time.tolist() == [0, 3], "nobody would gain by its end"


def test_departures_free_room_and_end_waits() -> None:
    result = run(
        PodArrival(0, pod("x")),
        PodArrival(1, pod("y")),
        PodArrival(1, pod("z")),
        Departure(2, "default/y"),
        Departure(3, "x"),
        Departure(4, "y"),
    )
    assert places(result) == [("x", "a", 0, 0), ("z", "a", 3, 2)]


def test_a_duration_is_not_negative() -> None:
    """Time would run backwards."""
    with pytest.raises(ModelError, match="pod default/x: duration is negative: -7"):
        PodArrival(3, pod("x"), -7)
    with pytest.raises(ModelError, match=r"pod default/x: duration: expected whole seconds, got 1\.5"):
        PodArrival(3, pod("x"), 1.5)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ModelError, match=r"PodArrival: duration: expected int \| None, got 'long'"):
        PodArrival(3, pod("x"), "long")  # type: ignore[arg-type]  # what is tested
    assert places(run(PodArrival(3, pod("x"), 0), PodArrival(3, pod("y")))) == [
        ("x", "a", 3, 0),
        ("y", "a", 3, 0),
    ]


def test_a_pod_of_a_dump_that_expects_less_than_no_time_ends_at_once() -> None:
    dump = ClusterSnapshot(nodes=[node("a")], pending=[pod("x"), pod("y")])
    cluster, events = stream_of(dump, {}, {dump.pending[0].key: timedelta(seconds=-5)})
    assert places(replay_schedule(cluster, events)) == [("x", "a", 0, 0), ("y", "a", 0, 0)]


def test_who_has_gone_by_itself_may_be_let_depart_once_more() -> None:
    """Recorded traces tell of the end of everybody."""
    cluster = ClusterSnapshot(nodes=[node("a"), node("b")]).assume(pod("there", node_name="b"))
    events: list[ClusterEvent] = [PodArrival(0, pod("x"), 5), NodeFailed(6, "b")]
    events += [Departure(7, "x"), Departure(8, "there")]
    assert places(replay_schedule(cluster, events)) == [("x", "a", 0, 0)]


def test_pods_that_were_there_stay_until_named() -> None:
    there = pod("there", node_name="a")
    cluster = ClusterSnapshot(nodes=[node("a")]).assume(there)
    result = replay_schedule(cluster, [PodArrival(0, pod("x")), Departure(7, "there")])
    assert places(result) == [("x", "a", 7, 7)]


def test_pods_that_wait_at_the_start_wait_from_second_0_on() -> None:
    """Or from their creation, where that is later, and never from after the first event on."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    since = {"young": 30, "old": -30, "later": 90}
    made = [
        attrs.evolve(pod(name), created=start + timedelta(seconds=second)) for name, second in since.items()
    ]
    full = ClusterSnapshot(nodes=[node("a", 4000)]).assume(
        *(pod(f"x{turn}", node_name="a") for turn in range(4))
    )
    waiting = full.with_pending(*made, pod("undated"))
    events = [Departure(60 + 20 * turn, f"x{turn}") for turn in range(4)]
    result = replay_schedule(waiting, events, start=start)
    began = {name: time - waited for name, _, time, waited in places(result)}
    assert began == {"young": 30, "old": 0, "later": 60, "undated": 0}
    assert result.waited.tolist() == [waited for _, _, _, waited in places(result)]


def test_pods_that_waited_at_the_start_ask_again_when_their_node_fails() -> None:
    cluster = ClusterSnapshot(nodes=[node("a"), node("b")]).with_pending(pod("x"))
    result = replay_schedule(cluster, [PodArrival(0, pod("y")), NodeFailed(10, "a"), NodeFailed(20, "b")])
    assert result.pending.tolist() == [0, 1, 2]
    assert {one.key.name for one in result.snapshot.pending} == {"x", "y"}
    back = replay_schedule(cluster, [NodeFailed(10, "a"), NodeFailed(20, "b"), NodeJoined(50, node("b"))])
    assert places(back) == [("x", "b", 10, 10), ("x", "b", 50, 30)]


def test_who_keeps_a_place_at_the_start_asks_again_when_its_node_fails() -> None:
    gang = [member(f"g{turn}") for turn in range(3)]
    held = schedule(ClusterSnapshot(nodes=[node("a"), node("b")], pending=gang)).snapshot
    assert len(held.pending) == 1
    result = replay_schedule(held, [NodeFailed(10, "a"), NodeJoined(20, node("a", 2000))])
    assert result.pending.tolist() == [3, 0]
    assert {one[0] for one in places(result)} == {"g0", "g1", "g2"}


def test_the_start_dates_the_pods() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    result = replay_schedule(ClusterSnapshot(nodes=[node("a")]), [PodArrival(90, pod("x"))], start=start)
    (bound,) = result.snapshot.bound_pods()
    assert bound.created == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_another_policy_gives_another_digest() -> None:
    events = [PodArrival(turn, pod(f"p{turn}")) for turn in range(4)]
    cluster = ClusterSnapshot(nodes=[node("a", 4000), node("b", 4000)])
    packed = FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED)
    pack = Policy(plugins=(PluginSetting(name="NodeResourcesFit", args=packed),))
    spread = replay_schedule(cluster, events)
    crowded = replay_schedule(cluster, events, policy=pack)
    assert {one.node for one in spread.placements} == {"a", "b"}
    assert {one.node for one in crowded.placements} == {"a"}
    assert spread.digest == replay_schedule(cluster, events).digest != crowded.digest


def test_the_fast_replay_decides_alike() -> None:
    """Sixty tasks with cards, one a second: the same nodes by the general way."""
    mix, cluster = small_mix(), small_snapshot()
    empty = attrs.evolve(cluster, pending=())
    order = list(range(60))
    fit = PluginSetting(name="NodeResourcesFit", scores=False)
    share = PluginSetting(name="GpuShare", args=GpuShareArgs(policy=PolicyName.FORESIGHT, mix=mix))
    pods = [card_pod(task.name, task.demand) for task in small_trace().tasks[:60]]
    slow = replay_schedule(
        empty,
        [PodArrival(turn, one) for turn, one in enumerate(pods)],
        policy=Policy(plugins=(fit, share)),
    )
    nodes = nodes_of(empty)
    policy = make_policy(PolicyName.FORESIGHT, mix, nodes=nodes)
    fast = replay(nodes, untimed_events(small_trace(), order), policy, mix=mix)
    bound = [(f"default/{one.task}", one.node) for one in fast.placements if one.node]
    assert [(one.task, one.node) for one in slow.placements] == bound


def test_who_left_early_does_not_end_once_more() -> None:
    result = run(PodArrival(0, pod("x"), 9), Departure(4, "x"), PodArrival(5, pod("x")), NodeDrained(7, "a"))
    assert result.time.tolist() == [0, 4, 5, 7]


def test_resources_are_names() -> None:
    with pytest.raises(ModelError, match="resources: expected names, got 'cpu'"):
        replay_schedule(ClusterSnapshot(), [], resources="cpu")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((PodArrival(1, pod("x")), PodArrival(0, pod("y"))), "order of time"),
        ((PodArrival(0, pod("x")), PodArrival(0, pod("x"))), "there already"),
        ((Departure(0, "x"), PodArrival(1, pod("x"))), "no pod default/x"),
        ((Departure(0, "other/x"),), "no pod other/x"),
        ((NodeDrained(0, "nowhere"),), "no node nowhere"),
        ((NodeFailed(0, "a"), NodeFailed(1, "a")), "no node a"),
        ((NodeFailed(0, "a"), NodeDrained(1, "a")), "no node a"),
        ((NodeJoined(0, node("a")),), "node a is there already"),
        (
            (NodeDrained(0, "a"), NodeJoined(1, node("a")), NodeJoined(2, node("a"))),
            "node a is there already",
        ),
        ((PodArrival(cast("int", 0.5), pod("x")),), "expected whole seconds, got 0.5"),
        ((PodArrival(10**12, pod("x")),), "second 1000000000000 is beyond the calendar"),
        ((PodArrival(-(10**12), pod("x")),), "second -1000000000000 is beyond the calendar"),
        ((NodeArrival(0, GpuNode(name="b", cpu=1, memory=1, cards=())),), "NodeArrival is for `replay`"),
    ],
)
def test_impossible_streams_are_refused(events: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run(*events)
