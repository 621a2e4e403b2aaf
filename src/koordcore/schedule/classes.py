"""The features of a policy, and the classes of pods that want the same of all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from koordcore._workspace import Workspace
from koordcore.errors import ModelError
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.schedule.feature import Feature, Refusal, Scope
from koordcore.schedule.features import FEATURES, feature_type
from koordcore.schedule.features.resources import ResourceFit
from koordcore.schedule.ground import Ground, Part
from koordcore.schedule.pod_class import PodClass
from koordcore.schedule.sampling import NodeSample
from koordcore.schedule.state_scores import StateGroups
from koordcore.schedule.unmodelled import refuse_unmodelled

__all__ = ["FeatureSet", "RequestKey"]

RequestKey: TypeAlias = tuple[Hashable, ...]


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
        # The feature whose requests are the amounts that a pod asks for.
        numbers = [number for number, one in enumerate(self.features) if isinstance(one, ResourceFit)]
        self._fit = numbers[0] if numbers else None
        self._classes: dict[RequestKey, PodClass] = {}
        self._static: dict[tuple[int, Hashable], Part] = {}
        self._grounds: dict[tuple[int, ...], Ground] = {}
        self._groups = StateGroups(workspace)
        # A class keeps some 40 bytes a node and feature; the oldest go when that becomes too much.
        self._most = max(16, 2**28 // (512 * max(1, len(workspace.layout.names))))

    def key_of(self, pod: Pod) -> RequestKey | Refusal:
        """Give what tells the classes of pods apart: what the pod wants of each feature."""
        unmodelled = refuse_unmodelled(pod)
        if unmodelled is not None:
            return unmodelled
        requests: list[Hashable] = []
        for feature in self.features:
            request = feature.request_of(pod)
            if type(request) is Refusal:
                return request
            requests.append(request)
        return tuple(requests)

    def refusals(self, pod: Pod) -> Iterator[tuple[str, Refusal]]:
        """Give every refusal that needs no node, with the feature's name, in the order of the policy.

        What no feature models comes first, without a name.
        """
        unmodelled = refuse_unmodelled(pod)
        if unmodelled is not None:
            yield "", unmodelled
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
                self._classes.pop(next(iter(self._classes))).retire()
            found = self._classes[key] = self._make(pod, key)
        return found

    def _make(self, pod: Pod, key: RequestKey) -> PodClass:
        parts = []
        for number, request in enumerate(key):
            if request is None:
                continue
            # What does not depend on the pods that are bound is shared by all classes that ask the same.
            part = self._static.get((number, request))
            if part is None:
                feature = self.features[number]
                part = Part(feature, self.settings[number], feature.evaluator(pod, request))
                if part.evaluator.scope is Scope.STATIC:
                    self._static[number, request] = part
            parts.append(part)
        for part in [one for one in parts if "lend_to" in one.evaluator.answers]:
            others = [one for one in parts if one is not part and one.evaluator.scope is not Scope.STATIC]
            here = [one for one in others if one.evaluator.scope is Scope.NODE and one.setting.filters]
            part.evaluator.lend_to([one.evaluator for one in others], [one.evaluator for one in here])
        static = [part for part in parts if part.evaluator.scope is Scope.STATIC]
        signature = tuple(map(id, static))
        ground = self._grounds.get(signature)
        if ground is None:
            ground = self._grounds[signature] = Ground.of(tuple(static), len(self.workspace.layout.names))
        change = None if self._fit is None else self.workspace.change_of(*cast("Any", key[self._fit]))
        return PodClass(self.workspace, pod, parts, ground, change, self._groups, self._remarking)

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
