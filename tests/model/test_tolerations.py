"""Tolerations that compare the value of a taint by size."""

from __future__ import annotations

import pytest

from koordcore.model.affinity import Taint, Toleration, TolerationOperator


@pytest.mark.parametrize(
    ("taint", "operator", "value", "tolerated"),
    [
        ("7", "Gt", "6", True),
        ("6", "Gt", "6", False),
        ("5", "Lt", "6", True),
        ("-3", "Lt", "0", True),
        ("0", "Gt", "-1", True),
        ("9223372036854775807", "Gt", "6", True),
        # None of these is an integer as people write it.
        ("07", "Gt", "6", False),
        ("7", "Gt", "06", False),
        ("1_0", "Gt", "6", False),
        ("+7", "Gt", "6", False),
        (" 7", "Gt", "6", False),
        ("-0", "Lt", "6", False),
        ("٧", "Gt", "6", False),
        ("9223372036854775808", "Gt", "6", False),
        ("", "Lt", "6", False),
        ("high", "Gt", "6", False),
    ],
)
def test_only_plain_integers_are_compared(taint: str, operator: str, value: str, tolerated: bool) -> None:
    one = Toleration(key="k", operator=TolerationOperator(operator), value=value)
    assert one.tolerates(Taint("k", taint)) == tolerated
