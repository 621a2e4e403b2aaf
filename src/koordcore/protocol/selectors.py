"""Selectors, affinity, tolerations and spread out of a pod's specification."""

from __future__ import annotations

from typing import Final

from koordcore.errors import ManifestError, ModelError
from koordcore.model.affinity import (
    Affinity,
    NodeAffinity,
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    PreferredNodeTerm,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from koordcore.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorOperator,
)
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_labels,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    choice,
    collect,
    list_of,
    optional,
    required,
)

_MAX_WEIGHT: Final = 100


_operator: Final = choice(SelectorOperator)
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_effect: Final = choice(TaintEffect)
_action: Final = choice(UnsatisfiableAction)
_inclusion: Final = choice(NodeInclusionPolicy)


def _requirement(value: Json) -> Requirement:
    raw = as_mapping(value)
    key = required(raw, "key", as_str)
    operator = required(raw, "operator", _operator)
    values: tuple[str, ...] = optional(raw, "values", as_strings, ())
    try:
        return Requirement(key, operator, values)
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None


_requirements: Final = list_of(_requirement)


def _label_requirement(value: Json, fold_case: bool) -> Requirement:
    raw = as_mapping(value)
    operator = optional(raw, "operator", as_str, "", fold_case=fold_case)
    if operator not in _LABEL_OPERATORS:
        raise ManifestError.at("operator", f'"{operator}" is not a valid label selector operator')
    key = optional(raw, "key", as_str, "", fold_case=fold_case)
    values: tuple[str, ...] = optional(raw, "values", as_strings, (), fold_case=fold_case)
    try:
        return Requirement(key, SelectorOperator(operator), values)
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None


def as_label_selector(value: Json, *, fold_case: bool = False) -> LabelSelector:
    """Take a label selector; an empty one selects everything.

    Parameters
    ----------
    fold_case
        Names of fields match without case, as they do in annotations.
    """
    raw = as_mapping(value)
    return LabelSelector(
        optional(raw, "matchLabels", as_labels, LabelSelector().match_labels, fold_case=fold_case),
        optional(
            raw,
            "matchExpressions",
            list_of(lambda one: _label_requirement(one, fold_case)),
            (),
            fold_case=fold_case,
        ),
    )


def _term(value: Json) -> NodeSelectorTerm:
    raw = as_mapping(value)
    return NodeSelectorTerm(
        optional(raw, "matchExpressions", _requirements, ()), optional(raw, "matchFields", _requirements, ())
    )


def as_node_selector(value: Json) -> NodeSelector:
    """Take a node selector: terms of which one must hold."""
    terms = required(as_mapping(value), "nodeSelectorTerms", as_list)
    try:
        return NodeSelector(collect(_term, terms))
    except ManifestError as error:
        raise error.within("nodeSelectorTerms") from None


def as_node_selector_terms(value: Json) -> NodeSelector:
    """Take a list of terms of which one must hold."""
    return NodeSelector(collect(_term, as_list(value)))


def _weight(value: Json) -> int:
    weight = as_int(value)
    if not 1 <= weight <= _MAX_WEIGHT:
        raise ManifestError.at("", f"expected 1..{_MAX_WEIGHT}, got {weight}")
    return weight


def _preferred_node(value: Json) -> PreferredNodeTerm:
    raw = as_mapping(value)
    return PreferredNodeTerm(required(raw, "weight", _weight), required(raw, "preference", _term))


def as_node_affinity(value: Json) -> NodeAffinity:
    """Take the affinity of a pod to nodes."""
    raw = as_mapping(value)
    return NodeAffinity(
        optional(raw, "requiredDuringSchedulingIgnoredDuringExecution", as_node_selector, None),
        optional(
            raw,
            "preferredDuringSchedulingIgnoredDuringExecution",
            list_of(_preferred_node),
            (),
        ),
    )


def _pod_term(value: Json) -> PodAffinityTerm:
    raw = as_mapping(value)
    return PodAffinityTerm(
        topology_key=required(raw, "topologyKey", as_str),
        selector=optional(raw, "labelSelector", as_label_selector, None),
        namespaces=optional(raw, "namespaces", as_strings, ()),
        namespace_selector=optional(raw, "namespaceSelector", as_label_selector, None),
        match_label_keys=optional(raw, "matchLabelKeys", as_strings, ()),
        mismatch_label_keys=optional(raw, "mismatchLabelKeys", as_strings, ()),
    )


def _weighted_pod_term(value: Json) -> WeightedPodAffinityTerm:
    raw = as_mapping(value)
    return WeightedPodAffinityTerm(
        required(raw, "weight", _weight), required(raw, "podAffinityTerm", _pod_term)
    )


def _pod_affinity(value: Json) -> PodAffinity:
    raw = as_mapping(value)
    return PodAffinity(
        optional(
            raw,
            "requiredDuringSchedulingIgnoredDuringExecution",
            list_of(_pod_term),
            (),
        ),
        optional(
            raw,
            "preferredDuringSchedulingIgnoredDuringExecution",
            list_of(_weighted_pod_term),
            (),
        ),
    )


def as_affinity(value: Json) -> Affinity | None:
    """Take a pod's affinity; ``None`` where it says nothing."""
    raw = as_mapping(value)
    affinity = Affinity(
        optional(raw, "nodeAffinity", as_node_affinity, None),
        optional(raw, "podAffinity", _pod_affinity, None),
        optional(raw, "podAntiAffinity", _pod_affinity, None),
    )
    return None if affinity == Affinity() else affinity


def _toleration_effect(value: Json) -> TaintEffect | None:
    return None if value == "" else _effect(value)


def _toleration_operator(value: Json) -> TolerationOperator:
    return TolerationOperator.EQUAL if value == "" else choice(TolerationOperator)(value)


def _toleration(value: Json) -> Toleration:
    raw = as_mapping(value)
    return Toleration(
        optional(raw, "key", as_str, ""),
        optional(raw, "operator", _toleration_operator, TolerationOperator.EQUAL),
        optional(raw, "value", as_str, ""),
        optional(raw, "effect", _toleration_effect, None),
    )


def as_tolerations(value: Json) -> tuple[Toleration, ...]:
    """Take tolerations; how long one holds after placement (``tolerationSeconds``) does not matter here."""
    return collect(_toleration, as_list(value))


def _taint(value: Json) -> Taint:
    raw = as_mapping(value)
    return Taint(
        required(raw, "key", as_str), optional(raw, "value", as_str, ""), required(raw, "effect", _effect)
    )


def as_taints(value: Json) -> tuple[Taint, ...]:
    """Take the taints of a node, or of room that is held there."""
    return collect(_taint, as_list(value))


def _skew(value: Json) -> int:
    skew = as_int(value)
    if not 1 <= skew < 2**31:
        wanted = "at least 1" if skew < 1 else "an integer of 32 bits"
        raise ManifestError.at("", f"expected {wanted}, got {skew}")
    return skew


def _spread(value: Json) -> TopologySpreadConstraint:
    raw = as_mapping(value)
    return TopologySpreadConstraint(
        max_skew=required(raw, "maxSkew", _skew),
        topology_key=required(raw, "topologyKey", as_str),
        when_unsatisfiable=required(raw, "whenUnsatisfiable", _action),
        selector=optional(raw, "labelSelector", as_label_selector, None),
        min_domains=optional(raw, "minDomains", _skew, None),
        node_affinity_policy=optional(raw, "nodeAffinityPolicy", _inclusion, NodeInclusionPolicy.HONOR),
        node_taints_policy=optional(raw, "nodeTaintsPolicy", _inclusion, NodeInclusionPolicy.IGNORE),
        match_label_keys=optional(raw, "matchLabelKeys", as_strings, ()),
    )


def as_spread_constraints(value: Json) -> tuple[TopologySpreadConstraint, ...]:
    """Take topology spread constraints."""
    return collect(_spread, as_list(value))
