"""PodGroup, CompositePodGroup and Workload of ``scheduling.k8s.io``, in every version that was served.

Field by field as the API server validates them; what it would refuse is a problem in its words. Old versions
are read into what the newest one means: nothing converts them in a cluster, so a dump may hold any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, join_path
from koordcore.manifests._reading import Reading, as_name, choice, read_metadata, section
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    GroupClaim,
    GroupCondition,
    SchedulingPodGroup,
    SchedulingWorkload,
    WorkloadRef,
)
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_list,
    as_mapping,
    as_str,
    collect,
    optional,
    required,
    show,
)

V1ALPHA1: Final = "scheduling.k8s.io/v1alpha1"
V1ALPHA2: Final = "scheduling.k8s.io/v1alpha2"
_LATER: Final = frozenset({"preemptionPolicy", "parentCompositePodGroupName"})
"""Fields of a group that came after v1alpha2."""
MOST_PRIORITY: Final = 1_000_000_000
MOST_TEMPLATES: Final = 8
MOST_CLAIMS: Final = 4
MOST_KEYS: Final = 1
MOST_LEVELS: Final = 4

_policy: Final = choice(PreemptionPolicy)
_LABEL_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII
)


def read_scheduling_pod_group(reading: Reading, raw: Mapping[str, Json]) -> SchedulingPodGroup:
    """Decode a PodGroup."""
    common = _common(reading, raw, counted="minCount")
    spec, status = section(reading, raw, "spec"), section(reading, raw, "status")
    claims = reading.take(spec, "resourceClaims", "spec", _claims, ())
    _at_most(reading, "spec.resourceClaims", claims, MOST_CLAIMS)
    made = dict(reading.take(status, "resourceClaimStatuses", "status", _claim_statuses, ()))
    for name in sorted(set(made) - {one.name for one in claims}):
        path = "status.resourceClaimStatuses"
        _invalid(reading, path, name, "must match the name of an entry in `spec.resourceClaims`")
    return SchedulingPodGroup(
        **common.fields,
        min_count=common.minimum,
        claims=tuple(
            attrs.evolve(one, claim=made.get(one.name, "")) if one.template else one for one in claims
        ),
    )


def read_composite_pod_group(reading: Reading, raw: Mapping[str, Json]) -> CompositePodGroup:
    """Decode a CompositePodGroup."""
    common = _common(reading, raw, counted="minGroupCount")
    if common.fields["workload"] is None:
        reading.warn("spec.workloadRef", "Required value: the API server refuses the object without it")
    return CompositePodGroup(**common.fields, min_groups=common.minimum)


def read_scheduling_workload(reading: Reading, raw: Mapping[str, Json]) -> SchedulingWorkload:
    """Decode a Workload: groups of v1alpha1, names of templates of later versions."""
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    version = reading.take(raw, "apiVersion", "", as_str, "")
    named = SchedulingWorkload(name=meta.name, namespace=meta.namespace, api_version=version, uid=meta.uid)
    if version == V1ALPHA1:
        return attrs.evolve(named, pod_groups=_pod_groups(reading, spec))
    flat = reading.take(spec, "podGroupTemplates", "spec", as_list, [])
    composite = reading.take(spec, "compositePodGroupTemplates", "spec", as_list, [])
    if flat and composite:
        reading.problem(
            "spec",
            "Invalid value: must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`",
        )
    tree = _Templates(reading)
    tree.read(flat, "spec.podGroupTemplates", 1, composite=False)
    tree.read(composite, "spec.compositePodGroupTemplates", 1, composite=True)
    tree.finish(
        "all priority and priorityClassName values must be identical, detected multiple values"
        if composite
        else "detected multiple priority configurations"
    )
    return attrs.evolve(named, templates=tuple(tree.names))


# -- groups --------------------------------------------------------------------------------------------------


@record
class _Common:
    """Fields that PodGroup and CompositePodGroup share, and the minimum of a gang."""

    fields: dict[str, Any]
    minimum: int | None


def _common(reading: Reading, raw: Mapping[str, Json], *, counted: str) -> _Common:
    meta = read_metadata(reading, raw)
    spec, status = section(reading, raw, "spec"), section(reading, raw, "status")
    version = reading.take(raw, "apiVersion", "", as_str, "")
    disruption = _word_of_mode if version == V1ALPHA2 else _union_of_mode
    if version == V1ALPHA2:
        for name in _LATER & spec.keys():
            reading.warn(f"spec.{name}", "v1alpha2 has no such field: it is not looked at")
        spec = {name: value for name, value in spec.items() if name not in _LATER}
    parent = reading.take(spec, "parentCompositePodGroupName", "spec", as_name, "")
    policy = reading.take(spec, "preemptionPolicy", "spec", _policy, None)
    if version == V1ALPHA2:
        workload = reading.take(spec, "podGroupTemplateRef", "spec", _template_ref, None)
    else:
        workload = reading.take(spec, "workloadRef", "spec", _workload_ref, None)
    if parent and workload is None:
        # Nothing here looks at the template, so that the group is read all the same.
        message = "Required value: must be set when parentCompositePodGroupName is set"
        reading.warn("spec.workloadRef", message)
    constraints = section(reading, spec, "schedulingConstraints", "spec")
    path = "spec.schedulingConstraints"
    keys = reading.take(constraints, "topology", path, _topology, ())
    _at_most(reading, f"{path}.topology", keys, MOST_KEYS)
    minimum = _scheduling_policy(reading, spec, "schedulingPolicy", "spec", counted)
    fields = {
        "name": meta.name,
        "namespace": meta.namespace,
        "api_version": version,
        "uid": meta.uid,
        "generation": reading.take(section(reading, raw, "metadata"), "generation", "metadata", as_int, 0),
        "created": meta.created,
        "parent": parent,
        "workload": workload,
        "topology_keys": keys,
        "disruption": reading.take(spec, "disruptionMode", "spec", disruption, DisruptionMode.SINGLE),
        "priority": _priority(reading, spec, "spec"),
        "priority_class": reading.take(spec, "priorityClassName", "spec", as_str, ""),
        "preemption_policy": policy,
        "conditions": reading.take(status, "conditions", "status", _conditions, ()),
    }
    return _Common(fields, minimum)


def _scheduling_policy(
    reading: Reading, raw: Mapping[str, Json], name: str, path: str, counted: str
) -> int | None:
    """Read the union of ``basic`` and ``gang``; the minimum of a gang."""
    where, policy = join_path(path, name), section(reading, raw, name, path)
    chosen = [kind for kind in ("basic", "gang") if policy.get(kind) is not None]
    if len(chosen) != 1:
        exactly = "must specify exactly one of" if chosen else "must specify one of"
        reading.problem(where, f"Invalid value: {exactly}: `basic`, `gang`")
        return None
    if chosen == ["basic"]:
        reading.take(policy, "basic", where, as_mapping, {})
        return None
    return _minimum(reading, section(reading, policy, "gang", where), counted, f"{where}.gang")


def _minimum(
    reading: Reading,
    gang: Mapping[str, Json],
    counted: str,
    path: str,
    refusal: str = "must be greater than or equal to 1",
) -> int:
    least = reading.take(gang, counted, path, as_int, None)
    if gang.get(counted) is None:
        reading.problem(f"{path}.{counted}", "Required value")
    elif least is not None and least < 1:
        _invalid(reading, f"{path}.{counted}", least, refusal)
    return max(1, least or 1)


def _priority(reading: Reading, spec: Mapping[str, Json], path: str) -> int | None:
    priority = reading.take(spec, "priority", path, as_int, None)
    if priority is not None and priority > MOST_PRIORITY:
        _invalid(reading, f"{path}.priority", priority, f"must be less than or equal to {MOST_PRIORITY}")
    return priority


def _invalid(reading: Reading, path: str, value: Json, text: str) -> None:
    reading.problem(path, f"Invalid value: {show(value)}: {text}")


def _at_most(reading: Reading, path: str, items: Sequence[object], most: int) -> None:
    if len(items) > most:
        plural = "item" if most == 1 else "items"
        reading.problem(path, f"Too many: {len(items)}: must have at most {most} {plural}")


def _word_of_mode(value: Json) -> DisruptionMode:
    """Take the word of v1alpha2."""
    words = {"Pod": DisruptionMode.SINGLE, "PodGroup": DisruptionMode.ALL}
    word = as_str(value)
    if word not in words:
        raise ManifestError.at("", f'Unsupported value: {show(value)}: supported values: "Pod", "PodGroup"')
    return words[word]


def _union_of_mode(value: Json) -> DisruptionMode:
    """Take the union of ``single`` and ``all``."""
    raw = as_mapping(value)
    chosen = [mode for mode in DisruptionMode if raw.get(mode) is not None]
    if len(chosen) != 1:
        exactly = "must specify exactly one of" if chosen else "must specify one of"
        raise ManifestError.at("", f"Invalid value: {exactly}: `all`, `single`")
    required(raw, chosen[0], as_mapping)
    return chosen[0]


def _workload_ref(value: Json) -> WorkloadRef:
    raw = as_mapping(value)
    return WorkloadRef(required(raw, "workloadName", as_name), required(raw, "templateName", as_name))


def _template_ref(value: Json) -> WorkloadRef:
    def workload(inner: Json) -> WorkloadRef:
        raw = as_mapping(inner)
        return WorkloadRef(
            required(raw, "workloadName", as_name), required(raw, "podGroupTemplateName", as_name)
        )

    return required(as_mapping(value), "workload", workload)


def _topology(value: Json) -> tuple[str, ...]:
    return collect(lambda one: required(as_mapping(one), "key", _label_key), as_list(value))


def _label_key(value: Json) -> str:
    key = as_str(value)
    if not _LABEL_KEY.fullmatch(key):
        raise ManifestError.at("", f"Invalid value: {show(key)}: expected a label key")
    return key


def _claims(value: Json) -> tuple[GroupClaim, ...]:
    claims = collect(_claim, as_list(value))
    names = [one.name for one in claims]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ManifestError.at(f"[{number}].name", f"Duplicate value: {show(name)}")
    return claims


def _claim(value: Json) -> GroupClaim:
    raw = as_mapping(value)
    claim = GroupClaim(
        name=required(raw, "name", as_name),
        claim=optional(raw, "resourceClaimName", as_str, ""),
        template=optional(raw, "resourceClaimTemplateName", as_str, ""),
    )
    if bool(claim.claim) == bool(claim.template):
        exactly = "must specify exactly one of" if claim.claim else "must specify one of"
        names = "`resourceClaimName`, `resourceClaimTemplateName`"
        raise ManifestError.at("", f"Invalid value: {exactly}: {names}")
    return claim


def _claim_statuses(value: Json) -> tuple[tuple[str, str], ...]:
    def status(one: Json) -> tuple[str, str]:
        raw = as_mapping(one)
        return required(raw, "name", as_str), optional(raw, "resourceClaimName", as_str, "")

    return collect(status, as_list(value))


def _conditions(value: Json) -> tuple[GroupCondition, ...]:
    def condition(one: Json) -> GroupCondition:
        raw = as_mapping(one)
        return GroupCondition(
            type=required(raw, "type", as_str),
            status=required(raw, "status", as_str),
            reason=optional(raw, "reason", as_str, ""),
            message=optional(raw, "message", as_str, ""),
            observed_generation=optional(raw, "observedGeneration", as_int, 0),
        )

    return collect(condition, as_list(value))


# -- workloads -----------------------------------------------------------------------------------------------


def _pod_groups(reading: Reading, spec: Mapping[str, Json]) -> immutabledict[str, int | None]:
    """Read the groups of a v1alpha1 Workload."""
    listed = reading.take(spec, "podGroups", "spec", as_list, [])
    if not listed:
        reading.problem("spec.podGroups", "Required value")
    _at_most(reading, "spec.podGroups", listed, MOST_TEMPLATES)
    minimums: dict[str, int | None] = {}
    for number, entry in enumerate(listed):
        path = f"spec.podGroups[{number}]"
        raw = reading.take({"": entry}, "", path, as_mapping, {})
        name = reading.take(raw, "name", path, as_name, "")
        if not name:
            reading.problem(f"{path}.name", "Required value")
        elif name in minimums:
            reading.problem(f"{path}.name", f"Duplicate value: {show(name)}")
        policy = section(reading, raw, "policy", path)
        chosen = [kind for kind in ("basic", "gang") if policy.get(kind) is not None]
        if len(chosen) != 1:
            text = "exactly one of `basic`, `gang` is required"
            text += ", but multiple fields are set" if chosen else ""
            reading.problem(f"{path}.policy", f"Invalid value: {text}")
        gang = section(reading, policy, "gang", f"{path}.policy")
        minimums[name] = (
            _minimum(reading, gang, "minCount", f"{path}.policy.gang", "must be greater than zero")
            if chosen == ["gang"]
            else None
        )
    return immutabledict(minimums)


class _Templates:
    """The templates of a Workload: names, depth, and the one priority that all have to share."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.names: list[str] = []
        self._priorities: set[tuple[Json, Json]] = set()

    def read(self, listed: Sequence[Json], path: str, level: int, *, composite: bool) -> None:
        """Read one list of templates, and what hangs below composite ones."""
        reading = self._reading
        _at_most(reading, path, listed, MOST_TEMPLATES)
        if level > MOST_LEVELS:
            reading.problem(path, f"Invalid value: maximum template hierarchy depth is {MOST_LEVELS}")
            return
        for number, entry in enumerate(listed):
            where = f"{path}[{number}]"
            raw = reading.take({"": entry}, "", where, as_mapping, {})
            name = reading.take(raw, "name", where, as_name, "")
            if not name:
                reading.problem(f"{where}.name", "Required value")
            elif name in self.names:
                reading.problem(f"{where}.name", f"Duplicate value: {show(name)}")
            self.names.append(name)
            self._priorities.add((_priority(reading, raw, where), raw.get("priorityClassName") or ""))
            counted = "minGroupCount" if composite else "minCount"
            _scheduling_policy(reading, raw, "schedulingPolicy", where, counted)
            if composite:
                self._children(raw, where, level)

    def _children(self, raw: Mapping[str, Json], where: str, level: int) -> None:
        reading = self._reading
        flat = reading.take(raw, "podGroupTemplates", where, as_list, [])
        nested = reading.take(raw, "compositePodGroupTemplates", where, as_list, [])
        if not flat and not nested:
            message = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            reading.problem(where, f"Required value: {message}")
        self.read(flat, f"{where}.podGroupTemplates", level + 1, composite=False)
        self.read(nested, f"{where}.compositePodGroupTemplates", level + 1, composite=True)

    def finish(self, refusal: str) -> None:
        """Refuse a tree with several priorities."""
        if len(self._priorities) > 1:
            self._reading.problem("spec", f"Invalid value: {refusal}")
