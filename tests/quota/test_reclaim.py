"""Cross-quota reclaim: who may, who goes, and that it ends."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod
from koordcore.model.resources import make_resources
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.preempt import NodeFilter, NoVictims
from koordcore.quota.reclaim import (
    ReclaimNode,
    ReclaimPlan,
    entitled_to_reclaim,
    plan_reclaim,
)

GPU = "nvidia.com/gpu"


def quota(name: str, least: int, *, parent: str = "", most: int = 100) -> ElasticQuota:
    return ElasticQuota(
        name=name, parent=parent, min=make_resources({GPU: least}), max=make_resources({GPU: most})
    )


def pod(
    name: str, owner: str, gpus: int, *, node: str = "", priority: int = 0, kept: bool = False
) -> QuotaPod:
    return QuotaPod(
        key=PodKey("d", name),
        quota=owner,
        request=make_resources({GPU: gpus}),
        node=node,
        priority=priority,
        preemptible=not kept,
    )


def holds(capacity: int, comer: QuotaPod) -> NodeFilter:
    def refuse(others: Collection[QuotaPod]) -> str:
        used = sum(other.request[GPU] for other in others)
        return f"Insufficient {GPU}" if used + comer.request[GPU] > capacity else ""

    return refuse


def nodes(pods: Collection[QuotaPod], comer: QuotaPod, *, capacity: int, names: str) -> list[ReclaimNode]:
    return [
        ReclaimNode(
            name=name,
            pods=tuple(each for each in pods if each.node == name),
            refuse=holds(capacity, comer),
        )
        for name in names
    ]


def borrowed_out() -> tuple[QuotaLedger, list[QuotaPod], QuotaPod]:
    """B has borrowed everything on two nodes of 4; a pod of A, which lent it, arrives."""
    placed = [pod(f"b{index}", "B", 2, node="xxyy"[index], priority=index) for index in range(4)]
    comer = pod("a", "A", 2)
    quotas = [quota("A", 6), quota("B", 2)]
    return open_ledger(quotas, total={GPU: 8}, pods=[*placed, comer]), placed, comer


def test_the_owner_gets_back_what_it_lent_from_the_least_important() -> None:
    ledger, placed, comer = borrowed_out()
    plan = plan_reclaim(ledger, comer, nodes(placed, comer, capacity=4, names="xy"))
    assert isinstance(plan, ReclaimPlan)
    assert (plan.node, [str(victim.key) for victim in plan.victims]) == ("x", ["d/b0"])


def test_priority_does_not_protect_a_borrower() -> None:
    ledger, placed, comer = borrowed_out()
    high = [attrs.evolve(each, priority=1000) for each in placed]
    assert isinstance(plan_reclaim(ledger, comer, nodes(high, comer, capacity=4, names="xy")), ReclaimPlan)


def test_nobody_reclaims_beyond_its_min() -> None:
    ledger, placed, _ = borrowed_out()
    greedy = pod("a", "A", 7)
    found = plan_reclaim(ledger.track(greedy), greedy, nodes(placed, greedy, capacity=8, names="x"))
    assert isinstance(found, NoVictims)
    assert found.message == f"elastic quota A would go beyond its min in {GPU}"
    assert not found.resolvable


@pytest.mark.parametrize("owner", ["", "unknown"])
def test_pods_of_the_default_quota_have_no_claim(owner: str) -> None:
    ledger, _, _ = borrowed_out()
    assert entitled_to_reclaim(ledger, pod("z", owner, 1)) == "no elastic quota promises anything to the pod"


def test_a_borrower_keeps_its_floor_and_its_non_preemptible_pods() -> None:
    placed = [pod("b0", "B", 2, node="x"), pod("b1", "B", 2, node="x", kept=True)]
    comer = pod("a", "A", 4)
    ledger = open_ledger([quota("A", 6), quota("B", 2)], total={GPU: 8}, pods=[*placed, comer])
    assert isinstance(plan_reclaim(ledger, comer, nodes(placed, comer, capacity=4, names="x")), NoVictims)


def test_a_family_within_its_own_floor_is_left_alone() -> None:
    """Below P one child borrows from the other; that is P's affair, not that of P's brother."""
    quotas = [quota("P", 6), quota("p1", 1, parent="P"), quota("p2", 5, parent="P"), quota("A", 2)]
    placed = [pod("v", "p1", 4, node="x")]
    comer = pod("a", "A", 1)
    ledger = open_ledger(quotas, total={GPU: 8}, pods=[*placed, comer])
    assert isinstance(plan_reclaim(ledger, comer, nodes(placed, comer, capacity=4, names="x")), NoVictims)
    brother = pod("b", "p2", 1)
    found = plan_reclaim(ledger.track(brother), brother, nodes(placed, brother, capacity=4, names="x"))
    assert isinstance(found, ReclaimPlan)


def test_a_reclaimed_pod_does_not_reclaim_back() -> None:
    ledger, placed, comer = borrowed_out()
    plan = plan_reclaim(ledger, comer, nodes(placed, comer, capacity=4, names="xy"))
    assert isinstance(plan, ReclaimPlan)
    for victim in plan.victims:
        ledger = ledger.forget(victim)
    ledger = ledger.assume(comer)
    gone = {victim.key for victim in plan.victims}
    now = [each for each in placed if each.key not in gone] + [attrs.evolve(comer, node=plan.node)]
    back = attrs.evolve(plan.victims[0], node="")
    assert isinstance(plan_reclaim(ledger, back, nodes(now, back, capacity=4, names="xy")), NoVictims)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[ElasticQuota], list[QuotaPod], list[QuotaPod]]:
    """A nested tree, pods placed regardless of promises, and pods that wait."""
    least = st.integers(0, 6)
    quotas = [
        quota("P", draw(least)),
        quota("p1", draw(least), parent="P"),
        quota("p2", draw(least), parent="P"),
        quota("A", draw(least)),
        quota("B", draw(least)),
    ]
    owners = st.sampled_from(["p1", "p2", "A", "B"])
    placed, waiting = [], []
    room = dict.fromkeys("xyz", 4)
    for index in range(draw(st.integers(1, 10))):
        one = pod(
            f"v{index}",
            draw(owners),
            draw(st.integers(1, 3)),
            priority=draw(st.integers(0, 3)),
            kept=draw(st.integers(0, 5)) == 0,
        )
        node = draw(st.sampled_from("xyz"))
        if room[node] >= one.request[GPU]:
            room[node] -= one.request[GPU]
            placed.append(attrs.evolve(one, node=node))
        else:
            waiting.append(one)
    waiting += [pod(f"w{index}", draw(owners), draw(st.integers(1, 4))) for index in range(3)]
    return quotas, placed, waiting


@settings(max_examples=60)
@given(clusters())
def test_reclaims_end_and_never_displace_a_reclaimer(
    case: tuple[list[ElasticQuota], list[QuotaPod], list[QuotaPod]],
) -> None:
    """Victims queue up again and try to reclaim; the borrowed amount falls with every eviction."""
    quotas, placed, waiting = case
    ledger = open_ledger(quotas, total={GPU: 12}, pods=[*placed, *waiting])
    settled: set[PodKey] = set()
    queue, idle = list(waiting), 0
    while queue and idle < len(queue):
        comer = queue.pop(0)
        plan = plan_reclaim(ledger, comer, nodes(placed, comer, capacity=4, names="xyz"))
        if isinstance(plan, NoVictims):
            queue.append(comer)
            idle += 1
            continue
        idle = 0
        before = borrowed(ledger)
        for victim in plan.victims:
            assert victim.key not in settled
            ledger = ledger.forget(victim)
            queue.append(attrs.evolve(victim, node=""))
        gone = {victim.key for victim in plan.victims}
        placed = [each for each in placed if each.key not in gone]
        ledger = ledger.assume(comer)
        placed.append(attrs.evolve(comer, node=plan.node))
        settled.add(comer.key)
        assert borrowed(ledger) <= before - len(plan.victims)


def borrowed(ledger: QuotaLedger) -> int:
    """Add up what quotas without children use beyond their floors."""
    parents = {quota.parent for quota in ledger.quotas.values()}
    total = 0
    for name in ledger.quotas:
        if name not in parents:
            floor = ledger.floor_of(name)
            total += sum(max(0, amount - floor.get(key, 0)) for key, amount in ledger.used_of(name).items())
    return total
