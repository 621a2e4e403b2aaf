"""Arguments of the Reservation plugin (``ReservationArgs`` v1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from koordcore.errors import ManifestError, Problem
from koordcore.model.reservations import PreAllocationArgs, ReservationArgs, ReservationMatching
from koordcore.protocol.fields import Json, as_bool, as_int, as_mapping, as_str, as_strings, optional, show

SKIP_FITS_NODE: Final = "SkipReservationFitsNode"
"""Plugin gate; see :class:`~koordcore.model.reservations.ReservationArgs`."""

_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_DOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_LONGEST_DOMAIN: Final = 253
_NATIVE_RULE: Final = (
    "must be an extended resource name (e.g. example.com/gpu); native resources cannot be ignored"
)
_GROUP_RULE: Final = (
    "must be usable as an extended resource prefix (a valid DNS subdomain and not the reserved "
    '"kubernetes.io" namespace)'
)


def _extended(name: str) -> bool:
    """Tell whether a name is one of an extended resource (Kubernetes ``IsExtendedResourceName``)."""
    group, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    asked = f"requests.{group}"
    return len(asked) <= _LONGEST_DOMAIN and bool(_DOMAIN.fullmatch(asked)) and bool(_LABEL.fullmatch(rest))


def _invalid(path: str, value: Json, rule: str) -> Problem:
    shown = f'"{value}"' if isinstance(value, str) else value
    return Problem(path, f"Invalid value: {shown}: {rule}")


_NUMBERS: Final = {
    "minCandidateNodesPercentage": "min_candidate_nodes_percentage",
    "minCandidateNodesAbsolute": "min_candidate_nodes_absolute",
    "controllerWorkers": "controller_workers",
    "gcDurationSeconds": "gc_duration",
    "gcIntervalSeconds": "gc_interval",
    "resyncIntervalSeconds": "resync_interval",
}
"""Fields that are numbers, and what they are called here."""


def _problems_of_numbers(numbers: Mapping[str, int]) -> Iterator[Problem]:
    for path, number in numbers.items():
        if path == "minCandidateNodesPercentage":
            if not 0 <= number <= 100:
                yield _invalid(path, number, "not in valid range [0, 100]")
        elif number < 0:
            yield _invalid(path, number, "must be greater than or equal to 0")


def _problems(args: ReservationArgs) -> Iterator[Problem]:
    for index, name in enumerate(args.ignored_resources):
        if not _extended(name):
            yield _invalid(f"ignoredResources[{index}]", name, _NATIVE_RULE)
    for index, group in enumerate(args.ignored_groups):
        path = f"ignoredResourceGroups[{index}]"
        if "/" in group:
            yield _invalid(path, group, "resource group name can't contain '/'")
        elif not _extended(f"{group}/x"):
            yield _invalid(path, group, _GROUP_RULE)


def _pre_allocation(value: Json) -> PreAllocationArgs:
    raw = as_mapping(value)
    default = PreAllocationArgs()
    return PreAllocationArgs(
        cluster_mode=optional(raw, "enableClusterMode", as_bool, False),
        label=optional(raw, "clusterLabelKey", as_str, "") or default.label,
        priority_annotation=optional(raw, "clusterPriorityAnnotationKey", as_str, "")
        or default.priority_annotation,
        prefer_none=optional(raw, "preferNoPreAllocatedPods", as_bool, False),
    )


def _matching(value: Json) -> ReservationMatching:
    text = as_str(value)
    if text not in tuple(ReservationMatching):
        raise ManifestError.at("", f"expected {' or '.join(ReservationMatching)}, got {show(value)}")
    return ReservationMatching(text)


def parse_reservation_args(raw: Mapping[str, Json], *, skip_fits_node: bool = False) -> ReservationArgs:
    """Read the arguments, fill in upstream's defaults and validate them.

    The index of selectors, which upstream can keep, changes how fast reservations are found and not which;
    it is not read. ``matching`` is ours.

    Raises
    ------
    ManifestError
        With every problem, in the words of upstream's validation.
    """
    default = ReservationArgs()
    args = ReservationArgs(
        enable_preemption=optional(raw, "enablePreemption", as_bool, False),
        disable_garbage_collection=optional(raw, "disableGarbageCollection", as_bool, False),
        pre_allocation=optional(raw, "preAllocationConfig", _pre_allocation, default.pre_allocation),
        ignored_resources=optional(raw, "ignoredResources", as_strings, ()),
        ignored_groups=optional(raw, "ignoredResourceGroups", as_strings, ()),
        skip_fits_node=skip_fits_node,
        matching=optional(raw, "matching", _matching, default.matching),
    )
    numbers: dict[str, int] = {
        path: optional(raw, path, as_int, getattr(args, name)) for path, name in _NUMBERS.items()
    }
    problems = (*_problems_of_numbers(numbers), *_problems(args))
    if problems:
        raise ManifestError(problems)
    fields: dict[str, Any] = {name: numbers[path] for path, name in _NUMBERS.items()}
    return attrs.evolve(args, **fields)
