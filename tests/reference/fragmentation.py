"""Fragmentation and the gradient as the paper words them: slow, obvious, nothing remembered."""

from __future__ import annotations

from fractions import Fraction

from koordcore.scoring.fragmentation import WorkloadMix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode

__all__ = ["expected_fragment", "usable"]


def usable(node: GpuNode, demand: GpuDemand) -> int:
    """Idle card milli that tasks of one shape could use: nothing unless one of them fits whole."""
    if not demand.gpus or not node.fits(demand):
        return 0
    return sum(left for left in node.cards if left >= demand.milli)


def expected_fragment(node: GpuNode, mix: WorkloadMix) -> Fraction:
    """Idle card milli that a task drawn from the mix cannot use, as an expectation."""
    parts = [count * (sum(node.cards) - usable(node, shape)) for shape, count in mix.shapes]
    return Fraction(sum(parts), mix.kept)
