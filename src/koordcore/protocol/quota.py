"""Labels and annotations of elastic quotas, of their profiles, and of the pods that they govern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.model.pods import Pod
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPod, QuotaProfile, Spelling
from koordcore.model.resources import CPU, DEPRECATED_BATCH_NAMES, MEMORY, Resources
from koordcore.model.selectors import NOTHING, LabelSelector
from koordcore.protocol.device import DEPRECATED_NAMES, split_gpu
from koordcore.protocol.exact import (
    ExactList,
    ExactQuantity,
    amounts_of,
    exact_list,
    parse_exact_list,
)
from koordcore.protocol.fields import (
    Json,
    as_list,
    as_mapping,
    as_str,
    as_str_mapping,
    at,
    collect,
    load_json,
    optional,
    optional_in,
    show,
)
from koordcore.protocol.numbers import parse_float
from koordcore.protocol.selectors import as_label_selector
from koordcore.protocol.times import moment_of

PREFIX: Final = "quota.scheduling.koordinator.sh/"
QUOTA_NAME: Final = PREFIX + "name"
PREEMPTIBLE: Final = PREFIX + "preemptible"
IS_PARENT: Final = PREFIX + "is-parent"
PARENT: Final = PREFIX + "parent"
ALLOW_LENT_RESOURCE: Final = PREFIX + "allow-lent-resource"
TREE_ID: Final = PREFIX + "tree-id"
IS_ROOT: Final = PREFIX + "is-root"
IGNORE_DEFAULT_TREE: Final = PREFIX + "ignore-default-tree"
ALLOW_FORCE_UPDATE: Final = PREFIX + "allow-force-update"
PROFILE: Final = PREFIX + "profile"
SHARED_WEIGHT: Final = PREFIX + "shared-weight"
NAMESPACES: Final = PREFIX + "namespaces"
TOTAL_RESOURCE: Final = PREFIX + "total-resource"
UNSCHEDULABLE_RESOURCE: Final = PREFIX + "unschedulable-resource"
ADMISSION: Final = PREFIX + "admission"
MAX_STRICT_CHECK: Final = PREFIX + "max-strict-check-resource-keys"
RESOURCE_KEYS: Final = PREFIX + "resource-keys"
CHILD_REQUEST: Final = PREFIX + "child-request"
GUARANTEED: Final = PREFIX + "guaranteed"

_NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()
_NO_FIELDS: Final[Mapping[str, Json]] = immutabledict()
_NO_AMOUNTS: Final[ExactList] = immutabledict()
_RENAMED: Final[Mapping[str, str]] = {**DEPRECATED_NAMES, **DEPRECATED_BATCH_NAMES}


def metadata_of(raw: Mapping[str, Json]) -> Mapping[str, Json]:
    """Metadata of an object; empty where it has none."""
    return at("metadata", as_mapping, raw.get("metadata") or {})


def labels_of(raw: Mapping[str, Json]) -> dict[str, str]:
    """Labels of an object."""
    return at("metadata.labels", as_str_mapping, metadata_of(raw).get("labels") or {})


def annotations_of(raw: Mapping[str, Json]) -> dict[str, str]:
    """Annotations of an object."""
    return at("metadata.annotations", as_str_mapping, metadata_of(raw).get("annotations") or {})


def quota_label(labels: Mapping[str, str]) -> str:
    """Quota that an object's labels name; empty for none."""
    return labels.get(QUOTA_NAME, "")


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Only the literal ``false`` makes a pod non-preemptible."""
    return labels.get(PREEMPTIBLE) != "false"


def resource_list_annotation(annotations: Mapping[str, str], key: str) -> ExactList:
    """Read an annotation that holds a resource list; empty where it is absent or empty.

    Raises
    ------
    ManifestError
        When the text is no resource list; the path names the annotation.
    """
    text = annotations.get(key, "")
    if not text:
        return immutabledict()
    try:
        return parse_exact_list(load_json(text))
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def quota_namespaces(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Namespaces bound to a quota.

    Raises
    ------
    ManifestError
        When the annotation is no list of strings; upstream then binds none.
    """
    text = annotations.get(NAMESPACES, "")
    if not text:
        return ()
    try:
        raw = load_json(text)
        return tuple("" if item is None else as_str(item) for item in as_list(raw if raw is not None else []))
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{NAMESPACES}]") from None


@record
class _Reader:
    """Reads what upstream defaults silently, and keeps what is wrong with it as warnings (ruling 20)."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    warnings: list[Problem]

    def flag(self, label: str, *, usual: bool = False) -> bool:
        """Read a label that means something where it is the one word of the two that is not usual."""
        text, other = self.labels.get(label, ""), "false" if usual else "true"
        if text and text not in ("true", "false"):
            effect = f"{show(text)} is neither true nor false; it counts as {str(usual).lower()}"
            self.warnings.append(Problem(f"metadata.labels[{label}]", effect))
        return not usual if text == other else usual

    def weight(self) -> Resources | None:
        found = self.resource_list(SHARED_WEIGHT)
        if found and not any(found.values()):
            told = "nothing of any resource counts as max"
            self.warnings.append(Problem(f"metadata.annotations[{SHARED_WEIGHT}]", told))
        return found

    def resource_list(self, key: str) -> Resources | None:
        if key not in self.annotations:
            return None
        try:
            exact = resource_list_annotation(self.annotations, key)
        except ManifestError as error:
            self.warnings.extend(error.problems)
            return None
        return amounts_of(exact)

    def namespaces(self) -> tuple[str, ...]:
        try:
            return quota_namespaces(self.annotations)
        except ManifestError as error:
            self.warnings.extend(error.problems)
            return ()


def _renamed(exact: ExactList) -> ExactList:
    if not exact.keys() & _RENAMED.keys():
        return exact
    old = {_RENAMED[name]: quantity for name, quantity in exact.items() if name in _RENAMED}
    return exact_list(old | {name: quantity for name, quantity in exact.items() if name not in _RENAMED})


def _spelling(exact: Mapping[str, ExactQuantity]) -> Spelling:
    return immutabledict({name: str(quantity) for name, quantity in exact.items()})


def elastic_quota_from_object(raw: Mapping[str, Json]) -> tuple[ElasticQuota, tuple[Problem, ...]]:
    """Read an ElasticQuota object the way the scheduler takes it in.

    Returns
    -------
    quota, warnings
        The quota, and one warning for each annotation that upstream ignores because it cannot read it, or
        because the quota is no root.

    Raises
    ------
    ManifestError
        When ``spec`` itself cannot be read.
    """
    metadata, spec = metadata_of(raw), optional(raw, "spec", as_mapping, _NO_FIELDS)
    labels = labels_of(raw)
    reader = _Reader(labels, annotations_of(raw), [])
    name = optional_in("metadata", metadata, "name", as_str, "")
    limits = {key: _renamed(_list_at("spec", spec, key)) for key in ("max", "min")}
    total = reader.resource_list(TOTAL_RESOURCE)
    quota = ElasticQuota(
        name=name,
        namespace=optional_in("metadata", metadata, "namespace", as_str, ""),
        parent="" if name == ROOT_QUOTA else labels.get(PARENT) or ROOT_QUOTA,
        tree=labels.get(TREE_ID, ""),
        max=amounts_of(limits["max"]),
        min=amounts_of(limits["min"]),
        shared_weight=reader.weight(),
        allow_lent=reader.flag(ALLOW_LENT_RESOURCE, usual=True),
        is_parent=reader.flag(IS_PARENT),
        is_root=reader.flag(IS_ROOT),
        ignore_default_tree=reader.flag(IGNORE_DEFAULT_TREE),
        allow_force_update=reader.flag(ALLOW_FORCE_UPDATE),
        profile=labels.get(PROFILE, ""),
        namespaces=reader.namespaces(),
        total=total,
        unschedulable=reader.resource_list(UNSCHEDULABLE_RESOURCE),
        deleting=metadata.get("deletionTimestamp") is not None,
        written_max=_spelling(limits["max"]),
        written_min=_spelling(limits["min"]),
    )
    return quota, (*reader.warnings, *_of_a_root_alone(quota))


def _of_a_root_alone(quota: ElasticQuota) -> Iterator[Problem]:
    """Name what counts for the root of a tree and stands on another quota."""
    told = f"it counts with {IS_ROOT} and {TREE_ID} alone; it is ignored"
    if not (quota.is_root and quota.tree):
        if quota.total is not None:
            yield Problem(f"metadata.annotations[{TOTAL_RESOURCE}]", told)
        if quota.ignore_default_tree:
            yield Problem(f"metadata.labels[{IGNORE_DEFAULT_TREE}]", told)


def _list_at(path: str, part: Mapping[str, Json], key: str) -> ExactList:
    return at(f"{path}.{key}", parse_exact_list, part.get(key))


@record(kw_only=True)
class QuotaObject:
    """An ElasticQuota object as it was written, for the webhook.

    Parameters
    ----------
    name, namespace, labels, annotations
        Metadata.
    max, min
        From ``spec``.
    has_max
        Whether ``spec.max`` is there at all.
    used
        From ``status``.
    """

    name: str
    namespace: str = ""
    has_max: bool = True
    labels: immutabledict[str, str] = _NO_TEXTS
    annotations: immutabledict[str, str] = _NO_TEXTS
    max: ExactList = _NO_AMOUNTS
    min: ExactList = _NO_AMOUNTS
    used: ExactList = _NO_AMOUNTS

    @property
    def parent(self) -> str:
        """Name of the parent; empty for the root alone."""
        return self.labels.get(PARENT) or ("" if self.name == ROOT_QUOTA else ROOT_QUOTA)

    @property
    def tree(self) -> str:
        """Id of the tree."""
        return self.labels.get(TREE_ID, "")

    def flag(self, label: str) -> bool:
        """Tell whether a label is the literal ``true``."""
        return self.labels.get(label) == "true"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces bound to it; none where the annotation cannot be read."""
        try:
            return quota_namespaces(self.annotations)
        except ManifestError:
            return ()

    def annotated_list(self, key: str) -> ExactList:
        """Resource list in an annotation; empty where it cannot be read."""
        try:
            return resource_list_annotation(self.annotations, key)
        except ManifestError:
            return immutabledict()


def quota_object(raw: Mapping[str, Json]) -> QuotaObject:
    """Read an ElasticQuota object for the webhook.

    Raises
    ------
    ManifestError
        When an amount in ``spec`` or ``status`` is no quantity.
    """
    metadata, spec = metadata_of(raw), optional(raw, "spec", as_mapping, _NO_FIELDS)
    return QuotaObject(
        name=optional_in("metadata", metadata, "name", as_str, ""),
        namespace=optional_in("metadata", metadata, "namespace", as_str, ""),
        labels=immutabledict(labels_of(raw)),
        annotations=immutabledict(annotations_of(raw)),
        has_max=spec.get("max") is not None,
        max=_list_at("spec", spec, "max"),
        min=_list_at("spec", spec, "min"),
        used=_list_at("status", optional(raw, "status", as_mapping, _NO_FIELDS), "used"),
    )


def quota_pod_of(pod: Pod) -> QuotaPod:
    """Give of a pod what quotas need."""
    return QuotaPod(
        key=pod.key,
        quota=quota_label(pod.labels),
        request=split_gpu(pod.requests),
        preemptible=is_preemptible(pod.labels),
        priority=pod.priority,
        start=None if pod.started is None else moment_of(pod.started),
        node=pod.node_name or "",
        labels=pod.labels,
        terminating=pod.deleted is not None or bool(pod.preempted_by),
        finished=pod.finished,
    )


def label_selector_from_object(raw: Json) -> LabelSelector:
    """Read a label selector; an absent one selects nothing, an empty one everything.

    Raises
    ------
    ManifestError
        With upstream's text where an operator is unknown or its values do not suit it.
    """
    return NOTHING if raw is None else as_label_selector(raw)


def quota_profile_from_object(raw: Mapping[str, Json]) -> QuotaProfile:
    """Read an ElasticQuotaProfile object.

    Raises
    ------
    ManifestError
        When the node selector cannot be read, with upstream's text for an unknown operator.
    """
    metadata, spec = metadata_of(raw), optional(raw, "spec", as_mapping, _NO_FIELDS)
    return QuotaProfile(
        name=optional_in("metadata", metadata, "name", as_str, ""),
        namespace=optional_in("metadata", metadata, "namespace", as_str, ""),
        quota_name=optional_in("spec", spec, "quotaName", as_str, ""),
        node_selector=at("spec.nodeSelector", label_selector_from_object, spec.get("nodeSelector")),
        quota_labels=immutabledict(optional_in("spec", spec, "quotaLabels", as_str_mapping, _NO_TEXTS)),
        labels=immutabledict(labels_of(raw)),
        resource_ratio=optional_in("spec", spec, "resourceRatio", as_str, None),
        resource_keys=_resource_keys(annotations_of(raw)),
    )


def _resource_keys(annotations: Mapping[str, str]) -> tuple[str, ...]:
    try:
        listed = _listed(annotations)
    except ManifestError:
        listed = None
    return (CPU, MEMORY) if listed is None else listed


def _listed(annotations: Mapping[str, str]) -> tuple[str, ...] | None:
    text = annotations.get(RESOURCE_KEYS, "")
    return collect(as_str, as_list(load_json(text))) if text else None


def parse_resource_ratio(text: str) -> float:
    """Read which share of its nodes' resources the tree of a profile gets.

    Raises
    ------
    ManifestError
        When it is no number above 0 and of at most 1; upstream then takes all of them.
    """
    ratio = parse_float(text)
    if not 0 < ratio <= 1:
        raise ManifestError.at("", f"expected a number above 0 and of at most 1, got {show(text)}")
    return ratio


def profile_in_vain(profile: QuotaProfile, annotations: Mapping[str, str]) -> Iterator[Problem]:
    """Name what a profile says in vain, or lacks, with the path in its object.

    Parameters
    ----------
    profile
        As it was read.
    annotations
        Of the object.
    """
    if not profile.quota_name:
        yield Problem("spec.quotaName", "absent; the profile makes no quota")
    if profile.node_selector == NOTHING:
        yield Problem("spec.nodeSelector", "absent; it selects no node")
    try:
        if profile.resource_ratio:
            parse_resource_ratio(profile.resource_ratio)
    except ManifestError as error:
        yield Problem("spec.resourceRatio", f"{error}; all that the nodes offer counts")
    try:
        _listed(annotations)
    except ManifestError as error:
        for one in error.problems:
            path = f"metadata.annotations[{RESOURCE_KEYS}]{one.path}"
            yield Problem(path, f"{one.message}; {CPU} and {MEMORY} count")
