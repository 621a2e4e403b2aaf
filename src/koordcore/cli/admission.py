"""The option ``--admit``: pods and quotas as the webhooks and controllers would have written them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordcore.colocation.profile import PriorityClassSpec, mutate_pod
from koordcore.errors import ManifestError, Problem
from koordcore.manifests import Loaded
from koordcore.manifests._raw import Source, SourceObject
from koordcore.manifests.bundle import assemble
from koordcore.model.cluster import Namespace, PriorityClass
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.quotas import ElasticQuota, QuotaProfile
from koordcore.model.resources import format_resources
from koordcore.protocol.profile import ColocationProfile
from koordcore.protocol.quota import PREFIX
from koordcore.quota.profile import RootQuota, reconcile_profile
from koordcore.snapshot import ClusterSnapshot

_PERCENTS: Final = 100


def load_admitted(
    found: Iterable[Source], network: ClusterNetworkTopology | None = None, *, as_gangs: bool = False
) -> tuple[Loaded, list[str]]:
    """Load a dump after its ClusterColocationProfiles and ElasticQuotaProfiles were applied.

    Parameters
    ----------
    found
        What the dump holds.
    network, as_gangs
        As for :func:`koordcore.manifests.load`.

    Returns
    -------
    Loaded, list of str
        The dump, and what was done, a line each.

    Raises
    ------
    ManifestError
        With every problem of the input.

    Notes
    -----
    Profiles change pods that wait for a node, as the webhook does when a pod is created. Where a profile
    applies to a percentage of pods, a pod's name decides, so that the same dump gives the same answer.
    """
    read = list(found)
    problems = [one for one in read if isinstance(one, Problem)]
    if problems:
        raise ManifestError(problems)
    sources = [one for one in read if isinstance(one, SourceObject)]
    plain = assemble(sources, network).snapshot
    changed: Counter[str] = Counter()
    admitted = [_admitted(one, plain, changed) for one in sources]
    told = [
        f"ClusterColocationProfile {name} applied to {count} pod{'s' * (count > 1)}"
        for name, count in sorted(changed.items())
    ]
    known = {one.name for one in plain.of(ElasticQuota)}
    for profile in plain.of(QuotaProfile):
        if profile.quota_name and profile.quota_name not in known:
            root = reconcile_profile(profile, [state.node for state in plain.nodes])
            admitted.append(SourceObject(f"ElasticQuotaProfile {profile.name}", _quota_manifest(root)))
            told.append(f"ElasticQuotaProfile {profile.name} made ElasticQuota {root.name}")
    return assemble(admitted, network, as_gangs), told


def _admitted(source: SourceObject, plain: ClusterSnapshot, changed: Counter[str]) -> SourceObject:
    raw: Any = source.raw
    if not (isinstance(raw, Mapping) and raw.get("kind") == "Pod" and raw.get("apiVersion") == "v1"):
        return source
    spec, meta = raw.get("spec") or {}, raw.get("metadata") or {}
    if spec.get("nodeName") or (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return source
    profiles = plain.of(ColocationProfile)
    pod = {**raw, "metadata": {**meta, "namespace": meta.get("namespace") or "default"}}
    draw = sum(map(ord, f"{pod['metadata']['namespace']}/{meta.get('name', '')}")) % _PERCENTS
    done = mutate_pod(
        pod,
        profiles,
        namespaces={"default": {}, **{one.name: one.labels for one in plain.of(Namespace)}},
        priority_classes={
            one.name: PriorityClassSpec(one.value, str(one.preemption_policy))
            for one in plain.of(PriorityClass)
        },
        draws=(draw,) * len(profiles),
    )
    changed.update(done.applied)
    return SourceObject(source.source, done.pod) if done.changed else source


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
