"""Explanations in plain words, and the smallest release."""

from __future__ import annotations

import pytest

from koordcore.allocators.device import explain_devices, smallest_release
from koordcore.allocators.device.explain import Release
from tests.allocators.device.build import card, cards, gpus, machine, nics, std8, want

HONOR = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
HOPPER = {"node.koordinator.sh/gpu-model": "H800"}
SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


def test_a_missing_partition_is_told_card_by_card() -> None:
    """The sentence names every partition with what it lacks, and the one pod whose going would help."""
    held = {"d/a": cards(2), "d/b": cards(5), "d/c": cards(6)}
    state = machine(std8(), held, labels=HONOR, node_labels=HOPPER)
    told = explain_devices(state, gpus(4))
    assert told is not None
    assert told.lines == ("5 GPUs are free but no free partition of 4: {0-3} lacks 2; {4-7} lacks 5, 6",)
    assert told.release is not None
    assert told.release.holders == ("d/a",)
    assert told.release.smallest


def test_what_fits_needs_no_explanation() -> None:
    """No refusal, no explanation; the smallest release is empty."""
    state = machine(std8())
    assert explain_devices(state, gpus(8)) is None
    release = smallest_release(state, gpus(8))
    assert release is not None
    assert release.holders == ()


def test_devices_that_cannot_serve_are_named_with_their_reason() -> None:
    """Held, unhealthy, too small, gone."""
    devices = [
        card(0, (0, "0")),
        card(1, (0, "0"), health=False),
        card(2, (0, "1"), resources={"koordinator.sh/gpu-core": "50"}),
    ]
    told = explain_devices(machine(devices, {"d/a": cards(0), "d/b": cards(3)}), gpus(1))
    assert told is not None
    assert told.lines == (
        "1 GPU wanted, 0 can serve",
        "GPU 0 is held by d/a",
        "GPU 1 is unhealthy",
        "GPU 2 is too small for the request",
        "GPU 3 is not on the node any more",
    )


def test_a_joint_dead_end_is_told_switch_by_switch() -> None:
    """Where cards are free no NIC is, and the reverse; two holders would have to go."""
    state = machine(std8(0), {"d/g": cards(0, 1, 4, 5), "d/n2": nics(2), "d/n4": nics(4)})
    request = want({"nvidia.com/gpu": "2", "koordinator.sh/rdma": "1"}, device_joint_allocate=SAME)
    told = explain_devices(state, request)
    assert told is not None
    assert told.shortfall.reasons == ("node(s) Device Joint-Allocate rules violation",)
    assert "PCIe switch 1 can serve 2 GPUs and 0 NICs" in told.lines
    assert told.release is not None
    assert told.release.holders == ("d/g",)
    assert smallest_release(state, request, among=["d/n2", "d/n4"]) is not None


def test_a_node_that_can_never_serve_has_no_release() -> None:
    """Nine cards do not come out of eight."""
    told = explain_devices(machine(std8(), {"d/a": cards(0)}), gpus(9))
    assert told is not None
    assert told.release is None


def test_the_release_is_the_smallest_of_all() -> None:
    """One pod with two cards goes rather than two pods with one each."""
    state = machine(std8(), {"d/a": cards(0), "d/b": cards(1), "d/z": cards(2, 3), "d/y": cards(4, 5, 6, 7)})
    release = smallest_release(state, gpus(2), among=["d/a", "d/b", "d/z"])
    assert release is not None
    assert release.holders == ("d/z",)


@pytest.mark.parametrize(("most", "smallest"), [(6, False), (7, True)])
def test_a_release_is_called_smallest_where_all_smaller_sets_were_tried(
    monkeypatch: pytest.MonkeyPatch, most: int, smallest: bool
) -> None:
    """Nobody, three pods one by one, and the third pair of them: the seventh set.

    Where fewer may be tried the same two go, since neither could stay.
    """
    monkeypatch.setattr("koordcore.allocators.device.explain._MOST_TRIALS", most)
    held = {"d/a": cards(0), "d/b": cards(1, 2), "d/c": cards(3, 4), "d/d": cards(5, 6, 7)}
    found = smallest_release(machine(std8(), held), gpus(4), among=["d/a", "d/b", "d/c"])
    assert found == Release(("d/b", "d/c"), smallest=smallest)
