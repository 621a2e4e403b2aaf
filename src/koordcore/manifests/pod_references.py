"""What a pod names beside itself: resource claims, and Kubernetes' own scheduling group."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading, as_name
from koordcore.model.pods import Pod, PodResourceClaim, SchedulingGroup
from koordcore.protocol.fields import Json, as_list, as_mapping, as_str, collect, list_of, optional, required


def read_resource_claims(
    reading: Reading, spec: Mapping[str, Json], status: Mapping[str, Json]
) -> tuple[PodResourceClaim, ...]:
    """Read ``spec.resourceClaims``, with the claims that were made from templates as the status tells."""
    claims = reading.recall(spec, "resourceClaims", "spec", _claims, ())
    if not claims or not status.get("resourceClaimStatuses"):
        return claims
    made = dict(reading.take(status, "resourceClaimStatuses", "status", list_of(_status), ()))
    return tuple(attrs.evolve(one, claim=made.get(one.name, "")) if one.template else one for one in claims)


def _claims(value: Json) -> tuple[PodResourceClaim, ...]:
    return collect(_claim, as_list(value))


def _claim(value: Json) -> PodResourceClaim:
    raw = as_mapping(value)
    claim = PodResourceClaim(
        name=required(raw, "name", as_name),
        claim=optional(raw, "resourceClaimName", as_str, ""),
        template=optional(raw, "resourceClaimTemplateName", as_str, ""),
    )
    if bool(claim.claim) == bool(claim.template):
        raise ManifestError.at("", "needs one of resourceClaimName and resourceClaimTemplateName")
    return claim


def _status(value: Json) -> tuple[str, str]:
    raw = as_mapping(value)
    return required(raw, "name", as_str), optional(raw, "resourceClaimName", as_str, "")


def read_scheduling_group(reading: Reading, spec: Mapping[str, Json]) -> SchedulingGroup | None:
    """Read ``spec.schedulingGroup``, or ``spec.workloadRef`` of Kubernetes 1.35; nobody may carry both."""
    if spec.get("schedulingGroup") is None and spec.get("workloadRef") is None:
        return None
    group = reading.take(spec, "schedulingGroup", "spec", _group, None)
    part = reading.take(spec, "workloadRef", "spec", _part, None)
    if group is not None and part is not None:
        reading.problem("spec.workloadRef", "may not stand beside spec.schedulingGroup")
    if group is not None and spec.get("evictionResponders"):
        reading.problem("spec.schedulingGroup", "Forbidden: may not be set when evictionResponders is set")
    return group or part


def _group(value: Json) -> SchedulingGroup:
    raw = as_mapping(value)
    if not raw.get("podGroupName"):
        raise ManifestError.at("", "Invalid value: must specify one of: `podGroupName`")
    return SchedulingGroup(_name(raw, "podGroupName"))


def _part(value: Json) -> SchedulingGroup:
    raw = as_mapping(value)
    return SchedulingGroup(
        pod_group=_name(raw, "podGroup"),
        workload=_name(raw, "name"),
        replica=optional(raw, "podGroupReplicaKey", as_str, ""),
    )


def _name(raw: Mapping[str, Json], name: str) -> str:
    text = required(raw, name, as_str)
    if not text:
        raise ManifestError.at(name, "required")
    return text


def claim_manifests(pod: Pod) -> tuple[list[Json], list[Json]]:
    """Write ``spec.resourceClaims`` and ``status.resourceClaimStatuses``."""
    entries: list[Json] = []
    made: list[Json] = []
    for one in pod.resource_claims:
        if one.template:
            entries.append({"name": one.name, "resourceClaimTemplateName": one.template})
            if one.claim:
                made.append({"name": one.name, "resourceClaimName": one.claim})
        else:
            entries.append({"name": one.name, "resourceClaimName": one.claim})
    return entries, made


def group_manifest(group: SchedulingGroup | None) -> dict[str, Json]:
    """Write ``spec.schedulingGroup`` or ``spec.workloadRef``; nothing for a pod without a group."""
    if group is None:
        return {}
    if not group.workload:
        return {"schedulingGroup": {"podGroupName": group.pod_group}}
    key: dict[str, Json] = {"podGroupReplicaKey": group.replica} if group.replica else {}
    return {"workloadRef": {"name": group.workload, "podGroup": group.pod_group, **key}}
