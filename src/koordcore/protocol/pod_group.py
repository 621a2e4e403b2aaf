"""PodGroups of ``scheduling.sigs.k8s.io`` as objects, and the arguments of the plugin that reads them."""

from __future__ import annotations

import json

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.gangs import CoschedulingArgs, GangFit, PodGroup, PodGroupStatus
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_int,
    as_mapping,
    as_str,
    as_str_mapping,
    optional,
    required,
    show,
)
from koordcore.protocol.gang import ANNOTATION_GROUPS, NO_FIELDS, parse_groups


def parse_pod_group(raw: Json) -> PodGroup:
    """Read a PodGroup object; its ``groups`` annotation may be a YAML list.

    Raises
    ------
    ManifestError
        With the path of what has the wrong shape.
    """
    body = as_mapping(raw)
    named = required(body, "metadata", _pod_group_metadata)
    least, seconds = optional(body, "spec", _pod_group_spec, (0, None))
    status = optional(body, "status", _pod_group_status, PodGroupStatus())
    return attrs.evolve(named, min_member=least, schedule_timeout_seconds=seconds, status=status)


def _pod_group_metadata(raw: Json) -> PodGroup:
    metadata = as_mapping(raw)
    annotations = dict(optional(metadata, "annotations", as_mapping, NO_FIELDS))
    groups = annotations.get(ANNOTATION_GROUPS)
    if isinstance(groups, list):
        annotations[ANNOTATION_GROUPS] = _json_list(parse_groups(groups))
    return PodGroup(
        namespace=optional(metadata, "namespace", as_str, "default"),
        name=required(metadata, "name", as_str),
        annotations=immutabledict(as_str_mapping(annotations)),
        created=optional(metadata, "creationTimestamp", _maybe_str, None),
    )


def _pod_group_spec(raw: Json) -> tuple[int, int | None]:
    spec = as_mapping(raw)
    seconds = optional(spec, "scheduleTimeoutSeconds", _maybe_int, None)
    return optional(spec, "minMember", as_int, 0), seconds


def _json_list(items: tuple[str, ...]) -> str:
    return json.dumps(list(items))


def _maybe_int(value: Json) -> int | None:
    return as_int(value)


def _maybe_str(value: Json) -> str | None:
    return as_str(value)


def _pod_group_status(raw: Json) -> PodGroupStatus:
    status = as_mapping(raw)
    return PodGroupStatus(
        phase=optional(status, "phase", as_str, ""),
        occupied_by=optional(status, "occupiedBy", as_str, ""),
        scheduled=optional(status, "scheduled", as_int, 0),
        running=optional(status, "running", as_int, 0),
        succeeded=optional(status, "succeeded", as_int, 0),
        failed=optional(status, "failed", as_int, 0),
        schedule_start_time=optional(status, "scheduleStartTime", _maybe_str, None),
    )


def format_pod_group_status(status: PodGroupStatus) -> dict[str, Json]:
    """Write a PodGroup status in the shape of its JSON."""
    return {
        "phase": str(status.phase),
        "occupiedBy": status.occupied_by,
        "scheduled": status.scheduled,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "scheduleStartTime": status.schedule_start_time,
    }


def _gang_fit(value: Json) -> GangFit:
    text = as_str(value)
    if text not in tuple(GangFit):
        raise ManifestError.at("", f"expected {' or '.join(GangFit)}, got {show(value)}")
    return GangFit(text)


def parse_coscheduling_args(raw: Json) -> CoschedulingArgs:
    """Read CoschedulingArgs; what is absent takes its default. ``gangFit`` is ours.

    Raises
    ------
    ManifestError
        When a field has the wrong shape.
    ModelError
        When a value is refused, with upstream's text.
    """
    body = as_mapping(raw)
    default = CoschedulingArgs()
    return CoschedulingArgs(
        default_timeout=optional(body, "defaultTimeout", as_duration, default.default_timeout),
        default_match_policy=optional(body, "defaultMatchPolicy", as_str, default.default_match_policy),
        controller_workers=optional(body, "controllerWorkers", as_int, default.controller_workers),
        enable_preemption=optional(body, "enablePreemption", as_bool, False),
        aware_network_topology=optional(body, "awareNetworkTopology", as_bool, False),
        gang_fit=optional(body, "gangFit", _gang_fit, default.gang_fit),
    )
