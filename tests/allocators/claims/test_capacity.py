"""What a request consumes of a device's capacities: by hand, and against the reference read word by word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from koordcore.allocators.claims.capacity import CapacityProblem, consumption
from koordcore.model.device_slices import CapacityPolicy, CapacityRange, DeviceCapacity, SliceDevice
from koordcore.model.quantity import NANO
from tests.reference import claims_first_fit as literal

CHOICES = CapacityPolicy(NANO, (NANO, 4 * NANO, 10 * NANO))
UP_TO_FOUR = CapacityPolicy(NANO, (), CapacityRange(NANO, 4 * NANO))
IN_TWOS = CapacityPolicy(3 * NANO, (), CapacityRange(2 * NANO, None, 2 * NANO))


def taken(policy: CapacityPolicy | None, asked: int | None, value: int = 8) -> int | None:
    """What is consumed, in whole units; nothing where the device cannot serve the request."""
    device = SliceDevice(name="d", capacity={"m": DeviceCapacity(value * NANO, policy)})
    found = consumption(device, {} if asked is None else {"m": asked * NANO}, fractional=True)
    assert not isinstance(found, CapacityProblem)
    return None if found is None else found["m"] // NANO


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        (None, None, 8),
        (None, 9, None),
        (CHOICES, None, 1),
        (CHOICES, 2, 4),
        (CHOICES, 5, None),  # ten, of which the device has eight
        (CHOICES, 11, None),
        (UP_TO_FOUR, 0, 1),
        (UP_TO_FOUR, 4, 4),
        (UP_TO_FOUR, 5, None),
        (IN_TWOS, None, 3),  # a default is valid, whatever its range says
        (IN_TWOS, 3, 4),
        (IN_TWOS, 1, 2),
    ],
)
def test_requests_are_rounded_and_held_to_the_policy(
    policy: CapacityPolicy | None, asked: int | None, expected: int | None
) -> None:
    assert taken(policy, asked) == expected


amounts = st.one_of(
    st.integers(0, 12).map(lambda units: units * NANO // 2),
    st.sampled_from([1, 1_500_000, NANO + 1, 2**63 * NANO, (2**63 - 1) * NANO]),
)
ranges = st.builds(
    CapacityRange,
    st.none() | amounts,
    st.none() | amounts,
    st.none() | amounts.filter(bool),
)
policies = st.none() | st.builds(
    CapacityPolicy,
    st.none() | amounts,
    st.lists(amounts, max_size=3, unique=True).map(sorted).map(tuple),
    st.none() | ranges,
)


@settings(max_examples=60)
@given(st.builds(DeviceCapacity, amounts, policies), st.none() | amounts, st.booleans())
def test_consumption_is_that_of_the_reference(
    capacity: DeviceCapacity, asked: int | None, fractional: bool
) -> None:
    device = SliceDevice(name="d", capacity={"m": capacity})
    found = consumption(device, {} if asked is None else {"m": asked}, fractional=fractional)
    try:
        wanted = literal.consumption(capacity, asked, fractional=fractional)
    except literal.Failed:
        assert isinstance(found, CapacityProblem)
        return
    assert not isinstance(found, CapacityProblem)
    fits = wanted is not None and wanted <= capacity.value
    assert found == ({"m": wanted} if fits else None)
