"""State as the scheduler's debug endpoints show it, as functions that return JSON values.

Paths and fields are those of upstream's services; amounts are quantities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from koordcore._arrays import node_columns
from koordcore.allocators.device.state import NodeDevices
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import Pod
from koordcore.model.quotas import QuotaPolicy
from koordcore.model.resources import Resources, format_resources, make_resources, subtract, total
from koordcore.protocol.times import format_timestamp, moment_of
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.status import QuotaStatus
from koordcore.scheduling.gang_states import gang_state
from koordcore.scheduling.plugins.exact import device_state, numa_state
from koordcore.scoring.load import LoadState
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.cpu import format_cpulist


def node_view(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    """Show one node with what is taken on it: ``/apis/v1/nodes/:name``.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = snapshot.node(name)
    requested, scored = node_columns(snapshot.layout, name, state.pods)
    columns = snapshot.layout.resources
    allocatable = state.node.allocatable
    taken = _named(columns, requested)
    return {
        "node": name,
        "pods": [str(pod.key) for pod in state.pods],
        "allocatable": format_resources(allocatable),
        "requested": format_resources(taken),
        "nonZeroRequested": format_resources(_named(columns, scored)),
        "remaining": format_resources(subtract(allocatable, taken)),
    }


def _named(columns: tuple[str, ...], amounts: list[int]) -> Resources:
    return make_resources({name: amount for name, amount in zip(columns, amounts, strict=True) if amount})


def load_view(
    snapshot: ClusterSnapshot, name: str, now: datetime, args: LoadAwareArgs | None = None
) -> dict[str, Any]:
    """Show one node's load as LoadAwareScheduling counts it: ``…/LoadAwareScheduling/node/:name``.

    The ``…Pods`` lists name the pods that an amount comes from, as ``namespace/name``.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = snapshot.node(name)
    metrics = {one.node: one for one in snapshot.of(NodeMetric) if one.node == name}
    moment = moment_of(now)

    def counted(*pods: Pod) -> Mapping[str, Resources]:
        load = LoadState([state.node], metrics, args or LoadAwareArgs(), moment)
        load.place_all([(0, pods)])
        return load.describe(0)

    def stamp(pod: Pod) -> int:
        return moment if pod.scheduled is None else moment_of(pod.scheduled)

    pods = sorted(state.pods, key=lambda pod: (stamp(pod), pod.key))
    single = {pod.key: counted(pod) for pod in pods}
    vectors = counted(*pods)
    return {
        "pods": [{"timestamp": format_timestamp(stamp(pod)), "pod": str(pod.key)} for pod in pods],
        **{key: format_resources(vector) for key, vector in vectors.items()},
        **{
            f"{key}Pods": [str(pod.key) for pod in pods if any(single[pod.key][key].values())]
            for key in ("nodeDelta", "prodDelta", "nodeEstimated")
        },
    }


def device_view(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    """Show one node's devices and who holds them: ``…/DeviceShare/nodeDeviceSummaries/:name``.

    Amounts are given by type, summed and per minor; ``allocateSet`` names the holders. A node without
    devices gives an empty object.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    devices = device_state(snapshot, snapshot.node(name))
    if devices is None:
        return {}
    view: dict[str, Any] = {}
    for kind, shape in devices.shape.types.items():
        free = devices.free[kind]
        used = dict(zip(shape.minors, devices.use(kind).used, strict=True))
        # A type's amounts have a place for every name that some vendor uses.
        offered = total(dict(zip(shape.names, one, strict=True)) for one in shape.totals.values())
        known = {name for name, amount in offered.items() if amount}
        for key, table in (("Total", shape.totals), ("Free", free), ("Used", used)):
            detail = {}
            for minor in shape.minors:
                named = zip(shape.names, table[minor], strict=True)
                detail[str(minor)] = make_resources({name: amount for name, amount in named if name in known})
            view.setdefault(f"device{key}", {})[str(kind)] = format_resources(total(detail.values()))
            view.setdefault(f"device{key}Detail", {})[str(kind)] = {
                minor: format_resources(amounts) for minor, amounts in detail.items()
            }
    view["allocateSet"] = _holders(devices)
    return view


def _holders(devices: NodeDevices) -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Device type to pod to minor to amounts."""
    held: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for pod, allocation in sorted(devices.holdings.items()):
        for kind, holdings in allocation.devices.items():
            held.setdefault(str(kind), {})[pod] = {
                str(one.minor): format_resources(one.resources) for one in holdings
            }
    return held


def quota_view(snapshot: ClusterSnapshot, policy: QuotaPolicy | None = None) -> dict[str, Any]:
    """Show every quota with what follows for it: ``…/ElasticQuota/quotas``.

    Raises
    ------
    ModelError
        When the parents of quotas form a cycle.
    """
    ledger = cluster_ledger(snapshot, policy=policy or QuotaPolicy())
    return {name: _quota(status) for name, status in sorted(ledger.statuses().items())}


def _quota(status: QuotaStatus) -> dict[str, Any]:
    amounts = {
        "max": status.max,
        "min": status.min,
        "autoScaleMin": status.scaled_min,
        "childRequest": status.child_request,
        "request": status.request,
        "used": status.used,
        "nonPreemptibleRequest": status.non_preemptible_request,
        "nonPreemptibleUsed": status.non_preemptible_used,
        "allocated": status.allocated,
        "guaranteed": status.guaranteed,
    }
    view: dict[str, Any] = {"name": status.quota, "treeID": status.tree, "parentName": status.parent}
    view.update({key: format_resources(value) for key, value in amounts.items()})
    view["runtime"] = None if status.runtime is None else format_resources(status.runtime)
    return view


def gang_view(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Show every gang with its members: ``…/Coscheduling/gangs``; sets are objects with empty values."""
    state = gang_state(snapshot)
    view: dict[str, Any] = {}
    for name, record in sorted(state.gangs.items()):
        gang, group = record.gang, state.group_of(record)
        view[name] = {
            "name": gang.id,
            "waitTime": gang.wait_time,
            "createTime": gang.created,
            "mode": str(gang.mode),
            "gangMatchPolicy": gang.match_policy,
            "minRequiredNumber": gang.min_available,
            "totalChildrenNum": gang.total,
            "gangGroup": list(gang.group),
            "children": _set(record.children),
            "pendingChildren": _set(record.pending),
            "waitingForBindChildren": _set(record.waiting),
            "boundChildren": _set(record.bound),
            "onceResourceSatisfied": group.satisfied,
            "gangFrom": str(gang.source),
            "hasGangInit": gang.initialised,
        }
    return view


def _set(keys: Iterable[str]) -> dict[str, dict[str, str]]:
    return {key: {} for key in sorted(keys)}


def numa_view(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    """Show one node's CPUs and NUMA nodes with what is held of them: ``…/NodeNUMAResource/nodes/:name``.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = numa_state(snapshot, snapshot.node(name))
    topology = state.node.topology
    return {
        "name": name,
        "cpuTopology": {
            "numCPUs": topology.num_cpus,
            "numCores": topology.num_cores,
            "numNodes": topology.num_nodes,
            "numSockets": topology.num_sockets,
            "cpuDetails": {
                str(one.cpu): {
                    "cpuID": one.cpu,
                    "coreID": one.core,
                    "nodeID": one.numa,
                    "socketID": one.socket,
                }
                for one in topology.cpus
            },
        },
        "numaTopologyPolicy": str(state.node.policy),
        "reservedCPUs": format_cpulist(state.node.reserved_cpus),
        "maxRefCount": state.node.max_ref_count,
        "numaNodeResources": [
            {"node": zone.node, "resources": format_resources(zone.resources)} for zone in state.node.zones
        ],
        "remainingNUMANodeResources": [
            {"node": numa, "resources": format_resources(amounts)}
            for numa, amounts in sorted(state.available.items())
        ],
        "allocatedPods": [
            {
                "uid": one.uid,
                "namespace": one.namespace,
                "name": one.name,
                "cpuset": format_cpulist(one.cpuset),
                "cpuExclusivePolicy": str(one.exclusive),
                "numaNodeResources": [
                    {"node": part.node, "resources": format_resources(part.resources)}
                    for part in one.numa_resources
                ],
            }
            for one in state.allocations
        ],
    }
