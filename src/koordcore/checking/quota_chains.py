"""Quotas above quotas: whose pods count where, and whose ``min`` is there whatever others ask for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from koordcore._record import record
from koordcore.checking.quota_sums import (
    NOBODY,
    QUOTA_LABEL,
    Elsewhere,
    charged,
    counted_in,
    counting,
    parents_of,
    quota_of,
    spaces_of,
)
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.quotas import DEFAULT_QUOTA, ROOT_QUOTA, ElasticQuota, QuotaPolicy


@record(eq=False)
class QuotaChains:
    """The quotas of a cluster by name, and the policy that governs them.

    Parameters
    ----------
    spaces
        Quota by the namespaces that they list.
    states, elsewhere
        Every node of the cluster, and what pods hold that are not shown one by one.
    """

    quotas: Mapping[str, ElasticQuota]
    policy: QuotaPolicy
    spaces: Mapping[str, str]
    states: Sequence[NodeState]
    elsewhere: Elsewhere

    @classmethod
    def of(
        cls,
        quotas: Mapping[str, ElasticQuota],
        policy: QuotaPolicy,
        states: Sequence[NodeState],
        elsewhere: Elsewhere = NOBODY,
    ) -> QuotaChains:
        """Read the namespaces of some quotas."""
        return cls(quotas, policy, spaces_of(quotas), states, elsewhere.under(policy))

    def chain(self, pod: Pod) -> list[str]:
        """Name the quota of a pod and, where admission asks them, those above it; an empty name for none."""
        if self.policy.disable_default_quota and pod.labels.get(QUOTA_LABEL) not in self.quotas:
            return [""]
        own = quota_of(pod, self.quotas, self.spaces)
        above = parents_of(own, self.quotas) if self.policy.enable_check_parent_quota else ()
        return [own, *above]

    def counting(self, pod: Pod) -> list[str]:
        """Name the quotas that count what a pod uses, its own first, whether or not admission asks them."""
        return counted_in(self.chain(pod)[0], self.quotas, several=self.policy.multi_quota_tree)

    def held(self, pods: Iterable[Pod]) -> defaultdict[str, Counter[str]]:
        """Add up what the pods of every quota and of those below hold: those shown, and those elsewhere."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name in self.elsewhere.names():
            if name in self.quotas or name in (DEFAULT_QUOTA, ""):  # no other name is a pod's own
                found[name].update(self.elsewhere.held(name))
        for pod in pods:
            names = self.counting(pod)
            amounts = counting(charged(pod), self.quotas.get(names[0]))
            for name in names:
                found[name].update(amounts)
        return found

    def capped(self, name: str, resource: str, held: Mapping[str, Mapping[str, int]]) -> bool:
        """Tell whether a quota below one uses more than its max: the rest counts in no request above."""
        several = self.policy.multi_quota_tree
        return any(
            held.get(one.name, {}).get(resource, 0) > one.max.get(resource, 0)
            for one in self.quotas.values()
            if resource in one.max and name in counted_in(one.name, self.quotas, several=several)[1:]
        )

    def kept(self, name: str, resource: str, held: Mapping[str, Mapping[str, int]]) -> bool:
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
            above = self.quotas[parent]
            # One may say a max below its min, which is all that it then has to deal out.
            least = min(above.min.get(resource, 0), above.max.get(resource, promised))
            return promised <= least and self.kept(parent, resource, held)
        there = sum(state.node.allocatable.get(resource, 0) for state in self.states)
        outside = sum(used.get(resource, 0) for quota, used in held.items() if quota not in self.quotas)
        return promised <= there - outside
