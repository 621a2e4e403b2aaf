"""PodTopologySpread: the pods of a workload lie evenly over hosts, zones and the like."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._vector import Vector
from koordcore.errors import ManifestError
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import NEIGHBOURS, ROOM
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.affinity import TopologySpreadConstraint, UnsatisfiableAction
from koordcore.model.cluster import RawObject, Workload
from koordcore.model.nodes import HOSTNAME_LABEL, ZONE_LABEL, NodeState
from koordcore.model.plugin_args import SpreadArgs, SpreadDefaulting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.fields import Json, as_mapping, as_str_mapping, load_json, optional
from koordcore.scheduling.plugins.neighbours import Neighbours, follow_nodes
from koordcore.scoring.spread import (
    REASON_MISSING_LABEL,
    REASON_SKEW,
    SpreadFilter,
    SpreadRequest,
    SpreadScore,
    spread_request,
)
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, changed_records, derived

T = TypeVar("T")

SYSTEM_CONSTRAINTS: Final = tuple(
    TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=UnsatisfiableAction.SCHEDULE_ANYWAY
    )
    for skew, key in ((3, HOSTNAME_LABEL), (5, ZONE_LABEL))
)
"""What the scheduler asks for pods that ask for nothing themselves (Kubernetes' built-in constraints)."""

_MOST_TEMPLATES: Final = 4096

_OWNERS: Final = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}
"""Controllers of which Kubernetes has the selector, and what a pod calls their API."""


_EMPTY: Final[Mapping[str, Json]] = {}
_NO_LABELS: Final[Mapping[str, str]] = {}


def _labels(value: Json) -> Mapping[str, str]:
    return as_str_mapping(value)


_Services: TypeAlias = Mapping[tuple[str, str, str], Sequence[Mapping[str, str]]]
"""Selectors of services by namespace and one of their labels."""
_Owners: TypeAlias = Mapping[tuple[str, str, str], Mapping[str, LabelSelector]]
"""Selectors of controllers by kind, namespace and name, and by what calls their API."""


def _services(snapshot: ClusterSnapshot) -> _Services:
    found: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for one in snapshot.of(RawObject):
        selector = _selects(one)
        if selector:
            found.setdefault((one.namespace, *min(selector.items())), []).append(selector)
    return found


def _services_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: _Services, snapshot: ClusterSnapshot
) -> _Services:
    """Look only at services that changed."""
    del nodes
    changed = _changed(snapshot, records, RawObject)
    if all(_selects(one) == _selects(two) for one, two in changed):
        return value
    made = dict(value)
    for one, sign in ((one, sign) for pair in changed for one, sign in zip(pair, (-1, 1), strict=True)):
        selector = _selects(one)
        if one is not None and selector:
            key = (one.namespace, *min(selector.items()))
            found = list(made.pop(key, ()))
            found.append(selector) if sign > 0 else found.remove(selector)
            if found:
                made[key] = found
    return made


def _selects(one: RawObject | None) -> Mapping[str, str]:
    """Give the selector of a service, which is kept as it came; empty for what is none."""
    if one is None or one.kind != "Service" or one.api_version not in ("", "v1") or not one.text:
        return _NO_LABELS
    try:
        spec = optional(as_mapping(load_json(one.text)), "spec", as_mapping, _EMPTY)
        return optional(spec, "selector", _labels, _NO_LABELS)
    except ManifestError:
        return _NO_LABELS


def _owners(snapshot: ClusterSnapshot) -> _Owners:
    found: dict[tuple[str, str, str], dict[str, LabelSelector]] = {}
    for one in snapshot.of(Workload):
        if one.selector is not None and _is_ours(one):
            found.setdefault(_named(one), {})[one.api_version] = one.selector
    return found


def _owners_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: _Owners, snapshot: ClusterSnapshot
) -> _Owners:
    """Look only at controllers that changed."""
    del nodes
    made: dict[tuple[str, str, str], Mapping[str, LabelSelector]] | None = None
    for before, after in _changed(snapshot, records, Workload):
        one = before if after is None else after
        if one is None or (before and after and before.selector == after.selector):
            continue
        made = dict(value) if made is None else made
        known = dict(made.pop(_named(one), {}))
        known.pop(one.api_version, None)
        if after is not None and after.selector is not None and _is_ours(after):
            known[one.api_version] = after.selector
        if known:
            made[_named(one)] = known
    return value if made is None else made


def _named(one: Workload) -> tuple[str, str, str]:
    return one.kind, one.namespace, one.name


def _changed(
    snapshot: ClusterSnapshot, records: Vector[ClusterRecord], kind: type[T]
) -> list[tuple[T | None, T | None]]:
    """Give the records of a type that changed, before and after."""
    return [
        pair  # type: ignore[misc]  # both are of the type that one of them is
        for pair in changed_records(snapshot, records)
        if isinstance(pair[0] or pair[1], kind)
    ]


def _is_ours(one: Workload) -> bool:
    """Tell a controller of Kubernetes from one that others call alike; one kept in code may not say."""
    group = one.api_version.rpartition("/")[0]
    return one.kind in _OWNERS and (not one.api_version or group == _OWNERS[one.kind].rpartition("/")[0])


def default_selector(snapshot: ClusterSnapshot, pod: Pod) -> LabelSelector | None:
    """Deduce which pods belong together with a pod: those of its services and of its controller.

    Returns
    -------
    LabelSelector or None
        ``None`` where neither is known; the pod then has no default constraints.
    """
    labels: dict[str, str] = {}
    services = derived(snapshot, _services, _services_again, replaced=True)
    for pair in pod.labels.items() if services else ():
        for selector in services.get((pod.namespace, *pair), ()):
            if all(pod.labels.get(key) == value for key, value in selector.items()):
                labels.update(selector)
    owner = pod.controller
    known: LabelSelector | None = None
    if owner is not None and owner.api_version in ("", _OWNERS.get(owner.kind)):
        owners = derived(snapshot, _owners, _owners_again, replaced=True)
        versions = owners.get((owner.kind, pod.namespace, owner.name))
        known = versions[max(versions)] if versions else None
    if known is None:
        return LabelSelector(labels) if labels else None
    return LabelSelector({**labels, **known.match_labels}, known.requirements)


def _completed(
    pod: Pod, selector: LabelSelector, constraints: Sequence[TopologySpreadConstraint], built_in: bool
) -> SpreadRequest | None:
    completed = [attrs.evolve(one, selector=selector) for one in constraints]
    return spread_request(pod, completed, require_all=not built_in)


class SpreadEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.CLUSTER
    normalises = True

    def __init__(self, workspace: Workspace, request: SpreadRequest) -> None:
        self._workspace = workspace
        self._request = request
        self._gone = frozenset[PodKey]()
        self._number = len(workspace.layout.names)

    @cached_property
    def _neighbours(self) -> Neighbours:
        # Made at the first question: only then is it known who counts as gone for the class.
        return Neighbours(self._workspace, self._gone)

    @cached_property
    def _filter(self) -> SpreadFilter | None:
        hard = self._request.of(hard=True)
        return SpreadFilter(self._neighbours.now(), self._request) if hard else None

    @cached_property
    def _score(self) -> SpreadScore | None:
        soft = self._request.of(hard=False)
        return SpreadScore(self._neighbours.now(), self._request) if soft else None

    def fits(self, view: NodeView) -> BoolVector | None:
        self._gone = view.gone
        if self._filter is None:
            return None
        self._neighbours.now()
        return self._filter.fits()[view.rows]

    def needs_company(self) -> bool:
        return bool(self._request.of(hard=True))

    def _refused(self) -> tuple[BoolVector, BoolVector]:
        if self._filter is None:
            nowhere = np.zeros(self._number, np.bool_)
            return nowhere, nowhere
        self._neighbours.now()
        _, missing, skewed = self._filter.judge()
        return missing, skewed

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        self._gone = view.gone
        missing, skewed = self._refused()
        return [(REASON_MISSING_LABEL, missing[view.rows]), (REASON_SKEW, skewed[view.rows])]

    def unresolvable(self, view: NodeView) -> BoolVector:
        self._gone = view.gone
        return self._refused()[0][view.rows]

    def scores(self, view: NodeView) -> IntVector | None:
        self._gone = view.gone
        # The raw score depends on which nodes are feasible, so all of it is made in ``normalise``.
        return None if self._score is None else np.zeros(self._number, np.int64)[view.rows]

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        if self._score is None:
            return raw
        self._neighbours.now()
        return self._score.normalise(self._score.raw(feasible), feasible)


_DEFAULT_ARGS: Final = SpreadArgs()


class TopologySpread(Plugin):
    """Spread constraints of the pod, or the policy's defaults where it has none."""

    name = "PodTopologySpread"
    by_template = True
    helped_by = ROOM | NEIGHBOURS | {"RawObject", "Workload"}
    follows_pods = False
    keeps_rows = False
    looks_at = frozenset(("labels", "taints"))
    reads = frozenset((RawObject, Workload))
    arguments = SpreadArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._settings: SpreadArgs = args or SpreadArgs()
        self._requests: dict[Hashable, SpreadRequest | None] = {}
        self._selectors: dict[Hashable, LabelSelector | None] = {}
        self._defaults: dict[Hashable, SpreadRequest | None] = {}

    def follow(self, changes: ClusterChanges) -> bool:
        follow_nodes(self.workspace, changes)
        return not self.concerned(changes)

    def rereads(self, changes: ClusterChanges) -> bool:
        return "taints" in changes.said or self.workspace.relabelled

    def request_of(self, pod: Pod) -> Hashable | None:
        if pod.spread_constraints:
            return self._own(pod)
        args = self._settings
        built_in = args.defaulting is SpreadDefaulting.SYSTEM
        constraints = SYSTEM_CONSTRAINTS if built_in else args.default_constraints
        if not constraints:
            return None
        selector = self._selector_of(pod)
        if selector is None:
            return None
        if any(one.match_label_keys for one in constraints):
            return _completed(pod, selector, constraints, built_in)
        # Pods of one workload differ in labels that no selector looks at; what they want is read once.
        key = (
            pod.namespace,
            selector,
            selector.matches(pod.labels),
            pod.node_selector,
            pod.affinity.node if pod.affinity else None,
            pod.tolerations,
        )
        if key not in self._defaults:
            if len(self._defaults) >= _MOST_TEMPLATES:
                self._defaults.clear()
            self._defaults[key] = _completed(pod, selector, constraints, built_in)
        return self._defaults[key]

    def _own(self, pod: Pod) -> SpreadRequest | None:
        """Give what :func:`spread_request` gives, once for all pods of a template."""
        affinity = pod.affinity.node if pod.affinity else None
        key = (
            pod.namespace,
            pod.spread_constraints,
            pod.labels,
            pod.node_selector,
            affinity,
            pod.tolerations,
        )
        if key not in self._requests:
            if len(self._requests) >= _MOST_TEMPLATES:
                self._requests.clear()
            self._requests[key] = spread_request(pod)
        return self._requests[key]

    def _selector_of(self, pod: Pod) -> LabelSelector | None:
        """Give what :func:`default_selector` gives; most pods of a queue come out of few templates."""
        owner = pod.controller
        key = (pod.namespace, pod.labels, owner and (owner.api_version, owner.kind, owner.name))
        if key not in self._selectors:
            if len(self._selectors) >= _MOST_TEMPLATES:
                self._selectors.clear()
            self._selectors[key] = default_selector(self.workspace.snapshot, pod)
        return self._selectors[key]

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return SpreadEvaluator(self.workspace, request)
