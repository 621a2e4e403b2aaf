"""Fragmentation of idle cards for a known mix of work, and the node scores of the FGD experiment.

"Beware of Fragmentation" (USENIX ATC 2023): a card's idle share is fragmented to the degree to which tasks
drawn from the workload cannot use it. Placing a task where fragmentation rises least is Fragmentation
Gradient Descent; DotProd, GpuClustering, GpuPacking and BestFit are what the paper compares it with.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode, first_free_slots

CPU_SCALE: Final = 128_000
"""Milli-CPU of the largest node in the experiment; scores are relative to it."""
GPU_SCALE: Final = 8 * CARD
"""Card milli of the largest node in the experiment."""
TYPICAL_PERCENT: Final = 95


@names_its_fields
@record
class WorkloadMix:
    """Which tasks are to be expected, most frequent first.

    Parameters
    ----------
    shapes
        Demands without memory, each with the number of tasks of that shape.
    tasks
        Tasks that were counted, those of shapes left out included.

    Raises
    ------
    ModelError
        When there are no shapes, or counts that no workload has.
    """

    shapes: tuple[tuple[GpuDemand, int], ...]
    tasks: int

    def __attrs_post_init__(self) -> None:
        if not self.shapes:
            raise ModelError("shapes: at least one is needed")
        if min(count for _, count in self.shapes) < 1 or self.kept > self.tasks:
            raise ModelError(f"shapes: counts must be positive and at most {self.tasks} in all")

    @property
    def kept(self) -> int:
        """Tasks of the shapes that were kept."""
        return sum(count for _, count in self.shapes)

    def typical(self, percent: int = TYPICAL_PERCENT) -> WorkloadMix:
        """Keep the most frequent shapes until they cover a share of the tasks (``GetTypicalPods``).

        Parameters
        ----------
        percent
            Share to cover, 1..100; the shape that reaches it is kept whole.
        """
        kept: list[tuple[GpuDemand, int]] = []
        covered = 0
        for shape, count in self.shapes:
            if 100 * covered >= percent * self.tasks:
                break
            kept.append((shape, count))
            covered += count
        return WorkloadMix(tuple(kept), self.tasks)


def workload_mix(demands: Iterable[GpuDemand]) -> WorkloadMix:
    """Count the shapes of a workload, most frequent first; memory is left out of a shape.

    Shapes of the same frequency go by CPU, milli, number of cards and models, all descending.

    Raises
    ------
    ModelError
        When there is no task.
    """
    counts = Counter(attrs.evolve(demand, memory=0) for demand in demands)
    ranked = sorted(
        counts.items(),
        key=lambda item: (item[1], item[0].cpu, item[0].milli, item[0].gpus, "|".join(item[0].models)),
        reverse=True,
    )
    return WorkloadMix(tuple(ranked), counts.total())


class FragmentationMeasure:
    """How much idle card milli of a node the mix cannot use.

    Parameters
    ----------
    mix
        The work to be expected.

    Notes
    -----
    A node's value depends on the sorted idle shares, on the model and on which of the mix's CPU requests
    still fit; values are remembered under that key, so a replay computes each state once.
    """

    def __init__(self, mix: WorkloadMix) -> None:
        self.mix = mix
        self._cpu_steps = sorted({shape.cpu for shape, _ in mix.shapes})
        self._millis = sorted({shape.milli for shape, _ in mix.shapes if shape.gpus})
        # The order of these divisions decides the last bit, and with it ties between nodes.
        share = mix.kept / mix.tasks
        self._rows = [
            (
                shape.gpus,
                self._millis.index(shape.milli) if shape.gpus else -1,
                shape.cpu,
                count,
                (count / mix.tasks) / share,
            )
            for shape, count in mix.shapes
        ]
        self._models: dict[str, int] = {}
        self._access: list[tuple[bool, ...]] = []
        self._memo: dict[tuple[tuple[int, ...], int, int], tuple[float, int]] = {}

    def cpu_step(self, cpu: int) -> int:
        """Count the distinct CPU requests of the mix that idle milli-CPU would satisfy."""
        return bisect_right(self._cpu_steps, cpu)

    def model_class(self, model: str) -> int:
        """Number the card models by what the mix may do with them; equal numbers are treated alike."""
        known = self._models.get(model)
        if known is None:
            access = tuple(not shape.models or model in shape.models for shape, _ in self.mix.shapes)
            if access not in self._access:
                self._access.append(access)
            known = self._models[model] = self._access.index(access)
        return known

    def of(self, node: GpuNode) -> float:
        """Fragmented card milli of a node, as the experiment computes it in floats."""
        return self.of_state(node.ordered, self.cpu_step(node.cpu), node.model)[0]

    def weighted(self, node: GpuNode) -> int:
        """The same as an exact integer: fragmented milli times :attr:`WorkloadMix.kept`."""
        return self.of_state(node.ordered, self.cpu_step(node.cpu), node.model)[1]

    def of_state(self, ordered: tuple[int, ...], cpu_step: int, model: str) -> tuple[float, int]:
        """Both values for idle shares in descending order and a number of CPU requests that fit.

        Parameters
        ----------
        ordered
            Idle shares of the cards, card milli, descending.
        cpu_step
            How many of the CPU requests of the mix fit, the smallest first.
        model
            Of the cards.
        """
        key = (ordered, cpu_step, self.model_class(model))
        value = self._memo.get(key)
        if value is None:
            value = self._memo[key] = self._compute(*key)
        return value

    def _compute(self, ordered: tuple[int, ...], cpu_step: int, model_class: int) -> tuple[float, int]:
        idle = sum(ordered)
        cpu = self._cpu_steps[cpu_step - 1] if cpu_step else -1
        # For each size of request: cards that have it left, and what the others have left together.
        rising = ordered[::-1]
        sums = [0, *itertools.accumulate(rising)]
        short = [bisect_left(rising, milli) for milli in self._millis]
        enough = [(len(ordered) - number, sums[number]) for number in short]
        # One sum per class, added in this order at the end: the experiment's float result to the last bit.
        lack_both = lack_gpu = lack_cpu = cpu_only = cpu_only_lacking = no_access = 0.0
        exact = 0
        for (gpus, size, needed, count, weight), accessible in zip(
            self._rows, self._access[model_class], strict=True
        ):
            fragment = idle
            if not gpus:
                if cpu >= needed:
                    cpu_only += weight * idle
                else:
                    cpu_only_lacking += weight * idle
            elif not accessible:
                no_access += weight * idle
            elif enough[size][0] >= gpus:
                if cpu >= needed:
                    fragment = enough[size][1]
                    lack_gpu += weight * fragment
                else:
                    lack_cpu += weight * idle
            elif cpu >= needed:
                lack_gpu += weight * idle
            else:
                lack_both += weight * idle
            exact += count * fragment
        return lack_both + lack_gpu + lack_cpu + cpu_only + cpu_only_lacking + no_access, exact


def without(ordered: tuple[int, ...], left: int, milli: int) -> tuple[int, ...]:
    """Take milli from one card that has ``left``; idle shares in descending order, before and after.

    Parameters
    ----------
    ordered
        Idle shares of the cards, card milli, descending.
    left
        Idle share of the card that gives.
    milli
        What is taken from it.
    """
    cards = list(ordered)
    cards[cards.index(left)] = left - milli
    cards.sort(reverse=True)
    return tuple(cards)


class FragmentationGradient:
    """FGD: score a node by how little the task raises the fragmentation there.

    ``int(100 * sigmoid(fall in kilo-milli))``; the truncation is part of the algorithm (upstream
    ``plugin/fgd_score.go``). Scores of equal situations are remembered.
    """

    def __init__(self, measure: FragmentationMeasure) -> None:
        self.measure = measure
        self._memo: dict[tuple[tuple[int, ...], int, int, int, int, int], tuple[int, tuple[int, ...]]] = {}

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        """0..100 for a node that fits; the best card counts for a share."""
        return self._situation(node, demand)[0]

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        """The lowest minor among the best cards for a share; whole cards by minor."""
        if not demand.shared:
            return first_free_slots(node, demand)
        best = self._situation(node, demand)[1]
        return (min(node.cards.index(left) for left in best),)

    def _situation(self, node: GpuNode, demand: GpuDemand) -> tuple[int, tuple[int, ...]]:
        step = self.measure.cpu_step
        before, after = step(node.cpu), step(node.cpu - demand.cpu)
        key = (node.ordered, before, after, self.measure.model_class(node.model), demand.milli, demand.gpus)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = self._compute(node, demand, before, after)
        return known

    def _compute(
        self, node: GpuNode, demand: GpuDemand, before: int, after: int
    ) -> tuple[int, tuple[int, ...]]:
        now, _ = self.measure.of_state(node.ordered, before, node.model)

        def score(ordered: tuple[int, ...]) -> int:
            then, _ = self.measure.of_state(ordered, after, node.model)
            return int(100 * (1 / (1 + math.exp(-(now - then) / 1000))))

        if not demand.shared:
            rest = node.ordered[demand.gpus :] + (0,) * demand.gpus
            return score(rest), ()
        by_left = {
            left: score(without(node.ordered, left, demand.milli))
            for left in dict.fromkeys(node.ordered)
            if left >= demand.milli
        }
        best = max(by_left.values())
        return best, tuple(left for left, value in by_left.items() if value == best)


def score_best_fit(node: GpuNode, demand: GpuDemand) -> int:
    """0..100, higher the less CPU and card milli would be left (upstream ``best_fit_score.go``)."""
    cpu = (node.cpu - demand.cpu) / CPU_SCALE
    gpu = (node.idle - demand.total) / GPU_SCALE
    return int(100 * (1 - (0.5 * cpu + 0.5 * gpu)))


def score_dot_product(node: GpuNode, demand: GpuDemand) -> int:
    """0..100, higher the less demand and idle amounts point the same way (``dot_product_score.go``)."""
    cpu = node.cpu * demand.cpu / (CPU_SCALE * CPU_SCALE)
    gpu = node.idle * demand.total / (GPU_SCALE * GPU_SCALE)
    return int(100 * (1 - (cpu + gpu) / 2))


def score_gpu_packing(node: GpuNode, demand: GpuDemand) -> int:
    """0..100: shared cards first, then free cards of used nodes, then free nodes (``gpu_packing_score.go``).

    The card for a share is the fullest one that suffices. A task without cards scores 0 everywhere.
    """
    if not demand.gpus:
        return 0
    free = node.cards.count(CARD)
    if free == len(node.cards):
        return max(33 - free, free)
    if not demand.shared:
        return max(50 - demand.gpus, 33)
    least = min(left for left in node.cards if left >= demand.milli)
    if least == CARD:
        return max(50 - 1, 33)
    return max(100 - (100 * least // CARD) // 10, 50)


def score_gpu_clustering(node: GpuNode, demand: GpuDemand) -> int:
    """0..100: nodes that hold the same kind of task first (``gpu_clustering_score.go``).

    A task without cards scores 0 everywhere.
    """
    if not demand.gpus:
        return 0
    base = 25 * (GPU_SCALE - node.idle) // GPU_SCALE
    kinds = [kind for kind, _ in node.held]
    if demand.kind in kinds:
        return base + (75 if len(kinds) == 1 else 50)
    return base if kinds else base + 25
