"""A policy as a user writes it, in a file of its own."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore.scoring import GpuDemand, GpuNode, WorkloadMix, fullest_slots


class Tightest:
    """Takes the node with the fewest idle cards, and of these the one with the fewest idle CPUs."""

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        return -(node.idle * 1_000_000 + node.cpu)

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        return fullest_slots(node, demand)


def scaled(mix: WorkloadMix, nodes: Sequence[GpuNode]) -> Tightest:
    """A maker that asks for what it is given, and not for a seed."""
    assert mix.kept > 0
    assert len(nodes) > 0
    return Tightest()
