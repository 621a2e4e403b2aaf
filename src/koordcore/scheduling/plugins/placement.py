"""Where a pod may sit by name, label, taint and port: the label plugins of the stock scheduler."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout, IntVector, Rows
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Refusal, Scope
from koordcore.framework.hints import NODES, ROOM
from koordcore.framework.lacks import Lack
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.affinity import NodeAffinity, Taint
from koordcore.model.nodes import NodeState
from koordcore.model.plugin_args import NodeAffinityArgs
from koordcore.model.pods import HostPort, Pod
from koordcore.model.selectors import NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.scoring.labels import (
    count_soft_taints,
    fit_selector,
    fit_term,
    judge_cordons,
    judge_taints,
    named_nodes,
    score_preferred,
    untolerated_taint,
)
from koordcore.scoring.resources import default_normalise
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import per_node

_MOST_TAINTS: Final = 64
"""Where nodes say more different things than this, each is asked by itself."""


class _Filter(Evaluator):
    """A filter with one reason; evicting pods never helps."""

    reason: str

    def allowed(self, rows: Rows) -> BoolVector:
        """Tell which of some nodes take the pod."""
        raise NotImplementedError

    def fits(self, view: NodeView) -> BoolVector:
        return self.allowed(view.rows)

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(self.reason, ~self.allowed(view.rows))]

    def unresolvable(self, view: NodeView) -> BoolVector:
        return ~self.allowed(view.rows)


class MaskEvaluator(_Filter):
    """A fixed mask with one reason."""

    def __init__(self, mask: BoolVector, reason: str) -> None:
        self._mask = mask
        self.reason = reason

    def allowed(self, rows: Rows) -> BoolVector:
        return self._mask[rows]


class CordonEvaluator(_Filter):
    """A cordon keeps away whoever does not tolerate it."""

    reason = "node(s) were unschedulable"

    def __init__(self, workspace: Workspace, pod: Pod) -> None:
        self._workspace = workspace
        self._open = judge_cordons(workspace.layout, pod.tolerations)

    def moved(self) -> bool:
        self._open.follow(self._workspace.layout.kinds.cordons)
        return True

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        return None if self._open.same is None else (bool(self._open.same), None)

    def allowed(self, rows: Rows) -> BoolVector:
        return self._open.at(rows).astype(np.bool_)


class Unschedulable(Plugin):
    """Cordoned nodes take only pods that tolerate it."""

    name = "NodeUnschedulable"
    by_template = True
    helped_by = NODES
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset(("unschedulable",))

    def request_of(self, pod: Pod) -> Hashable:
        return pod.tolerations

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return CordonEvaluator(self.workspace, pod)


class NodeName(Plugin):
    """A pod that names its node sits there or nowhere."""

    name = "NodeName"
    by_template = True
    helped_by = NODES
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset[str]()

    def request_of(self, pod: Pod) -> Hashable | None:
        return pod.node_name or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        mask = np.array([name == request for name in self.workspace.layout.names], bool)
        return MaskEvaluator(mask, "node(s) didn't match the requested node name")


class TaintEvaluator(_Filter):
    """Hard taints keep away, soft ones count against a node."""

    normalises = True
    reason = "node(s) had untolerated taint(s)"

    def __init__(self, workspace: Workspace, pod: Pod) -> None:
        self._workspace = workspace
        self._pod = pod
        self._hard = judge_taints(workspace.layout, pod.tolerations)
        self._soft = count_soft_taints(workspace.layout, pod.tolerations)

    def moved(self) -> bool:
        taints = self._workspace.layout.kinds.taints
        self._hard.follow(taints)
        self._soft.follow(taints)
        return True

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        hard, soft = self._hard.same, self._soft.same
        return None if hard is None or soft is None else (bool(hard), soft)

    def allowed(self, rows: Rows) -> BoolVector:
        return self._hard.at(rows).astype(np.bool_)

    def lacks(self, view: NodeView) -> Sequence[Lack] | None:
        column = self._workspace.layout.kinds.taints
        ids = column.ids[view.rows]
        found: dict[Taint, BoolVector] = {}
        different = np.unique(ids).tolist()
        if len(different) > _MOST_TAINTS:
            return None
        for number in different:
            taint = untolerated_taint(column.values[number], self._pod.tolerations)
            if taint is not None:
                found[taint] = found.get(taint, False) | (ids == number)
        text = "node(s) had untolerated taint"
        return [Lack(where, f"{text} {taint}", unresolvable=where) for taint, where in found.items()]

    def scores(self, view: NodeView) -> IntVector:
        return self._soft.at(view.rows)

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        return default_normalise(raw, feasible, reverse=True)


class Taints(Plugin):
    """Taints and what tolerates them."""

    name = "TaintToleration"
    by_template = True
    helped_by = NODES
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset(("taints",))

    def request_of(self, pod: Pod) -> Hashable:
        return pod.tolerations

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return TaintEvaluator(self.workspace, pod)


@record
class NodeLabelRequest:
    """What a pod wants of node labels: its selector as a term, its affinity, and that of the policy."""

    selector: NodeSelectorTerm
    affinity: NodeAffinity | None


class NodeLabelEvaluator(Evaluator):
    """Required and preferred node affinity with the node selector."""

    normalises = True

    def __init__(self, layout: ClusterLayout, request: NodeLabelRequest, added: NodeAffinity | None) -> None:
        everywhere = np.ones(len(layout.names), bool)
        self._names = layout.names
        self._enforced = everywhere
        if added is not None and added.required is not None:
            self._enforced = fit_selector(layout, added.required)
        self._own = everywhere
        self.named: tuple[str, ...] | None = None
        if request.selector.expressions:
            self._own = fit_term(layout, request.selector)
        affinity = request.affinity
        if affinity is not None and affinity.required is not None:
            self._own = self._own & fit_selector(layout, affinity.required)
            if affinity.required.terms:
                self.named = named_nodes(affinity.required)
        self._required = (
            bool(request.selector.expressions)
            or (affinity is not None and affinity.required is not None)
            or (added is not None and added.required is not None)
        )
        preferred = (*(added.preferred if added else ()), *(affinity.preferred if affinity else ()))
        self._preferred = score_preferred(layout, preferred) if preferred else None

    def refuse(self) -> Refusal | None:
        return Refusal("pod affinity terms conflict") if self.named == () else None

    def restriction(self) -> BoolVector | None:
        if self.named is None:
            return None
        return np.array([name in self.named for name in self._names], bool)

    def fits(self, view: NodeView) -> BoolVector | None:
        if not self._required:
            return None
        return self._enforced[view.rows] & self._own[view.rows]

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        enforced = self._enforced[view.rows]
        return [
            ("node(s) didn't match scheduler-enforced node affinity", ~enforced),
            ("node(s) didn't match Pod's node affinity/selector", enforced & ~self._own[view.rows]),
        ]

    def unresolvable(self, view: NodeView) -> BoolVector:
        return ~(self._enforced[view.rows] & self._own[view.rows])

    def scores(self, view: NodeView) -> IntVector | None:
        return None if self._preferred is None else self._preferred[view.rows]

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        return default_normalise(raw, feasible)


class NodeLabels(Plugin):
    """Node selector and node affinity."""

    name = "NodeAffinity"
    by_template = True
    helped_by = NODES
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset(("labels",))
    arguments = NodeAffinityArgs

    def request_of(self, pod: Pod) -> Hashable | None:
        affinity = pod.affinity.node if pod.affinity else None
        if not pod.node_selector and affinity is None and (self.args is None or self.args.added is None):
            return None
        selector = NodeSelectorTerm(
            tuple(
                Requirement(key, SelectorOperator.IN, (value,))
                for key, value in sorted(pod.node_selector.items())
            )
        )
        return NodeLabelRequest(selector, affinity)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        args = self.args or NodeAffinityArgs()
        return NodeLabelEvaluator(self.workspace.layout, request, args.added)


class FeatureEvaluator(MaskEvaluator):
    """Nodes that declare all that a pod needs."""

    def __init__(self, layout: ClusterLayout, features: tuple[str, ...]) -> None:
        mask = np.array([{*features} <= {*node.features} for node in layout.nodes], bool)
        super().__init__(mask, "node(s) didn't match Pod's required features")
        self._named = ", ".join(features)

    def lacks(self, view: NodeView) -> Sequence[Lack]:
        where = ~self.allowed(view.rows)
        return [Lack(where, f"{self.reason} ({self._named})", unresolvable=where)]


class DeclaredFeatures(Plugin):
    """What pods need of their kubelets, and nodes declare."""

    name = "NodeDeclaredFeatures"
    needs = frozenset(("features",))
    by_template = True
    helped_by = NODES
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset(("features",))

    def request_of(self, pod: Pod) -> Hashable | None:
        return pod.features or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return FeatureEvaluator(self.workspace.layout, request)


@per_node()
def ports_in_use(snapshot: ClusterSnapshot, state: NodeState) -> tuple[HostPort, ...]:
    """Give the host ports that are open on a node."""
    del snapshot
    return tuple(port for pod in state.pods for port in pod.host_ports)


class PortEvaluator(Evaluator):
    """No port that the pod opens is open already."""

    scope = Scope.NODE
    reason = "node(s) didn't have free ports for the requested pod ports"

    def __init__(self, used: list[tuple[HostPort, ...]], ports: tuple[HostPort, ...]) -> None:
        self._used = used
        self._ports = ports

    def _free(self, row: int, lent: Iterable[HostPort] = ()) -> bool:
        held = list(self._used[row])
        for port in lent:
            held.remove(port)  # once: a port that somebody opened who draws from the same loan stands twice
        return not any(wanted.conflicts(port) for port in held for wanted in self._ports)

    def fits(self, view: NodeView) -> BoolVector:
        if view.drawn is not None:
            loans = (view.drawn.loan(index) for index in range(len(view.drawn.rows)))
            return np.array([self._free(loan.row, loan.ports) for loan in loans], bool)
        fitting = np.array([self._free(row) for row in view.numbers.tolist()], bool)
        if view.loans is not None:
            fitting |= view.where_any(view.loans, self.fits(view.inside(view.loans)))
        return fitting

    def slots(self, view: NodeView, most: int) -> IntVector:
        # The pod's own ports clash with those of its twin.
        return np.ones(view.size, np.int64)

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(self.reason, ~self.fits(view))]


class NodePorts(Plugin):
    """Host ports."""

    name = "NodePorts"
    needs = frozenset(("host_ports",))
    by_template = True
    helped_by = ROOM
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset[str]()

    def request_of(self, pod: Pod) -> Hashable | None:
        return pod.host_ports or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return PortEvaluator(self.workspace.values(ports_in_use), request)

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        every = tuple(
            tuple(int(kind in pair) for kind in range(len(pods)))
            for pair in combinations(range(len(pods)), 2)
            if any(a.conflicts(b) for a in pods[pair[0]].host_ports for b in pods[pair[1]].host_ports)
        )
        return dict.fromkeys(rows, every) if every else {}

    def placed(self, pod: Pod, row: int) -> None:
        if pod.host_ports and self.workspace.knows(ports_in_use):
            used = self.workspace.values(ports_in_use)
            self.workspace.put(used, row, (*used[row], *pod.host_ports))

    def removed(self, pod: Pod, row: int) -> None:
        if pod.host_ports and self.workspace.knows(ports_in_use):
            used = self.workspace.values(ports_in_use)
            kept = list(used[row])
            for port in pod.host_ports:
                kept.remove(port)
            self.workspace.put(used, row, tuple(kept))
