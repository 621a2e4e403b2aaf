"""Opening a ledger: from quotas, pods and usage to the sums of every tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from immutabledict import immutabledict

from koordcore.model.quotas import (
    BUILTIN_QUOTAS,
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
    QuotaUsage,
    by_name,
)
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, total
from koordcore.quota.ledger import Notation, QuotaLedger, pool_for
from koordcore.quota.rollup import Sums, TreeState, roll_up
from koordcore.quota.tree import QuotaTree, compile_tree, split_trees


def open_ledger(
    quotas: Iterable[ElasticQuota],
    *,
    total: Mapping[str, int],
    policy: QuotaPolicy | None = None,
    pods: Iterable[QuotaPod] = (),
    usage: Mapping[str, QuotaUsage] = immutabledict(),
) -> QuotaLedger:
    """Build a ledger.

    Parameters
    ----------
    quotas
        All elastic quotas. Of two with one name the first one counts.
    total
        What the nodes offer together: the sum of allocatable of all nodes that are not being deleted.
    policy
        Upstream's defaults where it is left out.
    pods
        Pods, and what else waits for room and names a quota; bound ones count as using what they ask for.
    usage
        Sums by quota for pods that are not listed one by one. As with pods, those of quotas that do not exist
        count in the default quota, or not at all where the policy disables that.

    Raises
    ------
    ModelError
        When the parents of quotas form a cycle.
    """
    policy = QuotaPolicy() if policy is None else policy
    table = by_name(quota for quota in quotas if not quota.deleting)
    totals = _tree_totals(table, policy)
    empty = QuotaLedger(
        policy=policy,
        quotas=table,
        total=make_resources(total),
        states=immutabledict(),
        builtin=immutabledict(),
        namespaces=_namespaces(table),
        totals=immutabledict(totals),
        elsewhere=_elsewhere(table, totals),
    )
    sums: dict[str, QuotaUsage] = {}
    for name in sorted(usage):
        governed = name if empty.known(name) or name == ROOT_QUOTA else DEFAULT_QUOTA
        if empty.known(name) or (governed == DEFAULT_QUOTA and not policy.disable_default_quota):
            sums[governed] = _together(sums[governed], usage[name]) if governed in sums else usage[name]
    _add_pods(empty, pods, sums)
    notations = {
        name: (each.binary, each.non_preemptible_binary)
        for name, each in sums.items()
        if each.binary or each.non_preemptible_binary
    }
    builtin = {name: _masked(empty.max_of(name), sums[name]) for name in sorted(sums.keys() & BUILTIN_QUOTAS)}
    states: dict[str, TreeState] = {}
    for tree_id, members in split_trees(table, policy).items():
        tree = compile_tree(tree_id, members, guarantee_usage=policy.guarantee_usage)
        own = {
            tree.row_of[name]: _sums(tree, tree.row_of[name], each)
            for name, each in sums.items()
            if name in tree.row_of
        }
        states[tree_id] = roll_up(tree, policy, own, pool_for(tree, totals.get(tree_id, NO_RESOURCES)))
    ledger = attrs.evolve(
        empty,
        states=immutabledict(states),
        builtin=immutabledict(builtin),
        notations=immutabledict(sorted(notations.items())),
    )
    return ledger.repooled()


def _together(one: QuotaUsage, other: QuotaUsage) -> QuotaUsage:
    return QuotaUsage(
        request=total([one.request, other.request]),
        used=total([one.used, other.used]),
        non_preemptible_request=total([one.non_preemptible_request, other.non_preemptible_request]),
        non_preemptible_used=total([one.non_preemptible_used, other.non_preemptible_used]),
        binary=immutabledict({**other.binary, **one.binary}),
        non_preemptible_binary=immutabledict({**other.non_preemptible_binary, **one.non_preemptible_binary}),
    )


def _add_pods(ledger: QuotaLedger, pods: Iterable[QuotaPod], sums: dict[str, QuotaUsage]) -> None:
    grouped: dict[str, list[QuotaPod]] = {}
    for pod in pods:
        name = ledger.resolve(pod)
        if name is not None and name != ROOT_QUOTA:
            grouped.setdefault(name, []).append(pod)
    for name, members in sorted(grouped.items()):
        here, guarded = sums.get(name, QuotaUsage()), [pod for pod in members if not pod.preemptible]
        placed, held = [pod for pod in members if pod.assigned], [pod for pod in guarded if pod.assigned]
        sums[name] = QuotaUsage(
            request=total([here.request, *(pod.request for pod in members)]),
            used=total([here.used, *(pod.request for pod in placed)]),
            non_preemptible_request=total([here.non_preemptible_request, *(pod.request for pod in guarded)]),
            non_preemptible_used=total([here.non_preemptible_used, *(pod.request for pod in held)]),
            binary=_notation(placed, here.binary),
            non_preemptible_binary=_notation(held, here.non_preemptible_binary),
        )


def _notation(placed: Iterable[QuotaPod], known: Notation) -> Notation:
    """Tell which sums are in powers of two: a sum keeps the notation of its first operand but zero."""
    result, settled = dict(known), set(known)
    for pod in placed:
        if not pod.written or not any(pod.request.values()):
            continue
        for name, amount in pod.request.items():
            if name not in settled:
                result[name] = pod.written.get(name, "").endswith("i")
                if amount:
                    settled.add(name)
    return immutabledict(sorted(result.items()))


def _namespaces(quotas: Mapping[str, ElasticQuota]) -> immutabledict[str, str]:
    """Map namespaces to quotas: one inside it of its name, else the first that lists it."""
    bound: dict[str, str] = {}
    for quota in sorted(quotas.values(), key=lambda quota: (quota.namespace, quota.name)):
        for namespace in quota.namespaces:
            bound.setdefault(namespace, quota.name)
    bound.update({quota.namespace: quota.name for quota in quotas.values() if quota.namespace == quota.name})
    return immutabledict(bound)


def _masked(limit: Resources, usage: QuotaUsage) -> QuotaUsage:
    def mask(amounts: Resources) -> Resources:
        # A zero says nothing, and must not make a resource present in the pool.
        return make_resources({name: amount for name, amount in amounts.items() if amount and name in limit})

    return QuotaUsage(
        request=mask(usage.request),
        used=mask(usage.used),
        non_preemptible_request=mask(usage.non_preemptible_request),
        non_preemptible_used=mask(usage.non_preemptible_used),
    )


def _sums(tree: QuotaTree, row: int, usage: QuotaUsage) -> Sums:
    return Sums(
        tree.vector(row, usage.request),
        tree.vector(row, usage.used),
        tree.vector(row, usage.non_preemptible_request),
        tree.vector(row, usage.non_preemptible_used),
    )


def _tree_totals(quotas: Mapping[str, ElasticQuota], policy: QuotaPolicy) -> dict[str, Resources]:
    """Capacity of every tree but the default one, as its root says; of two roots the first by name counts."""
    totals: dict[str, Resources] = {}
    if policy.multi_quota_tree:
        for name in sorted(quotas):
            quota = quotas[name]
            if quota.is_root and quota.tree and quota.total is not None:
                totals.setdefault(quota.tree, quota.total)
    return totals


def _elsewhere(quotas: Mapping[str, ElasticQuota], totals: Mapping[str, Resources]) -> Resources:
    """What other trees have taken out of the default tree."""
    ignored = {quota.tree for quota in quotas.values() if quota.is_root and quota.ignore_default_tree}
    return total(totals[tree_id] for tree_id in sorted(totals) if tree_id not in ignored)
