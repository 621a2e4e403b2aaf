"""What is told of a runtime and of a tree: what binds, who has it, who lends."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ModelError
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import make_resources
from koordcore.quota.explain import Bound, explain_runtime, format_waterfall
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.table import quota_table


def quota(name: str, most: int, least: int = 0, weight: int | None = None, **fields: Any) -> ElasticQuota:
    return ElasticQuota(
        name=name,
        max=make_resources({"gpu": most}),
        min=make_resources({"gpu": least}),
        shared_weight=None if weight is None else make_resources({"gpu": weight}),
        **fields,
    )


def opened(
    total: int, quotas: list[ElasticQuota], asked: dict[str, int], *, guarantee: bool = False, **used: int
) -> QuotaLedger:
    pods = [
        QuotaPod(
            key=PodKey("d", f"{name}-{node}"), quota=name, request=make_resources({"gpu": amount}), node=node
        )
        for amounts, node in ((asked, ""), (used, "n"))
        for name, amount in amounts.items()
    ]
    policy = QuotaPolicy(guarantee_usage=guarantee)
    return open_ledger(quotas, total={"gpu": total}, pods=pods, policy=policy)


def bound(ledger: QuotaLedger, name: str) -> tuple[Bound, str, dict[str, int]]:
    waterfall = explain_runtime(ledger, name, "gpu")
    runtime = ledger.runtime_of(name)
    assert runtime is not None
    assert waterfall.runtime == runtime["gpu"]
    return waterfall.bound, waterfall.at, dict(waterfall.holders)


def test_who_gets_its_whole_min_is_kept_from_more_by_others() -> None:
    """Promises are scaled down; one that gets its min all the same competes for the rest."""
    quotas = [quota("a", 200, 80, 3), quota("b", 200, 80, 1), quota("c", 200, 0, 2)]
    assert bound(opened(100, quotas, {"a": 100, "c": 100}), "a") == (Bound.COMPETITION, "a", {"c": 20})
    assert bound(opened(99, quotas, {"a": 100, "c": 100}), "a") == (Bound.SCALED, "a", {"c": 20})


def test_where_floors_take_up_everything_all_that_others_have_is_named() -> None:
    quotas = [quota("a", 9, 5), quota("b", 9, 5), quota("c", 9, 0)]
    assert bound(opened(10, quotas, {"a": 9, "b": 5, "c": 1}), "c") == (Bound.FLOORS, "c", {"a": 5, "b": 5})


def test_who_has_no_weight_or_nothing_to_share_is_told_so() -> None:
    shut = ElasticQuota(
        name="idle",
        max=make_resources({"gpu": 9, "cpu": 1}),
        shared_weight=make_resources({"cpu": 1, "gpu": 0}),
    )
    ledger = opened(6, [quota("a", 9), shut], {"a": 4, "idle": 3})
    assert bound(ledger, "idle") == (Bound.WEIGHT, "idle", {"a": 4})
    assert bound(opened(0, [quota("a", 9)], {"a": 3}), "a") == (Bound.NOTHING, "a", {})


def test_who_is_satisfied_holds_nothing_that_others_could_have() -> None:
    """``b`` has what it needs within its min; only ``c`` borrows what ``a`` lacks."""
    quotas = [quota("a", 9, 1), quota("b", 9, 4), quota("c", 9, 1)]
    assert bound(opened(10, quotas, {"a": 9, "b": 3, "c": 9}), "a") == (Bound.COMPETITION, "a", {"c": 2})


def test_who_keeps_more_than_it_needs_is_named_with_the_rest() -> None:
    """``b`` does not lend, and may use no more than its max of what it is promised."""
    quotas = [quota("a", 99, 1), quota("b", 10, 50, allow_lent=False), quota("c", 99, 1)]
    found = bound(opened(80, quotas, {"a": 90, "c": 90}), "a")
    assert found == (Bound.COMPETITION, "a", {"b": 40, "c": 14})


def test_the_account_is_that_of_the_usage_guarantee() -> None:
    """What ``b`` uses is its floor; ``a`` competes for what is left."""
    quotas = [quota("a", 99, 10), quota("b", 99, 5)]
    ledger = opened(50, quotas, {"a": 90}, guarantee=True, b=30)
    waterfall = explain_runtime(ledger, "a", "gpu")
    (family,) = waterfall.families
    assert [(one.quota, one.floor, one.base, one.runtime) for one in family.members] == [
        ("a", 10, 10, 20),
        ("b", 30, 30, 30),
    ]
    assert bound(ledger, "a")[0] is Bound.COMPETITION
    assert "b: min 5, floor 30, asks for 30, weight 99, gets 30, does not lend" in format_waterfall(waterfall)


def test_what_nobody_can_take_is_told() -> None:
    ledger = opened(10, [quota("a", 3, 1), quota("b", 9, 1)], {"a": 5, "b": 2})
    waterfall = explain_runtime(ledger, "a", "gpu")
    assert (waterfall.bound, waterfall.families[0].undealt) == (Bound.MAX, 5)
    assert format_waterfall(waterfall).splitlines() == [
        "a, gpu: runtime 3, used 0, max 3",
        "koordinator-root-quota has 10 to share; mins add up to 2",
        " > a: min 1, asks for 5, at most 3, weight 3, gets 3, 2 of it borrowed",
        "   b: min 1, asks for 2, weight 9, gets 2, 1 of it borrowed",
        "   round 1 deals 8 by weight: a 2, b 6",
        "   handed back: a 0, b 5",
        "   nobody can take 5",
        "what binds: its max",
    ]


def test_promises_that_are_scaled_down_are_told_with_what_is_left_of_them() -> None:
    ledger = opened(10, [quota("a", 9, 8), quota("b", 9, 8)], {"a": 9, "b": 9})
    assert format_waterfall(explain_runtime(ledger, "b", "gpu")).splitlines() == [
        "b, gpu: runtime 5, used 0, max 9",
        "koordinator-root-quota has 10 to share; mins add up to 16 and are scaled down",
        "   a: min 8, floor 5, asks for 9, weight 9, gets 5",
        " > b: min 8, floor 5, asks for 9, weight 9, gets 5",
        "what binds: more is promised than there is, so promises are scaled down",
        "who has it: a 5",
    ]


def test_a_quota_below_one_that_does_not_exist_cannot_be_explained() -> None:
    ledger = opened(10, [quota("a", 9), quota("lost", 9, parent="ghost")], {})
    with pytest.raises(ModelError, match="do not reach the root"):
        explain_runtime(ledger, "lost", "gpu")


# --- the table --------------------------------------------------------------------------------------------


def test_the_table_says_who_borrows_and_who_lends_it() -> None:
    """``p1`` borrows from its sister and from its parent's; who does not lend or has nothing left is none."""
    quotas = [
        quota("p", 20, 4, is_parent=True),
        quota("p1", 20, 1, parent="p"),
        quota("p2", 20, 3, parent="p"),
        quota("busy", 20, 2),
        quota("closed", 20, 2, allow_lent=False),
        quota("idle", 20, 3),
        quota("lost", 20, 3, parent="ghost"),
    ]
    rows = quota_table(opened(20, quotas, {"idle": 1}, p1=7, busy=2, p2=1))
    assert [(row.quota, row.depth) for row in rows] == [
        ("busy", 0),
        ("closed", 0),
        ("idle", 0),
        ("p", 0),
        ("p1", 1),
        ("p2", 1),
        ("lost", 0),
    ]
    borrowing = {row.quota: (row.used, row.borrowed, row.lenders) for row in rows if row.borrowed}
    assert borrowing == {"p": (8, 4, ("idle",)), "p1": (7, 6, ("idle", "p2"))}
    by_name = {row.quota: row for row in rows}
    assert [row.lenders for row in rows if not row.borrowed] == [()] * 5
    assert (by_name["idle"].request, by_name["idle"].runtime, by_name["lost"].runtime) == (1, 1, None)


def test_a_single_unit_without_a_min_is_borrowed() -> None:
    bare = ElasticQuota(name="q", max=make_resources({"gpu": 2}))
    rows = quota_table(opened(9, [bare, quota("idle", 9, 1)], {}, q=1))
    assert [(row.quota, row.borrowed, row.lenders) for row in rows] == [("idle", 0, ()), ("q", 1, ("idle",))]


def test_amounts_that_are_not_there_are_zero_and_limits_that_are_not_there_none() -> None:
    bare = ElasticQuota(name="q", max=make_resources({"cpu": 4, "gpu": 2}))
    (cpu, gpu) = quota_table(open_ledger([bare], total={"cpu": 4, "gpu": 2}))
    assert (cpu.resource, cpu.min, cpu.max, cpu.request, cpu.runtime, cpu.used) == ("cpu", None, 4, 0, 0, 0)
    assert (gpu.resource, gpu.min, gpu.max, gpu.borrowed, gpu.lenders) == ("gpu", None, 2, 0, ())
