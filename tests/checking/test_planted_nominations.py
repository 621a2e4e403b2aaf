"""Members of gangs that are nominated to where they could not start once the victims have gone are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import (
    Bound,
    ClusterSnapshot,
    Nominated,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Waiting,
    schedule,
    verify,
)
from koordcore.checking.check import check_result
from koordcore.model.decisions import PodDecision, Victim
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from tests.checking.test_planted_gangs import MUST, NETWORK, cluster, group, in_racks, pod
from tests.checking.test_planted_parts import cluster as in_parts

PAIRS = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
BOTH = json.dumps(["default/a", "default/b"])
LATER = "once the victims have gone: "


def told(
    snapshot: ClusterSnapshot, *, bound: dict[str, str] | None = None, gone: Sequence[str] = (), **places: str
) -> list[str]:
    """What is wrong with the gangs of pods that are nominated, while others are bound in the same call."""
    pods = {one.name: one for one in snapshot.pending}
    running = {one.name: one for one in snapshot.bound_pods()}
    victims = tuple(Victim(running[name].key, "n0", 0, "default/a") for name in gone)
    nominated = [Nominated(pod=pods[name].key, node=at, victims=()) for name, at in places.items()]
    decisions: list[PodDecision] = [
        attrs.evolve(nominated[0], victims=victims),
        *nominated[1:],
        *(Bound(pod=pods[name].key, node=at) for name, at in (bound or {}).items()),
    ]
    after = snapshot.assume(*(pods[name].at(at) for name, at in (bound or {}).items()))
    result = ScheduleResult(decisions=tuple(decisions), snapshot=after)
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    return [f"{one.subject} {one.message.removeprefix(LATER)}" for one in found if LATER in one.message]


def test_as_many_are_nominated_as_start_together() -> None:
    snapshot = cluster(group("a", 2), pending=("a1", "a2", "a3"))
    short = ["default/a 1 of at least 2 members of default/a have a node"]
    assert told(snapshot, a1="n0", a2="n2") == []
    assert told(snapshot, a1="n0") == short
    assert told(snapshot, bound={"a3": "n1"}, a1="n0") == []
    unknown = cluster(pending=("a1",))
    assert told(unknown, a1="n0") == ["default/a has a new member, and nothing configures it"]


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        ("once-satisfied", []),
        ("waiting-and-running", ["default/a 2 of at least 3 members of default/a have a node"]),
        ("only-waiting", ["default/a 1 of at least 3 members of default/a have a node"]),
    ],
)
def test_who_runs_counts_as_the_gang_says(policy: str, wrong: list[str]) -> None:
    snapshot = cluster(group("a", 3, match_policy=policy), pending=("a1", "a2"), running=("a0",))
    assert told(snapshot, a1="n0") == wrong


def test_who_keeps_a_place_counts() -> None:
    snapshot = cluster(group("a", 2, mode="NonStrict"), pending=("a1", "a2"))
    first, second = snapshot.pending
    held = Bound(pod=first.key, node="n0", annotations=immutabledict({WAITS_AT_PERMIT: "true"}))
    after = snapshot.assume(attrs.evolve(first.at("n0"), annotations={WAITS_AT_PERMIT: "true"}))
    decisions = (
        Waiting(pod=first.key, reason="its gang", held=held),
        Nominated(pod=second.key, node="n1", victims=()),
    )
    result = ScheduleResult(decisions=decisions, snapshot=after)
    assert not [one for one in verify(snapshot, result) if LATER in one.message]


def test_the_gangs_of_a_group_are_nominated_together() -> None:
    every = cluster(*(group(name, 1, groups=BOTH) for name in "ab"), pending=("a1", "b1"))
    assert told(every, a1="n0", b1="n2") == []
    assert told(every, a1="n0") == ["default/a 0 of at least 1 members of default/b have a node"]
    one = cluster(*(group(name, 1, groups=BOTH, min_groups="1") for name in "ab"), pending=("a1", "b1"))
    assert told(one, a1="n0") == []


def test_nominated_members_lie_in_one_domain_beside_those_that_run() -> None:
    snapshot = cluster(NETWORK, group("a", 2, MUST), pending=("a1", "a2"))
    assert told(snapshot, a1="n2", a2="n3") == []
    (wrong,) = told(snapshot, a1="n0", a2="n3")
    assert "Rack" in wrong
    (wrong,) = told(snapshot, bound={"a1": "n0"}, a2="n3")
    assert "Rack" in wrong
    started = cluster(NETWORK, group("a", 2, MUST), pending=("a1",), running=("a0",))
    assert told(started, a1="n1") == []
    (wrong,) = told(started, a1="n2")
    assert "Rack" in wrong
    # Nobody knows of a gang that loses members itself where it begins then.
    assert told(started, gone=("a0",), a1="n2") == []


def test_nominated_members_come_in_multiples() -> None:
    snapshot = cluster(NETWORK, group("a", 2, PAIRS), pending=("a1", "a2", "a3", "a4"))
    assert told(snapshot, a1="n0", a2="n1", a3="n2", a4="n2") == []
    assert told(snapshot, a1="n0", a2="n1", a3="n2") == [
        "default/a Rack/r1 holds 1 members, no multiple of 2",
    ]
    # Beside one that terminates there are two, and one once it has gone.
    leaves = attrs.evolve(pod("a0"), deleted=datetime(2026, 1, 1, tzinfo=UTC))
    ending = in_racks([pod("a1")], [leaves], NETWORK, group("a", 2, PAIRS))
    assert told(ending, a1="n1") == []


def test_parts_are_nominated_whole_and_in_their_rack() -> None:
    entry = {"name": "w", "size": 2, "gatherStrategy": [MUST]}
    snapshot = in_parts({"subGroups": [{"name": "lead"}, entry]}, "lead0", "w0", "w1")
    assert told(snapshot, lead0="n0", w0="n2", w1="n3") == []
    assert told(snapshot, w0="n2", w1="n3") == ["default/g 1 of at least 2 parts have started"]
    (wrong,) = told(snapshot, lead0="n0", w0="n0", w1="n2")
    assert wrong.startswith("default/g w/0: ")


def evicting(*records: Any, waiting: int, **rules: Any) -> tuple[ClusterSnapshot, ScheduleResult]:
    """A gang of which each member takes a node, for whom one pod leaves each."""
    members = [
        attrs.evolve(pod(f"a{number}"), requests={"cpu": 9000}, priority=9) for number in range(waiting)
    ]
    snapshot = in_racks(members, [], NETWORK, *records)
    olds = [Pod(name=f"old-{number}", requests={"cpu": 8000}) for number in range(4)]
    full = snapshot.assume(*(old.at(f"n{number}") for number, old in enumerate(olds)))
    return full, schedule(full, preempt=PreemptionRules(**rules))


@pytest.mark.parametrize("members", ["minimum", "each", "all"])
def test_a_plan_whose_member_is_moved_or_forgotten_is_refused(members: str) -> None:
    """Two of four nodes make room for a pair in one rack."""
    snapshot, result = evicting(group("a", 2, MUST), waiting=2, members=members)
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    (here, there) = plan.nominations.items()
    rack = {"n0": "n2", "n1": "n2", "n2": "n0", "n3": "n0"}
    moved = {here[0]: here[1], there[0]: rack[there[1]]}
    wrong = attrs.evolve(
        result,
        preemptions=(attrs.evolve(plan, nominations=immutabledict(moved)),),
        decisions=tuple(
            attrs.evolve(one, node=moved[str(one.pod)]) if isinstance(one, Nominated) else one
            for one in result.decisions
        ),
    )
    assert any(LATER in one.message and "Rack" in one.message for one in verify(snapshot, wrong))
    alone = tuple(one for one in result.decisions if str(one.pod) == here[0])
    found = verify(snapshot, attrs.evolve(result, decisions=alone))
    assert f"{LATER}1 of at least 2 members of default/a have a node" in {one.message for one in found}
