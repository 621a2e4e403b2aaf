"""What nodes say that NodeNUMAResource and DeviceShare must heed: labels, annotations, locks of vendors."""

from __future__ import annotations

from koordcore._vector import Vector
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.records import ClusterRecord
from koordcore.protocol.device_plugins import LOCKS
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, changed_states, derived

_OURS = "koordinator.sh/"
_LOCKS = frozenset(LOCKS.values())
SAID = frozenset(("labels", "annotations"))
"""Fields of a node that say it."""


class NodeHints:
    """Whether any node of the cluster says something that NodeNUMAResource must heed."""

    def __init__(self, workspace: Workspace) -> None:
        self.anything = any_node_hints(workspace.snapshot)

    def moved(self, moves: NodeMoves) -> bool:
        """Nothing here is by row."""
        return True


def any_node_hints(snapshot: ClusterSnapshot) -> bool:
    """Tell whether any node of a cluster says something that NodeNUMAResource must heed."""
    labelled = derived(snapshot, _labelled, _labelled_again, replaced=True)
    return snapshot.has(NodeResourceTopology) or bool(labelled)


def _labelled(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Give the names of the nodes that carry a label or an annotation of Koordinator's."""
    return frozenset(state.name for state in snapshot.nodes if hints(state.node))


def hints(node: Node) -> bool:
    """Tell whether a node carries a label or an annotation of Koordinator's."""
    # One search through all keys; what is looked for has no line's end.
    return _OURS in "\n".join((*node.labels, *node.annotations))


def heeds(changes: ClusterChanges) -> bool:
    """Tell whether any node that was replaced says something else about its CPUs and devices there."""
    if SAID.isdisjoint(changes.said):
        return False
    return any(_heeded(before) != _heeded(after) for before, after in changes.nodes.values())


def _heeded(node: Node) -> list[tuple[str, str]]:
    """Give the labels and annotations of a node that say anything about its CPUs and devices."""
    every = (*node.labels.items(), *node.annotations.items())
    return sorted(one for one in every if _OURS in one[0] or one[0] in _LOCKS)


def _labelled_again(
    nodes: Vector[NodeState], _: Vector[ClusterRecord], value: frozenset[str], snapshot: ClusterSnapshot
) -> frozenset[str]:
    """Look only at the nodes that changed."""
    changed = [(old, new) for old, new in changed_states(snapshot, nodes) if not _same_node(old, new)]
    if not changed:
        return value
    gone = {old.name for old, _ in changed if old is not None}
    came = (new.name for _, new in changed if new is not None and hints(new.node))
    return value.difference(gone).union(came)


def _same_node(old: NodeState | None, new: NodeState | None) -> bool:
    return old is not None and new is not None and old.node is new.node
