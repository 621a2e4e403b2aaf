"""Token buckets: made full at the first eviction, refilled by the clock, forgotten when idle."""

from __future__ import annotations

from immutabledict import immutabledict

from koordcore.descheduling.migration.limits import LimiterState
from koordcore.descheduling.migration.workloads import Workloads
from koordcore.model.cluster import Workload
from koordcore.model.pods import OwnerReference, Pod
from koordcore.model.rebalance import MigrationControllerArgs, ObjectLimiter

SECOND = 10**9
POD = Pod(name="p", owners=(OwnerReference("ReplicaSet", "w", "w", controller=True),), node_name="n")
OWNERS = Workloads([Workload(kind="ReplicaSet", name="w", uid="w", replicas=20)], [POD])


def state(**limiters: ObjectLimiter) -> LimiterState:
    return LimiterState(args=MigrationControllerArgs(limiters=immutabledict(limiters)))


def test_nothing_is_limited_before_the_first_eviction() -> None:
    """There is no bucket yet."""
    assert not state(workload=ObjectLimiter(10 * SECOND)).limited(POD, 0)


def test_a_token_comes_back_with_time() -> None:
    """Two of twenty pods in ten seconds are one every five."""
    after = state(workload=ObjectLimiter(10 * SECOND)).evicted(POD, OWNERS, 0)
    assert after.limited(POD, 4 * SECOND)
    assert not after.limited(POD, 5 * SECOND)


def test_one_type_without_rate_does_not_stop_the_other() -> None:
    """A share makes no sense for a namespace; the workload's bucket is made all the same."""
    limits = {"namespace": ObjectLimiter(SECOND, "10%"), "workload": ObjectLimiter(10 * SECOND)}
    after = state(**limits).evicted(POD, OWNERS, 0)
    assert list(after.buckets) == [("workload", "w")]


def test_an_idle_bucket_is_forgotten_by_a_sweep() -> None:
    """Sweeps come every one and a half durations; the second one finds it idle long enough."""
    after = state(workload=ObjectLimiter(2 * SECOND)).evicted(POD, OWNERS, SECOND)
    assert after.tokens(5 * SECOND)
    assert not after.tokens(6 * SECOND)


def test_evictions_without_tokens_leave_no_debt() -> None:
    """Many evictions at once cost no more than one."""
    after = state(workload=ObjectLimiter(10 * SECOND))
    for _ in range(5):
        after = after.evicted(POD, OWNERS, 0)
    assert not after.limited(POD, 5 * SECOND)
