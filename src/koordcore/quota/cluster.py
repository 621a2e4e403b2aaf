"""The ledger of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import total
from koordcore.protocol.quota import quota_pod_of
from koordcore.protocol.reservation import is_reserve_pod
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.snapshot import ClusterSnapshot

__all__ = ["cluster_ledger"]

_DEFAULT_POLICY = QuotaPolicy()


def cluster_ledger(
    snapshot: ClusterSnapshot,
    *,
    policy: QuotaPolicy = _DEFAULT_POLICY,
    reservations: Iterable[QuotaPod] = (),
) -> QuotaLedger:
    """Open the ledger of a cluster: its quotas, all nodes' allocatable, bound and pending pods.

    Parameters
    ----------
    reservations
        Pending Reservations that name a quota; they count in its request like pods (ruling 23).

    Notes
    -----
    Without reservations the ledger is made once for each snapshot and policy.

    Raises
    ------
    ModelError
        When the parents of quotas form a cycle.
    """
    ledger: QuotaLedger = snapshot.once(_open, policy)
    for each in reservations:
        ledger = ledger.track(each)
    return ledger


def _open(snapshot: ClusterSnapshot, policy: QuotaPolicy) -> QuotaLedger:
    # What a reservation holds is used by nobody yet; its users count.
    bound = (pod for pod in snapshot.bound_pods() if not is_reserve_pod(pod))
    pods = [quota_pod_of(pod) for pod in (*bound, *snapshot.pending)]
    return open_ledger(
        snapshot.of(ElasticQuota),
        total=total(state.node.allocatable for state in snapshot.nodes),
        policy=policy,
        pods=pods,
    )
