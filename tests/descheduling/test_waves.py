"""The order in which moves are carried out."""

from __future__ import annotations

import pytest

from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem
from koordcore.descheduling.waves import in_waves
from koordcore.errors import ModelError
from koordcore.model.pods import PodKey


def made(
    nodes: dict[str, dict[str, int]], *, size: int = 8, at_once: int | None = None, high: int | None = None
) -> MoveProblem:
    """Give nodes with pods by name and size, which is what they ask for and use."""
    movable = tuple(
        Movable(pod=PodKey("d", name), node=node, requests={"cpu": cpu}, usage={"cpu": cpu})
        for node, pods in nodes.items()
        for name, cpu in pods.items()
    )
    hosts = tuple(
        Host(
            name=node,
            requested={"cpu": sum(pods.values())},
            usage={"cpu": sum(pods.values())},
            allocatable={"cpu": size},
            high={"cpu": high} if high else {},
        )
        for node, pods in nodes.items()
    )
    keys = tuple(one.pod for one in movable)
    groups = () if at_once is None else (Group("all", keys, at_once),)
    return MoveProblem(hosts=hosts, movable=movable, at_once=groups)


def order(problem: MoveProblem, **targets: str) -> list[tuple[str, int, int]] | None:
    moves = in_waves(problem, {PodKey("d", name): node for name, node in targets.items()})
    return None if moves is None else [(move.pod.name, move.leaves, move.arrives) for move in moves]


def test_a_target_has_room_before_anything_leaves() -> None:
    """A chain takes as many waves as it has links, whatever the order of its moves is."""
    problem = made({"a": {"p": 6}, "b": {"q": 6}, "c": {}})
    assert order(problem, p="b", q="c") == [("q", 0, 0), ("p", 1, 1)]


def test_no_node_takes_and_gives_in_one_wave() -> None:
    """There is room for both at once, but perhaps not on the same card."""
    problem = made({"a": {"p": 2}, "b": {"q": 2}, "c": {}})
    assert order(problem, p="b", q="c") == [("p", 0, 0), ("q", 1, 1)]


def test_no_more_on_their_way_than_allowed() -> None:
    """Three pods, one after the other."""
    problem = made({"a": {"p": 1, "q": 1, "r": 1}, "b": {}}, at_once=1)
    assert order(problem, p="b", q="b", r="b") == [("p", 0, 0), ("q", 1, 1), ("r", 2, 2)]


def test_a_ring_has_one_pod_down() -> None:
    """A swap of two full nodes; with one pod on its way at a time it cannot be."""
    nodes = {"a": {"p": 8}, "b": {"q": 8}}
    assert order(made(nodes), p="b", q="a") == [("q", 1, 1), ("p", 0, 2)]
    assert order(made(nodes, at_once=2), p="b", q="a") == [("q", 1, 1), ("p", 0, 2)]
    assert order(made(nodes, at_once=1), p="b", q="a") is None


def test_an_order_that_works_is_kept() -> None:
    """Going first, a would take the room that e waits for, and e and s would wait for each other."""
    nodes = {"A": {"a": 4}, "T": {}, "X": {"t": 9}, "Y": {"s": 4, "x": 1}, "Z": {"e": 5, "w": 4}}
    in_turn = order(made(nodes, size=9), t="T", x="X", e="Y", s="Z", a="Y")
    assert in_turn == [("t", 0, 0), ("x", 1, 1), ("e", 2, 2), ("s", 3, 3), ("a", 4, 4)]


def test_nobody_gets_hot_on_the_way() -> None:
    """There is room for p at once, but b would use 9 of the 8 that it should."""
    problem = made({"a": {"p": 3}, "b": {"q": 6}, "c": {}}, size=10, high=8)
    assert order(problem, p="b", q="c") == [("q", 0, 0), ("p", 1, 1)]


def test_impossible_moves_are_the_callers_fault() -> None:
    """More than a node has in the end."""
    with pytest.raises(ModelError, match="asked for more than it has"):
        order(made({"a": {"p": 4}, "b": {"q": 5}}), p="b")
    with pytest.raises(ModelError, match="lets nothing move"):
        made({"a": {"p": 4}}, at_once=0)
