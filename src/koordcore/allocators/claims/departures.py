"""Which holders of a node's devices have to leave, so that claims fit there.

A choice of devices for every request needs what its devices need: the devices themselves, counters, shares of
capacity. What is missing of that is made up for by those who hold it. Whether a set of holders found so is
enough, with constraints and all, is for the allocator to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import comb, prod
from typing import Final, TypeAlias

from koordcore.allocators.claims.exact.question import Wish, make_question
from koordcore.allocators.claims.pools import PoolKey
from koordcore.allocators.claims.requests import ClaimForms
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import NO_GROUPS, DeviceTable, bits
from koordcore.model.claims import ClaimAllocation

_MOST_CHOICES: Final = 4_000
"""Choices of devices that are looked at on one node."""
_MOST_SETS: Final = 512

_Need: TypeAlias = tuple[str, int, str]
"""A device, a counter, or a capacity of a device, by place or number."""
Holding: TypeAlias = Mapping[_Need, int]
"""What somebody holds of a node: it is free when they leave."""


def holding_of(
    table: DeviceTable, places: Mapping[PoolKey, Mapping[str, int]], allocation: ClaimAllocation
) -> Holding:
    """Sum up what an allocation holds of a node.

    Parameters
    ----------
    table
        Devices as those of the node, whatever they are called.
    places
        Place of each device of the node, by pool and name.
    allocation
        Of any claim; devices of other nodes count for nothing.
    """
    held: Counter[_Need] = Counter()
    for result in allocation.results:
        place = places.get((result.driver, result.pool), {}).get(result.device)
        if place is None or result.admin_access:
            continue
        if result.share_id is None:
            held["device", place, ""] += 1
            held.update({("counter", number, ""): amount for number, amount in table.draws[place]})
        for name, amount in result.consumed_capacity.items():
            held["capacity", place, name] += amount
    return held


def departures(
    now: Room,
    emptied: Room,
    claims: Sequence[ClaimForms],
    holdings: Sequence[Holding],
    fits: Callable[[frozenset[int]], bool],
) -> tuple[frozenset[int], ...] | None:
    """List the least sets of holders whose leaving lets claims fit.

    Parameters
    ----------
    now
        What is left of the node's devices.
    emptied
        What would be left if all holders had left.
    claims
        Of one pod.
    holdings
        What each holder holds.
    fits
        Tells whether the claims fit once some holders have left.

    Returns
    -------
    tuple of frozenset or None
        Positions in ``holdings``. Whoever leaves so that the claims fit contains one of the sets. ``None``
        where there are too many, or where counting does not tell.
    """
    table = now.table
    if not _countable(now):
        return None
    question = make_question(emptied, claims)
    if question.fault is not None or _choices(question.requests) > _MOST_CHOICES:
        return None
    able: list[frozenset[int]] = []
    tried: set[frozenset[int]] = set()
    looked: set[frozenset[tuple[_Need, int]]] = set()
    for wishes in product(*question.requests):
        for places in product(*map(_ways, wishes)):
            lacking = _lacking(now, table, wishes, places)
            key = frozenset((lacking or {}).items())
            if lacking is None or key in looked:
                continue
            looked.add(key)
            if any(one <= _holders(lacking, holdings) for one in able):
                continue
            for one in _covers(lacking, holdings, frozenset(), frozenset()):
                if one not in tried and not any(less <= one for less in able):
                    tried.add(one)
                    able += [one] if fits(one) else []
            if len(tried) > _MOST_SETS:
                return None
    return least_sets(able)


def least_sets(found: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Leave out what contains another set; the rest by size, then by members."""
    kept: list[frozenset[int]] = []
    for one in sorted(found, key=lambda members: (len(members), sorted(members))):
        if not any(less <= one for less in kept):
            kept.append(one)
    return tuple(kept)


def _countable(now: Room) -> bool:
    """Tell whether what is free adds up: no groups, no counter in the red, none that shares draw on once."""
    table = now.table
    nobody = frozenset(NO_GROUPS)
    grouped = any(mine != nobody for sets in table.sets for _, mine in sets)
    return not (grouped or now.overdrawn or table.drawing & table.shareable)


def _choices(requests: Sequence[Sequence[Wish]]) -> int:
    return prod(
        sum(1 if one.whole is not None else comb(one.mask.bit_count(), one.count) for one in wishes)
        for wishes in requests
    )


def _ways(wish: Wish) -> Iterator[tuple[int, ...]]:
    """Give each choice of devices for one wish."""
    if wish.whole is not None:
        if wish.hopeful:
            yield tuple(bits(wish.whole))
        return
    yield from combinations(bits(wish.mask), wish.count)


def _lacking(
    now: Room, table: DeviceTable, wishes: Sequence[Wish], places: Sequence[Sequence[int]]
) -> dict[_Need, int] | None:
    """Count what a choice lacks as things stand; ``None`` where it takes a device twice."""
    needs: Counter[_Need] = Counter()
    whole: set[int] = set()
    for wish, mine in zip(wishes, places, strict=True):
        for place in mine:
            if table.shareable >> place & 1:
                for name, amount in wish.form.amounts[place].items():
                    needs["capacity", place, name] += amount
                continue
            if place in whole:
                return None
            whole.add(place)
            if not wish.admin:
                needs["device", place, ""] = 1
            for number, amount in table.draws[place]:
                needs["counter", number, ""] += amount
    lacking = {}
    for need, amount in needs.items():
        short = amount - _left(now, need)
        if short > 0:
            lacking[need] = short
    return lacking


def _left(now: Room, need: _Need) -> int:
    kind, number, name = need
    if kind == "counter":
        return now.left[number]
    if kind == "device":
        return 1 - (now.held >> number & 1)
    capacity = now.table.devices[number].device.capacity
    return capacity[name].value - now.consumed.get(number, {}).get(name, 0)


def _holders(lacking: Mapping[_Need, int], holdings: Sequence[Holding]) -> frozenset[int]:
    """Those who hold something of a device that is needed whole: they have to leave for this choice."""
    needed = [need for need in lacking if need[0] == "device"]
    return frozenset(number for number, held in enumerate(holdings) if any(held.get(need) for need in needed))


def _covers(
    lacking: Mapping[_Need, int],
    holdings: Sequence[Holding],
    gone: frozenset[int],
    staying: frozenset[int],
) -> Iterator[frozenset[int]]:
    """Give sets of holders that make up for what is lacking, every least one among them, each once."""
    for need, amount in lacking.items():
        short = amount - sum(holdings[one].get(need, 0) for one in gone)
        if short > 0:
            break
    else:
        yield gone
        return
    for number, held in enumerate(holdings):
        if number not in gone and number not in staying and held.get(need):
            yield from _covers(lacking, holdings, gone | {number}, staying)
            staying |= {number}
