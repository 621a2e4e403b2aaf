"""Pods that wait and are not asked about cost a further decision nothing, however many they are."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, Unschedulable, schedule
from koordcore._vector import gone_and_come
from koordcore.model.gangs import PodGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation, ReservationPhase, ReservationStatus

ROOM = {"cpu": 64_000, "pods": 110}


def calls(number: int) -> int:
    """Count the calls of one decision beside so many pods that wait."""
    nodes = [Node(name=f"n{row:04}", allocatable=ROOM) for row in range(10)]
    stands = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n0000")
    records: list[ClusterRecord] = [
        PodGroup(name="g", namespace="default", min_member=2),
        ElasticQuota(name="q", namespace="default", max={"cpu": 10**6}),
        Reservation(name="r", template=Pod(name="t", requests={"cpu": 10}), status=stands),
    ]
    waiting = [Pod(name=f"w{row:04}", requests={"cpu": 100}) for row in range(number)]
    line = ClusterSnapshot(nodes=nodes, pending=waiting, records=records)
    counted = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for step in range(4):
        asked = line.pending[step]
        counted = 0
        sys.setprofile(note)
        try:
            result = schedule(line, [asked])
        finally:
            sys.setprofile(None)
        (decision,) = result.decisions
        assert not isinstance(decision, Unschedulable)
        line = result.snapshot
    return counted


def test_a_decision_costs_as_much_beside_four_times_as_many_that_wait() -> None:
    few, many = calls(100), calls(400)
    assert many < 1.1 * few, (few, many)


def calls_beside(nominated: int, asked: int, cpu: int) -> int:
    """Count the calls of so many decisions beside pods for whom room was made, each on a node of its own."""
    nodes = [Node(name=f"n{row:04}", allocatable=ROOM) for row in range(200)]
    room = [
        Pod(name=f"w{row:04}", requests={"cpu": 50_000}, nominated_node=f"n{row:04}", priority=row % 3)
        for row in range(nominated)
    ]
    pods = [Pod(name=f"p{number:04}", requests={"cpu": cpu}) for number in range(asked)]
    line = ClusterSnapshot(nodes=nodes, pending=[*room, *pods])
    counted = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        result = schedule(line, pods)
    finally:
        sys.setprofile(None)
    assert {isinstance(one, Unschedulable) for one in result.decisions} == {cpu > ROOM["cpu"]}
    return counted


@pytest.mark.parametrize("cpu", [1_000, 70_000])
def test_a_further_decision_costs_as_much_beside_four_times_as_many_nominated_pods(cpu: int) -> None:
    few, many = (calls_beside(number, 20, cpu) - calls_beside(number, 10, cpu) for number in (40, 160))
    assert many < 1.1 * few, (few, many)


PODS = [Pod(name=f"p{number}") for number in range(8)]
WAITING = st.sets(st.integers(0, 7)).map(lambda some: tuple(PODS[number] for number in sorted(some)))


@given(WAITING, WAITING)
def test_who_came_and_who_left_is_told_by_what_both_do_not_have(
    before: tuple[Pod, ...], after: tuple[Pod, ...]
) -> None:
    left, came = gone_and_come(before, after)
    assert came == [pod for pod in after if pod not in before]
    assert left == [pod for pod in before if pod not in after]
