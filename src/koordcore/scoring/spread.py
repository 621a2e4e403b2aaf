"""PodTopologySpread: how evenly pods of one kind lie over the values of a node label.

The rule is that of Kubernetes 1.35 (``plugins/podtopologyspread``). Hard constraints refuse nodes, soft ones
score them. All counts are kept per domain and grow with the pods that are placed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout, IntVector
from koordcore._record import record
from koordcore.model.affinity import (
    NodeAffinity,
    NodeInclusionPolicy,
    Toleration,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from koordcore.model.nodes import HOSTNAME_LABEL
from koordcore.model.pods import Pod
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator
from koordcore.scoring.groups import PodGroup, PodGroups, TopologyTally, Weights
from koordcore.scoring.labels import fit_labels, fit_selector, fit_taints

REASON_SKEW = "node(s) didn't match pod topology spread constraints"
REASON_MISSING_LABEL = f"{REASON_SKEW} (missing required label)"


@record
class SpreadRule:
    """A constraint with its selector completed for one kind of pods.

    Parameters
    ----------
    selector
        With the pod's own values of ``matchLabelKeys``; ``None`` matches nothing.
    itself
        The pod matches its own selector.
    """

    max_skew: int
    key: str
    hard: bool
    selector: LabelSelector | None
    itself: bool
    min_domains: int
    affinity_policy: NodeInclusionPolicy
    taints_policy: NodeInclusionPolicy


@record(cache_hash=True)
class SpreadRequest:
    """What a pod wants of spreading; pods with equal requests are alike.

    Parameters
    ----------
    namespace
        Whose pods are counted.
    rules
        Constraints in the pod's order.
    node_selector, node_affinity, tolerations
        What may take nodes out of the count.
    require_all
        Only nodes with all topology keys count; not so for the scheduler's built-in constraints, for which
        nodes without a key are one domain more, that of the empty value.
    """

    namespace: str
    rules: tuple[SpreadRule, ...]
    node_selector: tuple[tuple[str, str], ...]
    node_affinity: NodeAffinity | None
    tolerations: tuple[Toleration, ...]
    require_all: bool = True

    def of(self, *, hard: bool) -> tuple[SpreadRule, ...]:
        """Give the hard or the soft constraints."""
        return tuple(rule for rule in self.rules if rule.hard is hard)


def _completed(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> LabelSelector | None:
    selector = constraint.selector
    added = tuple(
        Requirement(key, SelectorOperator.IN, (labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    if selector is None or not added:
        return selector
    return attrs.evolve(selector, requirements=(*selector.requirements, *added))


def spread_request(
    pod: Pod, constraints: Sequence[TopologySpreadConstraint] | None = None, *, require_all: bool = True
) -> SpreadRequest | None:
    """Read what a pod wants of spreading; ``None`` where it has no constraint.

    Parameters
    ----------
    pod
        The pod to place.
    constraints
        In place of the pod's own: the scheduler's default constraints, selectors included.
    require_all
        See :class:`SpreadRequest`.
    """
    given = pod.spread_constraints if constraints is None else constraints
    if not given:
        return None
    rules = []
    for one in given:
        selector = _completed(one, pod.labels)
        rules.append(
            SpreadRule(
                max_skew=one.max_skew,
                key=one.topology_key,
                hard=one.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE,
                selector=selector,
                itself=selector is not None and selector.matches(pod.labels),
                min_domains=one.min_domains or 1,
                affinity_policy=one.node_affinity_policy,
                taints_policy=one.node_taints_policy,
            )
        )
    taints = any(rule.taints_policy is NodeInclusionPolicy.HONOR for rule in rules)
    return SpreadRequest(
        namespace=pod.namespace,
        rules=tuple(rules),
        node_selector=tuple(sorted(pod.node_selector.items())),
        node_affinity=pod.affinity.node if pod.affinity else None,
        tolerations=pod.tolerations if taints else (),
        require_all=require_all,
    )


def _countable(layout: ClusterLayout, request: SpreadRequest, rule: SpreadRule) -> BoolVector:
    """Tell which nodes the constraint's policies leave in the count."""
    mask = np.ones(len(layout.names), np.bool_)
    if rule.affinity_policy is NodeInclusionPolicy.HONOR:
        if request.node_selector:
            mask &= fit_labels(layout, request.node_selector)
        affinity = request.node_affinity
        if affinity is not None and affinity.required is not None:
            mask &= fit_selector(layout, affinity.required)
    if rule.taints_policy is NodeInclusionPolicy.HONOR:
        mask &= fit_taints(layout, request.tolerations)
    return mask


def _with_all_keys(groups: PodGroups, rules: Sequence[SpreadRule]) -> BoolVector:
    mask = np.ones(len(groups.layout.names), np.bool_)
    for rule in rules:
        mask &= groups.domains(rule.key).present
    return mask


def _tally(
    groups: PodGroups,
    namespace: str,
    rule: SpreadRule,
    eligible: BoolVector | None,
    *,
    unlabelled: bool = False,
) -> TopologyTally:
    selector = rule.selector
    counted: Weights = ((rule.key, 1),)

    def weigh(group: PodGroup) -> Weights:
        if selector is None or group.terminating or group.namespace != namespace:
            return ()
        return counted if selector.matches(group.labels) else ()

    among = groups.weighed((namespace, rule.key, selector), weigh, lambda: groups.matching([selector]))
    return TopologyTally(groups, weigh, among, eligible, unlabelled=unlabelled)


class _HardRule:
    """One DoNotSchedule constraint with its counts."""

    def __init__(
        self, groups: PodGroups, request: SpreadRequest, rule: SpreadRule, with_keys: BoolVector
    ) -> None:
        eligible = with_keys & _countable(groups.layout, request, rule)
        self.rule = rule
        self.domains = groups.domains(rule.key)
        self.tally = _tally(groups, request.namespace, rule, eligible)
        existing = np.zeros(self.domains.number, np.bool_)
        existing[self.domains.ids[eligible]] = True
        self._existing = existing if not existing.all() else None
        self._number = int(existing.sum())

    def allowed(self) -> BoolVector:
        """Tell which nodes stay within the skew, as far as they have the label."""
        self.tally.update()
        sums = self.tally.sums(self.rule.key)
        if not self._number:
            return np.ones(len(self.domains.ids), np.bool_)
        least = 0
        if self._number >= self.rule.min_domains:
            counts = sums[:-1] if self._existing is None else sums[:-1][self._existing]
            least = int(counts.min())
        within = sums <= self.rule.max_skew + least - self.rule.itself
        allowed: BoolVector = within[self.domains.ids]
        return allowed


class SpreadFilter:
    """DoNotSchedule constraints of one kind of pods over all nodes."""

    def __init__(self, groups: PodGroups, request: SpreadRequest) -> None:
        rules = request.of(hard=True)
        with_keys = _with_all_keys(groups, rules)
        self._number = len(groups.layout.names)
        self._rules = [_HardRule(groups, request, rule, with_keys) for rule in rules]

    def judge(self) -> tuple[BoolVector, BoolVector, BoolVector]:
        """Judge all nodes: ``(fits, lacks a label, exceeds the skew)``.

        Constraints are looked at in their order and the first that fails speaks.
        """
        fits = np.ones(self._number, np.bool_)
        missing = np.zeros(self._number, np.bool_)
        skewed = np.zeros(self._number, np.bool_)
        for one in self._rules:
            missing |= fits & ~one.domains.present
            fits &= one.domains.present
            allowed = one.allowed()
            skewed |= fits & ~allowed
            fits &= allowed
        return fits, missing, skewed

    def fits(self) -> BoolVector:
        """Tell which nodes satisfy every constraint."""
        fits = np.ones(self._number, np.bool_)
        for one in self._rules:
            fits &= one.domains.present
            fits &= one.allowed()
        return fits


class SpreadScore:
    """ScheduleAnyway constraints of one kind of pods over all nodes."""

    def __init__(self, groups: PodGroups, request: SpreadRequest) -> None:
        self._rules = request.of(hard=False)
        self._groups = groups
        number = len(groups.layout.names)
        everywhere = np.ones(number, np.bool_)
        all_keys = request.require_all
        self._counted = _with_all_keys(groups, self._rules) if all_keys else everywhere
        self._tallies = []
        for rule in self._rules:
            if rule.key == HOSTNAME_LABEL:
                # Upstream counts the pods of the very node here, whatever the policies say.
                self._tallies.append(_tally(groups, request.namespace, rule, None))
            else:
                eligible = self._counted & _countable(groups.layout, request, rule)
                self._tallies.append(
                    _tally(groups, request.namespace, rule, eligible, unlabelled=not all_keys)
                )

    def scored(self, feasible: BoolVector) -> BoolVector:
        """Tell which of the feasible nodes are scored; the others get 0."""
        return feasible & self._counted

    def raw(self, feasible: BoolVector) -> IntVector:
        """Score all nodes before normalisation: the higher, the more such pods are near.

        Parameters
        ----------
        feasible
            The nodes among which the pod's place is chosen; domains are weighed by their number among them.
        """
        scored = self.scored(feasible)
        number = int(np.count_nonzero(scored))
        total = np.zeros(len(scored), np.float64)
        for rule, tally in zip(self._rules, self._tallies, strict=True):
            tally.update()
            domains, sums = self._groups.domains(rule.key), tally.sums(rule.key)
            if rule.key == HOSTNAME_LABEL:
                size = number
            else:
                met = np.bincount(domains.ids[scored] + 1, minlength=domains.number + 1) > 0
                size = int(np.count_nonzero(met))
                if domains.empty >= 0:  # nodes without the label are of the same domain
                    size -= int(met[0] and met[domains.empty + 1])
                    sums = sums.copy()
                    sums[domains.empty] += sums[-1]
            share = sums * math.log(size + 2) + float(rule.max_skew - 1)
            share[-1] = 0.0  # a node without the label is not judged by this constraint
            total += share[domains.ids]
        whole = np.trunc(total)
        raw = (whole + (total - whole >= 0.5)).astype(np.int64)
        raw[~scored] = 0
        return raw

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        """Map raw scores to 0..100, the most even place highest; ignored nodes get 0."""
        scored = self.scored(feasible)
        if not scored.any():
            return np.zeros_like(raw)
        values = raw[scored]
        low, high = int(values.min()), int(values.max())
        result = np.full_like(raw, 100) if high == 0 else 100 * (high + low - raw) // high
        return np.where(scored, result, 0)
