"""What Koordinator's manager would have written on nodes out of their Device objects, where a dump lacks it.

A dump that was taken by hand, or drawn for a test, often has a Device and a Node that knows nothing of it. In
a cluster that does not last: the manager sums the healthy devices up and mirrors their labels. Both are
completed here in the same way, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.manifests.cross_checks import Key, Remark
from koordcore.model.devices import (
    ALL_GPU_RESOURCES,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    DeviceObject,
)
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.protocol.device_amounts import device_resources
from koordcore.protocol.device_object import GPU_PARTITION_POLICY, inventory_of

_ASKS: Final = frozenset({*ALL_GPU_RESOURCES, RDMA, FPGA})
_SHARED: Final = frozenset(name for name in _ASKS if name.startswith("koordinator.sh/"))


@record
class Synced:
    """Nodes as they stand when the manager has been there, and what that changed."""

    nodes: list[Node]
    remarks: list[Remark]


def sync_devices(nodes: Sequence[Node], records: Sequence[ClusterRecord], pods: Sequence[Pod]) -> Synced:
    """Complete amounts and labels that nodes lack and their Device objects give.

    What a node says of its own accord stays as it is. All nodes that lack the same are said once. Clusters
    whose manager never wrote how often cards can be shared are common: that is said only where a pod asks.
    """
    shares = any(GPU_SHARED in pod.requests for pod in pods)
    devices = {one.name: one for one in records if isinstance(one, DeviceObject)}
    done: list[Node] = []
    lacking: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    policies: list[str] = []
    for node in nodes:
        device = devices.get(node.name)
        if device is None:
            done.append(node)
            continue
        amounts, labels = _lacked(node, device)
        lacked = amounts if shares or amounts.keys() != {GPU_SHARED} else {}
        for path, names in (("status.allocatable", lacked), ("metadata.labels", labels)):
            if names:
                lacking.setdefault((path, tuple(names)), []).append(node.name)
        done.append(_completed(node, amounts, labels))
        beside = device.partitions is not None and not device.labels.get(GPU_PARTITION_POLICY)
        if beside and node.labels.get(GPU_PARTITION_POLICY):
            policies.append(node.name)
    remarks = [_lacking(sorted(those), *what) for what, those in lacking.items()]
    remarks += map(_policy_taken, sorted(policies))
    return Synced(done, remarks)


def _lacked(node: Node, device: DeviceObject) -> tuple[Mapping[str, int], Mapping[str, str]]:
    offered = device_resources(inventory_of(device, node.labels), device.labels, sync_gpu_shared=True)
    amounts = offered.apply_to({})
    return (
        {name: amount for name, amount in amounts.items() if amount and name not in node.allocatable},
        {name: text for name, text in offered.labels.items() if name not in node.labels},
    )


def _completed(node: Node, amounts: Mapping[str, int], labels: Mapping[str, str]) -> Node:
    if not amounts and not labels:
        return node
    return attrs.evolve(
        node,
        allocatable={**node.allocatable, **amounts},
        capacity={**amounts, **node.capacity},
        labels={**labels, **node.labels},
    )


def _lacking(nodes: Sequence[str], path: str, names: Sequence[str]) -> Remark:
    others = "" if len(nodes) == 1 else f" (here and on {len(nodes) - 1} more nodes)"
    message = f"lacks {', '.join(sorted(names))}; taken from its Device, as the manager does{others}"
    return ("", "Node", "", nodes[0]), Problem(path, message)


def unsplit(nodes: Sequence[Node], pods: Iterable[Pod]) -> Iterator[Remark]:
    """Find what the webhook would have split: only NVIDIA's nodes offer ``koordinator.sh/gpu`` itself."""
    offered = {name for node in nodes for name in node.allocatable}
    if GPU in offered or GPU_CORE not in offered:
        return
    for pod in pods:
        if pod.node_name is None and pod.requests.get(GPU):
            message = f"no node offers it; ask for {GPU_CORE} and {GPU_MEMORY_RATIO}, as the webhook does"
            yield (
                ("", "Pod", pod.namespace, pod.name),
                Problem(f"spec.containers[*].resources[{GPU}]", message),
            )


def _policy_taken(name: str) -> Remark:
    """Upstream looks at the object that has the table: Honor on the other one is lost without a word."""
    message = "absent beside a table of partitions; its Node's is taken, at which upstream does not look"
    key = ("scheduling.koordinator.sh", "Device", "", name)
    return key, Problem(f"metadata.labels[{GPU_PARTITION_POLICY}]", message)


def holders_without_devices(
    states: Iterable[NodeState], records: Iterable[ClusterRecord]
) -> Iterator[Remark]:
    """Find pods and reservations that have devices of a known node and do not say which ones they hold."""
    known = {one.name for one in records if isinstance(one, DeviceObject)}
    for state in states:
        for pod in state.pods if state.name in known else ():
            key: Key = ("", "Pod", pod.namespace, pod.name)
            yield from _without_devices(key, pod, "pod runs", state.name)
    for one in records:
        if isinstance(one, Reservation) and one.active and one.status.node_name in known:
            key = ("scheduling.koordinator.sh", "Reservation", "", one.name)
            # Whole devices by a device plugin's name are held by their number.
            counted = one.template is None or not _SHARED.intersection(one.template.requests)
            if one.template is not None and not counted:
                held = attrs.evolve(one.template, annotations=one.annotations)
                yield from _without_devices(key, held, "reservation is", str(one.status.node_name))


def _without_devices(key: Key, pod: Pod, stands: str, node: str) -> Iterator[Remark]:
    asked = sorted(name for name in _ASKS.intersection(pod.requests) if pod.requests[name])
    if asked and not pod.annotations.get(DEVICE_ALLOCATED):
        message = (
            f"absent, though the {stands} on {node} with {', '.join(asked)}: "
            "the devices that it holds are not known and count as free"
        )
        yield key, Problem(f"metadata.annotations[{DEVICE_ALLOCATED}]", message)
