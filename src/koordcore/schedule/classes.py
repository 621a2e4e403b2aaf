"""Pod classes: what is known of all nodes for all pods that want the same.

A class keeps, for every node, whether its pods fit and the weighted sum of its node-local scores. When a pod
is bound somewhere, only that node's entry grows stale, and it is refreshed when the class is asked for next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore._workspace import Workspace
from koordcore.errors import ModelError
from koordcore.model.decisions import Bound, NearMiss, Rejection, Shortfall, Unschedulable
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import FeatureSetting, Policy
from koordcore.schedule.feature import ALL_ROWS, Evaluator, Feature, Refusal, Scope
from koordcore.schedule.features import FEATURES, feature_type
from koordcore.schedule.sampling import NodeSample
from koordcore.schedule.states import AmountStates

__all__ = ["FeatureSet", "PodClass", "RequestKey"]

RequestKey: TypeAlias = tuple[Hashable, ...]

_UNKNOWN = -2
_REFRESH_SHARE = 4
"""Refreshing more than a quarter of the nodes one by one costs more than asking for all of them."""


@attrs.frozen(eq=False)
class _Part:
    """One feature's evaluator within a class."""

    feature: Feature
    setting: FeatureSetting
    evaluator: Evaluator


@attrs.frozen(eq=False)
class _Ground:
    """What the static features of a class say together.

    Parameters
    ----------
    mask, score
        ``(N,)``: nodes that they allow, and their weighted score where it needs no normalisation.
    flat
        They allow every node and score all of them the same; then this is that score.
    uneven
        The ones whose score has to be normalised over the nodes that are feasible at the time.
    """

    mask: BoolVector
    score: IntVector
    uneven: tuple[_Part, ...]
    flat: int | None

    @classmethod
    def of(cls, parts: tuple[_Part, ...], number: int) -> _Ground:
        mask = np.ones(number, bool)
        for part in parts:
            allowed = part.evaluator.fits(ALL_ROWS) if part.setting.filters else None
            if allowed is not None:
                mask &= allowed
        score = np.zeros(number, np.int64)
        uneven = []
        for part in parts:
            raw = part.evaluator.scores(ALL_ROWS) if part.setting.scores else None
            if raw is None:
                continue
            # A raw score that is the same on every node that can ever be feasible normalises to a constant.
            if part.evaluator.normalises and mask.any() and np.ptp(raw[mask]):
                uneven.append(part)
            else:
                score += part.setting.weight * part.evaluator.normalise(raw, mask)
        flat = int(score[0]) if len(score) and mask.all() and not np.ptp(score) else None
        return cls(mask, score, tuple(uneven), flat)


class FeatureSet:
    """The features of a policy over one workspace, and the pod classes seen so far.

    Raises
    ------
    ModelError
        When the policy names a feature that does not exist.
    """

    def __init__(self, workspace: Workspace, policy: Policy) -> None:
        self.workspace = workspace
        self.sample = NodeSample(len(workspace.layout.names), policy.percentage_of_nodes)
        self.settings = policy.features
        self.features: list[Feature] = []
        for setting in policy.features:
            if setting.name not in FEATURES:
                raise ModelError(f"policy {policy.name}: no feature {setting.name}")
            feature = feature_type(setting.name)(workspace, setting.args)
            feature.scored = setting.scores
            self.features.append(feature)
        self._placing = [one for one in self.features if type(one).placed is not Feature.placed]
        self._preferring = [one for one in self.features if one.prefers]
        self._remarking = [one for one in self.features if type(one).remarks is not Feature.remarks]
        self._removing = [one for one in self.features if type(one).removed is not Feature.removed]
        self._classes: dict[RequestKey, PodClass] = {}
        self._static: dict[tuple[int, Hashable], Evaluator] = {}
        self._grounds: dict[tuple[int, ...], _Ground] = {}
        # A class keeps some 40 bytes a node and feature; the oldest go when that becomes too much.
        self._most = max(16, 2**28 // (512 * max(1, len(workspace.layout.names))))

    def key_of(self, pod: Pod) -> RequestKey | Refusal:
        """Give what tells the classes of pods apart: what the pod wants of each feature."""
        requests: list[Hashable] = []
        for feature in self.features:
            request = feature.request_of(pod)
            if isinstance(request, Refusal):
                return request
            requests.append(request)
        return tuple(requests)

    def refusals(self, pod: Pod) -> Iterator[tuple[str, Refusal]]:
        """Give every refusal that needs no node, with the feature's name, in the order of the policy."""
        for feature, setting in zip(self.features, self.settings, strict=True):
            request = feature.request_of(pod)
            if isinstance(request, Refusal):
                yield feature.name, request
            elif request is not None and setting.filters:
                refusal = feature.evaluator(pod, request).refuse()
                if refusal is not None:
                    yield feature.name, refusal

    def class_of(self, pod: Pod) -> PodClass | Refusal:
        """Give the class of a pod, or why no node needs to be asked."""
        key = self.key_of(pod)
        if isinstance(key, Refusal):
            return key
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) >= self._most:
                del self._classes[next(iter(self._classes))]
            found = self._classes[key] = self._make(pod, key)
        return found

    def _make(self, pod: Pod, key: RequestKey) -> PodClass:
        parts = []
        for number, (feature, request) in enumerate(zip(self.features, key, strict=True)):
            if request is None:
                continue
            # What does not depend on the pods that are bound is shared by all classes that ask the same.
            known = self._static.get((number, request))
            evaluator = known or feature.evaluator(pod, request)
            if known is None and evaluator.scope is Scope.STATIC:
                self._static[number, request] = evaluator
            parts.append(_Part(feature, self.settings[number], evaluator))
        for part in parts:
            if not _says(part, "lend_to"):
                continue
            others = [one for one in parts if one is not part and one.evaluator.scope is not Scope.STATIC]
            here = [one for one in others if one.evaluator.scope is Scope.NODE and one.setting.filters]
            part.evaluator.lend_to([one.evaluator for one in others], [one.evaluator for one in here])
        static = tuple(part for part in parts if part.evaluator.scope is Scope.STATIC)
        signature = tuple(id(part.evaluator) for part in static)
        ground = self._grounds.get(signature)
        if ground is None:
            ground = self._grounds[signature] = _Ground.of(static, len(self.workspace.layout.names))
        return PodClass(self.workspace, pod, parts, ground, self._remarking)

    def preferred(self, pod: Pod) -> Sequence[int]:
        """Give rows of nodes that some feature wants tried first."""
        if not self._preferring:
            return ()
        row_of = self.workspace.layout.row_of
        names = [name for feature in self._preferring for name in feature.preferred(pod)]
        return [row_of[name] for name in names if name in row_of]

    def ask_first(self, feature: Feature) -> None:
        """Ask a feature for nodes to try first that did not know of any when it was made."""
        self._preferring.append(feature)

    def placed(self, pod: Pod, row: int) -> None:
        """Tell every feature that keeps a ledger of a bound pod."""
        for feature in self._placing:
            feature.placed(pod, row)

    def removed(self, pod: Pod, row: int) -> None:
        """Tell every feature that keeps a ledger of a pod taken off its node."""
        for feature in self._removing:
            feature.removed(pod, row)


class PodClass:
    """Answers for one class of equal pods over all nodes, kept up to date.

    Attributes
    ----------
    pod
        Some pod of the class.
    parts
        Features that have something to say about these pods, in filter order.
    """

    def __init__(
        self,
        workspace: Workspace,
        pod: Pod,
        parts: list[_Part],
        ground: _Ground,
        remarking: Sequence[Feature] = (),
    ) -> None:
        self._workspace = workspace
        self._remarking = remarking
        self.pod = pod
        self.parts = parts
        self._ground = ground
        self._amount_filters: list[_Part] = []
        self._other_filters: list[_Part] = []
        self._cluster_filters: list[_Part] = []
        self._amount_scorers: list[_Part] = []
        self._other_scorers: list[_Part] = []
        self._whole_scorers: list[_Part] = []
        self._refusing: list[_Part] = []
        for part in parts:
            evaluator, setting = part.evaluator, part.setting
            scope = evaluator.scope
            # Nodes with the same amounts get the same answers.
            alike = evaluator.amounts_only and evaluator.lending is None
            if setting.filters:
                if _says(part, "refuse"):
                    self._refusing.append(part)
                if scope is Scope.NODE:
                    (self._amount_filters if alike else self._other_filters).append(part)
                elif scope is Scope.CLUSTER:
                    self._cluster_filters.append(part)
            if setting.scores and scope is not Scope.STATIC:
                if scope is Scope.CLUSTER or evaluator.normalises:
                    self._whole_scorers.append(part)
                else:
                    (self._amount_scorers if alike else self._other_scorers).append(part)
        self._whole_scorers += ground.uneven
        self._allocating = [part for part in parts if _says(part, "allocate")]
        self._lending = [part for part in parts if _says(part, "room_at")]
        self._states = workspace.once(AmountStates)
        self._known = np.full(0, _UNKNOWN)
        self._feasible = np.empty_like(ground.mask)
        self._score = np.empty_like(ground.score)
        self._read = len(workspace.touched)
        self._refresh(ALL_ROWS)

    def _refresh(self, rows: Rows) -> None:
        ground = self._ground
        feasible: BoolVector | np.bool_ = np.True_ if ground.flat is not None else ground.mask[rows]
        enough, score = self._by_state(rows)
        if enough is not None:
            feasible = enough if feasible is np.True_ else feasible & enough
        score += ground.flat if ground.flat is not None else ground.score[rows]
        for part in self._other_filters:
            mask = part.evaluator.fits(rows)
            if mask is not None:
                feasible = feasible & mask
        for part in self._other_scorers:
            more = part.evaluator.scores(rows)
            if more is not None:
                score += part.setting.weight * more
        # Scores are never negative, so -1 keeps a node that does not fit behind all others.
        if feasible is not np.True_:
            score[~feasible] = -1
        self._feasible[rows] = feasible
        if rows is ALL_ROWS:
            self._score = score
        else:
            self._score[rows] = score

    def _by_state(self, rows: Rows) -> tuple[BoolVector | None, IntVector]:
        """Give what :meth:`_by_amounts` gives, looked up for nodes in a state that was met before."""
        numbers = self._states.numbers() if rows is not ALL_ROWS else None
        if numbers is None:
            return self._by_amounts(rows)
        known = self._known
        if len(known) < self._states.count:
            self._known = known = np.concatenate([known, np.full(2 * self._states.count, _UNKNOWN)])
        here = numbers[rows]
        found = known[here]
        if found.min() == _UNKNOWN:
            missing = np.flatnonzero(found == _UNKNOWN)
            enough, score = self._by_amounts(rows if isinstance(rows, slice) else rows[missing])
            if enough is not None:
                score[~enough] = -1
            found[missing] = known[here[missing]] = score
        return found >= 0, found

    def _by_amounts(self, rows: Rows) -> tuple[BoolVector | None, IntVector]:
        """Tell where the amounts suffice, ``None`` for everywhere, with the weighted score by amounts."""
        score: IntVector | None = None
        for part in self._amount_scorers:
            one = part.evaluator.scores(rows)
            if one is not None:
                one = one if part.setting.weight == 1 else part.setting.weight * one
                score = one if score is None else score + one
        enough: BoolVector | None = None
        for part in self._amount_filters:
            mask = part.evaluator.fits(rows)
            if mask is not None:
                enough = mask if enough is None else enough & mask
        return enough, np.zeros_like(self._score[rows]) if score is None else score

    def update(self) -> None:
        """Bring the nodes that changed since the last call up to date."""
        touched = self._workspace.touched
        end = len(touched)
        if self._read == end:
            return
        stale = touched[self._read : end]
        self._read = end
        if len(stale) * _REFRESH_SHARE > len(self._score):
            self._refresh(ALL_ROWS)
        elif len(stale) == 1:
            self._refresh(slice(stale[0], stale[0] + 1))
        else:
            self._refresh(np.frombuffer(stale, np.int64))

    def refuse(self) -> tuple[Feature, Refusal] | None:
        """Give the first feature that refuses the pod whatever the node."""
        for part in self._refusing:
            refusal = part.evaluator.refuse()
            if refusal is not None:
                return part.feature, refusal
        return None

    def feasible(self) -> BoolVector:
        """Tell which nodes can take such a pod now: ``(N,)``."""
        self.update()
        mask = self._feasible
        for part in self._cluster_filters:
            one = part.evaluator.fits(ALL_ROWS)
            if one is not None:
                mask = mask & one
        return mask

    def slots(self, most: int) -> IntVector:
        """Tell how many pods of the class each node takes one after another, at most: ``(N,)``."""
        number = np.where(self.feasible(), most, 0)
        for part in self.parts:
            one = part.evaluator.slots(most) if part.setting.filters else None
            if one is not None:
                number = np.minimum(number, one)
        return number

    @property
    def counts_beyond_amounts(self) -> bool:
        """A filter other than that of amounts looks at what runs on a node or in the cluster."""
        local = self._amount_filters + self._other_filters
        return bool(self._cluster_filters) or any(part.feature.name != "NodeResourcesFit" for part in local)

    def mendable(self) -> BoolVector:
        """Tell on which nodes the pods fit, or could fit once others have left: ``(N,)``."""
        open_rows = self._ground.mask.copy()
        for part in self.parts:
            hopeless = part.evaluator.unresolvable(ALL_ROWS) if part.setting.filters else None
            if hopeless is None:
                continue
            fits = part.evaluator.fits(ALL_ROWS)
            open_rows &= ~hopeless if fits is None else ~hopeless | fits
        return open_rows

    def totals(self, feasible: BoolVector) -> IntVector:
        """Give the weighted sum of all scores, -1 where the pod does not fit: ``(N,)``.

        Parameters
        ----------
        feasible
            What :meth:`feasible` gave, or a part of it.
        """
        total = self._score
        if self._whole_scorers:
            total = total.copy()
            for part in self._whole_scorers:
                raw = part.evaluator.scores(ALL_ROWS)
                if raw is not None:
                    total += part.setting.weight * part.evaluator.normalise(raw, feasible)
        if feasible is not self._feasible:
            return np.where(feasible, total, -1)
        if total is not self._score:
            total[~feasible] = -1
        return total

    def score_table(self, feasible: BoolVector) -> dict[str, IntVector]:
        """Give each feature's score after normalisation, before its weight, for all nodes."""
        table = {}
        for part in self.parts:
            raw = part.evaluator.scores(ALL_ROWS) if part.setting.scores else None
            if raw is not None:
                table[part.feature.name] = part.evaluator.normalise(raw, feasible)
        return table

    def failure(self, pod: Pod) -> Unschedulable:
        """Count why every node refused, and find the one that came closest."""
        number = len(self._workspace.layout.names)
        alive = np.ones(number, bool)
        rejections: list[Rejection] = []
        latest: tuple[_Part, BoolVector] | None = None
        for part in self.parts:
            mask = part.evaluator.fits(ALL_ROWS) if part.setting.filters else None
            if mask is None or mask[alive].all():
                continue
            refused = alive & ~mask
            hopeless = part.evaluator.unresolvable(ALL_ROWS)
            for reason, holds in part.evaluator.reasons(ALL_ROWS):
                here = holds & refused
                count = int(np.count_nonzero(here))
                if count:
                    resolvable = hopeless is None or bool((here & ~hopeless).any())
                    rejections.append(Rejection(part.feature.name, reason, count, resolvable))
            latest = (part, refused)
            alive &= mask
        merged = tuple(sorted(rejections, key=lambda one: (one.reason, one.feature)))
        return Unschedulable(pod=pod.key, nodes=number, rejections=merged, nearest=self._nearest(latest))

    def _nearest(self, latest: tuple[_Part, BoolVector] | None) -> NearMiss | None:
        """Of the nodes that got furthest, the one that lacks the least share of anything."""
        if latest is None:
            return None
        part, refused = latest
        best: tuple[tuple[int, int], int, tuple[Shortfall, ...]] | None = None
        for row in np.flatnonzero(refused)[:_LOOKED_AT].tolist():
            shortfalls = part.evaluator.shortfalls(row)
            if not shortfalls:
                continue
            lacking = sum(one.lacking * 1000 // max(1, one.requested) for one in shortfalls)
            rank = (len(shortfalls), lacking)
            if best is None or rank < best[0]:
                best = (rank, row, shortfalls)
        if best is None:
            return None
        name = self._workspace.layout.names[best[1]]
        remarks = (text for one in self._remarking for text in one.remarks(self.pod, best[1]))
        return NearMiss(name, part.feature.name, best[2], tuple(remarks))

    def decide(self, pod: Pod, row: int, score: int, number: int) -> Bound | Shortfall:
        """Take everything that the pod gets on the node, or say what could not be taken."""
        annotations: dict[str, str] = {}
        labels: dict[str, str] = {}
        notes: tuple[str, ...] = ()
        reservation = ""
        over: tuple[PodKey, ...] = ()
        room = None
        if self._lending:
            rooms = (part.evaluator.room_at(row) for part in self._lending)
            room = next((one for one in rooms if one is not None), None)
        for part in self._allocating:
            if room is None:
                holding = part.evaluator.allocate(pod, row)
            else:
                holding = part.evaluator.allocate_from(pod, row, room)
            if isinstance(holding, Shortfall):
                return holding
            if holding is not None:
                annotations.update(holding.annotations)
                labels.update(holding.labels)
                notes += holding.notes
                reservation = holding.reservation or reservation
                over += holding.over
        return Bound(
            pod=pod.key,
            node=self._workspace.layout.names[row],
            score=score,
            feasible=number,
            annotations=annotations,
            labels=labels,
            reservation=reservation,
            notes=notes,
            over=over,
        )


def _says(part: _Part, question: str) -> bool:
    """Tell whether an evaluator answers a question itself instead of by the default."""
    return getattr(type(part.evaluator), question) is not getattr(Evaluator, question)


_LOOKED_AT = 256
"""How many refused nodes are searched for the nearest miss; more would cost more than the decision."""
