"""Every way to serve the claims of a pod on a small node, tried one after the other.

It reads the rules as the checker does and knows no class, no bound and no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from koordcore.checking.claim_pools import CheckedNode, Published
from koordcore.checking.claims import ClaimChecker, _Used
from koordcore.model.claims import (
    DeviceResult,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    DeviceId,
)

__all__ = ["best_places"]


def best_places(
    checker: ClaimChecker, node: CheckedNode, claims: Sequence[ResourceClaim]
) -> tuple[int, ...] | None:
    """Give the lexicographically least places of alternatives that fit; ``None`` where nothing fits."""
    offered, trouble = checker._book.offered(node)
    slots = [
        (number, place) for number, claim in enumerate(claims) for place in range(len(claim.spec.requests))
    ]

    def legal(used: list[_Used]) -> bool:
        if next(iter(checker._check_exclusive(used)), None) is not None:
            return False
        if next(iter(checker._check_counters(used, node)), None) is not None:
            return False
        return next(iter(checker._check_capacity(used)), None) is None

    def keeps_bonds(used: list[_Used], number: int) -> bool:
        mine = [one for one in used if one[0] == number]
        if len(mine) > 32:
            return False
        names = [one[1].id for one in mine if not checker._shareable(one[3])]
        if len(names) != len(set(names)):
            return False
        for constraint in claims[number].spec.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            sets = [
                checker._members(one, attribute) for one in mine if checker._touches(constraint.requests, one)
            ]
            if None in sets:
                return False
            known = [members for members in sets if members is not None]
            if len(known) < 2:
                continue
            if constraint.match_attribute and not frozenset.intersection(*known):
                return False
            if constraint.distinct_attribute and (
                not all(known) or sum(map(len, known)) > len(frozenset().union(*known))
            ):
                return False
        return True

    def choices(number: int, place: int, index: int) -> Iterator[list[_Used]]:
        request = claims[number].spec.requests[place]
        form = request.forms[index]
        meant = [(device, found) for device, found in offered if checker._meant(form, device.driver, found)]
        suited = [one for one in meant if not any(checker._unsuited(form, one[1], node))]
        if form.mode == "All":
            sets: Iterator[tuple[tuple[DeviceId, Published], ...]] = iter(
                [tuple(meant)] if meant and meant == suited and not trouble else []
            )
        else:
            sets = combinations(suited, form.count)
        name = f"{request.name}/{form.name}" if request.prioritized else request.name
        for chosen in sets:
            yield [
                (
                    number,
                    DeviceResult(
                        request=name,
                        driver=device.driver,
                        pool=device.pool,
                        device=device.device,
                        admin_access=bool(form.admin_access),
                        share_id="share" if checker._shareable(found) else None,
                        consumed_capacity=checker._consumed(form, found) or {}
                        if checker._shareable(found)
                        else {},
                    ),
                    (request, form),
                    found,
                )
                for device, found in chosen
            ]

    def fits(slot: int, used: list[_Used], places: tuple[int, ...]) -> bool:
        """Tell whether the rest can be served; ``places`` fixes the alternatives of all requests."""
        if slot == len(slots):
            return True
        number, place = slots[slot]
        for more in choices(number, place, places[slot]):
            now = [*used, *more]
            if keeps_bonds(now, number) and legal(now) and fits(slot + 1, now, places):
                return True
        return False

    for places in _products([len(claims[number].spec.requests[place].forms) for number, place in slots]):
        if fits(0, [], places):
            return tuple(
                index
                for index, (number, place) in zip(places, slots, strict=True)
                if claims[number].spec.requests[place].prioritized
            )
    return None


def _products(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for rest in _products(sizes[1:]):
            yield (first, *rest)
