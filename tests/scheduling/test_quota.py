"""Quotas in the flow: who is admitted, what the message says, what the checker finds."""

from __future__ import annotations

import attrs

from koordcore import Bound, ClusterSnapshot, Node, Pod, Unschedulable, ViolationKind, schedule, verify
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import make_resources

LABEL = "quota.scheduling.koordinator.sh/name"


def cluster(*pods: Pod) -> ClusterSnapshot:
    """Ten cores; team a is promised 4 and may reach 8, team b is promised 6."""
    return ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 10_000, "memory": 2**36, "pods": 110})],
        pending=pods,
        records=[
            quota("a", 8_000, 4_000),
            quota("b", 10_000, 6_000),
        ],
    )


def quota(name: str, most: int, least: int) -> ElasticQuota:
    return ElasticQuota(name=name, max=make_resources({"cpu": most}), min=make_resources({"cpu": least}))


def pod(name: str, team: str, cpu: int, *, priority: int = 0) -> Pod:
    return Pod(name=name, labels={LABEL: team}, requests={"cpu": cpu}, priority=priority)


def test_an_idle_neighbour_lends() -> None:
    """While b asks for nothing, a may go beyond its promise, up to its max."""
    snapshot = cluster(pod("a1", "a", 4_000), pod("a2", "a", 4_000), pod("a3", "a", 1_000))
    result = schedule(snapshot)
    assert [isinstance(one, Bound) for one in result.decisions] == [True, True, False]
    assert verify(snapshot, result) == ()


def test_what_a_neighbour_asks_for_is_not_lent() -> None:
    """When b asks for its promise, a stays within its own, and the message gives the numbers."""
    snapshot = cluster(pod("a1", "a", 4_000), pod("a2", "a", 1_000), pod("b1", "b", 6_000, priority=-1))
    result = schedule(snapshot)
    refused = next(one for one in result.decisions if isinstance(one, Unschedulable))
    assert refused.pod.name == "a2"
    assert "Insufficient quotas" in refused.message
    assert "quotaName: a" in refused.message


def test_the_checker_adds_up_for_itself() -> None:
    """A plan that exceeds max is not legal, whatever the ledger thought."""
    snapshot = cluster(pod("a1", "a", 8_000), pod("a2", "a", 1_000))
    result = schedule(snapshot)
    late = next(one for one in snapshot.pending if one.name == "a2")
    forged = attrs.evolve(
        result,
        decisions=(result.decisions[0], Bound(pod=late.key, node="n")),
        snapshot=result.snapshot.assume(late.at("n")),
    )
    assert [violation.kind for violation in verify(snapshot, forged)] == [ViolationKind.QUOTA]


def test_pods_of_no_quota_are_free() -> None:
    """The default quota of an unconfigured cluster limits nobody."""
    snapshot = cluster(Pod(name="free", requests={"cpu": 10_000}))
    assert len(schedule(snapshot).bound) == 1


def test_the_min_of_the_quotas_above_is_not_asked_for() -> None:
    """Non-preemptible pods stay within the min of their own quota; the checker asks for no more than that."""
    quotas = [
        ElasticQuota(
            name="dept",
            namespace="default",
            is_parent=True,
            min=make_resources({"cpu": 1_000}),
            max=make_resources({"cpu": 9_000}),
        ),
        ElasticQuota(
            name="team",
            namespace="default",
            parent="dept",
            min=make_resources({"cpu": 2_000}),
            max=make_resources({"cpu": 9_000}),
        ),
    ]
    kept = {LABEL: "team", "quota.scheduling.koordinator.sh/preemptible": "false"}
    node = Node(name="n", allocatable={"cpu": 10_000, "pods": 10})
    args = QuotaPolicy(enable_check_parent_quota=True)
    policy = Policy().with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=args))
    for cpu, fits in ((2_000, True), (3_000, False)):
        pending = [Pod(name="p", labels=kept, requests={"cpu": cpu})]
        snapshot = ClusterSnapshot(nodes=[node], pending=pending, records=quotas)
        result = schedule(snapshot, policy=policy)
        assert bool(result.bound) is fits
        assert verify(snapshot, result) == ()
