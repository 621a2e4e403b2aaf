"""Evictions for gangs with parts: where the parts may lie, and beside gangs of their group that have none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, NodeState, Pod, PreemptionRules
from koordcore.model.gangs import PodGroup
from koordcore.model.preemption import NotHelpful, PreemptionPlan
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import PreemptionProblem
from koordcore.result import ScheduleResult
from koordcore.scheduling import preempt
from koordcore.snapshot.changes import PodEnded
from tests.scheduling.test_sub_groups import MUST, NETWORK, group, legal, nodes, pods

WORKERS: dict[str, object] = {"name": "w", "size": 2, "gatherStrategy": MUST}
SLICE = {"subGroups": [{"name": "leader"}, WORKERS]}


def evicting(
    there: list[Node],
    waiting: list[Pod],
    *groups: PodGroup,
    cheap: Sequence[str] = (),
    running: Sequence[Pod] = (),
    members: str = "minimum",
) -> ScheduleResult:
    """Make room for pods on nodes that are full; who runs on some of them is less important."""
    snapshot = ClusterSnapshot(
        nodes=there,
        pending=[attrs.evolve(one, priority=9) for one in waiting],
        records=[NETWORK, *groups],
    )
    olds = [
        Pod(name=f"old-{node.name}", requests={"nvidia.com/gpu": 8}, priority=int(node.name not in cheap))
        for node in there
    ]
    full = snapshot.assume(*(old.at(node.name) for old, node in zip(olds, there, strict=True)))
    placed = zip(running, there, strict=False)
    full = full.assume(*(one if one.bound else one.at(node.name) for one, node in placed))
    return legal(full, preempt=PreemptionRules(members=members))


def test_a_slice_does_not_reach_beyond_its_rack_for_cheaper_victims() -> None:
    """The racks of one node have the least important pods; one of them is for the leader."""
    waiting = [*pods("g", "leader", 1), *pods("g", "w", 2)]
    result = evicting(nodes(1, 2, 1), waiting, group("g", 3, SLICE), cheap=("r0-0", "r2-0"))
    (plan,) = result.preemptions
    assert plan.nominations == {"default/g-leader0": "r2-0", "default/g-w0": "r1-0", "default/g-w1": "r1-1"}
    assert plan.certificate.proven


def test_room_is_made_for_a_gang_with_parts_and_one_without_in_the_same_group() -> None:
    names = json.dumps(["default/g", "default/h"])
    groups = [group("g", 3, SLICE, groups=names), group("h", 1, None, groups=names)]
    waiting = [*pods("g", "leader", 1), *pods("g", "w", 2), *pods("h", "", 1)]
    result = evicting(nodes(1, 2, 1), waiting, *groups)
    (plan,) = result.preemptions
    assert {plan.nominations[f"default/g-w{number}"] for number in range(2)} == {"r1-0", "r1-1"}
    assert len(plan.nominations) == 4


def test_nobody_leaves_for_a_member_beside_a_part_that_is_too_small() -> None:
    """No minimum of the gang itself is short; one of the two workers is."""
    parts = {"subGroups": [{"name": "w", "minMember": 2}]}
    waiting = [*pods("g", "", 1), *pods("g", "w", 1)]
    result = evicting(nodes(1, 1), waiting, group("g", 0, parts), members="each")
    assert result.preemptions == ()


def test_nobody_leaves_for_a_member_beside_which_those_that_run_are_no_multiple() -> None:
    """One member runs in each of two racks that should hold pairs; one more waits, and another gang's."""
    pairs = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
    rules = json.dumps({"gatherStrategy": [pairs]})
    names = json.dumps(["default/g", "default/h"])
    groups = [
        group("g", 3, None, groups=names, min_groups="2", network_topology_spec=rules),
        group("h", 1, None, groups=names, min_groups="2"),
    ]
    there, running = nodes(1, 1, 1), pods("g", "w", 2, cards=0)
    waiting = [*pods("g", "v", 1), *pods("h", "", 1)]
    result = evicting(there, waiting, *groups, running=running, members="each")
    assert result.preemptions == ()


def test_in_a_network_without_any_node_nobody_leaves_for_a_part_that_lies_together() -> None:
    there = [attrs.evolve(node, labels={}) for node in nodes(1, 1)]
    result = evicting(there, pods("g", "w", 2), group("g", 2, {"subGroups": SLICE["subGroups"][1:]}))
    assert result.preemptions == ()


EITHER = {"groups": json.dumps(["default/g", "default/h"]), "min_groups": "1"}


@pytest.mark.parametrize(
    ("groups", "waiting", "nominated"),
    [
        (
            [
                group("g", 2, None, network_topology_spec=json.dumps({"gatherStrategy": MUST}), **EITHER),
                group("h", 1, None, **EITHER),
            ],
            [*pods("g", "", 2), *pods("h", "", 1)],
            {"h-0"},
        ),
        (
            [
                group(
                    "g",
                    1,
                    {
                        "minSubGroups": 1,
                        "subGroups": [{"name": "w", "minMember": 2, "gatherStrategy": MUST}, {"name": "v"}],
                    },
                )
            ],
            [*pods("g", "w", 2), *pods("g", "v", 1)],
            {"g-v0"},
        ),
        (
            [group("g", 2, {"subGroups": [{**WORKERS, "minReplicas": 1}]})],
            [*pods("g", "w", 2), *(attrs.evolve(one, name=f"z-{one.name}") for one in pods("g", "w", 2, 4))],
            {"z-g-w0", "z-g-w1"},
        ),
    ],
    ids=["gangs", "entries", "slices"],
)
@pytest.mark.parametrize("members", ["minimum", "each"])
def test_where_there_is_no_room_for_the_first_that_are_enough_it_is_made_for_others(
    groups: list[PodGroup], waiting: list[Pod], nominated: set[str], members: str
) -> None:
    """No rack of one node takes two members that need all of it."""
    result = evicting(nodes(1, 1), waiting, *groups, members=members)
    (plan,) = result.preemptions
    assert {key.removeprefix("default/") for key in plan.nominations} == nominated
    assert plan.certificate.proven


def test_choices_that_are_alike_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PreemptionProblem] = []

    def plan(problem: PreemptionProblem, **more: Any) -> PreemptionPlan | NotHelpful:
        asked.append(problem)
        return plan_preemption(problem, **more)

    monkeypatch.setattr(preempt, "plan_preemption", plan)
    slices = {"subGroups": [{**WORKERS, "minReplicas": 4}]}
    assert evicting(nodes(1, 1), pods("g", "w", 16), group("g", 8, slices)).preemptions == ()
    assert len(asked) == 1


@pytest.mark.parametrize(("members", "more"), [("minimum", []), ("each", ["g-0"])])
def test_one_more_gang_is_no_reason_to_evict_where_those_that_run_are_enough(
    members: str, more: list[str]
) -> None:
    groups = [group(name, 1, None, match_policy="waiting-and-running", **EITHER) for name in "gh"]
    running = pods("h", "", 1, cards=0)
    result = evicting(nodes(1, 1), pods("g", "", 1), *groups, running=running, members=members)
    assert [key.removeprefix("default/") for plan in result.preemptions for key in plan.nominations] == more


def test_room_is_made_for_parts_of_a_gang_that_has_no_minimum_of_its_own() -> None:
    parts = {"subGroups": [{"name": "w", "minMember": 2}]}
    result = evicting(nodes(1, 1), pods("g", "w", 2), group("g", 0, parts))
    assert {*result.preemptions[0].nominations} == {"default/g-w0", "default/g-w1"}


def test_a_member_that_completes_a_pair_gets_room_beside_one_that_runs_alone() -> None:
    pairs = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
    rules = json.dumps({"gatherStrategy": [pairs]})
    there, running = nodes(1, 1), pods("g", "w", 1, cards=0)
    own = group("g", 1, None, network_topology_spec=rules)
    result = evicting(there, pods("g", "v", 1), own, running=running, members="each")
    assert dict(result.preemptions[0].nominations) == {"default/g-v0": "r0-0"}


def test_those_that_run_have_to_be_pairs_as_well_once_the_victims_have_gone() -> None:
    """Two more would find cheaper victims in the other rack, beside one that runs alone in the first."""
    pairs = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
    rules = json.dumps({"gatherStrategy": [pairs]})
    there, running = nodes(1, 1), pods("g", "w", 1, cards=0)
    own = group("g", 2, None, network_topology_spec=rules, match_policy="waiting-and-running")
    result = evicting(there, pods("g", "v", 2, cards=4), own, running=running, cheap=["r1-0"])
    assert dict(result.preemptions[0].nominations) == {"default/g-v0": "r0-0"}


@pytest.mark.parametrize(("members", "room"), [("minimum", 0), ("each", 2), ("all", 2)])
def test_all_members_of_a_gathered_gang_that_has_started_get_room_where_all_are_asked_for(
    members: str, room: int
) -> None:
    rules = json.dumps({"gatherStrategy": [{"layer": "Rack", "strategy": "PreferGather"}]})
    there, running = nodes(1, 1), pods("g", "w", 1, cards=0)
    own = group("g", 1, None, network_topology_spec=rules)
    result = evicting(there, pods("g", "v", 2), own, running=running, members=members)
    assert sum(len(plan.nominations) for plan in result.preemptions) == room


def test_the_gang_for_which_room_was_made_has_it_though_others_of_its_group_come_to_more() -> None:
    """``h`` and ``i`` would be two gangs in the room of one."""
    names = json.dumps(["default/g", "default/h", "default/i"])
    groups = [group(name, 1 + (name == "g"), None, groups=names, min_groups="1") for name in "ghi"]
    waiting = [*pods("g", "", 2), *pods("h", "", 1), *pods("i", "", 1)]
    first = evicting(nodes(1, 1), waiting, *groups)
    (plan,) = first.preemptions
    assert {*plan.nominations} == {"default/g-0", "default/g-1"}
    left = first.snapshot.apply(*(PodEnded(victim.pod) for victim in plan.victims))
    assert {str(one.pod): one.node for one in legal(left).bound} == dict(plan.nominations)


def test_a_part_for_which_room_was_made_has_it_and_others_come_beside_it() -> None:
    parts = {"subGroups": [{**WORKERS, "minReplicas": 1}]}
    first = evicting(nodes(1, 2), pods("g", "w", 4), group("g", 2, parts))
    (plan,) = first.preemptions
    assert {*plan.nominations.values()} == {"r1-0", "r1-1"}
    wide = [attrs.evolve(node, allocatable={**node.allocatable, "nvidia.com/gpu": 24}) for node in nodes(1)]
    gone = first.snapshot.apply(*(PodEnded(victim.pod) for victim in plan.victims))
    there = NodeState(wide[0], gone.node("r0-0").pods)
    bound = {str(one.pod): one.node for one in legal(gone.with_nodes(there)).bound}
    assert bound == {**plan.nominations, "default/g-w2": "r0-0", "default/g-w3": "r0-0"}


@pytest.mark.parametrize(("policy", "more"), [("only-waiting", 0), ("waiting-and-running", 1)])
def test_nobody_leaves_for_a_member_that_could_not_start_by_itself_later(policy: str, more: int) -> None:
    """Two start now; where those that wait alone count, one that is left is no minimum."""
    there = [
        *nodes(1),
        attrs.evolve(nodes(1, 1)[1], allocatable={"cpu": 64000, "nvidia.com/gpu": 24, "pods": 20}),
    ]
    own = group("g", 2, None, match_policy=policy)
    result = evicting(there, pods("g", "v", 3), own, members="each")
    assert (len(result.bound), len(result.preemptions)) == (2, more)


@pytest.mark.parametrize("members", ["minimum", "each", "all"])
def test_nobody_leaves_for_a_gang_that_waits_for_a_gate_of_another(members: str) -> None:
    gated = [attrs.evolve(one, gates=("later",)) for one in pods("h", "", 1)]
    groups = [group(name, 1, None, **EITHER) for name in "gh"]
    result = evicting(nodes(1, 1), [*pods("g", "", 1), *gated], *groups, members=members)
    assert result.preemptions == ()


def test_more_gangs_than_have_to_start_get_room_where_fewer_are_no_pair() -> None:
    """Any gang of the group is enough by itself, and has one member, where racks hold pairs."""
    pairs = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
    rules = json.dumps({"gatherStrategy": [pairs]})
    names = json.dumps([f"default/{name}" for name in "ghi"])
    groups = [
        group(name, 1, None, groups=names, min_groups="1", network_topology_spec=rules) for name in "ghi"
    ]
    waiting = [one for name in "ghi" for one in pods(name, "", 1)]
    (plan,) = evicting(nodes(2, 1), waiting, *groups).preemptions
    assert {*plan.nominations.values()} == {"r0-0", "r0-1"}
    assert evicting(nodes(1, 1), waiting, *groups).preemptions == ()


@pytest.mark.parametrize(("cheap", "rack"), [(("r0-1",), "r0"), (("r1-1",), "r1")])
def test_members_of_a_gang_that_runs_in_two_racks_get_room_in_one_of_them(
    cheap: tuple[str, ...], rack: str
) -> None:
    """All that are new lie together, beside some that run; a third rack has nobody of them."""
    rules = json.dumps({"gatherStrategy": MUST})
    there = nodes(2, 2, 1)
    running = [one.at(node) for one, node in zip(pods("g", "v", 2, cards=0), ("r0-0", "r1-0"), strict=True)]
    gang = group("g", 3, None, network_topology_spec=rules, match_policy="waiting-and-running")
    result = evicting(there, pods("g", "", 1), gang, running=running, cheap=(*cheap, "r2-0"))
    (plan,) = result.preemptions
    assert plan.nominations == {"default/g-0": f"{rack}-1"}
    assert plan.certificate.proven
