"""The ledger of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from koordcore._record import record
from koordcore._vector import Vector
from koordcore.model.claims import ResourceClaimTemplate
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, total
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.quota.device_classes import counted_classes, devices_offered, quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived

_DEFAULT_POLICY = QuotaPolicy()


def cluster_ledger(
    snapshot: ClusterSnapshot,
    *,
    policy: QuotaPolicy = _DEFAULT_POLICY,
) -> QuotaLedger:
    """Open the ledger of a cluster: its quotas, all nodes' allocatable, bound and pending pods.

    Pods count that are bound to a node which is not there: they hold their quota until somebody deletes them.

    Parameters
    ----------
    snapshot
        The cluster.
    policy
        Arguments of ElasticQuota.

    Notes
    -----
    The ledger is made once for each policy, and follows the snapshots of a line.

    Raises
    ------
    ModelError
        When the parents of quotas form a cycle.
    """
    opened = _Opened(policy)
    return derived(snapshot, opened, opened.again, replaced=True).ledger


@record(eq=False)
class _Open:
    """A ledger with the waiting pods that it counts."""

    ledger: QuotaLedger
    pending: tuple[Pod, ...]


@record
class _Opened:
    """How the ledger of a snapshot is opened, and led on to that of a later one."""

    policy: QuotaPolicy

    def __call__(self, snapshot: ClusterSnapshot) -> _Open:
        away = filter(_is_away, snapshot.of(Pod))
        pods = (pod for pod in (*snapshot.bound_pods(), *away, *snapshot.pending) if _counts(pod))
        ledger = open_ledger(
            snapshot.of(ElasticQuota),
            total=_offered(snapshot),
            policy=self.policy,
            pods=map(quota_reader(snapshot), pods),
        )
        return _Open(ledger, snapshot.pending)

    def again(
        self,
        nodes: Vector[NodeState],
        records: Vector[ClusterRecord],
        value: _Open,
        snapshot: ClusterSnapshot,
    ) -> _Open:
        """Count who came and who left; other quotas are another tree."""
        pairs = changed_records(snapshot, records)
        changed = [type(old or new) for old, new in pairs]
        if ElasticQuota in changed or (ResourceClaimTemplate in changed and counted_classes(snapshot)):
            return self(snapshot)
        ledger, offers = value.ledger, []
        read = quota_reader(snapshot)
        before, after = list(value.pending), list(snapshot.pending)
        for old, new in changed_states(snapshot, nodes):
            before += () if old is None else old.pods
            after += () if new is None else new.pods
            offered = tuple(NO_RESOURCES if one is None else one.node.allocatable for one in (old, new))
            if offered[0] != offered[1]:
                offers.append((offered[0], offered[1]))
        for one, other in pairs:
            before += [one] if isinstance(one, Pod) and _is_away(one) else []
            after += [other] if isinstance(other, Pod) and _is_away(other) else []
        stay = {*map(id, before)} & {*map(id, after)}
        for pod in before:
            if id(pod) not in stay and _counts(pod):
                ledger = ledger.untrack(read(pod))
        for pod in after:
            if id(pod) not in stay and _counts(pod):
                ledger = ledger.track(read(pod))
        if offers:
            ledger = ledger.with_total(_total_with(ledger.total, offers) or _offered(snapshot))
        return _Open(ledger, snapshot.pending)


def _is_away(pod: Pod) -> bool:
    """Tell whether a pod that stands among the records is bound to a node that is not there."""
    return pod.bound


def _counts(pod: Pod) -> bool:
    # What a reserve pod holds is used by nobody yet; its users count.
    return pod.node_name is None or not is_reserve_pod(pod)


def _offered(snapshot: ClusterSnapshot) -> Resources:
    return total([*(state.node.allocatable for state in snapshot.nodes), devices_offered(snapshot)])


def _total_with(known: Resources, offers: Iterable[tuple[Resources, Resources]]) -> Resources | None:
    """Give a total after some nodes offer something else; ``None`` where one names other resources."""
    amounts = dict(known)
    for before, after in offers:
        if before.keys() != after.keys():
            return None
        for name in after:
            amounts[name] += after[name] - before[name]
    return make_resources(amounts)
