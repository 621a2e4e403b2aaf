"""Evictions that give a quota back what it has lent: only from who borrows, only to who is promised it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from koordcore.checking.quota_chains import QuotaChains
from koordcore.checking.quota_sums import Elsewhere, parents_of
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import PreemptionPlan
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import total
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

__all__ = ["check_reclaims"]


def check_reclaims(
    snapshot: ClusterSnapshot, result: ScheduleResult, elsewhere: Elsewhere
) -> Iterator[Violation]:
    """Whoever reclaims is within its min at its turn, and the quotas of its victims are beyond theirs."""
    plans = {key: plan for plan in result.preemptions if plan.borrowers for key in plan.nominations}
    if not plans:
        return
    setting = result.policy.plugin("ElasticQuota")
    quotas = {quota.name: quota for quota in snapshot.of(ElasticQuota)}
    args = setting.args if setting and setting.args else QuotaPolicy()
    tree = QuotaChains.of(quotas, args, snapshot.nodes, elsewhere)
    pods = {
        pod.key: pod for pod in (*snapshot.pending, *result.snapshot.pending, *result.snapshot.bound_pods())
    }
    holding = {pod.key: pod for pod in snapshot.bound_pods()}
    seen: set[str] = set()
    for one in result.decisions:
        if isinstance(one, Bound) and one.pod in pods:
            holding[one.pod] = pods[one.pod]
        elif isinstance(one, Nominated):
            plan = plans.get(str(one.pod))
            if plan is not None and plan.job not in seen:
                seen.add(plan.job)
                yield from _check(tree, plan, pods, holding)
            for victim in one.victims:
                holding.pop(victim.pod, None)
            if one.pod in pods:
                holding[one.pod] = pods[one.pod]


def _check(
    tree: QuotaChains,
    plan: PreemptionPlan,
    pods: Mapping[PodKey, Pod],
    holding: Mapping[PodKey, Pod],
) -> Iterator[Violation]:
    members = [pods[key] for key in map(PodKey.of, plan.nominations) if key in pods]
    wanted = {name for pod in members for name, amount in pod.requests.items() if amount}
    used: dict[str, Counter[str]] = {
        name: Counter(amounts) for name, amounts in _used(tree, holding.values()).items()
    }
    for name in tree.elsewhere.names(whole=True):
        used.setdefault(name, Counter()).update(tree.elsewhere.held(name, whole=True))
    coming = _used(tree, members)
    for name in sorted(coming.keys() & tree.quotas.keys()):
        least = tree.quotas[name].min
        for resource, amount in sorted(coming[name].items()):
            after = used.get(name, Counter[str]())[resource] + amount
            bound = least.get(resource, 0)
            if amount and after > bound and not tree.policy.guarantee_usage:
                told = f"reclaims for {plan.job} and would use {after} of {resource}, {bound} promised"
                yield Violation(ViolationKind.VICTIM, name, told)
    units: dict[str, dict[str, list[Pod]]] = defaultdict(lambda: defaultdict(list))
    for victim in plan.victims:
        pod = holding.get(victim.pod)
        if pod is not None:
            unit = victim.job if victim.job in plan.broken else str(victim.pod)
            units[tree.chain(pod)[0]][unit].append(pod)
    for name, leaving in sorted(units.items()):
        if name not in plan.borrowers or name in coming or name not in tree.quotas:
            yield Violation(ViolationKind.VICTIM, name, f"gives back to {plan.job} and is no borrower of it")
        elif not any(_beyond(tree.quotas[name], used[name], list(leaving.values()), one) for one in wanted):
            told = f"is within its min before the last of its victims leaves for {plan.job}"
            yield Violation(ViolationKind.VICTIM, name, told)


def _beyond(
    quota: ElasticQuota, used: Mapping[str, int], units: Sequence[Sequence[Pod]], resource: str
) -> bool:
    """Tell whether a quota is beyond its min until the last of some units leaves, the largest one."""
    amounts = [total(pod.requests for pod in unit).get(resource, 0) for unit in units]
    return used.get(resource, 0) - (sum(amounts) - max(amounts)) > quota.min.get(resource, 0)


def _used(tree: QuotaChains, pods: Iterable[Pod]) -> dict[str, Mapping[str, int]]:
    """Add up what pods hold, for their quotas and those above."""
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        own = tree.chain(pod)[0]
        for name in (own, *parents_of(own, tree.quotas)):
            found[name].append(pod)
    return {name: total(pod.requests for pod in ones) for name, ones in found.items()}
