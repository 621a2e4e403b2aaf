"""Which taints of a device a request puts up with, and that counts beside its selectors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.claim_answers import answers, node_case, request

KEY = "example.com/broken"


def device(name: str, **taint: str) -> dict[str, Any]:
    return {"name": name, "taints": [taint]} if taint else {"name": name}


def given(taint: dict[str, str], *tolerations: dict[str, str]) -> list[list[list[str]] | str | None]:
    """The device that a request is given: ``d0`` has the taint and comes first, ``d1`` has none."""
    claim = {"requests": [request("r", tolerations=list(tolerations))]}
    return answers(node_case([device("d0", **taint), device("d1")], [], [claim]))


TOLERATIONS: tuple[tuple[dict[str, str], bool], ...] = (
    ({"key": KEY, "operator": "Exists"}, True),
    ({"key": "example.com/other", "operator": "Exists"}, False),
    ({"operator": "Exists"}, True),
    ({"key": KEY, "operator": "Equal", "value": "yes"}, True),
    ({"key": KEY, "operator": "Equal", "value": "no"}, False),
    ({"key": "example.com/other", "operator": "Equal", "value": "yes"}, False),
    ({"key": KEY, "value": "yes"}, True),
    ({"key": KEY}, False),
    ({"key": KEY, "operator": "Like", "value": "yes"}, False),
    ({"operator": "Exists", "effect": "NoSchedule"}, True),
    ({"operator": "Exists", "effect": "NoExecute"}, False),
    ({"key": KEY, "operator": "Exists", "effect": "NoExecute"}, False),
)


@pytest.mark.parametrize(("toleration", "covers"), TOLERATIONS)
def test_a_toleration_covers_a_taint_by_key_value_and_effect(
    toleration: dict[str, str], covers: bool
) -> None:
    taint = {"key": KEY, "value": "yes", "effect": "NoSchedule"}
    assert given(taint, toleration) == [[["d0" if covers else "d1"]]] * 2


def test_one_toleration_of_several_is_enough() -> None:
    taint = {"key": KEY, "value": "yes", "effect": "NoExecute"}
    assert given(taint) == [[["d1"]]] * 2
    others = [toleration for toleration, covers in TOLERATIONS if not covers and "effect" not in toleration]
    assert given(taint, *others) == [[["d1"]]] * 2
    assert given(taint, *others, {"key": KEY, "operator": "Exists"}) == [[["d0"]]] * 2


def test_an_effect_that_bars_nobody_needs_no_toleration() -> None:
    assert given({"key": KEY, "effect": "None"}) == [[["d0"]]] * 2
