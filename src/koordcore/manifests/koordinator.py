"""Which function decodes which kind of Koordinator.

One line per kind: an adapter around the parser that the kind's room has in :mod:`koordcore.protocol`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests._reading import Reading, read_metadata
from koordcore.manifests.colocation_texts import profile_read
from koordcore.manifests.kubernetes import Decoder
from koordcore.manifests.reservations import read_reservation
from koordcore.manifests.scheduler_config import read_scheduler_configuration
from koordcore.model.devices import DeviceObject
from koordcore.model.gangs import PodGroup
from koordcore.model.mappings import EMPTY
from koordcore.model.migration import PodMigrationJob
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota, QuotaProfile
from koordcore.model.resources import AMOUNT_LIMIT
from koordcore.protocol.device_object import device_object_from_manifest
from koordcore.protocol.fields import Json, as_mapping, as_str, optional, optional_in
from koordcore.protocol.gang import gang_from_pod_group
from koordcore.protocol.migration import parse_job
from koordcore.protocol.network_topology import parse_cluster_network_topology
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.numa_nodes import node_resource_topology_of, unheeded
from koordcore.protocol.pod_group import parse_pod_group
from koordcore.protocol.quota import (
    QuotaObject,
    annotations_of,
    elastic_quota_from_object,
    profile_in_vain,
    quota_object,
    quota_profile_from_object,
)
from koordcore.topology.network import order_layers

_SCHEDULING: Final = "scheduling.koordinator.sh"
_SIGS: Final = "scheduling.sigs.k8s.io"


def one(parse: Callable[[Mapping[str, Json]], Any], *, namespaced: bool = False) -> Decoder:
    """Make a decoder of a parser that gives one record and raises what is wrong."""

    def decode(reading: Reading, raw: Mapping[str, Json]) -> Any:
        return parse(_as_stored(reading, raw, namespaced=namespaced))

    return decode


def warned(
    parse: Callable[[Mapping[str, Json]], tuple[Any, tuple[Problem, ...]]], *, namespaced: bool = True
) -> Decoder:
    """Make a decoder of a parser that gives a record and what upstream silently ignores in it."""

    def decode(reading: Reading, raw: Mapping[str, Json]) -> Any:
        record, warnings = parse(_as_stored(reading, raw, namespaced=namespaced))
        reading.warnings += warnings
        return record

    return decode


def _as_stored(reading: Reading, raw: Mapping[str, Json], *, namespaced: bool) -> Mapping[str, Json]:
    """Check the metadata; give the object as it would be stored: with its namespace, annotations as texts."""
    meta = read_metadata(reading, raw, namespaced=namespaced)
    written = as_mapping(raw.get("metadata") or {})
    stored: dict[str, Json] = {**written, "annotations": dict(meta.annotations)}
    if namespaced:
        stored["namespace"] = meta.namespace
    return {**raw, "metadata": stored}


def _pod_group(raw: Mapping[str, Json]) -> tuple[PodGroup, tuple[Problem, ...]]:
    pod_group = parse_pod_group(raw)
    gang = gang_from_pod_group(pod_group)
    return pod_group, (*gang.unreadable, *gang.defaulted)


def _network_topology(raw: Mapping[str, Json]) -> tuple[ClusterNetworkTopology, tuple[Problem, ...]]:
    metadata = as_mapping(raw["metadata"])
    topology = ClusterNetworkTopology(str(metadata.get("name")), parse_cluster_network_topology(raw))
    try:
        order_layers(topology.layers)
    except ModelError as error:
        raise ManifestError.at("spec.networkTopologySpec", str(error)) from None
    return topology, ()


def _migration_job(raw: Mapping[str, Json]) -> PodMigrationJob:
    job, spec, place = parse_job(raw), optional(raw, "spec", as_mapping, EMPTY), "spec.reservationOptions"
    options = optional_in("spec", spec, "reservationOptions", as_mapping, EMPTY)
    reference = optional_in(place, options, "reservationRef", as_mapping, EMPTY)
    name = optional_in(f"{place}.reservationRef", reference, "name", as_str, "")
    return attrs.evolve(job, reservation=name) if name else job


@record
class Policies:
    """The policies of one scheduler configuration, which has no name of its own."""

    policies: tuple[Policy, ...]


def _scheduler_configuration(reading: Reading, raw: Mapping[str, Json]) -> Policies:
    return Policies(read_scheduler_configuration(reading, raw))


def _device(raw: Mapping[str, Json]) -> tuple[DeviceObject, tuple[Problem, ...]]:
    device = device_object_from_manifest(raw)
    sums = Counter[str]()
    for one in device.devices:
        for name, amount in one.resources.items():
            place, sums[name] = f"{one.type.value} {one.minor}: {name}", sums[name] + amount
            if amount < 0:
                raise ManifestError.at("spec.devices", f"{place} must not be negative, got {amount}")
            if sums[name] > AMOUNT_LIMIT:
                message = f"{place} is more than can be counted, {AMOUNT_LIMIT} in all, got {amount}"
                raise ManifestError.at("spec.devices", message)
    split = (warning.partition(": ") for warning in device.warnings)
    return device, tuple(Problem(path, message) for path, _, message in split)


def _node_topology(raw: Mapping[str, Json]) -> tuple[NodeResourceTopology, tuple[Problem, ...]]:
    return node_resource_topology_of(raw), tuple(unheeded(raw))


@record
class QuotaReading:
    """An ElasticQuota as the scheduler takes it, and as it was written, for the rules of the webhook."""

    quota: ElasticQuota
    written: QuotaObject


def _quota(reading: Reading, raw: Mapping[str, Json]) -> QuotaReading:
    stored = _as_stored(reading, raw, namespaced=True)
    quota, warnings = elastic_quota_from_object(stored)
    reading.warnings += warnings
    return QuotaReading(quota, quota_object(stored))


def _quota_profile(raw: Mapping[str, Json]) -> tuple[QuotaProfile, tuple[Problem, ...]]:
    profile = quota_profile_from_object(raw)
    return profile, tuple(profile_in_vain(profile, annotations_of(raw)))


KOORDINATOR: Final[Mapping[tuple[str, str], Decoder]] = {
    (_SCHEDULING, "ClusterNetworkTopology"): warned(_network_topology, namespaced=False),
    (_SCHEDULING, "Device"): warned(_device, namespaced=False),
    (_SCHEDULING, "Reservation"): read_reservation,
    (_SCHEDULING, "PodMigrationJob"): one(_migration_job),
    (_SIGS, "PodGroup"): warned(_pod_group),
    (_SIGS, "ElasticQuota"): _quota,
    ("config.koordinator.sh", "ClusterColocationProfile"): warned(profile_read, namespaced=False),
    ("kubescheduler.config.k8s.io", "KubeSchedulerConfiguration"): _scheduler_configuration,
    ("quota.koordinator.sh", "ElasticQuotaProfile"): warned(_quota_profile),
    ("slo.koordinator.sh", "NodeMetric"): one(parse_node_metric),
    ("topology.node.k8s.io", "NodeResourceTopology"): warned(_node_topology, namespaced=False),
}
"""API group and kind to decoder, whatever the version."""
