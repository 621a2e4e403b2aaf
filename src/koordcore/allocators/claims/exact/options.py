"""Which of several partitions to take: the one after which most can still be had of its card.

What a card still offers is counted by placement, each weighed by its size: a partition that leaves room for a
large one is worth more than one that leaves as much in pieces. Greedy by this count, a stream of partitions
that come and go is refused less often than by first fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from koordcore.allocators.claims.exact.question import Answer, Question, Wish
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import NO_GROUPS, DeviceTable, bits

_WHOLE: Final = 840
"""Size of a device that takes all of some counter of its card; divisible by the usual numbers of slices."""
_MOST: Final = 4
"""Devices up to which they are looked at one by one; larger answers are packed tightly by themselves."""
_NOBODY: Final = frozenset(NO_GROUPS)


def keep_options(question: Question, answer: Answer) -> Answer:
    """Exchange partitions of an answer for others of the same wish that leave more of their cards.

    Wishes that constraints tie to others, and devices that are shared, stay as they are.
    """
    room = question.room
    devices = [list(mine) for mine in answer.devices]
    everyone = [place for mine in devices for place in mine]
    if len(everyone) > _MOST or room.overdrawn or _grouped(room, everyone):
        return answer
    pairs = zip(answer.wishes, devices, strict=True)
    exchangeable = [_exchangeable(room.table, wish, mine) for wish, mine in pairs]
    if not any(exchangeable):
        return answer
    left = list(room.left)
    taken = 0
    for place in everyone:
        taken |= 1 << place
        if not room.charged >> place & 1:
            _draw(room.table, left, place, 1)
    for wish, mine, may in zip(answer.wishes, devices, exchangeable, strict=True):
        for number, place in enumerate(mine if may else ()):
            _draw(room.table, left, place, -1)
            taken &= ~(1 << place)
            mine[number] = best = _best(room, left, wish.mask & ~taken, place)
            _draw(room.table, left, best, 1)
            taken |= 1 << best
    return Answer(answer.wishes, tuple(tuple(sorted(mine)) for mine in devices))


def options_lost(room: Room, devices: Sequence[int]) -> tuple[int, int]:
    """Weigh what goes of cards, beside themselves, when some devices of theirs are taken.

    Parameters
    ----------
    room
        What is left before.
    devices
        Who is taken, by place; those that draw on no counters, and shared ones, cost nobody anything.

    Returns
    -------
    tuple of int
        The weight of what can be had before and not after, and of all that such cards offer while empty.
    """
    table = room.table
    left = list(room.left)
    mine = [one for one in devices if table.drawing >> one & 1 and not table.shareable >> one & 1]
    for one in mine:
        _draw(table, left, one, 1)
    lost = most = 0
    for kin in {table.kin[one] | 1 << one for one in mine}:
        sizes = _sizes(table, kin)
        for one in bits(kin & table.drawing & ~table.shareable):
            most += sizes[one]
            if _can_be_had(table, room.left, one) and not _can_be_had(table, left, one):
                lost += sizes[one]
    return lost, most


def _grouped(room: Room, devices: Sequence[int]) -> bool:
    """Tell whether compatibility groups bind the partitions in use, or those of the answer."""
    taken = (mine for place in devices for _, mine in room.table.sets[place])
    return any(mine != _NOBODY for mine in (*room.groups.values(), *taken))


def _exchangeable(table: DeviceTable, wish: Wish, mine: Sequence[int]) -> bool:
    if wish.bonds or wish.whole is not None or wish.admin:
        return False
    return all(
        table.drawing >> place & 1 and not (table.shareable | table.conditional) >> place & 1
        for place in mine
    )


def _draw(table: DeviceTable, left: list[int], place: int, sign: int) -> None:
    for counter, amount in table.draws[place]:
        left[counter] -= sign * amount


def _best(room: Room, left: Sequence[int], mask: int, now: int) -> int:
    """Give the device of a mask that costs its card least; the first of equal ones."""
    table = room.table
    best, least = now, None
    known: dict[int, dict[int, int]] = {}
    for place in bits(mask & table.drawing & ~(table.shareable | table.conditional)):
        if any(left[counter] < amount for counter, amount in table.draws[place]):
            continue
        if any(mine != _NOBODY for _, mine in table.sets[place]):
            continue
        kin = table.kin[place] | 1 << place
        if kin not in known:
            known[kin] = _losses(room, left, kin)
        loss = known[kin].get(place)
        if loss is not None and (least is None or loss < least):
            best, least = place, loss
    return best


def _losses(room: Room, left: Sequence[int], kin: int) -> dict[int, int]:
    """Tell for each device of a card that can be had what of the others goes with it.

    It depends on what is left of the card alone, and is kept with the table.
    """
    table = room.table
    members = tuple(bits(kin & table.drawing & ~table.shareable))
    mine = sorted({counter for one in members for counter, _ in table.draws[one]})
    key = (kin, tuple(left[counter] for counter in mine))
    found = table.losses.get(key)
    if found is None:
        sizes = _sizes(table, kin)
        open_ones = [one for one in members if _can_be_had(table, left, one)]
        found = {}
        for place in open_ones:
            after = dict(zip(mine, key[1], strict=True))
            for counter, amount in table.draws[place]:
                after[counter] -= amount
            found[place] = sum(
                sizes[one]
                for one in open_ones
                if one != place and any(after[counter] < amount for counter, amount in table.draws[one])
            )
        table.losses[key] = found
    return found


def _can_be_had(table: DeviceTable, left: Sequence[int], place: int) -> bool:
    return all(left[counter] >= amount for counter, amount in table.draws[place])


def _sizes(table: DeviceTable, kin: int) -> dict[int, int]:
    """Weigh the devices of a card by the largest part that each takes of any kind of its counters."""
    found = table.sizes.get(kin)
    if found is None:
        found = table.sizes[kin] = _weigh(table, kin)
    return found


def _weigh(table: DeviceTable, kin: int) -> dict[int, int]:
    totals: Counter[str] = Counter()
    drawn: dict[int, Counter[str]] = {}
    for counter in {number for place in bits(kin) for number, _ in table.draws[place]}:
        totals[table.counter_stems[counter]] += table.counters[counter]
    for place in bits(kin):
        drawn[place] = Counter()
        for counter, amount in table.draws[place]:
            drawn[place][table.counter_stems[counter]] += amount
    return {
        place: max(
            (_WHOLE * amount // totals[stem] for stem, amount in mine.items() if totals[stem]), default=0
        )
        for place, mine in drawn.items()
    }
