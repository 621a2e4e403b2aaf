"""The fragmentation measure and the scores of the experiment."""

from __future__ import annotations

import pytest

from koordcore.errors import ModelError
from koordcore.scoring.fragmentation import (
    FragmentationGradient,
    FragmentationMeasure,
    WorkloadMix,
    score_best_fit,
    score_dot_product,
    score_gpu_clustering,
    score_gpu_packing,
    workload_mix,
)
from koordcore.scoring.gpu_share import GpuDemand, GpuNode, first_free_slots, fullest_slots

WHOLE = GpuDemand(cpu=4000, gpus=1)
HALF = GpuDemand(cpu=2000, gpus=1, milli=500)
PLAIN = GpuDemand(cpu=8000)


def node(*cards: int, cpu: int = 64000, model: str = "T4", held: tuple[tuple[int, int], ...] = ()) -> GpuNode:
    return GpuNode(name="n", cpu=cpu, memory=1 << 40, cards=cards, model=model, held=held)


def test_workload_mix_keeps_whole_shapes_until_the_share_is_covered() -> None:
    """Of 10 tasks 95 percent means that the last shape is needed; at 70 percent it is not."""
    tasks = [WHOLE] * 4 + [HALF] * 3 + [PLAIN] * 3
    assert [count for _, count in workload_mix(tasks).shapes] == [4, 3, 3]
    # Equal counts go by CPU, descending.
    assert workload_mix(tasks).typical(70).shapes == ((WHOLE, 4), (PLAIN, 3))
    assert workload_mix(tasks).typical(71).kept == 10


def test_workload_mix_leaves_memory_out() -> None:
    tasks = [GpuDemand(cpu=1, memory=amount) for amount in range(5)]
    assert workload_mix(tasks).shapes == ((GpuDemand(cpu=1), 5),)


def test_an_empty_workload_has_no_mix() -> None:
    with pytest.raises(ModelError, match="at least one"):
        workload_mix([])


def test_each_class_of_fragment_is_counted() -> None:
    """Lack of cards, of CPU, of the model, and tasks without cards all leave the idle share unused."""
    mix = WorkloadMix(((WHOLE, 5), (HALF, 3), (PLAIN, 2)), 10)
    measure = FragmentationMeasure(mix)
    # A whole card uses the 1000, a half uses 1000 + 600; CPU-only tasks use none of the 1800.
    assert measure.weighted(node(1000, 600, 200)) == 5 * 800 + 3 * 200 + 2 * 1800
    assert measure.of(node(1000, 600, 200)) == pytest.approx(820)
    # 3000 milli-CPU left: only the half fits.
    assert measure.weighted(node(1000, 600, 200, cpu=3000)) == 5 * 1800 + 3 * 200 + 2 * 1800
    picky = WorkloadMix(((GpuDemand(gpus=1, models=("A100",)), 1),), 1)
    assert FragmentationMeasure(picky).weighted(node(1000)) == 1000
    assert FragmentationMeasure(picky).weighted(node(1000, model="A100")) == 0


def test_fgd_takes_the_card_whose_rest_stays_useful() -> None:
    """Half of the 500 rest would be lost on the 700; on the 500 nothing is."""
    fgd = FragmentationGradient(FragmentationMeasure(WorkloadMix(((WHOLE, 1), (HALF, 1)), 2)))
    assert fgd.slots(node(1000, 700, 500), HALF) == (2,)
    assert fgd.score(node(500), HALF) > 50 > fgd.score(node(1000), HALF)


def test_fgd_gives_fifty_where_nothing_changes() -> None:
    """A task without cards that crosses no CPU step changes nothing, to the last bit."""
    fgd = FragmentationGradient(FragmentationMeasure(WorkloadMix(((WHOLE, 2), (HALF, 1)), 3)))
    assert fgd.score(node(1000, 300), PLAIN) == 50
    assert fgd.score(node(1000, 300, cpu=8000), PLAIN) < 50


def test_whole_cards_go_by_minor() -> None:
    fgd = FragmentationGradient(FragmentationMeasure(WorkloadMix(((WHOLE, 1),), 1)))
    two = GpuDemand(gpus=2)
    assert fgd.slots(node(1000, 300, 1000, 1000), two) == (0, 2)
    assert first_free_slots(node(1000, 300, 1000, 1000), two) == (0, 2)


def test_a_share_goes_to_the_fullest_card_that_suffices() -> None:
    assert fullest_slots(node(1000, 600, 500, 500, 499), HALF) == (2,)


def test_best_fit_and_dot_product_read_cpu_and_cards() -> None:
    assert score_best_fit(node(1000), WHOLE) == int(100 * (1 - 0.5 * 60000 / 128000))
    assert score_dot_product(node(1000), WHOLE) == int(
        100 * (1 - (64000 * 4000 / 128000**2 + 1000 * 1000 / 8000**2) / 2)
    )


def test_packing_prefers_shared_cards_then_used_nodes() -> None:
    assert score_gpu_packing(node(1000, 500), HALF) == 95
    assert score_gpu_packing(node(1000, 400), HALF) == 49
    assert score_gpu_packing(node(1000, 400), WHOLE) == 49
    assert score_gpu_packing(node(1000, 1000), WHOLE) == 31
    assert score_gpu_packing(node(1000, 1000), PLAIN) == 0


def test_clustering_prefers_its_own_kind() -> None:
    empty = node(*[1000] * 8)
    assert score_gpu_clustering(empty, HALF) == 25
    assert score_gpu_clustering(node(500, held=((0, 1),)), HALF) == 23 + 75
    assert score_gpu_clustering(node(500, 0, held=((0, 1), (1, 1))), HALF) == 23 + 50
    assert score_gpu_clustering(node(500, 0, held=((1, 1),)), HALF) == 23
    assert score_gpu_clustering(empty, PLAIN) == 0


def test_taking_and_giving_back_are_inverse() -> None:
    before = node(1000, 1000, 300)
    pair = GpuDemand(cpu=1, memory=2, gpus=2)
    after = before.take(pair, (0, 1))
    assert (after.cards, after.held, after.idle) == ((0, 0, 300), ((2, 1),), 300)
    assert after.give_back(pair, (0, 1)) == before
    with pytest.raises(ModelError, match="2 cards asked for"):
        before.take(pair, (0,))


@pytest.mark.parametrize(
    ("gpus", "milli", "message"),
    [(2, 500, "in part"), (1, 0, "1..1000"), (1, 1001, "1..1000"), (-1, 1000, "negative")],
)
def test_impossible_demands_are_refused(gpus: int, milli: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        GpuDemand(gpus=gpus, milli=milli)
