"""Claims on one node: the questions on which the reference's search does not end, and what it refuses.

The reference's steps and times stand in ``dra.md`` 17; both modes of the library are timed here.
"""

from __future__ import annotations

from benchmarks.claims_data import (
    CLASSES,
    claim,
    empty_room,
    gpus_of_one_numa,
    mig_cards,
    pairs,
    partitions,
    request,
    whole_gpus,
)
from koordcore.allocators.claims import Room, allocate_claims, choose_devices

GPUS_16 = whole_gpus("n1", 16)
QUESTIONS = {
    "9 of 16 GPUs in one NUMA node": (GPUS_16, [gpus_of_one_numa(9)], False),
    "14 of 26 GPUs in one NUMA node": (whole_gpus("n1", 26), [gpus_of_one_numa(14)], False),
    "4 pairs, 3 NICs": (whole_gpus("n1", 8, nics=(0, 1, 2)), [pairs(4)], False),
    "6 pairs, 5 NICs": (whole_gpus("n1", 12, nics=(0, 1, 2, 3, 4)), [pairs(6)], False),
    "6 pairs, NICs last": (whole_gpus("n1", 24, nics=(6, 7, 8, 9, 10, 11)), [pairs(6)], True),
    "17 requests, 16 GPUs": (GPUS_16, [claim("c", [request(f"r{n}", "gpu") for n in range(17)])], False),
    "25 of 24 GPUs": (whole_gpus("n1", 24), [claim("c", [request("r", "gpu", 25)])], False),
    "MIG 6x1g+3x3g on 2": (mig_cards("n1", 2), partitions(p1g_10gb=6, p3g_40gb=3), False),
    "MIG 12x1g+5x3g on 4": (mig_cards("n1", 4), partitions(p1g_10gb=12, p3g_40gb=5), True),
    "MIG 5 of 6 profiles on 8": (
        mig_cards("n1", 8),
        partitions(p1g_10gb=9, p1g_20gb=5, p2g_20gb=7, p3g_40gb=5, p4g_40gb=2),
        True,
    ),
}


class OneNode:
    """One attempt of a pod on a node, nothing held, as the filter asks; selectors have been evaluated."""

    params = tuple(QUESTIONS)

    def setup(self, question: str) -> None:
        slices, self.claims, self.fits = QUESTIONS[question]
        self.room: Room = empty_room(slices)
        assert self.ask() is self.fits

    def ask(self) -> bool:
        return isinstance(choose_devices(self.room, self.claims, CLASSES), tuple)

    def time_exact(self, question: str) -> None:
        self.ask()

    def time_answer(self, question: str) -> None:
        """The same with what a caller sees: results with a certificate, or what is lacking."""
        allocate_claims(self.room, self.claims, CLASSES)
