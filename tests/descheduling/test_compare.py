"""What evictions without targets come to."""

from __future__ import annotations

from koordcore.descheduling.compare import outcome_of
from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.model.pods import PodKey


def problem(room: int) -> MoveProblem:
    """Give a node that uses nine of six cores, and one with so much room below its threshold."""
    movable = tuple(
        Movable(pod=PodKey("d", name), node="hot", requests={"cpu": cpu}, usage={"cpu": cpu})
        for name, cpu in (("a", 4), ("b", 3), ("c", 2))
    )
    return MoveProblem(
        hosts=(
            Host(
                name="hot", requested={"cpu": 9}, allocatable={"cpu": 10}, usage={"cpu": 9}, high={"cpu": 6}
            ),
            Host(name="idle", allocatable={"cpu": 10}, high={"cpu": room}),
        ),
        movable=movable,
    )


def test_evicted_pods_find_places() -> None:
    """One is enough, and there is room."""
    outcome = outcome_of(problem(4), [PodKey("d", "a")])
    assert (outcome.evictions, outcome.waiting, outcome.after) == (1, (), ())
    nothing = outcome_of(problem(4), [])
    assert nothing.after == ("hot",)


def test_who_finds_no_place_waits() -> None:
    """The node is cool then."""
    outcome = outcome_of(problem(2), [PodKey("d", "a"), PodKey("d", "c")])
    assert (outcome.waiting, outcome.after) == ((PodKey("d", "a"),), ())
