"""CPUs, amounts and devices of one pod are decided together, and never wrongly refused."""

from __future__ import annotations

import itertools
import json
import random

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.allocators.device import NodeDevices, allocate_devices, device_request_of, node_devices
from koordcore.allocators.node import DeviceProvider, NodeAllocation, NodeOffer, NodeRequest, fit_node
from koordcore.allocators.node_batch import NodeVerdicts, node_table
from koordcore.allocators.numa_request import CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMANode, NUMAState
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    Device,
    DeviceAllocation,
    DeviceHolding,
    DeviceInventory,
    DeviceTopology,
    DeviceType,
)
from koordcore.model.numa import CPUAllocation, CPUBindPolicy, NUMANodeResource
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import cpuset_of
from koordcore.topology.numa import NUMATopologyPolicy, mask_of, numa_ids
from tests.numa.worlds import GIB, topology
from tests.reference.numa_placement import StaticResult

CARD = make_resources({"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100})
TOPOLOGY = topology(2, 1, 4, 2)
ZONES = tuple(NUMANodeResource(numa, make_resources({"cpu": 8000, "memory": 16 * GIB})) for numa in (0, 1))


def node_of(policy: NUMATopologyPolicy) -> NUMANode:
    return NUMANode(topology=TOPOLOGY, zones=ZONES, policy=policy)


def cards(*numas: int, taken: tuple[int, ...] = ()) -> NodeDevices:
    """One GPU per NUMA id given, some held by a pod."""
    devices = tuple(
        Device(
            type=DeviceType.GPU,
            minor=minor,
            id=f"gpu-{minor}",
            resources=CARD,
            topology=DeviceTopology(node_id=numa, pcie_id=str(numa)) if numa >= 0 else None,
        )
        for minor, numa in enumerate(numas)
    )
    holders = {}
    if taken:
        held = tuple(DeviceHolding(minor=minor, resources=CARD) for minor in taken)
        holders["default/other"] = DeviceAllocation(immutabledict({DeviceType.GPU: held}))
    found = node_devices(DeviceInventory(devices=devices), holders)
    assert found is not None
    return found


def gpus(count: int) -> DeviceRequest:
    found = device_request_of({"koordinator.sh/gpu": 100 * count})
    assert isinstance(found, DeviceRequest)
    return found


def pod(cpus: int, count: int, *, memory: int = 1, bind: bool = True) -> NodeRequest:
    amounts = make_resources({"cpu": 1000 * cpus, "memory": memory * GIB})
    cpu = CPURequest(requests=amounts, bind=bind, preferred=CPUBindPolicy.FULL_PCPUS if bind else None)
    return NodeRequest(cpu=cpu, devices=gpus(count) if count else None)


def held(*cpus: int) -> CPUAllocation:
    numas: dict[int, int] = {}
    for cpu in cpus:
        numa = TOPOLOGY.cpus[cpu].numa
        numas[numa] = numas.get(numa, 0) + 1000
    entries = tuple(NUMANodeResource(numa, make_resources({"cpu": numas[numa]})) for numa in sorted(numas))
    return CPUAllocation(uid="held", cpuset=cpuset_of(cpus), numa_resources=entries)


def test_cpus_follow_the_cards() -> None:
    """The free cards are on NUMA node 1, so the CPUs come from there although node 0 is as empty."""
    state = NUMAState(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE))
    given = fit_node(NodeOffer(state, cards(0, 0, 1, 1, taken=(0,))), pod(4, 2))
    assert isinstance(given, NodeAllocation)
    assert given.numa.mask == 0b10
    assert given.numa.status.cpuset == cpuset_of(range(8, 12))
    assert given.devices is not None
    assert given.devices.minors(DeviceType.GPU) == (2, 3)


def test_restricted_takes_both_where_neither_side_fits_on_one() -> None:
    """CPUs would fit on node 0 and cards on node 1: together they need both."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.RESTRICTED), [held(*range(8, 16))])
    given = fit_node(NodeOffer(state, cards(0, 1, 1)), pod(8, 2))
    assert isinstance(given, NodeAllocation)
    assert given.numa.mask == 0b11
    assert given.devices is not None
    assert len(given.devices.minors(DeviceType.GPU)) == 2


def test_single_refuses_with_what_each_side_has() -> None:
    """The message names both sides, as the reference's does."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE), [held(*range(8, 16))])
    refusal = fit_node(NodeOffer(state, cards(0, 1, 1)), pod(8, 2))
    assert isinstance(refusal, NUMARefusal)
    assert refusal.resolvable
    [reason] = refusal.reasons
    assert reason == (
        "Unaligned NUMA Hint cause cpu prefer [01] among [01 11],gpu prefer [10] among [10 11],"
        "memory prefer [01] among [01 11]"
    )


def test_a_node_without_cards_enough_says_so() -> None:
    """The device side's own words."""
    state = NUMAState(node_of(NUMATopologyPolicy.RESTRICTED))
    refusal = fit_node(NodeOffer(state, cards(0, 1)), pod(4, 3))
    assert isinstance(refusal, NUMARefusal)
    assert refusal.reasons == ("Insufficient GPU Devices",)


def test_best_effort_goes_on_without_affinity() -> None:
    """A card of unknown NUMA node is taken where none of the aligned ones is left."""
    state = NUMAState(node_of(NUMATopologyPolicy.BEST_EFFORT))
    given = fit_node(NodeOffer(state, cards(0, 1, -1, taken=(0,))), pod(4, 2))
    assert isinstance(given, NodeAllocation)
    assert given.devices is not None
    assert given.devices.minors(DeviceType.GPU) == (1, 2)


def test_cards_of_unknown_place_do_not_bind() -> None:
    """Devices that tell no NUMA node let CPUs choose alone."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE), [held(*range(8))])
    devices = cards(-1, -1)
    assert not DeviceProvider(NodeOffer(state, devices), gpus(1)).aligned
    given = fit_node(NodeOffer(state, devices), pod(4, 1))
    assert isinstance(given, NodeAllocation)
    assert given.numa.mask == 0b10


def test_annotations_carry_everything() -> None:
    """CPUs and amounts, the completed wish, the cards."""
    state = NUMAState(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE))
    request = pod(4, 1)
    given = fit_node(NodeOffer(state, cards(0, 1)), request)
    assert isinstance(given, NodeAllocation)
    written = given.annotations(request, state.node, {})
    assert json.loads(written["scheduling.koordinator.sh/resource-status"]) == {
        "cpuset": "0-3",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "1Gi"}}],
    }
    assert json.loads(written["scheduling.koordinator.sh/resource-spec"]) == {
        "preferredCPUBindPolicy": "FullPCPUs"
    }
    [card] = json.loads(written["scheduling.koordinator.sh/device-allocated"])["gpu"]
    assert card["minor"] == 0


def test_a_pod_for_devices_alone() -> None:
    """Without CPUs or amounts only the cards are chosen."""
    given = fit_node(NodeOffer(NUMAState(NUMANode()), cards(0)), NodeRequest(devices=gpus(1)))
    assert isinstance(given, NodeAllocation)
    assert not given.numa.written
    assert given.devices is not None


def _random_node(seed: int) -> tuple[NUMAState, NodeDevices, NodeRequest]:
    draw = random.Random(seed)
    node = node_of(draw.choice(list(NUMATopologyPolicy)[1:]))
    taken = draw.sample(range(16), draw.randint(0, 12))
    state = NUMAState.of(node, [held(*taken)] if taken else [])
    numas = [draw.choice([0, 1]) for _ in range(4)]
    busy = tuple(sorted(draw.sample(range(4), draw.randint(0, 3))))
    return (
        state,
        cards(*numas, taken=busy),
        pod(draw.randint(1, 12), draw.randint(0, 3), memory=draw.choice([1, 20])),
    )


@pytest.mark.parametrize("block", range(8))
def test_refused_exactly_where_no_numa_nodes_have_everything(block: int) -> None:
    """Against every set of NUMA nodes, looked at by the slow references; and the table agrees."""
    for seed in range(block * 40, block * 40 + 40):
        state, devices, request = _random_node(seed)
        assert request.cpu is not None
        demand = demand_on(request.cpu, state.node)
        assert not isinstance(demand, NUMARefusal)
        ground = StaticResult(state.node, state.allocations, demand)
        most = 1 if demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE else 2
        good = [
            mask
            for size in range(1, most + 1)
            for mask in itertools.combinations((0, 1), size)
            if ground.exists(mask)
            and (
                request.devices is None
                or isinstance(allocate_devices(devices, request.devices, mask_of(mask)), DeviceAllocation)
            )
        ]
        given = fit_node(NodeOffer(state, devices), request)
        assert isinstance(given, NodeAllocation) == bool(good), seed
        verdicts = NodeVerdicts(node_table([NodeOffer(state, devices)] * 2), request)
        assert verdicts.fits().tolist() == [bool(good)] * 2
        assert verdicts.answer(1) == given
        if isinstance(given, NodeAllocation):
            assert given.numa.mask is not None
            assert len(numa_ids(given.numa.mask)) == min(map(len, good))
            status = given.numa.status
            assert not ground.violations(status.cpuset, status.numa_node_resources, aligned=True)


def test_the_request_is_left_alone() -> None:
    """Inputs are values."""
    state, devices, request = _random_node(7)
    twin = attrs.evolve(request)
    fit_node(NodeOffer(state, devices), request)
    assert request == twin
    assert _random_node(7)[0] == state
