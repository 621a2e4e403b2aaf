"""Batches of device pods: agreement with single allocations, proofs, VFs, partitions."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

from benchmarks.devices_data import held, inventory, request, states
from koordcore.allocators.device import allocate_devices, device_request_of, node_devices
from koordcore.allocators.joint import place_devices_jointly
from koordcore.errors import ModelError
from koordcore.model.devices import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceAllocation,
    DeviceRequest,
    DeviceTopology,
    DeviceType,
    VFGroup,
    VirtualFunction,
)
from koordcore.protocol.device import DEVICE_ALLOCATE_HINT, allocation_to_json
from tests.property.test_devices_laws import Case, cases, request_of, state_of
from tests.reference.devices import objective, violations

pytestmark = pytest.mark.solver


def wire(found: DeviceAllocation) -> Any:
    return json.loads(json.dumps(allocation_to_json(found)))


@given(cases())
@settings(max_examples=30)
def test_one_pod_on_one_node_is_placed_as_well_as_alone(case: Case) -> None:
    """Both engines agree on whether there is a placement, and on its objective."""
    state, wanted = state_of(case), request_of(case["pod"])
    alone = allocate_devices(state, wanted)
    batch = place_devices_jointly({"n": state}, {"default/p": wanted})
    assert batch.certificate.proven
    if not isinstance(alone, DeviceAllocation):
        assert batch.unplaced == ("default/p",)
        return
    placed = wire(batch.allocations["default/p"])
    assert violations(case, placed) == []
    ours, theirs = objective(case, placed), objective(case, wire(alone))
    # The batch does not weigh what is left behind; a partition counts by its score alone.
    compared = 3 if ours[0] == 0 else 5
    assert ours[:compared] == theirs[:compared]


def test_a_fragmented_cluster_takes_a_batch_with_a_proof() -> None:
    """Sixteen pods on eight fragmented nodes: all placed, nothing can be nearer, nothing is taken twice."""
    nodes = {f"n{index}": state for index, state in enumerate(states(8, seed=5))}
    kinds = [request(joint=True, gpu=200), request(joint=False, gpu=100), request(joint=False, gpu=50)]
    pods = {f"p{index}": kinds[index % 3] for index in range(16)}
    batch = place_devices_jointly(nodes, pods)
    assert batch.certificate.proven
    assert batch.certificate.objective[0] == 0
    for pod, node in batch.nodes.items():
        nodes[node] = nodes[node].assume(pod, batch.allocations[pod])
    assert all(state.conflicts == () for state in nodes.values())


def test_the_same_batch_gives_the_same_answer() -> None:
    """The order of nodes in the argument does not matter, nor does a second run."""
    nodes = {f"n{index}": state for index, state in enumerate(states(4, seed=9))}
    pods = {f"p{index}": request(joint=index % 2 == 0, gpu=100) for index in range(6)}
    first = place_devices_jointly(nodes, pods)
    assert place_devices_jointly(dict(reversed(nodes.items())), pods) == first


def test_a_batch_places_what_one_by_one_placement_starves() -> None:
    """The first pod takes a VF that the pickier second one needs, unless both are decided together."""
    nic = Device(
        type=DeviceType.RDMA,
        minor=1,
        resources={RDMA: 100},
        topology=DeviceTopology(0, "0"),
        vf_groups=(
            VFGroup({"type": "g", "gdr": "true"}, (VirtualFunction("1.2", 1),)),
            VFGroup({"type": "g"}, (VirtualFunction("1.3", 2),)),
        ),
    )
    state = node_devices(attrs.evolve(inventory(), devices=(nic,)))
    assert state is not None

    def picky(labels: dict[str, str]) -> DeviceRequest:
        hint = json.dumps({"rdma": {"vfSelector": {"matchLabels": labels}}})
        made = device_request_of({RDMA: 1}, annotations={DEVICE_ALLOCATE_HINT: hint})
        assert isinstance(made, DeviceRequest)
        return made

    pods = {"easy": picky({"type": "g"}), "gdr": picky({"gdr": "true"})}
    alone = allocate_devices(state, pods["easy"])
    assert isinstance(alone, DeviceAllocation)
    assert not isinstance(allocate_devices(state.assume("easy", alone), pods["gdr"]), DeviceAllocation)
    batch = place_devices_jointly({"n": state}, pods)
    taken = {pod: batch.allocations[pod].devices[DeviceType.RDMA][0].vfs[0].bus_id for pod in pods}
    assert taken == {"easy": "1.3", "gdr": "1.2"}


def test_too_many_pods_leave_out_as_few_as_possible() -> None:
    """Nine whole cards and a half do not fit on eight: one large pod stays out rather than two small ones."""
    state = node_devices(inventory(), {"d/x": held(DeviceType.GPU, 0, full(50))})
    assert state is not None
    pods = {f"one{index}": request(joint=False, gpu=100) for index in range(5)}
    pods |= {"four": request(joint=False, gpu=400), "half": request(joint=False, gpu=50)}
    batch = place_devices_jointly({"n": state}, pods)
    assert batch.unplaced == ("four",)
    assert batch.certificate.objective[0] == 1


def full(percent: int) -> dict[str, int]:
    return {GPU_CORE: percent, GPU_MEMORY: 80 * 2**30 * percent // 100, GPU_MEMORY_RATIO: percent}


def test_exclusive_pods_are_refused() -> None:
    """A wish that the program does not hold is the caller's fault, not a silent half-answer."""
    hint = {DEVICE_ALLOCATE_HINT: '{"rdma":{"exclusivePolicy":"PCIeLevel"}}'}
    wanted = device_request_of({RDMA: 1}, annotations=hint)
    assert isinstance(wanted, DeviceRequest)
    with pytest.raises(ModelError, match="exclusive"):
        place_devices_jointly({}, {"p": wanted})
