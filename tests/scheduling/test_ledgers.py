"""What the plugins keep in hand during a call is what can be read back from the pods afterwards."""

from __future__ import annotations

import json

import attrs
import pytest

from benchmarks.bench_flow import gpu_objects, gpu_pods, numa_objects
from koordcore import ClusterSnapshot, Pod, Unschedulable, schedule, verify
from koordcore.framework.workspace import Workspace
from koordcore.manifests import snapshot_from_objects
from koordcore.protocol.reservation import OPERATING_MODE
from koordcore.scheduling.plugins.exact import device_state, numa_state
from koordcore.scheduling.plugins.exact.states import ExactStates
from koordcore.snapshot.following import node_values
from koordcore.topology.cpu import format_cpulist

WISH = "scheduling.koordinator.sh/resource-spec"


def bound_pods(number: int) -> list[Pod]:
    """Pods with CPUs of their own in all the manners that they can ask for them."""
    wishes: tuple[dict[str, str], ...] = (
        {},
        {WISH: '{"preferredCPUBindPolicy":"SpreadByPCPUs"}'},
        {WISH: '{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}'},
    )
    return [
        Pod(
            name=f"pod-{index:03}",
            uid=f"u-{index}",
            labels={"koordinator.sh/qosClass": "LSR"},
            annotations=wishes[index % 3],
            priority=9500,
            requests={"cpu": 1000 * (2 + 2 * (index % 4)), "memory": 2**30},
        )
        for index in range(number)
    ]


def read_again(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same cluster, with nothing remembered about it."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def test_devices_in_hand_are_those_on_the_pods() -> None:
    """Whole cards, shares, partitions and joint pods, until the nodes are full."""
    snapshot = snapshot_from_objects(gpu_objects(4)).snapshot
    pods = gpu_pods(60)
    result = schedule(snapshot, pods)
    assert verify(snapshot.with_pending(*pods), result) == ()
    assert len(result.bound) < len(pods)
    fresh = read_again(result.snapshot)
    assert node_values(result.snapshot, device_state) == node_values(fresh, device_state)
    assert schedule(result.snapshot).decisions == schedule(fresh).decisions


@pytest.mark.parametrize("policy", ["", "BestEffort", "Restricted", "SingleNUMANode"])
def test_cpus_in_hand_are_those_on_the_pods(policy: str) -> None:
    """Under every topology policy, until the nodes are full."""
    objects = numa_objects(3)
    for one in objects[::2]:
        one["metadata"]["labels"] = {"node.koordinator.sh/numa-topology-policy": policy} if policy else {}
    snapshot = snapshot_from_objects(objects).snapshot
    pods = bound_pods(90)
    result = schedule(snapshot, pods)
    assert verify(snapshot.with_pending(*pods), result) == ()
    assert len(result.bound) < len(pods)
    fresh = read_again(result.snapshot)
    for kept, read in zip(
        node_values(result.snapshot, numa_state), node_values(fresh, numa_state), strict=True
    ):
        assert kept == read
        by_uid = {one.uid: one for one in read.allocations}
        assert {one.uid: one for one in kept.allocations} == by_uid


@pytest.mark.parametrize("cpus", ["0-3", "4-5"])
def test_cpus_of_a_pod_that_acts_as_a_reservation_are_in_hand_once_it_is_there(cpus: str) -> None:
    """It comes to an empty node with CPUs that its annotation names, and leaves with them."""
    snapshot = snapshot_from_objects(numa_objects(1)).snapshot
    name = snapshot.layout.names[0]
    acting = Pod(
        name="acting",
        uid="u",
        labels={OPERATING_MODE: "Reservation", "koordinator.sh/qosClass": "LSR"},
        annotations={"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})},
        requests={"cpu": 2000},
    ).at(name)
    workspace = Workspace(snapshot)
    states = ExactStates(workspace, cpus=True, devices=True)
    assert not states.numa[0].allocations
    workspace.bind(acting, 0)
    states.placed(acting, 0)
    (held,) = states.numa[0].allocations
    assert states.numa[0] == numa_state(snapshot, workspace.state_of(0))
    assert format_cpulist(held.cpuset) == cpus
    workspace.evict(acting.key, 0)
    states.removed(acting, 0)
    assert not states.numa[0].allocations


def test_a_fork_that_changes_no_node_shares_what_is_known_of_them() -> None:
    """Pods that come to the queue do not make anybody read the nodes again."""
    snapshot = snapshot_from_objects(gpu_objects(2)).snapshot
    states = node_values(snapshot.with_pending(Pod(name="p")), device_state)
    assert all(one is two for one, two in zip(node_values(snapshot, device_state), states, strict=True))
    moved = snapshot.assume(attrs.evolve(Pod(name="p"), node_name="gpu-00000"))
    assert node_values(moved, device_state)[1] is states[1]
    assert node_values(moved, device_state)[0] is not states[0]


def test_a_reason_is_counted_once_whether_or_not_a_node_has_a_policy() -> None:
    """Nodes with and without a topology policy that refuse alike are one number."""
    objects = numa_objects(4)
    for one in objects[:4:2]:
        one["metadata"]["labels"] = {}
    for one in objects[::2]:
        one["status"]["allocatable"]["koordinator.sh/gpu-core"] = "100"
        one["status"]["allocatable"]["koordinator.sh/gpu-memory-ratio"] = "100"
    pod = Pod(
        name="odd",
        labels={"koordinator.sh/qosClass": "LSR"},
        annotations={WISH: '{"requiredCPUBindPolicy":"FullPCPUs"}'},
        priority=9500,
        requests={"cpu": 3000, "koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100},
    )
    (decision,) = schedule(snapshot_from_objects(objects).snapshot, [pod]).decisions
    assert isinstance(decision, Unschedulable)
    told = [(one.reason, one.nodes) for one in decision.rejections]
    assert told == [("node(s) requested cpus not multiple cpus per core", 4)]
