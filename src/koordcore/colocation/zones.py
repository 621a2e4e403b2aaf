"""Batch amounts of NUMA nodes, as they are written to NodeResourceTopology objects."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore._record import record
from koordcore.colocation.sync import NodeResource, amplification_of, amplified, is_different, is_due
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    ColocationStrategy,
    overlay,
)
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY


@record
class ZoneResource:
    """One resource of a NUMA node in its topology object, exact amounts."""

    name: str
    capacity: int
    allocatable: int
    available: int


@record
class ZoneStatus:
    """One NUMA node of a topology object, resources in its order."""

    name: str
    resources: tuple[ZoneResource, ...] = ()


@record
class ZoneUpdate:
    """The zones of a topology object after a cycle, and whether the object is written."""

    updated: bool
    zones: tuple[ZoneStatus, ...]


def update_zones(
    zones: tuple[ZoneStatus, ...],
    resource: NodeResource,
    strategy: ColocationStrategy,
    *,
    last_update: int | None,
    now: int,
) -> ZoneUpdate:
    """Put a cycle's amounts on the NUMA nodes of a topology object.

    A number that changed by no more than the threshold keeps its old value, even when others are written.
    Unlike those of a node, a zone's numbers may be fractions: they are written as the cycle gave them.
    Batch amounts of a zone that the cycle does not name are set to zero; upstream means to and does not
    (ruling 11).

    Parameters
    ----------
    zones
        The object as stored; without cpu or memory anywhere it is left alone.
    resource
        The cycle's results; its ratio amplifies batch cpu.
    strategy
        Its time and difference thresholds count; defaults where it says nothing.
    last_update
        Moment of the last write of the object; ``None`` before the first.
    now
        Moment of the decision, nanoseconds since 1970.
    """
    if not any(one.name in (CPU, MEMORY) for zone in zones for one in zone.resources):
        return ZoneUpdate(False, zones)
    strategy = overlay(DEFAULT_STRATEGY, strategy)
    threshold = strategy.resource_diff_threshold or 0.0
    ratio = amplification_of(resource.annotations)
    done = []
    for zone in zones:
        fresh = resource.zone_resources.get(zone.name)
        if fresh is None:
            done.append(_emptied(zone))
            continue
        amounts = {
            name: amplified(amount, ratio) if name == BATCH_CPU else amount for name, amount in fresh.items()
        }
        done.append(_merged(zone, amounts, threshold))
    due = bool(resource.zone_resources) and is_due(last_update, strategy.update_time_threshold_seconds, now)
    return ZoneUpdate(due or tuple(done) != zones, tuple(done))


def _emptied(zone: ZoneStatus) -> ZoneStatus:
    resources = tuple(
        ZoneResource(one.name, 0, 0, 0) if one.name in (BATCH_CPU, BATCH_MEMORY) else one
        for one in zone.resources
    )
    return ZoneStatus(zone.name, resources)


def _merged(zone: ZoneStatus, amounts: Mapping[str, int], threshold: float) -> ZoneStatus:
    def newer(old: int, new: int) -> int:
        return new if is_different(old, new, threshold) else old

    resources = [
        ZoneResource(
            one.name,
            newer(one.capacity, amounts[one.name]),
            newer(one.allocatable, amounts[one.name]),
            newer(one.available, amounts[one.name]),
        )
        if one.name in amounts
        else one
        for one in zone.resources
    ]
    known = {one.name for one in zone.resources}
    added = [ZoneResource(name, new, new, new) for name, new in sorted(amounts.items()) if name not in known]
    if added:
        resources = sorted([*resources, *added], key=lambda one: one.name)
    return ZoneStatus(zone.name, tuple(resources))
