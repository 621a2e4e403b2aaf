"""ClusterColocationProfiles applied to a pod as it is created: a pure change of the object.

Rules: upstream ``webhook/pod/mutating/{cluster_colocation_profile,extended_resource_spec}.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.colocation.amounts import milli_up
from koordcore.errors import ManifestError, ModelError
from koordcore.model.colocation import RawSelector
from koordcore.model.metrics import parse_measured
from koordcore.model.quantity import format_quantity, parse_exact_quantity
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordcore.protocol.fields import Json, as_list, as_mapping, as_str_mapping
from koordcore.protocol.merge_patch import patch_pod
from koordcore.protocol.profile import (
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    ANNOTATION_SKIP_UPDATE_RESOURCES,
    ColocationProfile,
    ExtendedResources,
    format_extended_resources,
    parse_extended_resources,
)
from koordcore.protocol.qos import (
    LABEL_PRIORITY,
    LABEL_QOS_CLASS,
    ContainerResources,
    PriorityClass,
    kubernetes_qos_of,
    priority_class_with_default,
    resource_name,
)
from koordcore.protocol.raw_selectors import selector_of

JsonObject: TypeAlias = dict[str, Json]

_PERCENT: Final = re.compile(r"([+-]?[0-9]{1,9})%\Z", re.ASCII)
_CONTAINERS: Final = ("initContainers", "containers")
_LISTS: Final = ("requests", "limits")


class Operation(StrEnum):
    """What is being done to the pod."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@record
class PriorityClassSpec:
    """A PriorityClass object.

    Parameters
    ----------
    value
        The priority that it stands for.
    preemption_policy
        Empty where it has none.
    """

    value: int
    preemption_policy: str = ""


@record
class Mutation:
    """A pod after admission.

    Parameters
    ----------
    pod
        The object; the one that was given, where nothing changed.
    changed
        Whether anything did.
    applied
        Names of the profiles that were applied, in their order, those that say nothing among them.
    draws_used
        How many random numbers were taken.
    """

    pod: Mapping[str, Json]
    changed: bool
    applied: tuple[str, ...] = ()
    draws_used: int = 0


def mutate_pod(
    pod: Mapping[str, Json],
    profiles: Iterable[ColocationProfile],
    *,
    namespaces: Mapping[str, Mapping[str, str]],
    priority_classes: Mapping[str, PriorityClassSpec],
    draws: Sequence[int] = (),
    operation: Operation = Operation.CREATE,
    skip_resources: bool = False,
) -> Mutation:
    """Apply the profiles that match a pod, then record its batch resources.

    A selector that cannot be evaluated matches nothing, and a profile of p percent applies to the draws
    below p; upstream takes the one as a match and one draw too many.

    Parameters
    ----------
    pod
        The pod object as sent; it is not changed.
    profiles
        Every profile of the cluster.
    namespaces
        Labels of each namespace that exists.
    priority_classes
        Every PriorityClass by name.
    draws
        Random numbers 0 to 99; one is taken for each matching profile whose percentage is neither 0 nor 100.
    operation
        Profiles count only when the pod is created.
    skip_resources
        Leave the resources alone (upstream's gate ``ColocationProfileSkipMutatingResources``).

    Raises
    ------
    ManifestError
        When the pod, a probability, a patch or the record of batch resources cannot be read, or a
        PriorityClass does not exist: the pod is not admitted.
    ModelError
        When there are too few draws.
    """
    if operation is Operation.DELETE:
        return Mutation(pod, changed=False)
    changed, used = _copied(pod), 0
    applied: list[str] = []
    if operation is Operation.CREATE:
        matching = sorted(
            (one for one in profiles if _matches(one, pod, namespaces)), key=lambda one: one.name
        )
        for profile in matching:
            percent = _percent(profile)
            drawn = percent not in (0, 100)
            if drawn and used >= len(draws):
                raise ModelError(f"profile {profile.name} needs a draw, and {len(draws)} were given")
            applies = draws[used] < percent if drawn else percent == 100
            used += drawn
            if applies:
                changed = _applied(changed, profile, priority_classes)
                applied.append(profile.name)
        skips = any(ANNOTATION_SKIP_UPDATE_RESOURCES in one.annotations for one in matching)
        if matching and not skips and not skip_resources:
            _translate_resources(changed)
    _record_batch_resources(changed)
    differs = changed != pod
    return Mutation(changed if differs else pod, differs, tuple(applied), used)


def _copied(value: Mapping[str, Json]) -> JsonObject:
    """Copy an object with everything in it that is written to here."""
    return {key: _copied_value(one) for key, one in value.items()}


def _copied_value(value: Json) -> Json:
    if isinstance(value, Mapping):
        return _copied(value)
    return [_copied_value(one) for one in value] if isinstance(value, list) else value


def _part(thing: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = thing.get(key)
    return {} if value is None else as_mapping(value)


def _writable(thing: JsonObject, key: str) -> JsonObject:
    value = thing.get(key)
    if not isinstance(value, dict):
        value = thing[key] = {}
    return value


def _labels(pod: Mapping[str, Json]) -> dict[str, str]:
    return as_str_mapping(_part(_part(pod, "metadata"), "labels"))


def _selects(selector: RawSelector | None, labels: Mapping[str, str] | None) -> bool:
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return True
    try:
        return labels is not None and selector_of(selector).matches(labels)
    except ManifestError:
        return False


def _matches(
    profile: ColocationProfile, pod: Mapping[str, Json], namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    namespace = str(_part(pod, "metadata").get("namespace") or "")
    return chooses(profile, namespaces.get(namespace), _labels(pod))


def chooses(
    profile: ColocationProfile, namespace: Mapping[str, str] | None, labels: Mapping[str, str]
) -> bool:
    """Tell whether a profile is about pods with such labels, in a namespace with such (``None``: unknown)."""
    return _selects(profile.namespace_selector, namespace) and _selects(profile.selector, labels)


def _percent(profile: ColocationProfile) -> int:
    match profile.probability:
        case None:
            return 100
        case str() as text:
            found = _PERCENT.match(text)
            if found is None:
                problem = f'expected a percentage such as 30%, got "{text[:60]}"'
                raise ManifestError.at(f"ClusterColocationProfile {profile.name}: spec.probability", problem)
            return int(found[1])
        case int() as percent:
            return percent


def _applied(
    pod: JsonObject, profile: ColocationProfile, priority_classes: Mapping[str, PriorityClassSpec]
) -> JsonObject:
    metadata, spec = _writable(pod, "metadata"), _writable(pod, "spec")
    labels, notes = dict(_part(metadata, "labels")), dict(_part(metadata, "annotations"))
    labels.update(profile.labels)
    notes.update(profile.pod_annotations)
    for values, mapping in (
        (labels, profile.label_keys_mapping),
        (notes, profile.annotation_keys_mapping),
    ):
        for old, new in mapping.items():
            values[new] = values.get(old, "")
    for key, suffix in profile.label_suffixes.items():
        if key in labels:
            labels[key] = f"{labels[key]}{suffix}"
    if profile.scheduler_name:
        spec["schedulerName"] = profile.scheduler_name
    if profile.qos_class:
        labels[LABEL_QOS_CLASS] = profile.qos_class
    if profile.priority_class_name:
        _set_priority(spec, profile.priority_class_name, priority_classes)
    if profile.koordinator_priority is not None:
        labels[LABEL_PRIORITY] = str(profile.koordinator_priority)
    for key, values in (("labels", labels), ("annotations", notes)):
        if values:
            metadata[key] = values
    return pod if profile.patch is None else patch_pod(pod, profile.patch)


def _set_priority(spec: JsonObject, name: str, priority_classes: Mapping[str, PriorityClassSpec]) -> None:
    found = priority_classes.get(name)
    if found is None:
        raise ManifestError.at(
            "spec.priorityClassName", f'priorityclasses.scheduling.k8s.io "{name}" not found'
        )
    spec["priorityClassName"] = name
    spec["priority"] = found.value
    spec.pop("preemptionPolicy", None)
    if found.preemption_policy:
        spec["preemptionPolicy"] = found.preemption_policy


def _containers(pod: Mapping[str, Json], field: str) -> list[Mapping[str, Json]]:
    value = _part(pod, "spec").get(field)
    return [] if value is None else [as_mapping(one) for one in as_list(value)]


def _resources_of(thing: Mapping[str, Json]) -> ContainerResources:
    resources = _part(thing, "resources")
    requests, limits = (parse_measured(_part(resources, key)) for key in _LISTS)
    return ContainerResources(requests, limits)


def _priority_class(pod: Mapping[str, Json]) -> PriorityClass:
    spec = _part(pod, "spec")
    kubernetes_qos = str(_part(pod, "status").get("qosClass") or "") or kubernetes_qos_of(
        map(_resources_of, _containers(pod, "containers")),
        map(_resources_of, _containers(pod, "initContainers")),
        _resources_of(spec) if spec.get("resources") else None,
    )
    priority = spec.get("priority")
    return priority_class_with_default(
        _labels(pod), priority if isinstance(priority, int) else None, kubernetes_qos
    )


def _translate_resources(pod: JsonObject) -> None:
    """Move cpu and memory of a batch or mid pod to the names of its class."""
    name = _priority_class(pod)
    if name not in (PriorityClass.BATCH, PriorityClass.MID):
        return
    spec = _writable(pod, "spec")
    for field in _CONTAINERS:
        for container in _containers(pod, field):
            if not isinstance(container, dict) or not container.get("resources"):
                continue
            resources = _writable(container, "resources")
            for key in _LISTS:
                if resources.get(key):
                    _move(_writable(resources, key), name)
            _complete(resources, name)
    if spec.get("overhead"):
        _move(_writable(spec, "overhead"), name)


def _move(amounts: JsonObject, priority_class: PriorityClass) -> None:
    for plain in (CPU, MEMORY):
        target = resource_name(priority_class, plain)
        if target is None or plain not in amounts:
            continue
        text = amounts.pop(plain)
        if plain == CPU:
            text = format_quantity(milli_up(parse_exact_quantity(text)))  # type: ignore[arg-type]  # checked inside
        amounts[target] = text


def _complete(resources: JsonObject, priority_class: PriorityClass) -> None:
    limits = _part(resources, "limits")
    for plain in (CPU, MEMORY):
        target = resource_name(priority_class, plain)
        if target is not None and target in limits and target not in _part(resources, "requests"):
            _writable(resources, "requests")[target] = limits[target]


def _record_batch_resources(pod: JsonObject) -> None:
    """Write what each container has of batch resources to the annotation, unless it says so already."""
    shown: dict[str, dict[str, dict[str, Json]]] = {}
    wanted: dict[str, ExtendedResources] = {}
    for container in _containers(pod, "containers"):
        resources = _part(container, "resources")
        lists = {
            key: {
                name: amount
                for name, amount in _part(resources, key).items()
                if name in (BATCH_CPU, BATCH_MEMORY)
            }
            for key in _LISTS
        }
        lists = {key: amounts for key, amounts in lists.items() if amounts}
        if lists:
            name = str(container.get("name") or "")
            shown[name] = lists
            wanted[name] = ExtendedResources(*(parse_measured(lists.get(key, {})) for key in _LISTS))
    notes = _part(_part(pod, "metadata"), "annotations")
    text = notes.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    present = parse_extended_resources(str(text)) if text is not None else {}
    if dict(present) != wanted:
        annotations = _writable(_writable(pod, "metadata"), "annotations")
        annotations[ANNOTATION_EXTENDED_RESOURCE_SPEC] = format_extended_resources(shown)
