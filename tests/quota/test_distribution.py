"""Sharing one resource: worked examples, and the corners where rounding and zero weights decide."""

from __future__ import annotations

import pytest

from koordcore.quota.distribution import Round, scale_min, share_out


def test_rounds_hand_the_surplus_of_satisfied_children_back() -> None:
    assert share_out(100, [10, 15, 20, 15], [5, 20, 40, 70], [40, 60, 50, 80], [True] * 4) == [5, 20, 35, 40]


def test_a_child_of_weight_zero_gets_nothing_beyond_its_floor() -> None:
    assert share_out(100, [10, 15, 20, 15], [5, 20, 40, 70], [40, 60, 50, 0], [True] * 4) == [5, 20, 40, 15]


def test_residual_units_go_to_the_first_names() -> None:
    assert share_out(25, [0] * 10, [99] * 10, [1] * 10, [True] * 10) == [3] * 5 + [2] * 5


def test_more_capacity_may_give_a_child_less() -> None:
    """The largest remainder has the Alabama paradox; upstream has it too, so it is pinned here."""
    assert share_out(10, [0] * 3, [99] * 3, [6, 6, 2], [True] * 3) == [4, 4, 2]
    assert share_out(11, [0] * 3, [99] * 3, [6, 6, 2], [True] * 3) == [5, 5, 1]


def test_what_is_not_lent_stays() -> None:
    assert share_out(100, [60, 40], [96, 0], [1, 1], [True, False]) == [60, 40]


def test_floors_beyond_the_total_are_granted_and_nothing_is_dealt() -> None:
    assert share_out(10, [8, 8], [9, 9], [1, 1], [True, True]) == [8, 8]


@pytest.mark.parametrize("total", [0, -5])
def test_an_empty_or_negative_total_leaves_the_floors(total: int) -> None:
    assert share_out(total, [3, 0], [2, 7], [1, 1], [True, True]) == [2, 0]


def test_weights_far_beyond_64_bits_are_exact() -> None:
    huge = 6148914691236517206
    assert share_out(100, [0] * 3, [99] * 3, [huge, huge, huge], [True] * 3) == [34, 33, 33]


def test_the_trace_accounts_for_every_unit() -> None:
    trace: list[Round] = []
    share_out(100, [10, 15, 20, 15], [5, 20, 40, 70], [40, 60, 50, 80], [True] * 4, trace=trace)
    assert [(one.left, one.weight_sum) for one in trace] == [(45, 190), (9, 130)]
    assert trace[0].granted == ((1, 14), (2, 12), (3, 19))
    assert trace[0].returned == ((1, 9),)
    assert trace[1].extra == (3,)


def test_mins_shrink_in_double_precision() -> None:
    assert scale_min(60000, [50000, 40000]) == [33333, 26666]
    assert scale_min(60, [50, 10]) == [50, 10]
    assert scale_min(-3, [50, 10]) == [0, 0]
