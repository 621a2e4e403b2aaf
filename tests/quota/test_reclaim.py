"""Cross-quota reclaim: who may, and what a quota loses of its promise when its pods leave."""

from __future__ import annotations

import pytest

from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod
from koordcore.model.resources import make_resources
from koordcore.quota.floors import Floors, amounts_in
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.reclaim import affordable, entitled_to_reclaim

GPU = "nvidia.com/gpu"


def quota(name: str, least: int, *, parent: str = "", most: int = 100) -> ElasticQuota:
    return ElasticQuota(
        name=name, parent=parent, min=make_resources({GPU: least}), max=make_resources({GPU: most})
    )


def pod(name: str, owner: str, gpus: int, *, node: str = "", kept: bool = False) -> QuotaPod:
    return QuotaPod(
        key=PodKey("d", name),
        quota=owner,
        request=make_resources({GPU: gpus}),
        node=node,
        preemptible=not kept,
    )


def lost(
    ledger: QuotaLedger, leaving: list[QuotaPod], comers: list[QuotaPod], wanted: list[str]
) -> dict[str, int]:
    found = [(ledger.resolve(one) or "", amounts_in(one.request, wanted)) for one in leaving]
    return Floors(ledger, comers, wanted).lost(found)


def borrowed_out() -> tuple[QuotaLedger, list[QuotaPod], QuotaPod]:
    """B has borrowed everything on two nodes of 4; a pod of A, which lent it, arrives."""
    placed = [pod(f"b{index}", "B", 2, node="xxyy"[index]) for index in range(4)]
    comer = pod("a", "A", 2)
    quotas = [quota("A", 6), quota("B", 3)]
    return open_ledger(quotas, total={GPU: 9}, pods=[*placed, comer]), placed, comer


def test_nobody_reclaims_beyond_its_min() -> None:
    ledger, _, comer = borrowed_out()
    assert entitled_to_reclaim(ledger, comer) == ""
    greedy = pod("g", "A", 7)
    told = entitled_to_reclaim(ledger.track(greedy), greedy)
    assert told == f"elastic quota A would go beyond its min in {GPU}"


@pytest.mark.parametrize("owner", ["", "unknown"])
def test_pods_of_the_default_quota_have_no_claim(owner: str) -> None:
    ledger, _, _ = borrowed_out()
    assert entitled_to_reclaim(ledger, pod("z", owner, 1)) == "no elastic quota promises anything to the pod"


def test_pods_leave_until_their_quota_is_at_its_floor_and_the_last_one_counts_with_what_is_lost() -> None:
    ledger, placed, comer = borrowed_out()
    assert lost(ledger, placed[:2], [comer], [GPU]) == {GPU: 0}
    assert lost(ledger, placed[:3], [comer], [GPU]) == {GPU: 1}
    for one in placed[:3]:
        ledger = ledger.forget(one)
    assert lost(ledger, placed[3:], [comer], [GPU]) == {}


def test_who_has_nothing_of_what_is_wanted_gives_nothing_back() -> None:
    ledger, placed, comer = borrowed_out()
    assert lost(ledger, placed[:1], [comer], ["memory"]) == {}


def test_a_family_within_its_own_floor_is_left_alone() -> None:
    """Below P one child borrows from the other; that is P's affair, not that of P's brother."""
    quotas = [quota("P", 6), quota("p1", 1, parent="P"), quota("p2", 5, parent="P"), quota("A", 2)]
    victim = pod("v", "p1", 4, node="x")
    comer, brother = pod("a", "A", 1), pod("b", "p2", 1)
    ledger = open_ledger(quotas, total={GPU: 8}, pods=[victim, comer, brother])
    assert lost(ledger, [victim], [comer], [GPU]) == {}
    assert lost(ledger, [victim], [brother], [GPU]) == {GPU: 1}


def test_what_those_as_important_lose_together_is_less_than_what_comes_gains() -> None:
    gains = {GPU: 4}
    assert affordable({GPU: 0}, 9, gains, 5)
    assert not affordable({GPU: 1}, 9, gains, 5)
    assert affordable({GPU: 7}, 4, gains, 5)
    assert affordable({GPU: 3}, 5, gains, 5)
    assert not affordable({GPU: 1}, 5, gains, 5)
    assert not affordable({}, 0, gains, 5)
