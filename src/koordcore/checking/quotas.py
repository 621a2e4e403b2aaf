"""Quotas: what the pods of each quota hold, added up anew, against what it may reach.

Runtime quotas depend on everybody's requests at the moment of each decision and are not worked out again
here. What must hold at any moment is checked: no quota that gained a pod holds more than its ``max``, and its
non-preemptible pods no more than its ``min``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from koordcore.checking.nodes import STANDS_FOR
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import Resources, make_resources, total
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

__all__ = ["charged", "check_quotas", "parents_of", "quota_of"]

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
PREEMPTIBLE_LABEL = "quota.scheduling.koordinator.sh/preemptible"


def check_quotas(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """No quota that a decision added to exceeds what it may reach."""
    quotas = {quota.name: quota for quota in snapshot.of(ElasticQuota)}
    if not quotas or not result.policy.filters("ElasticQuota"):
        return
    setting = result.policy.plugin("ElasticQuota")
    policy = setting.args if setting and setting.args else QuotaPolicy()
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    spaces = {space: name for name, quota in sorted(quotas.items()) for space in quota.namespaces}
    held: dict[str, list[Pod]] = defaultdict(list)
    guarded: dict[str, list[Pod]] = defaultdict(list)
    grown: set[str] = set()
    for state in result.snapshot.nodes:
        for pod in state.pods:
            if pod.annotations.get(STANDS_FOR) == "true":
                continue  # what a reservation holds is used by nobody yet
            name = quota_of(pod, quotas, spaces)
            if pod.labels.get(PREEMPTIBLE_LABEL) == "false":
                guarded[name].append(pod)  # the min of the quotas above is not asked for
            for member in (name, *(parents_of(name, quotas) if policy.enable_check_parent_quota else ())):
                held[member].append(pod)
                if pod.key in new:
                    grown.add(member)
    for name in sorted(grown & quotas.keys()):
        yield from _check_limit(name, "max", held[name], quotas[name].max, new)
        what = "min for non-preemptible pods"
        yield from _check_limit(name, what, guarded.get(name, ()), quotas[name].min, new)


def quota_of(pod: Pod, quotas: Mapping[str, ElasticQuota], spaces: Mapping[str, str]) -> str:
    """Name the quota of a pod."""
    named = pod.labels.get(QUOTA_LABEL, "")
    if named:
        return named if named in quotas else DEFAULT_QUOTA
    own = quotas.get(pod.namespace)
    if own is not None and own.namespace == pod.namespace:
        return own.name
    return spaces.get(pod.namespace, DEFAULT_QUOTA)


def charged(pod: Pod) -> Resources:
    """Give what a pod counts with: an amount of ``koordinator.sh/gpu`` is core, memory and cards as well."""
    percent = pod.requests.get("koordinator.sh/gpu", 0)
    if not percent:
        return pod.requests
    names = {"gpu-core": percent, "gpu-memory-ratio": percent, "gpu.shared": max(1, percent // 100)}
    return make_resources({**{f"koordinator.sh/{name}": one for name, one in names.items()}, **pod.requests})


def parents_of(name: str, quotas: Mapping[str, ElasticQuota]) -> Iterator[str]:
    """Name what is above a quota, the nearest first."""
    seen = {name}
    quota = quotas.get(name)
    while quota is not None and quota.parent not in seen:
        seen.add(quota.parent)
        yield quota.parent
        quota = quotas.get(quota.parent)


def _check_limit(
    name: str, what: str, pods: Collection[Pod], limit: Resources, new: Collection[PodKey]
) -> Iterator[Violation]:
    used = total(charged(pod) for pod in pods)
    added = total(charged(pod) for pod in pods if pod.key in new)
    for resource, bound in sorted(limit.items()):
        # What was exceeded before is not held against who adds nothing to it.
        if used.get(resource, 0) > bound and added.get(resource, 0):
            message = f"{resource}: {used[resource]} used, {what} is {bound}"
            yield Violation(ViolationKind.QUOTA, name, message)
