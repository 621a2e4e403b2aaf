"""PodTopologySpread: the pods of a workload lie evenly over hosts, zones and the like."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore._workspace import Workspace
from koordcore.errors import ManifestError
from koordcore.model.affinity import TopologySpreadConstraint, UnsatisfiableAction
from koordcore.model.cluster import RawObject, Workload
from koordcore.model.decisions import Shortfall
from koordcore.model.nodes import HOSTNAME_LABEL, ZONE_LABEL
from koordcore.model.pods import Pod
from koordcore.model.policy import SpreadArgs, SpreadDefaulting
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.fields import Json, as_mapping, as_str_mapping, load_json, optional
from koordcore.schedule.feature import Evaluator, Feature, Scope
from koordcore.schedule.features.neighbours import Neighbours
from koordcore.scoring.spread import (
    REASON_MISSING_LABEL,
    REASON_SKEW,
    SpreadFilter,
    SpreadRequest,
    SpreadScore,
    spread_request,
)
from koordcore.snapshot import ClusterSnapshot

__all__ = ["SYSTEM_CONSTRAINTS", "TopologySpread", "default_selector"]

SYSTEM_CONSTRAINTS: Final = tuple(
    TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=UnsatisfiableAction.SCHEDULE_ANYWAY
    )
    for skew, key in ((3, HOSTNAME_LABEL), (5, ZONE_LABEL))
)
"""What the scheduler asks for pods that ask for nothing themselves (Kubernetes' built-in constraints)."""

_OWNERS: Final = ("ReplicationController", "ReplicaSet", "StatefulSet")


_EMPTY: Final[Mapping[str, Json]] = {}
_NO_LABELS: Final[Mapping[str, str]] = {}


def _labels(value: Json) -> Mapping[str, str]:
    return as_str_mapping(value)


def _service_selectors(snapshot: ClusterSnapshot) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Give the selectors of the services of each namespace; services are kept as they came."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for one in snapshot.of(RawObject):
        if one.kind != "Service" or not one.text:
            continue
        try:
            spec = optional(as_mapping(load_json(one.text)), "spec", as_mapping, _EMPTY)
            selector = optional(spec, "selector", _labels, _NO_LABELS)
        except ManifestError:
            continue
        if selector:
            found.setdefault(one.namespace, []).append(selector)
    return found


def _owner_selectors(snapshot: ClusterSnapshot) -> Mapping[tuple[str, str, str], LabelSelector]:
    return {
        (one.kind, one.namespace, one.name): one.selector
        for one in snapshot.of(Workload)
        if one.kind in _OWNERS and one.selector is not None
    }


def default_selector(snapshot: ClusterSnapshot, pod: Pod) -> LabelSelector | None:
    """Deduce which pods belong together with a pod: those of its services and of its controller.

    Returns
    -------
    LabelSelector or None
        ``None`` where neither is known; the pod then has no default constraints.
    """
    labels: dict[str, str] = {}
    for selector in snapshot.once(_service_selectors).get(pod.namespace, ()):
        if all(pod.labels.get(key) == value for key, value in selector.items()):
            labels.update(selector)
    owner = pod.controller
    known = None
    if owner is not None:
        known = snapshot.once(_owner_selectors).get((owner.kind, pod.namespace, owner.name))
    if known is None:
        return LabelSelector(labels) if labels else None
    return LabelSelector({**labels, **known.match_labels}, known.requirements)


class SpreadEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.CLUSTER
    normalises = True

    def __init__(self, workspace: Workspace, request: SpreadRequest) -> None:
        self._workspace = workspace
        self._request = request
        self._number = len(workspace.layout.names)

    @cached_property
    def _neighbours(self) -> Neighbours:
        # Made at the first question: only then is it known what reservations lend to the class.
        return Neighbours(self._workspace, self.lending)

    @cached_property
    def _filter(self) -> SpreadFilter | None:
        hard = self._request.of(hard=True)
        return SpreadFilter(self._neighbours.now(), self._request) if hard else None

    @cached_property
    def _score(self) -> SpreadScore | None:
        soft = self._request.of(hard=False)
        return SpreadScore(self._neighbours.now(), self._request) if soft else None

    def fits(self, rows: Rows) -> BoolVector | None:
        if self._filter is None:
            return None
        self._neighbours.now()
        return self._filter.fits()[rows]

    def _refused(self) -> tuple[BoolVector, BoolVector]:
        if self._filter is None:
            nowhere = np.zeros(self._number, np.bool_)
            return nowhere, nowhere
        self._neighbours.now()
        _, missing, skewed = self._filter.judge()
        return missing, skewed

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        missing, skewed = self._refused()
        return [(REASON_MISSING_LABEL, missing[rows]), (REASON_SKEW, skewed[rows])]

    def unresolvable(self, rows: Rows) -> BoolVector:
        return self._refused()[0][rows]

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        missing, skewed = self._refused()
        if missing[row]:
            return (Shortfall(REASON_MISSING_LABEL, resolvable=False),)
        return (Shortfall(REASON_SKEW),) if skewed[row] else ()

    def scores(self, rows: Rows) -> IntVector | None:
        # The raw score depends on which nodes are feasible, so all of it is made in ``normalise``.
        return None if self._score is None else np.zeros(self._number, np.int64)[rows]

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        if self._score is None:
            return raw
        self._neighbours.now()
        return self._score.normalise(self._score.raw(feasible), feasible)


class TopologySpread(Feature):
    """Spread constraints of the pod, or the policy's defaults where it has none."""

    name = "PodTopologySpread"

    def request_of(self, pod: Pod) -> Hashable | None:
        if pod.spread_constraints:
            return spread_request(pod)
        args = self.args or SpreadArgs()
        built_in = args.defaulting is SpreadDefaulting.SYSTEM
        constraints = SYSTEM_CONSTRAINTS if built_in else args.default_constraints
        if not constraints:
            return None
        selector = default_selector(self.workspace.snapshot, pod)
        if selector is None:
            return None
        completed = [attrs.evolve(one, selector=selector) for one in constraints]
        return spread_request(pod, completed, require_all=not built_in)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return SpreadEvaluator(self.workspace, request)
