"""The ledger of running pods that spread and inter-pod affinity share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore._vector import Vector
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.cluster import Namespace
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.scoring.groups import PodGroups
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ChangeReader, ClusterChanges, changed_states, derived


class _Running:
    """The pods that run, by groups, for all who ask about neighbours."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        there = ((pod, row) for row, state in enumerate(workspace.start.nodes) for pod in state.pods)
        self.groups = PodGroups(workspace.layout, there, read=workspace.origin)

    def now(self) -> PodGroups:
        """Give them as they are now."""
        self.groups.read(self._workspace.journal)
        return self.groups

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left."""
        self.now().move(self._workspace.layout, moves.edits, moves.came)
        return True


def pod_groups(workspace: Workspace) -> PodGroups:
    """Give the groups of the pods that run now."""
    return workspace.once(_Running).now()


def follow_nodes(workspace: Workspace, changes: ClusterChanges) -> None:
    """Take note that nodes were replaced: what was made of their labels is void where these are others."""
    if changes.nodes and workspace.made(_Running):
        workspace.once(_Running).groups.follow(workspace.layout, labels=workspace.relabelled)


def forget_weights(workspace: Workspace) -> None:
    """Take note that namespaces are others: whom terms mean has to be told anew."""
    if workspace.made(_Running):
        workspace.once(_Running).groups.weigh_anew()


class Neighbours:
    """The pods that count as neighbours for one class of pods.

    All that run, but for those that count as gone for the class.
    """

    def __init__(self, workspace: Workspace, gone: frozenset[PodKey]) -> None:
        self._workspace = workspace
        self._absent = gone
        self._own: PodGroups | None = None
        self._journal: list[tuple[Pod, int, int]] = []
        self._changes = ChangeReader(workspace.journal, workspace.origin)

    def now(self) -> PodGroups:
        """Give their groups as they are now."""
        if not self._absent:
            return pod_groups(self._workspace)
        if self._own is None:
            states = enumerate(self._workspace.start.nodes)
            there = ((pod, row) for row, state in states for pod in state.pods)
            self._own = PodGroups(self._workspace.layout, filter(self._counts, there))
        if self._own.layout is not self._workspace.layout:
            # Of a label that was looked at no node says anything else, or this would have been made anew.
            self._own.follow(self._workspace.layout, labels=False)
        self._journal.extend(filter(self._counts, self._changes.unread()))
        self._own.read(self._journal)
        return self._own

    def _counts(self, entry: tuple[Any, ...]) -> bool:
        return entry[0].key not in self._absent


def _terms(snapshot: ClusterSnapshot) -> bool:
    return any(map(has_terms, snapshot.nodes))


def _terms_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: bool, snapshot: ClusterSnapshot
) -> bool:
    """Look only at nodes that changed; where there were terms, that there may be some is good enough."""
    del records
    changed = changed_states(snapshot, nodes)
    return value or any(after is not None and has_terms(after) for _, after in changed)


def has_terms(state: NodeState) -> bool:
    """Tell whether a pod on a node has terms towards other pods."""
    return any(map(with_terms, state.pods))


def with_terms(pod: Pod) -> bool:
    """Tell whether a pod has terms towards other pods."""
    return pod.affinity is not None and (pod.affinity.pod or pod.affinity.anti) is not None


def nominated_with_terms(snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
    """Give the pods with terms that wait for a node that is there: they count on it as if they ran."""
    there = snapshot.layout.row_of
    return tuple(pod for pod in snapshot.pending if pod.nominated_node in there and with_terms(pod))


class _Terms:
    """Whether anybody has terms towards other pods; once true it stays so."""

    def __init__(self, workspace: Workspace) -> None:
        self.any = derived(workspace.snapshot, _terms, _terms_again, replaced=True)
        self.changes = ChangeReader(workspace.journal, workspace.origin)

    def moved(self, moves: NodeMoves) -> bool:
        """Nothing here is by row."""
        return True


def affine(workspace: Workspace) -> bool:
    """Tell whether any running pod has terms towards others; where none has, plain pods need no ledger."""
    terms = workspace.once(_Terms)
    if not terms.any:
        terms.any = any(with_terms(pod) for pod, _, _ in terms.changes.unread())
    return terms.any


def namespace_labels(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[str, str]]:
    """Give the labels of every namespace that exists as an object."""
    return {one.name: one.labels for one in snapshot.of(Namespace)}
