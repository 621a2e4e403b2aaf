"""Which counters stand in the way of devices, and what they still allow.

A *card* here is a counter set: what the partitions of one physical device draw on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordcore.allocators.claims.pools import PoolDevice
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import bits, lookup_attribute
from koordcore.model.naming import natural_key

NAMING: Final = ("profile", "type")
"""Attributes of a driver that say what kind of partition a device is, the telling one first."""
_SHOWN: Final = 3
"""Cards, or kinds, that are named in one go."""


def kind_of(one: PoolDevice) -> str:
    """Give the profile or type of a device as its driver says it; empty where it says nothing."""
    for wanted in NAMING:
        value = lookup_attribute(one.device, one.id.driver, f"{one.id.driver}/{wanted}")
        if value is not None and value.values and isinstance(value.values[0], str):
            return value.values[0]
    return ""


def short_of_counters(room: Room, place: int) -> bool:
    """Tell whether some counter has too little left for a device that is not in use."""
    if room.charged >> place & 1:
        return False
    return any(room.left[counter] < amount for counter, amount in room.table.draws[place])


def cards_said(room: Room, mask: int, serving: int) -> str:
    """Name the cards whose counters do not suffice for devices, with the kinds that they still allow.

    Parameters
    ----------
    room
        What is left on a node.
    mask
        Devices that :func:`short_of_counters` finds lacking.
    serving
        Devices that can be had: their cards are not named.

    Returns
    -------
    str
        ``; counters of gpu-2 and gpu-3 allow 1g.10gb only``; empty where no card is named.
    """
    table = room.table
    sets = {number: key[:3] for key, number in table.counter_numbers.items()}
    short = set()
    for place in bits(mask):
        short |= {sets[counter] for counter, amount in table.draws[place] if room.left[counter] < amount}
        short |= {sets[counter] for counter in table.pool_counters[place] if room.left[counter] < 0}
    short -= {sets[counter] for place in bits(serving) for counter, _ in table.draws[place]}
    free = ~room.held & ~room.overdrawn & table.offered & table.reaching
    allowed: dict[tuple[str, str, str], dict[str, None]] = {one: {} for one in short}
    for place in bits(table.kin_of(mask) & free):
        if not short_of_counters(room, place):
            for one in {sets[counter] for counter, _ in table.draws[place]} & short:
                allowed[one].setdefault(kind_of(table.devices[place]) or "other devices")
    cards: dict[tuple[str, ...], list[str]] = {}
    for one in sorted(short, key=lambda key: (natural_key(key[2]), key)):
        cards.setdefault(tuple(allowed[one]), []).append(one[2])
    parts = [
        f"counters of {some(names)} allow {f'{some(kinds)} only' if kinds else 'nothing more'}"
        for kinds, names in cards.items()
    ]
    if len(parts) > _SHOWN:
        parts[_SHOWN:] = [f"{len(parts) - _SHOWN} more lines of cards"]
    return "".join(f"; {one}" for one in parts)


def some(names: Sequence[str]) -> str:
    """Name the first few, and how many more there are."""
    if len(names) > _SHOWN:
        return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
