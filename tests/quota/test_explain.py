"""The waterfall adds up, and names what binds."""

from __future__ import annotations

import pytest

from koordcore.errors import ModelError
from koordcore.model.quotas import ElasticQuota, QuotaUsage
from koordcore.model.resources import make_resources
from koordcore.quota.explain import Bound, explain_runtime, format_waterfall
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.table import quota_table


def company(total: int = 100_000, **asked: int) -> QuotaLedger:
    def quota(
        name: str, amounts: tuple[int, int, int], parent: str = "", *, lent: bool = True
    ) -> ElasticQuota:
        most, least, weight = amounts
        return ElasticQuota(
            name=name,
            parent=parent,
            max=make_resources({"cpu": most * 1000}),
            min=make_resources({"cpu": least * 1000}),
            shared_weight=make_resources({"cpu": weight * 1000}),
            allow_lent=lent,
        )

    requests = {"a": 70, "b": 5, "x": 30, "y": 45} | asked
    return open_ledger(
        [
            quota("bu1", (80, 50, 80)),
            quota("a", (60, 30, 60), "bu1"),
            quota("b", (40, 20, 40), "bu1", lent=False),
            quota("bu2", (100, 40, 50)),
            quota("x", (100, 20, 100), "bu2"),
            quota("y", (30, 20, 10), "bu2"),
        ],
        total={"cpu": total},
        usage={
            name: QuotaUsage(request=make_resources({"cpu": amount * 1000}))
            for name, amount in requests.items()
        },
    )


@pytest.mark.parametrize("total", [0, 60_000, 100_000, 140_000, 500_000])
@pytest.mark.parametrize("name", ["bu1", "a", "b", "bu2", "x", "y"])
def test_the_account_ends_in_the_runtime(name: str, total: int) -> None:
    ledger = company(total)
    waterfall = explain_runtime(ledger, name, "cpu")
    runtime = ledger.runtime_of(name)
    assert runtime is not None
    assert waterfall.runtime == runtime["cpu"]
    available = total
    for family in waterfall.families:
        assert family.available == available
        for member in family.members:
            dealt = sum(amount for one in family.rounds for who, amount in one.granted if who == member.quota)
            back = sum(amount for one in family.rounds for who, amount in one.returned if who == member.quota)
            assert member.base + dealt - back == member.runtime
        assert sum(member.runtime for member in family.members) + family.undealt <= max(
            available, sum(member.base for member in family.members)
        )
        available = family.member.runtime


@pytest.mark.parametrize(
    ("total", "name", "asked", "bound", "at"),
    [
        (100_000, "a", {}, Bound.COMPETITION, "bu1"),
        (500_000, "a", {}, Bound.MAX, "a"),
        (500_000, "x", {}, Bound.SATISFIED, "x"),
        (60_000, "x", {}, Bound.SCALED, "bu2"),
        (500_000, "b", {"a": 70, "b": 40}, Bound.COMPETITION, "b"),
        (0, "x", {}, Bound.SCALED, "bu2"),
    ],
)
def test_what_binds_is_named(total: int, name: str, asked: dict[str, int], bound: Bound, at: str) -> None:
    waterfall = explain_runtime(company(total, **asked), name, "cpu")
    assert (waterfall.bound, waterfall.at) == (bound, at)


def test_whoever_has_what_one_lacks_is_named() -> None:
    waterfall = explain_runtime(company(), "a", "cpu")
    assert waterfall.holders == (("bu2", 3846),)


def test_the_text_tells_the_rounds() -> None:
    text = format_waterfall(explain_runtime(company(), "a", "cpu"))
    assert text.splitlines() == [
        "a, cpu: runtime 36154m, used 0, max 60",
        "koordinator-root-quota has 100 to share; mins add up to 90",
        " > bu1: min 50, asks for 80, weight 80, gets 56154m, 6154m of it borrowed",
        "   bu2: min 40, asks for 60, weight 50, gets 43846m, 3846m of it borrowed",
        "   round 1 deals 10 by weight: bu1 6154m, bu2 3846m",
        "bu1 has 56154m to share; mins add up to 50",
        " > a: min 30, asks for 70, at most 60, weight 60, gets 36154m, 6154m of it borrowed",
        "   b: min 20, asks for 20, weight 40, gets 20, does not lend",
        "   round 1 deals 6154m by weight: a 6154m",
        "what binds: others compete for the rest (of bu1)",
        "who has it: bu2 3846m",
    ]


def test_the_table_lists_children_below_their_parents() -> None:
    rows = quota_table(company())
    assert [(row.quota, row.depth) for row in rows] == [
        ("bu1", 0),
        ("a", 1),
        ("b", 1),
        ("bu2", 0),
        ("x", 1),
        ("y", 1),
    ]
    a = rows[1]
    assert (a.resource, a.min, a.max, a.request, a.runtime, a.used) == ("cpu", 30000, 60000, 70000, 36154, 0)


@pytest.mark.parametrize(
    ("name", "resource"), [("nobody", "cpu"), ("koordinator-default-quota", "cpu"), ("a", "memory")]
)
def test_what_has_no_runtime_cannot_be_explained(name: str, resource: str) -> None:
    with pytest.raises(ModelError):
        explain_runtime(company(), name, resource)


def test_bytes_are_rounded_from_a_gibibyte_on() -> None:
    full = (1 << 30) + 1
    quotas = [ElasticQuota(name=name, max=make_resources({"memory": full})) for name in "ab"]
    asked = {name: QuotaUsage(request=make_resources({"memory": full})) for name in "ab"}
    text = format_waterfall(
        explain_runtime(open_ledger(quotas, total={"memory": full}, usage=asked), "a", "memory")
    )
    assert "has ~1.00Gi to share" in text
    assert "a, memory: runtime 536870913, used 0, max ~1.00Gi" in text


def test_bytes_of_no_round_number_are_rounded() -> None:
    ledger = open_ledger(
        [
            ElasticQuota(name=name, max=make_resources({"memory": 9 << 30}), min=make_resources({}))
            for name in "abc"
        ],
        total={"memory": 10 << 30},
        usage={name: QuotaUsage(request=make_resources({"memory": 9 << 30})) for name in "abc"},
    )
    text = format_waterfall(explain_runtime(ledger, "a", "memory"))
    assert "a, memory: runtime ~3.33Gi, used 0, max 9Gi" in text
    assert "has 10Gi to share" in text
