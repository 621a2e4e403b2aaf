"""What pods need of kubelets: declared (``status.declaredFeatures``), which nothing here holds pods to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from koordcore.errors import Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.protocol.fields import Json

_USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"
_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"


class Needing(NamedTuple):
    """A pod, and the features that it needs of its node."""

    pod: Pod
    features: tuple[str, ...]


def features_needed(spec: Mapping[str, Json]) -> tuple[str, ...]:
    """Tell which features Kubernetes' plugin of that name would look for on the nodes of a pod."""
    found = []
    if any(_restarts_all(spec.get(field)) for field in ("containers", "initContainers")):
        found.append(_RESTART_ALL)
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        found.append(_USER_NAMESPACES)
    return tuple(found)


def _restarts_all(containers: Json) -> bool:
    each = (one for one in _list(containers) if isinstance(one, dict))
    rules = chain.from_iterable(_list(one.get("restartPolicyRules")) for one in each)
    return any(isinstance(one, dict) and one.get("action") == "RestartAllContainers" for one in rules)


def _list(raw: Json) -> list[Json]:
    return raw if isinstance(raw, list) else []


def feature_remarks(nodes: Iterable[Node], needing: Iterable[Needing]) -> Iterator[Remark]:
    """Name each pod that waits and needs what some nodes do not declare, where any node declares anything."""
    waiting = [one for one in needing if one.pod.node_name is None and not one.pod.finished]
    if not waiting:
        return
    declared = [node.features for node in nodes]
    for pod, features in waiting:
        lacking = sum(not {*features} <= {*there} for there in declared)
        if lacking and any(declared):
            message = (
                f"{', '.join(features)} is needed, which {lacking} of {len(declared)} nodes do not declare: "
                "that is not looked at (NodeDeclaredFeatures is not modelled)"
            )
            yield ("", "Pod", pod.namespace, pod.name), Problem("spec", message)
