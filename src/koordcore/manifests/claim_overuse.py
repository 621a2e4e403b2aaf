"""Where the claims of a dump take more of devices together than their drivers publish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.manifests.claim_status import amount_text
from koordcore.model.claims import DeviceResult, ResourceClaim
from koordcore.model.device_slices import DeviceId, ResourceSlice, SliceDevice

PoolKey: TypeAlias = tuple[str, str]
_SHOWN: Final = 2


@record
class Overuse:
    """A claim's result that takes more than was left.

    Parameters
    ----------
    claim, place
        The claim, and the place of the result among its own.
    message
        What is exceeded, and by how much.
    """

    claim: ResourceClaim
    place: int
    message: str


def overused(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> Iterator[Overuse]:
    """Find the results of claims with which a device or a card is used beyond what it has.

    A card is named once, at the first claim in the order given that does not go beside those before it.

    Parameters
    ----------
    claims
        Allocated or not.
    slices
        All of the dump; of every pool the newest generation counts.
    """
    pools = _newest(slices)
    devices = {DeviceId(*key, one.name): one for key, pool in pools.items() for one in _devices(pool)}
    left = {
        (*key, counters.name): Counter(counters.counters)
        for key, pool in pools.items()
        for one in pool
        for counters in one.shared_counters
    }
    charged: set[DeviceId] = set()
    told: set[tuple[str, str, str]] = set()
    consumed: dict[DeviceId, Counter[str]] = {}
    for claim in claims:
        for place, result in enumerate(claim.allocation.results if claim.allocation else ()):
            device = devices.get(result.id)
            if device is None or result.admin_access:
                continue
            taken = consumed.setdefault(result.id, Counter())
            taken.update(result.consumed_capacity)
            for message in _beyond_capacity(result, device, taken):
                yield Overuse(claim, place, message)
            if result.id in charged:
                continue
            charged.add(result.id)
            for draw in device.consumes_counters:
                card = (result.driver, result.pool, draw.counter_set)
                if card not in left:
                    continue
                left[card].subtract(draw.counters)
                if card not in told and min(left[card].values(), default=0) < 0:
                    told.add(card)
                    yield Overuse(claim, place, _beyond_counters(card, left[card]))


def _newest(slices: Iterable[ResourceSlice]) -> dict[PoolKey, list[ResourceSlice]]:
    found: dict[PoolKey, list[ResourceSlice]] = {}
    for one in slices:
        pool = found.setdefault((one.driver, one.pool), [])
        if pool and one.generation > pool[0].generation:
            pool.clear()
        if not pool or one.generation == pool[0].generation:
            pool.append(one)
    return found


def _devices(pool: Iterable[ResourceSlice]) -> Iterator[SliceDevice]:
    for one in pool:
        yield from one.devices


def _beyond_capacity(result: DeviceResult, device: SliceDevice, taken: Counter[str]) -> Iterator[str]:
    for name in result.consumed_capacity:
        capacity = device.capacity.get(name)
        if capacity is not None and taken[name] > capacity.value:
            used = amount_text(taken[name])
            offered = amount_text(capacity.value)
            yield f"shares of {result.id} take {used} of {name}, of which there are {offered}"


def _beyond_counters(card: tuple[str, str, str], left: Counter[str]) -> str:
    driver, pool, name = card
    short = {counter: -amount for counter, amount in sorted(left.items()) if amount < 0}
    shown = [f"{counter} by {amount_text(amount)}" for counter, amount in short.items()]
    rest = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    counters = ", ".join(shown[:_SHOWN]) + rest
    exceeded = f"claims take more of {name} of {driver}/{pool} than it has ({counters})"
    return f"{exceeded}; no partition of the pool can be had"
