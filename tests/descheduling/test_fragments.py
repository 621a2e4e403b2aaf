"""Fewer idle cards in vain: what is moved, what it wins, what it may cost."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.descheduling.fragments import Fragments, plan_fragments
from koordcore.descheduling.moves import Group
from koordcore.errors import ModelError
from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import PodKey
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from tests.descheduling.fragment_worlds import cluster

ONE = GpuDemand(gpus=1)
TWO = GpuDemand(gpus=2)
FOUR = GpuDemand(gpus=4)
HALF = GpuDemand(gpus=1, milli=500)
WHOLE_NODES = workload_mix([FOUR])


def moved(pods: dict[str, list[GpuDemand]], **options: Any) -> list[tuple[str, str]]:
    plan = plan_fragments(*cluster(pods, WHOLE_NODES, **options))
    return [(move.pod.name, move.target) for move in plan.moves]


def test_crumbs_are_brought_together() -> None:
    """Three idle cards beside one pod are in vain where only whole nodes are asked for."""
    problem, aim = cluster({"a": [ONE], "b": [ONE, TWO]}, WHOLE_NODES)
    plan = plan_fragments(problem, aim)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a-0", "b")]
    assert (plan.before, plan.after, plan.gains, plan.prices) == (4 * CARD, 0, (4 * CARD,), (1,))
    assert plan.certificate.proven
    assert plan.certificate.objective == (aim.worth, 1)


def test_nothing_moves_where_nothing_is_in_vain() -> None:
    """Single cards are asked for, so any idle card will do."""
    problem, aim = cluster({"a": [ONE], "b": [ONE]}, workload_mix([ONE]))
    plan = plan_fragments(problem, aim)
    assert (plan.moves, plan.before, plan.gains, plan.prices) == ((), 0, (), ())
    assert plan.certificate.proven


def test_a_move_must_be_worth_its_price() -> None:
    """It wins four cards: two beside each pod were in vain."""
    pods = {"a": [TWO], "b": [TWO]}
    assert moved(pods, worth=4 * CARD - 1) == [("a-0", "b")]
    assert moved(pods, worth=4 * CARD) == []


def test_the_best_moves_come_first() -> None:
    """With one move allowed it is the one that frees most for its cost."""
    pods = {"a": [ONE, ONE], "b": [ONE], "c": [TWO, ONE]}
    assert moved(pods, most=1) == [("b-0", "a")]
    problem, aim = cluster(pods, WHOLE_NODES, most=1)
    dear = tuple(attrs.evolve(one, cost=9 if one.pod.name == "b-0" else 1) for one in problem.movable)
    plan = plan_fragments(attrs.evolve(problem, movable=dear), attrs.evolve(aim, worth=CARD // 2))
    assert all(move.pod.name != "b-0" for move in plan.moves)


def test_limits_and_places_are_kept() -> None:
    """Whoever must stay stays, and nobody goes where it may not."""
    pods = {"a": [ONE], "b": [ONE, TWO]}
    stays = (Group("gang", (PodKey("d", "a-0"),), 0),)
    problem, aim = cluster(pods, WHOLE_NODES, groups=stays)
    assert [move.pod.name for move in plan_fragments(problem, aim).moves] == ["b-0", "b-1"]
    problem, aim = cluster(pods, WHOLE_NODES)
    barred = attrs.evolve(problem, allows=lambda pod, node: False)
    assert plan_fragments(barred, aim).moves == ()
    unknown = attrs.evolve(aim, demands={}, slots={})
    assert plan_fragments(problem, unknown).moves == ()


def test_a_hot_node_need_not_be_cooled_for_fewer_crumbs() -> None:
    """Nobody has to leave it, and the one move that is worth its price is proven to be."""
    problem, aim = cluster({"a": [ONE], "b": [ONE, TWO], "hot": [FOUR]}, WHOLE_NODES)
    hot = (
        attrs.evolve(host, usage={"cpu": 9}, high={"cpu": 8}) if host.name == "hot" else host
        for host in problem.hosts
    )
    plan = plan_fragments(attrs.evolve(problem, hosts=tuple(hot)), aim)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a-0", "b")]
    assert plan.certificate.proven


def test_models_of_cards_are_kept() -> None:
    """A pod that wants one model is not moved to another."""
    picky = GpuDemand(gpus=1, models=("x",))
    problem, aim = cluster({"a": [picky], "b": [picky, TWO]}, WHOLE_NODES)
    nodes = tuple(attrs.evolve(node, model="x" if node.name == "a" else "y") for node in aim.nodes)
    moves = plan_fragments(problem, attrs.evolve(aim, nodes=nodes)).moves
    assert all(move.pod.name != "a-0" for move in moves)


def test_shares_go_to_one_card() -> None:
    """Two halves on two nodes: together they leave a whole card."""
    problem, aim = cluster({"a": [HALF], "b": [HALF]}, workload_mix([ONE]), size=1)
    plan = plan_fragments(problem, aim)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a-0", "b")]
    assert (plan.before, plan.after) == (CARD, 0)
    assert plan.certificate.status is CertificateStatus.FEASIBLE


def test_wrong_arguments() -> None:
    """A price of nothing, and pods whose cards are not known."""
    node = GpuNode(name="a", cpu=0, memory=0, cards=(CARD,))
    with pytest.raises(ModelError, match="at least 1"):
        Fragments(mix=WHOLE_NODES, nodes=(node,), worth=0)
    with pytest.raises(ModelError, match="asks for 1 cards"):
        Fragments(mix=WHOLE_NODES, nodes=(node,), demands={PodKey("d", "p"): ONE})
