"""A quota whose parent does not exist."""

from __future__ import annotations

import attrs
import pytest

from koordcore import ClusterSnapshot, ElasticQuota, Node, PluginSetting, Pod, Policy, schedule, verify
from koordcore.model import QuotaPolicy

LABEL = {"quota.scheduling.koordinator.sh/name": "team"}


@pytest.mark.parametrize(("runtime", "bound"), [(True, 4), (False, 2)])
def test_it_is_limited_by_its_max_only_without_runtime_quotas(runtime: bool, bound: int) -> None:
    """Upstream hands it no runtime, so nothing limits it; the checker says no other than the scheduler."""
    quota = ElasticQuota(name="team", parent="nowhere", max={"cpu": 2000}, min={"cpu": 1000})
    pods = [Pod(name=f"p{number}", labels=LABEL, requests={"cpu": 1000}) for number in range(4)]
    node = Node(name="n", allocatable={"cpu": 8000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=pods, records=(quota,))
    args = QuotaPolicy(enable_runtime_quota=runtime)
    policy = Policy().with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=args))
    result = schedule(snapshot, policy=policy)
    assert len(result.bound) == bound
    assert verify(snapshot, result) == ()
    whole = attrs.evolve(quota, parent="koordinator-root-quota")
    assert len(schedule(snapshot.with_records(whole), policy=policy).bound) == 2
