"""Names of claims, the claims of pods, and extended resources that classes serve."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore.manifests.plan_patches import patches
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    HeldClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.containers import Container
from koordcore.model.decisions import Bound
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodResourceClaim, SchedulingGroup
from koordcore.model.scheduling_groups import GroupClaim, SchedulingPodGroup
from koordcore.protocol.claims import (
    ClaimIndex,
    ClaimProblem,
    PodClaims,
    claim_name,
    claims_of_pod,
    consumer_of,
)
from koordcore.protocol.extended_resources import (
    ExtendedDemand,
    RequestMapping,
    classes_by_resource,
    extended_claim,
    extended_demand,
)
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

SPEC = ClaimSpec(requests=(ClaimRequest("gpu", (DeviceSubRequest(class_name="gpu"),)),))
TEMPLATE = ResourceClaimTemplate(name="t", spec=SPEC, labels={"a": "b"})


def pod(*entries: PodResourceClaim, **rest: Any) -> Pod:
    return Pod(name="p", uid="u-p", resource_claims=entries, **rest)


def reason(one: Pod, *claims: ResourceClaim, templates: tuple[ResourceClaimTemplate, ...] = ()) -> str:
    found = claims_of_pod(one, ClaimIndex(claims, templates))
    assert isinstance(found, ClaimProblem)
    return str(found)


# --- names and claims of pods -------------------------------------------------------------------------


def test_long_names_keep_something_of_both_parts() -> None:
    name = claim_name(Pod(name="p" * 60), "c" * 20)
    base, _, suffix = name.rpartition("-")
    # 81 characters are cut to 57 in proportion, as the controller does.
    assert base == f"{'p' * (60 * 57 // 81)}-{'c' * (20 * 57 // 81)}"
    assert len(suffix) == 5
    assert len(name) <= 63


def test_a_claim_that_a_template_will_give_is_planned() -> None:
    entry = PodResourceClaim("gpu", template="t")
    found = claims_of_pod(pod(entry), ClaimIndex((), (TEMPLATE,)))
    assert isinstance(found, PodClaims)
    (claim,) = found.claims
    assert (claim.spec, claim.owner, claim.pod_claim_name, dict(claim.labels)) == (
        SPEC,
        "u-p",
        "gpu",
        {"a": "b"},
    )
    assert found.planned == {claim.name}
    # Once it is there, it is that one, whether the pod's status tells its name or not.
    made = attrs.evolve(claim, name="p-gpu-x2x2x")
    for told in (entry, attrs.evolve(entry, claim="p-gpu-x2x2x")):
        assert claims_of_pod(pod(told), ClaimIndex((made,), (TEMPLATE,))) == PodClaims((made,))


@pytest.mark.parametrize(
    ("entry", "claim", "expected"),
    [
        (PodResourceClaim("gpu", claim="c"), None, 'resourceclaim "c" not found'),
        (PodResourceClaim("gpu", template="t"), None, 'resourceclaimtemplate "t" not found'),
        (
            PodResourceClaim("gpu", claim="c"),
            ResourceClaim(name="c", deleting=True),
            'resourceclaim "c" is being deleted',
        ),
        (
            PodResourceClaim("gpu", claim="c", template="t"),
            ResourceClaim(name="c", owner="u-other"),
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)",
        ),
    ],
)
def test_a_pod_waits_for_its_claims(
    entry: PodResourceClaim, claim: ResourceClaim | None, expected: str
) -> None:
    assert reason(pod(entry), *([claim] if claim else [])) == expected


def test_a_claim_in_another_namespace_is_another_claim() -> None:
    assert reason(pod(PodResourceClaim("g", claim="c")), ResourceClaim(name="c", namespace="other"))


def test_one_claim_under_two_names_stands_there_twice() -> None:
    claim = ResourceClaim(name="c")
    two = pod(PodResourceClaim("a", claim="c"), PodResourceClaim("b", claim="c"))
    assert claims_of_pod(two, ClaimIndex([claim])) == PodClaims((claim, claim))


def test_claims_are_reserved_for_pods_and_for_groups() -> None:
    by_uid = ResourceClaim(name="c", reserved_for=(ClaimConsumer("p", "u-p"),))
    assert consumer_of(by_uid, pod()) == ClaimConsumer("p", "u-p")
    assert consumer_of(by_uid, attrs.evolve(pod(), uid="u-later")) is None
    group = ClaimConsumer("g", "u-g", "podgroups", "scheduling.k8s.io")
    by_group = ResourceClaim(name="c", reserved_for=(group,))
    assert consumer_of(by_group, pod()) is None
    assert consumer_of(by_group, pod(scheduling_group=SchedulingGroup("g"))) == group


# --- extended resources -------------------------------------------------------------------------------


def a_class(name: str, resource: str = "", day: int = 1) -> DeviceClass:
    return DeviceClass(name=name, extended_resource_name=resource, created=datetime(2026, 1, day, tzinfo=UTC))


def test_every_class_is_served_by_its_implicit_name() -> None:
    served = classes_by_resource([a_class("gpu", "example.com/gpu"), a_class("plain")])
    assert dict(served) == {
        "deviceclass.resource.kubernetes.io/gpu": "gpu",
        "deviceclass.resource.kubernetes.io/plain": "plain",
        "example.com/gpu": "gpu",
    }
    wanted = {"cpu": 1, "deviceclass.resource.kubernetes.io/plain": 1}
    assert extended_demand(wanted, {"cpu": 1}, served) == ExtendedDemand(
        claimed=("deviceclass.resource.kubernetes.io/plain",)
    )


def test_of_two_classes_with_one_name_the_newer_wins_then_the_lower_name() -> None:
    old, new = a_class("a", "r/x", 1), a_class("b", "r/x", 2)
    assert classes_by_resource([old, new])["r/x"] == classes_by_resource([new, old])["r/x"] == "b"
    same = [a_class("z", "r/x", 2), new]
    assert classes_by_resource(same)["r/x"] == classes_by_resource(same[::-1])["r/x"] == "b"
    # The loser is known by its own name only if it came first.
    own = "deviceclass.resource.kubernetes.io/a"
    assert own in classes_by_resource([old, new])
    assert own not in classes_by_resource([new, old])


def test_a_device_plugin_goes_before_classes_node_by_node() -> None:
    served = {"r/x": "x"}
    assert extended_demand({"r/x": 2}, {"r/x": 8}, served) == ExtendedDemand()
    assert extended_demand({"r/x": 2}, {"r/x": 0}, served) == ExtendedDemand(claimed=("r/x",))
    assert extended_demand({"r/x": 2, "r/y": 1}, {}, served) == ExtendedDemand(("r/x",), ("r/y",))
    assert extended_demand({"r/y": 1, "r/x": 0}, {}, served) is None


def test_containers_that_end_lend_their_devices() -> None:
    def container(name: str, gpus: int, *, sidecar: bool = False) -> Container:
        return Container(name, {"cpu": 1000, "r/x": gpus}, restarts_always=sidecar)

    one = Pod(
        name="p",
        init_containers=(container("i0", 2), container("i1", 1, sidecar=True), container("i2", 5)),
        containers=(container("c0", 1),),
    )
    made = extended_claim(one, ["r/x"], {"r/x": "gpu"})
    counts = {request.name: request.forms[0].count for request in made.claim.spec.requests}
    # i2 starts after the sidecar i1, so that it shares only c0's device and wants four more.
    assert counts == {"container-1-request-1": 1, "container-2-request-1": 4, "container-3-request-1": 1}
    assert made.mappings == (
        RequestMapping("i1", "r/x", "container-1-request-1"),
        RequestMapping("c0", "r/x", "container-3-request-1"),
        RequestMapping("i0", "r/x", "container-1-request-1"),
        RequestMapping("i0", "r/x", "container-3-request-1"),
        RequestMapping("i2", "r/x", "container-3-request-1"),
        RequestMapping("i2", "r/x", "container-2-request-1"),
    )
    assert made.claim.extended


# --- what is sent -------------------------------------------------------------------------------------

ALLOCATED = ClaimAllocation(
    results=(
        DeviceResult(request="gpu", driver="d", pool="n1", device="gpu-0", binding_conditions=("attached",)),
    )
)


FROM_TEMPLATE = PodResourceClaim("gpu", template="t")


def sent(
    held: HeldClaim,
    *entries: PodResourceClaim,
    requests: dict[str, int] | None = None,
    group: SchedulingPodGroup | None = None,
) -> list[dict[str, Any]]:
    containers = (Container("main", requests),) if requests else ()
    named = None if group is None else SchedulingGroup(pod_group=group.name)
    bound = pod(
        *entries, node_name="n1", containers=containers, requests=requests or {}, scheduling_group=named
    )
    known = () if group is None else (group,)
    records = (ResourceClaim(name="c", uid="u-c"), a_class("gpu", "r/x"), TEMPLATE, *known)
    state = NodeState(Node(name="n1", allocatable={"cpu": 1000, "pods": 10}), (bound,))
    snapshot = ClusterSnapshot(nodes=[state], records=records)
    result = ScheduleResult(snapshot=snapshot, decisions=(Bound(pod=bound.key, node="n1", claims=(held,)),))
    return [call.to_json() for call in patches(result, now=datetime(2026, 1, 1, tzinfo=UTC))]


def test_a_claim_is_reserved_with_its_allocation_before_the_pod_is_bound() -> None:
    keep, first, last = sent(HeldClaim(name="c", entry="gpu", allocation=ALLOCATED))
    # The API server drops a finalizer that comes with the status.
    assert keep["path"] == "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
    assert keep["body"] == {
        "metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"], "uid": "u-c"}
    }
    assert first["path"] == "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status"
    assert first["contentType"] == "application/strategic-merge-patch+json"
    result = {"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0"}
    assert first["body"] == {
        "metadata": {"uid": "u-c"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u-p"}],
            "allocation": {
                "devices": {"results": [{**result, "bindingConditions": ["attached"]}]},
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
        },
    }
    assert last["path"].endswith("/pods/p/binding")


def test_a_claim_that_was_allocated_before_is_only_reserved() -> None:
    first, _ = sent(HeldClaim(name="c", entry="gpu", allocation=ALLOCATED, fresh=False))
    assert set(first["body"]["status"]) == {"reservedFor"}


def test_a_claim_that_a_template_gives_is_made_for_the_pod_before_it_is_bound() -> None:
    name = claim_name(pod(FROM_TEMPLATE), "gpu")
    planned = HeldClaim(name=name, entry="gpu", allocation=ALLOCATED, planned=True)
    create, reserve, tell, bind = sent(planned, FROM_TEMPLATE)
    assert create["body"]["metadata"] == {
        "name": name,
        "namespace": "default",
        "labels": {"a": "b"},
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": True}
        ],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    assert reserve["path"].endswith(f"/resourceclaims/{name}/status")
    assert reserve["body"]["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u-p"}]
    assert tell["path"].endswith("/pods/p/status")
    told = [{"name": "gpu", "resourceClaimName": name}]
    assert tell["body"]["status"] == {"resourceClaimStatuses": told}
    assert bind["path"].endswith("/pods/p/binding")


def test_a_claim_of_a_group_is_made_with_its_first_member() -> None:
    group = SchedulingPodGroup(
        name="g", uid="u-g", min_count=2, claims=(GroupClaim(name="gpu", template="t"),)
    )
    name = claim_name(group, "gpu")
    first = HeldClaim(name=name, entry="gpu", allocation=ALLOCATED, planned=True)
    create, reserve, tell, *_ = sent(first, FROM_TEMPLATE, group=group)
    (owner,) = create["body"]["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == (group.api_version, "PodGroup", "u-g")
    assert reserve["body"]["status"]["reservedFor"][0]["resource"] == "podgroups"
    assert tell["path"] == "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/g/status"
    later = attrs.evolve(first, fresh=False)
    bind, *_ = sent(later, FROM_TEMPLATE, group=group)
    assert bind["path"] == "/api/v1/namespaces/default/pods/p/binding"


def test_the_claim_for_extended_resources_is_made_and_told_to_the_pod() -> None:
    name = claim_name(pod(), "extended-resources")
    held = HeldClaim(name=name, allocation=ALLOCATED, planned=True)
    create, reserve, tell, _ = sent(held, requests={"r/x": 1})
    assert (create["verb"], create["path"]) == (
        "create",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    )
    assert create["body"]["metadata"]["name"] == name
    assert "status" not in create["body"]
    assert create["body"]["metadata"]["ownerReferences"][0]["name"] == "p"
    assert reserve["path"].endswith(f"/resourceclaims/{name}/status")
    assert tell["path"].endswith("/pods/p/status")
    assert tell["body"]["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": [
            {"containerName": "main", "resourceName": "r/x", "requestName": "container-0-request-0"}
        ],
    }
