"""Pods that ask for what is not modelled are refused, and a plan that places them is not legal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    Policy,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.checking.violation import ViolationKind
from koordcore.errors import ManifestError
from koordcore.explaining.pod import explain
from koordcore.manifests.encode import pod_manifest
from koordcore.manifests.pods import pod_from_manifest
from koordcore.model.pods import PodResourceClaim, SchedulingGroup

POLICY = Policy(plugins=tuple(one for one in Policy().plugins if one.name != "DynamicResources"))
NODES = [Node(name=name, allocatable={"cpu": 4000, "pods": 10}) for name in "ab"]
CLAIMING = Pod(
    name="p", requests={"cpu": 100}, resource_claims=(PodResourceClaim("gpu", template="one-gpu"),)
)
REASONS = {"claim": (CLAIMING, "resource claims are not modelled (spec.resourceClaims: gpu)")}
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1"}


@pytest.mark.parametrize("asking", REASONS)
@pytest.mark.parametrize("preempt", [None, PreemptionRules()])
@pytest.mark.parametrize("annotations", [{}, GANG])
def test_it_is_refused_and_others_are_placed(
    asking: str, preempt: PreemptionRules | None, annotations: dict[str, str]
) -> None:
    pod, reason = REASONS[asking]
    pod = attrs.evolve(pod, annotations=annotations)
    snapshot = ClusterSnapshot(nodes=NODES, pending=[pod, Pod(name="other", requests={"cpu": 100})])
    result = schedule(snapshot, policy=POLICY, preempt=preempt)
    refused = result.decision(pod.key)
    assert isinstance(refused, Unschedulable)
    assert reason in refused.message
    assert [one.pod.name for one in result.bound] == ["other"]
    assert verify(snapshot, result) == ()
    assert explain(snapshot, pod, policy=POLICY).refusal == reason


@pytest.mark.parametrize("asking", REASONS)
def test_a_plan_that_places_it_is_not_legal(asking: str) -> None:
    pod, _ = REASONS[asking]
    plain = Pod(name="p", requests=pod.requests)
    result = schedule(ClusterSnapshot(nodes=NODES, pending=[plain]), policy=POLICY)
    (bound,) = result.bound
    assert isinstance(bound, Bound)
    snapshot = ClusterSnapshot(nodes=NODES, pending=[pod])
    placed = attrs.evolve(result, snapshot=snapshot.assume(pod.at(bound.node)))
    assert [one.kind for one in verify(snapshot, placed)] == [ViolationKind.UNMODELLED]


LEAVING = Pod(name="p", requests={"cpu": 100}, priority=100, deleted=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("preempt", [None, PreemptionRules()])
@pytest.mark.parametrize("cpu", [100, 4000])
def test_who_is_being_deleted_is_placed_no_more(preempt: PreemptionRules | None, cpu: int) -> None:
    """Nobody has to leave for it either; the members of its gang count it and go without it."""
    pod = attrs.evolve(LEAVING, requests={"cpu": cpu})
    low = [Pod(name=f"low-{name}", requests={"cpu": 1000}).at(name) for name in "ab"]
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    members = [Pod(name=f"g-{number}", requests={"cpu": 100}, annotations=gang) for number in range(2)]
    members.append(attrs.evolve(LEAVING, name="g-2", annotations=gang))
    states = [NodeState(node, (one,)) for node, one in zip(NODES, low, strict=True)]
    snapshot = ClusterSnapshot(nodes=states, pending=[pod, *members])
    result = schedule(snapshot, preempt=preempt)
    assert {one.pod.name for one in result.bound} == {"g-0", "g-1"}
    for name in ("p", "g-2"):
        refused = result.decision(f"default/{name}")
        assert isinstance(refused, Unschedulable)
        assert "the pod is being deleted" in refused.message
    assert verify(snapshot, result) == ()
    assert explain(snapshot, pod).refusal == "the pod is being deleted"


def test_a_gang_does_not_start_with_members_that_are_being_deleted() -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    members = [Pod(name="g-0", annotations=gang), attrs.evolve(LEAVING, annotations=gang)]
    snapshot = ClusterSnapshot(nodes=NODES, pending=members)
    assert not schedule(snapshot).bound


def test_a_plan_that_places_who_is_being_deleted_is_not_legal() -> None:
    stays = attrs.evolve(LEAVING, deleted=None)
    result = schedule(ClusterSnapshot(nodes=NODES, pending=[stays]))
    (bound,) = result.bound
    snapshot = ClusterSnapshot(nodes=NODES, pending=[LEAVING])
    placed = attrs.evolve(result, snapshot=snapshot.assume(LEAVING.at(bound.node)))
    assert {one.kind for one in verify(snapshot, placed)} == {ViolationKind.DELETED}


def manifest(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}, "status": status or {}}


def test_claims_and_groups_are_read_and_written() -> None:
    claims = [
        {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
        {"name": "nic", "resourceClaimTemplateName": "one-nic"},
        {"name": "shared", "resourceClaimName": "cache"},
    ]
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}, {"name": "nic"}]}
    pod = pod_from_manifest(
        manifest(status, resourceClaims=claims, schedulingGroup={"podGroupName": "train"})
    )
    assert pod.resource_claims == (
        PodResourceClaim("gpu", "p-gpu-x7k2p", "one-gpu"),
        PodResourceClaim("nic", "", "one-nic"),
        PodResourceClaim("shared", "cache"),
    )
    assert pod.scheduling_group == SchedulingGroup("train")
    part = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "0"}
    other = pod_from_manifest(manifest(workloadRef=part))
    assert other.scheduling_group == SchedulingGroup("workers", workload="train", replica="0")
    for one in (pod, other):
        again = pod_from_manifest(pod_manifest(one))
        assert (again.resource_claims, again.scheduling_group) == (one.resource_claims, one.scheduling_group)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims[0]"),
        (
            {"resourceClaims": [{"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}]},
            "spec.resourceClaims[0]",
        ),
        ({"resourceClaims": [{"resourceClaimName": "b"}]}, "spec.resourceClaims[0].name"),
        ({"resourceClaims": {}}, "spec.resourceClaims"),
        ({"schedulingGroup": {}}, "spec.schedulingGroup"),
        ({"workloadRef": {"name": "w", "podGroup": ""}}, "spec.workloadRef.podGroup"),
        (
            {"schedulingGroup": {"podGroupName": "a"}, "workloadRef": {"name": "w", "podGroup": "g"}},
            "spec.workloadRef",
        ),
    ],
)
def test_what_the_api_server_would_refuse_is_named(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ManifestError) as caught:
        pod_from_manifest(manifest(**spec))
    assert [problem.path for problem in caught.value.problems] == [path]
