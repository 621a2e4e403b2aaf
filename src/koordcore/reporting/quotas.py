"""The quota trees of a page: a row per quota and resource, and how each parent shared what it had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from koordcore.errors import ModelError
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.quota import QuotaLedger, explain_runtime, quota_table
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.explain import FamilyShare, Waterfall
from koordcore.snapshot import ClusterSnapshot


def quota_data(snapshot: ClusterSnapshot, policy: Policy | None) -> list[dict[str, Any]]:
    """Describe every tree that has quotas, as the plugin of a policy counts them."""
    if not snapshot.has(ElasticQuota):
        return []
    setting = None if policy is None else policy.plugin("ElasticQuota")
    args = setting.args if setting is not None and isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    ledger = cluster_ledger(snapshot, policy=args)
    trees = [_tree(ledger, name) for name in sorted(ledger.trees)]
    return [tree for tree in trees if tree["rows"]]


def _tree(ledger: QuotaLedger, name: str) -> dict[str, Any]:
    families: dict[tuple[str, str], dict[str, Any]] = {}
    rows = []
    for row in quota_table(ledger, name):
        said = attrs.asdict(row)
        waterfall = _waterfall(ledger, row.quota, row.resource)
        if waterfall is not None:
            said |= {"path": [_place(one, families, row.resource) for one in waterfall.families]}
            said |= {
                "binds": str(waterfall.bound),
                "at": waterfall.at,
                "holders": [list(one) for one in waterfall.holders],
            }
        rows.append(said)
    return {"tree": name, "rows": rows, "families": list(families.values())}


def _waterfall(ledger: QuotaLedger, quota: str, resource: str) -> Waterfall | None:
    try:
        return explain_runtime(ledger, quota, resource)
    except ModelError:
        return None  # it has no runtime in this resource


def _place(family: FamilyShare, families: dict[tuple[str, str], dict[str, Any]], resource: str) -> int:
    """Number a family; siblings share one."""
    key = (family.parent, resource)
    if key not in families:
        families[key] = {"number": len(families), **_family(family)}
    number: int = families[key]["number"]
    return number


def _family(family: FamilyShare) -> dict[str, Any]:
    return {
        "parent": family.parent,
        "available": family.available,
        "promised": family.promised,
        "undealt": family.undealt,
        "members": list(_members(family)),
        "rounds": [
            {
                "left": one.left,
                "granted": [list(pair) for pair in one.granted],
                "returned": [list(pair) for pair in one.returned],
            }
            for one in family.rounds
        ],
    }


def _members(family: FamilyShare) -> Iterator[dict[str, Any]]:
    for one in family.members:
        yield {**attrs.asdict(one), "borrowed": one.borrowed, "lent": one.lent, "lacking": one.lacking}
