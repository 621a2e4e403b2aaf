"""InterPodAffinity: near some pods, far from others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import NEIGHBOURS, ROOM
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.cluster import Namespace
from koordcore.model.plugin_args import InterPodArgs
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plugins.neighbours import (
    Neighbours,
    affine,
    follow_nodes,
    forget_weights,
    namespace_labels,
    nominated_with_terms,
    pod_groups,
    with_terms,
)
from koordcore.scoring.interpod import (
    REASON_AFFINITY,
    REASON_ANTI_AFFINITY,
    REASON_EXISTING_ANTI_AFFINITY,
    InterPodFilter,
    InterPodRequest,
    InterPodScore,
    Namespaces,
    interpod_request,
    normalise_interpod,
)
from koordcore.snapshot.following import ClusterChanges, once


class InterPodEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.CLUSTER
    normalises = True

    def __init__(self, workspace: Workspace, request: InterPodRequest, args: InterPodArgs) -> None:
        self._workspace = workspace
        self._request = request
        self._gone = frozenset[PodKey]()
        self._args = args

    @cached_property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self._workspace, self._gone)

    @cached_property
    def _parts(self) -> tuple[InterPodFilter, InterPodScore]:
        # Made at the first question: only then is it known who counts as gone for the class.
        groups = self._neighbours.now()
        namespaces = Namespaces(once(self._workspace.snapshot, namespace_labels))
        return (
            InterPodFilter(groups, namespaces, self._request),
            InterPodScore(groups, namespaces, self._request, self._args),
        )

    @property
    def _filter(self) -> InterPodFilter:
        self._neighbours.now()
        return self._parts[0]

    def fits(self, view: NodeView) -> BoolVector | None:
        self._gone = view.gone
        judge = self._filter
        return judge.fits()[view.rows] if judge.active else None

    def needs_company(self) -> bool:
        return bool(self._request.affinity.required)

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        self._gone = view.gone
        apart = self._filter.apart()
        return None if apart is None else np.where(apart[view.rows], 1, most)

    def _refused(self) -> tuple[BoolVector, BoolVector, BoolVector]:
        lonely, crowded, unwanted = self._filter.judge()
        crowded = crowded & ~lonely
        return lonely, crowded, unwanted & ~lonely & ~crowded

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        self._gone = view.gone
        lonely, crowded, unwanted = self._refused()
        return [
            (REASON_AFFINITY, lonely[view.rows]),
            (REASON_ANTI_AFFINITY, crowded[view.rows]),
            (REASON_EXISTING_ANTI_AFFINITY, unwanted[view.rows]),
        ]

    def unresolvable(self, view: NodeView) -> BoolVector:
        self._gone = view.gone
        return self._refused()[0][view.rows]

    def scores(self, view: NodeView) -> IntVector | None:
        self._gone = view.gone
        self._neighbours.now()
        raw = self._parts[1].raw()
        return None if raw is None else raw[view.rows]

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        if not feasible.any():
            return np.zeros_like(raw)
        return normalise_interpod(raw, feasible)


class InterPodAffinity(Plugin):
    """Terms of the pod towards those that run, and theirs towards it."""

    name = "InterPodAffinity"
    needs = frozenset(("affinity",))
    keeps_rows = False
    looks_at = frozenset(("labels",))
    helped_by = ROOM | NEIGHBOURS
    reads = frozenset((Namespace,))
    arguments = InterPodArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        # How long the journal was when nobody had terms who runs or is nominated.
        self._quiet = -1

    def follow(self, changes: ClusterChanges) -> bool:
        self._quiet = -1
        follow_nodes(self.workspace, changes)
        if Namespace in changes.records:
            forget_weights(self.workspace)
        return not self.concerned(changes)

    def rereads(self, changes: ClusterChanges) -> bool:
        return self.workspace.relabelled

    def request_of(self, pod: Pod) -> Hashable | None:
        if pod.affinity is None and self._quiet == len(self.workspace.journal):
            return None
        waiting = once(self.workspace.snapshot, nominated_with_terms)
        asked = bool(waiting) or with_terms(pod)
        if not asked and not affine(self.workspace):
            self._quiet = len(self.workspace.journal)
            return None
        groups = pod_groups(self.workspace)
        for one in waiting:
            groups.group_of(one)  # what its terms look at is known before it counts as running
        if not asked and not groups.concern_now(pod.labels):
            return None
        return interpod_request(pod, groups.term_keys)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return InterPodEvaluator(self.workspace, request, self.args or InterPodArgs())

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        names, groups = (
            Namespaces(once(self.workspace.snapshot, namespace_labels)),
            pod_groups(self.workspace),
        )
        refused: dict[int, tuple[tuple[int, ...], ...]] = dict.fromkeys(rows, ())
        for pair in combinations(range(len(pods)), 2):
            one, other = (pods[kind] for kind in pair)
            counts = tuple(int(kind in pair) for kind in range(len(pods)))
            keys = {*names.apart_from(one, other), *names.apart_from(other, one)}
            there = [groups.domains(key).present for key in sorted(keys)]
            for row in rows:
                if any(present[row] for present in there):
                    refused[row] = (*refused[row], counts)
        return {row: every for row, every in refused.items() if every}
