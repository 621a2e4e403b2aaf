"""Quotas: what the pods of each quota hold, added up anew, against what it may reach.

Runtime quotas depend on everybody's requests at the moment of each decision and are not worked out again
here. What must hold at any moment is checked: no quota that gained a pod holds more than its ``max``, and its
non-preemptible pods no more than its ``min``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from koordcore.checking.nodes import STANDS_FOR
from koordcore.checking.quota_sums import (
    NOBODY,
    PREEMPTIBLE_LABEL,
    Elsewhere,
    Specs,
    charged,
    parents_of,
    quota_of,
    spaces_of,
    specs_in,
)
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import Resources, total
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_quotas(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, elsewhere: Elsewhere = NOBODY
) -> Iterator[Violation]:
    """No quota that a decision added to exceeds what it may reach."""
    quotas = {quota.name: quota for quota in snapshot.of(ElasticQuota)}
    if not quotas or not result.policy.filters("ElasticQuota"):
        return
    setting = result.policy.plugin("ElasticQuota")
    policy = setting.args if setting and setting.args else QuotaPolicy()
    above = policy.enable_check_parent_quota
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    spaces, specs = spaces_of(quotas), specs_in(snapshot)
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
            for member in (name, *(parents_of(name, quotas) if above else ())):
                held[member].append(pod)
                if pod.key in new:
                    grown.add(member)
    for name in sorted(grown & quotas.keys()):
        others = elsewhere.held(name, whole=above)
        if not (policy.enable_runtime_quota and _detached(name, quotas)):
            yield from _check_limit(name, "max", held[name], others, quotas[name].max, new, specs)
        what = "min for non-preemptible pods"
        mine, others = guarded.get(name, ()), elsewhere.guarded(name)
        yield from _check_limit(name, what, mine, others, quotas[name].min, new, specs)


def _detached(name: str, quotas: Mapping[str, ElasticQuota]) -> bool:
    """Tell whether something above a quota does not exist: it is handed nothing, and nothing limits it."""
    return [name, *parents_of(name, quotas)][-1] != ROOT_QUOTA


def _check_limit(
    name: str,
    what: str,
    pods: Collection[Pod],
    others: Mapping[str, int],
    limit: Resources,
    new: Collection[PodKey],
    specs: Specs,
) -> Iterator[Violation]:
    used = Counter(total(charged(pod, specs) for pod in pods))
    used.update(others)
    added = total(charged(pod, specs) for pod in pods if pod.key in new)
    for resource, bound in sorted(limit.items()):
        # What was exceeded before is not held against who adds nothing to it.
        if used[resource] > bound and added.get(resource, 0):
            message = f"{resource}: {used[resource]} used, {what} is {bound}"
            yield Violation(ViolationKind.QUOTA, name, message)
