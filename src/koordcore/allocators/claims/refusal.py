"""Why claims do not fit on a node: requests have too few devices, or stand in each other's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from koordcore.allocators.claims.constraints import constraint_values
from koordcore.allocators.claims.exact.question import Question, Wish, make_question
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.allocators.claims.outcome import ClaimError, ClaimShortfall
from koordcore.allocators.claims.requests import ClaimForms, read_claims
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import BARRING, DeviceTable, bits
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.claims import MAX_DEVICES, DeviceClass, ResourceClaim

_SHOWN = 3
"""Taints, or pools, that are named of one request."""


def claim_shortfalls(
    room: Room,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    limits: Limits = DEFAULT_LIMITS,
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
        _alone(question, forms, wish) for wishes in question.requests for wish in wishes if not wish.hopeful
    )
    if alone or not question.requests:
        return alone
    return (_together(question, forms, _conflict(question, limits)),)


def _alone(question: Question, forms: Sequence[ClaimForms], wish: Wish) -> ClaimShortfall:
    free = wish.mask.bit_count()
    why = _why(question, wish) + _lost_pools(question.room.table)
    return ClaimShortfall(
        claim=forms[wish.form.claim].claim.name,
        request=wish.form.name,
        reason=f"{free} of {wish.count} devices can be had{why}",
        wanted=wish.count,
        suitable=wish.form.candidates.bit_count(),
        free=free,
    )


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
    left = wish.form.selectable & ~suit
    tainted = left & ~table.tolerated(wish.form.spec.tolerations)
    parts = [
        f"{mask.bit_count()} {what}"
        for mask, what in (
            (held, "held"),
            (bare, f"without {' and '.join(dict.fromkeys(bonds))}"),
            (rest & ~bare, "without what they draw on"),
            (tainted, f"with taints that it does not tolerate: {_taints(table, tainted)}"),
            (left & ~tainted, "not offered to this node"),
        )
        if mask
    ]
    if parts:
        return f" ({suit.bit_count()} suit: {', '.join(parts)})"
    return " (no more suit)" if suit else " (none suits)"


def _lost_pools(table: DeviceTable) -> str:
    """Name the pools whose devices are out until their driver publishes again."""
    lost = [f"{one.driver}/{one.name}" for one in table.pools.pools if not one.usable]
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


def _conflict(question: Question, limits: Limits) -> list[int]:
    """Give the places of a smallest set of requests that do not fit together: none can be left out."""
    kept = list(range(len(question.requests)))
    for place in range(len(question.requests)):
        rest = [one for one in kept if one != place]
        part = attrs.evolve(
            question,
            requests=tuple(question.requests[one] for one in rest),
            claims=tuple(question.claims[one] for one in rest),
        )
        if answer_question(part, limits) is None:
            kept = rest
    return kept


def _together(question: Question, forms: Sequence[ClaimForms], places: Sequence[int]) -> ClaimShortfall:
    table = question.room.table
    wishes = [question.requests[place] for place in places]
    mask = suitable = 0
    for one in (wish for mine in wishes for wish in mine):
        mask |= one.mask
        suitable |= one.form.candidates
    wanted = sum(min(wish.count for wish in mine) for mine in wishes)
    names = [
        (forms[question.claims[place]].claim.name, mine[0].form.name.partition("/")[0])
        for place, mine in zip(places, wishes, strict=True)
    ]
    parts = [f"{wanted} devices wanted together, {mask.bit_count()} can be had"]
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
        reason="; ".join(parts),
        wanted=wanted,
        suitable=suitable.bit_count(),
        free=mask.bit_count(),
    )


def _totals(question: Question, places: Sequence[int]) -> dict[int, int]:
    totals: dict[int, int] = {}
    for place in places:
        claim = question.claims[place]
        least = min(wish.count for wish in question.requests[place])
        totals[claim] = totals.get(claim, 0) + least
    return totals
