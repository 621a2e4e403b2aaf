"""The ledger of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from koordcore._record import record
from koordcore._vector import Table, Vector, gone_and_come
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, total
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.quota.device_classes import charged_otherwise, counted_classes, devices_offered, quota_reader
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


class _Group(NamedTuple):
    """Pods that count alike, whatever quotas there are: those of one group all resolve to one quota."""

    quota: str
    namespace: str
    preemptible: bool
    assigned: bool


_Groups: TypeAlias = Table[_Group, tuple[int, Resources]]
"""By group, how many pods it has and what they ask for together."""
_Offers: TypeAlias = Mapping[str, tuple[int, int]]
"""By resource, how many nodes list it and how much they offer together."""


@record(eq=False)
class _Open:
    """A ledger with what it was opened from, so that other quotas do not have every pod counted anew."""

    ledger: QuotaLedger
    pending: tuple[Pod, ...]
    groups: _Groups
    offers: _Offers
    classes: frozenset[str]


@record
class _Opened:
    """How the ledger of a snapshot is opened, and led on to that of a later one."""

    policy: QuotaPolicy

    def __call__(self, snapshot: ClusterSnapshot) -> _Open:
        away = filter(_is_away, snapshot.of(Pod))
        pods = (pod for pod in (*snapshot.bound_pods(), *away, *snapshot.pending) if _counts(pod))
        nothing: _Groups = Table({})
        groups = _regrouped(nothing, ((one, 1) for one in map(quota_reader(snapshot), pods)))
        offers = _with_nodes({}, (), (state.node.allocatable for state in snapshot.nodes))
        return self._open(snapshot, groups, offers)

    def _open(self, snapshot: ClusterSnapshot, groups: _Groups, offers: _Offers) -> _Open:
        """Open the ledger of known pods and nodes with the quotas of a snapshot."""
        ledger = open_ledger(
            snapshot.of(ElasticQuota),
            total=_total(offers, snapshot),
            policy=self.policy,
            pods=(_summed(group, amounts) for group, (_, amounts) in sorted(groups.items())),
        )
        return _Open(ledger, snapshot.pending, groups, offers, counted_classes(snapshot))

    def again(
        self,
        nodes: Vector[NodeState],
        records: Vector[ClusterRecord],
        value: _Open,
        snapshot: ClusterSnapshot,
    ) -> _Open:
        """Count who came and who left, and what nodes offer; quotas that come or go are another tree."""
        pairs = changed_records(snapshot, records)
        quotas = [pair for pair in pairs if isinstance(pair[0] or pair[1], ElasticQuota)]
        if quotas and counted_classes(snapshot) != value.classes:
            return self(snapshot)
        if value.classes and charged_otherwise(pairs):
            return self(snapshot)
        read = quota_reader(snapshot)
        before, after = gone_and_come(value.pending, snapshot.pending)
        gone, come = list[Resources](), list[Resources]()
        for old, new in changed_states(snapshot, nodes):
            before += () if old is None else old.pods
            after += () if new is None else new.pods
            if old is None or new is None or old.node.allocatable != new.node.allocatable:
                gone += [] if old is None else [old.node.allocatable]
                come += [] if new is None else [new.node.allocatable]
        for one, other in pairs:
            before += [one] if isinstance(one, Pod) and _is_away(one) else []
            after += [other] if isinstance(other, Pod) and _is_away(other) else []
        stay = {*map(id, before)} & {*map(id, after)}
        left = [read(pod) for pod in before if id(pod) not in stay and _counts(pod)]
        came = [read(pod) for pod in after if id(pod) not in stay and _counts(pod)]
        signed = ((pod, sign) for pods, sign in ((left, -1), (came, 1)) for pod in pods)
        groups = _regrouped(value.groups, signed) if left or came else value.groups
        offers = _with_nodes(value.offers, gone, come) if gone or come else value.offers
        known: QuotaLedger | None = value.ledger
        for one, other in quotas:
            if known is None or not isinstance(one, ElasticQuota) or not isinstance(other, ElasticQuota):
                return self._open(snapshot, groups, offers)
            known = known.with_amounts(one, other)
        if known is None:
            return self._open(snapshot, groups, offers)
        ledger = known
        for pod in left:
            ledger = ledger.untrack(pod)
        for pod in came:
            ledger = ledger.track(pod)
        if offers is not value.offers:
            ledger = ledger.with_total(_total(offers, snapshot))
        return _Open(ledger, snapshot.pending, groups, offers, value.classes)


def _regrouped(groups: _Groups, pods: Iterable[tuple[QuotaPod, int]]) -> _Groups:
    """Count pods, or take them off, each with 1 or -1."""
    changed: dict[_Group, tuple[int, dict[str, int]]] = {}
    for pod, sign in pods:
        group = _Group(pod.quota, pod.namespace, pod.preemptible, pod.assigned)
        number, amounts = changed.get(group) or groups.get(group, (0, NO_RESOURCES))
        if group not in changed:
            amounts = dict(amounts)
        for name, amount in pod.request.items():
            amounts[name] = amounts.get(name, 0) + sign * amount
        changed[group] = (number + sign, amounts)
    empty = [group for group, (number, _) in changed.items() if not number]
    new = {group: (number, make_resources(sums)) for group, (number, sums) in changed.items() if number}
    return groups.changed(empty, new) if len(groups) else Table(new)


def _summed(group: _Group, amounts: Resources) -> QuotaPod:
    """Give one pod that counts as much as all of a group."""
    return QuotaPod(
        key=PodKey(group.namespace, ""),
        quota=group.quota,
        request=amounts,
        preemptible=group.preemptible,
        node="some" if group.assigned else "",
    )


def _with_nodes(offers: _Offers, gone: Iterable[Resources], come: Iterable[Resources]) -> _Offers:
    """Take off what some nodes offer, and count what others do."""
    found = {name: list(pair) for name, pair in offers.items()}
    for sign, nodes in ((-1, gone), (1, come)):
        for offered in nodes:
            for name, amount in offered.items():
                pair = found.setdefault(name, [0, 0])
                pair[0] += sign
                pair[1] += sign * amount
    return {name: (number, amount) for name, (number, amount) in found.items() if number}


def _total(offers: _Offers, snapshot: ClusterSnapshot) -> Resources:
    return total([{name: amount for name, (_, amount) in offers.items()}, devices_offered(snapshot)])


def _is_away(pod: Pod) -> bool:
    """Tell whether a pod that stands among the records is bound to a node that is not there."""
    return pod.bound


def _counts(pod: Pod) -> bool:
    # What a reserve pod holds is used by nobody yet; its users count.
    return pod.node_name is None or not is_reserve_pod(pod)
