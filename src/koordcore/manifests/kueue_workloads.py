"""Kueue's Workloads: what waits in its queues, and what it has given to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading, as_time, read_metadata, section
from koordcore.model.kueue import KueueWorkload, PodSet, PodSetAssignment, TopologyRequest
from koordcore.model.resources import NO_RESOURCES, parse_resources
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_labels,
    as_mapping,
    as_str,
    list_of,
    optional,
    required,
)

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
GROUP = "kueue.x-k8s.io/podset-group-name"
"""Annotations of a pod template: its topology request, before Kueue has made the Workload."""
_SENT_BACK: Final = ("PodsReadyTimeout", "AdmissionCheck")
"""Reasons of an eviction from which on a Workload's age counts anew."""
MOST_PODS = 100_000
"""Pods of one pod set; more are a slip of the pen."""


def topology_annotations(written: Mapping[str, Json]) -> dict[str, Json]:
    """Write a template's annotations as the topology request that Kueue makes of them."""
    notes = {key: text for key, text in written.items() if isinstance(text, str)}
    fields = {
        "required": notes.get(REQUIRED),
        "preferred": notes.get(PREFERRED),
        "unconstrained": notes.get(UNCONSTRAINED) == "true" or None,
        "podSetGroupName": notes.get(GROUP),
        "podSetSliceRequiredTopology": notes.get(SLICE_LEVEL),
        "podSetSliceSize": int(notes[SLICE_SIZE]) if notes.get(SLICE_SIZE, "").isdecimal() else None,
    }
    return {name: value for name, value in fields.items() if value}


def read_kueue_workload(reading: Reading, raw: Mapping[str, Json]) -> KueueWorkload:
    """Decode a Workload of ``kueue.x-k8s.io``; that of ``scheduling.k8s.io`` is another kind."""
    meta = read_metadata(reading, raw)
    spec, status = section(reading, raw, "spec"), section(reading, raw, "status")
    conditions = reading.take(status, "conditions", "status", list_of(as_mapping), ())
    true = {
        str(one.get("type")): (number, one)
        for number, one in enumerate(conditions)
        if one.get("status") == "True"
    }
    evicted = _since(reading, true, "Evicted")
    # Who was preempted keeps its turn; who did not come up, or was turned down by a check, goes behind.
    back_in_line = "Evicted" in true and true["Evicted"][1].get("reason") in _SENT_BACK
    admission = section(reading, status, "admission", "status")
    requeuing = section(reading, status, "requeueState", "status")
    sets = reading.take(spec, "podSets", "spec", list_of(_pod_set), ())
    if not sets:
        reading.problem("spec.podSets", "required")
    if any(one.topology.slice_size > 1 and not one.topology.slice_level for one in sets):
        reading.warn("spec.podSets", "a slice size without the level of slices binds nothing")
    back = dict(reading.take(status, "reclaimablePods", "status", list_of(_reclaimed), ()))
    admitted_by = reading.take(admission, "clusterQueue", "status.admission", as_str, "")
    return KueueWorkload(
        name=meta.name,
        namespace=meta.namespace,
        queue=reading.take(spec, "queueName", "spec", as_str, ""),
        priority=reading.take(spec, "priority", "spec", as_int, 0),
        created=_later(meta.created, evicted) if back_in_line else meta.created,
        pod_sets=sets if admitted_by else tuple(_still(one, back) for one in sets),
        active=reading.take(spec, "active", "spec", as_bool, True),
        finished="Finished" in true or meta.deleted is not None,
        held_back=any(one.get("type") == "Requeued" and one.get("status") == "False" for one in conditions),
        requeue_at=reading.take(requeuing, "requeueAt", "status.requeueState", as_time, None),
        admitted_by=admitted_by,
        assignments=_less(
            reading.take(admission, "podSetAssignments", "status.admission", list_of(_assignment), ()),
            back,
            sets,
        ),
        reserved=_since(reading, true, "QuotaReserved") if admitted_by else None,
        leaving=bool(admitted_by) and "Evicted" in true,
    )


def _since(
    reading: Reading, true: Mapping[str, tuple[int, Mapping[str, Json]]], kind: str
) -> datetime | None:
    """Read since when a condition is true; ``None`` where it is not."""
    number, condition = true.get(kind, (0, {}))
    return reading.take(condition, "lastTransitionTime", f"status.conditions[{number}]", as_time, None)


def _later(created: datetime | None, evicted: datetime | None) -> datetime | None:
    return evicted if created is None or (evicted is not None and evicted > created) else created


def _pod_set(raw: Json) -> PodSet:
    entry = as_mapping(raw)
    count = optional(entry, "count", _count, 1)
    # Its pods are made of it elsewhere; here is said what is wrong with it.
    optional(entry, "template", _check_template, None)
    return PodSet(
        name=optional(entry, "name", as_str, "main"),
        count=count,
        least=optional(entry, "minCount", _least, count),
        topology=optional(entry, "topologyRequest", _topology, TopologyRequest()),
    )


def _check_template(value: Json) -> None:
    template = as_mapping(value)
    for part in ("metadata", "spec"):
        optional(template, part, as_mapping, {})


def _count(value: Json) -> int:
    number = as_int(value)
    if not 0 <= number <= MOST_PODS:
        raise ManifestError.at("", f"expected 0 to {MOST_PODS}, got {number}")
    return number


def _least(value: Json) -> int:
    number = _count(value)
    if not number:
        raise ManifestError.at("", "expected 1 or more, got 0")
    return number


def _topology(raw: Json) -> TopologyRequest:
    entry = as_mapping(raw)
    return TopologyRequest(
        required=optional(entry, "required", as_str, ""),
        preferred=optional(entry, "preferred", as_str, ""),
        slice_level=optional(entry, "podSetSliceRequiredTopology", as_str, ""),
        slice_size=optional(entry, "podSetSliceSize", _count, 0),
        group=optional(entry, "podSetGroupName", as_str, ""),
        unconstrained=optional(entry, "unconstrained", as_bool, False),
    )


def _assignment(raw: Json) -> tuple[PodSetAssignment, int | None]:
    """Read what a pod set was given, and for how many pods; for all of them where it does not say."""
    entry = as_mapping(raw)
    given = PodSetAssignment(
        name=optional(entry, "name", as_str, "main"),
        flavors=optional(entry, "flavors", as_labels, {}),
        usage=optional(entry, "resourceUsage", lambda one: parse_resources(as_mapping(one)), NO_RESOURCES),
    )
    return given, optional(entry, "count", _count, None)


def _reclaimed(raw: Json) -> tuple[str, int]:
    entry = as_mapping(raw)
    return required(entry, "name", as_str), required(entry, "count", _count)


def _still(one: PodSet, back: Mapping[str, int]) -> PodSet:
    """Give a pod set without the pods that have ended."""
    left = max(0, one.count - back.get(one.name, 0))
    return attrs.evolve(one, count=left, least=min(one.least, left))


def _less(
    given: Sequence[tuple[PodSetAssignment, int | None]], back: Mapping[str, int], sets: Sequence[PodSet]
) -> tuple[PodSetAssignment, ...]:
    """Leave out the quota of pods that have ended and given it back.

    A pod set that was admitted with fewer pods than it has gives quota back once so few are left.
    """
    counts = {one.name: one.count for one in sets}
    left = {one.name: _still(one, back).count for one in sets}
    found = []
    for one, stated in given:
        count = counts.get(one.name, 0) if stated is None else stated
        now = min(count, left.get(one.name, count))
        usage = one.usage if now == count else {name: each // count * now for name, each in one.usage.items()}
        found.append(attrs.evolve(one, usage=usage))
    return tuple(found)
