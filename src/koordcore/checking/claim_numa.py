"""Whether devices of claims lie where a pod's NUMA node is, on nodes that keep a pod to a single one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.checking.cpus import STATUS
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import ManifestError
from koordcore.model.claims import AllocationMode, ClaimArgs
from koordcore.model.decisions import Bound
from koordcore.model.device_slices import AttributeKind, ResourceSlice, SliceDevice
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod
from koordcore.protocol.numa import numa_topology_spec_of
from koordcore.protocol.numa_nodes import node_topology_policy
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.numa import NUMATopologyPolicy

_SINGLE: Final = "SingleNUMANode"


def check_claims_near(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Devices of a pod that is kept to one NUMA node lie near it, where their drivers tell.

    First fit, and pods that draw from a reservation, are not held to it.
    """
    policy = result.policy
    if not (policy.filters("DynamicResources") and policy.filters("NodeNUMAResource")):
        return
    if policy.args_of(ClaimArgs).mode is AllocationMode.FIRST_FIT:
        return
    new = [one for one in result.decisions if isinstance(one, Bound) and one.claims and not one.reservation]
    if not new:
        return
    pods = {pod.key: pod for pod in result.snapshot.bound_pods()}
    numas_of = _numas_of(snapshot)
    for bound in new if numas_of else ():
        pod = pods.get(bound.pod)
        if pod is None or _policy_of(result.snapshot, pod, bound.node) != _SINGLE:
            continue
        numa = _numa_node(pod)
        if numa is None:
            # For who requests nothing no NUMA node is written, and where a node tells none there is none.
            topology = result.snapshot.find(NodeResourceTopology, bound.node)
            zoned = topology is not None and bool(topology.zones)
            if zoned and not any(pod.requests.values()) and _apart(bound, numas_of):
                message = "no NUMA node is near all devices of its claims"
                yield Violation(ViolationKind.NUMA, str(pod.key), message)
            continue
        for held in bound.claims:
            for one in held.allocation.results:
                near = numas_of.get((one.driver, one.pool, one.device), frozenset())
                if near and numa not in near:
                    message = (
                        f"{one.id} of claim {held.name} is near NUMA node {min(near)}, the pod on {numa}"
                    )
                    yield Violation(ViolationKind.NUMA, str(pod.key), message)


def _apart(bound: Bound, numas_of: Mapping[tuple[str, str, str], frozenset[int]]) -> bool:
    """Tell whether the devices of a pod, as far as they tell, have no NUMA node in common."""
    results = [one for held in bound.claims for one in held.allocation.results]
    told = [near for one in results if (near := numas_of.get((one.driver, one.pool, one.device)))]
    return bool(told) and not frozenset.intersection(*told)


def _numas_of(snapshot: ClusterSnapshot) -> dict[tuple[str, str, str], frozenset[int]]:
    """Read which devices tell their NUMA nodes; of several slices that publish one the newest counts."""
    found: dict[tuple[str, str, str], frozenset[int]] = {}
    slices = sorted(snapshot.of(ResourceSlice), key=lambda one: one.generation)
    for one in slices:
        for device in one.devices:
            near = _near(one.driver, device)
            if near:
                found[one.driver, one.pool, device.name] = near
    return found


def _near(driver: str, device: SliceDevice) -> frozenset[int]:
    for name in ("resource.kubernetes.io/numaNode", f"{driver}/numaNode", "numaNode"):
        value = device.attributes.get(name)
        if value is not None:
            whole = value.kind is AttributeKind.INT
            return frozenset(int(one) for one in value.values if int(one) >= 0) if whole else frozenset()
    return frozenset()


def _numa_node(pod: Pod) -> int | None:
    """Read the one NUMA node that is written on a pod."""
    try:
        raw: Any = json.loads(pod.annotations.get(STATUS) or "{}")
        nodes = {int(entry.get("node", 0)) for entry in raw.get("numaNodeResources") or ()}
    except (ValueError, TypeError, AttributeError):
        return None
    return nodes.pop() if len(nodes) == 1 else None


def _policy_of(snapshot: ClusterSnapshot, pod: Pod, name: str) -> str:
    """Read the topology policy for a pod on a node: its own, else the node's."""
    try:
        own = numa_topology_spec_of(pod.annotations).numa_topology_policy
    except ManifestError:
        own = ""
    topology = snapshot.find(NodeResourceTopology, name)
    kubelet = NUMATopologyPolicy.NONE if topology is None else topology.policy
    return own or node_topology_policy(snapshot.node(name).node.labels, kubelet)
