"""The quotas of a page are those that decided."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.reporting.quotas import quota_data


def test_trees_are_told_apart_where_the_policy_does() -> None:
    most = {"cpu": 8000}
    quotas = (ElasticQuota(name="a", tree="t1", max=most), ElasticQuota(name="b", max=most))
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable=most)], records=quotas)
    several = Policy(feature_gates={"MultiQuotaTree": True})
    names = {policy: [one["tree"] for one in quota_data(snapshot, policy)] for policy in (None, several)}
    assert names == {None: [""], several: ["", "t1"]}
