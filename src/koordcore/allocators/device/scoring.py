"""How good a node's devices are for a pod, 0..100 per type, summed over types.

Upstream's ``scoring.go``: sums over all devices of a type, with the amount that *one* device gives as the
request.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.allocators.device.shape import Amounts
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms, open_amounts
from koordcore.allocators.device.wants import planned_types, wants_of
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceShortfall,
)
from koordcore.topology.devices import bits


def score_devices(
    state: NodeDevices | None,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> int:
    """Score one node for a pod; raw, so that several types may add up to more than 100.

    A node about whose devices nothing is known, or which cannot serve the pod by its build, scores 0.

    Parameters
    ----------
    state, request, numa_mask, policy, terms
        As for :func:`~koordcore.allocators.device.allocate.allocate_devices`.
    """
    if state is None:
        return 0
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        return 0
    score = 0
    for kind in planned_types(state.shape, request):
        want = wants[kind]
        free, allowed = open_amounts(state, want, numa_mask, terms)
        if not allowed:
            continue
        totals = want.sums if allowed == want.selected else _sums(want.shape.totals, allowed)
        if terms is PLAIN_TERMS:
            # Only devices in use have less left than their capacity.
            frees = list(totals)
            for minor in bits(allowed & state.busy[kind]):
                left, total = free[minor], want.shape.totals[minor]
                for column, _, _ in want.weights:
                    frees[column] += left[column] - total[column]
        else:
            frees = _sums(free, allowed)
        score += want.score(totals, frees)
    return score


def _sums(amounts: Mapping[int, Amounts], minors: int) -> list[int]:
    rows = [amounts[minor] for minor in bits(minors)]
    return [sum(column) for column in zip(*rows, strict=True)]
