"""Classes, claims and templates: versions, defaults, what was given, and what does not agree."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.claim_status import claim_manifest
from koordcore.model.claims import (
    ConfigSource,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.quantity import NANO
from tests.manifests.builders import node, obj, pod

V1 = "resource.k8s.io/v1"
FORM = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}, {}],
    "count": 2,
    "tolerations": [{"key": "broken", "effect": "NoSchedule", "tolerationSeconds": 30}],
    "capacity": {"requests": {"memory": "10Gi"}},
}
SPEC: dict[str, Any] = {
    "devices": {
        "requests": [
            {"name": "gpu", "exactly": FORM},
            {
                "name": "nic",
                "firstAvailable": [
                    {"name": "fast", "deviceClassName": "nic", "allocationMode": "All"},
                    {"name": "slow", "deviceClassName": "nic"},
                ],
            },
        ],
        "constraints": [
            {"requests": ["gpu", "nic/fast"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        ],
        "config": [
            {"requests": ["gpu"], "opaque": {"driver": "gpu.example.com", "parameters": {"mode": "x"}}}
        ],
    }
}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
ONLY_N1 = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
}
STATUS = {
    "allocation": {
        "devices": {
            "results": [
                {**RESULT, "adminAccess": True},
                {
                    "request": "nic/fast",
                    "driver": "dra.net",
                    "pool": "n1",
                    "device": "nic-0",
                    "shareID": "0f0e",
                    "consumedCapacity": {"bandwidth": "10G"},
                    "tolerations": [{"operator": "Exists"}],
                    "bindingConditions": ["attached"],
                    "bindingFailureConditions": ["failed"],
                },
            ],
            "config": [{"source": "FromClass", "requests": ["gpu"], "opaque": {"driver": "gpu.example.com"}}],
        },
        "nodeSelector": ONLY_N1,
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    },
    "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "u-0"}],
    "devices": [
        {
            "driver": "dra.net",
            "pool": "n1",
            "device": "nic-0",
            "shareID": "0f0e",
            "conditions": [{"type": "attached", "status": "True"}, {"type": "failed", "status": "False"}],
        }
    ],
}


def claim(name: str = "c", spec: Any = SPEC, version: str = V1, **rest: Any) -> dict[str, Any]:
    return obj("ResourceClaim", name, version, spec=spec, **rest)


def holding(name: str, *results: Any, reserved: str = "", **allocation: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"allocation": {"devices": {"results": list(results)}, **allocation}}
    if reserved:
        status["reservedFor"] = [{"resource": "pods", "name": reserved, "uid": f"uid-{reserved}"}]
    return claim(
        name,
        {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        status=status,
    )


def only(raw: dict[str, Any]) -> tuple[ResourceClaim, list[str]]:
    loaded = snapshot_from_objects([raw])
    (record,) = loaded.snapshot.of(ResourceClaim)
    return record, [f"{one.path}: {one.message}" for one in loaded.warnings]


def test_a_claim_is_read_with_its_defaults() -> None:
    record, warnings = only(claim())
    assert warnings == []
    gpu, nic = record.spec.requests
    form = gpu.forms[0]
    assert (form.mode, form.count, form.admin_access, form.name) == ("ExactCount", 2, None, "")
    assert form.selectors == ("device.driver == 'gpu.example.com'", None)
    assert form.capacity == {"memory": 10 * 2**30 * NANO}
    assert (form.tolerations[0].operator, form.tolerations[0].seconds) == ("Equal", 30)
    assert nic.prioritized
    assert [(one.name, one.mode, one.count) for one in nic.forms] == [
        ("fast", "All", 0),
        ("slow", "ExactCount", 1),
    ]
    assert record.spec.config[0].parameters == '{"mode":"x"}'


def test_the_three_versions_of_the_api_give_one_record() -> None:
    flat = {
        "devices": {**SPEC["devices"], "requests": [{"name": "gpu", **FORM}, SPEC["devices"]["requests"][1]]},
    }
    newest, _ = only(claim())
    assert only(claim(version="resource.k8s.io/v1beta2"))[0] == newest
    assert only(claim(spec=flat, version="resource.k8s.io/v1beta1"))[0] == newest


def test_what_a_claim_was_given_is_read_back() -> None:
    record, warnings = only(claim(status=STATUS))
    assert warnings == []
    allocation = record.allocation
    assert allocation is not None
    gpu, nic = allocation.results
    assert (str(gpu.id), gpu.admin_access, gpu.share_id) == ("gpu.example.com/n1/gpu-0", True, None)
    assert (nic.share_id, dict(nic.consumed_capacity)) == ("0f0e", {"bandwidth": 10**10 * NANO})
    assert allocation.config[0].source is ConfigSource.CLASS
    assert allocation.node_selector is not None
    assert allocation.node_selector.matches("n1", {})
    assert record.reserved_for[0].uid == "u-0"
    assert record.devices[0].conditions == {"attached": True, "failed": False}


def test_amounts_are_written_as_people_write_them() -> None:
    amounts = {"bandwidth": "20G", "memory": "10Gi", "vfs": "2", "share": "500m"}
    form = {**FORM, "capacity": {"requests": amounts}}
    record, _ = only(claim(spec={"devices": {"requests": [{"name": "r", "exactly": form}]}}))
    (request,) = claim_manifest(record)["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"] == amounts


def test_a_claim_that_is_written_reads_as_it_was() -> None:
    metadata = {
        "uid": "u-c",
        "labels": {"a": "b"},
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": True}
        ],
    }
    for raw in (claim(), claim(status=STATUS, metadata=metadata), claim(spec={}), holding("h")):
        record, _ = only(raw)
        assert only(claim_manifest(record))[0] == record


@pytest.mark.parametrize(
    ("requests", "warning"),
    [
        ([{"name": "a"}], "requests[0]: needs one of exactly and firstAvailable"),
        ([{"name": "a", "exactly": {}}], "requests[0].exactly.deviceClassName: required"),
        (
            [{"name": "a", "exactly": {"deviceClassName": "g", "allocationMode": "All", "count": 1}}],
            "requests[0].exactly.count: may not stand beside allocationMode All",
        ),
        (
            [{"name": "a", "exactly": {"deviceClassName": "g", "allocationMode": "Some"}}],
            "requests[0].exactly.allocationMode: Some is not known",
        ),
        (
            [{"name": "a", "exactly": FORM}, {"name": "a", "exactly": FORM}],
            "requests[1].name: a stands there twice",
        ),
        (
            [{"name": "a", "exactly": {**FORM, "tolerations": [{"operator": "Maybe"}]}}],
            "requests[0].exactly.tolerations[0].operator: Maybe is not known",
        ),
        (
            [{"name": "a", "exactly": FORM, "firstAvailable": [{"name": "b", **FORM}]}],
            "requests[0].exactly: does not count beside firstAvailable",
        ),
        ([{"name": "a", "exactly": FORM, "count": 2}], "requests[0].count: does not count beside exactly"),
    ],
)
def test_what_the_server_would_refuse_is_warned_of(requests: list[Any], warning: str) -> None:
    _, warnings = only(claim(spec={"devices": {"requests": requests}}))
    assert any(one.startswith(f"spec.devices.{warning}") for one in warnings), warnings


def test_constraints_must_name_requests_and_one_attribute() -> None:
    constraints = [{"requests": ["gpu/x"]}]
    _, warnings = only(claim(spec={"devices": {**SPEC["devices"], "constraints": constraints}}))
    assert warnings == [
        "spec.devices.constraints[0].requests[0]: no request gpu/x",
        "spec.devices.constraints[0]: needs exactly one of matchAttribute and distinctAttribute",
    ]


def test_problems_name_the_place() -> None:
    wrong = {"devices": {"requests": [{"name": "gpu", "exactly": {**FORM, "count": "2"}}]}}
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects(
            [claim(spec=wrong, status={"reservedFor": [{"resource": "pods"}]})], strict=True
        )
    assert [one.path for one in caught.value.problems] == [
        "spec.devices.requests[0].exactly.count",
        "status.reservedFor[0].name",
    ]


def test_classes_and_templates() -> None:
    class_spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"}
    metadata = {"labels": {"team": "a"}}
    loaded = snapshot_from_objects(
        [
            obj(
                "DeviceClass",
                "gpu",
                V1,
                spec=class_spec,
                metadata={"creationTimestamp": "2026-01-01T00:00:00Z"},
            ),
            obj("ResourceClaimTemplate", "t", V1, spec={"metadata": metadata, "spec": SPEC}),
        ]
    )
    (one,) = loaded.snapshot.of(DeviceClass)
    assert (one.selectors, one.extended_resource_name) == (("true",), "example.com/gpu")
    (template,) = loaded.snapshot.of(ResourceClaimTemplate)
    assert template.labels == {"team": "a"}
    assert template.spec == only(claim())[0].spec
    assert isinstance(template.spec.requests[0].forms[0], DeviceSubRequest)


# --- what does not agree ------------------------------------------------------------------------------


def conflicts(*objects: dict[str, Any]) -> list[str]:
    return [str(one).partition(": ")[2] for one in snapshot_from_objects(objects).warnings]


def test_devices_held_twice_are_reported_at_the_later_claim() -> None:
    share = {**RESULT, "shareID": "s"}
    place = "ResourceClaim default/b: status.allocation.devices.results[0]"
    both = conflicts(holding("a", RESULT), holding("b", RESULT))
    assert both == [f"{place}: gpu.example.com/n1/gpu-0 is held by claim default/a, too"]
    assert "is held by claim default/a, too" in conflicts(holding("a", share), holding("b", RESULT))[0]
    assert "has the same share" in conflicts(holding("a", share), holding("b", share))[0]
    assert conflicts(holding("a", {**RESULT, "adminAccess": True}), holding("b", RESULT)) == []
    assert conflicts(holding("a", share), holding("b", {**RESULT, "shareID": "t"})) == []


def test_more_than_there_is_of_a_card_and_of_a_shared_device_is_reported() -> None:
    """Of the newest generation; a card is named once, and what is used with admin access counts nowhere."""

    def part(name: str, amount: str) -> dict[str, Any]:
        return {
            "name": name,
            "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}],
        }

    def published(name: str, generation: int, **rest: Any) -> dict[str, Any]:
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": 2}
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", **rest}
        return obj("ResourceSlice", name, V1, spec=spec)

    def counters(amount: str) -> list[dict[str, Any]]:
        return [{"name": "gpu", "counters": {"memory": {"value": amount}}}]

    def result(device: str, **rest: Any) -> dict[str, Any]:
        return {**RESULT, "device": device, **rest}

    nic = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}}
    slices = [
        published("old", 1, sharedCounters=counters("80Gi")),
        published("counters", 2, sharedCounters=counters("40Gi")),
        published("devices", 2, devices=[part("a", "30Gi"), part("b", "10Gi"), part("c", "20Gi"), nic]),
    ]
    fits = [holding("a", result("a")), holding("b", result("b", adminAccess=True), result("b"))]
    assert conflicts(*slices, *fits) == []
    shares = [result("nic", shareID=one, consumedCapacity={"bandwidth": "60G"}) for one in "xy"]
    place = "ResourceClaim default/c: status.allocation.devices.results"
    beyond = "claims take more of gpu of gpu.example.com/n1 than it has (memory by 20Gi)"
    assert conflicts(*slices, *fits, holding("c", result("c"), *shares)) == [
        f"{place}[0]: {beyond}; no partition of the pool can be had",
        f"{place}[2]: shares of gpu.example.com/n1/nic take 120G of bandwidth, of which there are 100G",
    ]


def test_devices_that_nobody_publishes_are_reported() -> None:
    pool = {"name": "n1", "resourceSliceCount": 1}
    published = obj(
        "ResourceSlice",
        "s",
        V1,
        spec={"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": [{"name": "gpu-1"}]},
    )
    place = "ResourceClaim default/a: status.allocation.devices.results[0]"
    assert conflicts(holding("a", RESULT), published) == [
        f"{place}: no slice publishes gpu.example.com/n1/gpu-0"
    ]


def test_admin_access_needs_a_label_of_the_namespace() -> None:
    asking = claim("a", {"devices": {"requests": [{"name": "r", "exactly": {**FORM, "adminAccess": True}}]}})
    plain = obj("Namespace", "default")
    label = {"labels": {"resource.kubernetes.io/admin-access": "true"}}
    assert "resource.kubernetes.io/admin-access" in conflicts(asking, plain)[0]
    assert conflicts(asking, obj("Namespace", "default", metadata=label)) == []
    assert conflicts(asking) == []


def test_pods_and_claims_that_do_not_know_each_other_are_reported() -> None:
    def bound(name: str, entry: dict[str, Any], node_name: str = "n1") -> dict[str, Any]:
        return pod(name, nodeName=node_name, resourceClaims=[entry], metadata={"uid": f"uid-{name}"})

    named = {"name": "gpu", "resourceClaimName": "a"}
    one = [holding("a", RESULT, reserved="p", nodeSelector=ONLY_N1), node("n1"), node("n2")]
    assert conflicts(*one, bound("p", named)) == []
    assert conflicts(*one, bound("p", named, "n2")) == [
        "Pod default/p: spec.resourceClaims[0]: the devices of claim a cannot be used on node n2"
    ]
    assert conflicts(*one, bound("p", named), bound("q", named)) == [
        "Pod default/q: spec.resourceClaims[0]: claim a is not reserved for the pod"
    ]
    assert conflicts(*one, bound("q", {"name": "gpu", "resourceClaimName": "b"})) == [
        "ResourceClaim default/a: status.reservedFor[0]: no pod default/p in the dump",
        'Pod default/q: spec.resourceClaims[0]: resourceclaim "b" not found, although the pod is bound',
    ]
    free = claim("b", {"devices": {}})
    assert conflicts(node("n1"), free, bound("q", {"name": "gpu", "resourceClaimName": "b"})) == [
        "Pod default/q: spec.resourceClaims[0]: claim b is not allocated, although the pod is bound"
    ]
