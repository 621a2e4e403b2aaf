"""Laws of several pods' devices on one node: what goes together is what trying everything finds."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from hypothesis import assume, given, settings, strategies as st

from koordcore.allocators.joint.together import countable, devices_together, never_together
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY
from koordcore.protocol.device import DEVICE_ALLOCATED, format_allocation
from tests.property.test_devices_laws import Case, nodes, pods, request_of, state_of
from tests.reference.devices import violations
from tests.reference.joint_brute import best_batch

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


@given(batches(most_devices=6, most_pods=4, most_nodes=1))
@settings(max_examples=10, deadline=None)
def test_pods_go_together_exactly_where_trying_everything_says_so(batch: Batch) -> None:
    """What each gets is legal beside the others, and in the order given can be taken."""
    (case, *_), wanted = batch
    state = state_of(case)
    requests = {f"default/p{number}": request_of(pod) for number, pod in enumerate(wanted)}
    if not all(map(countable, requests.values())):
        return
    found = devices_together(state, requests, DEFAULT_DEVICE_POLICY)
    assert found is not None
    fits = best_batch([case], wanted)[0] == 0
    assert bool(found) == fits
    beside = {**case, "pods": list(case["pods"])}
    for name, allocation in found.items():
        text = format_allocation(allocation)
        raw = wanted[int(name.removeprefix("default/p"))]
        assert violations({**beside, "pod": raw}, json.loads(text)) == []
        holder = {"metadata": {"name": name[8:], "annotations": {DEVICE_ALLOCATED: text}}}
        beside["pods"].append({**holder, "spec": {"nodeName": "n", "containers": []}})


@given(batches(most_devices=6, most_pods=4, most_nodes=1))
@settings(max_examples=17, deadline=None)
def test_the_least_that_does_not_fit_is_what_does_not_fit(batch: Batch) -> None:
    """Of two kinds every number up to two of each."""
    (case, *_), wanted = batch
    kinds = list(dict.fromkeys(map(request_of, wanted)))[:2]
    if not all(map(countable, kinds)):
        return
    least = never_together(state_of(case), kinds, [2] * len(kinds), DEFAULT_DEVICE_POLICY)
    assert least is not None
    for counts in product(range(3), repeat=len(kinds)):
        asked = {
            f"{kind}-{number}": request
            for kind, request in enumerate(kinds)
            for number in range(counts[kind])
        }
        fits = not asked or bool(devices_together(state_of(case), asked, DEFAULT_DEVICE_POLICY))
        told = any(all(have >= one for have, one in zip(counts, bar, strict=True)) for bar in least)
        assert fits != told
