"""The ClusterColocationProfile on the wire, and the record of batch resources that pods carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.colocation import RawSelector
from koordcore.model.metrics import NOTHING_MEASURED, Measured, parse_measured
from koordcore.protocol.colocation import parse_selector
from koordcore.protocol.fields import Json, as_int, as_mapping, as_str, as_str_mapping, load_json, optional

ANNOTATION_SKIP_UPDATE_RESOURCES: Final = "config.koordinator.sh/skip-update-resources"
ANNOTATION_EXTENDED_RESOURCE_SPEC: Final = "node.koordinator.sh/extended-resource-spec"

_NO_LABELS: Final[immutabledict[str, str]] = immutabledict()
_EMPTY: Final[Mapping[str, Json]] = immutabledict()


@record(kw_only=True)
class ColocationProfile:
    """What is done to the pods that two selectors name.

    Parameters
    ----------
    name
        Profiles are applied in the text order of their names.
    annotations
        Of the profile; one of them leaves the resources of pods alone.
    namespace_selector, selector
        Which pods; ``None`` or empty means all.
    probability
        Percent of the pods, as a number or as ``"30%"``; ``None`` means all.
    qos_class, priority_class_name, scheduler_name, koordinator_priority
        What is set; empty or ``None`` leaves the pod's.
    labels, pod_annotations
        What is written over the pod's.
    label_keys_mapping, annotation_keys_mapping
        Old key to new key; the value is copied.
    label_suffixes
        Key to text that is appended to the value of a label that is there.
    patch
        A strategic merge patch; ``None`` without one.
    """

    name: str
    annotations: immutabledict[str, str] = _NO_LABELS
    namespace_selector: RawSelector | None = None
    selector: RawSelector | None = None
    probability: int | str | None = None
    qos_class: str = ""
    priority_class_name: str = ""
    scheduler_name: str = ""
    koordinator_priority: int | None = None
    labels: immutabledict[str, str] = _NO_LABELS
    pod_annotations: immutabledict[str, str] = _NO_LABELS
    label_keys_mapping: immutabledict[str, str] = _NO_LABELS
    annotation_keys_mapping: immutabledict[str, str] = _NO_LABELS
    label_suffixes: immutabledict[str, str] = _NO_LABELS
    patch: Mapping[str, Json] | None = None

    @property
    def namespace(self) -> str:
        """The object belongs to the whole cluster."""
        return ""


def _strings(value: Json) -> immutabledict[str, str]:
    return immutabledict(sorted(as_str_mapping(value).items()))


def _probability(value: Json) -> int | str:
    return value if isinstance(value, str) else as_int(value)


def parse_profile(raw: Mapping[str, Json]) -> ColocationProfile:
    """Read a ClusterColocationProfile object.

    Raises
    ------
    ManifestError
        With the path of what cannot be read.
    """
    metadata = optional(raw, "metadata", as_mapping, _EMPTY)
    spec = optional(raw, "spec", as_mapping, _EMPTY)
    try:
        profile = ColocationProfile(
            name="",
            namespace_selector=optional(spec, "namespaceSelector", parse_selector, None),
            selector=optional(spec, "selector", parse_selector, None),
            probability=optional(spec, "probability", _probability, None),
            qos_class=optional(spec, "qosClass", as_str, ""),
            priority_class_name=optional(spec, "priorityClassName", as_str, ""),
            scheduler_name=optional(spec, "schedulerName", as_str, ""),
            koordinator_priority=optional(spec, "koordinatorPriority", as_int, None),
            labels=optional(spec, "labels", _strings, _NO_LABELS),
            pod_annotations=optional(spec, "annotations", _strings, _NO_LABELS),
            label_keys_mapping=optional(spec, "labelKeysMapping", _strings, _NO_LABELS),
            annotation_keys_mapping=optional(spec, "annotationKeysMapping", _strings, _NO_LABELS),
            label_suffixes=optional(spec, "labelSuffixes", _strings, _NO_LABELS),
            patch=optional(spec, "patch", as_mapping, None),
        )
    except ManifestError as error:
        raise error.within("spec") from None
    try:
        name = optional(metadata, "name", as_str, "")
        annotations = optional(metadata, "annotations", _strings, _NO_LABELS)
    except ManifestError as error:
        raise error.within("metadata") from None
    return attrs.evolve(profile, name=name, annotations=annotations)


@record
class ExtendedResources:
    """Batch resources of one container, exact."""

    requests: Measured = NOTHING_MEASURED
    limits: Measured = NOTHING_MEASURED


def parse_extended_resources(text: str) -> immutabledict[str, ExtendedResources]:
    """Read the record of batch resources per container; containers without any are left out.

    Raises
    ------
    ManifestError
        When the annotation cannot be read.
    """

    def resources(value: Json) -> Measured:
        return parse_measured(as_mapping(value))

    def container(value: Json) -> ExtendedResources:
        raw = as_mapping(value)
        return ExtendedResources(
            optional(raw, "requests", resources, NOTHING_MEASURED, fold_case=True),
            optional(raw, "limits", resources, NOTHING_MEASURED, fold_case=True),
        )

    try:
        value = load_json(text)
        raw = _EMPTY if value is None else as_mapping(value)
        found = optional(raw, "containers", as_mapping, _EMPTY, fold_case=True)
        read = {name: container(one) for name, one in found.items()}
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{ANNOTATION_EXTENDED_RESOURCE_SPEC}]") from None
    return immutabledict({name: one for name, one in read.items() if one != ExtendedResources()})


def format_extended_resources(containers: Mapping[str, Mapping[str, Mapping[str, Json]]]) -> str:
    """Write the record of batch resources: container to ``requests`` and ``limits`` as they stand."""
    return json.dumps({"containers": containers} if containers else {}, separators=(",", ":"), sort_keys=True)
