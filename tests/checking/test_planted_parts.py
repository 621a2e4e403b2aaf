"""Gangs in parts that a plan starts with too few, or scatters, are named by the part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore import ClusterSnapshot, Pod, verify
from koordcore.checking.check import check_result
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import PodPhase
from tests.checking.test_planted_gangs import GANG, MUST, NETWORK, PREFIX, forced, in_racks

SLICES = [{"name": "lead"}, {"name": "w", "size": 2, "gatherStrategy": [MUST]}]


def pod(name: str, **fields: Any) -> Pod:
    """A member of the gang, of the part that its name begins with."""
    labels = {GANG: "g", f"{PREFIX}sub-group": name.rstrip("0123456789")}
    return Pod(name=name, labels=labels, requests={"cpu": 100}, **fields)


def cluster(
    parts: dict[str, Any],
    *names: str,
    running: tuple[str, ...] = (),
    records: tuple[Any, ...] = (NETWORK,),
    match_policy: str = "once-satisfied",
) -> ClusterSnapshot:
    """A gang in parts, on two racks of two nodes; who runs does so on the first."""
    notes = {f"{PREFIX}sub-groups": json.dumps(parts), f"{PREFIX}match-policy": match_policy}
    group = PodGroup(namespace="default", name="g", min_member=1, annotations=notes)
    return in_racks([pod(name) for name in names], [pod(name) for name in running], group, *records)


def told(snapshot: ClusterSnapshot, **places: str) -> list[str]:
    result = forced(snapshot, **places)
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    assert all(one.subject == "default/g" for one in found)
    return sorted(one.message for one in found)


def test_each_part_starts_whole_and_each_slice_in_one_rack() -> None:
    snapshot = cluster({"subGroups": SLICES}, "lead0", "w0", "w1", "w2", "w3")
    assert told(snapshot, lead0="n0", w0="n0", w1="n1", w2="n2", w3="n3") == []
    assert told(snapshot, w0="n0", w1="n1", w2="n2", w3="n3") == ["1 of at least 2 parts have started"]
    assert told(snapshot, lead0="n0", w0="n0", w1="n1", w2="n2") == [
        "1 of at least 2 parts have started",
        "w/1 has 1 of at least 2 members",
    ]
    (scattered,) = told(snapshot, lead0="n0", w0="n0", w1="n2", w2="n2", w3="n3")
    assert scattered.startswith("w/0: ")
    assert "Rack" in scattered


def test_as_many_replicas_and_parts_as_are_enough() -> None:
    entry = {"name": "w", "size": 2, "minReplicas": 1}
    snapshot = cluster({"subGroups": [entry]}, "w0", "w1", "w2", "w3")
    assert told(snapshot, w0="n0", w1="n2") == []
    parts = {"minSubGroups": 2, "subGroups": [{"name": name} for name in "abc"]}
    snapshot = cluster(parts, "a0", "a1", "b0", "c0")
    assert told(snapshot, a0="n0", a1="n0", c0="n0") == []
    assert told(snapshot, b0="n0", c0="n0") == []
    assert told(snapshot, b0="n0") == ["1 of at least 2 parts have started"]


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        ("once-satisfied", []),
        ("waiting-and-running", ["0 of at least 1 parts have started", "w/1 has 1 of at least 2 members"]),
    ],
)
def test_what_is_missing_of_a_gang_that_runs_counts_as_its_policy_says(policy: str, wrong: list[str]) -> None:
    entry = {"name": "w", "size": 2}
    snapshot = cluster({"subGroups": [entry]}, "w2", "w3", running=("w0", "w1"), match_policy=policy)
    assert told(snapshot, w2="n0", w3="n0") == []
    assert told(snapshot, w2="n0") == wrong


def test_who_has_ended_and_who_runs_count_for_their_part() -> None:
    ended = pod("w0", node_name="n9", phase=PodPhase.SUCCEEDED)
    other = Pod(name="x0", labels={GANG: "h"}, node_name="n9", phase=PodPhase.SUCCEEDED)
    parts = {"subGroups": [{"name": "w", "size": 2}]}
    snapshot = cluster(parts, "w1", records=(ended, other), match_policy="waiting-and-running")
    assert told(snapshot, w1="n0") == []
    alone = cluster(parts, "w0", "w1", records=(other,), match_policy="waiting-and-running")
    assert told(alone, w1="n0") == ["0 of at least 1 parts have started", "w/0 has 1 of at least 2 members"]


def test_members_that_come_later_lie_beside_those_of_their_slice_that_run() -> None:
    snapshot = cluster({"subGroups": [SLICES[1]]}, "w1", running=("w0",))
    assert told(snapshot, w1="n1") == []
    (scattered,) = told(snapshot, w1="n2")
    assert scattered.startswith("w/0: ")


def test_a_slice_that_has_to_lie_together_needs_a_network() -> None:
    bare = cluster({"subGroups": [SLICES[1]]}, "w0", "w1", records=())
    assert told(bare, w0="n0", w1="n0") == ["w/0 wants to be gathered, and there is no network topology"]
