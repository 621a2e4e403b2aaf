"""Kueue's queues: ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology; ``v1beta1`` and ``v1beta2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading, read_metadata, section
from koordcore.manifests.kubernetes import Decoder
from koordcore.manifests.kueue_workloads import read_kueue_workload
from koordcore.model.kueue import (
    ClusterQueue,
    Cohort,
    FlavorQuota,
    LocalQueue,
    QueuePreemption,
    ResourceGroup,
)
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.quantity import parse_exact_quantity
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, parse_amount
from koordcore.model.selectors import NOTHING
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_labels,
    as_mapping,
    as_str,
    as_strings,
    choice,
    list_of,
    optional,
    required,
)
from koordcore.protocol.selectors import as_label_selector, as_taints, as_tolerations

_GROUP: Final = "kueue.x-k8s.io"
_evicting: Final = choice(QueuePreemption)
_WHOLE: Final = 10**9
_RUNS: Final = ("", "None")
_STOPS: Final = ("MayStopSearch", "Preempt")
"""The first is the word of ``v1beta2``."""
_DEFAULTS: Final[Mapping[str, Sequence[str]]] = {
    "reclaimWithinCohort": ("Never",),
    "withinClusterQueue": ("Never",),
    "borrowWithinCohort.policy": ("Never",),
}
"""Preemption's fields, and what they say where nobody is evicted."""


def _topology(reading: Reading, raw: Mapping[str, Json]) -> KueueTopology:
    meta = read_metadata(reading, raw, namespaced=False)
    levels = reading.take(section(reading, raw, "spec"), "levels", "spec", list_of(_level), ())
    if not levels:
        reading.problem("spec.levels", "a topology has one level or more")
    return KueueTopology(name=meta.name, levels=levels)


def _level(raw: Json) -> str:
    return required(as_mapping(raw), "nodeLabel", as_str)


def _flavor(reading: Reading, raw: Mapping[str, Json]) -> ResourceFlavor:
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    return ResourceFlavor(
        name=meta.name,
        node_labels=reading.take(spec, "nodeLabels", "spec", as_labels, {}),
        topology=reading.take(spec, "topologyName", "spec", as_str, ""),
        taints=reading.take(spec, "nodeTaints", "spec", as_taints, ()),
        tolerations=reading.take(spec, "tolerations", "spec", as_tolerations, ()),
    )


def _group(raw: Json) -> ResourceGroup:
    entry = as_mapping(raw)
    group = ResourceGroup(
        resources=required(entry, "coveredResources", as_strings),
        flavors=required(entry, "flavors", list_of(_flavor_quota)),
    )
    for one in group.flavors:
        lacking = [name for name in group.resources if name not in one.nominal]
        strange = [name for name in one.nominal if name not in group.resources]
        if lacking:
            what = f"has no quota for {', '.join(lacking)}, which coveredResources names"
        elif strange:
            what = f"has quota for {', '.join(strange)}, which coveredResources does not name"
        else:
            continue
        raise ManifestError.at("", f"flavor {one.flavor} {what}")
    return group


def _flavor_quota(raw: Json) -> FlavorQuota:
    entry = as_mapping(raw)
    listed = optional(entry, "resources", list_of(_amounts), ())
    nominal, borrowing, lending = ({**_merged(listed, place)} for place in range(3))
    name = required(entry, "name", as_str)
    return FlavorQuota(flavor=name, nominal=nominal, borrowing=borrowing, lending=lending)


def _merged(listed: Sequence[tuple[Resources, Resources, Resources]], place: int) -> dict[str, int]:
    return {name: amount for one in listed for name, amount in one[place].items()}


def _amounts(raw: Json) -> tuple[Resources, Resources, Resources]:
    """Read what a queue has of one resource: nominal, borrowing limit, lending limit."""
    entry = as_mapping(raw)
    name = required(entry, "name", as_str)

    def read(field: str) -> Resources:
        amount = optional(entry, field, partial(parse_amount, name), None)
        return NO_RESOURCES if amount is None else make_resources({name: amount})

    required(entry, "nominalQuota", lambda value: value)
    return read("nominalQuota"), read("borrowingLimit"), read("lendingLimit")


def _cohort(reading: Reading, raw: Mapping[str, Json]) -> Cohort:
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    return Cohort(
        name=meta.name,
        parent=reading.take(spec, "parentName", "spec", as_str, "")
        or reading.take(spec, "parent", "spec", as_str, ""),
        groups=reading.take(spec, "resourceGroups", "spec", list_of(_group), ()),
        weight=_weight(reading, spec),
    )


def _weight(reading: Reading, spec: Mapping[str, Json]) -> int | None:
    """Read the weight of a queue's or cohort's share, in billionths; 1 where it states none."""
    if spec.get("fairSharing") is None:
        return None
    message = "taken at its word: who has the smallest share comes first; Kueue needs it in its configuration"
    reading.warn("spec.fairSharing", message)
    return reading.take(
        section(reading, spec, "fairSharing", "spec"), "weight", "spec.fairSharing", _share, _WHOLE
    )


def _share(raw: Json) -> int:
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        raise ManifestError.at("", f"{raw!r} is no quantity")
    weight = parse_exact_quantity(raw)
    if weight < 0:
        raise ManifestError.at("", "must be greater than or equal to 0")
    return weight


def _cluster_queue(reading: Reading, raw: Mapping[str, Json]) -> ClusterQueue:
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    fungible = section(reading, spec, "flavorFungibility", "spec")
    checks = reading.take(spec, "admissionChecks", "spec", as_strings, ())
    rules = section(reading, spec, "admissionChecksStrategy", "spec")
    named = reading.take(rules, "admissionChecks", "spec.admissionChecksStrategy", list_of(_check), ())
    policies = section(reading, spec, "preemption", "spec")
    borrowing = section(reading, policies, "borrowWithinCohort", "spec.preemption")
    place = "spec.preemption.borrowWithinCohort"
    queue = ClusterQueue(
        name=meta.name,
        cohort=reading.take(spec, "cohortName", "spec", as_str, "")
        or reading.take(spec, "cohort", "spec", as_str, ""),
        groups=reading.take(spec, "resourceGroups", "spec", list_of(_group), ()),
        namespace_selector=reading.take(spec, "namespaceSelector", "spec", as_label_selector, NOTHING),
        strict=reading.take(spec, "queueingStrategy", "spec", as_str, "") == "StrictFIFO",
        stopped=reading.take(spec, "stopPolicy", "spec", as_str, "") not in _RUNS,
        next_for_borrowing=reading.take(fungible, "whenCanBorrow", "spec.flavorFungibility", as_str, "")
        == "TryNextFlavor",
        stops_to_preempt=reading.take(fungible, "whenCanPreempt", "spec.flavorFungibility", as_str, "")
        in _STOPS,
        checks=(*checks, *named),
        within=reading.take(
            policies, "withinClusterQueue", "spec.preemption", _evicting, QueuePreemption.NEVER
        ),
        reclaim=reading.take(
            policies, "reclaimWithinCohort", "spec.preemption", _evicting, QueuePreemption.NEVER
        ),
        borrow=reading.take(borrowing, "policy", place, _evicting, QueuePreemption.NEVER)
        is QueuePreemption.LOWER,
        borrow_threshold=reading.take(borrowing, "maxPriorityThreshold", place, as_int, None),
        weight=_weight(reading, spec),
    )
    if queue.checks:
        reading.warn("spec.admissionChecks", f"not asked: {', '.join(queue.checks)}")
    if (
        reading.take(fungible, "preference", "spec.flavorFungibility", as_str, "")
        == "PreemptionOverBorrowing"
    ):
        message = "not looked at: a flavor where borrowing is enough comes before one for which somebody goes"
        reading.warn("spec.flavorFungibility.preference", message)
    _not_decided(reading, spec, "admissionScope", "who used little lately does not come first")
    _not_decided(reading, spec, "concurrentAdmissionPolicy", "a Workload takes one flavor, and keeps it")
    for field, idle in _DEFAULTS.items():
        head, _, tail = field.partition(".")
        value = borrowing.get(tail) if tail else policies.get(head)
        if value is not None and value not in idle:
            message = f"{value}: nobody is evicted for quota; `koordcore compare` says whom Kueue would"
            reading.warn(f"spec.preemption.{field}", message)
    return queue


def _check(raw: Json) -> str:
    return required(as_mapping(raw), "name", as_str)


def _not_decided(reading: Reading, spec: Mapping[str, Json], field: str, why: str) -> None:
    if spec.get(field):
        reading.warn(f"spec.{field}", f"not looked at: {why}")


def _local_queue(reading: Reading, raw: Mapping[str, Json]) -> LocalQueue:
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    return LocalQueue(
        name=meta.name,
        namespace=meta.namespace,
        cluster_queue=reading.take(spec, "clusterQueue", "spec", as_str, ""),
        stopped=reading.take(spec, "stopPolicy", "spec", as_str, "") not in _RUNS,
    )


KUEUE: Final[Mapping[tuple[str, str], Decoder]] = {
    (_GROUP, "Topology"): _topology,
    (_GROUP, "ResourceFlavor"): _flavor,
    (_GROUP, "ClusterQueue"): _cluster_queue,
    (_GROUP, "Cohort"): _cohort,
    (_GROUP, "LocalQueue"): _local_queue,
    (_GROUP, "Workload"): read_kueue_workload,
}
"""API group and kind to decoder, whatever the version."""
