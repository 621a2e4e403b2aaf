"""What a node, or a reservation, keeps back for itself: one annotation with amounts and CPUs.

Rules: upstream ``apis/extension/node_reservation.go`` and ``pkg/util/node.go``. Keys match without case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.metrics import NOTHING_MEASURED, Measured, parse_measured
from koordcore.model.quantity import NANO
from koordcore.model.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    NO_RESOURCES,
    Resources,
    make_resources,
    parse_resources,
)
from koordcore.protocol.fields import Json, as_mapping, as_str, optional
from koordcore.protocol.numa import read_annotation
from koordcore.topology.cpu import NO_CPUS, CPUSet, parse_cpulist

NODE_RESERVATION: Final = "node.koordinator.sh/reservation"
KEPT_AT: Final = f"metadata.annotations[{NODE_RESERVATION}]"
"""Where a Node says what it keeps, as paths have it."""

_CPUS_ONLY: Final = "ReservedCPUsOnly"
APPLY_POLICIES: Final = ("Default", _CPUS_ONLY)
"""What ``applyPolicy`` may be; any other text means the first."""
_CPU_RANGE: Final = re.compile(r"(0{0,99}[0-9]{1,9})(?:-(0{0,99}[0-9]{1,9}))?\Z", re.ASCII)


def cpuset_size(text: str) -> int:
    """Count the cpus of a list such as ``0-3,8``; an id given twice counts once.

    Raises
    ------
    ManifestError
        When the text is no such list.

    Examples
    --------
    >>> cpuset_size("0,2,4-7"), cpuset_size("0-3,2-5"), cpuset_size("")
    (6, 6, 0)
    """
    if not text:
        return 0
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        match = _CPU_RANGE.match(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if last < first:
            raise ManifestError.at("", f'expected cpus such as 0-3,8, got "{text[:60]}"')
        ranges.append((first, last))
    count, reached = 0, -1
    for first, last in sorted(ranges):
        count += max(last - max(first, reached + 1) + 1, 0)
        reached = max(reached, last)
    return count


def _listed(raw: Mapping[str, Json]) -> str:
    return optional(raw, "reservedCPUs", as_str, "", fold_case=True)


def _measured(value: Json) -> Measured:
    return parse_measured(as_mapping(value))


def _resources(value: Json) -> Resources:
    return parse_resources(as_mapping(value))


def _amounts(raw: Mapping[str, Json]) -> Resources:
    """Give what is kept back; the number of listed CPUs counts instead of the quantity."""
    amounts = dict(optional(raw, "resources", _resources, NO_RESOURCES, fold_case=True))
    if listed := _listed(raw):
        amounts[CPU] = 1000 * parse_cpulist(listed).bit_count()
    return make_resources(amounts)


def reserved_exactly(annotations: Mapping[str, str]) -> Measured:
    """Give what a node keeps back, exact.

    The number of ``reservedCPUs`` replaces ``resources.cpu``; ``applyPolicy`` plays no part here.

    Raises
    ------
    ManifestError
        When the annotation cannot be read; upstream's overcommit then takes it as empty.
    """
    raw = read_annotation(annotations, NODE_RESERVATION)
    if raw is None:
        return NOTHING_MEASURED
    try:
        resources = optional(raw, "resources", _measured, NOTHING_MEASURED, fold_case=True)
        cpus = _listed(raw)
        return immutabledict({**resources, CPU: cpuset_size(cpus) * NANO}) if cpus else resources
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{NODE_RESERVATION}]") from None


def inner_reserved(annotations: Mapping[str, str]) -> Resources:
    """Give what a reservation keeps from its owners.

    What cannot be read keeps nothing back, as upstream has it.
    """
    try:
        return _amounts(read_annotation(annotations, NODE_RESERVATION) or {})
    except ManifestError:
        return NO_RESOURCES


def reserved_cpus(annotations: Mapping[str, str]) -> CPUSet:
    """Give the CPUs that a node keeps back; none where they cannot be read."""
    try:
        return parse_cpulist(_listed(read_annotation(annotations, NODE_RESERVATION) or {}))
    except ManifestError:
        return NO_CPUS


def trimmed_allocatable(allocatable: Mapping[str, int], annotations: Mapping[str, str]) -> Resources:
    """Take what a node keeps back off its allocatable amounts.

    Amounts stay at zero or above, batch amounts are untouched and appear even where they are zero. An
    annotation for CPUs only, or one that cannot be read, takes nothing (upstream
    ``TrimNodeAllocatableByNodeReservation``).
    """
    try:
        raw = read_annotation(annotations, NODE_RESERVATION)
        if raw is None or optional(raw, "applyPolicy", as_str, "", fold_case=True) == _CPUS_ONLY:
            return make_resources(allocatable)
        reserved = _amounts(raw)
    except ManifestError:
        return make_resources(allocatable)
    if not reserved:
        return make_resources(allocatable)
    left = dict(allocatable)
    for name, amount in reserved.items():
        if name in left:
            # What is less than nothing keeps nothing back: no node offers more than it has.
            left[name] = max(0, left[name] - max(0, amount))
    for name in (BATCH_CPU, BATCH_MEMORY):
        left[name] = allocatable.get(name, 0)
    return make_resources(left)
