"""Evictions among quotas: what those who leave go on asking for, and what a bound is told of."""

from __future__ import annotations

import attrs
import pytest

from koordcore import ClusterSnapshot, NodeState, Nominated, PreemptionRules, Unschedulable, schedule, verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import PodGroup
from koordcore.model.selectors import LabelSelector
from tests.preemption.test_flow import GROUP
from tests.preemption.test_quotas import RULES, node, pod, quota, victims


def test_who_is_evicted_asks_again_so_that_no_other_quota_grows_by_its_share() -> None:
    """There is room for ``other`` once ``low`` has left; by what both quotas ask for it is not its due."""
    snapshot = ClusterSnapshot(
        nodes=[node("n", 8, pod("low", 3, "a")), node("m", 1)],
        pending=[pod("high", 2, "a", 10), pod("other", 6, "b")],
        records=[quota("a", 6, 20), quota("b", 6, 20)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert victims(result) == ["low"]
    high, other = result.decisions
    assert isinstance(high, Nominated)
    assert isinstance(other, Unschedulable)
    assert "quotaName: b" in other.message


def test_who_leaves_for_a_pod_of_no_quota_goes_on_counting_in_its_own() -> None:
    """There is room for ``high`` at once; ``low`` uses what their quota may, and comes back for it."""
    snapshot = ClusterSnapshot(
        nodes=[node("n", 4, pod("low", 3, "a", 20)), node("m", 1)],
        pending=[pod("first", 4, "", 30), pod("high", 1, "a", 10)],
        records=[quota("a", 3, 3)],
    )
    result = schedule(snapshot, preempt=PreemptionRules(reclaim=False))
    assert verify(snapshot, result) == ()
    assert victims(result) == ["low"]
    first, high = result.decisions
    assert isinstance(first, Nominated)
    assert isinstance(high, Unschedulable)
    assert "quotaName: a" in high.message


def test_a_plan_without_time_to_search_has_no_bound_where_evictions_may_raise_a_quota() -> None:
    """``low`` belongs to no quota: what it uses is shared among these once it has left."""
    gang = [pod(f"g{number}", 2, "a", 10, **{GROUP: "g"}) for number in range(3)]
    snapshot = ClusterSnapshot(
        nodes=[node("n", 7, pod("low", 3, "zz"), pod("mine", 4, "a")), node("m", 3)],
        pending=gang,
        records=[quota("a", 2, 15), quota("b", 1, 11), PodGroup(namespace="default", name="g", min_member=3)],
    )
    (plan,) = schedule(snapshot, preempt=RULES, limits=Limits(deterministic_time=1e-6)).preemptions
    assert plan.certificate.status is CertificateStatus.HEURISTIC
    (best,) = schedule(snapshot, preempt=RULES).preemptions
    assert best.certificate.proven
    assert best.damage <= plan.damage


@pytest.mark.parametrize("here", [("low",), ()], ids=["beside one", "alone"])
@pytest.mark.parametrize("others", [0, 3])
def test_who_leaves_for_its_quota_may_have_been_in_the_way_from_afar(
    here: tuple[str, ...], others: int
) -> None:
    """``shuns`` runs on another node of the zone, uses what the quota may, and keeps the pod off.

    Others on its node are its equals but for that.
    """
    term = PodAffinityTerm(selector=LabelSelector({"app": "x"}), topology_key="zone")
    shuns = attrs.evolve(pod("shuns", 2, "a"), affinity=Affinity(anti=PodAffinity(required=(term,))))
    equals = [pod(f"e{number}", 2, "a") for number in range(others)]
    used = 2 * (1 + others)
    nodes = [node("n", 9, *(pod(name, 1, "") for name in here)), node("m", 9, *equals, shuns)]
    snapshot = ClusterSnapshot(
        nodes=[NodeState(attrs.evolve(one.node, labels={"zone": "z"}), one.pods) for one in nodes],
        pending=[pod("p", 1, "a", 10, app="x")],
        records=[quota("a", used, used)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert victims(result) == ["shuns"]
    (plan,) = result.preemptions
    assert plan.certificate.proven


@pytest.mark.parametrize("mine", [("idle",), ()], ids=["one of the quota there", "nobody of it"])
def test_that_pods_of_no_quota_leave_raises_what_quotas_share(mine: tuple[str, ...]) -> None:
    """Two of eight CPUs are left to quotas that are promised three; ``p`` is due one, two thirds now."""
    taken = attrs.evolve(pod("taken", 2, "none", 10), labels={})
    others = attrs.evolve(pod("others", 4, "none", 20), labels={})
    idle = [attrs.evolve(pod(name, 0, "a", 10), requests={"memory": 1}) for name in mine]
    snapshot = ClusterSnapshot(
        nodes=[node("n", 3, taken, *idle), node("m", 5, others)],
        pending=[pod("p", 1, "a", 15), pod("theirs", 5, "b", 1)],
        records=[quota("a", 1, 4), quota("b", 2, 6)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert victims(result) == ["taken"]


@pytest.mark.parametrize("promised", [1, 10**22])
def test_nobody_leaves_a_quota_below_what_it_is_promised_however_much_that_is(promised: int) -> None:
    """``p`` belongs to no quota: it gets room of theirs only where they use more than their promise."""
    snapshot = ClusterSnapshot(
        nodes=[node("n", 4, pod("low", 3, "a"))],
        pending=[pod("p", 4, "", 10)],
        records=[quota("a", promised, promised)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [type(one) for one in result.decisions] == [Unschedulable]
