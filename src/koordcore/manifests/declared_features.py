"""What pods need of their kubelets, which nodes declare (``status.declaredFeatures``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.protocol.fields import Json

_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"
_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"


def features_needed(spec: Mapping[str, Json]) -> tuple[str, ...]:
    """Tell which features Kubernetes 1.37 looks for on the nodes of a pod."""
    found = []
    main = [*_objects(spec, "containers"), *_objects(spec, "initContainers")]
    rules = (rule for one in main for rule in _objects(one, "restartPolicyRules"))
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        found.append(_RESTART_ALL)
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        found.append(_USER_NAMESPACES)
    every = (*main, *_objects(spec, "ephemeralContainers"))
    if any(mount.get("bindMountOptions") for one in every for mount in _objects(one, "volumeMounts")):
        found.append(_MOUNT_OPTIONS)
    return tuple(found)


def features_manifest(features: tuple[str, ...], containers: list[dict[str, Any]]) -> dict[str, Any]:
    """Write what needs features: into the first container, and as fields of the pod."""
    for first in containers[:1]:
        if _RESTART_ALL in features:
            first["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
        if _MOUNT_OPTIONS in features:
            first["volumeMounts"] = [{"bindMountOptions": ["noexec"]}]
    return {"hostNetwork": True, "hostUsers": False} if _USER_NAMESPACES in features else {}


def _objects(raw: Mapping[str, Json], name: str) -> Iterator[Mapping[str, Json]]:
    """Go over the objects of a list; what is none is named where the rest of it is read."""
    listed = raw.get(name)
    return (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping))
