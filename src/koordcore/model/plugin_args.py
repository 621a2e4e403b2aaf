"""Arguments of plugins that look at amounts, labels and who runs where."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.affinity import TopologySpreadConstraint
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.resources import CPU, MEMORY

MAX_SCORE: Final = 100


class ScoringStrategy(StrEnum):
    """How free room becomes a score."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@record
class ShapePoint:
    """A corner of the utilisation-to-score line: percent used (0..100) and score (0..10)."""

    utilization: int
    score: int

    __attrs_post_init__ = check_fields


def _weights(pairs: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    frozen = tuple(pairs)
    for name, weight in frozen:
        if not name:
            raise ModelError("resources: a name is required")
        if not 1 <= weight <= MAX_SCORE:
            raise ModelError(f"resources: weight of {name} should be in the range [1, 100], got {weight}")
    return frozen


@names_its_fields
@record(kw_only=True)
class FitArgs:
    """Arguments of NodeResourcesFit.

    Parameters
    ----------
    strategy
        How it scores.
    resources
        Resource names with weights 1..100.
    shape
        Corners for ``RequestedToCapacityRatio``, utilisation strictly rising.
    ignored, ignored_groups
        Extended resources, by name or by the part before the slash, that the filter does not look at.
    """

    strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    resources: tuple[tuple[str, int], ...] = attrs.field(default=((CPU, 1), (MEMORY, 1)), converter=_weights)
    shape: tuple[ShapePoint, ...] = ()
    ignored: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.strategy is not ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO:
            return
        if not self.shape:
            raise ModelError("shape: at least one point must be specified")
        used = [point.utilization for point in self.shape]
        if any(left >= right for left, right in itertools.pairwise(used)):
            raise ModelError("shape: utilization values must be sorted in increasing order")
        if any(not 0 <= point.utilization <= 100 or not 0 <= point.score <= 10 for point in self.shape):
            raise ModelError("shape: utilization is 0..100, score is 0..10")


@names_its_fields
@record(kw_only=True)
class BalancedArgs:
    """Arguments of NodeResourcesBalancedAllocation: the resources whose use should be even."""

    resources: tuple[tuple[str, int], ...] = attrs.field(default=((CPU, 1), (MEMORY, 1)), converter=_weights)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class NodeAffinityArgs:
    """Arguments of NodeAffinity: an affinity that every pod has in addition to its own."""

    added: Any = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class FitPlusArgs:
    """Arguments of NodeResourcesFitPlus: a strategy name and a weight for each resource.

    A strategy other than LeastAllocated and MostAllocated scores 0, its weight counts all the same.

    Parameters
    ----------
    resources
        Resource name to strategy and weight.
    extended
        Strategy and weight of every other extended resource; who asks for nothing of both is not scored.
        ``None``, which is all that upstream knows: nothing else counts.
    """

    resources: immutabledict[str, tuple[str, int]] = attrs.field(default=EMPTY, converter=frozen)
    extended: tuple[str, int] | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ScarceArgs:
    """Arguments of ScarceResourceAvoidance: names that pods without need for them should stay away from."""

    resources: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class InterPodArgs:
    """Arguments of InterPodAffinity.

    Parameters
    ----------
    hard_pod_affinity_weight
        What a required affinity term of an existing pod counts in the score, 0..100.
    ignore_preferred_terms_of_existing_pods
        Pods without preferences of their own are not scored.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        weight = self.hard_pod_affinity_weight
        if not 0 <= weight <= MAX_SCORE:
            raise ModelError(
                f"hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, {MAX_SCORE}]"
            )


class SpreadDefaulting(StrEnum):
    """Where the constraints of pods that have none of their own come from."""

    SYSTEM = "System"
    LIST = "List"


@names_its_fields
@record(kw_only=True)
class SpreadArgs:
    """Arguments of PodTopologySpread.

    Parameters
    ----------
    defaulting
        ``System``: hosts and zones, softly; ``List``: the constraints given here.
    default_constraints
        Constraints without selector; the pods that are counted are those of the pod's services and workload.
    """

    defaulting: SpreadDefaulting = attrs.field(default=SpreadDefaulting.SYSTEM, converter=SpreadDefaulting)
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.defaulting is SpreadDefaulting.SYSTEM and self.default_constraints:
            raise ModelError(
                'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'
            )
        for index, one in enumerate(self.default_constraints):
            if one.selector is not None:
                raise ModelError(
                    f"defaultConstraints[{index}].labelSelector: Forbidden: constraint must not define a "
                    "selector, as they deduced for each pod"
                )
