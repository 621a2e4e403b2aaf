"""Who may take back, who has to give, and whose leaving counts: the floors of quotas and of those above."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import given, strategies as st

from koordcore.model.pods import PodKey
from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import make_resources
from koordcore.quota.floors import Floors, amounts_in
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, checked_chain, gives_back, lent_by, staying_charged
from koordcore.quota.opening import open_ledger
from koordcore.quota.preempt import NoVictims, QuotaVictims, select_victims
from koordcore.quota.reclaim import (
    borrowers,
    entitled_to_reclaim,
    have_to_give,
    is_below,
    kept_floor,
)
from tests.reference.floors import lost_within

GPU = "gpu"


def quota(name: str, least: dict[str, int], parent: str = "", **fields: Any) -> ElasticQuota:
    most = make_resources({"cpu": 100, GPU: 100})
    return ElasticQuota(name=name, parent=parent, min=make_resources(least), max=most, **fields)


def pod(name: str, owner: str, request: dict[str, int], **fields: Any) -> QuotaPod:
    return QuotaPod(key=PodKey("d", name), quota=owner, request=make_resources(request), **fields)


def runs(name: str, owner: str, request: dict[str, int], **fields: Any) -> QuotaPod:
    return pod(name, owner, request, node="n", **fields)


# --- who may take back, and who has to give ---------------------------------------------------------------


def test_a_quota_may_take_back_all_that_it_is_promised_and_no_unit_more() -> None:
    comer, greedy = pod("a", "A", {GPU: 6}), pod("b", "A", {GPU: 7})
    ledger = open_ledger([quota("A", {GPU: 6})], total={GPU: 10}, pods=[comer, greedy])
    assert entitled_to_reclaim(ledger, comer) == ""
    assert entitled_to_reclaim(ledger, greedy) == "elastic quota A would go beyond its min in gpu"
    assert entitled_to_reclaim(ledger, pod("c", "A", {GPU: 6, "cpu": 0})) == ""
    assert have_to_give(ledger, [comer]) == frozenset()
    assert have_to_give(ledger, [greedy]) is None
    assert have_to_give(ledger, [pod("c", "A", {GPU: 3}), pod("d", "A", {GPU: 4})]) is None


def test_where_a_quota_above_would_exceed_its_min_those_below_it_have_to_give() -> None:
    quotas = [
        quota("P", {GPU: 6}),
        quota("p1", {GPU: 4}, "P"),
        quota("p2", {GPU: 2}, "P"),
        quota("Q", {GPU: 4}),
    ]
    comer = pod("a", "p1", {GPU: 4})
    ledger = open_ledger(quotas, total={GPU: 10}, pods=[runs("v", "p2", {GPU: 6}), comer])
    assert have_to_give(ledger, [comer]) == frozenset({"P"})
    assert entitled_to_reclaim(ledger, comer) == "elastic quota P would go beyond its min in gpu"
    assert is_below(ledger, "p2", {"P"})
    assert not is_below(ledger, "Q", {"P"})
    assert borrowers(ledger, "p1", [GPU]) == (("p2", (GPU,)),)


def test_only_leaves_borrow_and_only_with_all_above_them() -> None:
    """``p1`` uses more than its min, ``P`` does not; ``q1`` does so with ``Q``."""
    quotas = [
        quota("P", {GPU: 6}, is_parent=True),
        quota("p1", {GPU: 1}, "P"),
        quota("p2", {GPU: 5}, "P"),
        quota("Q", {GPU: 2}, is_parent=True),
        quota("q1", {GPU: 1}, "Q"),
        quota("A", {GPU: 4, "cpu": 5}),
    ]
    pods = [runs("v", "p1", {GPU: 4, "cpu": 1}), runs("w", "q1", {GPU: 3}), pod("a", "A", {GPU: 2})]
    ledger = open_ledger(quotas, total={GPU: 12, "cpu": 9}, pods=pods)
    assert borrowers(ledger, "A", [GPU]) == (("q1", (GPU,)),)
    assert borrowers(ledger, "A", [GPU, "cpu"]) == (("p1", ("cpu",)), ("q1", (GPU,)))
    assert borrowers(ledger, "p2", [GPU]) == (("p1", (GPU,)), ("q1", (GPU,)))


def test_what_is_guaranteed_since_it_is_used_is_not_lent_by_others() -> None:
    """Under the usage guarantee a quota without a min keeps what it uses."""
    bare = quota("B", {})
    pods = [runs("v", "B", {GPU: 4}), pod("a", "A", {GPU: 5})]
    free = open_ledger([quota("A", {GPU: 5}), bare], total={GPU: 8}, pods=pods)
    assert kept_floor(free, "B") == {}
    assert borrowers(free, "A", [GPU]) == (("B", (GPU,)),)
    policy = QuotaPolicy(guarantee_usage=True)
    kept = open_ledger([quota("A", {GPU: 5}), bare], total={GPU: 8}, pods=pods, policy=policy)
    assert kept_floor(kept, "B") == {GPU: 4}
    assert borrowers(kept, "A", [GPU]) == ()


def test_a_min_that_is_scaled_down_is_kept_whole() -> None:
    quotas = [quota("A", {GPU: 6}), quota("B", {GPU: 6})]
    ledger = open_ledger(quotas, total={GPU: 6}, pods=[runs("v", "B", {GPU: 6}), pod("a", "A", {GPU: 3})])
    assert ledger.floor_of("B") == {GPU: 3}
    assert kept_floor(ledger, "B") == {GPU: 6}
    assert borrowers(ledger, "A", [GPU]) == ()


def lost(
    ledger: QuotaLedger, leaving: list[QuotaPod], comers: list[QuotaPod], wanted: list[str]
) -> dict[str, int]:
    found = Floors(ledger, comers, wanted).lost(
        [(ledger.resolve(one) or "", amounts_in(one.request, wanted)) for one in leaving]
    )
    assert found == lost_within(ledger, leaving, comers, wanted)
    return found


def test_pods_that_leave_together_lose_nothing_as_long_as_their_quota_is_beyond_its_floor() -> None:
    free, kept = runs("v", "B", {GPU: 2}), runs("w", "B", {GPU: 2})
    comer = pod("a", "A", {GPU: 2})
    ledger = open_ledger(
        [quota("A", {GPU: 6}), quota("B", {GPU: 1})], total={GPU: 7}, pods=[free, kept, comer]
    )
    assert lost(ledger, [free], [comer], [GPU]) == {GPU: 0}
    assert lost(ledger, [free, kept], [comer], [GPU]) == {GPU: 1}


def test_what_several_quotas_lose_adds_up_and_each_chain_counts_its_worst() -> None:
    quotas = [
        quota("P", {GPU: 4}, is_parent=True),
        quota("p1", {GPU: 1}, "P"),
        quota("C", {GPU: 2}),
        quota("A", {GPU: 4}),
    ]
    first, second = runs("v", "p1", {GPU: 5}), runs("w", "C", {GPU: 3})
    comer = pod("a", "A", {GPU: 4})
    ledger = open_ledger(quotas, total={GPU: 10}, pods=[first, second, comer])
    assert lost(ledger, [first], [comer], [GPU]) == {GPU: 4}
    assert lost(ledger, [first, second], [comer], [GPU]) == {GPU: 6}


def test_who_is_promised_nothing_loses_nothing() -> None:
    victim, comer = runs("v", "B", {GPU: 4}), pod("a", "A", {GPU: 4})
    ledger = open_ledger([quota("A", {GPU: 4}), quota("B", {})], total={GPU: 4}, pods=[victim, comer])
    assert lost(ledger, [victim], [comer], [GPU]) == {GPU: 0}


# --- whose leaving counts ---------------------------------------------------------------------------------


def test_a_pod_belongs_to_its_quota_and_to_all_above_it() -> None:
    quotas = [quota("top", {}), quota("mid", {}, "top"), quota("low", {}, "mid"), quota("lost", {}, "ghost")]
    ledger = open_ledger(quotas, total={})
    assert chain_of(ledger, pod("p", "low", {})) == ("low", "mid", "top")
    assert chain_of(ledger, pod("p", "top", {})) == ("top",)
    assert chain_of(ledger, pod("p", "lost", {})) == ("lost",)
    assert chain_of(ledger, pod("p", "", {})) == (DEFAULT_QUOTA,)
    assert checked_chain(ledger, pod("p", "low", {})) == ("low",)
    strict = open_ledger(quotas, total={}, policy=QuotaPolicy(enable_check_parent_quota=True))
    assert checked_chain(strict, pod("p", "low", {})) == ("low", "mid", "top")
    ungoverned = open_ledger(quotas, total={}, policy=QuotaPolicy(disable_default_quota=True))
    assert chain_of(ungoverned, pod("p", "", {})) == ()


def test_a_quota_gives_back_only_what_it_and_all_above_it_borrow() -> None:
    """``p1`` is beyond its min in both, ``P`` in cpu alone: what ``P`` is guaranteed stays."""
    quotas = [quota("P", {GPU: 6, "cpu": 3}), quota("p1", {GPU: 1, "cpu": 1}, "P"), quota("A", {GPU: 4})]
    victim = runs("v", "p1", {GPU: 4, "cpu": 4})
    ledger = open_ledger(quotas, total={GPU: 9, "cpu": 9}, pods=[victim])
    chain = ("p1", "P")
    assert lent_by(ledger, chain, [("A",)], [GPU, "cpu"]) == frozenset({"cpu"})
    assert lent_by(ledger, chain, [("p2", "P")], [GPU, "cpu"]) == frozenset({GPU, "cpu"})
    assert lent_by(ledger, chain, [("p1", "P")], [GPU]) is None
    assert lent_by(ledger, chain, [("A",), ("p1", "P")], [GPU]) is None
    assert lent_by(ledger, (), [("A",)], [GPU]) == frozenset()
    assert gives_back(ledger, victim, [("A",)], ["cpu"])
    assert not gives_back(ledger, runs("w", "p1", {GPU: 1}), [("A",)], ["cpu"])
    assert not gives_back(ledger, victim, [("A",)], [GPU])


def test_a_single_unit_is_given_back_where_nothing_is_promised() -> None:
    ledger = open_ledger(
        [quota("B", {}), quota("A", {GPU: 4})], total={GPU: 9}, pods=[runs("v", "B", {GPU: 1})]
    )
    assert lent_by(ledger, ("B",), [("A",)], [GPU, "cpu"]) == frozenset({GPU})


def test_victims_are_charged_on_where_their_quota_falls_to_its_min() -> None:
    """One after the other, the least important first, as long as the quota borrows."""
    quotas = [quota("B", {GPU: 3}), quota("A", {GPU: 4})]
    victims = [runs(f"v{n}", "B", {GPU: 2}, priority=n) for n in range(3)]
    ledger = open_ledger(quotas, total={GPU: 9}, pods=victims)
    assert staying_charged(ledger, victims, [("A",)], [GPU]) == {PodKey("d", "v2")}
    assert staying_charged(ledger, victims, [("B",)], [GPU]) == frozenset()


# --- within one quota -------------------------------------------------------------------------------------


def preempting(capacity: int, *on_node: QuotaPod, most: int = 100) -> QuotaVictims | NoVictims:
    """Let a pod of 2 cpu in on a node of some cpu."""
    team = ElasticQuota(name="q", max=make_resources({"cpu": most}))
    comer = pod("new", "q", {"cpu": 2}, priority=50)
    policy = QuotaPolicy(enable_runtime_quota=False)

    def refuse(stay: Collection[QuotaPod]) -> str:
        beside = sum(one.request["cpu"] for one in stay)
        return "too full" if beside + 2 > capacity else ""

    ledger = open_ledger([team], total={}, pods=[*on_node, comer], policy=policy)
    return select_victims(ledger, comer, node="n", on_node=on_node, refuse=refuse)


def test_who_goes_leaves_room_for_less_important_ones_that_fit() -> None:
    big, small = runs("big", "q", {"cpu": 3}, priority=2), runs("small", "q", {"cpu": 2}, priority=1)
    assert preempting(4, big, small) == QuotaVictims(victims=(big,))
    assert preempting(9, big, small, most=5) == QuotaVictims(victims=(small,))
    assert preempting(9, big, small, most=4) == QuotaVictims(victims=(big,))
    assert preempting(7, big, small) == QuotaVictims(victims=())
    assert preempting(1, big, small) == NoVictims(message="too full")


def test_pods_of_other_quotas_and_more_important_ones_stay() -> None:
    other, equal = runs("other", "", {"cpu": 3}), runs("equal", "q", {"cpu": 3}, priority=50)
    kept = runs("kept", "q", {"cpu": 3}, preemptible=False)
    found = preempting(4, other, equal, kept)
    assert isinstance(found, NoVictims)
    assert not found.resolvable


# --- one after another ------------------------------------------------------------------------------------


@st.composite
def families(draw: st.DrawFn) -> tuple[list[ElasticQuota], list[QuotaPod], QuotaPod]:
    """Two families and a quota by itself, running pods of all of them, and somebody who comes."""
    amounts = st.integers(0, 9)
    owners = ["p1", "p2", "q1", "C"]
    parents = {"p1": "P", "p2": "P", "q1": "Q", "C": "", "P": "", "Q": "", "A": ""}
    quotas = [
        quota(
            name,
            {GPU: draw(amounts), **({"cpu": draw(amounts)} if draw(st.booleans()) else {})},
            parent,
            is_parent=name in "PQ",
        )
        for name, parent in parents.items()
    ]
    pods = [
        runs(f"v{place}", draw(st.sampled_from(owners)), {GPU: draw(amounts), "cpu": draw(amounts)})
        for place in range(draw(st.integers(1, 8)))
    ]
    comer = pod("a", draw(st.sampled_from(["A", "p2"])), {GPU: draw(amounts), "cpu": draw(amounts)})
    return quotas, pods, comer


@given(families(), st.integers(5, 40), st.booleans(), st.data())
def test_what_is_lost_is_what_a_ledger_for_each_pod_tells(
    world: tuple[list[ElasticQuota], list[QuotaPod], QuotaPod],
    total: int,
    guarantee: bool,
    data: st.DataObject,
) -> None:
    quotas, pods, comer = world
    policy = QuotaPolicy(guarantee_usage=guarantee)
    ledger = open_ledger(quotas, total={GPU: total, "cpu": total}, pods=[*pods, comer], policy=policy)
    wanted = ["cpu", GPU]
    floors = Floors(ledger, [comer], wanted)
    left = list(pods)
    while left:
        unit = left[: data.draw(st.integers(1, 2))]
        left = left[len(unit) :]
        leaving = [(one.quota, amounts_in(one.request, wanted)) for one in unit]
        asked = [key for key in wanted if any(one.request.get(key) for one in unit)]
        lost = floors.lost(leaving)
        assert lost == lost_within(ledger, unit, [comer], asked)
        if lost and not min(lost.values()):  # nobody else leaves, so that floors do not move
            floors.leave(leaving)
            for one in unit:
                ledger = ledger.forget(one)
