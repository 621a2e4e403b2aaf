"""How much of a device's capacities a request consumes (``../spec/dra.md`` section 7).

Amounts are integers in billionths of the unit. Ranges with a step are counted in whole units, as the API
does, or in thousandths where fractional ranges are on and the range lies on thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordcore._record import record
from koordcore.model.device_slices import (
    CapacityRange,
    DeviceCapacity,
    SliceDevice,
)
from koordcore.model.quantity import INT64_MAX, NANO, format_exact_quantity

_MILLI = NANO // 1000


@record
class CapacityProblem:
    """An amount that cannot be counted: nothing is allocated at all, the device is not merely passed over."""

    text: str


def consumption(
    device: SliceDevice, requested: Mapping[str, int], *, fractional: bool
) -> Mapping[str, int] | CapacityProblem | None:
    """Give what a request consumes of every capacity of a device.

    Parameters
    ----------
    device
        The device.
    requested
        Amounts asked for, by name of the capacity.
    fractional
        Ranges may be counted in thousandths.

    Returns
    -------
    Mapping of str to int, CapacityProblem or None
        Amount by capacity; ``None`` where the device cannot serve the request: it lacks a capacity, an
        amount breaks the device's policy, or it exceeds what the device has when nobody uses it.
    """
    if any(name not in device.capacity for name in requested):
        return None
    consumed: dict[str, int] = {}
    fits = True
    for name, capacity in device.capacity.items():
        amount = _rounded(capacity, requested.get(name), fractional=fractional)
        if isinstance(amount, CapacityProblem):
            return CapacityProblem(f'capacity "{name}": {amount.text}')
        if amount < 0:
            return CapacityProblem(
                f'capacity "{name}": consumption {format_exact_quantity(amount)} is negative'
            )
        consumed[name] = amount
        fits = fits and amount <= capacity.value and _valid(capacity, amount, fractional=fractional)
    return consumed if fits else None


def _rounded(capacity: DeviceCapacity, requested: int | None, *, fractional: bool) -> int | CapacityProblem:
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_values:
        return next((value for value in policy.valid_values if value >= requested), requested)
    valid_range = policy.valid_range
    if valid_range is None or valid_range.min is None:
        return requested
    if requested < valid_range.min:
        return valid_range.min
    if not valid_range.step:
        return requested
    return _stepped(valid_range, requested, fractional=fractional)


def _unit(valid_range: CapacityRange, *, fractional: bool) -> int:
    parts = [part for part in (valid_range.min, valid_range.max, valid_range.step) if part is not None]
    on_thousandths = all(part % _MILLI == 0 for part in parts)
    return _MILLI if fractional and on_thousandths and (valid_range.step or 0) >= _MILLI else NANO


def _stepped(valid_range: CapacityRange, requested: int, *, fractional: bool) -> int | CapacityProblem:
    unit = _unit(valid_range, fractional=fractional)
    least, step, wanted = (
        -(-part // unit) for part in (valid_range.min or 0, valid_range.step or 0, requested)
    )
    shown = format_exact_quantity(requested)
    problem = "capacity request cannot be represented in the device's range arithmetic"
    if unit == _MILLI and requested % _MILLI:
        return CapacityProblem(f"{problem}: request {shown} is finer than 1m")
    if max(least, step, wanted) > INT64_MAX:
        return CapacityProblem(f"{problem}: request {shown} exceeds MaxInt64")
    rounded = least + -(-(wanted - least) // step) * step if step > 0 else wanted
    if rounded > INT64_MAX:
        return CapacityProblem(f"{problem}: request {shown} rounded up exceeds MaxInt64")
    return rounded * unit


def _valid(capacity: DeviceCapacity, amount: int, *, fractional: bool) -> bool:
    """Tell whether the policy of the capacity allows the amount."""
    policy = capacity.policy
    if policy is None or amount == policy.default:
        return True
    if policy.valid_values:
        return amount in policy.valid_values
    valid_range = policy.valid_range
    if valid_range is None:
        return True
    if valid_range.max is not None and amount > valid_range.max:
        return False
    if not valid_range.step or valid_range.min is None:
        return True
    unit = _unit(valid_range, fractional=fractional)
    above = -(-amount // unit) - -(-valid_range.min // unit)
    return above % -(-valid_range.step // unit) == 0
