"""Who is woken by what."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import make_resources
from koordcore.quota.hints import QueueingHint, hint_for_deleted_pod, hint_for_quota
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger

LIMIT = make_resources({"cpu": 9})
QUOTAS = {
    "dept": ElasticQuota(name="dept", max=LIMIT, is_parent=True),
    "team": ElasticQuota(name="team", parent="dept", max=LIMIT),
    "sister": ElasticQuota(name="sister", parent="dept", max=LIMIT),
    "abroad": ElasticQuota(name="abroad", max=LIMIT, tree="t"),
}


def ledger(*, check_parents: bool = False) -> QuotaLedger:
    policy = QuotaPolicy(
        enable_check_parent_quota=check_parents, multi_quota_tree=True, disable_default_quota=True
    )
    return open_ledger(QUOTAS.values(), total={"cpu": 9}, policy=policy)


def pod(name: str, owner: str, node: str = "") -> QuotaPod:
    return QuotaPod(key=PodKey("d", name), quota=owner, request=LIMIT, node=node)


CASES = [
    ("team", "team", False, QueueingHint.QUEUE),
    ("team", "sister", True, QueueingHint.SKIP),
    ("team", "dept", False, QueueingHint.SKIP),
    ("team", "dept", True, QueueingHint.QUEUE),
    ("dept", "team", True, QueueingHint.SKIP),
    ("team", "abroad", True, QueueingHint.SKIP),
    ("", "team", True, QueueingHint.SKIP),
]


@pytest.mark.parametrize(("owner", "changed", "check", "expected"), CASES)
@pytest.mark.parametrize("field", ["max", "min", "shared_weight"])
def test_a_changed_quota_wakes_its_own(
    owner: str, changed: str, check: bool, expected: QueueingHint, field: str
) -> None:
    old = QUOTAS[changed]
    change: dict[str, Any] = {field: make_resources({"cpu": 5})}
    new = attrs.evolve(old, **change)
    assert hint_for_quota(ledger(check_parents=check), pod("p", owner), old, new) is expected
    assert hint_for_quota(ledger(check_parents=check), pod("p", owner), old, old) is QueueingHint.SKIP


@pytest.mark.parametrize(("owner", "freed", "check", "expected"), CASES)
def test_the_end_of_a_placed_pod_wakes_its_quota(
    owner: str, freed: str, check: bool, expected: QueueingHint
) -> None:
    one = ledger(check_parents=check)
    assert hint_for_deleted_pod(one, pod("p", owner), pod("gone", freed, "n")) is expected
    assert hint_for_deleted_pod(one, pod("p", owner), pod("gone", freed)) is QueueingHint.SKIP
    assert hint_for_deleted_pod(one, pod("p", owner), pod("gone", "", "n")) is QueueingHint.SKIP
