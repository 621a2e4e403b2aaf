"""The integer program, which decides what counting leaves open, against counting and the reference."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.allocators.claims import ClaimError
from koordcore.allocators.claims.exact.program import solve_question
from koordcore.allocators.claims.exact.question import Answer, make_question
from koordcore.allocators.claims.requests import read_claims
from koordcore.model.certificates import DEFAULT_LIMITS
from tests.property.claim_answers import answers, asked_of, counter_set, draws, node_case, request
from tests.property.claim_worlds import DRIVER

pytestmark = pytest.mark.solver


def solved(raw: dict[str, Any]) -> list[list[str]] | None:
    """The devices of each claim, which has one request, by the program alone."""
    asked = asked_of(raw)
    table = asked.room.table
    forms = read_claims(table, asked.claims, asked.world.classes)
    assert not isinstance(forms, ClaimError)
    answer = solve_question(make_question(asked.room, forms), DEFAULT_LIMITS)
    if not isinstance(answer, Answer):
        assert answer is None
        return None
    return [[table.devices[place].id.device for place in mine] for mine in answer.devices]


def valued(*values: int | list[int]) -> list[dict[str, Any]]:
    """Devices d0, d1 … with a number, or several, as attribute ``x``."""
    return [
        {"name": f"d{n}", "attributes": {"x": {"int": one} if isinstance(one, int) else {"ints": one}}}
        for n, one in enumerate(values)
    ]


def asks(count: int = 1, *constraints: str, admin: bool = False) -> dict[str, Any]:
    more = {"adminAccess": True} if admin else {}
    return {
        "requests": [request("r", count=count, **more)],
        "constraints": [{kind: f"{DRIVER}/x"} for kind in constraints],
    }


CASES: dict[str, tuple[dict[str, Any], list[list[str]] | None]] = {
    "devices that agree": (node_case(valued(0, 1, 1), [], [asks(2, "matchAttribute")]), [["d1", "d2"]]),
    "no two agree": (node_case(valued(0, 1, 2), [], [asks(2, "matchAttribute")]), None),
    "lists with a member in common": (
        node_case(valued([0, 1], [2], [1, 3]), [], [asks(2, "matchAttribute")]),
        [["d0", "d2"]],
    ),
    "members in common two by two": (
        node_case(valued([0, 1], [1, 2], [2, 0]), [], [asks(3, "matchAttribute")]),
        None,
    ),
    "devices that differ": (node_case(valued(1, 1, 0), [], [asks(3, "distinctAttribute")]), None),
    "one device for two": (node_case(valued(0), [], [asks(), asks()]), None),
    "an administrator behind another claim": (
        node_case(valued(0), [], [asks(), asks(admin=True)]),
        [["d0"], ["d0"]],
    ),
    "another claim behind an administrator": (node_case(valued(0), [], [asks(admin=True), asks()]), None),
    "two administrators": (
        node_case(valued(0), [], [asks(admin=True), asks(admin=True)]),
        [["d0"], ["d0"]],
    ),
    "partitions beside a device without counters": (
        node_case(
            [*valued(0), *({"name": f"d{n}", "consumesCounters": [draws("s", a=1)]} for n in (1, 2))],
            [counter_set("s", a=1)],
            [asks(3)],
        ),
        None,
    ),
}


@pytest.mark.parametrize(("raw", "expected"), CASES.values(), ids=CASES)
def test_the_program_and_counting_give_the_same(
    raw: dict[str, Any], expected: list[list[str]] | None
) -> None:
    assert answers(raw)[1] == expected
    assert solved(raw) == expected
