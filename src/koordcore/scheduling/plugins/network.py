"""Coscheduling and SchedulingHint: nearness in the network, and nodes that an annotation names.

Whole gangs are planned by :mod:`koordcore.scheduling.gang`; what stands here concerns single pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.errors import ManifestError
from koordcore.framework.evaluator import Evaluator, Refusal, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.gangs import CoschedulingArgs
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import topology_selector
from koordcore.protocol.hints import (
    ANNOTATION_SCHEDULING_HINT,
    DEFAULT_MAX_HINT_NODES,
    DEPRECATED_SCHEDULING_HINT,
    HINT_PLUGIN,
    SchedulingHint,
    parse_scheduling_hint,
)
from koordcore.snapshot.following import ChangeReader, ClusterChanges, once


class NearnessEvaluator(Evaluator):
    """Nodes near pods of the same selector score higher; the order is over the feasible nodes."""

    scope = Scope.CLUSTER
    normalises = True

    def __init__(self, plugin: Coscheduling, selector: str) -> None:
        self._plugin = plugin
        self._selector = selector

    def scores(self, view: NodeView) -> IntVector:
        return np.zeros(self._plugin.workspace.free[0, view.rows].shape, np.int64)

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        # What knows networks is read for the first pod that wants to be near others.
        from koordcore.allocators.gang.nearness import nearness_positions, nearness_scores
        from koordcore.scheduling.network_trees import network_tree
        from koordcore.scheduling.selector_counts import SelectorCounts

        workspace = self._plugin.workspace
        names = workspace.layout.names
        candidates = [names[row] for row in np.flatnonzero(feasible).tolist()]
        tree = once(workspace.snapshot, network_tree)
        scores = nearness_scores(
            nearness_positions(
                tree, candidates, self._plugin.workspace.once(SelectorCounts).of(self._selector)
            )
        )
        result = np.zeros(len(names), np.int64)
        for name, score in scores.items():
            result[workspace.layout.row_of[name]] = score
        return result


class Coscheduling(Plugin):
    """Pods with a network-topology selector go near each other."""

    name = "Coscheduling"
    keeps_rows = False
    by_template = True
    arguments = CoschedulingArgs
    reads = frozenset[type]()

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._counts: dict[str, dict[str, int]] | None = None
        self._changes = ChangeReader(workspace.journal)

    def follow(self, changes: ClusterChanges) -> bool:
        return True  # the network is read at every question

    def counts(self, selector: str) -> dict[str, int]:
        """Count the pods of a selector by node, now."""
        if self._counts is None:
            self._counts = {}
            self._changes = ChangeReader(self.workspace.journal, self.workspace.origin)
            for pod in self.workspace.start.bound_pods():
                self._count(pod, 1)
        for pod, _, sign in self._changes.unread():
            self._count(pod, sign)
        return self._counts.get(selector, {})

    def _count(self, pod: Pod, sign: int) -> None:
        selector = topology_selector(pod.annotations)
        if selector and self._counts is not None:
            nodes = self._counts.setdefault(selector, {})
            nodes[str(pod.node_name)] = nodes.get(str(pod.node_name), 0) + sign

    def request_of(self, pod: Pod) -> Hashable | None:
        return topology_selector(pod.annotations) or None if pod.annotations else None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return NearnessEvaluator(self, request)


class HintEvaluator(Evaluator):
    """Only the nodes that the hint allows."""

    reason = "node(s) didn't satisfy plugin(s) [SchedulingHint]"

    def __init__(self, workspace: Workspace, hint: SchedulingHint) -> None:
        layout = workspace.layout
        self._restricts = bool(hint.node_names)
        self._allowed = np.zeros(len(layout.names), bool)
        for name in hint.node_names:
            if name in layout.row_of:
                self._allowed[layout.row_of[name]] = True

    def restriction(self) -> BoolVector | None:
        return self._allowed if self._restricts else None

    def fits(self, view: NodeView) -> BoolVector | None:
        return self._allowed[view.rows] if self._restricts else None

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(self.reason, ~self._allowed[view.rows])]

    def unresolvable(self, view: NodeView) -> BoolVector | None:
        return ~self._allowed[view.rows] if self._restricts else None


class Hints(Plugin):
    """A pod's scheduling hint: nodes that it must go to.

    Nodes that it would rather go to are tried first, before anything is scored: see ``preferred``.
    """

    name = HINT_PLUGIN
    needs = frozenset((ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT))
    keeps_rows = False
    by_template = True
    reads = frozenset[type]()
    looks_at = frozenset[str]()
    arguments = int

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if not pod.annotations:
            return None
        try:
            hint = parse_scheduling_hint(pod.annotations)
        except ManifestError as error:
            return Refusal(error.problems[0].message)
        if hint is None or not (hint.node_names or hint.preferred_node_names):
            return None
        return (hint.node_names, hint.preferred_node_names)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        nodes, preferred = request
        return HintEvaluator(self.workspace, SchedulingHint(node_names=nodes, preferred_node_names=preferred))

    def preferred(self, pod: Pod) -> tuple[str, ...]:
        """Give the nodes to try first, in their order; the first that takes the pod gets it."""
        hint = parse_scheduling_hint(pod.annotations) if pod.annotations else None
        return () if hint is None else hint.preferred_node_names[: self.args or DEFAULT_MAX_HINT_NODES]
