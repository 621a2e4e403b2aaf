"""A proof about a damage is one about a plan only where the plan's own victims cost that."""

from __future__ import annotations

import json
import random
from pathlib import Path

import attrs
import pytest

from campaigns.plans import asked
from campaigns.worlds import THEMES, draw_world
from koordcore import ClusterSnapshot, Node, Pod, PodKey, PreemptionRules, schedule
from koordcore.checking.costs import cost_fault
from koordcore.cli import main
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Victim
from koordcore.model.preemption import PreemptionPlan
from tests.manifests.builders import container, node, obj, pod


def planned() -> tuple[ClusterSnapshot, PreemptionPlan]:
    """A cheap pod on one node leaves, and not the dear one on the other."""
    room, ask = {"cpu": 4000, "pods": 9}, {"cpu": 4000}
    running = [
        Pod(name=name, requests=ask, priority=worth, node_name=at)
        for name, worth, at in (("cheap", 1, "a"), ("dear", 900, "b"))
    ]
    snapshot = ClusterSnapshot(
        nodes=[Node(name=name, allocatable=room) for name in "ab"],
        pending=[Pod(name="p", requests=ask, priority=1000)],
    ).assume(*running)
    (plan,) = schedule(snapshot, preempt=PreemptionRules()).preemptions
    assert cost_fault(snapshot, plan) == ""
    return snapshot, plan


def test_a_plan_that_costs_more_is_not_what_was_proven() -> None:
    snapshot, plan = planned()
    dear = attrs.evolve(plan.victims[0], pod=PodKey("default", "dear"), node="b")
    other = attrs.evolve(plan, victims=(dear,))
    assert cost_fault(snapshot, other) == "default/dear has priority 900, and not 1"
    own = attrs.evolve(plan, victims=(attrs.evolve(dear, priority=900),))
    assert cost_fault(snapshot, own) == "the plan's damage says highest 1, its victims make 900"
    honest = attrs.evolve(own, damage=attrs.evolve(plan.damage, highest=900, priorities=900))
    assert cost_fault(snapshot, honest).startswith("it is about a damage of (0, 1, 1, 1, 1, 0, 0), and not")


@pytest.mark.parametrize(
    ("field", "said"),
    [("pods", "its victims make 1"), ("priorities", "its victims make 1"), ("moves", "its victims make 0")],
)
def test_every_part_of_the_damage_is_added_up(field: str, said: str) -> None:
    snapshot, plan = planned()
    assert isinstance(plan.victims[0], Victim)
    wrong = attrs.evolve(plan, damage=attrs.evolve(plan.damage, **{field: 7}))
    assert cost_fault(snapshot, wrong) == f"the plan's damage says {field} 7, {said}"


@pytest.mark.solver
@pytest.mark.parametrize("relocation", ["never", "first"])
def test_what_is_decided_costs_what_it_says(relocation: str) -> None:
    seen = 0
    for seed in range(40):
        themes = {
            **dict.fromkeys(THEMES, 0.0),
            "gangs": 1.0,
            "network": seed % 2,
            "quotas": 0.4,
            "cards": 0.3,
        }
        case = {**draw_world(random.Random(f"costs {seed}"), themes), "preempt": {"relocation": relocation}}
        snapshot = snapshot_from_objects(case["objects"]).snapshot
        for plan in asked(case, snapshot).preemptions:
            assert cost_fault(snapshot, plan) == ""
            seen += 1
    assert seen > 3


def test_verify_does_not_repeat_a_proof_for_a_dearer_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = [container(requests={"cpu": "8"})]
    objects = [
        node("a"),
        node("b"),
        pod("cheap", containers=box, priority=1, nodeName="a"),
        pod("dear", containers=box, priority=900, nodeName="b"),
        pod("p", containers=box, priority=1000),
    ]
    dump, proofs, plan = (tmp_path / name for name in ("dump.json", "proofs.json", "plan.json"))
    dump.write_text(json.dumps({**obj("List", ""), "items": objects}))
    assert main(["schedule", str(dump), "--preempt", "-o", "json", "--proofs", str(proofs), "-q"]) in (0, 1)
    text = capsys.readouterr().out
    plan.write_text(text)
    check = ["verify", str(dump), "--plan", str(plan), "--proofs", str(proofs)]
    assert main(check) == 0
    assert "Proofs: 1 of 1 repeated here" in capsys.readouterr().out
    record = json.dumps(json.loads(text))
    for cheap, dear in (
        ("default/cheap", "default/dear"),
        ('"node": "a"', '"node": "b"'),
        ('p": "a"', 'p": "b"'),
    ):
        assert cheap in record
        record = record.replace(cheap, dear)
    plan.write_text(record)
    assert main(check) == 1
    told = capsys.readouterr().out
    assert "REJECTED" in told
    assert "default/dear has priority 900, and not 1" in told
