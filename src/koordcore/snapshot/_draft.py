"""What a list of changes comes to, before a snapshot is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from koordcore._blame import shown
from koordcore.errors import ModelError
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordKey,
    RecordRemoved,
    RecordReplaced,
    record_key,
)


class Lookups(NamedTuple):
    """Look-ups in a snapshot, each ``None`` for what is not there."""

    node: Callable[[str], NodeState | None]
    place: Callable[[PodKey], str | None]
    pending: Callable[[PodKey], Pod | None]
    record: Callable[[RecordKey], ClusterRecord | None]


class Draft:
    """What is different from a snapshot, as changes are taken in one after another.

    Parameters
    ----------
    start
        Look-ups in what there was before.

    Attributes
    ----------
    pending, records
        By key, what they are now; ``None`` for what is gone.
    before
        By key, the records that there were.
    """

    def __init__(self, start: Lookups) -> None:
        self._start = start
        self._nodes: dict[str, Node | None] = {}
        self._pods: dict[str, dict[PodKey, Pod]] = {}
        self._where: dict[PodKey, str | None] = {}
        self.pending: dict[PodKey, Pod | None] = {}
        self.records: dict[RecordKey, ClusterRecord | None] = {}
        self.before: dict[RecordKey, ClusterRecord | None] = {}

    def nodes(self) -> dict[str, NodeState | None]:
        """Give the nodes that are different, by name; ``None`` for those that left.

        Who came and went again is none of them.
        """
        found: dict[str, NodeState | None] = {}
        for name in {**self._nodes, **self._pods}:
            node = self._node(name)
            if node is not None:
                found[name] = NodeState(node, tuple(self._on(name).values()))
            elif self._start.node(name) is not None:
                found[name] = None
        return found

    def take(self, change: Change) -> None:
        """Take one change in.

        Raises
        ------
        ModelError
            When it does not go with what there is, or is no change.
        """
        match change:
            case RecordReplaced(record) | RecordAdded(record) | RecordRemoved(record):  # most are metrics
                self._write(change, record)
            case PodBound(pod):
                self._bind(pod)
            case PodUpdated(pod):
                self._update(pod)
            case PodEnded(key):
                self._end(key)
            case PodPending(pod):
                if pod.node_name is not None:
                    raise ModelError(f"pod {pod.key} is bound to {pod.node_name} and cannot be pending")
                if self._place(pod.key) is not None:
                    raise ModelError(f"pod {pod.key} is bound to {self._place(pod.key)} already")
                self.pending[pod.key] = pod
            case NodeAdded(node):
                state = node if isinstance(node, NodeState) else NodeState(node)
                if self._node(state.name) is not None:
                    raise ModelError(f"node {state.name} is there already")
                self._put(state.node, state.pods)
            case NodeReplaced(node):
                self._replace(node)
            case NodeRemoved(name):
                self._know(name)
                for key in self._on(name):
                    self._where[key] = None
                self._nodes[name] = None
                self._pods[name] = {}
            case _:
                raise ModelError(f"snapshot: expected a change, got {shown(change)}")

    # -- pods and nodes --------------------------------------------------------------------------------

    def _node(self, name: str) -> Node | None:
        if name in self._nodes:
            return self._nodes[name]
        state = self._start.node(name)
        return None if state is None else state.node

    def _know(self, name: str) -> None:
        if self._node(name) is None:
            raise ModelError(f"no node {name}")

    def _on(self, name: str) -> dict[PodKey, Pod]:
        """Give the pods of a node, to be changed."""
        pods = self._pods.get(name)
        if pods is None:
            state = self._start.node(name)
            pods = {} if state is None else {pod.key: pod for pod in state.pods}
            self._pods[name] = pods
        return pods

    def _put(self, node: Node, pods: Iterable[Pod]) -> None:
        for key in self._on(node.name):
            self._where[key] = None
        for pod in pods:
            there = self._place(pod.key)
            if there is not None:
                raise ModelError(f"pod {pod.key} is bound to {there} already")
            if self._waits(pod.key):
                self.pending[pod.key] = None
        self._nodes[node.name] = node
        self._pods[node.name] = {pod.key: pod for pod in pods}
        self._where.update(dict.fromkeys(self._pods[node.name], node.name))

    def _replace(self, node: Node | NodeState) -> None:
        self._know(node.name)
        if isinstance(node, NodeState):
            self._put(node.node, node.pods)
        else:
            self._nodes[node.name] = node

    def _place(self, key: PodKey) -> str | None:
        return self._where[key] if key in self._where else self._start.place(key)

    def _bind(self, pod: Pod) -> None:
        if pod.node_name is None:
            raise ModelError(f"pod {pod.key} names no node")
        there = self._place(pod.key)
        if there is not None:
            raise ModelError(f"pod {pod.key} is bound to {there} already")
        self._know(pod.node_name)
        self._on(pod.node_name)[pod.key] = pod
        self._where[pod.key] = pod.node_name
        self.pending[pod.key] = None

    def _waits(self, key: PodKey) -> bool:
        if key in self.pending:
            return self.pending[key] is not None
        return self._start.pending(key) is not None

    def _update(self, pod: Pod) -> None:
        there = self._place(pod.key)
        if there is None and not self._waits(pod.key):
            raise ModelError(f"no pod {pod.key}")
        if pod.node_name != there:
            said = "pending" if pod.node_name is None else f"bound to {pod.node_name}"
            known = "pending" if there is None else f"bound to {there}"
            raise ModelError(f"pod {pod.key} is {known} and cannot become {said} by an update")
        if there is None:
            self.pending[pod.key] = pod
        else:
            self._on(there)[pod.key] = pod

    def _end(self, key: PodKey) -> None:
        there, waits = self._place(key), self._waits(key)
        if there is None and not waits:
            raise ModelError(f"no pod {key}")
        if there is not None:
            del self._on(there)[key]
            self._where[key] = None
        if waits:
            self.pending[key] = None

    # -- records ---------------------------------------------------------------------------------------

    def _write(self, change: RecordAdded | RecordReplaced | RecordRemoved, record: ClusterRecord) -> None:
        key = record_key(record)
        if key not in self.before:
            self.records[key] = self.before[key] = self._start.record(key)
        known = self.records[key]
        if (known is None) != isinstance(change, RecordAdded):
            name = "/".join(part for part in key if part)
            raise ModelError(f"no record {name}" if known is None else f"record {name} is there already")
        self.records[key] = None if isinstance(change, RecordRemoved) else record
