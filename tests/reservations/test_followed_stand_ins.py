"""Who stands for reservations is followed on a line: what is told, and what it costs."""

from __future__ import annotations

import sys
from types import FrameType

from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.errors import ModelError
from koordcore.model.pods import PodKey
from koordcore.model.reservations import Reservation, ReservationPhase, ReservationStatus
from koordcore.snapshot import (
    Change,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

ROOM = {"cpu": 4000, "pods": 20}
UIDS = ("", "u0", "u1")
PODS = ("u0", "u1", "reservation-r0", "plain")
WAITS = ReservationStatus()
STANDS = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="a")
OVER = ReservationStatus(phase=ReservationPhase.FAILED)


@st.composite
def changes(draw: st.DrawFn, snapshot: ClusterSnapshot) -> list[Change]:
    """A reservation comes, goes or says something else, or a pod does that may have the name of one."""
    if draw(st.booleans()):
        key = PodKey("default", draw(st.sampled_from(PODS)))
        if snapshot.pod(key) is not None:
            return [PodEnded(key)]
        pod = Pod(name=key.name, requests={"cpu": 100})
        return [PodPending(pod) if draw(st.booleans()) else PodBound(pod.at("a"))]
    name = draw(st.sampled_from(("r0", "r1", "r2")))
    known: list[Reservation] = [one for one in snapshot.of(Reservation) if one.name == name]
    goes: bool = draw(st.booleans())
    if known and goes:
        return [RecordRemoved(known[0])]
    status = draw(st.sampled_from((WAITS, STANDS, STANDS, OVER)))
    one = Reservation(name=name, uid=draw(st.sampled_from(UIDS)), template=Pod(name="t"), status=status)
    return [RecordReplaced(one) if known else RecordAdded(one)]


def told(snapshot: ClusterSnapshot) -> object:
    """What is decided about all that waits, or why nothing can be."""
    try:
        return schedule(snapshot).decisions
    except ModelError as error:
        return str(error)


@given(st.data())
@settings(max_examples=80)
def test_a_line_tells_of_equal_names_as_a_cluster_made_anew_does(data: st.DataObject) -> None:
    line = ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)])
    for _ in range(data.draw(st.integers(2, 10))):
        line = line.apply(*data.draw(changes(line)))
        if data.draw(st.booleans()):
            fresh = ClusterSnapshot(nodes=line.nodes, pending=line.pending, records=line.records)
            assert told(line) == told(fresh)


def calls(number: int) -> int:
    """Count the calls of one decision beside so many reservations."""
    nodes = [Node(name=f"n{row:04}", allocatable=ROOM) for row in range(20)]
    records = [
        Reservation(
            name=f"r{row}",
            template=Pod(name="t", requests={"cpu": 10}),
            status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=f"n{row % 20:04}"),
        )
        for row in range(number)
    ]
    line = ClusterSnapshot(nodes=nodes, records=records)
    counted = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for step in range(4):
        asked = Pod(name=f"p{step}", requests={"cpu": 100})
        counted = 0
        sys.setprofile(note)
        try:
            result = schedule(line, [asked])
        finally:
            sys.setprofile(None)
        assert len(result.bound) == 1
        line = result.snapshot
    return counted


def test_a_decision_costs_as_much_beside_four_times_as_many_reservations() -> None:
    few, many = calls(50), calls(200)
    assert many < 1.2 * few, (few, many)
