"""Workloads of Kueue that a plan gives quota, as plain JSON and back."""

from __future__ import annotations

from typing import Any

from koordcore.model.kueue import AdmittedWorkload
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_mapping,
    as_str,
    as_str_mapping,
    list_of,
    optional,
    required,
)


def admitted_record(one: AdmittedWorkload) -> dict[str, Any]:
    """Write a Workload that gets quota as JSON values."""
    return {
        "workload": one.workload,
        "clusterQueue": one.queue,
        "admitted": True,
        "flavors": dict(one.flavors),
    }


def admitted_from_records(value: Json) -> tuple[AdmittedWorkload, ...]:
    """Read those that get quota; why others wait follows from the rest of a plan."""
    return tuple(one for one in list_of(_admitted)(value) if one is not None)


def _admitted(value: Json) -> AdmittedWorkload | None:
    raw = as_mapping(value)
    if not required(raw, "admitted", as_bool):
        return None
    return AdmittedWorkload(
        workload=required(raw, "workload", as_str),
        queue=required(raw, "clusterQueue", as_str),
        flavors=optional(raw, "flavors", as_str_mapping, {}),
    )
