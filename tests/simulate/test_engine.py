"""Events, waiting, gangs and the ledger of a replay."""

from __future__ import annotations

from typing import Any, cast

import pytest

from koordcore.errors import ModelError
from koordcore.model.nodes import Node
from koordcore.scoring.fragmentation import WorkloadMix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode
from koordcore.simulate import (
    Arrival,
    Departure,
    Event,
    NodeArrival,
    NodeDrained,
    NodeFailed,
    PolicyName,
    Refused,
    Replay,
    Task,
    make_policy,
    replay,
)
from koordcore.simulate.events import GangArrival
from koordcore.simulate.scheduled import NodeJoined

WHOLE = GpuDemand(cpu=1000, gpus=1)
MIX = WorkloadMix(((GpuDemand(cpu=1000, gpus=1), 1),), 1)


def task(name: str, duration: int | None = None, demand: GpuDemand = WHOLE) -> Task:
    return Task(name=name, demand=demand, duration=duration)


TWO = (task("x"), task("y"))


def node(name: str, cards: int = 1, memory: int = 100) -> GpuNode:
    return GpuNode(name=name, cpu=8000, memory=memory, cards=(1000,) * cards)


def run(
    *events: Event, nodes: tuple[GpuNode, ...] = (node("a"),), refused: Refused = Refused.WAITS
) -> Replay:
    return replay(nodes, events, make_policy(PolicyName.BEST_FIT, MIX), mix=MIX, refused=refused)


def places(result: Replay) -> list[tuple[str, str, int, int]]:
    return [(one.task, one.node, one.time, one.waited) for one in result.placements]


def test_a_task_that_waits_gets_the_room_of_one_that_ends() -> None:
    """The columns show the wait, and the end comes before an event of the same second."""
    result = run(Arrival(0, task("x", 10)), Arrival(3, task("y", 5)), Arrival(10, task("z")))
    assert places(result) == [("x", "a", 0, 0), ("y", "a", 10, 7), ("z", "a", 15, 5)]
    assert result.columns.time.tolist() == [0, 3, 10, 10, 15]
    assert result.columns.pending.tolist() == [0, 1, 0, 1, 0]
    assert result.columns.waited.tolist() == [0, 0, 7, 0, 5]
    assert result.columns.arrived.tolist() == [1000, 2000, 2000, 3000, 3000]


def test_refused_tasks_are_dropped_when_asked_so() -> None:
    result = run(Arrival(0, task("x")), Arrival(1, task("y")), refused=Refused.DROPPED)
    assert places(result) == [("x", "a", 0, 0), ("y", "", 1, 0)]
    assert result.refused == 1
    assert result.columns.arrived[-1] == 2000


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """Two of three members would fit; the third one's refusal gives their room back."""
    gang = tuple(task(f"g-{i}") for i in range(3))
    result = run(GangArrival(0, "g", gang), Arrival(1, task("x")), nodes=(node("a", 2),))
    assert places(result) == [("x", "a", 1, 0)]
    assert [one.name for one in result.waiting] == ["g-0", "g-1", "g-2"]
    more = run(GangArrival(0, "g", gang), NodeArrival(5, node("b")), nodes=(node("a", 2),))
    assert places(more) == [("g-0", "b", 5, 5), ("g-1", "a", 5, 5), ("g-2", "a", 5, 5)]


def test_members_and_whole_gangs_can_stop_waiting() -> None:
    gang = tuple(task(f"g-{i}") for i in range(3))
    less = run(GangArrival(0, "g", gang), Departure(1, "g-1"), NodeArrival(2, node("b")))
    assert places(less) == [("g-0", "a", 2, 2), ("g-2", "b", 2, 2)]
    none = run(GangArrival(0, "g", gang), Departure(1, "g"), NodeArrival(2, node("b", 2)))
    assert not none.placements
    assert not none.waiting


def test_a_gang_that_gets_smaller_while_it_waits_is_tried_again() -> None:
    """Nothing else happens that would give it room."""
    gang = tuple(task(f"g-{i}") for i in range(3))
    result = run(GangArrival(0, "g", gang), Departure(3, "g-2"), nodes=(node("a", 2),))
    assert places(result) == [("g-0", "a", 3, 3), ("g-1", "a", 3, 3)]
    assert result.columns.pending.tolist() == [1, 0]
    assert result.columns.waited.tolist() == [0, 6]


def test_who_is_to_wait_may_be_told_by_a_word() -> None:
    two = [Arrival(0, task("x")), Arrival(1, task("y"))]
    policy = make_policy(PolicyName.BEST_FIT, MIX)
    word: Any = "waits"
    assert [one.name for one in replay([node("a")], two, policy, mix=MIX, refused=word).waiting] == ["y"]
    word = "wait"
    with pytest.raises(ModelError, match="refused: expected one of dropped, waits, got 'wait'"):
        replay([node("a")], two, policy, mix=MIX, refused=word)


def test_a_task_that_runs_longer_than_columns_can_count_stays() -> None:
    result = run(Arrival(0, task("x", 10**30)))
    assert result.columns.time.tolist() == [0]
    assert [one.task for one in result.running] == ["x"]
    with pytest.raises(ModelError, match="expected whole seconds, got"):
        task("y", 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("refused", Refused)
def test_who_has_gone_by_itself_may_be_let_depart_once_more(refused: Refused) -> None:
    """Recorded traces tell of the end of everybody, of those that were refused as well."""
    result = run(
        Arrival(0, task("x", 5)),
        GangArrival(1, "g", (task("y"),)),
        *(Departure(6, name) for name in ("y", "g", "x", "y")),
        refused=refused,
    )
    assert [one.task for one in result.placements if one.node] == ["x", "y"][: 1 + (refused is Refused.WAITS)]


def test_nodes_are_drained_twice_and_fail_after() -> None:
    result = run(NodeDrained(0, "a"), NodeDrained(1, "a"), NodeFailed(2, "a"), NodeArrival(3, node("a")))
    assert len(result.columns.time) == 4


def test_a_task_that_has_stopped_waiting_or_running_may_come_again() -> None:
    gang = tuple(task(f"g-{i}") for i in range(3))
    result = run(
        GangArrival(0, "g", gang),
        Departure(1, "g-1"),
        Departure(2, "g"),
        *(Arrival(3 + turn, task(f"g-{turn}", 0)) for turn in range(3)),
        Arrival(9, task("g-0")),
    )
    assert places(result) == [("g-0", "a", 3, 0), ("g-1", "a", 4, 0), ("g-2", "a", 5, 0), ("g-0", "a", 9, 0)]


def test_a_drained_node_keeps_its_tasks_and_takes_no_more() -> None:
    result = run(Arrival(0, task("x")), NodeDrained(1, "a"), Departure(2, "x"), Arrival(3, task("y")))
    assert places(result) == [("x", "a", 0, 0)]
    assert result.columns.allocated.tolist() == [1000, 1000, 0, 0]
    assert [one.name for one in result.waiting] == ["y"]


def test_the_tasks_of_a_failed_node_ask_again() -> None:
    events = (Arrival(0, task("x", 50)), NodeFailed(10, "a"), Arrival(20, task("y")))
    result = run(*events, nodes=(node("a"), node("b")))
    assert places(result) == [("x", "a", 0, 0), ("x", "b", 10, 0), ("y", "b", 60, 40)]
    assert result.columns.time.tolist() == [0, 10, 20, 60]


def test_a_failed_node_comes_back() -> None:
    result = run(NodeFailed(0, "a"), Arrival(1, task("x")), NodeArrival(4, node("a")))
    assert places(result) == [("x", "a", 4, 3)]


def test_a_drained_node_that_comes_back_still_holds_its_tasks() -> None:
    events = (Arrival(0, task("x")), NodeDrained(1, "a"), NodeArrival(2, node("a")), Arrival(3, task("y")))
    result = run(*events, Departure(4, "x"))
    assert places(result) == [("x", "a", 0, 0), ("y", "a", 4, 1)]
    assert result.nodes[0].cards == (0,)


def test_a_departure_while_waiting_ends_the_wait() -> None:
    result = run(Arrival(0, task("x")), Arrival(1, task("y")), Departure(2, "y"), Departure(3, "x"))
    assert places(result) == [("x", "a", 0, 0)]
    assert not result.waiting


def test_memory_decides_among_nodes_but_moves_no_score() -> None:
    small, large = node("a", memory=1), node("b", memory=9)
    result = run(Arrival(0, task("x", demand=GpuDemand(memory=5, gpus=1))), nodes=(small, large))
    assert places(result) == [("x", "b", 0, 0)]


def test_what_runs_at_the_end_is_told() -> None:
    result = run(
        Arrival(0, task("x", 5)), Arrival(1, task("y")), Arrival(9, task("z")), nodes=(node("a", 2),)
    )
    assert [(one.task, one.node, one.slots) for one in result.running] == [("y", "a", (1,)), ("z", "a", (0,))]


def test_what_was_there_counts_as_arrived_and_allocated() -> None:
    used = GpuNode(name="a", cpu=8000, memory=100, cards=(1000, 400))
    result = run(Arrival(0, task("x")), nodes=(used,))
    assert result.columns.arrived.tolist() == [1600]
    assert result.columns.allocated.tolist() == [1600]


def test_ties_go_to_the_lowest_rank() -> None:
    nodes = (node("a"), node("b"), node("c"))
    arrivals = [Arrival(0, task("x"))]
    policy = make_policy(PolicyName.BEST_FIT, MIX)
    assert replay(nodes, arrivals, policy, mix=MIX, ranks=(2, 0, 1)).placements[0].node == "b"
    assert replay(nodes, arrivals, policy, mix=MIX).placements[0].node == "a"


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((Arrival(1, task("x")), Arrival(0, task("y"))), "order of time"),
        ((Arrival(0, task("x")), Arrival(0, task("x"))), "there already"),
        ((Arrival(0, task("x")), Arrival(1, task("y")), Arrival(2, task("y"))), "y waits already"),
        ((GangArrival(0, "g", (task("x"), task("x"))),), "gang g: two of its tasks have the same name"),
        ((Arrival(0, task("x")), GangArrival(0, "g", (task("x"),))), "task x is there already"),
        ((GangArrival(0, "g", TWO), Arrival(1, task("y"))), "task y is there already"),
        ((GangArrival(0, "g", TWO), GangArrival(1, "h", (task("y"), task("z")))), "task y is there already"),
        ((GangArrival(0, "g", TWO), GangArrival(1, "x", (task("z"),))), "task x is there already"),
        ((GangArrival(0, "g", TWO), GangArrival(1, "h", (task("g"),))), "task g is there already"),
        ((Arrival(0, task("g")), GangArrival(1, "g", TWO)), "task g is there already"),
        ((NodeDrained(0, "nowhere"),), "no node nowhere"),
        ((NodeFailed(0, "a"), NodeFailed(1, "a")), "no node a: it has failed"),
        ((NodeFailed(0, "a"), NodeDrained(1, "a")), "no node a: it has failed"),
        ((Departure(0, "x"), Arrival(1, task("x"))), "no task x"),
        ((NodeArrival(0, node("a")),), "there already"),
        ((Arrival(cast("int", 0.5), task("x")),), "expected whole seconds, got 0.5"),
        ((Arrival(10**30, task("x")),), "is beyond the calendar"),
        ((NodeJoined(0, Node(name="b", allocatable={})),), "NodeJoined is for `replay_schedule`"),
    ],
)
def test_impossible_streams_are_refused(events: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run(*events)
