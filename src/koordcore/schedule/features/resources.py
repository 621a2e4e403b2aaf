"""Resource features: NodeResourcesFit, BalancedAllocation, FitPlus and ScarceResourceAvoidance.

Filter and formulas as in the Kubernetes 1.35 scheduler libraries and Koordinator's plugins of those names.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from koordcore._arrays import AMOUNT_LIMIT, PODS_ROW, BoolVector, IntMatrix, IntVector
from koordcore._workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod
from koordcore.model.policy import BalancedArgs, FitArgs, FitPlusArgs, ScarceArgs, ScoringStrategy
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from koordcore.schedule.feature import Evaluator, Feature, Rows, Scope
from koordcore.scoring.resources import (
    least_percent,
    most_percent,
    ratio_table,
    score_balanced,
    score_ratio,
    score_scarce,
    weighted_mean,
)

__all__ = ["BalancedAllocation", "FitPlus", "ResourceFit", "ScarceAvoidance"]

NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


def take(matrix: IntMatrix, resources: IntVector, rows: Rows) -> IntMatrix:
    """Give the rows of some resources for some nodes: ``(K, n)``."""
    if isinstance(rows, slice):
        return matrix[resources, rows]
    return matrix[resources[:, None], rows]


def _ignored(args: FitArgs, name: str) -> bool:
    return name not in NATIVE and (name in args.ignored or name.split("/", 1)[0] in args.ignored_groups)


class FitEvaluator(Evaluator):
    """Filter and score of one pod class."""

    scope = Scope.NODE

    def __init__(self, workspace: Workspace, pod: Pod, args: FitArgs) -> None:
        layout = workspace.layout
        self._workspace = workspace
        self._args = args
        self._pod = pod
        asked = {
            name: min(amount, AMOUNT_LIMIT)
            for name, amount in pod.requests.items()
            if amount > 0 and name != PODS and not _ignored(args, name)
        }
        self._names = tuple(name for name in asked if name in layout.index)
        self._absent = tuple(name for name in asked if name not in layout.index)
        self._rows = np.array([PODS_ROW, *(layout.index[name] for name in self._names)], np.int64)
        self._want = np.array([1, *(asked[name] for name in self._names)], np.int64)[:, None]
        # What may be in use at most for the pod to fit beside it.
        self._limit = layout.allocatable[self._rows] - self._want

    def fits(self, rows: Rows) -> BoolVector:
        if self._absent:
            return np.zeros(self._limit[0, rows].shape, bool)
        below = take(self._workspace.requested, self._rows, rows) <= self._limit[:, rows]
        fitting: BoolVector = np.logical_and.reduce(below)
        return fitting

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        short = take(self._workspace.requested, self._rows, rows) > self._limit[:, rows]
        names = ("Too many pods", *(f"Insufficient {name}" for name in self._names))
        found = list(zip(names, short, strict=True))
        found += [(f"Insufficient {name}", np.ones(short.shape[1], bool)) for name in self._absent]
        return found

    def unresolvable(self, rows: Rows) -> BoolVector:
        if self._absent:
            return np.ones(self._limit[0, rows].shape, bool)
        never: BoolVector = np.logical_or.reduce(self._limit[1:, rows] < 0)
        return never

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        free = (
            self._workspace.layout.allocatable[self._rows, row] - self._workspace.requested[self._rows, row]
        )
        found = []
        for name, want, rest in zip((PODS, *self._names), self._want[:, 0], free, strict=True):
            if want > rest:
                reason = "Too many pods" if name == PODS else f"Insufficient {name}"
                found.append(Shortfall(reason, name, int(want), int(rest)))
        found += [
            Shortfall(f"Insufficient {name}", name, self._pod.requests[name], 0, resolvable=False)
            for name in self._absent
        ]
        return tuple(found)

    @cached_property
    def _scoring(self) -> tuple[IntVector, IntMatrix, IntMatrix, IntMatrix]:
        """Resources scored, what the pod adds to each, capacity, and weight per node."""
        layout, pod = self._workspace.layout, self._pod
        rows, own, weights = [], [], []
        for name, weight in self._args.resources:
            scalar = name not in NATIVE
            if name in layout.index and (not scalar or pod.requests.get(name, 0) > 0):
                rows.append(layout.index[name])
                own.append(min(pod.scored_requests.get(name, 0), AMOUNT_LIMIT))
                weights.append(weight)
        index = np.array(rows, np.int64)
        capacity = layout.allocatable[index]
        weight_matrix = np.where(capacity > 0, np.array(weights, np.int64)[:, None], 0)
        return index, np.array(own, np.int64)[:, None], capacity, weight_matrix

    @cached_property
    def _table(self) -> IntVector:
        return ratio_table(self._args.shape)

    @cached_property
    def _even_weight(self) -> int:
        """The weight that all resources have on all nodes, 0 where they differ."""
        weights = self._scoring[3]
        first = int(weights.flat[0]) if weights.size else 0
        return first if (weights == first).all() else 0

    def scores(self, rows: Rows) -> IntVector:
        index, own, capacity, weights = self._scoring
        used = take(self._workspace.scored, index, rows) + own
        capacity = capacity[:, rows]
        if self._args.strategy is ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO:
            return score_ratio(used, capacity, weights[:, rows], self._table)
        if self._args.strategy is ScoringStrategy.LEAST_ALLOCATED:
            score = least_percent(used, capacity)
        else:
            score = most_percent(used, capacity)
        if self._even_weight:
            mean: IntVector = score.sum(0) // len(index)
            return mean
        return weighted_mean(score, weights[:, rows])


class ResourceFit(Feature):
    """Enough of every resource is free; free or used room is better, as the strategy says."""

    name = "NodeResourcesFit"

    def request_of(self, pod: Pod) -> Hashable:
        return (pod.requests, pod.scored_requests)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return FitEvaluator(self.workspace, pod, self.args or FitArgs())


class BalancedEvaluator(Evaluator):
    """Score of one pod class."""

    scope = Scope.NODE

    def __init__(self, workspace: Workspace, requests: Resources, args: BalancedArgs) -> None:
        layout = workspace.layout
        self._workspace = workspace
        names = [
            name
            for name, _ in args.resources
            if name in layout.index and (name in NATIVE or requests.get(name, 0) > 0)
        ]
        self._rows = np.array([layout.index[name] for name in names], np.int64)
        own = [min(requests.get(name, 0), AMOUNT_LIMIT) for name in names]
        self._own = np.array(own, np.int64)[:, None]
        self._capacity = layout.allocatable[self._rows]

    def scores(self, rows: Rows) -> IntVector:
        used = take(self._workspace.requested, self._rows, rows) + self._own
        return score_balanced(used, self._capacity[:, rows])


class BalancedAllocation(Feature):
    """Nodes whose resources are used evenly are better; silent about pods that ask for none of them."""

    name = "NodeResourcesBalancedAllocation"

    def request_of(self, pod: Pod) -> Hashable | None:
        args = self.args or BalancedArgs()
        return pod.requests if any(pod.requests.get(name, 0) for name, _ in args.resources) else None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return BalancedEvaluator(self.workspace, request, self.args or BalancedArgs())


class FitPlusEvaluator(Evaluator):
    """Score of one pod class: each resource has its own strategy."""

    scope = Scope.NODE

    def __init__(self, workspace: Workspace, pod: Pod, args: FitPlusArgs) -> None:
        layout = workspace.layout
        self._workspace = workspace
        names = [name for name in args.resources if pod.requests.get(name, 0) > 0]
        # A resource that no node offers scores 0 everywhere; it still counts with its weight.
        self._names = tuple(name for name in names if name in layout.index)
        self._rows = np.array([layout.index[name] for name in self._names], np.int64)
        own = [min(pod.scored_requests.get(name, 0), AMOUNT_LIMIT) for name in self._names]
        self._own = np.array(own, np.int64)[:, None]
        self._capacity = layout.allocatable[self._rows]
        self._settings = [args.resources[name] for name in self._names]
        self._weight = sum(args.resources[name][1] for name in names)

    def scores(self, rows: Rows) -> IntVector:
        used = take(self._workspace.scored, self._rows, rows) + self._own
        capacity = self._capacity[:, rows]
        if self._weight == 0:
            return np.full(self._workspace.requested[0, rows].shape, 100, np.int64)
        total = np.zeros(used.shape[1], np.int64)
        for one, whole, (strategy, weight) in zip(used, capacity, self._settings, strict=True):
            if strategy == ScoringStrategy.LEAST_ALLOCATED:
                total += weight * least_percent(one, whole)
            elif strategy == ScoringStrategy.MOST_ALLOCATED:
                total += weight * most_percent(one, whole)
        return total // self._weight


class FitPlus(Feature):
    """Koordinator's NodeResourcesFitPlus: a strategy and a weight for each resource that the pod asks for."""

    name = "NodeResourcesFitPlus"

    def request_of(self, pod: Pod) -> Hashable:
        return (pod.requests, pod.scored_requests)

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

    def scores(self, rows: Rows) -> IntVector:
        return self._scores[rows]


class ScarceAvoidance(Feature):
    """Koordinator's ScarceResourceAvoidance: keep nodes with scarce resources for pods that ask for them."""

    name = "ScarceResourceAvoidance"

    def request_of(self, pod: Pod) -> Hashable:
        return frozenset(name for name, amount in pod.requests.items() if amount > 0)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ScarceEvaluator(self.workspace, request, self.args or ScarceArgs())
