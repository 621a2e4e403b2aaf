"""Why pods that have to draw from a reservation find too little there, told once or for each reservation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from koordcore.explaining.diagnosis import diagnose
from koordcore.model.decisions import Unschedulable
from tests.reservations.test_fine import checked, held, owner, reservation
from tests.scheduling.test_numa import node, pod

UNALIGNED = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
UNSATISFIED = ["Unsatisfied NUMA cpu", "Unsatisfied NUMA memory"]
NO_CPUS = "Reservation(s) not enough cpus available to satisfy request"
NO_CARDS = "Reservation(s) Insufficient GPU Devices"


def told(*objects: dict[str, Any]) -> tuple[str, list[str], bool]:
    """What is decided of the last pod, what its only node says, and whether an eviction might help."""
    snapshot = held(*objects)
    last = checked(snapshot).decisions[-1]
    assert isinstance(last, Unschedulable)
    (asked,) = (one for one in snapshot.pending if one.key == last.pod)
    details = diagnose(snapshot, asked, now=datetime(2026, 1, 1, tzinfo=UTC)).schedule.node_failed_details
    (detail,) = details
    text = last.message.removeprefix("0/1 nodes are available: ").removesuffix(".")
    return text, detail.reason.split(", "), detail.preempt_might_help


@pytest.mark.parametrize(
    ("numa", "policy", "number", "reasons"),
    [
        # What hangs on NUMA nodes of the machine is said once, what is left of reservations for each of them.
        ("SingleNUMANode", "Restricted", 1, UNSATISFIED),
        ("SingleNUMANode", "Restricted", 2, UNSATISFIED),
        ("SingleNUMANode", "Aligned", 2, [UNALIGNED]),
        ("Restricted", "Restricted", 2, UNSATISFIED),
        ("BestEffort", "Restricted", 1, ["Reservation(s) Insufficient NUMA cpu"]),
        ("BestEffort", "Restricted", 2, ["Reservation(s) Insufficient NUMA cpu"] * 2),
        ("", "Restricted", 1, [NO_CPUS]),
        ("", "Restricted", 2, [NO_CPUS] * 2),
    ],
)
def test_six_cpus_out_of_reservations_of_four(
    numa: str, policy: str, number: int, reasons: list[str]
) -> None:
    holds = [reservation(f"r{one}", pod("t", 4 // number), allocatePolicy=policy) for one in range(number)]
    text, said, hope = told(*node("n1", policy=numa), *holds, owner("o", 6))
    assert said == reasons
    assert text == ", ".join(f"{reasons.count(one)} {one}" for one in dict.fromkeys(reasons))
    assert hope


@pytest.mark.parametrize("numa", ["SingleNUMANode", "Restricted", "BestEffort", ""])
def test_two_cards_out_of_a_reservation_of_one(numa: str) -> None:
    """The node has two more, which a restricted reservation does not add."""
    holds = reservation("r", pod("t", 2, gpus=1, bound=False), allocatePolicy="Restricted")
    text, said, hope = told(
        *node("n1", policy=numa, cards=(0, 0, 1)), holds, owner("o", 1, gpus=2, bound=False)
    )
    assert (text, said, hope) == (f"1 {NO_CARDS}", [NO_CARDS], True)


@pytest.mark.parametrize("numa", ["SingleNUMANode", ""])
def test_nothing_is_left_for_a_second_owner(numa: str) -> None:
    holds = reservation("r", pod("t", 2, gpus=1), allocatePolicy="Restricted")
    owners = [owner(name, 2, gpus=1) for name in ("o1", "o2")]
    snapshot = held(*node("n1", policy=numa, cards=(0, 1)), holds, *owners)
    result = checked(snapshot)
    assert [one.pod.name for one in result.bound] == ["o1"]
    (refused,) = (one for one in result.decisions if isinstance(one, Unschedulable))
    expected = "1 Unsatisfied NUMA cpu, 1 Unsatisfied NUMA memory" if numa else f"1 {NO_CPUS}"
    assert refused.message == f"0/1 nodes are available: {expected}."
