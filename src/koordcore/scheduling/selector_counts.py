"""Pods of each network-topology selector by node, now; one table for a call."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import topology_selector
from koordcore.snapshot.following import ChangeReader


class SelectorCounts:
    """Counts pods that share a selector, as they come and leave; see :meth:`Workspace.once`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._counts: dict[str, dict[str, int]] | None = None
        self._changes = ChangeReader(workspace.journal, workspace.origin)

    def of(self, selector: str) -> Mapping[str, int]:
        """Count the pods of a selector by node."""
        if self._counts is None:
            self._counts = {}
            for pod in self._workspace.start.bound_pods():
                self._count(pod, 1)
        for pod, _, sign in self._changes.unread():
            self._count(pod, sign)
        return self._counts.get(selector, {})

    def _count(self, pod: Pod, sign: int) -> None:
        selector = topology_selector(pod.annotations)
        if selector and self._counts is not None:
            nodes = self._counts.setdefault(selector, {})
            nodes[str(pod.node_name)] = nodes.get(str(pod.node_name), 0) + sign
