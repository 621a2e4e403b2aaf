"""Namespaces, priority classes, disruption budgets, and the objects that own pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading, as_labels, as_time, choice, read_metadata, section
from koordcore.model.cluster import Namespace, PodDisruptionBudget, PriorityClass, Workload
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.selectors import EVERYTHING, NOTHING, LabelSelector
from koordcore.protocol.fields import Json, as_bool, as_int, as_mapping, as_str, show
from koordcore.protocol.selectors import as_label_selector

_policy: Final = choice(PreemptionPolicy)


def read_namespace(reading: Reading, raw: Mapping[str, Json]) -> Namespace:
    """Decode a Namespace."""
    meta = read_metadata(reading, raw, namespaced=False)
    return Namespace(meta.name, meta.labels, meta.annotations)


def read_priority_class(reading: Reading, raw: Mapping[str, Json]) -> PriorityClass:
    """Decode a PriorityClass."""
    meta = read_metadata(reading, raw, namespaced=False)
    value = reading.take(raw, "value", "", as_int, None)
    if value is None and raw.get("value") is None:
        reading.problem("value", "required")
    return PriorityClass(
        name=meta.name,
        value=value or 0,
        global_default=reading.take(raw, "globalDefault", "", as_bool, False),
        preemption_policy=reading.take(
            raw, "preemptionPolicy", "", _policy, PreemptionPolicy.PREEMPT_LOWER_PRIORITY
        ),
    )


def _share(value: Json) -> int | str:
    """Take a count or a percentage."""
    if isinstance(value, str):
        number = value.removesuffix("%")
        if number.isascii() and number.isdigit() and len(number) < 10:
            return value if value.endswith("%") else int(number)
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ManifestError.at("", f"expected a count or a percentage, got {show(value)}")


def _disrupted(value: Json) -> tuple[str, ...]:
    return tuple(sorted(as_mapping(value)))


def read_budget(reading: Reading, raw: Mapping[str, Json]) -> PodDisruptionBudget:
    """Decode a PodDisruptionBudget: without a selector it covers no pod, with an empty one all.

    In ``policy/v1beta1`` an empty selector covered none.
    """
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    status = section(reading, raw, "status")
    selector: LabelSelector = reading.take(spec, "selector", "spec", as_label_selector, NOTHING)
    if selector == EVERYTHING and raw.get("apiVersion") == "policy/v1beta1":
        selector = NOTHING
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        reading.problem("spec", "minAvailable and maxUnavailable exclude each other")
    return PodDisruptionBudget(
        name=meta.name,
        namespace=meta.namespace,
        selector=selector,
        min_available=reading.take(spec, "minAvailable", "spec", _share, None),
        max_unavailable=reading.take(spec, "maxUnavailable", "spec", _share, None),
        disruptions_allowed=reading.take(status, "disruptionsAllowed", "status", as_int, 0),
        expected_pods=reading.take(status, "expectedPods", "status", as_int, 0),
        disrupted_pods=reading.take(status, "disruptedPods", "status", _disrupted, ()),
    )


def read_workload(reading: Reading, raw: Mapping[str, Json]) -> Workload:
    """Decode an object that owns pods, of a known kind or of any other.

    A Job wants ``parallelism`` pods at once; a CronJob and a DaemonSet have no number of their own. The
    selector of a ReplicationController is a plain set of labels.
    """
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    kind = reading.take(raw, "kind", "", as_str, "")
    replicas: int | None
    match kind:
        case "Job":
            replicas = reading.take(spec, "parallelism", "spec", as_int, 1)
        case "CronJob" | "DaemonSet":
            replicas = None
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController":
            replicas = reading.take(spec, "replicas", "spec", as_int, 1)
        case _:
            replicas = reading.take(spec, "replicas", "spec", as_int, None)
    job = raw.get("apiVersion") == "batch/v1" and kind == "Job"
    status = section(reading, raw, "status") if job else {}
    convert = _plain_selector if kind == "ReplicationController" else as_label_selector
    return Workload(
        kind=kind,
        name=meta.name,
        namespace=meta.namespace,
        api_version=reading.take(raw, "apiVersion", "", as_str, ""),
        uid=meta.uid,
        replicas=replicas,
        selector=reading.take(spec, "selector", "spec", convert, None),
        labels=meta.labels,
        annotations=meta.annotations,
        owners=meta.owners,
        active_deadline=reading.take(spec, "activeDeadlineSeconds", "spec", as_int, None) if job else None,
        started=reading.take(status, "startTime", "status", as_time, None),
    )


def _plain_selector(value: Json) -> LabelSelector:
    return LabelSelector(as_labels(value))
