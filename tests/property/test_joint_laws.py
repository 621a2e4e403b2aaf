"""Laws of batches of device pods.

The objective is that of trying everything; both engines agree; every pod is placed legally beside the others;
nothing depends on the order or the names of nodes.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from koordcore.allocators.device import NodeDevices
from koordcore.allocators.joint import DeviceBatch, place, place_devices_jointly
from koordcore.allocators.joint.greedy import place_greedily
from koordcore.allocators.joint.program import place_by_pods
from koordcore.model.certificates import DEFAULT_LIMITS
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY
from koordcore.model.devices import DeviceRequest
from koordcore.protocol.device import DEVICE_ALLOCATED, format_allocation
from tests.property.test_devices_laws import Case, nodes, pods, request_of, state_of
from tests.reference.devices import violations
from tests.reference.joint_brute import best_batch, worth_of

Batch = tuple[list[Case], list[dict[str, Any]]]


@st.composite
def batches(draw: st.DrawFn, *, most_devices: int, most_pods: int, most_nodes: int) -> Batch:
    """Some nodes, some of them equal, and pods of a few kinds."""
    different = draw(st.lists(nodes(), min_size=1, max_size=2))
    for case in different:
        assume(len(case["device"]["spec"]["devices"]) <= most_devices)
    there = draw(st.lists(st.sampled_from(different), min_size=1, max_size=most_nodes))
    kinds = draw(st.lists(pods(), min_size=1, max_size=3))
    return there, draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most_pods))


def read(batch: Batch) -> tuple[dict[str, NodeDevices], dict[str, DeviceRequest]]:
    there, wanted = batch
    return (
        {f"n{index}": state_of(case) for index, case in enumerate(there)},
        {f"default/p{index}": request_of(pod) for index, pod in enumerate(wanted)},
    )


def check(batch: Batch, found: DeviceBatch) -> None:
    """Put the pods on the nodes one by one; each is legal, and together they are worth what is claimed."""
    there, wanted = batch
    cases = [{**case, "pods": list(case["pods"])} for case in there]
    total = [len(found.unplaced), 0, 0, 0, 0, 0]
    for pod, node in found.nodes.items():
        case = cases[int(node[1:])]
        raw = wanted[int(pod.removeprefix("default/p"))]
        text = format_allocation(found.allocations[pod])
        allocated = json.loads(text)
        assert violations({**case, "pod": raw}, allocated) == []
        for part, value in enumerate(worth_of({**case, "pod": raw}, allocated)):
            total[part + 1] += value
        holder = {"metadata": {"name": pod[8:], "annotations": {DEVICE_ALLOCATED: text}}}
        case["pods"].append({**holder, "spec": {"nodeName": "n", "containers": []}})
    assert tuple(total) == found.certificate.objective


@given(batches(most_devices=5, most_pods=3, most_nodes=2))
@settings(max_examples=40)
def test_nothing_is_better_by_trying_everything(batch: Batch) -> None:
    """The objective is the best there is, and it is proven."""
    found = place_devices_jointly(*read(batch))
    assert found.certificate.proven
    assert found.certificate.objective == best_batch(*batch)
    check(batch, found)


@given(batches(most_devices=9, most_pods=6, most_nodes=3))
@settings(max_examples=25)
def test_both_engines_agree(batch: Batch) -> None:
    """Packings of nodes, and single pods on single cards, have the same optimum."""
    states, requests = read(batch)
    found = place_devices_jointly(states, requests)
    check(batch, found)
    greedy = place_greedily(states, requests, DEFAULT_DEVICE_POLICY)
    _, other = place_by_pods(states, requests, DEFAULT_DEVICE_POLICY, greedy, DEFAULT_LIMITS)
    assert other.proven
    assert found.certificate.objective == other.objective


@given(batches(most_devices=9, most_pods=6, most_nodes=3))
@settings(max_examples=20)
def test_without_work_to_spend_the_answer_is_as_good(batch: Batch) -> None:
    """Where there is too much to enumerate, the other engine answers."""
    states, requests = read(batch)
    found = place_devices_jointly(states, requests)
    before, place.WORK = place.WORK, 0
    try:
        other = place_devices_jointly(states, requests)
    finally:
        place.WORK = before
    check(batch, other)
    assert other.certificate.proven
    assert other.certificate.objective == found.certificate.objective


@given(batches(most_devices=9, most_pods=8, most_nodes=4), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_nodes_is_irrelevant(batch: Batch, shuffle: Any) -> None:
    """The same nodes in another order give the same bytes; under other names an equally good answer."""
    states, requests = read(batch)
    found = place_devices_jointly(states, requests)
    items = list(states.items())
    shuffle.shuffle(items)
    assert place_devices_jointly(dict(items), requests) == found
    renamed = dict(zip(states, (state for _, state in items), strict=True))
    assert place_devices_jointly(renamed, requests).certificate.objective == found.certificate.objective
