"""What Kubernetes itself has for devices and groups: slices, classes, claims and pods of them; PodGroups."""

from __future__ import annotations

import random
from typing import Any, Final

from campaigns.case import Object

__all__ = ["with_calls", "with_native"]

DRIVER: Final = "d.example.com"
_UNIONS: Final = {"conditions": "type", "reservedFor": "uid"}
"""Lists that patches merge, and by what."""


def with_native(case: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Add claims and groups to some drawn worlds, and the plugin that serves claims to their policies."""
    nodes = [one["metadata"]["name"] for one in case["objects"] if one["kind"] == "Node"]
    more: list[Object] = []
    if chance.random() < 0.5:
        more += _claims(chance, nodes)
        if case["policy"] is not None:
            plugins = [*case["policy"]["plugins"], {"name": "DynamicResources", "weight": 2}]
            case = {**case, "policy": {**case["policy"], "plugins": plugins}}
    if chance.random() < 0.5:
        more += _groups(chance)
    return {**case, "objects": [*case["objects"], *more]}


def _claims(chance: random.Random, nodes: list[str]) -> list[Object]:
    expression = f"device.driver == '{DRIVER}'"
    made: list[Object] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "card"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
    ]
    for name in nodes:
        if chance.random() < 0.8:
            devices = [
                {"name": f"d{number}", "attributes": {"i": {"int": number}, "x": {"int": number % 2}}}
                for number in range(chance.randint(1, 4))
            ]
            made.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{name}-cards"},
                    "spec": {
                        "driver": DRIVER,
                        "nodeName": name,
                        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                        "devices": devices,
                    },
                }
            )
    for number in range(chance.randint(2, 6)):
        exactly: Object = {"deviceClassName": "card", "count": chance.choice((1, 1, 2))}
        if chance.random() < 0.3:
            wanted = f"device.attributes['{DRIVER}'].x == {number % 2}"
            exactly["selectors"] = [{"cel": {"expression": wanted}}]
        made.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u-c{number}"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
        )
        for twin in range(chance.choice((1, 1, 1, 2))):
            pod = _pod(chance, f"dra-{number}-{twin}")
            pod["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimName": f"c{number}"}]
            made.append(pod)
    return made


def _groups(chance: random.Random) -> list[Object]:
    made: list[Object] = []
    for number in range(chance.randint(1, 2)):
        name = f"native-{number}"
        gang: Object = {"schedulingPolicy": {"gang": {"minCount": chance.randint(1, 3)}}}
        if chance.random() < 0.5:
            gang["schedulingConstraints"] = {"topology": [{"key": "zone"}]}
        made.append(
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
                "spec": gang,
            }
        )
        for member in range(chance.randint(1, 4)):
            pod = _pod(chance, f"{name}-{member}")
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            made.append(pod)
    return made


def _pod(chance: random.Random, name: str) -> Object:
    requests = {"cpu": f"{chance.choice((500, 1000))}m", "memory": "512Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {
            "priority": chance.choice((100, 5500, 9500)),
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
        "status": {},
    }


# -- what the API server makes of calls ------------------------------------------------------------------


def with_calls(one: Object, body: Object) -> None:
    """Merge a patch into an object, in place."""
    for key, value in body.items():
        known = one.get(key)
        if value is None:
            one.pop(key, None)
        elif isinstance(value, dict) and isinstance(known, dict):
            with_calls(known, value)
        elif isinstance(value, list) and isinstance(known, list) and key in _UNIONS:
            by = _UNIONS[key]
            names = {item.get(by) for item in value}
            one[key] = [*(item for item in known if item.get(by) not in names), *value]
        else:
            one[key] = value
