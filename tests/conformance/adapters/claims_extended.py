"""Adapter of ``dra.extended``: a pod whose extended resources device classes serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.allocators.claims.allocate import allocate_claims
from koordcore.allocators.claims.outcome import ClaimError, ClaimsAllocated
from koordcore.allocators.claims.pools import NodeView, SliceIndex, gather_pools
from koordcore.allocators.claims.room import Room, room_of
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.state import DevicesInUse
from koordcore.allocators.claims.table import DeviceTable
from koordcore.manifests import node_from_manifest, pod_from_manifest
from koordcore.manifests._reading import Reading
from koordcore.manifests.resource_claims import read_device_class
from koordcore.manifests.resource_slices import as_amounts, read_resource_slice
from koordcore.model.claims import (
    AllocationMode,
    ClaimAllocation,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    DeviceId,
)
from koordcore.protocol.extended_resources import (
    IMPLICIT_PREFIX,
    classes_by_resource,
    extended_claim,
    extended_demand,
)
from tests.conformance import Case, Verdict, subject


def in_use(raw: Mapping[str, Any]) -> DevicesInUse:
    """The state of the devices."""

    def device(one: Mapping[str, Any]) -> DeviceId:
        return DeviceId(one["driver"], one["pool"], one["device"])

    shares: dict[DeviceId, int] = {}
    for one in raw.get("shares") or ():
        shares[device(one)] = shares.get(device(one), 0) + 1
    consumed = {device(one): as_amounts(one["consumed"]) for one in raw.get("capacity") or ()}
    dedicated = frozenset(map(device, raw.get("devices") or ()))
    return DevicesInUse(dedicated, shares, consumed)  # type: ignore[arg-type]  # plain mappings do


def room(given: Mapping[str, Any]) -> Room:
    """What is left of the node's devices."""
    node = node_from_manifest(given["node"])
    index = SliceIndex(read_resource_slice(Reading(), one) for one in given["slices"])
    pools = gather_pools(index, NodeView(node.name, node.labels))
    return room_of(DeviceTable(pools, CelCompiler()), in_use(given.get("allocated") or {}))


def requests_of(claim: ResourceClaim) -> list[dict[str, Any]]:
    """``spec.devices.requests`` as the API writes them."""
    return [
        {
            "name": request.name,
            "exactly": {"deviceClassName": form.class_name, "allocationMode": form.mode, "count": form.count},
        }
        for request in claim.spec.requests
        for form in request.forms
    ]


def devices_of(allocation: ClaimAllocation) -> list[list[str]]:
    """Request and device of each result, in order."""
    return [[one.request, *one.id] for one in allocation.results]


def published(given: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """The devices of a case, by driver, pool and name."""
    return {
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"])
        for one in given["slices"]
        for device in one["spec"].get("devices") or ()
    }


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """What the claim is made of is equal; first fit takes the same devices, exact gives an answer as well."""
    expected = {key: value for key, value in case.raw["expect"].items() if key not in {"allocated", "error"}}
    seen = {key: value for key, value in answer.items() if key not in set(AllocationMode)}
    if seen != expected:
        return Verdict.WRONG, f"expected {expected}, got {seen}"
    if "allocated" not in case.raw["expect"] and "error" not in case.raw["expect"]:
        return Verdict.EQUAL, ""
    first, exact = answer[AllocationMode.FIRST_FIT], answer[AllocationMode.EXACT]
    if "error" in case.raw["expect"]:
        kind = case.raw["expect"]["error"]["kind"]
        if "deadline" in case.raw["expect"]["error"]["text"] and exact != "timeout":
            return Verdict.BETTER, "the reference ran out of time"
        return (Verdict.EQUAL, "") if first == kind else (Verdict.WRONG, f"expected {kind}, got {first}")
    wanted = case.raw["expect"]["allocated"]
    if wanted is None:
        # Where nothing fits, a selector that erred on some device may be the reason (ruling 35).
        right = first is None and exact in (None, "cel-runtime")
    else:
        results = wanted["devices"]["results"]
        right = first == [[one["request"], one["driver"], one["pool"], one["device"]] for one in results]
        # The exact answer may take other devices that are there, as many for each request.
        right = (
            right
            and isinstance(exact, list)
            and sorted(one[0] for one in exact) == sorted(one["request"] for one in results)
        )
        right = right and {tuple(one[1:]) for one in exact} <= published(case.input)
        right = right and len({tuple(one[1:]) for one in exact}) == len(exact)
    return (Verdict.EQUAL, "") if right else (Verdict.WRONG, f"expected {wanted}, got {first} and {exact}")


@subject("dra.extended", judge=judge)
def extended(case: Case) -> Any:
    given = case.input
    classes = [read_device_class(Reading(), one) for one in given["classes"]]
    # The cases were made by a loop that knows no implicit names; see docs/deviations/claims.md.
    served = {
        resource: name
        for resource, name in classes_by_resource(classes).items()
        if not resource.startswith(IMPLICIT_PREFIX)
    }
    pod, node = pod_from_manifest(given["pod"]), node_from_manifest(given["node"])
    named = {name for one in (*pod.init_containers, *pod.containers) for name in one.requests}
    answer: dict[str, Any] = {"classes": {name: served[name] for name in named if name in served}}
    demand = extended_demand(pod.requests, node.allocatable, served)
    if demand is None or not (demand.claimed or demand.missing):
        return {**answer, "skip": True}
    if demand.missing:
        return {**answer, "notFit": list(demand.missing)}
    made = extended_claim(pod, demand.claimed, served)
    answer["requests"] = requests_of(made.claim)
    answer["mappings"] = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in made.mappings
    ]
    by_name = {one.name: one for one in classes}
    for mode in AllocationMode:
        outcome = allocate_claims(room(given), [made.claim], by_name, mode=mode)
        match outcome:
            case ClaimsAllocated():
                answer[mode] = devices_of(outcome.allocations[0])
            case ClaimError():
                answer[mode] = outcome.kind
            case _:
                answer[mode] = None
    return answer
