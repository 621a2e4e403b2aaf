"""Pods by label: a selector finds the pods that it matches, and is held against no others."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from koordcore import Pod
from koordcore.descheduling.budgets import move_groups
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.labelled import LabelledPods
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator

TEXTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from("abc"),
    st.sampled_from([SelectorOperator.IN, SelectorOperator.NOT_IN]),
    st.tuples(st.sampled_from("xy")),
)
SELECTORS = st.builds(LabelSelector, TEXTS, st.lists(REQUIREMENTS, max_size=1).map(tuple))
SPACES = st.sampled_from(["default", "other"])


@given(st.lists(st.tuples(SPACES, TEXTS), max_size=9), SPACES, SELECTORS)
def test_a_selector_finds_the_pods_that_it_matches(
    said: list[tuple[str, dict[str, str]]], space: str, selector: LabelSelector
) -> None:
    pods = [Pod(name=f"p{at}", namespace=own, labels=labels) for at, (own, labels) in enumerate(said)]
    wanted = [pod for pod in pods if pod.namespace == space and selector.matches(pod.labels)]
    assert LabelledPods(pods).selected(space, selector) == wanted


def test_budgets_of_many_applications_are_not_held_against_the_pods_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0
    matches = LabelSelector.matches

    def counted(selector: LabelSelector, labels: dict[str, str]) -> bool:
        nonlocal asked
        asked += 1
        return matches(selector, labels)

    apps = [f"a{number}" for number in range(50)]
    pods = [Pod(name=f"{app}-{number}", labels={"app": app}) for app in apps for number in range(3)]
    budgets = [PodDisruptionBudget(name=app, selector=LabelSelector({"app": app})) for app in apps]
    monkeypatch.setattr(LabelSelector, "matches", counted)
    groups = move_groups(pods, budgets=budgets)
    assert {(one.name, len(one.pods)) for one in groups if "Budget" in one.name} == {
        (f"PodDisruptionBudget default/{app}", 3) for app in apps
    }
    assert asked == len(pods)
