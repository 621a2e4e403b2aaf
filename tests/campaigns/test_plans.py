"""The campaigns' own parts: worlds by seed, a judge that sees faults, shrinking, and what once failed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import attrs
import pytest

from campaigns.case import Case, Failure
from campaigns.judge import Judge
from campaigns.plans import Plans, asked
from campaigns.run import CAMPAIGNS, case_of, check_case, main, stored_failures
from campaigns.shrink import shrunk
from campaigns.vain import refused_in_vain
from koordcore import Bound, ScheduleResult
from koordcore.manifests import snapshot_from_objects

pytestmark = pytest.mark.solver

CAMPAIGN = Plans()


def planned(case: Case) -> ScheduleResult:
    return asked(case, snapshot_from_objects(case["objects"]).snapshot)


MENDED = [one for one in stored_failures() if not one.get("open")]


@pytest.mark.parametrize("line", MENDED, ids=[f"{number}-{one['law']}" for number, one in enumerate(MENDED)])
def test_what_once_failed_holds(line: dict[str, Any]) -> None:
    campaign = CAMPAIGNS[line["campaign"]]
    assert check_case(campaign, line["case"], [line["law"]], Counter()) == []


def test_a_few_cases_fail_in_known_ways_only() -> None:
    known = {one["kind"] for one in stored_failures()}
    for number in range(6):
        found = check_case(CAMPAIGN, case_of(CAMPAIGN, 1, number), CAMPAIGN.laws, Counter())
        assert {one.kind for one in found} <= known


def test_a_seed_gives_the_same_cases() -> None:
    assert case_of(CAMPAIGN, 4, 2) == case_of(CAMPAIGN, 4, 2) != case_of(CAMPAIGN, 4, 3)
    json.dumps(case_of(CAMPAIGN, 4, 2))


def node(name: str, **allocatable: str) -> dict[str, Any]:
    room = {"cpu": "4000m", "memory": "8Gi", "pods": "10", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": room},
    }


def pod(name: str, cpu: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}, "annotations": {}},
        "spec": {"containers": [container], "priority": 0, **spec},
        "status": {},
    }


def case(*objects: dict[str, Any]) -> Case:
    return {
        "objects": list(objects),
        "policy": None,
        "preempt": None,
        "now": "2026-11-01T12:00:00Z",
        "seed": 1,
    }


def moved(result: ScheduleResult, node_name: str) -> ScheduleResult:
    """The plan with every pod on one node."""
    decisions = tuple(
        attrs.evolve(one, node=node_name) if isinstance(one, Bound) else one for one in result.decisions
    )
    return attrs.evolve(result, decisions=decisions)


AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
TAINTED = node("b") | {"spec": {"taints": [{"key": "only", "value": "a", "effect": "NoSchedule"}]}}
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        ([node("a"), node("b", cpu="1000m"), pod("p", 2000)], "2000 cpu used, 1000 allocatable"),
        ([node("a"), TAINTED, pod("p", 100)], "taint"),
        ([node("a"), node("b"), pod("p", 100, nodeSelector={"kubernetes.io/hostname": "a"})], "selector"),
        ([node("a"), node("b"), pod("p", 100, affinity=AWAY), pod("q", 100)], "keeps away from"),
        ([node("a"), node("b"), pod("p", 0, **PORT), pod("q", 0, **PORT)], "both have port 80"),
        ([node("a"), node("b"), pod("p", 2500), pod("q", 2500)], "5000 cpu used, 4000 allocatable"),
    ],
)
def test_the_judge_sees_a_planted_fault(objects: list[dict[str, Any]], fault: str) -> None:
    drawn = case(*objects)
    result = planned(drawn)
    assert list(Judge(drawn, result).faults()) == []
    assert any(fault in what for what in Judge(drawn, moved(result, "b")).faults())


def test_the_judge_sees_who_was_forgotten() -> None:
    drawn = case(node("a"), pod("p", 100))
    result = attrs.evolve(planned(drawn), decisions=())
    assert list(Judge(drawn, result).faults()) == ["default/p has 0 decisions"]


def test_the_judge_sees_who_was_refused_in_vain() -> None:
    small, large = case(node("a", cpu="100m"), pod("p", 200)), case(node("a"), pod("p", 200))
    refused = planned(small)
    assert list(refused_in_vain(Judge(small, refused))) == []
    assert "could take it" in next(iter(refused_in_vain(Judge(large, refused))))


def test_what_is_not_needed_for_a_failure_is_left_out() -> None:
    drawn = case_of(CAMPAIGN, 4, 2)
    name = next(one["metadata"]["name"] for one in drawn["objects"] if one["kind"] == "Node")

    def fails(smaller: Case) -> bool:
        return any(one["metadata"]["name"] == name for one in smaller["objects"])

    (left,) = shrunk(drawn, fails)["objects"]
    assert left["metadata"] == {"name": name}


def test_failures_of_one_kind_differ_in_names_and_numbers_only() -> None:
    one = Failure("legal", "n1: 2000 cpu used, 1000 allocatable")
    assert one.kind == Failure("legal", "n2: 50 cpu used, 7 allocatable").kind
    assert one.kind != Failure("legal", "n2: 50 pods used, 7 allocatable").kind


def test_the_command_says_what_was_met(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["plans", "--seed", "1", "--cases", "3"])
    told = capsys.readouterr().out
    assert status == 0
    assert told.startswith("plans: seed 1, 3 cases, ")
    assert "  outcome: Bound " in told
