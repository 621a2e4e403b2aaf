"""PodMigrationJob on the wire, and what pods say about their migration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.durations import format_duration
from koordcore.model.migration import JobMode, JobPhase, PodMigrationJob
from koordcore.model.pods import PodKey
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_mapping,
    as_str,
    as_str_mapping,
    at,
    optional,
    optional_in,
    required,
    show,
)
from koordcore.protocol.times import parse_timestamp

ANNOTATION_EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
ANNOTATION_PASSED: Final = "descheduler.koordinator.sh/passed-arbitration"
ANNOTATION_ARBITRATING: Final = "descheduler.koordinator.sh/pod-arbitrating"
ANNOTATION_EVICTION_COST: Final = "scheduling.koordinator.sh/eviction-cost"
ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
ANNOTATION_EVICT_REASON: Final = "koordinator.sh/evict-reason"
ANNOTATION_EVICT_TRIGGER: Final = "koordinator.sh/evict-trigger"

MAX_COST: Final = 2**31 - 1
"""The cost of a pod that must never be evicted."""

_COST: Final = re.compile(r"-?(0|[1-9][0-9]{0,10})\Z", re.ASCII)


def cost_of(annotations: Mapping[str, str], name: str) -> int:
    """Read a cost; 0 where it is absent, outside 32 bits, or written with a plus or leading zeros.

    Examples
    --------
    >>> cost_of({"c": "-5"}, "c"), cost_of({"c": "+5"}, "c"), cost_of({"c": "2147483648"}, "c")
    (-5, 0, 0)
    """
    text = annotations.get(name, "")
    value = int(text) if _COST.match(text) else 0
    return value if -(2**31) <= value <= MAX_COST else 0


def _phase(value: Json) -> JobPhase:
    text = as_str(value)
    try:
        return JobPhase(text)
    except ValueError:
        raise ManifestError.at("", f"no phase of a job: {show(text)}") from None


def _mode(value: Json) -> JobMode | None:
    text = as_str(value)
    if not text:
        return None
    try:
        return JobMode(text)
    except ValueError:
        raise ManifestError.at("", f"expected {' or '.join(JobMode)}, got {show(text)}") from None


def _moment(value: Json) -> datetime:
    nanoseconds = parse_timestamp(as_str(value))
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)


def parse_job(raw: Mapping[str, Json]) -> PodMigrationJob:
    """Read a PodMigrationJob object.

    Raises
    ------
    ManifestError
        With the path of what cannot be read.
    """
    metadata = required(raw, "metadata", as_mapping)
    spec = optional(raw, "spec", as_mapping, {})
    status = optional(raw, "status", as_mapping, {})
    reference, place = optional_in("spec", spec, "podRef", as_mapping, None), "spec.podRef"
    pod, uid = None, ""
    if reference is not None:
        namespace = optional_in(place, reference, "namespace", as_str, "")
        pod = PodKey(namespace, optional_in(place, reference, "name", as_str, ""))
        uid = optional_in(place, reference, "uid", as_str, "")
    return PodMigrationJob(
        name=at("metadata", lambda _: required(metadata, "name", as_str), metadata),
        uid=optional_in("metadata", metadata, "uid", as_str, ""),
        annotations=optional_in("metadata", metadata, "annotations", as_str_mapping, {}),
        created=optional_in("metadata", metadata, "creationTimestamp", _moment, None),
        pod=pod,
        pod_uid=uid,
        mode=optional_in("spec", spec, "mode", _mode, None),
        ttl=optional_in("spec", spec, "ttl", as_duration, None),
        paused=optional_in("spec", spec, "paused", as_bool, False),
        phase=optional_in("status", status, "phase", _phase, JobPhase.NONE),
        status=optional_in("status", status, "status", as_str, ""),
        reason=optional_in("status", status, "reason", as_str, ""),
        message=optional_in("status", status, "message", as_str, ""),
    )


def format_job(job: PodMigrationJob) -> dict[str, Json]:
    """Write a job as a manifest."""
    spec: dict[str, Json] = {}
    if job.pod is not None:
        reference = {"namespace": job.pod.namespace, "name": job.pod.name}
        spec["podRef"] = reference | ({"uid": job.pod_uid} if job.pod_uid else {})
    if job.mode is not None:
        spec["mode"] = str(job.mode)
    if job.ttl is not None:
        spec["ttl"] = format_duration(job.ttl)
    if job.paused:
        spec["paused"] = True
    metadata: dict[str, Json] = {"name": job.name}
    if job.annotations:
        metadata["annotations"] = dict(sorted(job.annotations.items()))
    written: dict[str, Json] = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": metadata,
        "spec": spec,
    }
    if job.phase:
        written["status"] = {"phase": str(job.phase)}
    return written
