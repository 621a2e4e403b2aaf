"""Arguments of scheduler plugins: JSON in, the plugins' frozen arguments out, with their defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.model.load import LoadAwareArgs
from koordcore.model.plugin_args import (
    MAX_SCORE,
    BalancedArgs,
    FitArgs,
    FitPlusArgs,
    InterPodArgs,
    NodeAffinityArgs,
    ScarceArgs,
    ScoringStrategy,
    ShapePoint,
    SpreadArgs,
    SpreadDefaulting,
)
from koordcore.model.resources import CPU, MEMORY
from koordcore.model.selectors import NodeSelectorTerm
from koordcore.protocol.device_args import device_policy_of
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_mapping,
    as_str,
    at,
    list_of,
    optional,
    required,
)
from koordcore.protocol.hints import parse_max_hint_nodes
from koordcore.protocol.label_names import label_name_fault
from koordcore.protocol.load import parse_load_aware_args
from koordcore.protocol.numa_args import numa_args_of
from koordcore.protocol.pod_group import parse_coscheduling_args
from koordcore.protocol.quota_args import parse_quota_args
from koordcore.protocol.reservation_args import parse_reservation_args
from koordcore.protocol.selectors import as_node_affinity, as_spread_constraints

if TYPE_CHECKING:
    from koordcore.model.affinity import NodeAffinity
    from koordcore.model.claims import ClaimArgs
    from koordcore.model.gangs import CoschedulingArgs

T = TypeVar("T")

_NOTHING: Final[Mapping[str, Json]] = {}
_PACKED: Final = str(ScoringStrategy.MOST_ALLOCATED)
_SPREAD: Final = str(ScoringStrategy.LEAST_ALLOCATED)
_PLACE: Final = re.compile(r"[A-Za-z]+(?:\.[A-Za-z]+|\[[^]]*\])*")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{}]"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution[{}]"
_DEFAULT_RESOURCES: Final = ((CPU, 1), (MEMORY, 1))


def _resource(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    name = required(raw, "name", as_str)
    if not name:
        raise ManifestError.at("name", "Required value")
    # An absent weight is 1; a weight that is written as 0 is 1 as well, as upstream's defaulting does.
    return name, optional(raw, "weight", as_int, 1) or 1


def _weighted(value: Json) -> tuple[str, int]:
    name, weight = _resource(value)
    if not 1 <= weight <= MAX_SCORE:
        rule = f"resource weight of {name} not in valid range (0, {MAX_SCORE}]"
        raise ManifestError.at("weight", f"Invalid value: {weight}: {rule}")
    return name, weight


def _balanced(value: Json) -> tuple[tuple[str, int], ...]:
    """Read resources that count alike, each once."""
    resources = list_of(_resource)(value)
    problems: list[Problem] = []
    for index, (name, weight) in enumerate(resources):
        if name in [other for other, _ in resources[:index]]:
            problems.append(Problem(f"[{index}].name", f'Duplicate value: "{name}"'))
        if weight != 1:
            problems.append(Problem(f"[{index}].weight", f"Invalid value: {weight}: must be 1"))
    if problems:
        raise ManifestError(problems)
    return resources


def _point(value: Json) -> ShapePoint:
    raw = as_mapping(value)
    for name, most in (("utilization", 100), ("score", 10)):
        given = optional(raw, name, as_int, 0)
        if not 0 <= given <= most:
            raise ManifestError.at(name, f"Invalid value: {given}: not in valid range [0, {most}]")
    return ShapePoint(optional(raw, "utilization", as_int, 0), optional(raw, "score", as_int, 0))


def _strategy(value: Json) -> ScoringStrategy:
    text = as_str(value)
    try:
        return ScoringStrategy(text)
    except ValueError:
        raise ManifestError.at("", f'expected one of {", ".join(ScoringStrategy)}, got "{text}"') from None


def _scoring(value: Json) -> tuple[ScoringStrategy, tuple[tuple[str, int], ...], tuple[ShapePoint, ...]]:
    raw = as_mapping(value)
    return (
        optional(raw, "type", _strategy, ScoringStrategy.LEAST_ALLOCATED),
        optional(raw, "resources", list_of(_weighted), ()),
        optional(raw, "requestedToCapacityRatio", _ratio, ()),
    )


def _ratio(value: Json) -> tuple[ShapePoint, ...]:
    shape = optional(as_mapping(value), "shape", list_of(_point), ())
    if not shape:
        raise ManifestError.at("shape", "Required value: at least one point must be specified")
    for index, (left, right) in enumerate(pairwise(shape), start=1):
        if left.utilization >= right.utilization:
            rule = f"Invalid value: {right.utilization}: values must be sorted in increasing order"
            raise ManifestError.at(f"shape[{index}].utilization", rule)
    return shape


def _ignored(value: Json) -> str:
    name = as_str(value)
    fault = label_name_fault(name)
    if fault:
        raise ManifestError.at("", f'Invalid value: "{name}": {fault}')
    return name


def _ignored_group(value: Json) -> str:
    if "/" in as_str(value):
        raise ManifestError.at("", f"Invalid value: \"{value}\": resource group name can't contain '/'")
    return _ignored(value)


def fit_args(raw: Mapping[str, Json]) -> FitArgs:
    """Read NodeResourcesFitArgs."""
    usual: tuple[ScoringStrategy, tuple[tuple[str, int], ...], tuple[ShapePoint, ...]]
    usual = (ScoringStrategy.LEAST_ALLOCATED, (), ())
    strategy, resources, shape = optional(raw, "scoringStrategy", _scoring, usual)
    if strategy is ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO and not shape:
        where = "scoringStrategy.requestedToCapacityRatio"
        raise ManifestError.at(where, f"Required value: must be specified when type is {strategy}")
    return _built(
        FitArgs,
        strategy=strategy,
        resources=resources or _DEFAULT_RESOURCES,
        shape=shape,
        ignored=optional(raw, "ignoredResources", list_of(_ignored), ()),
        ignored_groups=optional(raw, "ignoredResourceGroups", list_of(_ignored_group), ()),
    )


def balanced_args(raw: Mapping[str, Json]) -> BalancedArgs:
    """Read NodeResourcesBalancedAllocationArgs."""
    resources = optional(raw, "resources", _balanced, ()) or _DEFAULT_RESOURCES
    return _built(BalancedArgs, resources=resources)


def node_affinity_args(raw: Mapping[str, Json]) -> NodeAffinityArgs:
    """Read NodeAffinityArgs."""
    node = optional(raw, "addedAffinity", _added_affinity, None)
    if node is not None:
        required_terms = node.required.terms if node.required else ()
        preferred = [one.term for one in node.preferred]
        problems = [*_incomparable(_REQUIRED, required_terms), *_incomparable(_PREFERRED, preferred)]
        if problems:
            raise ManifestError(problems)
    return NodeAffinityArgs(added=node)


def _added_affinity(value: Json) -> NodeAffinity | None:
    return as_node_affinity(value) if as_mapping(value) else None


def _incomparable(path: str, terms: Iterable[NodeSelectorTerm]) -> Iterator[Problem]:
    """Find what a policy may not say though a pod may: ``Gt`` and ``Lt`` of something that is no integer."""
    for index, term in enumerate(terms):
        for number, one in enumerate(term.expressions):
            if not one.comparable:
                place = f"addedAffinity.{path.format(index)}.matchExpressions[{number}].values[0]"
                rule = "for 'Gt', 'Lt' operators, the value must be an integer"
                yield Problem(place, f'Invalid value: "{one.values[0]}": {rule}')


def _fit_plus_resource(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    return optional(raw, "type", as_str, ""), optional(raw, "weight", as_int, 0)


def fit_plus_args(raw: Mapping[str, Json]) -> FitPlusArgs:
    """Read NodeResourcesFitPlusArgs. ``extendedResources`` is ours."""
    return FitPlusArgs(
        resources=optional(raw, "resources", _fit_plus_resources, _NOTHING),
        extended=optional(raw, "extendedResources", _fit_plus_resource, None),
    )


def _fit_plus_resources(value: Json) -> dict[str, tuple[str, int]]:
    return {name: at(f"[{name}]", _fit_plus_resource, one) for name, one in as_mapping(value).items()}


def scarce_args(raw: Mapping[str, Json]) -> ScarceArgs:
    """Read ScarceResourceAvoidanceArgs."""
    return ScarceArgs(resources=optional(raw, "resources", list_of(as_str), ()))


def spread_args(raw: Mapping[str, Json]) -> SpreadArgs:
    """Read PodTopologySpreadArgs."""
    return _built(
        SpreadArgs,
        defaulting=optional(raw, "defaultingType", _defaulting, SpreadDefaulting.SYSTEM),
        default_constraints=optional(raw, "defaultConstraints", as_spread_constraints, ()),
    )


def _defaulting(value: Json) -> SpreadDefaulting:
    text = as_str(value)
    try:
        return SpreadDefaulting(text)
    except ValueError:
        known = ", ".join(f'"{one}"' for one in SpreadDefaulting)
        raise ManifestError.at("", f'Unsupported value: "{text}": supported values: {known}') from None


def interpod_args(raw: Mapping[str, Json]) -> InterPodArgs:
    """Read InterPodAffinityArgs."""
    return _built(
        InterPodArgs,
        hard_pod_affinity_weight=optional(raw, "hardPodAffinityWeight", as_int, 1),
        ignore_preferred_terms_of_existing_pods=optional(
            raw, "ignorePreferredTermsOfExistingPods", as_bool, False
        ),
    )


def claim_args(raw: Mapping[str, Json]) -> ClaimArgs:
    """Read what koordcore takes in DynamicResourcesArgs, beside upstream's own fields."""
    from koordcore.model.claims import AllocationMode, ClaimArgs  # who has no claims reads no more of them

    mode = optional(raw, "allocationMode", as_str, AllocationMode.EXACT)
    if mode not in set(AllocationMode):
        known = ", ".join(f'"{one}"' for one in AllocationMode)
        raise ManifestError.at("allocationMode", f'Unsupported value: "{mode}": supported values: {known}')
    return ClaimArgs(
        mode=AllocationMode(mode),
        await_claims=optional(raw, "awaitClaims", as_bool, False),
        packed=optional(raw, "scoringStrategy", _packs, True),
    )


def _packs(value: Json) -> bool:
    strategy = optional(as_mapping(value), "type", as_str, _PACKED)
    if strategy not in (_PACKED, _SPREAD):
        known = f'"{_SPREAD}", "{_PACKED}"'
        raise ManifestError.at("type", f'Unsupported value: "{strategy}": supported values: {known}')
    return strategy == _PACKED


def load_aware_args(raw: Mapping[str, Json]) -> LoadAwareArgs:
    """Read LoadAwareSchedulingArgs."""
    return _built(parse_load_aware_args, raw=raw)


def coscheduling_args(raw: Mapping[str, Json]) -> CoschedulingArgs:
    """Read CoschedulingArgs; upstream's words for what it refuses do not say where it stands."""
    for name in ("defaultTimeout", "controllerWorkers"):
        try:
            parse_coscheduling_args({name: raw.get(name)})
        except ModelError as error:
            raise ManifestError.at(name, str(error)) from None
    return parse_coscheduling_args(raw)


def _built(kind: Callable[..., T], **fields: Any) -> T:
    """Construct a record; what the record refuses is a problem of the manifest."""
    try:
        return kind(**fields)
    except ModelError as error:
        raise located(error) from None


def located(error: ModelError) -> ManifestError:
    """Take what a record refuses for a problem of the place that its words begin with, if they do."""
    path, colon, rest = str(error).partition(": ")
    return (
        ManifestError.at(path, rest) if colon and _PLACE.fullmatch(path) else ManifestError.at("", str(error))
    )


PLUGIN_ARGS: Final[Mapping[str, Callable[[Mapping[str, Json]], Any]]] = {
    "NodeResourcesFit": fit_args,
    "NodeResourcesBalancedAllocation": balanced_args,
    "NodeAffinity": node_affinity_args,
    "NodeResourcesFitPlus": fit_plus_args,
    "ScarceResourceAvoidance": scarce_args,
    "PodTopologySpread": spread_args,
    "InterPodAffinity": interpod_args,
    "DynamicResources": claim_args,
    "LoadAwareScheduling": load_aware_args,
    "NodeNUMAResource": numa_args_of,
    "DeviceShare": device_policy_of,
    "ElasticQuota": parse_quota_args,
    "SchedulingHint": parse_max_hint_nodes,
    "Coscheduling": coscheduling_args,
    "Reservation": parse_reservation_args,
}
"""Plugin name to the reader of its arguments, which have the field names of ``v1``."""
