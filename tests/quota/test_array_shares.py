"""Sharing in arrays: many groups at once, wide families and whole trees give what the plain loop gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPolicy, QuotaUsage
from koordcore.model.resources import make_resources
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.runtime import VECTOR_WORTHWHILE, deal

Member = tuple[int, int, int, bool]
"""Floor, need, weight, and whether it lends."""


def dealt(*groups: tuple[int, list[Member]]) -> list[list[int]]:
    """Share out in all groups at once."""
    everyone = [member for _, members in groups for member in members]
    starts = [0]
    for _, members in groups:
        starts.append(starts[-1] + len(members))
    floors, needs, weights, lends = zip(*everyone, strict=True)
    got = deal(
        np.array([total for total, _ in groups], np.int64),
        np.array(starts[:-1], np.int64),
        floors=np.array(floors, np.int64),
        needs=np.array(needs, np.int64),
        weights=np.array(weights, np.int64),
        lends=np.array(lends, np.bool_),
    ).tolist()
    return [got[start:end] for start, end in pairwise(starts)]


def test_groups_are_shared_out_side_by_side_each_by_its_own_rounds() -> None:
    borrower: Member = (0, 9, 1, True)
    assert dealt(
        (100, [(10, 5, 40, True), (15, 20, 60, True), (20, 40, 50, True), (15, 70, 80, True)]),
        (1, [borrower, borrower, borrower]),
        (25, [(0, 99, 1, True)] * 10),
        (4, [borrower, borrower, borrower]),
        (100, [(60, 96, 1, True), (40, 0, 1, False)]),
        (10, [(8, 9, 1, True), (8, 9, 1, True)]),
        (-5, [(3, 2, 1, True), (0, 7, 1, True)]),
    ) == [[5, 20, 35, 40], [1, 0, 0], [3] * 5 + [2] * 5, [2, 1, 1], [60, 40], [8, 8], [2, 0]]


def test_the_last_unit_is_dealt_out_at_once_and_when_it_comes_back() -> None:
    assert dealt((1, [(0, 5, 1, True), (0, 5, 1, True)])) == [[1, 0]]
    assert dealt((3, [(0, 1, 2, True), (0, 9, 1, True)])) == [[1, 2]]


def test_the_largest_remainder_gets_the_residue_whatever_its_weight() -> None:
    assert dealt((3, [(0, 9, 3, True), (0, 9, 1, True)])) == [[2, 1]]


def test_who_has_no_weight_gets_its_floor_alone_and_no_residue() -> None:
    assert dealt((10, [(2, 9, 0, True), (0, 9, 3, True), (0, 9, 3, True), (0, 1, 3, True)])) == [[2, 4, 3, 1]]
    assert dealt((10, [(2, 9, 0, True), (1, 9, 0, True)])) == [[2, 1]]


def test_where_there_is_enough_for_all_each_gets_what_it_asks_for() -> None:
    members: list[Member] = [(2, 5, 1, True), (3, 7, 9, True), (4, 1, 1, True), (6, 2, 1, False)]
    assert dealt((100, members)) == dealt((19, members)) == [[5, 7, 1, 6]]
    assert dealt((100, members), (18, members)) == [[5, 7, 1, 6], [4, 7, 1, 6]]


def test_shares_of_odd_bytes_are_exact_where_doubles_are_not() -> None:
    weights = (309036694, 890490762, 487703144)
    assert dealt((29093122087910, [(0, 2**60, weight, True) for weight in weights])) == [
        [5328757235784, 15354840326522, 8409524525604]
    ]


@pytest.mark.parametrize("factor", [1, 10**9 + 7, 3**34])
def test_products_beyond_64_bits_are_exact_to_the_unit(factor: int) -> None:
    """Seven shares of a large number: 3/7 and 4/7, the larger remainder takes the odd unit."""
    total = 2**59 + 2  # three sevenths of it leave 5, four sevenths 2
    parts = [total * 3 // 7, total * 4 // 7]
    assert sum(parts) == total - 1
    odd, even = (total * 3 % 7, total * 4 % 7)
    expected = [parts[0] + (odd > even), parts[1] + (even > odd)]
    members: list[Member] = [(0, 2**60, 3 * factor, True), (0, 2**60, 4 * factor, True)]
    small: list[Member] = [(0, 9, 1, True), (0, 9, 1, True)]
    assert dealt((3, small), (total, members), (5, small)) == [[2, 1], expected, [3, 2]]


def test_weights_without_a_common_divisor_are_divided_one_by_one() -> None:
    weights, total = (2**59 + 1, 2**59 + 3, 0), 2**40 + 1
    shares = [weight * total // sum(weights) for weight in weights]
    left = total - sum(shares)
    assert left == 1
    assert weights[1] * total % sum(weights) > weights[0] * total % sum(weights)
    members: list[Member] = [(0, 2**60, weight, True) for weight in weights]
    assert dealt((total, members), (3, [(0, 9, 1, True)])) == [[shares[0], shares[1] + 1, 0], [3]]


# --- families and trees -----------------------------------------------------------------------------------


def quota(name: str, least: int, most: int, **fields: Any) -> ElasticQuota:
    return ElasticQuota(
        name=name, max=make_resources({"cpu": most}), min=make_resources({"cpu": least}), **fields
    )


def asked(amount: int) -> QuotaUsage:
    return QuotaUsage(request=make_resources({"cpu": amount}))


def runtimes(ledger: QuotaLedger) -> dict[str, int | None]:
    """Runtimes in cpu, as told for each quota and as told for all at once."""
    each: dict[str, int | None] = {}
    for name, status in ledger.statuses().items():
        one = ledger.runtime_of(name)
        assert one == status.runtime
        each[name] = None if one is None else one.get("cpu")
    return each


FIRST, SECOND = 4288563264, 1330022775
"""Bytes: their sum times the first, divided by the sum, is not the first in doubles."""
IDLE = [quota(f"z{place:02}", 0, 1) for place in range(VECTOR_WORTHWHILE)]


@pytest.mark.parametrize("others", [[], IDLE])
def test_mins_beyond_the_total_shrink_in_families_of_any_size(others: list[ElasticQuota]) -> None:
    quotas = [quota("a", 60, 100), quota("b", 30, 100), *others]
    ledger = open_ledger(quotas, total={"cpu": 45}, usage={"a": asked(100), "b": asked(10)})
    found = runtimes(ledger)
    assert (found["a"], found["b"]) == (35, 10)
    assert ledger.status("a").scaled_min == ledger.statuses()["a"].scaled_min == make_resources({"cpu": 30})
    fixed = QuotaPolicy(enable_min_quota_scale=False)
    found = runtimes(
        open_ledger(quotas, total={"cpu": 45}, usage={"a": asked(100), "b": asked(10)}, policy=fixed)
    )
    assert (found["a"], found["b"]) == (60, 10)


@pytest.mark.parametrize("others", [[], IDLE])
def test_only_the_mins_that_exceed_what_there_is_shrink(others: list[ElasticQuota]) -> None:
    """There is memory enough, to the byte, and too little cpu."""
    least = [{"cpu": 60, "memory": FIRST}, {"cpu": 60, "memory": SECOND}]
    quotas = [
        ElasticQuota(
            name=name, min=make_resources(amounts), max=make_resources({"cpu": 100, "memory": 2**40})
        )
        for name, amounts in zip("ab", least, strict=True)
    ]
    full = {name: QuotaUsage(request=quota.max) for name, quota in zip("ab", quotas, strict=True)}
    ledger = open_ledger([*quotas, *others], total={"cpu": 80, "memory": FIRST + SECOND}, usage=full)
    assert runtimes(ledger)["a"] == 40
    for name, memory in (("a", FIRST), ("b", SECOND)):
        expected = make_resources({"cpu": 40, "memory": memory})
        assert ledger.status(name).scaled_min == ledger.statuses()[name].scaled_min == expected
        assert ledger.statuses()[name].runtime == expected


@pytest.mark.parametrize("others", [[], IDLE])
@pytest.mark.parametrize("guarantee", [False, True])
def test_requests_and_totals_of_any_size_are_shared_alike(
    others: list[ElasticQuota], *, guarantee: bool
) -> None:
    policy = QuotaPolicy(guarantee_usage=guarantee)
    even = make_resources({"cpu": 1})
    quotas = [quota(name, 0, 2**62, shared_weight=even) for name in "ab"] + others
    usage = {"a": asked(2**62), "b": asked(2**62)}
    for total in (50, 2**61, 2**62):
        found = runtimes(open_ledger(quotas, total={"cpu": total}, usage=usage, policy=policy))
        assert (found["a"], found["b"]) == (total // 2, total // 2)
    if guarantee:
        used = {"a": QuotaUsage(used=make_resources({"cpu": 2**62})), "b": asked(9)}
        found = runtimes(open_ledger(quotas, total={"cpu": 50}, usage=used, policy=policy))
        assert (found["a"], found["b"]) == (2**62, 0)


@pytest.mark.parametrize("others", [[], IDLE])
def test_what_is_used_is_guaranteed_in_families_of_any_size(others: list[ElasticQuota]) -> None:
    """``a`` uses beyond its min what ``b`` now asks for; under the guarantee it keeps it."""
    usage = {
        "a": QuotaUsage(request=make_resources({"cpu": 40}), used=make_resources({"cpu": 40})),
        "b": asked(100),
    }
    quotas = [quota("a", 10, 100), quota("b", 10, 100), *others]
    free = open_ledger(quotas, total={"cpu": 60}, usage=usage)
    assert runtimes(free)["a"] == 30
    kept = open_ledger(quotas, total={"cpu": 60}, usage=usage, policy=QuotaPolicy(guarantee_usage=True))
    found = runtimes(kept)
    assert (found["a"], found["b"]) == (40, 20)
    status = kept.statuses()["a"]
    assert (status.allocated["cpu"], status.guaranteed["cpu"]) == (40, 40)
    assert kept.statuses()["b"].guaranteed == make_resources({"cpu": 10})
    assert kept.floor_of("a") == make_resources({"cpu": 40})


def test_every_depth_gets_what_its_parent_got() -> None:
    """The first quota by name is a parent, one of its children is one, and so is a quota below nobody."""
    quotas = [
        quota("a", 20, 100, is_parent=True),
        quota("a1", 5, 100, parent="a"),
        quota("a2", 5, 30, parent="a", is_parent=True),
        quota("a21", 1, 100, parent="a2"),
        quota("b", 20, 100),
        quota("lost", 5, 100, parent="ghost"),
        quota("lost1", 5, 100, parent="lost"),
    ]
    usage = {name: asked(100) for name in ("a1", "a21", "b", "lost1")}
    assert runtimes(open_ledger(quotas, total={"cpu": 80}, usage=usage)) == {
        "a": 40,
        "a1": 28,
        "a2": 12,
        "a21": 12,
        "b": 40,
        "lost": None,
        "lost1": None,
    }


def test_a_parent_that_counts_nothing_hands_nothing_out() -> None:
    quotas = [ElasticQuota(name="dept", is_parent=True), quota("team", 1, 9, parent="dept"), quota("q", 1, 9)]
    ledger = open_ledger(quotas, total={"cpu": 9}, usage={"team": asked(5), "q": asked(5)})
    assert runtimes(ledger) == {"dept": None, "team": None, "q": 5}
    assert ledger.runtime_of("team") == make_resources({})


def test_a_parent_hands_out_only_what_its_max_names() -> None:
    both = make_resources({"cpu": 50, "memory": 50})
    dept = ElasticQuota(name="dept", max=make_resources({"memory": 40}), is_parent=True)
    team = ElasticQuota(name="team", parent="dept", max=both, min=make_resources({"cpu": 9, "memory": 9}))
    wants = QuotaUsage(request=make_resources({"cpu": 20, "memory": 30}))
    ledger = open_ledger([dept, team], total=both, usage={"team": wants})
    assert ledger.runtime_of("team") == ledger.statuses()["team"].runtime == make_resources({"memory": 30})
    assert ledger.runtime_of("dept") == ledger.statuses()["dept"].runtime == make_resources({"memory": 30})


@pytest.mark.parametrize("scale", [True, False])
def test_what_a_parent_does_not_hand_out_is_not_handed_on_either(*, scale: bool) -> None:
    """``team`` counts cpu and is promised some; its parent has none: nothing of it reaches ``squad``."""
    both = make_resources({"cpu": 50, "memory": 50})
    quotas = [
        ElasticQuota(name="dept", max=make_resources({"memory": 40}), is_parent=True),
        ElasticQuota(name="team", parent="dept", max=both, min=make_resources({"cpu": 9})),
        ElasticQuota(name="squad", parent="team", max=both),
    ]
    wants = QuotaUsage(request=make_resources({"cpu": 20, "memory": 30}))
    policy = QuotaPolicy(enable_min_quota_scale=scale)
    ledger = open_ledger(quotas, total=both, usage={"squad": wants}, policy=policy)
    expected = make_resources({"cpu": 0, "memory": 30})
    assert ledger.runtime_of("squad") == ledger.statuses()["squad"].runtime == expected


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ((1, 2**58, -(2**58) - 1), [1, 1, 1]),
        ((3, 4, -2), [29, 38, 1]),
    ],
)
@pytest.mark.parametrize("others", [[], IDLE])
def test_a_negative_weight_counts_alike_in_families_of_any_size(
    weights: tuple[int, ...], shares: list[int], others: list[ElasticQuota]
) -> None:
    """In doubles the first three would add up to one, which is not there to be divided by."""
    names = ("a", "b", "c")
    quotas = [
        quota(name, 1, 100, shared_weight=make_resources({"cpu": weight}))
        for name, weight in zip(names, weights, strict=True)
    ]
    ledger = open_ledger([*quotas, *others], total={"cpu": 50}, usage=dict.fromkeys(names, asked(100)))
    found = runtimes(ledger)
    assert [found[name] for name in names] == shares


def test_a_max_far_below_zero_is_told_as_it_is() -> None:
    ledger = open_ledger(
        [quota("a", 0, -(2**70)), quota("b", 0, 9)], total={"cpu": 5}, usage={"a": asked(3), "b": asked(7)}
    )
    assert runtimes(ledger)["b"] == 7
    assert ledger.statuses()["a"].limit_request == make_resources({"cpu": -(2**70)})


def test_promises_near_the_end_of_64_bits_leave_nothing_to_borrow() -> None:
    """What is promised and not lent stays, and with a pool below zero no sum comes round to plenty."""
    huge = [quota(f"h{place}", 2**61, 5, allow_lent=False) for place in range(3)]
    huge.append(quota("h3", 2**61 - 1, 5, allow_lent=False))
    strays = {DEFAULT_QUOTA: QuotaUsage(used=make_resources({"cpu": 2**61 - 1}))}
    policy = QuotaPolicy(enable_min_quota_scale=False)
    ledger = open_ledger([*huge, quota("q", 0, 9)], total={}, usage={**strays, "q": asked(9)}, policy=policy)
    assert runtimes(ledger)["q"] == 0
    wide = [
        quota(f"w{place:02}", 2**58, 5, allow_lent=False, shared_weight=make_resources({"cpu": 1}))
        for place in range(VECTOR_WORTHWHILE)
    ]
    assert (
        runtimes(open_ledger([*wide, quota("q", 0, 9)], total={}, usage={"q": asked(9)}, policy=policy))["q"]
        == 0
    )


@pytest.mark.parametrize("others", [[], IDLE])
def test_another_total_moves_the_runtimes_and_the_same_one_does_not(others: list[ElasticQuota]) -> None:
    quotas = [quota("a", 10, 100), quota("b", 10, 100), *others]
    usage = {"a": asked(90), "b": asked(90)}
    ledger = open_ledger(quotas, total={"cpu": 60}, usage=usage)
    assert runtimes(ledger)["a"] == 30
    assert runtimes(ledger.with_total({"cpu": 100}))["a"] == 50
    assert runtimes(ledger.with_total({"cpu": 60}))["a"] == 30


def test_the_builtin_quotas_take_no_part_in_the_sharing() -> None:
    """Their objects are in the cluster as well; what pods of the default quota use leaves the pool."""
    objects = [quota(name, 0, 50) for name in (DEFAULT_QUOTA, "koordinator-system-quota")]
    usage = {
        "q": asked(100),
        DEFAULT_QUOTA: QuotaUsage(request=make_resources({"cpu": 40}), used=make_resources({"cpu": 10})),
    }
    ledger = open_ledger([quota("q", 10, 100), *objects], total={"cpu": 60}, usage=usage)
    assert runtimes(ledger) == {"q": 50}
    assert ledger.find(DEFAULT_QUOTA) is None
    assert ledger.max_of(DEFAULT_QUOTA) == make_resources({"cpu": 50})
