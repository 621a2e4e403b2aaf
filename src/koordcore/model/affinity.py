"""Taints, tolerations, affinity and spread: what a pod's neighbourhood must be like."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import attrs

from koordcore._record import record
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, integer_of


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class TolerationOperator(StrEnum):
    """How a toleration compares the taint's value."""

    EQUAL = "Equal"
    EXISTS = "Exists"
    LT = "Lt"
    GT = "Gt"


@names_its_fields
@record
class Taint:
    """A mark on a node that repels pods."""

    key: str
    value: str = ""
    effect: TaintEffect = attrs.field(default=TaintEffect.NO_SCHEDULE, converter=TaintEffect)

    __attrs_post_init__ = check_fields

    def __str__(self) -> str:
        return f"{{{self.key}: {self.value}}}"


@names_its_fields
@record
class Toleration:
    """What lets a pod onto a tainted node; an empty key with ``Exists`` tolerates everything.

    Parameters
    ----------
    effect
        ``None`` stands for every effect.
    """

    key: str = ""
    operator: TolerationOperator = attrs.field(default=TolerationOperator.EQUAL, converter=TolerationOperator)
    value: str = ""
    effect: TaintEffect | None = None

    __attrs_post_init__ = check_fields

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether the toleration covers the taint (Kubernetes ``ToleratesTaint``)."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if not self.key and self.operator is not TolerationOperator.EXISTS:
            # An empty key is only valid with Exists; Kubernetes then still compares the values.
            return self.operator is TolerationOperator.EQUAL and self.value == taint.value
        match self.operator:
            case TolerationOperator.EXISTS:
                return True
            case TolerationOperator.EQUAL:
                return self.value == taint.value
            case TolerationOperator.LT | TolerationOperator.GT:
                wanted, present = _plain_integer(self.value), _plain_integer(taint.value)
                if wanted is None or present is None:
                    return False
                return present < wanted if self.operator is TolerationOperator.LT else present > wanted


def _plain_integer(text: str) -> int | None:
    """Read an integer as people write it: no plus, no zeros in front (Kubernetes' ``IsDecimalInteger``)."""
    value = integer_of(text)
    return value if str(value) == text else None


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Tell whether one of the tolerations covers the taint."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


class Tolerances:
    """Tolerations by the key that they name: of ten thousand, few concern a taint.

    Parameters
    ----------
    tolerations
        Those of a pod.
    """

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._by_key: dict[str, list[Toleration]] = {}
        for one in tolerations:
            self._by_key.setdefault(one.key, []).append(one)

    def cover(self, taint: Taint) -> bool:
        """Tell whether one of the tolerations covers the taint."""
        return any(one.tolerates(taint) for key in {taint.key, ""} for one in self._by_key.get(key, ()))


@record
class PreferredNodeTerm:
    """A node selector term that earns ``weight`` (1..100) where it holds."""

    weight: int
    term: NodeSelectorTerm

    __attrs_post_init__ = check_fields


@record
class NodeAffinity:
    """Which nodes a pod requires and prefers."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredNodeTerm, ...] = ()

    __attrs_post_init__ = check_fields


@record
class PodAffinityTerm:
    """Other pods that should be near, or far.

    Parameters
    ----------
    topology_key
        Node label whose value says what is near.
    selector
        Which pods; ``None`` matches none.
    namespaces, namespace_selector
        Where to look; both empty stands for the pod's own namespace. A selector of ``None`` selects no
        further namespaces, an empty one selects all.
    match_label_keys, mismatch_label_keys
        Labels of the incoming pod that are added to the selector.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@record
class WeightedPodAffinityTerm:
    """A pod affinity term that counts ``weight`` (1..100) for each pod it finds."""

    weight: int
    term: PodAffinityTerm

    __attrs_post_init__ = check_fields


@record
class PodAffinity:
    """Required and preferred neighbours (or, as anti-affinity, pods to keep away from)."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()

    __attrs_post_init__ = check_fields


@record
class Affinity:
    """All the affinity of one pod."""

    node: NodeAffinity | None = None
    pod: PodAffinity | None = None
    anti: PodAffinity | None = None

    __attrs_post_init__ = check_fields


class UnsatisfiableAction(StrEnum):
    """What a spread constraint does where it cannot hold."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class NodeInclusionPolicy(StrEnum):
    """Whether affinity or taints take nodes out of the count of a spread constraint."""

    HONOR = "Honor"
    IGNORE = "Ignore"


@names_its_fields
@record(kw_only=True)
class TopologySpreadConstraint:
    """How evenly pods must lie over the values of a node label.

    Parameters
    ----------
    max_skew
        Largest difference allowed, at least 1.
    topology_key
        Node label whose values are the domains.
    selector
        Which pods are counted; ``None`` counts none.
    min_domains
        Fewer domains than this count as if the smallest held no pod.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: UnsatisfiableAction = attrs.field(
        default=UnsatisfiableAction.DO_NOT_SCHEDULE, converter=UnsatisfiableAction
    )
    selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: NodeInclusionPolicy = attrs.field(
        default=NodeInclusionPolicy.HONOR, converter=NodeInclusionPolicy
    )
    node_taints_policy: NodeInclusionPolicy = attrs.field(
        default=NodeInclusionPolicy.IGNORE, converter=NodeInclusionPolicy
    )
    match_label_keys: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields
