"""What the checker counts in quotas, and what it holds them to."""

from __future__ import annotations

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    Policy,
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
    assert sums.own["team"] == sums.guarded["team"] == sums.whole["dept"] == {"memory": 1}
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
