"""Pods and nodes written back as objects: what decodes to the same record again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from koordcore.manifests.declared_features import features_manifest
from koordcore.manifests.pod_references import claim_manifests, group_manifest
from koordcore.model.affinity import (
    Affinity,
    NodeAffinity,
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    Toleration,
    TolerationOperator,
    TopologySpreadConstraint,
)
from koordcore.model.containers import Container, only_container
from koordcore.model.nodes import Node
from koordcore.model.pods import HostPort, OwnerReference, Pod
from koordcore.model.resources import Resources, format_resources
from koordcore.model.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from koordcore.model.volumes import EphemeralClaim
from koordcore.protocol.preemption import format_preempted

Object = dict[str, Any]


def format_time(time: datetime) -> str:
    """Write a time as Kubernetes does: UTC, with a fraction only where there is one."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def given(fields: Mapping[str, Any]) -> Object:
    """Leave out what says nothing."""
    return {
        key: value for key, value in fields.items() if value is not None and value not in ("", (), [], {})
    }


def pod_manifest(pod: Pod) -> Object:
    """Write a pod as a Pod object.

    A pod that was read from an object comes back equal; one that was made by hand from ``requests`` alone
    gets a single container that asks for them.

    Examples
    --------
    >>> from koordcore import Pod
    >>> pod_manifest(Pod(name="web", requests={"cpu": 500}))["spec"]["containers"]
    [{'name': 'main', 'resources': {'requests': {'cpu': '500m'}}}]
    """
    containers = [_container(one) for one in pod.containers]
    if not containers and not pod.init_containers and (pod.requests or pod.limits):
        containers = [_container(only_container(pod.requests, pod.limits))]
    if containers and pod.host_ports:
        containers[0]["ports"] = [_port(port) for port in pod.host_ports]
    claims, made = claim_manifests(pod)
    spec: Object = {
        "schedulerName": pod.scheduler_name,
        "priority": pod.priority,
        "priorityClassName": pod.priority_class,
        "preemptionPolicy": str(pod.preemption_policy),
        "nodeName": pod.node_name,
        "nodeSelector": dict(pod.node_selector),
        "affinity": None if pod.affinity is None else _affinity(pod.affinity),
        "tolerations": [_toleration(one) for one in pod.tolerations],
        "topologySpreadConstraints": [spread_constraint_manifest(one) for one in pod.spread_constraints],
        "schedulingGates": [{"name": name} for name in pod.gates],
        "activeDeadlineSeconds": pod.active_deadline,
        "overhead": format_resources(pod.overhead),
        "resources": _requirements(pod.pod_requests, pod.pod_limits),
        "initContainers": [_container(one) for one in pod.init_containers],
        "containers": containers,
        **features_manifest(pod.features, containers),
        "volumes": [_volume(pod, number, name) for number, name in enumerate(pod.claims)],
        "resourceClaims": claims,
        **group_manifest(pod.scheduling_group),
    }
    status: Object = {
        "phase": str(pod.phase),
        "nominatedNodeName": pod.nominated_node,
        "startTime": _time(pod.started),
        "conditions": _pod_conditions(pod),
        "resourceClaimStatuses": made,
    }
    metadata = _metadata(pod)
    metadata["namespace"] = pod.namespace
    metadata.update(given({"ownerReferences": [_owner(one) for one in pod.owners], **_deleted(pod)}))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": given(spec),
        "status": given(status),
    }


def node_manifest(node: Node) -> Object:
    """Write a node as a Node object.

    Examples
    --------
    >>> from koordcore import Node
    >>> node_manifest(Node(name="n1", allocatable={"cpu": 4000}))["status"]["allocatable"]
    {'cpu': '4'}
    """
    spec = given(
        {"taints": [_taint(one) for one in node.taints], "unschedulable": node.unschedulable or None}
    )
    images = [{"names": [name], "sizeBytes": size} for name, size in node.images.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(node),
        "spec": spec,
        "status": {
            "allocatable": format_resources(node.allocatable),
            "capacity": format_resources(node.capacity),
            "conditions": [{"type": "Ready", "status": str(node.ready)}],
            **given({"images": images, "declaredFeatures": list(node.features)}),
        },
    }


def _metadata(one: Pod | Node) -> Object:
    return given(
        {
            "name": one.name,
            "uid": one.uid,
            "labels": dict(one.labels),
            "annotations": dict(one.annotations),
            "creationTimestamp": _time(one.created),
        }
    )


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)


def _deleted(pod: Pod) -> Object:
    return {"deletionTimestamp": _time(pod.deleted)}


def _owner(one: OwnerReference) -> Object:
    return given(
        {
            "apiVersion": one.api_version,
            "kind": one.kind,
            "name": one.name,
            "uid": one.uid,
            "controller": one.controller,
        }
    )


def _pod_conditions(pod: Pod) -> list[Object]:
    conditions: list[Object] = []
    if pod.scheduled is not None:
        time = format_time(pod.scheduled)
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": time})
    if pod.ready:
        conditions.append({"type": "Ready", "status": "True"})
    if pod.disruption:
        message = {"message": format_preempted(pod.preempted_by)} if pod.preempted_by else {}
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": pod.disruption, **message})
    return conditions


def _container(one: Container) -> Object:
    return given(
        {
            "name": one.name,
            "image": one.image,
            "restartPolicy": "Always" if one.restarts_always else None,
            "resources": _requirements(one.requests, one.limits),
        }
    )


def _requirements(requests: Resources, limits: Resources) -> Object:
    return given({"requests": format_resources(requests), "limits": format_resources(limits)})


def _volume(pod: Pod, number: int, claim: str) -> Object:
    made = EphemeralClaim(claim, pod.name, pod.uid)
    if made in pod.ephemeral_claims and claim.startswith(f"{pod.name}-"):
        # What is in the template is no matter of the pod: the claim says it.
        return {"name": claim.removeprefix(f"{pod.name}-"), "ephemeral": {}}
    return {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}


def _port(one: HostPort) -> Object:
    fields: Object = {"containerPort": one.port, "hostPort": one.port, "protocol": one.protocol}
    return fields if one.ip == "0.0.0.0" else {**fields, "hostIP": one.ip}


def _requirement(one: Requirement) -> Object:
    return given({"key": one.key, "operator": str(one.operator), "values": list(one.values)})


def _label_selector(one: LabelSelector | None) -> Object | None:
    if one is None:
        return None
    return given(
        {
            "matchLabels": dict(one.match_labels),
            "matchExpressions": [_requirement(each) for each in one.requirements],
        }
    )


def _node_term(one: NodeSelectorTerm) -> Object:
    return given(
        {
            "matchExpressions": [_requirement(each) for each in one.expressions],
            "matchFields": [_requirement(each) for each in one.fields],
        }
    )


def node_selector_manifest(one: NodeSelector | None) -> Object | None:
    """Write a node selector; nothing for none."""
    return None if one is None else {"nodeSelectorTerms": [_node_term(term) for term in one.terms]}


def _required(name: str, required: Any, preferred: Iterable[Object]) -> Object:
    when = "DuringSchedulingIgnoredDuringExecution"
    fields: Object = {} if required is None or required == [] else {f"required{when}": required}
    fields.update(given({f"preferred{when}": list(preferred)}))
    return {name: fields}


def _affinity(affinity: Affinity) -> Object:
    written: Object = {}
    if affinity.node is not None:
        written.update(_node_affinity(affinity.node))
    for name, one in (("podAffinity", affinity.pod), ("podAntiAffinity", affinity.anti)):
        if one is not None:
            written.update(_pod_affinity(name, one))
    return written


def node_affinity_manifest(one: NodeAffinity) -> Object:
    """Write node affinity: what stands under ``nodeAffinity`` of a pod."""
    return dict(_node_affinity(one)["nodeAffinity"])


def _node_affinity(one: NodeAffinity) -> Object:
    preferred = [{"weight": each.weight, "preference": _node_term(each.term)} for each in one.preferred]
    return _required("nodeAffinity", node_selector_manifest(one.required), preferred)


def _pod_affinity(name: str, one: PodAffinity) -> Object:
    preferred = [{"weight": each.weight, "podAffinityTerm": _pod_term(each.term)} for each in one.preferred]
    return _required(name, [_pod_term(term) for term in one.required], preferred)


def _selectors(fields: Mapping[str, LabelSelector | None]) -> Object:
    """Write selectors; an empty one matches everything and must not be left out."""
    return {name: _label_selector(one) for name, one in fields.items() if one is not None}


def _pod_term(one: PodAffinityTerm) -> Object:
    return {
        "topologyKey": one.topology_key,
        **_selectors({"labelSelector": one.selector, "namespaceSelector": one.namespace_selector}),
        **given(
            {
                "namespaces": list(one.namespaces),
                "matchLabelKeys": list(one.match_label_keys),
                "mismatchLabelKeys": list(one.mismatch_label_keys),
            }
        ),
    }


def _toleration(one: Toleration) -> Object:
    return given(
        {
            "key": one.key,
            "operator": None if one.operator is TolerationOperator.EQUAL else str(one.operator),
            "value": one.value,
            "effect": None if one.effect is None else str(one.effect),
        }
    )


def _taint(one: Taint) -> Object:
    return given({"key": one.key, "value": one.value, "effect": str(one.effect)})


def spread_constraint_manifest(one: TopologySpreadConstraint) -> Object:
    """Write a spread constraint."""
    policies = {
        "nodeAffinityPolicy": (one.node_affinity_policy, NodeInclusionPolicy.HONOR),
        "nodeTaintsPolicy": (one.node_taints_policy, NodeInclusionPolicy.IGNORE),
    }
    return {
        "maxSkew": one.max_skew,
        "topologyKey": one.topology_key,
        "whenUnsatisfiable": str(one.when_unsatisfiable),
        **_selectors({"labelSelector": one.selector}),
        **given({"minDomains": one.min_domains, "matchLabelKeys": list(one.match_label_keys)}),
        **{name: str(policy) for name, (policy, usual) in policies.items() if policy is not usual},
    }
