"""Selectors as Kubernetes matches them."""

from __future__ import annotations

import pytest

from koordcore import ModelError
from koordcore.model.selectors import (
    EVERYTHING,
    NOTHING,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorOperator,
)

Op = SelectorOperator


@pytest.mark.parametrize(
    ("requirement", "labels", "expected"),
    [
        (Requirement("a", Op.IN, ("1", "2")), {"a": "2"}, True),
        (Requirement("a", Op.IN, ("1",)), {}, False),
        (Requirement("a", Op.NOT_IN, ("1",)), {}, True),
        (Requirement("a", Op.NOT_IN, ("1",)), {"a": "1"}, False),
        (Requirement("a", Op.EXISTS), {"a": ""}, True),
        (Requirement("a", Op.DOES_NOT_EXIST), {"a": ""}, False),
        (Requirement("a", Op.GT, ("5",)), {"a": "10"}, True),
        (Requirement("a", Op.LT, ("5",)), {"a": "10"}, False),
        (Requirement("a", Op.GT, ("x",)), {"a": "10"}, False),
        (Requirement("a", Op.GT, ("5",)), {"a": "ten"}, False),
        (Requirement("a", Op.GT, ("5",)), {}, False),
        (Requirement("a", Op.GT, ("-1",)), {"a": "9223372036854775808"}, False),
    ],
    ids=str,
)
def test_requirement(requirement: Requirement, labels: dict[str, str], expected: bool) -> None:
    """Each operator, with the label present and absent."""
    assert requirement.matches(labels) is expected


def test_empty_selectors_and_terms() -> None:
    """An empty label selector takes all, an absent one none; an empty node selector term takes none."""
    assert EVERYTHING.matches({})
    assert not NOTHING.matches({"": ""}) or not NOTHING.matches({})
    assert not NodeSelectorTerm().matches("n", {})
    assert not NodeSelector().matches("n", {})


def test_terms_are_alternatives_and_fields_name_the_node() -> None:
    """One term is enough; within a term everything must hold."""
    by_name = NodeSelectorTerm(fields=(Requirement("metadata.name", Op.IN, ("n",)),))
    by_label = NodeSelectorTerm((Requirement("a", Op.EXISTS),))
    assert NodeSelector((by_label, by_name)).matches("n", {})
    both = NodeSelectorTerm(by_label.expressions, by_name.fields)
    assert not both.matches("n", {})
    assert both.matches("n", {"a": ""})


@pytest.mark.parametrize(
    ("operator", "values"),
    [(Op.IN, ()), (Op.EXISTS, ("1",)), (Op.GT, ()), (Op.LT, ("1", "2"))],
)
def test_values_must_suit_the_operator(operator: SelectorOperator, values: tuple[str, ...]) -> None:
    """A requirement that says nothing is refused when it is made."""
    with pytest.raises(ModelError, match=r"^a: "):
        Requirement("a", operator, values)
