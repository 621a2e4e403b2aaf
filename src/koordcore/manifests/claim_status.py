"""Claims written back: whole objects, and what a scheduler sends when a pod gets its devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from koordcore.manifests.encode import Object, format_time, given, node_selector_manifest
from koordcore.model.claims import (
    ALL_DEVICES,
    AllocatedDeviceStatus,
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceConfig,
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    DeviceToleration,
    HeldClaim,
    ResourceClaim,
)
from koordcore.model.pods import Pod
from koordcore.model.quantity import NANO, format_exact_quantity
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.extended_resources import RequestMapping

API_VERSION: Final = "resource.k8s.io/v1"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


def claim_manifest(claim: ResourceClaim) -> Object:
    """Write a claim as a ResourceClaim object: reading it gives the claim again.

    Of its owner the claim knows no more than the uid; who makes it says the rest (:func:`new_claim`).

    Examples
    --------
    >>> claim_manifest(ResourceClaim(name="gpu"))["metadata"]
    {'name': 'gpu', 'namespace': 'default'}
    """
    metadata = given(
        {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "labels": dict(claim.labels),
            "annotations": dict(claim.annotations),
        }
    )
    if claim.owner:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": claim.owner,
            "uid": claim.owner,
            "controller": True,
        }
        metadata["ownerReferences"] = [owner]
    if claim.deleting:
        metadata["deletionTimestamp"] = "1970-01-01T00:00:00Z"  # when is not known, only that it is
    status = given(
        {
            "allocation": None if claim.allocation is None else allocation_manifest(claim.allocation),
            "reservedFor": [_consumer(one) for one in claim.reserved_for],
            "devices": [_device_status(one) for one in claim.devices],
        }
    )
    if claim.allocation is not None:
        status.setdefault("allocation", {})
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": _spec(claim.spec)},
        **({"status": status} if status else {}),
    }


# --- what is asked for --------------------------------------------------------------------------------


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: amount_text(value) for name, value in amounts.items()}


def amount_text(value: int) -> str:
    """Write an amount in billionths in the shorter of its two forms, as people do."""
    texts = (format_exact_quantity(value), format_exact_quantity(value, binary=value % (1024 * NANO) == 0))
    return min(reversed(texts), key=len)


def _spec(spec: ClaimSpec) -> Object:
    return given(
        {
            "requests": [_request(one) for one in spec.requests],
            "constraints": [_constraint(one) for one in spec.constraints],
            "config": [_config(one) for one in spec.config],
        }
    )


def _request(one: ClaimRequest) -> Object:
    if one.prioritized:
        return {
            "name": one.name,
            "firstAvailable": [{"name": form.name, **_form(form)} for form in one.forms],
        }
    return {"name": one.name, **({"exactly": _form(one.forms[0])} if one.forms else {})}


def _form(one: DeviceSubRequest) -> Object:
    selectors = [{} if text is None else {"cel": {"expression": text}} for text in one.selectors]
    form = given(
        {
            "deviceClassName": one.class_name,
            "selectors": selectors,
            "allocationMode": one.mode,
            "count": None if one.mode == ALL_DEVICES and not one.count else one.count,
            "tolerations": [_toleration(each) for each in one.tolerations],
            "capacity": {"requests": _amounts(one.capacity)} if one.capacity else None,
            "derivedAttributes": [
                {"name": each.name, "expression": each.expression} for each in one.derived_attributes
            ],
        }
    )
    if one.admin_access is not None:
        form["adminAccess"] = one.admin_access
    return form


def _toleration(one: DeviceToleration) -> Object:
    seconds = {} if one.seconds is None else {"tolerationSeconds": one.seconds}
    fields = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {**given(fields), **seconds}


def _constraint(one: DeviceConstraint) -> Object:
    attributes = {"matchAttribute": one.match_attribute, "distinctAttribute": one.distinct_attribute}
    return given({"requests": list(one.requests), **attributes})


def _config(one: DeviceConfig) -> Object:
    parameters = {"parameters": json.loads(one.parameters)} if one.parameters else {}
    return {
        **given({"source": None if one.source is None else str(one.source), "requests": list(one.requests)}),
        "opaque": {"driver": one.driver, **parameters},
    }


# --- what is given ------------------------------------------------------------------------------------


def allocation_manifest(allocation: ClaimAllocation) -> Object:
    """Write ``status.allocation``."""
    return given(
        {
            "devices": given(
                {
                    "results": [_result(one) for one in allocation.results],
                    "config": [_config(one) for one in allocation.config],
                }
            ),
            "nodeSelector": node_selector_manifest(allocation.node_selector),
            "allocationTimestamp": allocation.allocated and format_time(allocation.allocated),
        }
    )


def _result(one: DeviceResult) -> Object:
    return given(
        {
            "request": one.request,
            "driver": one.driver,
            "pool": one.pool,
            "device": one.device,
            "adminAccess": one.admin_access or None,
            "tolerations": [_toleration(each) for each in one.tolerations],
            "bindingConditions": list(one.binding_conditions),
            "bindingFailureConditions": list(one.binding_failure_conditions),
            "shareID": one.share_id,
            "consumedCapacity": _amounts(one.consumed_capacity),
            "skipNodeOperations": list(one.skip_node_operations),
        }
    )


def _consumer(one: ClaimConsumer) -> Object:
    return given({"apiGroup": one.api_group, "resource": one.resource, "name": one.name, "uid": one.uid})


def _device_status(one: AllocatedDeviceStatus) -> Object:
    conditions = [
        {"type": kind, "status": "True" if holds else "False"} for kind, holds in one.conditions.items()
    ]
    fields = {"driver": one.driver, "pool": one.pool, "device": one.device, "shareID": one.share_id}
    return given({**fields, "conditions": conditions})


# --- what a scheduler sends -----------------------------------------------------------------------------


def reservation_patch(
    held: HeldClaim, uid: str, consumer: ClaimConsumer, *, now: datetime | None = None
) -> Object:
    """What is sent about a claim when a pod (or group) gets it: a strategic merge patch of its status.

    The entry joins ``reservedFor``; the allocation goes with it where the claim had none.

    Parameters
    ----------
    held
        The claim as the pod has it.
    uid
        Of the claim; the API server then refuses a claim of the same name that was made since. Empty where
        it is not known.
    consumer
        Who may use it from now on.
    now
        Written as the time of a new allocation, where devices have binding conditions.
    """
    status: Object = {"reservedFor": [_consumer(consumer)]}
    if held.fresh:
        allocation = status["allocation"] = allocation_manifest(held.allocation)
        if now is not None and any(one.binding_conditions for one in held.allocation.results):
            allocation["allocationTimestamp"] = format_time(now)
    return {**({"metadata": {"uid": uid}} if uid else {}), "status": status}


def finalizer_patch(uid: str) -> Object:
    """What is sent about a claim before its first allocation: the status alone would not keep a finalizer."""
    return {"metadata": {"finalizers": [FINALIZER], **({"uid": uid} if uid else {})}}


def new_claim(claim: ResourceClaim, owner: Pod | SchedulingPodGroup) -> Object:
    """Write a claim that is made for a pod or a group, as its controller would, to be allocated at once."""
    body = claim_manifest(claim)
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1" if isinstance(owner, Pod) else owner.api_version,
            "kind": "Pod" if isinstance(owner, Pod) else "PodGroup",
            "name": owner.name,
            "uid": owner.uid or owner.name,
            "controller": True,
        }
    ]
    body["metadata"]["finalizers"] = [FINALIZER]
    return body


def claim_statuses(uid: str, entry: str, claim: str) -> Object:
    """What is sent about a pod or group whose claim was made: a strategic merge patch of its status."""
    metadata = {"metadata": {"uid": uid}} if uid else {}
    return {**metadata, "status": {"resourceClaimStatuses": [{"name": entry, "resourceClaimName": claim}]}}


def extended_status(pod: Pod, claim: str, mappings: Iterable[RequestMapping]) -> Object:
    """What is sent about a pod whose extended resources a claim serves: a patch of its status."""
    written = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in mappings
    ]
    body: Object = {"resourceClaimName": claim, "requestMappings": written}
    metadata = {"metadata": {"uid": pod.uid}} if pod.uid else {}
    return {**metadata, "status": {"extendedResourceClaimStatus": body}}
