"""What foresight sees beyond the next task."""

from __future__ import annotations

from fractions import Fraction

import pytest

from koordcore.scoring.foresight import (
    MILLI,
    Foresight,
    filled_waste,
    largest_aligned_block,
    node_pressure,
    starved_cards,
)
from koordcore.scoring.fragmentation import WorkloadMix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode

BIG = GpuDemand(cpu=4000, gpus=1, milli=800)
SMALL = GpuDemand(cpu=4000, gpus=1, milli=300)
MIX = WorkloadMix(((BIG, 3), (SMALL, 1)), 4)


def node(name: str, *cards: int, cpu: int = 64000, model: str = "T4") -> GpuNode:
    return GpuNode(name=name, cpu=cpu, memory=1 << 40, cards=cards, model=model)


def wasted(left: int) -> Fraction:
    """The same by exact recursion."""
    fitting = [(milli, count) for milli, count in ((800, 3), (300, 1)) if milli <= left]
    if not fitting:
        return Fraction(left)
    return sum(count * wasted(left - milli) for milli, count in fitting) / Fraction(
        sum(count for _, count in fitting)
    )


@pytest.mark.parametrize("left", [0, 299, 300, 650, 799, 800, 1000])
def test_waste_is_the_mean_rest_of_a_card_filled_at_random(left: int) -> None:
    assert filled_waste(MIX)[left] == pytest.approx(float(wasted(left)) * MILLI, abs=9)


def test_cards_starve_where_cpu_is_short_of_the_mean_rate() -> None:
    """The mix asks for 16000 milli-CPU with 2700 milli of cards."""
    assert starved_cards(1000, 64000, MIX) == 0
    assert starved_cards(1000, 4000, MIX) == 1000 * MILLI - 4000 * 2700 * MILLI // 16000
    assert starved_cards(1000, 0, WorkloadMix(((GpuDemand(gpus=1), 1),), 1)) == 0


def test_pressure_is_on_the_nodes_that_few_can_replace() -> None:
    """By model and by size; what all can hold weighs on all alike."""
    picky = GpuDemand(cpu=1000, gpus=1, models=("A100",))
    large = GpuDemand(cpu=90000, gpus=1)
    anything = GpuDemand(cpu=1000, gpus=1)
    nodes = [node("a", 1000, model="A100"), node("b", 1000), node("c", 1000, 1000, cpu=96000)]
    mix = WorkloadMix(((anything, 4), (picky, 2), (large, 2)), 8)
    # 8 cards of demand scaled to the cluster's 4: 2 spread over 4 cards, 1 on the A100, 1 on the two of c.
    assert node_pressure(mix, nodes) == {
        "a": MILLI // 2 + MILLI,
        "b": MILLI // 2,
        "c": MILLI // 2 + MILLI // 2,
    }


def test_wanted_nodes_are_left_alone() -> None:
    picky = GpuDemand(cpu=1000, gpus=1, models=("A100",))
    anything = GpuDemand(cpu=1000, gpus=1)
    nodes = [node("a", 1000, model="A100"), node("b", 1000)]
    foresight = Foresight(WorkloadMix(((anything, 3), (picky, 1)), 4), nodes)
    assert foresight.score(nodes[1], anything) > foresight.score(nodes[0], anything)


def test_tasks_without_cards_go_where_cpu_is_to_spare() -> None:
    plain = GpuDemand(cpu=8000)
    foresight = Foresight(WorkloadMix(((BIG, 3), (plain, 1)), 4))
    assert foresight.score(node("rich", 1000, cpu=64000), plain) > foresight.score(
        node("poor", 1000, cpu=8000), plain
    )


def test_a_share_goes_to_the_card_that_it_fills() -> None:
    foresight = Foresight(MIX)
    assert foresight.slots(node("n", 1000, 500, 300), SMALL) == (2,)
    assert foresight.slots(node("n", 1000, 1000, 0), BIG) == (0,)


@pytest.mark.parametrize(
    ("free", "size"),
    [
        ([], 0),
        ([0], 0),
        ([1], 1),
        ([1] * 8, 8),
        ([0, 1, 1, 0], 1),
        ([1, 1, 0, 0, 1, 1, 1, 1], 4),
        ([1] * 3, 2),
    ],
)
def test_blocks_are_aligned(free: list[int], size: int) -> None:
    assert largest_aligned_block([1000 * one for one in free]) == size
