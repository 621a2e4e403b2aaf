"""Which function decodes which kind of Kubernetes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from koordcore.manifests._reading import Reading
from koordcore.manifests.configurations import read_config_map
from koordcore.manifests.nodes import read_node
from koordcore.manifests.pods import read_pod
from koordcore.manifests.resource_claims import read_claim_template, read_device_class, read_resource_claim
from koordcore.manifests.resource_slices import read_resource_slice, read_taint_rule
from koordcore.manifests.scheduling_groups import (
    read_composite_pod_group,
    read_scheduling_pod_group,
    read_scheduling_workload,
)
from koordcore.manifests.volumes import read_claim, read_csi_node, read_storage_class, read_volume
from koordcore.manifests.workloads import (
    read_budget,
    read_namespace,
    read_priority_class,
    read_workload,
)
from koordcore.protocol.fields import Json

Decoder: TypeAlias = Callable[[Reading, Mapping[str, Json]], Any]
"""Makes a record out of an object: a Node, a PodReading, a ClusterRecord, or policies.

``None`` leaves the object unread. What is wrong goes to the reading or is raised as ManifestError or
ModelError; both are collected.
"""


KUBERNETES: Final[Mapping[tuple[str, str], Decoder]] = {
    ("", "Pod"): read_pod,
    ("", "Node"): read_node,
    ("", "Namespace"): read_namespace,
    ("", "ConfigMap"): read_config_map,
    ("", "ReplicationController"): read_workload,
    ("", "PersistentVolume"): read_volume,
    ("", "PersistentVolumeClaim"): read_claim,
    ("storage.k8s.io", "StorageClass"): read_storage_class,
    ("storage.k8s.io", "CSINode"): read_csi_node,
    ("resource.k8s.io", "DeviceClass"): read_device_class,
    ("resource.k8s.io", "DeviceTaintRule"): read_taint_rule,
    ("resource.k8s.io", "ResourceClaim"): read_resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): read_claim_template,
    ("resource.k8s.io", "ResourceSlice"): read_resource_slice,
    ("scheduling.k8s.io", "PriorityClass"): read_priority_class,
    ("scheduling.k8s.io", "PodGroup"): read_scheduling_pod_group,
    ("scheduling.k8s.io", "CompositePodGroup"): read_composite_pod_group,
    ("scheduling.k8s.io", "Workload"): read_scheduling_workload,
    ("policy", "PodDisruptionBudget"): read_budget,
    ("apps", "Deployment"): read_workload,
    ("apps", "ReplicaSet"): read_workload,
    ("apps", "StatefulSet"): read_workload,
    ("apps", "DaemonSet"): read_workload,
    ("batch", "Job"): read_workload,
    ("batch", "CronJob"): read_workload,
}
"""API group and kind to decoder, whatever the version."""
