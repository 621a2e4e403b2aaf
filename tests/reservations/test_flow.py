"""Reservations in the flow: held, lent, used, released."""

from __future__ import annotations

import attrs
import pytest

from koordcore.checking import verify
from koordcore.errors import ModelError
from koordcore.framework import NodeView, Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.reservations import AllocatePolicy, Reservation
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_there
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import IGNORES, POLICY, must, node, pod, reservation, uses


def place(snapshot: ClusterSnapshot, *pods: object) -> ScheduleResult:
    """Schedule and check."""
    result = schedule(snapshot, pods or None, policy=POLICY)  # type: ignore[arg-type]  # pods
    assert verify(snapshot, result) == ()
    return result


def where(result: ScheduleResult) -> dict[str, tuple[str, str]]:
    """Node and reservation by pod; pods without a node are left out."""
    return {one.pod.name: (one.node, one.reservation) for one in result.bound}


def test_held_room_is_kept_from_others_and_lent_to_owners() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1")])
    result = place(snapshot, pod("stranger", 4), pod("owner", 4, "a"), pod("small", 2))
    assert where(result) == {"owner": ("n1", "r1"), "small": ("n1", "")}


def test_an_owner_may_take_from_the_node_what_an_aligned_reservation_lacks() -> None:
    aligned = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 4, "n1")])
    assert where(place(aligned, pod("owner", 7, "a"))) == {"owner": ("n1", "r1")}
    restricted = ClusterSnapshot(
        nodes=[node("n1")], records=[reservation("r1", 4, "n1", policy=AllocatePolicy.RESTRICTED)]
    )
    decision = place(restricted, pod("owner", 7, "a", annotations=must())).decisions[0]
    assert isinstance(decision, Unschedulable)
    assert "Reservation(s) Insufficient cpu" in decision.message


def test_two_reservations_of_one_node_serve_two_pods_in_one_call() -> None:
    records = [reservation(name, 4, "n1", allocate_once=True) for name in ("r1", "r2")]
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=records)
    result = place(snapshot, *(pod(name, 4, "a", annotations=must()) for name in ("a", "b", "c")))
    assert where(result) == {"a": ("n1", "r1"), "b": ("n1", "r2")}


def test_a_reservation_is_drawn_from_until_it_is_used_up() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1")])
    result = place(snapshot, *(pod(f"p{number}", 2, "a", annotations=must()) for number in range(5)))
    # Three fit the reservation; an aligned one lets a fourth take the two CPUs that are free beside it.
    assert sorted(where(result)) == ["p0", "p1", "p2", "p3"]


def test_a_pending_reservation_is_placed_and_serves_pods_of_the_same_call() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1"), node("n2", 4)],
        pending=[pod("owner", 6, "a", annotations=must()), pod("other", 4)],
        records=[reservation("r1", 6)],
    )
    result = place(snapshot)
    assert where(result)["owner"] == ("n1", "r1")
    assert where(result)["other"] == ("n2", "")
    after = result.snapshot.find(Reservation, "r1")
    assert after is not None
    assert after.available
    assert after.status.node_name == "n1"
    assert result.snapshot.pod(PodKey("default", "uid-r1")) is None


def test_without_a_reservation_that_matches_a_pod_that_must_have_one_is_refused() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 4, "n1", app="b")])
    decision = place(snapshot, pod("p", 1, "a", annotations=must())).decisions[0]
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/1 nodes are available: node(s) no reservations match reservation affinity."
    )


def test_an_ignoring_pod_takes_held_room_and_never_what_owners_use() -> None:
    owner = pod("owner", 3, "a", node_name="n1", annotations=uses("r1"))
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1")]).assume(owner)
    result = place(snapshot, pod("p", 5, labels=IGNORES), pod("q", 1, labels=IGNORES))
    assert where(result) == {"p": ("n1", "")}


def test_owners_that_use_more_than_is_held_give_back_no_more_than_that() -> None:
    owner = pod("owner", 6, "a", node_name="n1", annotations=uses("r1"))
    snapshot = ClusterSnapshot(nodes=[node("n1", 10)], records=[reservation("r1", 4, "n1")]).assume(owner)
    assert where(place(snapshot, pod("p", 5), pod("q", 4))) == {"q": ("n1", "")}


def test_the_fuller_reservation_and_the_smaller_order_win() -> None:
    two = [reservation("big", 8, "n1"), reservation("exact", 4, "n2")]
    nodes = [node("n1"), node("n2")]
    assert where(place(ClusterSnapshot(nodes=nodes, records=two), pod("p", 4, "a"))) == {"p": ("n2", "exact")}
    first = reservation("big", 8, "n1", labels={"scheduling.koordinator.sh/reservation-order": "1"})
    ordered = ClusterSnapshot(nodes=nodes, records=[first, two[1]])
    assert where(place(ordered, pod("p", 4, "a"))) == {"p": ("n1", "big")}


def test_nothing_is_left_behind_in_the_snapshot() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1")])
    result = place(snapshot, pod("owner", 4, "a"))
    bound = result.bound[0]
    assert isinstance(bound, Bound)
    assert [str(one.key) for one in result.snapshot.bound_pods()] == ["default/owner"]
    again = ClusterSnapshot(nodes=result.snapshot.nodes, records=result.snapshot.records)
    assert (again.columns.requested == result.snapshot.columns.requested).all()


def test_what_one_user_leaves_of_a_reservation_for_one_is_free() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1", allocate_once=True)])
    result = place(snapshot, pod("owner", 2, "a"), pod("stranger", 6))
    assert where(result) == {"owner": ("n1", "r1"), "stranger": ("n1", "")}


@pytest.mark.parametrize("on", ["", "n1"])
def test_two_that_would_be_called_the_same_while_they_are_scheduled_are_named(on: str) -> None:
    """A reservation's uid is the name of a pod then: the error says whose else it is."""
    one, other = reservation("a", 1, on), attrs.evolve(reservation("b", 1, on), uid="uid-a")
    nodes = [node("n1")]
    with pytest.raises(ModelError, match="reservation b: uid-a is the uid of reservation a too"):
        schedule(ClusterSnapshot(nodes=nodes, records=[one, other]), policy=POLICY)
    with pytest.raises(ModelError, match="reservation a: uid-a is the name of pod default/uid-a too"):
        schedule(ClusterSnapshot(nodes=nodes, pending=[pod("uid-a", 1)], records=[one]), policy=POLICY)


def test_asking_a_filter_leaves_no_trace() -> None:
    """What a node would lend is known before anybody asks the filter, and whatever it was asked about."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1"), node("n2")], records=[reservation("r1", 6, "n1"), reservation("r2", 6, "n2")]
    )
    workspace = open_workspace(snapshot, POLICY)
    plugins = PluginSet(workspace, POLICY)
    owner = plugins.class_of(pod("owner", 4, "a"))
    assert not isinstance(owner, Refusal)
    assert owner.source is not None

    def lent() -> list[str]:
        assert owner.source is not None
        loans = (owner.source.drawn_from(row) for row in range(2))
        return ["" if loan is None else loan.states[0].reservation.name for loan in loans]

    assert lent() == ["r1", "r2"]
    for part in owner.parts:
        part.evaluator.fits(NodeView(workspace))
    assert lent() == ["r1", "r2"]
    mark = workspace.checkpoint()
    assert place_there(workspace, plugins, pod("first", 6, "a"), 1) is not None
    assert lent() == ["r1", ""]
    workspace.rollback(mark)
    assert lent() == ["r1", "r2"]
