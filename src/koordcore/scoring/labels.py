"""Label kernels: taints and node affinity, judged once per value and spread over the nodes.

A selector is evaluated as often as the labels that it names have values (``ClusterLayout.kinds``), not as
often as there are nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout, IntVector
from koordcore._node_columns import Judged
from koordcore.model.affinity import PreferredNodeTerm, Taint, TaintEffect, Tolerances, Toleration, tolerated
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator

_HARD: Final = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable")


def fit_requirement(layout: ClusterLayout, requirement: Requirement) -> BoolVector:
    """Tell which nodes' labels satisfy a requirement."""
    column = layout.kinds.label(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN | SelectorOperator.NOT_IN:
            # By look-up: a label such as the host name has a value for every node.
            among = fit_values(layout, requirement.key, requirement.values)
            return among if requirement.operator is SelectorOperator.IN else ~among
        case _:
            key = requirement.key
            return column.judge(
                lambda value: requirement.matches({} if value is None else {key: value})
            ).astype(bool)


def fit_values(layout: ClusterLayout, key: str, values: Iterable[str]) -> BoolVector:
    """Tell on which nodes a label has one of some values."""
    column = layout.kinds.label(key)
    mask = np.zeros(len(layout.names), bool)
    for value in values:
        if value in column.number:
            mask |= column.ids == column.number[value]
    return mask


def fit_labels(layout: ClusterLayout, wanted: Iterable[tuple[str, str]]) -> BoolVector:
    """Tell which nodes have all of some labels with the values that go with them."""
    mask = np.ones(len(layout.names), bool)
    for key, value in wanted:
        mask &= fit_values(layout, key, (value,))
    return mask


def untolerated_taint(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """Give the first taint that keeps the pod away, or ``None``."""
    return _keeps_away(taints, Tolerances(tolerations))


def _keeps_away(taints: Iterable[Taint], allowed: Tolerances) -> Taint | None:
    return next((one for one in taints if one.effect in _HARD and not allowed.cover(one)), None)


def judge_taints(layout: ClusterLayout, tolerations: tuple[Toleration, ...]) -> Judged[tuple[Taint, ...]]:
    """Judge nodes by whether they have no NoSchedule or NoExecute taint that the pod does not tolerate."""
    allowed = Tolerances(tolerations)
    return Judged(layout.kinds.taints, lambda taints: _keeps_away(taints, allowed) is None)


def fit_taints(layout: ClusterLayout, tolerations: tuple[Toleration, ...]) -> BoolVector:
    """Tell which nodes have no taint that keeps the pod away: :func:`judge_taints`."""
    return judge_taints(layout, tolerations).at().astype(bool)


def count_soft_taints(
    layout: ClusterLayout, tolerations: tuple[Toleration, ...]
) -> Judged[tuple[Taint, ...]]:
    """Count each node's PreferNoSchedule taints that the pod does not tolerate."""
    soft = Tolerances(
        one for one in tolerations if one.effect is None or one.effect is TaintEffect.PREFER_NO_SCHEDULE
    )
    return Judged(
        layout.kinds.taints,
        lambda taints: sum(
            one.effect is TaintEffect.PREFER_NO_SCHEDULE and not soft.cover(one) for one in taints
        ),
    )


def judge_cordons(layout: ClusterLayout, tolerations: tuple[Toleration, ...]) -> Judged[bool]:
    """Judge nodes by whether they are schedulable, or cordoned in a way that the pod tolerates."""
    allowed = tolerated(UNSCHEDULABLE_TAINT, tolerations)
    return Judged(layout.kinds.cordons, lambda cordoned: allowed or not cordoned)


def fit_unschedulable(layout: ClusterLayout, tolerations: tuple[Toleration, ...]) -> BoolVector:
    """Tell which nodes no cordon closes to the pod: :func:`judge_cordons`."""
    return judge_cordons(layout, tolerations).at().astype(bool)


def _fit_field(layout: ClusterLayout, requirement: Requirement) -> BoolVector:
    mask = np.zeros(len(layout.names), bool)
    if requirement.key != "metadata.name":
        return mask
    for name in requirement.values:
        row = layout.row_of.get(name)
        if row is not None:
            mask[row] = True
    return mask if requirement.operator is SelectorOperator.IN else ~mask


def fit_term(layout: ClusterLayout, term: NodeSelectorTerm) -> BoolVector:
    """Tell which nodes satisfy one term; an empty term is satisfied by none."""
    if not term.expressions and not term.fields:
        return np.zeros(len(layout.names), bool)
    mask = np.ones(len(layout.names), bool)
    for one in term.expressions:
        mask &= fit_requirement(layout, one)
    for requirement in term.fields:
        mask &= _fit_field(layout, requirement)
    return mask


def fit_selector(layout: ClusterLayout, selector: NodeSelector) -> BoolVector:
    """Tell which nodes satisfy one of the terms."""
    mask = np.zeros(len(layout.names), bool)
    for term in selector.terms:
        mask |= fit_term(layout, term)
    return mask


def named_nodes(selector: NodeSelector) -> tuple[str, ...] | None:
    """Give the node names that the terms allow when every term names some, else ``None`` (no restriction).

    An empty tuple means that the terms contradict themselves.
    """
    allowed: set[str] = set()
    for term in selector.terms:
        names: set[str] | None = None
        for one in term.fields:
            if one.key == "metadata.name" and one.operator is SelectorOperator.IN:
                names = set(one.values) if names is None else names & set(one.values)
        if names is None:
            return None
        allowed |= names
    return tuple(sorted(allowed))


def fit_own_terms(
    layout: ClusterLayout, own: Mapping[str, str], required: NodeSelector | None
) -> BoolVector | None:
    """Tell which nodes a pod's node selector and required terms leave; ``None`` where they say nothing.

    Where every term names nodes, the names alone decide, as upstream screens nodes before it looks for
    room that is held there. ``(N,)``.

    Parameters
    ----------
    layout
        The nodes with their labels.
    own
        ``spec.nodeSelector``.
    required
        Required terms of the node affinity; ``None`` for none.
    """
    names = named_nodes(required) if required is not None and required.terms else None
    if names is not None:
        return np.array([name in names for name in layout.names], bool)
    if not own and required is None:
        return None
    fitting = fit_labels(layout, own.items())
    return fitting if required is None else fitting & fit_selector(layout, required)


def score_preferred(layout: ClusterLayout, preferred: Iterable[PreferredNodeTerm]) -> IntVector:
    """Add up the weights of the preferred terms that each node satisfies (not normalised)."""
    score = np.zeros(len(layout.names), np.int64)
    for one in preferred:
        score += np.where(fit_term(layout, one.term), one.weight, 0)
    return score
