"""Replays: a cluster and a stream of the size of the FGD experiment, made up with fixed seeds.

1213 nodes with some 6200 cards; tasks until 1.3 times the cards have been asked for. Shapes and their shares
follow the published trace: whole cards, shares of cards, tasks without cards, a few jobs of 2 to 8 cards.
"""

from __future__ import annotations

from typing import Final

from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_policies import below
from koordcore.scoring.gpu_share import GpuDemand, GpuNode
from koordcore.simulate import PolicyName, Replay, Task, Trace, make_policy, replay, resample
from koordcore.simulate.columns import arrival_columns
from koordcore.simulate.trace import drawn_ranks, untimed_events

GI: Final = 1 << 30
NODES: Final = (
    # number, cards, milli-CPU, memory, model
    (549, 8, 96_000, 384 * GI, "G2"),
    (388, 2, 104_000, 512 * GI, "T4"),
    (134, 2, 32_000, 128 * GI, "P100"),
    (39, 8, 128_000, 768 * GI, "G3"),
    (30, 7, 90_000, 700 * GI, "V100M32"),
    (73, 2, 26_000, 110 * GI, "V100M16"),
)
SHAPES: Final = (
    # weight, milli-CPU, memory in GiB, cards, milli
    *(
        (weight, cpu, memory, 1, 1000)
        for weight, cpu, memory in ((20, 8000, 30), (16, 12000, 48), (12, 14000, 60))
    ),
    *((weight, cpu, memory, 1, 810) for weight, cpu, memory in ((10, 3000, 12), (3, 4000, 16))),
    *((weight, cpu, memory, 1, 470) for weight, cpu, memory in ((5, 12000, 36), (4, 8000, 24))),
    *(
        (weight, cpu, 16, 1, milli)
        for weight, cpu, milli in ((4, 8000, 320), (3, 11900, 650), (2, 4000, 160))
    ),
    *((weight, cpu, 40, 0, 0) for weight, cpu in ((6, 12500), (5, 32000), (3, 8000))),
    *((1, 10_000 * cards, 40 * cards, cards, 1000) for cards in (2, 4, 8)),
)
TASKS: Final = 8000


def cluster() -> tuple[GpuNode, ...]:
    """Make the nodes."""
    nodes: list[GpuNode] = []
    for number, cards, cpu, memory, model in NODES:
        for _ in range(number):
            name = f"node-{len(nodes):04d}"
            nodes.append(GpuNode(name=name, cpu=cpu, memory=memory, cards=(1000,) * cards, model=model))
    return tuple(nodes)


def trace() -> Trace:
    """Draw the tasks."""
    total = sum(weight for weight, *_ in SHAPES)
    tasks = []
    for turn in range(TASKS):
        draw = below(total, 1, turn)
        for weight, cpu, memory, cards, milli in SHAPES:
            draw -= weight
            if draw < 0:
                demand = GpuDemand(cpu=cpu, memory=memory * GI, gpus=cards, milli=milli or 1000)
                tasks.append(Task(name=f"task-{turn:04d}", demand=demand))
                break
    return Trace(tuple(tasks), (0,) * TASKS)


class Fill:
    """One run: some 11,000 arrivals, nobody leaves."""

    params = tuple(str(name) for name in PolicyName)
    param_names = ("policy",)
    timeout = 120

    def setup(self, policy: str) -> None:
        self.nodes, tasks = cluster(), trace()
        capacity = 1000 * sum(len(node.cards) for node in self.nodes)
        self.mix = workload_mix(tasks.demands)
        self.events = untimed_events(tasks, resample(tasks, capacity=capacity, percent=130, seed=42))
        self.ranks = drawn_ranks(len(self.nodes), 42)

    def run(self, policy: str) -> Replay:
        chosen = make_policy(PolicyName(policy), self.mix, nodes=self.nodes, seed=42)
        return replay(self.nodes, self.events, chosen, mix=self.mix, ranks=self.ranks)

    def time_run(self, policy: str) -> None:
        result = self.run(policy)
        assert len(result.placements) == len(self.events) > 9000

    def track_unallocated(self, policy: str) -> float:
        """Cards idle when all of the cluster's have been asked for."""
        return round(100 - arrival_columns(self.run(policy)).allocated[100], 2)

    track_unallocated.unit = "%"  # type: ignore[attr-defined]  # asv reads it there


class Columns:
    """Columns by percent arrived of a finished run."""

    def setup(self) -> None:
        fill = Fill()
        fill.setup(PolicyName.BEST_FIT)
        self.result = fill.run(PolicyName.BEST_FIT)

    def time_columns(self) -> None:
        assert len(arrival_columns(self.result).allocated) == 131
