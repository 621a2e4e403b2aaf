"""What the checker remembers of a cluster from call to call: who is where, and who belongs together.

It is the checker's own and follows snapshots by itself: nodes, pods and records that are not the same objects
as before are taken out and put in. Nothing here trusts what a snapshot says about its own changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from koordcore.checking.differences import Differences, difference
from koordcore.checking.domains import DomainSums, KnownDomains, SpreadRule
from koordcore.checking.groups import leaf_of
from koordcore.checking.holders import holder_key, holder_of, identity_of, used_by
from koordcore.checking.quota_sums import QuotaSums, in_force
from koordcore.errors import ManifestError
from koordcore.model.affinity import PodAffinityTerm
from koordcore.model.claims import ClaimAllocation, ClaimSpec, ResourceClaim, ResourceClaimTemplate
from koordcore.model.cluster import Namespace
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from koordcore.model.selectors import LabelSelector, SelectorOperator
from koordcore.model.volumes import PersistentVolume
from koordcore.protocol.gang import ANNOTATION_GROUPS, parse_groups
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.reservation import is_operating_pod, operating_reservation
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import shared

T = TypeVar("T")
Holder: TypeAlias = "Pod | Reservation"
"""Who may be a neighbour or a member: a pod, or the pod that stands for a reservation."""
Some: TypeAlias = dict[int, Holder]
Shunned: TypeAlias = tuple[PodAffinityTerm, str]
LEAVING: Final = "leaving"
HOLDING: Final = "holds claims"
NOMINATED: Final = "waits and is nominated"
NOWHERE: Final[Set[str]] = frozenset()
ACTING: Final = "acts as a reservation"


class ClusterIndex:
    """Nodes, pods and records of the last snapshot that was looked at, by what they are asked for."""

    def __init__(self) -> None:
        self._nodes: Sequence[NodeState] = ()
        self._pending: Sequence[Pod] = ()
        self._records: Sequence[ClusterRecord] = ()
        self.states: dict[str, NodeState] = {}
        self.bound: dict[PodKey, tuple[Pod, ...]] = {}
        """Several only where a pod is bound more than once."""
        self.waiting: dict[PodKey, Pod] = {}
        self._tables: dict[type, dict[tuple[str, str], dict[int, Any]]] = {}
        self._by: dict[object, dict[int, Any]] = {}
        """Records by other things than their names (see ``_handles``)."""
        self._marked: dict[object, Some] = {}
        self.shunning: dict[tuple[str, str] | None, dict[Shunned, dict[str, Some]]] = {}
        """Who wants nobody near whom a term means, by namespace of its owner and value of its key.

        Before that by a label that whoever is meant has; ``None`` where the term names none.
        """
        self.spaces: dict[str, Mapping[str, str]] = {}
        """Labels of the namespaces."""
        self._labelled: dict[tuple[str, str], Some] | None = None
        self._sums: QuotaSums | None = None
        self._other_quotas = False
        self._domains = KnownDomains()
        self._homes: dict[str, defaultdict[str, set[str]]] = {}

    # -- reading ---------------------------------------------------------------------------------------

    def marked(self, mark: object) -> Iterable[Holder]:
        """Give the bound pods, and the reservations, that carry a mark (see ``_marks``)."""
        return self._marked.get(mark, {}).values()

    def by(self, what: str, name: object) -> Iterable[Any]:
        """Give the records that are found under something (see ``_handles``)."""
        return self._by.get((what, name), {}).values()

    def listing(self, name: str) -> Iterator[str]:
        """Give the gangs that list one."""
        yield from (group.id for group in self.by("gang that lists", name))
        marks = (self.marked((f"gang that lists{more}", name)) for more in ("", " waits"))
        for holder in chain(*marks, self.by("ended of gang that lists", name)):
            pod = holder_of(holder) if isinstance(holder, Reservation) else holder
            yield f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}"

    def everybody(self) -> Iterator[Holder]:
        """Give all bound pods, and the reservations that hold room."""
        for state in self._nodes:
            yield from state.pods
        yield from (one for one in self.of(Reservation) if one.active)

    @property
    def labelled(self) -> Mapping[tuple[str, str], Some]:
        """Pods and reservations with a node by each of their labels; made when first asked for."""
        if self._labelled is None:
            self._labelled = {}
            for holder in self.everybody():
                self._label(holder, holder_of(holder) if isinstance(holder, Reservation) else holder)
        return self._labelled

    def nodes_of(self, key: str, value: str) -> Set[str]:
        """Give the names of the nodes in a domain; of a key that is new all nodes are asked."""
        homes = self._homes.get(key)
        if homes is None:
            homes = self._homes[key] = defaultdict(set)
            for state in self._nodes:
                homes[state.node.labels.get(key, "")].add(state.name)
        return homes.get(value, NOWHERE)

    def domains(self, rule: SpreadRule, like: Pod) -> DomainSums:
        """Give the domains of a spread constraint with the pods that it counts there."""
        some = (one for one in self.candidates(rule.constraint.selector) if isinstance(one, Pod))
        pods = ((pod, self.states[pod.node_name or ""].node) for pod in some)
        return self._domains.of(rule, like, self._nodes, pods)

    def candidates(self, selector: LabelSelector | None) -> Iterable[Holder]:
        """Give all whom a selector may mean, and some others."""
        if selector is None:
            return ()
        for pair in selector.match_labels.items():
            return self.labelled.get(pair, {}).values()
        for one in selector.requirements:
            if one.operator is SelectorOperator.IN:
                pairs = [(one.key, value) for value in one.values]
                return [holder for pair in pairs for holder in self.labelled.get(pair, {}).values()]
        return self.everybody()

    def _specs(self, pod: Pod) -> Iterator[ClaimSpec]:
        """Give what the claims of a pod ask for."""
        for entry in pod.resource_claims:
            made = list(self.find(ResourceClaimTemplate, entry.template, pod.namespace))
            for one in made or self.find(ResourceClaim, entry.claim, pod.namespace):
                yield one.spec

    @property
    def sums(self) -> QuotaSums:
        """What the pods of every quota hold; made when first asked for."""
        known = self._sums
        if known is not None and not self._other_quotas:
            return known
        self._other_quotas = False
        quotas = in_force(self.of(ElasticQuota))
        self._sums = QuotaSums(quotas, self._specs)
        if known is not None and known.of_devices == self._sums.of_devices:
            self._sums.take(known)
        else:
            for state in self._nodes:
                for pod in state.pods:
                    self._sums.count(pod)
            for pod in self.of(Pod):
                if pod.bound:  # to a node that is not there
                    self._sums.count(pod)
        return self._sums

    def of(self, kind: type[T]) -> Iterator[T]:
        """Give all records of a type, in any order."""
        return (one for some in self._tables.get(kind, {}).values() for one in some.values())

    def has(self, kind: type) -> bool:
        """Tell whether there is any record of a type."""
        return kind in self._tables

    @property
    def kinds(self) -> Iterable[type]:
        """The types of records there are."""
        return self._tables

    def find(self, kind: type[T], name: str, namespace: str = "") -> Iterable[T]:
        """Give the records of a name: one at most, but for objects of which several versions are kept."""
        return self._tables.get(kind, {}).get((namespace, name), {}).values()

    def to(self, snapshot: ClusterSnapshot) -> Differences:
        """Tell how a snapshot differs from the last one: nodes, pending pods, records."""
        return Differences(
            difference(self._nodes, shared(snapshot)[0]),
            difference(self._pending, snapshot.pending),
            difference(self._records, shared(snapshot)[1]),
        )

    # -- following -------------------------------------------------------------------------------------

    def follow(self, snapshot: ClusterSnapshot, known: Differences | None = None) -> None:
        """Look at a snapshot.

        Parameters
        ----------
        known
            How it differs from the one before, where somebody has looked already.
        """
        nodes, pending, records = known or self.to(snapshot)
        gone, come = nodes
        before = {state.name: state for state in gone}
        for state in come:
            self._replace(before.pop(state.name, None), state)
        for state in before.values():
            self._replace(state, None)
        self._nodes, self._records = shared(snapshot)
        lost, new = pending
        for pod in lost:
            del self.waiting[pod.key]
            self._queue(pod, pod, -1)
        for pod in new:
            self.waiting[pod.key] = pod
            self._queue(pod, pod, 1)
        self._pending = snapshot.pending
        old, fresh = records
        for record in old:
            self._record(record, -1)
        for record in fresh:
            self._record(record, 1)

    def _replace(self, old: NodeState | None, new: NodeState | None) -> None:
        """Let a node with its pods stand for what was there."""
        moved = old is None or new is None or old.node is not new.node
        some = old if old is not None else new
        assert some is not None
        gone, come = old.pods if old else (), new.pods if new else ()
        if not moved:
            left, joined = difference(gone, come)
            gone, come = tuple(left), tuple(joined)
        else:
            for one in list(self.by("reserved on", some.name)):
                self._hold(one, -1)  # what it says may be about labels of the node
        for pod in gone:
            self._place(pod, old.node if old else None, -1)
        if moved:
            for state, sign in ((old, -1), (new, 1)):
                if state is not None:
                    self._domains.node(state.node, sign)
                    self._house(state.node, sign)
        if new is None:
            del self.states[some.name]
        else:
            self.states[new.name] = new
        for pod in come:
            self._place(pod, new.node if new else None, 1)
        if moved:
            for one in list(self.by("reserved on", some.name)):
                self._hold(one, 1)

    def _house(self, node: Node, sign: int) -> None:
        """Put a node into its domains of the keys that were asked for, or take it out."""
        for key, homes in self._homes.items():
            home = homes[node.labels.get(key, "")]
            (home.add if sign > 0 else home.discard)(node.name)
            if not home:
                del homes[node.labels.get(key, "")]

    def _place(self, pod: Pod, node: Node | None, sign: int) -> None:
        """Put a bound pod in, or take it out."""
        there = self.bound.get(pod.key, ())
        left = (*there, pod) if sign > 0 else tuple(one for one in there if one is not pod)
        if left:
            self.bound[pod.key] = left
        else:
            del self.bound[pod.key]
        self._mark(pod, pod, node, sign)
        if node is not None:
            self._domains.pod(pod, node, sign)
        if self._sums is not None:
            self._sums.count(pod, sign)

    def _mark(self, holder: Holder, pod: Pod, node: Node | None, sign: int) -> None:
        for mark in _marks(pod):
            self._set(self._marked, mark, holder, sign)
        anti = pod.affinity.anti if pod.affinity is not None else None
        for term in anti.required if anti is not None else ():
            value = node.labels.get(term.topology_key) if node is not None else None
            if value is not None:
                pairs = term.selector.match_labels.items() if term.selector is not None else ()
                pair = next(iter(pairs), None)
                terms = self.shunning.setdefault(pair, {})
                homes = terms.setdefault((term, pod.namespace), {})
                self._set(homes, value, holder, sign)
                if not homes:
                    del terms[term, pod.namespace]
                if not terms:
                    del self.shunning[pair]
        if self._labelled is not None:
            self._label(holder, pod, sign)

    def _label(self, holder: Holder, pod: Pod, sign: int = 1) -> None:
        for pair in pod.labels.items():
            self._set(self._labelled, pair, holder, sign)

    def _queue(self, holder: Holder, pod: Pod, sign: int) -> None:
        for what, name in _memberships(pod):
            self._set(self._marked, (f"{what} waits", name), holder, sign)
        if pod.nominated_node:
            self._set(self._marked, NOMINATED, holder, sign)

    def _set(self, table: Any, key: object, one: object, sign: int) -> None:
        """Put something under a key, or take it away; what is empty goes."""
        if sign > 0:
            table.setdefault(key, {})[id(one)] = one
        else:
            del table[key][id(one)]
            if not table[key]:
                del table[key]

    # -- records ---------------------------------------------------------------------------------------

    def _record(self, record: Any, sign: int) -> None:
        table = self._tables.setdefault(type(record), {})
        self._set(table, (record.namespace, record.name), record, sign)
        if not table:
            del self._tables[type(record)]
        for handle in _handles(record):
            self._set(self._by, handle, record, sign)
        if isinstance(record, Namespace):
            self.spaces.pop(record.name, None)
            self.spaces |= {record.name: record.labels} if sign > 0 else {}
        elif isinstance(record, Reservation):
            self._hold(record, sign)
        elif isinstance(record, Pod):
            for what, name in _memberships(record):
                self._set(self._by, (f"ended of {what}", name), record, sign)
            if self._sums is not None and record.bound:
                self._sums.count(record, sign)
        elif isinstance(record, ElasticQuota):
            self._other_quotas = True
        elif self._sums is not None and _asked_for(record) and self._sums.of_devices:
            self._sums = None  # pods were counted with what their claims asked for then

    def _hold(self, one: Holder, sign: int) -> None:
        """Mark a reservation like the pod that stands for it."""
        assert isinstance(one, Reservation)
        if one.over:
            return
        pod = holder_of(one)
        state = self.states.get(one.status.node_name)
        if one.active:
            self._mark(one, pod, state.node if state else None, sign)
        if not one.status.node_name:
            self._queue(one, pod, sign)


def pools_of(allocations: Iterable[ClaimAllocation]) -> list[tuple[str, str]]:
    """Give driver and name of the pools that allocations name, each once."""
    return [*dict.fromkeys((one.driver, one.pool) for each in allocations for one in each.results)]


def _asked_for(record: object) -> bool:
    """Tell whether a record says what some pods ask for, and was not made for one that says so itself."""
    return isinstance(record, ResourceClaimTemplate) or (
        isinstance(record, ResourceClaim) and not record.owner
    )


def _memberships(pod: Pod) -> Iterator[tuple[str, object]]:
    """Tell in which gang and group a pod is."""
    name = gang_name(pod.labels, pod.annotations)
    if name:
        yield "gang", f"{pod.namespace}/{name}"
        for other in _listed(pod.annotations):
            yield "gang that lists", other
    if pod.scheduling_group is not None:
        yield "group", leaf_of(pod)


def _listed(annotations: Mapping[str, str]) -> Iterable[str]:
    """Give the gangs that whatever configures a gang lists, each once."""
    try:
        return dict.fromkeys(parse_groups(annotations.get(ANNOTATION_GROUPS, "")))
    except ManifestError:
        return ()  # it stays alone


def _marks(pod: Pod) -> Iterator[object]:
    """Tell under what a bound pod is found."""
    yield from _memberships(pod)
    used = used_by(pod)
    if used:
        yield "uses", used
    for claim in pod.claims:
        yield "volume", (pod.namespace, claim)
    for pool in pools_of(held.allocation for held in pod.held_claims):
        yield HOLDING, pool
    if pod.leaving:
        yield LEAVING
    if is_operating_pod(pod):
        yield ACTING
        yield "acts", identity_of(operating_reservation(pod))


def _handles(record: object) -> Iterator[tuple[str, object]]:
    """Tell under what a record is found, besides its name."""
    match record:
        case Reservation():
            yield "reservation", identity_of(record)
            yield "holder", holder_key(record)
            if record.status.node_name:
                yield "reserved on", record.status.node_name
        case PodGroup():
            for name in _listed(record.annotations):
                yield "gang that lists", name
        case NodeMetric():
            yield "metric of", record.node
        case ElasticQuota():
            yield "quota", record.name
        case ResourceSlice():
            yield "slice of pool", (record.driver, record.pool)
            yield "slice of node", record.node_name
        case ResourceClaim():
            if record.owner:
                yield "claim made for", (record.namespace, record.owner)
            for pool in pools_of([record.allocation] if record.allocation else ()):
                yield "claim holds of pool", pool
        case PersistentVolume():
            yield "volume for", record.claim or ("class", record.storage_class)
        case SchedulingPodGroup() | CompositePodGroup() if record.parent:
            yield "below", (record.namespace, record.parent)
        case _:
            pass
