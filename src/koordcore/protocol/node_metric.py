"""The NodeMetric object on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.durations import SECOND
from koordcore.model.metrics import (
    NOTHING_MEASURED,
    AggregatedUsage,
    HostApplicationMetric,
    Measured,
    NodeMetric,
    PodMetric,
    parse_measured,
)
from koordcore.protocol.fields import (
    Json,
    as_duration,
    as_int,
    as_list,
    as_mapping,
    as_str,
    collect,
    list_of,
    optional,
    optional_in,
)
from koordcore.protocol.times import parse_timestamp

T = TypeVar("T")

_EMPTY: Final[Mapping[str, Json]] = immutabledict()


def _at(path: str, convert: Callable[[Json], T], value: Json) -> T:
    try:
        return convert(value)
    except ManifestError as error:
        raise error.within(path) from None


def _resource_list(value: Json) -> Measured:
    return parse_measured(as_mapping(value))


def _usage(value: Json) -> Measured:
    # Go reads null as the empty value, also inside maps and lists.
    return optional(
        _EMPTY if value is None else as_mapping(value), "resources", _resource_list, NOTHING_MEASURED
    )


def _aggregated(value: Json) -> AggregatedUsage:
    raw = _EMPTY if value is None else as_mapping(value)
    statistics = optional(raw, "usage", as_mapping, _EMPTY)
    return AggregatedUsage(
        optional(raw, "duration", as_duration, 0),
        immutabledict((name, _at(f"usage.{name}", _usage, one)) for name, one in sorted(statistics.items())),
    )


def _pod(value: Json) -> PodMetric:
    raw = as_mapping(value)
    return PodMetric(
        namespace=optional(raw, "namespace", as_str, ""),
        name=optional(raw, "name", as_str, ""),
        priority=optional(raw, "priority", as_str, ""),
        usage=optional(raw, "podUsage", _usage, NOTHING_MEASURED),
    )


def _pods(value: Json) -> tuple[PodMetric, ...]:
    # The list holds pointers upstream; a null among them is passed over.
    found = collect(lambda one: None if one is None else _pod(one), as_list(value))
    return tuple(one for one in found if one is not None)


def _host_application(value: Json) -> HostApplicationMetric:
    raw = as_mapping(value)
    return HostApplicationMetric(
        name=optional(raw, "name", as_str, ""),
        priority=optional(raw, "priority", as_str, ""),
        qos=optional(raw, "qos", as_str, ""),
        usage=optional(raw, "usage", _usage, NOTHING_MEASURED),
    )


def _moment(value: Json) -> int:
    return parse_timestamp(as_str(value))


def _reclaimable(value: Json) -> Measured | None:
    return optional(as_mapping(value), "resource", _usage, None)


def _status(value: Json) -> NodeMetric:
    status = as_mapping(value)
    body = optional(status, "nodeMetric", as_mapping, None)
    inner = body or {}
    return NodeMetric(
        node="",
        update_time=optional(status, "updateTime", _moment, None),
        node_usage=None if body is None else _at("nodeMetric", _node_usage, inner),
        system_usage=_at("nodeMetric", _system_usage, inner),
        aggregated_node_usages=_at("nodeMetric", _aggregated_node, inner),
        aggregated_system_usages=_at("nodeMetric", _aggregated_system, inner),
        pods=optional(status, "podsMetric", _pods, ()),
        host_applications=optional(status, "hostApplicationMetric", list_of(_host_application), ()),
        prod_reclaimable=optional(status, "prodReclaimableMetric", _reclaimable, None),
    )


def _node_usage(value: Json) -> Measured:
    return optional(as_mapping(value), "nodeUsage", _usage, NOTHING_MEASURED)


def _system_usage(value: Json) -> Measured:
    return optional(as_mapping(value), "systemUsage", _usage, NOTHING_MEASURED)


def _aggregated_node(value: Json) -> tuple[AggregatedUsage, ...]:
    return optional(as_mapping(value), "aggregatedNodeUsages", list_of(_aggregated), ())


def _aggregated_system(value: Json) -> tuple[AggregatedUsage, ...]:
    return optional(as_mapping(value), "aggregatedSystemUsages", list_of(_aggregated), ())


def _report_interval(value: Json) -> int | None:
    policy = optional(as_mapping(value), "metricCollectPolicy", as_mapping, _EMPTY)
    seconds = optional_in("metricCollectPolicy", policy, "reportIntervalSeconds", as_int, None)
    return None if seconds is None else seconds * SECOND


def parse_node_metric(raw: Mapping[str, Json]) -> NodeMetric:
    """Read a NodeMetric object.

    Parameters
    ----------
    raw
        The object as stored by Kubernetes: ``metadata``, ``spec`` and ``status``.

    Raises
    ------
    ManifestError
        With the path of what cannot be read.
    """
    metadata = optional(raw, "metadata", as_mapping, _EMPTY)
    status = optional(raw, "status", _status, NodeMetric(node=""))
    return attrs.evolve(
        status,
        node=_at("metadata", lambda value: optional(as_mapping(value), "name", as_str, ""), metadata),
        report_interval=optional(raw, "spec", _report_interval, None),
    )
