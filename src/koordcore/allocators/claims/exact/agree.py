"""Bonds of agreement: each is given the value that its devices have in common, one bond after the other.

Values that cannot serve every demand of a bond are left out first, and what is left of the devices is packed
as if the bonds were not there: where that is impossible nothing fits, and where the packing happens to keep
every bond it is the answer. Only then is a bond split by its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from koordcore.allocators.claims.exact.entities import TooMany
from koordcore.allocators.claims.exact.packing import Demand, pack
from koordcore.allocators.claims.exact.question import Question, Wish
from koordcore.allocators.claims.table import Element

MAX_SPLITS = 400

Packing: TypeAlias = dict[int, tuple[int, ...]]
"""Devices by place of the demand."""


def demands_of(question: Question, wishes: Sequence[tuple[int, Wish]]) -> list[Demand] | None:
    """Make demands of the wishes chosen for some requests; ``None`` where one of them is hopeless alone.

    Parameters
    ----------
    wishes
        Request and wish.
    """
    found = []
    counts = dict.fromkeys(range(len(question.bonds)), 0)
    for _, wish in wishes:
        for number in wish.bonds:
            counts[number] += wish.count
    for request, wish in wishes:
        if not wish.hopeful:
            return None
        mask = wish.mask
        for number in wish.bonds:
            if counts[number] > 1:
                # A device whose value agrees with nobody can only be the only one.
                mask &= ~sum(1 << device for device, values in wish.values[number].items() if not values)
        apart = tuple(n for n in wish.bonds if not question.bonds[n].match and counts[n] > 1)
        if wish.whole is not None and mask != wish.whole:
            return None
        found.append(Demand(wish, question.claims[request], mask, apart))
    return found


def serve(question: Question, demands: Sequence[Demand]) -> Packing | None:
    """Give every demand its devices, keeping all bonds.

    Returns
    -------
    dict of int to tuple of int, or None
        Devices by place of the demand; ``None`` where it is proven that they do not fit.

    Raises
    ------
    TooMany
        When counting does not decide it in reasonable time.
    """
    bonds: dict[int, list[int]] = {}
    for place, demand in enumerate(demands):
        for number in demand.wish.bonds:
            if question.bonds[number].match:
                bonds.setdefault(number, []).append(place)
    return _Agree(question, bonds).serve(list(demands), frozenset(bonds))


class _Agree:
    def __init__(self, question: Question, bonds: Mapping[int, list[int]]) -> None:
        self._question = question
        self._bonds = bonds
        self._splits = 0
        self._known: dict[tuple[tuple[int, int, int], ...], tuple[list[Element], list[int]]] = {}

    def serve(self, demands: list[Demand], open_bonds: frozenset[int]) -> Packing | None:
        narrowed = self._narrow(demands, open_bonds)
        if narrowed is None:
            return None
        demands, values = narrowed
        packed = pack(self._question, demands)
        if packed is None:
            return None
        broken = [number for number in sorted(values) if not self._kept(number, demands, packed)]
        if not broken:
            return packed
        self._splits += 1
        if self._splits > MAX_SPLITS:
            raise TooMany
        number = min(broken, key=lambda one: (len(values[one]), one))
        for element in values[number]:
            split = self._with(demands, number, element)
            found = self.serve(split, frozenset(values) - {number})
            if found is not None:
                return found
        return None

    def _with(self, demands: Sequence[Demand], number: int, element: Element) -> list[Demand]:
        changed = list(demands)
        for place in self._bonds[number]:
            demand = changed[place]
            changed[place] = attrs.evolve(
                demand, mask=demand.mask & demand.wish.bearing[number].get(element, 0)
            )
        return changed

    def _kept(self, number: int, demands: Sequence[Demand], packed: Packing) -> bool:
        sets = [
            demands[place].wish.values[number][device]
            for place in self._bonds[number]
            for device in packed[place]
        ]
        return len(sets) <= 1 or bool(frozenset.intersection(*sets))

    def _narrow(
        self, demands: list[Demand], open_bonds: frozenset[int]
    ) -> tuple[list[Demand], dict[int, list[Element]]] | None:
        """Leave out values that cannot serve, until nothing changes; ``None`` where a bond has none left."""
        changed = True
        values: dict[int, list[Element]] = {}
        demands = list(demands)
        while changed:
            changed = False
            for number in sorted(open_bonds):
                places = self._bonds[number]
                if sum(demands[place].count for place in places) <= 1:
                    continue
                usable, masks = self._usable(demands, number)
                if not usable:
                    return None
                values[number] = usable
                for place, mask in zip(places, masks, strict=True):
                    if mask != demands[place].mask:
                        changed = True
                        demands[place] = attrs.evolve(demands[place], mask=mask)
        return demands, {number: usable for number, usable in values.items() if len(usable) > 1}

    def _usable(self, demands: Sequence[Demand], number: int) -> tuple[list[Element], list[int]]:
        """Give the values that every demand of a bond could have, and the devices that bear one of them."""
        mine = [demands[place] for place in self._bonds[number]]
        key = tuple((id(one.wish.bearing[number]), one.mask, one.count) for one in mine)
        found = self._known.get(key)
        if found is None:
            # Bonds of the same devices, such as pairs of a GPU and a NIC, are one question.
            found = self._known[key] = self._find_usable(demands, number)
        return found

    def _find_usable(self, demands: Sequence[Demand], number: int) -> tuple[list[Element], list[int]]:
        places = self._bonds[number]
        by_element: list[dict[Element, int]] = []
        for place in places:
            demand = demands[place]
            bearing = demand.wish.bearing[number]
            by_element.append({one: have for one, mask in bearing.items() if (have := mask & demand.mask)})
        usable = [
            element
            for element, mask in by_element[0].items()
            if all(
                mine.get(element, 0).bit_count() >= demands[place].count
                for place, mine in zip(places, by_element, strict=True)
            )
        ]
        masks = []
        for mine in by_element:
            mask = 0
            for element in usable:
                mask |= mine[element]
            masks.append(mask)
        usable.sort(key=lambda element: (_first(by_element[0][element]), repr(element)))
        return usable, masks


def _first(mask: int) -> int:
    return (mask & -mask).bit_length()
