"""The other campaigns: they draw by seed, fail in known ways at most, and see what they are to see."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from campaigns.api import Api
from campaigns.brute import best_gathering, cheapest_eviction
from campaigns.case import Campaign, Case
from campaigns.cli import Commands
from campaigns.corrupt import Corruptions
from campaigns.groups import Groups
from campaigns.laws import Laws
from campaigns.manifests import Manifests
from campaigns.proofs import Proofs
from campaigns.properties import Properties
from campaigns.run import CAMPAIGNS, case_of, check_case, stored_failures
from tests.campaigns.test_plans import pod

pytestmark = pytest.mark.solver


@pytest.mark.parametrize(
    ("campaign", "cases"),
    [
        (Laws(), 3),
        (Manifests(), 6),
        (Api(), 30),
        (Proofs(), 4),
        (Groups(), 1),
        (Commands(), 12),
        (Corruptions(), 4),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_few_cases_fail_in_known_ways_only(campaign: Campaign, cases: int) -> None:
    known = {one["kind"] for one in stored_failures()}
    for number in range(cases):
        case = case_of(campaign, 1, number)
        assert case == case_of(campaign, 1, number)
        found = check_case(campaign, case, campaign.laws, Counter())
        assert {one.kind for one in found} <= known


def test_every_stored_failure_belongs_to_a_law_of_its_campaign() -> None:
    for line in stored_failures():
        campaign = CAMPAIGNS[line["campaign"]]
        assert line["law"] in (*campaign.laws, *campaign.open_laws)
        assert line["kind"].startswith(line["law"])


def room(name: str, block: str, cpu: int) -> dict[str, Any]:
    labels = {"net/spine": "s", "net/block": block}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": {"cpu": f"{cpu}m", "pods": "9"}},
    }


def test_trying_everything_finds_the_tightest_block() -> None:
    nodes = [room("a", "b1", 2000), room("b", "b1", 1000), room("c", "b2", 2000)]
    members = [pod(f"g-{number}", 1000) for number in range(2)]
    assert best_gathering(nodes, members, 2) == (-2, 1, 1, 1, 2, 2, 5)
    assert best_gathering(nodes, [pod("g", 3000)], 1) is None


def test_trying_everything_finds_the_least_damage() -> None:
    nodes = [room("a", "b", 2000), room("b", "b", 2000)]
    running = [
        pod("low", 2000, nodeName="a"),
        pod("high", 2000, nodeName="b"),
    ]
    running[1]["spec"]["priority"] = 7
    asking = pod("g", 1000)
    asking["spec"]["priority"] = 9
    assert cheapest_eviction([*nodes, *running], [asking], 1) == (0, 0, 1, 1, 0, 0, 0)
    asking["spec"]["priority"] = 0
    assert cheapest_eviction([*nodes, *running], [asking], 1) is None


def test_mutations_change_something() -> None:
    campaign = Manifests()
    drawn = [campaign.draw(random.Random(f"m {number}")) for number in range(8)]
    assert len({str(one["objects"]) for one in drawn}) == len(drawn)


def test_a_case_is_drawn_the_same_after_others_were_broken() -> None:
    campaign = Manifests()
    first = [case_of(campaign, 5, number) for number in range(30)]
    assert first == [case_of(campaign, 5, number) for number in range(30)]


def test_a_defect_of_a_command_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    case: Case = {
        "objects": [room("a", "b", 1000)],
        "plain": [],
        "words": ["inspect", "@dump"],
        "cut": [1.0, ""],
    }
    assert not check_case(Commands(), case, Commands.laws, Counter())

    def broken(*_: object) -> None:
        raise ZeroDivisionError("\x1b[31m")

    monkeypatch.setattr("koordcore.cli.inspect.run", broken)
    (found,) = check_case(Commands(), case, Commands.laws, Counter())
    assert found.law == "answers"
    assert "ends with 70: koordcore: ZeroDivisionError" in found.what


def test_a_corruption_that_verify_lets_pass_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.corrupt.verify", lambda *_: ())
    case, figures = case_of(Corruptions(), 1, 0), Counter[tuple[str, str]]()
    found = check_case(Corruptions(), case, Corruptions.laws, figures)
    illegal = sum(number for (_, what), number in figures.items() if what.endswith(" illegal"))
    assert {one.law for one in found} == {"found"}
    assert len(found) == illegal


def test_a_law_of_the_tests_is_held_to_examples_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which they are follows from the seed alone; what fails is told with the smallest example."""
    seen: list[int] = []

    @given(st.integers(0, 10**9))
    @settings(max_examples=33)
    def few_are_large(number: int) -> None:
        seen.append(number)
        assert number < 10**8

    monkeypatch.setattr("campaigns.properties.properties", lambda: {"here:few": few_are_large})
    drawn = case_of(Properties(), 1, 0)
    (found,) = check_case(Properties(), drawn, Properties.laws, Counter())
    assert "here:few: " in found.what
    assert "number=100000000" in found.what
    first, again = list(seen), check_case(Properties(), drawn, Properties.laws, Counter())
    assert again == [found]
    assert seen == 2 * first
    check_case(Properties(), {**drawn, "seed": drawn["seed"] + 1}, Properties.laws, Counter())
    assert seen[2 * len(first) :] != first
