"""The option ``--admit``: pods and quotas as the webhooks and controllers would have written them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import attrs

from koordcore.colocation.profile import Mutation, PriorityClassSpec, chooses, mutate_pod
from koordcore.errors import ManifestError, Problem
from koordcore.manifests import Loaded
from koordcore.manifests._raw import Source, SourceObject
from koordcore.manifests._reading import as_annotations
from koordcore.manifests.cross_checks import filled_topology
from koordcore.manifests.loading import assemble, opened
from koordcore.model.cluster import Namespace, PriorityClass
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaProfile
from koordcore.model.resources import format_resources
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.profile import ColocationProfile
from koordcore.protocol.qos import LABEL_QOS_CLASS
from koordcore.protocol.quota import (
    PREFIX,
    SHARED_WEIGHT,
    TREE_ID,
    labels_of,
    metadata_of,
    quota_label,
    quota_object,
)
from koordcore.protocol.quota_rules import QuotaTopology
from koordcore.protocol.quota_webhook import Refused, fill_quota
from koordcore.quota.profile import (
    RootQuota,
    add_tree_affinity,
    reconcile_profile,
    tree_id_of,
    tree_profile,
)
from koordcore.snapshot import ClusterSnapshot

_PERCENTS: Final = 100
_SIGS: Final = "scheduling.sigs.k8s.io"


def load_admitted(
    found: Iterable[Source],
    network: ClusterNetworkTopology | None = None,
    *,
    as_gangs: bool = False,
    feature_gates: Mapping[str, bool] = EMPTY,
    strict: bool = False,
) -> tuple[Loaded, list[str]]:
    """Load a dump after its ClusterColocationProfiles and ElasticQuotaProfiles were applied.

    Parameters
    ----------
    found
        What the dump holds.
    network, as_gangs, feature_gates, strict
        As for :func:`koordcore.manifests.load`.

    Returns
    -------
    Loaded, list of str
        The dump, and what was done, a line each.

    Raises
    ------
    ManifestError
        As :func:`koordcore.manifests.load` does.

    Notes
    -----
    Profiles change pods that wait for a node, as the webhook does when a pod is created; those that have
    been created, and look as the profiles would have them, are left as they are. Where a profile applies to a
    percentage of pods, a pod's name decides, so that the same dump gives the same answer.
    """
    read = list(opened(found))
    problems = [one for one in read if isinstance(one, Problem)]
    if problems:
        raise ManifestError(problems)
    messages: list[str] = []
    admit = partial(_admit, network=network, messages=messages)
    return assemble(read, network, as_gangs, feature_gates, strict, admit), messages


def _admit(
    found: Iterable[Source], network: ClusterNetworkTopology | None, messages: list[str]
) -> list[SourceObject]:
    """Write pods and quotas as webhooks and controllers would, and say what was done, a line each."""
    sources = [one for one in found if isinstance(one, SourceObject)]
    loaded = assemble(sources, network)
    plain = loaded.snapshot
    broken = {one.source for one in loaded.problems}
    changed: Counter[str] = Counter()
    admitted = [one if one.source in broken else _admitted(one, plain, changed) for one in sources]
    messages += [
        f"ClusterColocationProfile {name} applied to {count} pod{'s' * (count > 1)}"
        for name, count in sorted(changed.items())
    ]
    messages += _unknown_namespaces(plain)
    known = {one.name for one in plain.of(ElasticQuota)}
    for profile in plain.of(QuotaProfile):
        if profile.quota_name and profile.quota_name not in known:
            root = reconcile_profile(profile, [state.node for state in plain.nodes])
            admitted.append(SourceObject(f"ElasticQuotaProfile {profile.name}", _quota_manifest(root)))
            messages.append(f"ElasticQuotaProfile {profile.name} made ElasticQuota {root.name}")
    admitted, filled = _filled(admitted, broken)
    messages += (
        f"{what} filled in for {count} ElasticQuota{'s' * (count > 1)}"
        for what, count in sorted(filled.items())
    )
    admitted, kept = _on_their_nodes(admitted, plain.of(QuotaProfile), broken)
    messages += (
        f"ElasticQuotaProfile {name} keeps {count} pod{'s' * (count > 1)} of its tree on its nodes"
        for name, count in sorted(kept.items())
    )
    return admitted


def unapplied(snapshot: ClusterSnapshot) -> list[str]:
    """Name the ClusterColocationProfiles that choose waiting pods which do not look as they would have them.

    A dump of a live cluster has pods that the webhook has been at; hand-written ones have not. Of a profile
    for a share of the pods nobody can tell.
    """
    namespaces = {"default": {}, **{one.name: one.labels for one in snapshot.of(Namespace)}}
    profiles = snapshot.of(ColocationProfile)
    counts: Counter[str] = Counter()
    for pod in snapshot.pending:
        labels = namespaces.get(pod.namespace)
        chosen = [one for one in profiles if chooses(one, labels, pod.labels)]
        wanted, _ = _written(chosen)
        later: set[str] = set()
        for one in sorted(chosen, key=lambda profile: profile.name, reverse=True):
            own = _written([one])[0].keys() - later
            if one.probability is None and any(pod.labels.get(key) != wanted[key] for key in own):
                counts[one.name] += 1
            later |= own if one.probability is None else {*own, *one.label_suffixes}
    messages = [
        f"ClusterColocationProfile {name} is not applied to {count} waiting pod{'s' * (count > 1)} (--admit)"
        for name, count in sorted(counts.items())
    ]
    return messages + _unknown_namespaces(snapshot)


def _unknown_namespaces(snapshot: ClusterSnapshot) -> list[str]:
    """Name the ClusterColocationProfiles of which nobody can tell whether they choose a waiting pod."""
    known = {"default", *(one.name for one in snapshot.of(Namespace))}
    messages = []
    for profile in snapshot.of(ColocationProfile):
        anywhere = attrs.evolve(profile, namespace_selector=None)
        unknown = {
            pod.namespace
            for pod in snapshot.pending
            if pod.namespace not in known
            and chooses(anywhere, None, pod.labels)
            and not chooses(profile, None, pod.labels)
        }
        if unknown:
            messages.append(
                f"ClusterColocationProfile {profile.name} chooses by labels of namespaces, "
                f"and the dump lacks {', '.join(sorted(unknown))}"
            )
    return messages


def _admitted(source: SourceObject, plain: ClusterSnapshot, changed: Counter[str]) -> SourceObject:
    raw: Any = source.raw
    if not _waits(raw):
        return source
    meta = raw.get("metadata") or {}
    pod = _with_texts({**raw, "metadata": {**meta, "namespace": meta.get("namespace") or "default"}})
    try:
        done = _mutated(_with_priority(pod, plain), plain)
    except ManifestError as error:
        return attrs.evolve(source, refused=error.problems)  # as the webhook would have refused it
    if meta.get("uid") and _was_admitted(labels_of(raw), plain, done.applied):
        return source  # it is created once
    changed.update(done.applied)
    return SourceObject(source.source, done.pod) if done.changed else source


def _with_texts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Give an object with annotations that are text, as its reader takes what was written without quotes."""
    meta = metadata_of(raw)
    annotations = dict(as_annotations(meta.get("annotations") or {}))
    return {**raw, "metadata": {**meta, "annotations": annotations}}


def _with_priority(pod: Mapping[str, Any], plain: ClusterSnapshot) -> Mapping[str, Any]:
    """Give a pod with the priority of its class, which the API server writes before it asks webhooks."""
    known = plain.pod(PodKey(pod["metadata"]["namespace"], str(pod["metadata"].get("name"))))
    if known is None or not known.priority or pod["spec"].get("priority") is not None:
        return pod
    return {**pod, "spec": {**pod["spec"], "priority": known.priority}}


def _was_admitted(labels: Mapping[str, str], plain: ClusterSnapshot, names: Collection[str]) -> bool:
    """Tell whether a pod looks as profiles would have it, as far as labels tell."""
    wanted, ends = _written(one for one in plain.of(ColocationProfile) if one.name in names)
    marks = [labels[key].endswith(end) for key, end in ends.items() if key in labels]
    marks += [labels.get(key) == value for key, value in wanted.items()]
    return bool(marks) and all(marks)


def _written(profiles: Iterable[ColocationProfile]) -> tuple[dict[str, str], dict[str, str]]:
    """Give the labels that profiles write one after the other, and how those end that they only lengthen."""
    wanted: dict[str, str] = {}
    ends: dict[str, str] = {}
    for one in sorted(profiles, key=lambda profile: profile.name):
        wanted.update(one.labels)
        for key, suffix in one.label_suffixes.items():
            texts = wanted if key in wanted else ends
            texts[key] = texts.get(key, "") + suffix
        if one.qos_class:
            wanted[LABEL_QOS_CLASS] = one.qos_class
    return wanted, {key: end for key, end in ends.items() if key not in wanted}


def _mutated(pod: Mapping[str, Any], plain: ClusterSnapshot) -> Mutation:
    profiles = plain.of(ColocationProfile)
    name = f"{pod['metadata']['namespace']}/{pod['metadata'].get('name', '')}"
    # Names of one workload differ by a digit; what is drawn must not lie together for that.
    draws = [sha256(f"{number}/{name}".encode()).digest() for number in range(len(profiles))]
    return mutate_pod(
        pod,
        profiles,
        namespaces={"default": {}, **{one.name: one.labels for one in plain.of(Namespace)}},
        priority_classes={
            one.name: PriorityClassSpec(one.value, str(one.preemption_policy))
            for one in plain.of(PriorityClass)
        },
        draws=tuple(int.from_bytes(one[:8]) % _PERCENTS for one in draws),
    )


def _topology(sources: Iterable[SourceObject], broken: Collection[str]) -> QuotaTopology:
    """Take in the ElasticQuotas, each with the tree that the webhook fills in."""
    quotas = [
        quota_object(_with_texts(one.raw))
        for one in sources
        if isinstance(one.raw, Mapping) and _is(one.raw, _SIGS, "ElasticQuota") and one.source not in broken
    ]
    return filled_topology({one.name: one for one in reversed(quotas)})


def _filled(
    sources: Sequence[SourceObject], broken: Collection[str]
) -> tuple[list[SourceObject], Counter[str]]:
    """Complete the ElasticQuotas that nobody has created yet, and count by what was filled in.

    Those that the webhook would refuse stay as they are; that is said by who reads them.
    """
    topology = _topology(sources, broken)
    found: list[SourceObject] = []
    counts: Counter[str] = Counter()
    for source in sources:
        raw: Any = source.raw
        changed = source
        if (
            _is(raw, _SIGS, "ElasticQuota")
            and source.source not in broken
            and not metadata_of(raw).get("uid")
        ):
            written = quota_object(_with_texts(raw))
            done = fill_quota(topology, written)
            if not isinstance(done, Refused):
                labels = dict(labels_of(raw))
                annotations = dict((raw.get("metadata") or {}).get("annotations") or {})
                if done.tree != written.tree:
                    labels[TREE_ID] = done.tree
                    counts[f"tree id {done.tree}"] += 1
                weight = written.annotated_list(SHARED_WEIGHT)
                if weight and weight != done.annotated_list(SHARED_WEIGHT):
                    annotations[SHARED_WEIGHT] = done.annotations[SHARED_WEIGHT]
                    counts["shared weight"] += 1
                meta = {**metadata_of(raw), "labels": labels, "annotations": annotations}
                changed = attrs.evolve(source, raw={**raw, "metadata": meta})
        found.append(changed)
    return found, counts


def _on_their_nodes(
    sources: Sequence[SourceObject], profiles: Iterable[QuotaProfile], broken: Collection[str]
) -> tuple[list[SourceObject], Counter[str]]:
    """Require of waiting pods of a profile's tree the nodes of the profile, and count them by profile.

    A profile without a tree's id has the one that its controller writes on it.
    """
    known = [attrs.evolve(one, labels=one.labels | {TREE_ID: tree_id_of(one)}) for one in profiles]
    topology = _topology(sources, broken)
    found: list[SourceObject] = []
    kept: Counter[str] = Counter()
    for source in sources if known else ():
        raw: Any = source.raw
        changed = source
        if source.source not in broken and _waits(raw):
            meta = raw.get("metadata") or {}
            label, namespace = quota_label(labels_of(raw)), str(meta.get("namespace") or "default")
            profile = tree_profile(topology, known, quota=label, namespace=namespace)
            before = raw["spec"].get("affinity") if profile is not None else None
            after = None if profile is None else add_tree_affinity(before, profile.node_selector)
            if profile is not None and after != before and not _stays(before, profile.node_selector):
                spec = {**raw["spec"], "affinity": after}
                changed = attrs.evolve(source, raw={**raw, "spec": spec})
                kept[profile.name] += 1
        found.append(changed)
    return found or list(sources), kept


def _stays(affinity: Any, selector: LabelSelector) -> bool:
    """Tell whether a pod requires the nodes of a selector already, as one that the webhook has seen does."""
    (asked,) = _required(add_tree_affinity(None, selector))
    there = _required(affinity)
    return bool(there) and all(condition in term for term in there for condition in asked)


def _required(affinity: Any) -> list[list[Any]]:
    """Give the conditions of each required term."""
    node = (affinity or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [term.get("matchExpressions") or [] for term in required.get("nodeSelectorTerms") or []]


def _is(raw: Any, group: str, kind: str) -> bool:
    if not isinstance(raw, Mapping) or raw.get("kind") != kind:
        return False
    return str(raw.get("apiVersion") or "").rpartition("/")[0] == group


def _waits(raw: Any) -> bool:
    """Tell whether an object is a pod that has no node yet."""
    if not _is(raw, "", "Pod"):
        return False
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    return bool(spec) and not spec.get("nodeName") and status.get("phase") not in ("Succeeded", "Failed")


def _quota_manifest(root: RootQuota) -> dict[str, Any]:
    """Write the root quota of a profile as its controller would."""
    annotations = {
        f"{PREFIX}total-resource": json.dumps(dict(format_resources(root.total))),
        f"{PREFIX}unschedulable-resource": json.dumps(dict(format_resources(root.unschedulable))),
    }
    meta = {
        "name": root.name,
        "namespace": root.namespace,
        "labels": dict(root.labels),
        "annotations": annotations,
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": meta,
        "spec": {"min": dict(format_resources(root.min)), "max": dict(format_resources(root.max))},
    }
