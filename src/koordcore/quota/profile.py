"""Profiles: a part of the cluster, chosen by node labels, with a quota tree of its own.

After upstream's ``pkg/quota-controller/profile`` and the pod webhook's ``multi_quota_tree_affinity.go``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.nodes import Node
from koordcore.model.quotas import QuotaProfile
from koordcore.model.resources import CPU, Resources, make_resources, total
from koordcore.model.selectors import EVERYTHING, NOTHING, LabelSelector, Requirement
from koordcore.protocol.fields import Json, as_list, as_mapping
from koordcore.protocol.quota import IS_ROOT, PROFILE, TREE_ID, QuotaObject, parse_resource_ratio
from koordcore.protocol.quota_rules import QuotaTopology

_ROOT_MAX: Final = (2**63 - 1) // 2000
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@record(kw_only=True)
class RootQuota:
    """The root quota of a profile's tree as it should be.

    Parameters
    ----------
    name, namespace, labels
        Metadata; labels that were there stay.
    min, max
        For the profile's resource keys: what the selected nodes offer, and no real limit.
    total, unschedulable
        All resources of the selected nodes; the part on nodes that take no pods.
    """

    name: str
    namespace: str
    labels: immutabledict[str, str]
    min: Resources
    max: Resources
    total: Resources
    unschedulable: Resources


def tree_id_of(profile: QuotaProfile) -> str:
    """Id of the profile's tree: its label, else the FNV-1a hash (64 bits, decimal) of its key."""
    given = profile.labels.get(TREE_ID, "")
    if given:
        return given
    value = 0xCBF29CE484222325
    for byte in f"{profile.namespace}/{profile.name}".encode():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return str(value)


def reconcile_profile(
    profile: QuotaProfile,
    nodes: Iterable[Node],
    *,
    existing_labels: Mapping[str, str] = immutabledict(),
) -> RootQuota:
    """Work out the root quota of a profile.

    Parameters
    ----------
    profile
        The profile as it stands.
    nodes
        All nodes. Cordoned, unready and terminating ones count.
    existing_labels
        Labels of the root quota that is there already.
    """
    chosen = [node for node in nodes if profile.node_selector.matches(node.labels)]
    ratio = _ratio(profile.resource_ratio)
    offered = _scaled(total(node.allocatable for node in chosen), ratio)
    idle = _scaled(total(node.allocatable for node in chosen if node.unschedulable or not node.ready), ratio)
    labels = {
        **existing_labels,
        PROFILE: profile.name,
        **profile.quota_labels,
        TREE_ID: tree_id_of(profile),
        IS_ROOT: "true",
    }
    keys = profile.resource_keys
    return RootQuota(
        name=profile.quota_name,
        namespace=profile.namespace,
        labels=immutabledict(sorted(labels.items())),
        min=make_resources({key: offered.get(key, 0) for key in keys}),
        max=make_resources({key: _ROOT_MAX * (1000 if key == CPU else 1) for key in keys}),
        total=offered,
        unschedulable=idle,
    )


def _ratio(text: str | None) -> float | None:
    """Share of the resources; one where the text is none in (0, 1]. ``None`` where there is no text."""
    if not text:
        return None
    try:
        return parse_resource_ratio(text)
    except ManifestError:
        return 1.0


def _scaled(amounts: Resources, ratio: float | None) -> Resources:
    if ratio is None:
        return amounts
    return make_resources({name: math.trunc(float(amount) * ratio) for name, amount in amounts.items()})


# --- pods of a tree go to the nodes of its profile -------------------------------------------------------


def tree_profile(
    topology: QuotaTopology,
    profiles: Iterable[QuotaProfile],
    *,
    quota: str,
    namespace: str,
) -> QuotaProfile | None:
    """Find the profile whose nodes a new pod has to run on.

    Parameters
    ----------
    topology
        The quotas.
    profiles
        All of the cluster.
    quota
        What the pod's label names; empty for none.
    namespace
        Namespace of the pod.

    Returns
    -------
    QuotaProfile or None
        Of several with the tree's id the first by namespace and name.
    """
    found = _quota_of(topology, quota, namespace)
    if found is None or not found.tree:
        return None
    matching = [profile for profile in profiles if profile.labels.get(TREE_ID) == found.tree]
    return min(matching, key=lambda profile: (profile.namespace, profile.name), default=None)


def _quota_of(topology: QuotaTopology, label: str, namespace: str) -> QuotaObject | None:
    if label in topology.quotas:
        return topology.quotas[label]
    if not label and namespace in topology.quotas:
        return topology.quotas[namespace]
    return topology.quotas.get(topology.namespaces.get(namespace, ""))


def add_tree_affinity(affinity: Json, selector: LabelSelector) -> Json:
    """Require the nodes of a selector in a pod's ``spec.affinity``.

    The conditions join every required term that is there, or make one. A selector of all nodes or of none
    changes nothing: upstream adds a term without conditions for the former, which no node satisfies
    (ruling 22).
    """
    if selector in (EVERYTHING, NOTHING):
        return affinity
    conditions: Sequence[Mapping[str, Json]] = [
        *(
            {"key": key, "operator": "In", "values": [value]}
            for key, value in sorted(selector.match_labels.items())
        ),
        *map(_condition, selector.requirements),
    ]
    result = dict(as_mapping(affinity or {}))
    node = dict(as_mapping(result.get("nodeAffinity") or {}))
    required = dict(as_mapping(node.get(_REQUIRED) or {}))
    terms: list[Mapping[str, Json]] = []
    for raw in as_list(required.get("nodeSelectorTerms") or []):
        term = as_mapping(raw)
        present = as_list(term.get("matchExpressions") or [])
        terms.append({**term, "matchExpressions": [*present, *conditions]})
    required["nodeSelectorTerms"] = terms or [{"matchExpressions": list(conditions)}]
    node[_REQUIRED] = required
    result["nodeAffinity"] = node
    return result


def _condition(requirement: Requirement) -> Mapping[str, Json]:
    raw: dict[str, Json] = {"key": requirement.key, "operator": str(requirement.operator)}
    if requirement.values:
        raw["values"] = list(requirement.values)
    return raw
