"""A cluster as it stands, from a dump that lacks what its running pods name: nothing is held against them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore import Violation, verify
from koordcore.manifests import snapshot_from_objects

GANG = "gang.scheduling.koordinator.sh"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"node.koordinator.sh/numa-topology-policy": "Restricted"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}},
}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "cx", "namespace": "d"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
}
GROUP: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "sg", "namespace": "d"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


def pod(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    containers = [{"name": "c", "resources": {"requests": requests, "limits": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "d",
            "uid": "u",
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"nodeName": "n", "containers": containers, **spec},
        "status": {"phase": "Running"},
    }


def found(*objects: dict[str, Any]) -> tuple[Violation, ...]:
    return verify(snapshot_from_objects([NODE, *objects]).snapshot)


@pytest.mark.parametrize(
    "lonely",
    [
        pytest.param(pod(resourceClaims=[{"name": "x", "resourceClaimName": "cx"}]), id="claim"),
        pytest.param(pod(resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}]), id="template"),
        pytest.param(
            pod({"scheduling.koordinator.sh/reservation-allocated": '{"name": "r", "uid": "ru"}'}),
            id="reservation",
        ),
        pytest.param(
            pod(
                {
                    "scheduling.koordinator.sh/resource-status": json.dumps(
                        {"cpuset": "3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "1"}}]}
                    )
                },
                {"koordinator.sh/qosClass": "LSR"},
                priority=9500,
            ),
            id="topology of a node",
        ),
        pytest.param(
            pod(
                {
                    f"{GANG}/name": "g",
                    f"{GANG}/min-available": "1",
                    f"{GANG}/network-topology-spec": json.dumps(
                        {"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]}
                    ),
                }
            ),
            id="network",
        ),
        pytest.param(pod(schedulingGroup={"podGroupName": "sg"}), id="group"),
    ],
)
def test_what_a_dump_lacks_is_not_held_against_who_runs(lonely: dict[str, Any]) -> None:
    assert found(lonely) == ()


def test_what_a_dump_has_is() -> None:
    asking = pod(resourceClaims=[{"name": "x", "resourceClaimName": "cx"}])
    assert [one.message for one in found(asking, CLAIM)] == ["claim x is not allocated"]
    member = pod(schedulingGroup={"podGroupName": "sg"})
    assert [one.message for one in found(member, GROUP)] == ["somebody starts below its minimum of 2"]
    alone = pod({f"{GANG}/name": "g", f"{GANG}/min-available": "2"})
    assert [one.message for one in found(alone)] == ["1 of at least 2 members of d/g have a node"]
