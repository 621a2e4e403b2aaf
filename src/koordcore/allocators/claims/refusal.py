"""Why claims do not fit on a node: requests have too few devices, or stand in each other's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from koordcore.allocators.claims.cards import cards_said, short_of_counters
from koordcore.allocators.claims.constraints import constraint_values
from koordcore.allocators.claims.exact.conflict import smallest_conflict
from koordcore.allocators.claims.exact.question import Answer, Question, Wish, make_question
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.allocators.claims.outcome import ClaimError, ClaimShortfall
from koordcore.allocators.claims.pools import NodePools
from koordcore.allocators.claims.requests import ClaimForms, read_claims
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import BARRING, DeviceTable, bits
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.claims import MAX_DEVICES, DeviceClass, ResourceClaim
from koordcore.model.quantity import format_exact_quantity

_SHOWN = 3
"""Taints, or pools, that are named of one request."""


def claim_shortfalls(
    room: Room,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    limits: Limits = DEFAULT_LIMITS,
    pools: NodePools | None = None,
) -> tuple[ClaimShortfall, ...]:
    """Say what claims lack that were refused on a node.

    Parameters
    ----------
    room
        What was left of the node's devices.
    claims
        The claims of the pod, in their order.
    classes
        DeviceClasses by name.
    limits
        Budget of each question to the solver.
    pools
        Those of the node, where the room is that of another one that looks the same.

    Returns
    -------
    tuple of ClaimShortfall
        One for each form of a request that has too few devices even alone; where every request could be
        served alone, one for a smallest set of requests that cannot be served together: without any one of
        them the others could.
    """
    forms = read_claims(room.table, claims, classes)
    if isinstance(forms, ClaimError):
        return ()
    question = make_question(room, forms)
    alone = tuple(
        _alone(question, forms, place, wish, limits, pools or room.table.pools)
        for place, wishes in enumerate(question.requests)
        for wish in wishes
        if not wish.hopeful
    )
    if alone or not question.requests:
        return alone
    return (_together(question, forms, smallest_conflict(question, limits), limits),)


def _alone(
    question: Question,
    forms: Sequence[ClaimForms],
    place: int,
    wish: Wish,
    limits: Limits,
    pools: NodePools,
) -> ClaimShortfall:
    free = _most(question, place, wish, limits)
    why = _why(question, wish) + _lost_pools(pools)
    return ClaimShortfall(
        claim=forms[wish.form.claim].claim.name,
        request=wish.form.name,
        reason=f"{free} of {wish.count} devices can be had{why}",
        wanted=wish.count,
        suitable=wish.form.candidates.bit_count(),
        free=free,
    )


def _most(question: Question, place: int, wish: Wish, limits: Limits) -> int:
    """Give the most devices, up to what is wanted, that one form of a request could have at once."""
    known = min(wish.mask.bit_count(), wish.count, MAX_DEVICES)
    if wish.whole is not None or known < 2 or not (wish.bonds or wish.mask & question.room.table.counted):
        return wish.mask.bit_count() if wish.whole is not None else known
    fits, fails = 0, known + 1
    while fails - fits > 1:
        count = (fits + fails) // 2
        fewer = attrs.evolve(wish, count=count)
        part = attrs.evolve(question, requests=((fewer,),), claims=(question.claims[place],))
        if isinstance(answer_question(part, limits), Answer):
            fits = count
        else:
            fails = count
    return fits


def _short(room: Room, wish: Wish) -> int:
    """Give the devices that would suit a request, that it may have, and for which counters do not suffice."""
    rest = wish.form.candidates & ~wish.mask & room.suffices(wish.form.spec.capacity)
    if not wish.admin:
        rest &= ~room.held
    found = rest & room.overdrawn
    for place in bits(rest & room.table.drawing & ~found):
        if short_of_counters(room, place):
            found |= 1 << place
    return found


def _why(question: Question, wish: Wish) -> str:
    """Say what became of the devices that would suit a request."""
    room = question.room
    suit = wish.form.candidates
    held = 0 if wish.admin else suit & room.held
    rest = suit & ~held & ~wish.mask
    table = room.table
    bonds = [question.bonds[number].attribute for number in wish.bonds]
    bare = 0
    for place in bits(rest):
        if any(constraint_values(table, wish.form, name, place) is None for name in bonds):
            bare |= 1 << place
    drawn = rest & ~bare
    scarce = drawn & ~room.suffices(wish.form.spec.capacity)
    counted = drawn & _short(room, wish)
    left = wish.form.selectable & ~suit
    tainted = left & ~table.tolerated(wish.form.spec.tolerations)
    # All devices are all that can give as much.
    unable = 0 if wish.form.every and wish.form.selectable else wish.form.unable
    parts = [
        f"{mask.bit_count()} {what}"
        for mask, what in (
            (held, "held"),
            (bare, f"without {' and '.join(dict.fromkeys(bonds))}"),
            (scarce, "with too little capacity left"),
            (counted, "short of counters"),
            (drawn & ~scarce & ~counted, "shut out by their compatibility groups"),
            (tainted, f"with taints that it does not tolerate: {_taints(table, tainted)}"),
            (left & ~tainted, "not offered to this node"),
            (unable, f"that cannot give {_amounts(table, wish)}, whoever holds them"),
        )
        if mask
    ]
    if parts:
        return f" ({suit.bit_count()} suit: {', '.join(parts)}){cards_said(room, counted, wish.mask)}"
    return " (no more suit)" if suit else " (none suits)"


def _amounts(table: DeviceTable, wish: Wish) -> str:
    """Name what is asked of the capacities of each device."""
    named = []
    for name, amount in sorted(wish.form.spec.capacity.items()):
        known = (one.device.capacity.get(name) for one in table.devices)
        binary = any(capacity is not None and capacity.binary for capacity in known)
        named.append(f"{name} {format_exact_quantity(amount, binary=binary)}")
    return " and ".join(named) or "what they give by default"


def _lost_pools(pools: NodePools) -> str:
    """Name the pools whose devices are out until their driver publishes again."""
    lost = [f"{one.driver}/{one.name}" for one in pools.pools if not one.usable]
    if not lost:
        return ""
    named = ", ".join([*lost[:_SHOWN], *(["…"] if len(lost) > _SHOWN else [])])
    return f"; slices of {named} are missing or contradict each other"


def _taints(table: DeviceTable, devices: int) -> str:
    """Name the taints of some devices that keep pods off, the first few of them."""
    named = sorted(
        {
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for place in bits(devices)
            for taint in table.devices[place].device.taints
            if taint.effect in BARRING
        }
    )
    return ", ".join([*named[:_SHOWN], *(["…"] if len(named) > _SHOWN else [])])


def _together(
    question: Question, forms: Sequence[ClaimForms], places: Sequence[int], limits: Limits
) -> ClaimShortfall:
    table = question.room.table
    wishes = [question.requests[place] for place in places]
    mask = suitable = short = 0
    for one in (wish for mine in wishes for wish in mine):
        mask |= one.mask
        suitable |= one.form.candidates
        short |= _short(question.room, one)
    wanted = sum(min(wish.count for wish in mine) for mine in wishes)
    names = [
        (forms[question.claims[place]].claim.name, mine[0].form.name.partition("/")[0])
        for place, mine in zip(places, wishes, strict=True)
    ]
    free = mask.bit_count()
    parts = [f"{wanted} devices wanted together, {free} can be had"]
    if len(places) == len(wishes[0]) == 1 and wanted <= MAX_DEVICES:
        free = _most(question, places[0], wishes[0][0], limits)
        parts = [f"{free} of {wanted} devices can be had together"]
    if mask & table.counted:
        parts.append("some draw on the same counters")
    numbers = sorted({number for mine in wishes for wish in mine for number in wish.bonds})
    for agree, text in ((True, "must agree in"), (False, "must differ in")):
        bonds = (question.bonds[number] for number in numbers)
        attributes = dict.fromkeys(bond.attribute for bond in bonds if bond.match is agree)
        parts += [f"{text} {' and '.join(attributes)}"] if attributes else []
    if max(_totals(question, places).values()) > MAX_DEVICES:
        parts.append(f"a claim may have {MAX_DEVICES}")
    return ClaimShortfall(
        claim=" and ".join(dict.fromkeys(claim for claim, _ in names)),
        request=" and ".join(dict.fromkeys(request for _, request in names)),
        reason="; ".join(parts) + cards_said(question.room, short, mask),
        wanted=wanted,
        suitable=suitable.bit_count(),
        free=free,
    )


def _totals(question: Question, places: Sequence[int]) -> dict[int, int]:
    totals: dict[int, int] = {}
    for place in places:
        claim = question.claims[place]
        least = min(wish.count for wish in question.requests[place])
        totals[claim] = totals.get(claim, 0) + least
    return totals
