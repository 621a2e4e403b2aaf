"""Gangs that a plan starts too small or scatters are named, however their group and the network are meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Pod, ScheduleResult, schedule, verify
from koordcore.checking.check import check_result
from koordcore.model.gangs import PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import PodPhase
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.topology.network import NODE_LAYER, LayerSpec

GANG = "pod-group.scheduling.sigs.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh/"
NETWORK = ClusterNetworkTopology(
    "default",
    (
        LayerSpec("Block", ("block",)),
        LayerSpec("Rack", ("rack",), "Block"),
        LayerSpec(NODE_LAYER, (), "Rack"),
    ),
)
MUST, WISH = ({"layer": "Rack", "strategy": how} for how in ("MustGather", "PreferGather"))


def group(name: str, least: int, *rules: dict[str, Any], **notes: str) -> PodGroup:
    texts = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in notes.items()}
    if rules:
        texts[f"{PREFIX}network-topology-spec"] = json.dumps({"gatherStrategy": rules})
    return PodGroup(namespace="default", name=name, min_member=least, annotations=texts)


def pod(name: str) -> Pod:
    """A member of the gang with the first letter."""
    return Pod(name=name, labels={GANG: name[0]}, requests={"cpu": 100})


def cluster(*records: Any, pending: tuple[str, ...], running: tuple[str, ...] = ()) -> ClusterSnapshot:
    """Four nodes in two racks; who runs does so on the first."""
    return in_racks([pod(name) for name in pending], [pod(name) for name in running], *records)


def in_racks(pending: Sequence[Pod], running: Sequence[Pod], *records: Any) -> ClusterSnapshot:
    """Four nodes in two racks; who runs does so on the first."""
    states = [
        NodeState(
            Node(
                name=f"n{number}",
                labels={"block": "b", "rack": f"r{number // 2}"},
                allocatable={"cpu": 9000, "pods": 20},
            ),
            tuple(one.at("n0") for one in running) if number == 0 else (),
        )
        for number in range(4)
    ]
    return ClusterSnapshot(nodes=states, pending=pending, records=records)


def forced(snapshot: ClusterSnapshot, **places: str) -> ScheduleResult:
    pods = {one.name: one for one in snapshot.pending}
    decisions = tuple(Bound(pod=pods[name].key, node=at) for name, at in places.items())
    return ScheduleResult(
        decisions=decisions, snapshot=snapshot.assume(*(pods[name].at(at) for name, at in places.items()))
    )


def told(snapshot: ClusterSnapshot, **places: str) -> list[str]:
    result = forced(snapshot, **places)
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    return [f"{one.subject} {one.message}" for one in found]


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        ("once-satisfied", []),
        ("waiting-and-running", ["default/a 2 of at least 3 members of default/a have a node"]),
        ("only-waiting", ["default/a 1 of at least 3 members of default/a have a node"]),
    ],
)
def test_who_counts_for_the_minimum_of_a_gang_that_runs(policy: str, wrong: list[str]) -> None:
    snapshot = cluster(group("a", 3, match_policy=policy), pending=("a1", "a2"), running=("a0",))
    assert told(snapshot, a1="n0") == wrong


def test_all_gangs_of_a_group_start_or_as_many_as_are_enough() -> None:
    names = json.dumps(["default/a", "default/b", "default/c"])
    waiting = ("a1", "b1", "c1")
    every = [group(name, 1, groups=names) for name in "abc"]
    assert told(cluster(*every, pending=waiting), a1="n0", b1="n0", c1="n0") == []
    assert told(cluster(*every, pending=waiting), a1="n0", b1="n0") == [
        "default/a 0 of at least 1 members of default/c have a node",
        "default/b 0 of at least 1 members of default/c have a node",
    ]
    three = [group(name, 1, groups=names, min_groups="3") for name in "abc"]
    assert told(cluster(*three, pending=waiting), a1="n0", b1="n0") == [
        "default/a 0 of at least 1 members of default/c have a node",
        "default/b 0 of at least 1 members of default/c have a node",
    ]
    two = [group(name, 1, groups=names, min_groups="2") for name in "abc"]
    assert told(cluster(*two, pending=waiting), a1="n0", b1="n0") == []
    assert told(cluster(*two, pending=waiting), a1="n0") == [
        "default/a 1 of at least 2 gangs have their minimum"
    ]
    assert told(cluster(*two, pending=waiting, running=("b0",)), a1="n0") == []


def test_members_that_hold_a_place_while_they_wait_count_and_start_nobody() -> None:
    snapshot = cluster(group("a", 3), pending=("a1", "a2"))
    holding = attrs.evolve(pod("a0"), annotations={WAITS_AT_PERMIT: "true"}).at("n0")
    snapshot = snapshot.assume(holding)
    assert told(snapshot, a1="n0", a2="n0") == []
    assert told(snapshot, a1="n0") == ["default/a 2 of at least 3 members of default/a have a node"]


def test_members_of_a_strict_gang_lie_in_one_rack() -> None:
    snapshot = cluster(NETWORK, group("a", 2, MUST), pending=("a1", "a2"))
    assert told(snapshot, a1="n0", a2="n1") == []
    (wrong,) = told(snapshot, a1="n0", a2="n2")
    assert "Rack" in wrong
    unknown = cluster(group("a", 2, MUST), pending=("a1", "a2"))
    assert told(unknown, a1="n0", a2="n1") == [
        "default/a wants to be gathered, and there is no network topology"
    ]


def test_what_one_gang_of_a_group_demands_binds_its_own_members() -> None:
    """``a`` must lie in one rack and ``b`` says nothing: only the members of ``b`` are free."""
    names = json.dumps(["default/a", "default/b"])
    records = (NETWORK, group("a", 2, MUST, groups=names), group("b", 2, groups=names))
    snapshot = cluster(*records, pending=("a1", "a2", "b1", "b2"))
    assert told(snapshot, a1="n0", a2="n1", b1="n0", b2="n2") == []
    (wrong,) = told(snapshot, a1="n0", a2="n2", b1="n0", b2="n1")
    assert wrong.startswith("default/a ")


def test_what_every_gang_of_a_group_demands_binds_them_together() -> None:
    names = json.dumps(["default/a", "default/b"])
    records = (NETWORK, *(group(name, 1, MUST, groups=names) for name in "ab"))
    snapshot = cluster(*records, pending=("a1", "b1"))
    assert told(snapshot, a1="n0", b1="n1") == []
    assert {one[:10] for one in told(snapshot, a1="n0", b1="n2")} == {"default/a ", "default/b "}


def test_who_comes_without_a_wish_may_lie_outside_the_network() -> None:
    """``b`` lists ``a`` as well, which lists itself alone and says nothing: its member may go anywhere."""
    names = json.dumps(["default/a", "default/b"])
    snapshot = cluster(NETWORK, group("a", 1), group("b", 1, MUST, groups=names), pending=("a1", "b1"))
    lost = attrs.evolve(snapshot.node("n3").node, labels={})
    outside = snapshot.with_nodes(NodeState(lost, ()))
    assert told(outside, a1="n3", b1="n0") == []
    assert len(told(outside, a1="n0", b1="n3")) == 1


def test_a_wish_of_one_gang_binds_nobody() -> None:
    names = json.dumps(["default/a", "default/b"])
    records = (NETWORK, group("a", 2, WISH, groups=names), group("b", 2, groups=names))
    snapshot = cluster(*records, pending=("a1", "a2", "b1", "b2"))
    assert told(snapshot, a1="n0", a2="n2", b1="n1", b2="n3") == []


def test_racks_are_those_of_the_labels_as_they_are_now() -> None:
    snapshot = cluster(NETWORK, group("a", 2, MUST), group("x", 1), pending=("x",))
    first = forced(snapshot, x="n3")
    assert verify(snapshot, first) == ()
    now = first.snapshot.with_pending(pod("a1"), pod("a2"))
    assert told(now, a1="n0", a2="n1") == []
    other = attrs.evolve(now.node("n1").node, labels={"block": "b", "rack": "r1"})
    moved = now.with_nodes(NodeState(other, now.node("n1").pods))
    assert len(told(moved, a1="n0", a2="n1")) == 1
    assert told(moved, a1="n1", a2="n2") == []


def test_a_gang_of_which_nobody_stays_begins_anew_wherever_it_likes() -> None:
    old = pod("a0")
    for deleted, wrong in ((None, 1), (datetime(2026, 1, 1, tzinfo=UTC), 0)):
        leaves = attrs.evolve(old, deleted=deleted)
        waiting = [pod("a1"), pod("a2")]
        snapshot = in_racks(waiting, [leaves], NETWORK, group("a", 2, MUST))
        assert len(told(snapshot, a1="n2", a2="n3")) == wrong


def test_a_member_of_another_list_has_not_started_a_gang() -> None:
    """``g`` runs and lists itself alone; ``h`` lists both, so that nobody of its group has run."""
    both = json.dumps(["default/g", "default/h"])
    wrong = ["default/h 1 of at least 2 members of default/h have a node"]
    snapshot = cluster(group("g", 1), group("h", 2, groups=both), pending=("h0", "h1"), running=("g0",))
    assert told(snapshot, h0="n0") == wrong
    assert told(snapshot, h0="n0", h1="n0") == []
    # Of the same list are also gangs that nobody lists.
    beside = group("i", 1, groups=both)
    snapshot = cluster(
        group("g", 1, groups=both), group("h", 2, groups=both), beside, pending=("h0",), running=("i0",)
    )
    assert told(snapshot, h0="n0") == []


def test_a_gang_that_does_not_list_itself_lies_with_those_that_it_lists() -> None:
    other = json.dumps(["default/h"])
    snapshot = cluster(
        NETWORK, group("g", 1, MUST, groups=other), group("h", 1, MUST), pending=("g0", "h0", "h1")
    )
    assert told(snapshot, g0="n0", h0="n1") == []
    assert [one.startswith("default/g ") for one in told(snapshot, g0="n0", h0="n2")] == [True]
    assert [one.startswith("default/h ") for one in told(snapshot, h1="n0", h0="n2")] == [True]


def test_gangs_that_list_different_ones_are_all_needed() -> None:
    both, notes = json.dumps(["default/g", "default/h"]), {"min_groups": "1"}
    same = [group(name, 1, groups=both, **notes) for name in "gh"]
    assert told(cluster(*same, pending=("g0", "h0")), g0="n0") == []
    other = [same[0], group("h", 1, **notes)]
    wrong = ["default/g 0 of at least 1 members of default/h have a node"]
    assert told(cluster(*other, pending=("g0", "h0")), g0="n0") == wrong


def test_a_gang_begins_anew_where_nobody_stays_of_those_that_it_starts_with() -> None:
    """Once the last of them leaves, its members need not lie beside them; whoever ended stays as well."""
    both = json.dumps(["default/a", "default/b"])
    records = [NETWORK, *(group(name, 0, MUST if name == "a" else WISH, groups=both) for name in "ab")]
    leaving = attrs.evolve(pod("a0"), deleted=datetime(2026, 11, 1, tzinfo=UTC))
    ended = attrs.evolve(pod("a9"), phase=PodPhase.SUCCEEDED, node_name="n3")
    for beside, more, held in (
        ([leaving], [], False),
        ([leaving, pod("c0")], [], False),
        ([leaving, pod("b0")], [], True),
        ([leaving, pod("a8")], [], True),
        ([leaving], [ended], True),
    ):
        snapshot = in_racks([pod("a1")], beside, *records, *more)
        wrong = ["default/a the gang runs in Rack/r0 already"] if held else []
        assert told(snapshot, a1="n2") == wrong
        narrow = attrs.evolve(snapshot.node("n1").node, allocatable={"cpu": 0, "pods": 0})
        full = attrs.evolve(snapshot.node("n0").node, allocatable={"cpu": 200, "pods": len(beside)})
        there = NodeState(full, snapshot.node("n0").pods)
        result = schedule(elsewhere := snapshot.with_nodes(narrow, there))
        assert len(result.bound) == (not held)
        assert verify(elsewhere, result) == ()
