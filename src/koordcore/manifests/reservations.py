"""Reservations, as the API server stores them and as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import Reading, as_countable, as_time, choice, read_metadata, section
from koordcore.manifests.aliases import as_written, canonical_names
from koordcore.manifests.held_claims import read_held_claims
from koordcore.manifests.pods import read_pod
from koordcore.model.affinity import TaintEffect
from koordcore.model.durations import HOUR
from koordcore.model.pods import Pod
from koordcore.model.reservations import (
    AllocatePolicy,
    ConditionStatus,
    PreAllocationMode,
    PreAllocationPolicy,
    Reservation,
    ReservationCondition,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.resources import HELD_LIMIT, Resources
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_int,
    as_list,
    as_mapping,
    as_str,
    list_of,
    optional,
)
from koordcore.protocol.reservation import (
    HELD_CLAIMS,
    RESIZE_ALLOCATABLE,
    RESTRICTED_OPTIONS,
    resized_allocatable,
    restricted_resources,
)
from koordcore.protocol.reservation_owners import as_object_reference, as_owner, owners_error
from koordcore.protocol.selectors import as_taints

_HARD: Final = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
_DEFAULT_TTL: Final = 24 * HOUR

_policy: Final = choice(AllocatePolicy)
_phase: Final = choice(ReservationPhase)
_mode: Final = choice(PreAllocationMode)
_condition_status: Final = choice(ConditionStatus)


def reservation_from_manifest(raw: Mapping[str, Json]) -> Reservation:
    """Decode one Reservation object.

    An object without a uid has not met the API server yet: an absent ``ttl`` then means its default of 24
    hours.

    Raises
    ------
    ManifestError
        With every problem of the object.

    Examples
    --------
    >>> one = reservation_from_manifest({
    ...     "metadata": {"name": "r1"},
    ...     "spec": {
    ...         "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
    ...         "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}},
    ...     },
    ... })
    >>> one.requests, one.owners[0].selector.matches({"app": "demo"})
    (immutabledict({'cpu': 4000}), True)
    """
    reading = Reading()
    reservation = read_reservation(reading, raw)
    reading.finish()
    return reservation


def read_reservation(reading: Reading, raw: Mapping[str, Json]) -> Reservation:
    """Decode a Reservation; problems go to ``reading``, and with one the record is worthless."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    template, priority = _template(reading, spec, meta.name)
    owners, unreadable = _owners(reading, spec)
    ttl = reading.take(spec, "ttl", "spec", as_duration, None)
    expires = reading.take(spec, "expires", "spec", as_time, None)
    if not meta.uid and ttl is None and expires is None:
        ttl = _DEFAULT_TTL
    for key, read in ((RESTRICTED_OPTIONS, restricted_resources), (RESIZE_ALLOCATABLE, resized_allocatable)):
        try:
            read(meta.annotations)
        except ManifestError as error:
            reading.warn(f"metadata.annotations[{key}]", f"cannot be read: {error.problems[0].message}")
    if unreadable:
        reading.warn("spec.owners", f"matches nobody: {unreadable}")
    taints = reading.recall(spec, "taints", "spec", as_taints, ())
    if any(taint.effect in _HARD for taint in taints):
        message = (
            "keep out owners with a reservation affinity alone; others tolerate them, as upstream has it"
        )
        reading.warn("spec.taints", message)
    return Reservation(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        claims=reading.take(meta.annotations, HELD_CLAIMS, "metadata.annotations", read_held_claims, ()),
        template=template,
        template_priority=priority,
        owners=owners,
        owners_error=unreadable,
        ttl=ttl,
        expires=expires,
        allocate_once=reading.take(spec, "allocateOnce", "spec", as_bool, True),
        allocate_policy=reading.take(spec, "allocatePolicy", "spec", _policy, AllocatePolicy.DEFAULT),
        pre_allocation=reading.take(spec, "preAllocation", "spec", as_bool, False),
        pre_allocation_policy=reading.take(
            spec, "preAllocationPolicy", "spec", _pre_allocation, PreAllocationPolicy()
        ),
        unschedulable=reading.take(spec, "unschedulable", "spec", as_bool, False),
        taints=taints,
        created=meta.created,
        deleted=meta.deleted,
        status=_status(reading, section(reading, raw, "status")),
    )


def still_held(read: Reservation, problems: Iterable[Problem], why: str) -> Reservation | None:
    """Give what a reservation that cannot be read is known to hold on its node; ``None`` for nothing.

    Its time is never up, nobody else may use it, and one whose phase is not known counts as there.
    """
    wrong = [problem.path for problem in problems]
    status = read.status
    if "status.phase" in wrong:
        status = attrs.evolve(status, phase=ReservationPhase.AVAILABLE)
    template = read.template
    if template is not None:
        counted, scored = (
            {name: amount for name, amount in amounts.items() if amount <= HELD_LIMIT}
            for amounts in (template.requests, template.scored_requests)
        )
        template = attrs.evolve(template, requests=counted, scored_requests=scored)
    if status.allocatable is not None:
        granted = {name: amount for name, amount in status.allocatable.items() if amount <= HELD_LIMIT}
        status = attrs.evolve(status, allocatable=granted)
    held = attrs.evolve(read, template=template, status=status, owners=(), owners_error=why, unreadable=why)
    if {"metadata.creationTimestamp", "spec.ttl", "spec.expires"}.intersection(wrong):
        held = attrs.evolve(held, ttl=0, expires=None)
    return held if held.active and (status.allocatable or held.requests) else None


def _template(reading: Reading, spec: Mapping[str, Json], name: str) -> tuple[Pod | None, int | None]:
    """Read the pod whose room is held; nothing is filled in, because nobody fills templates in."""
    if spec.get("template") is None:
        return None, None
    template = section(reading, spec, "template", "spec")
    metadata = section(reading, template, "metadata", "spec.template")
    inner = Reading(reading.memory)
    body = section(reading, template, "spec", "spec.template")
    # A uid marks the object as stored, so that limits do not become requests.
    read = read_pod(inner, {"metadata": {**metadata, "name": name, "uid": "template"}, "spec": body})
    reading.problems += (problem.within("spec.template") for problem in inner.problems)
    reading.warnings += (problem.within("spec.template") for problem in inner.warnings)
    return read.pod, optional(body, "priority", as_int, None) if not inner.problems else None


def _owners(reading: Reading, spec: Mapping[str, Json]) -> tuple[tuple[ReservationOwner, ...], str]:
    """Read the owners; a selector that is none spoils them all, as upstream has it."""
    wrong = owners_error(reading.take(spec, "owners", "spec", as_list, []))
    return ((), wrong) if wrong else (reading.take(spec, "owners", "spec", list_of(as_owner), ()), "")


def _pre_allocation(value: Json) -> PreAllocationPolicy:
    raw = as_mapping(value)
    return PreAllocationPolicy(
        mode=optional(raw, "mode", _mode_of, PreAllocationMode.DEFAULT),
        enable_multiple=optional(raw, "enableMultiple", as_bool, False),
    )


def _mode_of(value: Json) -> PreAllocationMode:
    return PreAllocationMode.DEFAULT if value == "" else _mode(value)


def _condition(value: Json) -> ReservationCondition:
    raw = as_mapping(value)
    return ReservationCondition(
        kind=optional(raw, "type", as_str, ""),
        status=optional(raw, "status", _condition_status, ConditionStatus.UNKNOWN),
        reason=optional(raw, "reason", as_str, ""),
        message=optional(raw, "message", as_str, ""),
        probed=optional(raw, "lastProbeTime", as_time, None),
        changed=optional(raw, "lastTransitionTime", as_time, None),
    )


def _amounts(value: Json) -> Resources:
    """Read amounts by names of today; the pods of the template are read so, too."""
    written = as_mapping(value)
    try:
        return as_countable(canonical_names(written)[0])
    except ManifestError as error:
        raise as_written(error, written) from None


def _status(reading: Reading, raw: Mapping[str, Json]) -> ReservationStatus:
    return ReservationStatus(
        phase=reading.take(raw, "phase", "status", _phase, ReservationPhase.UNSET),
        node_name=reading.take(raw, "nodeName", "status", as_str, ""),
        allocatable=reading.take(raw, "allocatable", "status", _amounts, None),
        allocated=reading.take(raw, "allocated", "status", _amounts, None),
        current_owners=reading.take(raw, "currentOwners", "status", list_of(as_object_reference), ()),
        conditions=reading.take(raw, "conditions", "status", list_of(_condition), ()),
    )
