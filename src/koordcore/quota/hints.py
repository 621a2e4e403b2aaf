"""Which events may let a pod that its quota refused try again (upstream's queueing hints)."""

from __future__ import annotations

from enum import StrEnum

from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPod
from koordcore.quota.ledger import QuotaLedger


class QueueingHint(StrEnum):
    """Whether an event is worth another try."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


def hint_for_quota(ledger: QuotaLedger, pod: QuotaPod, old: ElasticQuota, new: ElasticQuota) -> QueueingHint:
    """Tell whether a changed quota may let a pod in.

    It may if what counts has changed in the pod's own quota, or, where ancestors are checked, in one above
    it. A change of a sibling can move the pod's runtime too; upstream does not wake it for that, and
    asking the new ledger costs no more than this does: ``admit(new_ledger, pod)``.

    Parameters
    ----------
    pod
        Who waits.
    old, new
        The quota before and after.
    ledger
        Before or after the change.
    """
    name = ledger.resolve(pod)
    changed = _counted(old) != _counted(new)
    if (
        name is None
        or not changed
        or old.tree != new.tree
        or ledger.tree_of(name) != ledger.tree_of(new.name)
    ):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE if _concerns(ledger, name, new.name) else QueueingHint.SKIP


def hint_for_deleted_pod(ledger: QuotaLedger, pod: QuotaPod, deleted: QuotaPod) -> QueueingHint:
    """Tell whether the end of a pod may let another in: placed, in the same quota or one above it.

    Parameters
    ----------
    ledger
        Before or after the end.
    pod
        Who waits.
    deleted
        Who is gone.
    """
    name, freed = ledger.resolve(pod), ledger.resolve(deleted)
    if name is None or freed is None or not deleted.assigned or ledger.tree_of(name) != ledger.tree_of(freed):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE if _concerns(ledger, name, freed) else QueueingHint.SKIP


def _counted(quota: ElasticQuota) -> tuple[object, ...]:
    return (quota.allow_lent, quota.is_parent, quota.parent, quota.max, quota.min, quota.weight)


def _concerns(ledger: QuotaLedger, name: str, changed: str) -> bool:
    if name == changed:
        return True
    if not ledger.policy.enable_check_parent_quota:
        return False
    found = ledger.find(name)
    if found is None:
        return False
    tree = found[0].tree
    above = {tree.quotas[row].name for row in tree.path(found[1])}
    return changed in above and changed != ROOT_QUOTA
