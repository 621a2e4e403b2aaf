"""Quotas above quotas: whose pods count where, and whose ``min`` is there whatever others ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from koordcore.checking.quotas import charged, parents_of, quota_of
from koordcore.model.pods import Pod
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import total
from koordcore.snapshot import ClusterSnapshot

__all__ = ["QuotaChains"]


@attrs.frozen(eq=False)
class QuotaChains:
    """The quotas of a cluster by name, and the policy that governs them.

    Parameters
    ----------
    spaces
        Quota by the namespaces that they list.
    """

    quotas: Mapping[str, ElasticQuota]
    policy: QuotaPolicy
    spaces: Mapping[str, str]

    @classmethod
    def of(cls, quotas: Mapping[str, ElasticQuota], policy: QuotaPolicy) -> QuotaChains:
        """Read the namespaces of some quotas."""
        spaces = {space: name for name, quota in sorted(quotas.items()) for space in quota.namespaces}
        return cls(quotas, policy, spaces)

    def chain(self, pod: Pod) -> list[str]:
        """Name the quota of a pod and, where admission asks them, those above it."""
        own = quota_of(pod, self.quotas, self.spaces)
        above = parents_of(own, self.quotas) if self.policy.enable_check_parent_quota else ()
        return [own, *above]

    def held(self, pods: Iterable[Pod]) -> defaultdict[str, list[Pod]]:
        """Give the pods of each quota that counts them."""
        found: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            for name in self.chain(pod):
                found[name].append(pod)
        return found

    def kept(
        self, name: str, resource: str, snapshot: ClusterSnapshot, held: Mapping[str, list[Pod]]
    ) -> bool:
        """Tell whether a quota surely has its min of a resource: no promise has to be scaled down.

        What siblings are promised together has to be there: their parent's min, or at the top what the pods
        outside of all quotas leave of the cluster.
        """
        if not self.policy.enable_min_quota_scale:
            return True
        if self.policy.multi_quota_tree or any(quota.is_root for quota in self.quotas.values()):
            return False
        parent = self.quotas[name].parent
        siblings = [quota for quota in self.quotas.values() if quota.parent == parent]
        promised = sum(quota.min.get(resource, 0) for quota in siblings)
        if parent in self.quotas and parent != ROOT_QUOTA:
            above = self.quotas[parent].min.get(resource, 0)
            return promised <= above and self.kept(parent, resource, snapshot, held)
        there = sum(state.node.allocatable.get(resource, 0) for state in snapshot.nodes)
        outside = [pod for quota, pods in held.items() if quota not in self.quotas for pod in pods]
        return promised <= there - total(charged(pod) for pod in outside).get(resource, 0)
