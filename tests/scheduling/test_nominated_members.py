"""Members of gangs for whom room was made: they lie as their gang must, and the others come beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs
import pytest

from koordcore import Nominated, Pod, PreemptionRules, Unschedulable, schedule, verify
from koordcore.topology.network import NODE_LAYER
from tests.scheduling.test_gangs import MUST, NETWORK, cluster, members, node, placed, two_gangs

pytestmark = pytest.mark.solver

PREFER = '{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "PreferGather"}]}'


def pairs(layer: str) -> str:
    rule = {"layer": layer, "strategy": "PreferGather", "podCountMultiple": 2}
    return json.dumps({"gatherStrategy": [rule]})


def meant(gang: list[Pod], **nodes: str) -> list[Pod]:
    """Nominate members, given by the number behind their gang's name."""
    return [attrs.evolve(one, nominated_node=nodes.get(one.name.replace("-", ""))) for one in gang]


NODES = [node("a1", 4000, "a"), node("b1", 4000, "b")]


@pytest.mark.parametrize(
    ("spec", "nodes", "least", "where"),
    [
        (MUST, {"g0": "a1", "g1": "b1"}, 2, ["a1", "a1"]),
        (MUST, {"g0": "b1", "g1": "b1"}, 2, ["b1", "b1"]),
        (pairs("BlockLayer"), {"g0": "a1"}, 1, []),
        (pairs("BlockLayer"), {"g0": "a1", "g1": "b1"}, 1, ["a1", "a1"]),
        (pairs(NODE_LAYER), {"g0": "a1", "g1": "b1"}, 2, ["a1", "a1"]),
        (pairs(NODE_LAYER), {"g0": "b1", "g1": "b1"}, 2, ["b1", "b1"]),
    ],
)
def test_members_are_bound_where_they_are_nominated_only_as_their_gang_must_lie(
    spec: str, nodes: Mapping[str, str], least: int, where: list[str]
) -> None:
    gang = meant(members("g", len(nodes), 1000, least, spec=spec), **nodes)
    assert sorted(placed(cluster(NODES, gang, NETWORK)).values()) == where


@pytest.mark.parametrize("spec", [MUST, pairs("BlockLayer"), pairs(NODE_LAYER)])
def test_a_late_member_goes_to_its_nominated_domain_only_beside_those_that_run(spec: str) -> None:
    """Alone in the other block it would break the rule."""
    first, *late = meant(members("g", 2, 1000, 1, spec=spec), g1="a1")
    snapshot = cluster(NODES, [first, *late], NETWORK).assume(first.at("b1"))
    assert placed(snapshot) == {"g-1": "b1"}


def test_a_nominated_gang_of_a_group_lies_as_its_own_wish_says() -> None:
    """The gang beside it may split."""
    nodes = [node("a1", 3000, "a"), node("b1", 6000, "b")]
    where = {"a0": "a1", "a1": "b1", "b0": "a1", "b1": "b1"}
    got = placed(cluster(nodes, meant(two_gangs('{"gatherStrategy": []}', MUST), **where), NETWORK))
    assert (got["b-0"], got["b-1"]) == ("b1", "b1")
    where["b0"] = "b1"
    assert placed(cluster(nodes, meant(two_gangs('{"gatherStrategy": []}', MUST), **where), NETWORK)) == {
        f"{name[0]}-{name[1]}": one for name, one in where.items()
    }


@pytest.mark.parametrize("spec", [PREFER, MUST, '{"gatherStrategy": []}'])
@pytest.mark.parametrize("least", [0, 1, 2])
def test_as_many_members_as_fit_are_placed_beside_nominated_ones(spec: str, least: int) -> None:
    """Alone the gang would start in the other block."""
    gang = meant(members("g", 3, 1000, least, spec=spec), g0="b1")
    assert set(placed(cluster(NODES, gang, NETWORK)).values()) == {"b1"}
    assert len(placed(cluster(NODES, gang, NETWORK))) == 3


def test_beside_nominated_members_multiples_hold() -> None:
    """Of four all have a place, of three two."""
    for count, most in ((4, 4), (3, 2)):
        gang = meant(members("g", count, 1000, 1, spec=pairs("BlockLayer")), g0="b1")
        assert list(placed(cluster(NODES, gang, NETWORK)).values()) == ["b1"] * most


def test_members_without_a_place_beside_nominated_ones_say_so() -> None:
    gang = meant(members("g", 2, 3000, 1, spec=MUST), g0="b1")
    result = schedule(cluster(NODES, gang, NETWORK))
    assert [(one.pod.name, one.node) for one in result.bound] == [("g-0", "b1")]
    (left,) = (one for one in result.decisions if isinstance(one, Unschedulable))
    assert left.refusal == "no place is left beside the nominated members"


def test_a_member_that_may_have_a_place_in_the_next_call_is_not_told_that_none_is_left() -> None:
    """Those that run are in both blocks: the plan has the late one in the block where the first is not."""
    first, late, *run = meant(members("g", 4, 1000, 1, spec=MUST), g0="b1")
    snapshot = cluster(NODES, [first, late, *run], NETWORK).assume(run[0].at("a1"), run[1].at("b1"))
    late = attrs.evolve(late, requests={"cpu": 3000})
    result = schedule(snapshot.with_pending(late))
    assert [(one.pod.name, one.node) for one in result.bound] == [("g-0", "b1")]
    (left,) = (one for one in result.decisions if isinstance(one, Unschedulable))
    assert left.refusal == "no place was found beside the nominated members"


def test_nobody_leaves_for_a_member_whom_only_a_promise_to_a_less_important_pod_keeps_off() -> None:
    """The gang is as important as its least member; who is more important himself is kept off by fewer."""
    least, most = members("g", 2, 2000, 1)
    gang = [attrs.evolve(least, requests={"cpu": 1000}), attrs.evolve(most, priority=50)]
    promised = Pod(name="w", requests={"cpu": 2000}, priority=10, nominated_node="a1")
    low = Pod(name="low", requests={"cpu": 2000}, priority=5)
    nodes = [node("a1", 4000, "a"), node("b1", 1000, "b")]
    snapshot = cluster(nodes, [*gang, promised, low]).assume(low.at("a1"))
    result = schedule(snapshot, preempt=PreemptionRules(members="each"))
    assert verify(snapshot, result) == ()
    meant_for = {one.pod.name: one for one in result.decisions if isinstance(one, Nominated)}
    assert {name: (one.node, len(one.victims)) for name, one in meant_for.items()} == {
        "g-1": ("a1", 0),
        "w": ("a1", 1),
    }


@pytest.mark.parametrize(("room", "moves"), [(4000, ["c1"]), (3000, [])])
def test_who_moves_for_such_a_member_leaves_the_promised_room_alone(room: int, moves: list[str]) -> None:
    least, most = members("g", 2, 3000, 1)
    most = attrs.evolve(most, priority=50, node_selector={"block": "a"})
    promised = Pod(name="w", requests={"cpu": 1000}, priority=10, nominated_node="c1")
    low = Pod(name="low", requests={"cpu": 3000}, priority=5)
    nodes = [node("a1", 3000, "a"), node("b1", 1000, "b"), node("c1", room, "c")]
    waiting = [attrs.evolve(least, requests={"cpu": 1000}), most, promised, low]
    snapshot = cluster(nodes, waiting).assume(low.at("a1"))
    result = schedule(snapshot, preempt=PreemptionRules(members="each", relocation="first"))
    assert verify(snapshot, result) == ()
    assert [move.node for plan in result.preemptions for move in plan.moves] == moves
    assert {one.pod.name: one.node for one in result.bound} == {"g-0": "b1", "w": "c1"}
