"""Extended resources that a claim serves instead of the node."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.model.claims import DeviceClass
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.protocol.extended_resources import classes_by_resource
from koordcore.snapshot import ClusterSnapshot


def classes_of_resources(snapshot: ClusterSnapshot, policy: Policy) -> Mapping[str, str]:
    """Give the class of each resource name that a class goes by, where the policy looks at claims."""
    return classes_by_resource(snapshot.of(DeviceClass)) if policy.filters("DynamicResources") else {}


def claimed_resources(pod: Pod, node: Node, classes: Mapping[str, str]) -> tuple[str, ...]:
    """Name what a pod asks for and the node does not list, so that a claim must serve it."""
    return tuple(
        sorted(
            name
            for name, amount in pod.requests.items()
            if amount and name in classes and not node.allocatable.get(name)
        )
    )
