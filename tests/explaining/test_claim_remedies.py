"""What would help pods whose claims no node can serve, and what none ever could."""

from __future__ import annotations

from typing import Any

import attrs

from koordcore import ClusterSnapshot, schedule
from koordcore.explaining.advice import Advice, advise
from koordcore.manifests import snapshot_from_objects
from koordcore.model.device_slices import ResourceSlice

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def node(name: str) -> list[dict[str, Any]]:
    """A node with four devices of a driver."""
    devices = [{"name": f"gpu-{place}", "attributes": {"model": {"string": "H100"}}} for place in range(4)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    status = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status},
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"}, "spec": spec},
    ]


def device_class(**spec: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    named = {"name": "gpu"}
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": named,
        "spec": {"selectors": selectors, **spec},
    }


def claim(name: str, count: int, *selectors: str, held: tuple[int, ...] = ()) -> dict[str, Any]:
    cel = [{"cel": {"expression": one}} for one in selectors]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": cel}
    made: dict[str, Any] = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "main", "exactly": exactly}]}},
    }
    if held:
        results = [
            {"request": "main", "driver": DRIVER, "pool": "a", "device": f"gpu-{place}"} for place in held
        ]
        used = [{"resource": "pods", "name": "holder", "uid": "holder"}]
        made["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": used}
    return made


def pod(name: str, claim: str = "", node: str = "", **requests: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": "1", **requests}, "limits": requests}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources}], "priority": 0}
    if claim:
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": claim}]
        resources["claims"] = [{"name": "g"}]
    if node:
        spec["nodeName"] = node
    named = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


HOLDER = (pod("holder", "held", "a"), claim("held", 3, held=(0, 1, 2)))
"""Three of the four devices of node a are in use."""


def cluster(*objects: dict[str, Any], nodes: str = "a", **spec: Any) -> ClusterSnapshot:
    rows = [one for name in nodes for one in node(name)]
    return snapshot_from_objects([*rows, device_class(**spec), *HOLDER, *objects]).snapshot


def advice(snapshot: ClusterSnapshot, name: str) -> Advice:
    return advise(snapshot, schedule(snapshot), f"default/{name}")


def helps(found: Advice) -> dict[str, str]:
    return {str(one.kind): one.text for one in found.remedies}


def test_devices_that_are_held_can_be_waited_for_or_fewer_be_asked_for() -> None:
    found = advice(cluster(pod("w", "c"), claim("c", 4)), "w")
    assert found.never == ()
    assert helps(found) == {
        "wait": "for default/holder on a; nothing says when it ends",
        "ask for less": "1 device instead of 4 in claim c, request main",
        "more nodes": "1 more like a (64 cpu, 64Gi memory, 4 devices of drivers)",
    }


def test_more_devices_than_any_node_has_are_named() -> None:
    found = advice(cluster(pod("w", "c"), claim("c", 9), nodes="ab"), "w")
    told = "no node has ever 9 devices for claim c, request main: the most is 4, on a and 1 more"
    assert found.never == (told,)
    assert helps(found) == {"ask for less": "4 devices instead of 9 in claim c, request main"}


def test_a_selector_that_no_device_meets_is_named() -> None:
    odd = f"device.attributes['{DRIVER}'].model == 'B200'"
    found = advice(cluster(pod("w", "c"), claim("c", 1, odd)), "w")
    assert found.never == ("no device of any node suits claim c, request main",)
    assert helps(found) == {}


def test_what_a_pool_will_have_is_not_known_before_all_of_it_is_published() -> None:
    snapshot = cluster(pod("w", "c"), claim("c", 9), nodes="ab")
    (one,) = [each for each in snapshot.of(ResourceSlice) if each.node_name == "b"]
    assert advice(snapshot, "w").never
    assert advice(snapshot.with_records(attrs.evolve(one, slice_count=2)), "w").never == ()


def test_what_only_a_device_class_serves_is_not_said_to_be_offered_by_nobody() -> None:
    """Nodes do not list the resource: a claim is made for it."""
    asked = pod("w", **{"example.com/gpu": "2"})
    found = advice(cluster(asked, extendedResourceName="example.com/gpu"), "w")
    assert found.never == ()
    assert helps(found)["ask for less"] == "1 example.com/gpu instead of 2"
    (never,) = advice(
        cluster(pod("w", **{"example.com/gpu": "9"}), extendedResourceName="example.com/gpu"), "w"
    ).never
    assert never.startswith("no node has ever 9 devices for claim w-extended-resources-")
