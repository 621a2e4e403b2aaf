"""Koordinator's resource scores: NodeResourcesFitPlus and ScarceResourceAvoidance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from koordcore._arrays import (
    AMOUNT_LIMIT,
    IntVector,
)
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_view import SCORED, NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.plugin_args import FitPlusArgs, ScarceArgs, ScoringStrategy
from koordcore.model.pods import Pod
from koordcore.model.resources import PODS, counted
from koordcore.scheduling.plugins.resources import OFFERS
from koordcore.scoring.resources import (
    MAX_SCORE,
    Capacity,
    least_percent,
    most_percent,
    score_scarce,
)


def _plus_settings(args: FitPlusArgs, requests: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    """Give strategy and weight of what a pod asks for."""
    found = {name: one for name, one in args.resources.items() if requests.get(name, 0) > 0}
    if args.extended is not None:
        rest = (name for name, amount in sorted(requests.items()) if amount > 0 and name not in found)
        found |= {name: args.extended for name in rest if _is_device(name)}
    return found


def _is_device(name: str) -> bool:
    """Tell extended resources from the native ones and from amounts that Koordinator lends."""
    return "/" in name and counted(name) and not name.startswith(("kubernetes.io/", "koordinator.sh/"))


class FitPlusEvaluator(Evaluator):
    """Score of one pod class: each resource has its own strategy."""

    scope = Scope.NODE
    amounts_only = True

    def __init__(self, workspace: Workspace, pod: Pod, args: FitPlusArgs) -> None:
        layout = workspace.layout
        self._workspace = workspace
        settings = _plus_settings(args, pod.requests)
        names = list(settings)
        # A resource that no node offers scores 0 everywhere; it still counts with its weight.
        self._names = tuple(name for name in names if name in layout.index)
        self._rows = np.array([layout.index[name] for name in self._names], np.int64)
        own = [min(pod.scored_requests.get(name, 0), AMOUNT_LIMIT) for name in self._names]
        self._own = np.array(own, np.int64)[:, None]
        self._capacity = [Capacity(layout.allocatable[row : row + 1]) for row in self._rows.tolist()]
        self._settings = [settings[name] for name in self._names]
        self._weight = sum(settings[name][1] for name in names)

    def scores(self, view: NodeView) -> IntVector:
        total = np.zeros(self._workspace.scored[0, view.rows].shape, np.int64)
        if self._weight == 0:
            return total + MAX_SCORE
        used = view.amounts[SCORED][self._rows] + self._own
        for number, (strategy, weight) in enumerate(self._settings):
            capacity, one = self._capacity[number].at(view.rows), used[number : number + 1]
            if strategy == ScoringStrategy.LEAST_ALLOCATED:
                total += weight * least_percent(one, capacity)[0]
            elif strategy == ScoringStrategy.MOST_ALLOCATED:
                total += weight * most_percent(one, capacity)[0]
        return total // self._weight


class FitPlus(Plugin):
    """Koordinator's NodeResourcesFitPlus: a strategy and a weight for each resource that the pod asks for."""

    name = "NodeResourcesFitPlus"
    by_template = True
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = OFFERS
    arguments = FitPlusArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._rated: dict[Hashable, bool] = {}

    def request_of(self, pod: Pod) -> Hashable:
        asked, args = tuple(pod.requests.items()), self.args
        if args is not None and args.extended is not None:
            rated = self._rated.get(asked)
            if rated is None:
                rated = self._rated[asked] = bool(_plus_settings(args, pod.requests))
            if not rated:
                return None
        return (asked, tuple(pod.scored_requests.items()))

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return FitPlusEvaluator(self.workspace, pod, self.args or FitPlusArgs())


class ScarceEvaluator(Evaluator):
    """Score of one pod class; what nodes offer does not change with the pods on them."""

    def __init__(self, workspace: Workspace, names: frozenset[str], args: ScarceArgs) -> None:
        layout = workspace.layout
        rows = [row for row, name in enumerate(layout.resources) if name != PODS]
        resources = [layout.resources[row] for row in rows]
        self._scores = score_scarce(
            layout.allocatable[rows] > 0,
            np.array([name in names for name in resources], bool),
            np.array([name in args.resources for name in resources], bool),
        )

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class ScarceAvoidance(Plugin):
    """Koordinator's ScarceResourceAvoidance: keep nodes with scarce resources for pods that ask for them."""

    name = "ScarceResourceAvoidance"
    by_template = True
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = OFFERS
    arguments = ScarceArgs

    def request_of(self, pod: Pod) -> Hashable:
        return frozenset(name for name, amount in pod.requests.items() if amount > 0 and counted(name))

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ScarceEvaluator(self.workspace, request, self.args or ScarceArgs())
