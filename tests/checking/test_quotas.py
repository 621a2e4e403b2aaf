"""What the checker counts in quotas, and what it holds them to."""

from __future__ import annotations

import itertools

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    ScheduleResult,
    schedule,
    verify,
)
from koordcore.checking.quota_chains import QuotaChains
from koordcore.checking.quota_sums import QuotaSums
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import make_resources

TEAM = {"quota.scheduling.koordinator.sh/name": "team"}
KEPT = {**TEAM, "quota.scheduling.koordinator.sh/preemptible": "false"}


@pytest.mark.parametrize(("requests", "violated"), [({"memory": 1}, False), ({"cpu": 1}, True)])
def test_who_adds_nothing_is_not_to_blame(requests: dict[str, int], violated: bool) -> None:
    """CPU was used beyond what may be kept from others; only more CPU makes it worse."""
    node = Node(name="n", allocatable={"cpu": 9000, "memory": 99, "pods": 9})
    old = Pod(name="old", labels=KEPT, requests={"cpu": 2000}).at("n")
    team = ElasticQuota(name="team", max=make_resources({"cpu": 4000}), min=make_resources({"cpu": 0}))
    new = Pod(name="new", labels=KEPT, requests=requests)
    snapshot = ClusterSnapshot(nodes=[NodeState(node, (old,))], pending=[new], records=[team])
    placed = schedule(attrs.evolve(snapshot, records=()))
    planned: ScheduleResult = attrs.evolve(
        placed, snapshot=attrs.evolve(placed.snapshot, records=snapshot.records)
    )
    assert len(planned.bound) == 1
    assert [one.kind for one in verify(snapshot, planned)] == ["quota"] * violated


PARENTS = QuotaPolicy(enable_check_parent_quota=True)


def _under(policy: QuotaPolicy) -> Policy:
    return Policy().with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=policy))


def _of(quota: str, **labels: str) -> dict[str, str]:
    prefix = "quota.scheduling.koordinator.sh/"
    return {f"{prefix}name": quota, **{prefix + key: value for key, value in labels.items()}}


DEPT = ElasticQuota(name="dept", max={"cpu": 2000, "memory": 99}, min={})
TEAM_OF = ElasticQuota(name="team", parent="dept", max={"memory": 99}, min={"cpu": 1000})
OTHER = ElasticQuota(name="other", parent="dept", max={"cpu": 2000}, min={"cpu": 1000})


def test_what_a_quota_does_not_name_counts_neither_there_nor_above() -> None:
    """Admission counts a pod with what its own quota's max names, up to the top; so does the checker."""
    node = Node(name="n", allocatable={"cpu": 9000, "memory": 99, "pods": 9})
    asks = {"cpu": 3000, "memory": 1}
    away = Pod(name="away", labels=_of("team"), requests=asks).at("gone")
    ran = Pod(name="ran", labels=_of("team"), requests=asks).at("n")
    pods = [
        Pod(name="new", labels=_of("team", preemptible="false"), requests=asks),
        Pod(name="one", labels=_of("other"), requests={"cpu": 1000}),
    ]
    snapshot = ClusterSnapshot(
        nodes=[NodeState(node, (ran,))], pending=pods, records=(DEPT, TEAM_OF, OTHER, away)
    )
    result = schedule(snapshot, policy=_under(PARENTS))
    assert len(result.bound) == 2
    assert verify(snapshot, result) == ()
    # Who may not leave is not held to a min either that the max does not name.
    assert verify(snapshot, attrs.evolve(result, policy=Policy())) == ()
    wider = attrs.evolve(TEAM_OF, max=DEPT.max)
    seen = snapshot.with_records(wider)
    planned = attrs.evolve(result, snapshot=result.snapshot.with_records(wider))
    assert {one.subject for one in verify(seen, planned)} == {"dept", "team"}


def test_sums_over_quotas_count_what_the_pods_own_quota_names() -> None:
    """Other quotas, of which everybody is counted anew, may name more."""
    sums = QuotaSums({"dept": DEPT, "team": TEAM_OF})
    sums.count(Pod(name="p", labels=_of("team", preemptible="false"), requests={"cpu": 3000, "memory": 1}))
    assert (
        sums.whole["team"]
        == sums.guarded["team"]
        == sums.guarded["dept"]
        == sums.whole["dept"]
        == {"memory": 1}
    )
    wider = QuotaSums({"dept": DEPT, "team": attrs.evolve(TEAM_OF, max=DEPT.max)})
    wider.take(sums)
    assert wider.whole["dept"] == {"cpu": 3000, "memory": 1}
    chains = QuotaChains.of({"dept": DEPT, "team": TEAM_OF}, PARENTS, ())
    pod = Pod(name="p", labels=_of("team"), requests={"cpu": 3000, "memory": 1})
    assert chains.held([pod])["dept"] == {"memory": 1}


@pytest.mark.parametrize("guaranteed", [True, False])
def test_a_floor_above_a_max_is_no_violation(guaranteed: bool) -> None:
    """A quota that does not lend has its min as runtime, even above its max; so it is with upstream."""
    team = ElasticQuota(name="team", max={"cpu": 2000}, min={"cpu": 3000}, allow_lent=guaranteed)
    pods = [Pod(name=f"p{number}", labels=TEAM, requests={"cpu": 1000}) for number in range(5)]
    node = Node(name="n", allocatable={"cpu": 9000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=pods, records=[team])
    policy = _under(QuotaPolicy(guarantee_usage=guaranteed))
    result = schedule(snapshot, policy=policy)
    assert len(result.bound) == 3
    assert verify(snapshot, result) == ()
    # Hard caps know no floor.
    capped = attrs.evolve(result, policy=_under(QuotaPolicy(enable_runtime_quota=False)))
    assert [one.subject for one in verify(snapshot, capped)] == ["team"]


def test_what_is_guaranteed_below_lifts_the_quotas_above() -> None:
    """Both teams are promised more than the max above them says; where usage is guaranteed they get it."""
    dept = ElasticQuota(name="dept", max={"cpu": 3000}, min={"cpu": 1000})
    teams = [
        ElasticQuota(name=name, parent="dept", max={"cpu": 2000}, min={"cpu": 2000}) for name in ("a", "b")
    ]
    pods = [
        Pod(name=f"{name}{number}", labels=_of(name), requests={"cpu": 1000})
        for name in ("a", "b")
        for number in range(3)
    ]
    node = Node(name="n", allocatable={"cpu": 9000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=pods, records=[dept, *teams])
    result = schedule(snapshot, policy=_under(attrs.evolve(PARENTS, guarantee_usage=True)))
    assert len(result.bound) == 4
    assert verify(snapshot, result) == ()
    plain = attrs.evolve(result, policy=_under(PARENTS))
    assert [one.subject for one in verify(snapshot, plain)] == ["dept"]


def _dump(*quotas: ElasticQuota, cpu: int = 9000, pending: tuple[Pod, ...], **bound: Pod) -> ClusterSnapshot:
    node = Node(name="n", allocatable={"cpu": cpu, "pods": 99})
    snapshot = ClusterSnapshot(nodes=[node], pending=pending, records=quotas)
    return snapshot.assume(*[pod.at("n") for pod in bound.values()])


def _pod(name: str, quota: str, cpu: int, **more: str) -> Pod:
    return Pod(name=name, labels=_of(quota, **more), requests={"cpu": cpu}, priority=20)


@pytest.mark.parametrize("kept", [{}, {"preemptible": "false"}])
def test_what_quotas_below_use_counts_where_a_pod_of_the_parent_asks(kept: dict[str, str]) -> None:
    """Used is that of all below, whether or not their pods ask the parent; so are those nobody may evict."""
    room = {"cpu": 10_000} if not kept else {"cpu": 20_000}
    dept = ElasticQuota(name="dept", is_parent=True, max=room, min={"cpu": 10_000})
    team = ElasticQuota(name="team", parent="dept", max={"cpu": 10_000}, min={"cpu": 10_000})
    old = _pod("old", "team", 8000, **kept)
    snapshot = _dump(dept, team, cpu=90_000, pending=(_pod("new", "dept", 3000, **kept),), old=old)
    assert not schedule(snapshot).bound
    free = schedule(snapshot, policy=Policy().without_plugin("ElasticQuota"))
    (found,) = verify(snapshot, attrs.evolve(free, policy=Policy()))
    assert (found.kind, found.subject) == ("quota", "dept")
    assert found.message.startswith("cpu: 11000 used")


def test_who_comes_to_a_quota_below_later_is_not_held_against_the_parents_pods() -> None:
    """Pods of ``team`` do not ask ``dept`` unless the policy says so."""
    dept = ElasticQuota(name="dept", is_parent=True, max={"cpu": 10_000}, min={"cpu": 10_000})
    team = ElasticQuota(name="team", parent="dept", max={"cpu": 10_000}, min={"cpu": 10_000})
    below, own = _pod("below", "team", 8000), _pod("own", "dept", 3000)
    policy = _under(QuotaPolicy(enable_min_quota_scale=False))
    for first, number in ((own, 2), (below, 1)):
        pending = tuple(attrs.evolve(pod, priority=30 if pod is first else 20) for pod in (own, below))
        snapshot = _dump(dept, team, cpu=90_000, pending=pending)
        result = schedule(snapshot, policy=policy)
        assert len(result.bound) == number
        assert verify(snapshot, result) == ()
        asked = attrs.evolve(result, policy=_under(PARENTS))
        assert [one.subject for one in verify(snapshot, asked)] == ["dept"] * (number - 1)


def test_a_victim_is_needed_where_quotas_below_use_the_parents_room() -> None:
    dept = ElasticQuota(name="dept", is_parent=True, max={"cpu": 40_000}, min={"cpu": 9000})
    team = ElasticQuota(name="team", parent="dept", max={"cpu": 50_000}, min={})
    low = attrs.evolve(_pod("low", "dept", 5000), priority=0)
    new = attrs.evolve(_pod("new", "dept", 0), priority=10, requests={})
    policy = _under(QuotaPolicy(enable_min_quota_scale=False))
    snapshot = _dump(dept, team, cpu=10_000, pending=(new,), low=low, high=_pod("high", "team", 8000))
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert [one.pod.name for one in plan.victims] == ["low"]
    assert verify(snapshot, result) == ()


def test_a_runtime_is_not_certain_where_a_quota_below_uses_more_than_its_max() -> None:
    """What is beyond that counts in no request above, so the parent is handed less than its ``min``."""
    dept = ElasticQuota(name="dept", is_parent=True, max={"cpu": 5000}, min={"cpu": 5000})
    team = ElasticQuota(name="team", parent="dept", max={"cpu": 2000}, min={"cpu": 0})
    old, new = _pod("old", "team", 3000), _pod("new", "dept", 2000)
    policy = _under(QuotaPolicy(enable_min_quota_scale=False))
    snapshot = _dump(dept, team, pending=(new,), old=attrs.evolve(old, priority=0))
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert [one.pod.name for one in plan.victims] == ["old"]
    assert verify(snapshot, result) == ()


def test_pods_of_a_parent_may_leave_for_those_of_quotas_below() -> None:
    """They use the same promise, here one beyond the max; nobody borrows more."""
    dept = ElasticQuota(name="dept", is_parent=True, max={"cpu": 5000}, min={"cpu": 8000})
    team = ElasticQuota(name="team", parent="dept", max={"cpu": 5000}, min={"cpu": 5000})
    low = attrs.evolve(_pod("low", "dept", 4000), priority=0)
    policy = _under(QuotaPolicy(enable_check_parent_quota=True, enable_min_quota_scale=False))
    snapshot = _dump(dept, team, cpu=9000, pending=(_pod("new", "team", 4000),), low=low)
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert [one.pod.name for one in plan.victims] == ["low"]
    assert verify(snapshot, result) == ()


def test_a_quota_does_not_count_what_stands_below_it_in_another_tree() -> None:
    """Neither what runs beside who comes nor what runs far away."""
    dept = ElasticQuota(name="dept", is_parent=True, max={"cpu": 5000}, min={"cpu": 5000})
    team = ElasticQuota(name="team", parent="dept", tree="t", max={"cpu": 5000}, min={"cpu": 5000})
    nodes = [Node(name=name, allocatable={"cpu": 5000, "pods": 9}) for name in ("n", "far")]
    for several, where in itertools.product((True, False), ("n", "far")):
        policy = _under(QuotaPolicy(multi_quota_tree=several))
        snapshot = ClusterSnapshot(
            nodes=nodes, pending=[_pod("new", "dept", 3000)], records=(dept, team)
        ).assume(_pod("old", "team", 2000).at(where), _pod("more", "team", 1000).at("far"))
        result = schedule(snapshot, policy=policy)
        assert bool(result.bound) is several
        assert verify(snapshot, result) == ()
