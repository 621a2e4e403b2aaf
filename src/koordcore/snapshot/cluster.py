"""The cluster as a value.

A snapshot never changes. ``apply`` gives new ones that share what did not change; ``assume``, ``forget`` and
the ``with_*`` methods are spellings of it. Columns are made on first use and carried along where a fork can
derive them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs

from koordcore._blame import names_its_arguments, shown
from koordcore._columns import ClusterColumns, ClusterLayout
from koordcore._line import Delta, Line, Place
from koordcore._notebook import html_table
from koordcore._record import record
from koordcore._vector import Names, Table, Vector
from koordcore.errors import ModelError
from koordcore.model.claims import ResourceClaim
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.snapshot._draft import Draft, Lookups
from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordKey,
    RecordReplaced,
    of_pods,
    record_key,
)
from koordcore.snapshot.following import once
from koordcore.snapshot.forking import drawn

if TYPE_CHECKING:
    from koordcore.model.decisions import Bound


T = TypeVar("T")
R = TypeVar("R")
_KEY: Final = attrgetter("key")


def _all_of(what: str, items: Iterable[Any], *kinds: type) -> tuple[Any, ...]:
    """Take items of some classes in; anything else is named."""
    try:
        found = tuple(items)
    except TypeError:
        raise ModelError(f"snapshot: {what}: expected several, got {shown(items)}") from None
    if not {*map(type, found)} <= {*kinds}:  # all at a glance
        for number, item in enumerate(found):
            if not isinstance(item, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                each = isinstance(item, list | tuple) and all(isinstance(one, kinds) for one in item)
                hint = "; hand them over one by one, with a * before" if each else ""
                raise ModelError(f"snapshot: {what}[{number}]: expected {wanted}, got {shown(item)}{hint}")
    return found


def _by_name(given: Iterable[NodeState | Node]) -> tuple[NodeState, ...]:
    states = _all_of("nodes", given, NodeState, Node)
    wrapped = [state if isinstance(state, NodeState) else NodeState(state) for state in states]
    return tuple(sorted(wrapped, key=lambda state: state.name))


def _by_key(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(_all_of("pending", pods, Pod), key=attrgetter("key")))


def _by_record_key(records: Iterable[ClusterRecord]) -> tuple[ClusterRecord, ...]:
    found = _all_of("records", records, object)
    try:
        return tuple(sorted(found, key=record_key))
    except (ModelError, TypeError) as error:
        raise ModelError(f"snapshot: records: {error}") from None


@record(kw_only=True, repr=False)
class ClusterSnapshot:
    """Everything a decision may depend on; equal contents give equal snapshots in whatever order they come.

    Parameters
    ----------
    nodes
        Nodes with the pods that hold room on them; a plain :class:`Node` stands for an empty one.
    pending
        Pods that wait for a node.
    records
        Everything else as frozen records: gangs, quotas, devices, metrics, budgets, …

    Raises
    ------
    ModelError
        When a name stands twice, or a pending pod is bound.
    """

    nodes: tuple[NodeState, ...] = attrs.field(default=(), converter=_by_name)
    pending: tuple[Pod, ...] = attrs.field(default=(), converter=_by_key)
    records: tuple[ClusterRecord, ...] = attrs.field(default=(), converter=_by_record_key)

    def __attrs_post_init__(self) -> None:
        _unique([state.name for state in self.nodes], "node")
        _unique(self._record_keys, "record")
        there = self.location
        for pod in self.pending:
            node = there.get(pod.key) if pod.node_name is None else pod.node_name
            if node is not None:
                raise ModelError(f"pod {pod.key} is bound to {node} and cannot be pending")
        _unique([pod.key for pod in self.pending], "pending pod")
        if len(there) < sum(len(state.pods) for state in self.nodes):
            _unique([pod.key for state in self.nodes for pod in state.pods], "bound pod")

    if not TYPE_CHECKING:  # a type checker would take any name for one that is there

        def __getattr__(self, name: str) -> Any:
            # A snapshot that comes of another one writes its tuples out when somebody asks for them.
            if name == "nodes":
                object.__setattr__(self, name, tuple(self._nodes))
            elif name == "records":
                object.__setattr__(self, name, tuple(self._records))
            else:
                raise AttributeError(
                    f"'ClusterSnapshot' object has no attribute {name!r}", name=name, obj=self
                )
            return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        """Count what there is; the tuples say it all."""
        pods = f"{len(self.location)} bound, {len(self.pending)} pending"
        kinds = Counter(type(one).__name__ for one in self.records)
        records = "".join(f", {count} {kind}" for kind, count in sorted(kinds.items()))
        return f"<ClusterSnapshot: {len(self.nodes)} nodes, {pods}{records}>"

    def _repr_html_(self) -> str:
        """Show the nodes in a notebook."""
        return html_table(repr(self)[1:-1], self.table())

    def table(self) -> dict[str, Any]:
        """Give the nodes as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``node``, ``ready``, ``cordoned``, ``running`` (how many pods); and two arrays of every
            resource that anybody has or asks for: what is allocatable (``cpu``), and ``cpu requested``.
        """
        from koordcore.snapshot.tables import node_table  # who looks at no table does not load it

        return node_table(self)

    # -- reading ---------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> Vector[NodeState]:
        return Vector(self.nodes)

    @cached_property
    def _records(self) -> Vector[ClusterRecord]:
        return Vector(self.records)

    @cached_property
    def layout(self) -> ClusterLayout:
        """Static columns."""
        from koordcore.snapshot.column_sources import layout_of  # brings numpy, here and below

        return layout_of(self)

    @cached_property
    def columns(self) -> ClusterColumns:
        """Dynamic columns."""
        from koordcore.snapshot.column_sources import columns_of

        return columns_of(self)

    @cached_property
    def _columns_before(self) -> tuple[ClusterColumns | None, Place]:
        """The columns of an earlier snapshot of the line, and its place."""
        return None, self.place

    @cached_property
    def place(self) -> Place:
        """Where on its line the snapshot stands; what calls have learnt waits there."""
        return Place(Line(), 0)

    @cached_property
    def location(self) -> Mapping[PodKey, str]:
        """Which node holds which pod."""
        return Table({pod.key: state.name for state in self._nodes for pod in state.pods})

    @cached_property
    def _by_type(self) -> dict[type, tuple[ClusterRecord, ...]]:
        """Records of the types that were asked for."""
        return {}

    def _span(self, kind: type) -> tuple[int, int]:
        """Give where the records of a type stand; of all types of that name, if there are several."""
        # All of one type stand together, for the name of the type comes first in the key.
        keys, name = self._record_keys, kind.__name__
        return bisect_left(keys, (name,)), bisect_left(keys, (name + "\0",))

    def has(self, kind: type) -> bool:
        """Tell whether there are records of a type."""
        if not isinstance(kind, type):  # by itself: it is asked several times a call
            raise TypeError(f"kind: expected type, got {shown(kind)}")
        if kind in self._by_type:
            return bool(self._by_type[kind])
        first, last = self._span(kind)
        return any(type(self._records[place]) is kind for place in range(first, last))

    @cached_property
    def _memo(self) -> dict[Any, Any]:
        return {}

    @names_its_arguments
    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Give all records of one type, in the order of namespace and name."""
        found = self._by_type.get(kind)
        if found is None:
            first, last = self._span(kind)
            ones = self._records[first:last]
            alike = {*map(type, ones)} <= {kind}  # but for types of one name, which is rare
            found = ones if alike else tuple(one for one in ones if type(one) is kind)
            self._by_type[kind] = found
        return cast("tuple[R, ...]", found)

    @names_its_arguments
    def find(self, kind: type[R], name: str, namespace: str = "") -> R | None:
        """Give one record, or ``None``.

        Parameters
        ----------
        kind
            Class of the record.
        name, namespace
            Its key; records of the cluster as a whole are in the namespace ``""``.
        """
        if getattr(kind, "kind", None) is not None or getattr(kind, "api_version", None) is not None:
            # Records of several kinds share the type, and so may share a name.
            table: Mapping[tuple[str, str], R] = once(self, _index_of, kind)
            return table.get((namespace, name))
        found = self._find_record((kind.__name__, "", namespace, name))
        return found if isinstance(found, kind) else None

    @names_its_arguments
    def node(self, name: str) -> NodeState:
        """Give a node by name.

        Raises
        ------
        ModelError
            When there is no such node.
        """
        found = self._find_node(name)
        if found is None:
            raise ModelError(f"no node {name}")
        return found

    def _find_node(self, name: str) -> NodeState | None:
        """Give a node by name, or ``None``."""
        row = self._names.find(name)
        return None if row < 0 else self._nodes[row]

    def _find_pending(self, key: PodKey) -> Pod | None:
        """Give a pod that waits, or ``None``."""
        place = bisect_left(self.pending, key, key=_KEY)
        return self.pending[place] if place < len(self.pending) and self.pending[place].key == key else None

    def _find_record(self, key: RecordKey) -> ClusterRecord | None:
        """Give a record by its type, kind, namespace and name, or ``None``."""
        place = bisect_left(self._record_keys, key)
        there = place < len(self._record_keys) and self._record_keys[place] == key
        return self._records[place] if there else None

    @cached_property
    def _names(self) -> Names:
        return Names.of(state.name for state in self._nodes)

    @cached_property
    def _record_keys(self) -> list[RecordKey]:
        return [record_key(record) for record in self._records]

    @names_its_arguments
    def pod(self, key: PodKey | str) -> Pod | None:
        """Give a pod, bound or pending, or ``None``; a text is ``"namespace/name"``."""
        found: Pod | None = self._pods.get(PodKey.of(key))
        return found

    @cached_property
    def _pods(self) -> Table[PodKey, Pod]:
        pods = {pod.key: pod for pod in self.pending}
        pods.update((pod.key, pod) for pod in self.bound_pods())
        return Table(pods)

    def bound_pods(self) -> Iterable[Pod]:
        """Give every pod that holds room, by node and key."""
        return (pod for state in self._nodes for pod in state.pods)

    @cached_property
    def _since(self) -> dict[int, tuple[list[Delta] | None, Mapping[str, int]]]:
        return {}

    @cached_property
    def _past(self) -> dict[Any, tuple[Any, ...]]:
        return {}

    @cached_property
    def _node_memo(self) -> dict[Any, Vector[Any]]:
        return {}

    # -- forking ---------------------------------------------------------------------------------------

    @names_its_arguments
    def apply(self, *changes: Change) -> ClusterSnapshot:
        """Give the cluster after some changes, which are taken in one after another.

        Everything that was worked out and that the changes do not touch is carried along. Room is not
        checked: that is the allocators' and :func:`koordcore.verify`'s work.

        Parameters
        ----------
        changes
            See :mod:`koordcore.snapshot.changes`.

        Raises
        ------
        ModelError
            When a change does not go with what there is: it binds a pod that is bound already, or ends,
            updates, replaces or removes what is unknown.

        Examples
        --------
        >>> from koordcore import Node, Pod
        >>> from koordcore.snapshot.changes import NodeAdded, PodBound, PodEnded
        >>> one = ClusterSnapshot(nodes=[Node(name="n1", allocatable={"cpu": 4000, "pods": 110})])
        >>> two = one.apply(NodeAdded(Node(name="n2")), PodBound(Pod(name="web", node_name="n1")))
        >>> [state.name for state in two.nodes], str(two.nodes[0].pods[0].key)
        (['n1', 'n2'], 'default/web')
        >>> two.apply(PodEnded("default/web")).pod("default/web") is None
        True
        """
        places = self.location
        draft = Draft(Lookups(self._find_node, places.get, self._find_pending, self._find_record))
        for change in changes:
            draft.take(change)
        return drawn(self, draft)

    @names_its_arguments
    def assume(self, *pods: Pod) -> ClusterSnapshot:
        """Bind pods, each to the node it names; they leave the pending ones.

        Room is not checked: that is the allocators' and :func:`koordcore.verify`'s work.

        Raises
        ------
        ModelError
            When a pod names no node, an unknown one, or is bound already.
        """
        return self.apply(*of_pods(PodBound, pods))

    @names_its_arguments
    def forget(self, *pods: PodKey | str) -> ClusterSnapshot:
        """Take pods out of the cluster, wherever they are; a text is ``"namespace/name"``.

        Their ResourceClaims are given back, as the controller does it. One who watches a cluster is told of
        that by itself: :class:`~koordcore.snapshot.changes.PodEnded` leaves the claims as they are.

        Raises
        ------
        ModelError
            When a pod is unknown.
        """
        gone = dict.fromkeys(map(PodKey.of, pods))
        after = self.apply(*map(PodEnded, gone))
        claims = self.of(ResourceClaim)
        if not claims:
            return after
        from koordcore.snapshot.claim_records import given_back  # few clusters have claims

        return after.apply(*map(RecordReplaced, given_back(claims, gone)))

    @names_its_arguments
    def with_pending(self, *pods: Pod) -> ClusterSnapshot:
        """Add pending pods, or replace those of the same key."""
        return self.apply(*of_pods(PodPending, pods))

    @names_its_arguments
    def with_nodes(self, *states: NodeState | Node) -> ClusterSnapshot:
        """Add nodes, or replace those of the same name together with the pods on them."""
        latest = {state.name: state for state in _by_name(states)}
        kinds = {name: NodeAdded if self._find_node(name) is None else NodeReplaced for name in latest}
        return self.apply(*(kinds[name](state) for name, state in latest.items()))

    @names_its_arguments
    def without_nodes(self, *names: str) -> ClusterSnapshot:
        """Take nodes away together with the pods on them.

        Raises
        ------
        ModelError
            When a node is unknown.
        """
        return self.apply(*map(NodeRemoved, dict.fromkeys(names)))

    @names_its_arguments
    def with_records(self, *records: ClusterRecord) -> ClusterSnapshot:
        """Add records, or replace those of the same type and name."""
        latest = {record_key(record): record for record in records}
        kinds = {key: RecordAdded if self._find_record(key) is None else RecordReplaced for key in latest}
        return self.apply(*(kinds[key](record) for key, record in latest.items()))


def _unique(keys: list[Any], what: str) -> None:
    if len(set(keys)) == len(keys):
        return
    seen = set()
    for key in keys:
        if key in seen:
            name = key if isinstance(key, str) else "/".join(part for part in key if part)
            raise ModelError(f"{what} {name} stands twice")
        seen.add(key)


def _index_of(snapshot: ClusterSnapshot, kind: type[Any]) -> Mapping[tuple[str, str], Any]:
    return {(record.namespace, record.name): record for record in snapshot.of(kind)}


def bind(pod: Pod, decision: Bound) -> Pod:
    """Give the pod as it stands after the decision: with its node and with what is written on it."""
    if decision.dropped:
        kept = {key: text for key, text in pod.annotations.items() if key not in decision.dropped}
        pod = attrs.evolve(pod, annotations=kept)
    return pod.at(
        decision.node,
        annotations=decision.annotations,
        labels=decision.labels,
        claims=decision.claims,
    )
