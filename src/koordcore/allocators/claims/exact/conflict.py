"""A smallest set of requests that do not fit together: without any one of them the others do.

Requests that are alike are asked about once. Two parts of a question, each the requests that bonds connect,
are twins where one can stand for the other: what is known of a set of requests is known of the set with the
two exchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs

from koordcore.allocators.claims.exact.question import Question, Wish
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.model.certificates import Limits
from koordcore.model.claims import MAX_DEVICES


def smallest_conflict(question: Question, limits: Limits) -> list[int]:
    """Give the places of requests that do not fit together, in their order; none can be left out.

    Parameters
    ----------
    question
        Of which it is known that it has no answer.
    limits
        Budget of each question to the solver.
    """
    kept = list(range(len(question.requests)))
    twins = _Twins(question)

    def fits(places: Sequence[int]) -> bool:
        part = attrs.evolve(
            question,
            requests=tuple(question.requests[one] for one in places),
            claims=tuple(question.claims[one] for one in places),
        )
        return answer_question(part, limits) is not None

    for group in twins.groups():
        rest = [one for one in kept if one not in group]
        if rest and len(group) > 1 and not fits(rest):
            kept = rest
            continue
        for place in group:
            if twins.needed(place, kept):
                continue
            rest = [one for one in kept if one != place]
            if fits(rest):
                twins.note(place, rest)
            else:
                kept = rest
    return kept


class _Twins:
    """Which requests of a question can stand for each other."""

    def __init__(self, question: Question) -> None:
        self._parts = _connected(question)
        self._part_of = {place: number for number, part in enumerate(self._parts) for place in part}
        self._kinds = [_kind(question, part) for part in self._parts]
        self._fitting: list[tuple[int, frozenset[int]]] = []
        """Requests of which others were found to fit without them, with these others."""

    def groups(self) -> list[list[int]]:
        """Give the requests that are alike together."""
        found: dict[Hashable, list[int]] = {}
        for place in sorted(self._part_of):
            part = self._part_of[place]
            found.setdefault((self._kinds[part], self._parts[part].index(place)), []).append(place)
        return list(found.values())

    def note(self, place: int, rest: Sequence[int]) -> None:
        """Remember that requests fit without one."""
        self._fitting.append((place, frozenset(rest)))

    def needed(self, place: int, kept: Sequence[int]) -> bool:
        """Tell whether it follows from what is known that requests fit without one."""
        rest = {one for one in kept if one != place}
        return any(self._exchanged(rest, place, other) <= known for other, known in self._fitting)

    def _exchanged(self, places: set[int], one: int, other: int) -> set[int]:
        mine, theirs = (self._part_of[place] for place in (one, other))
        if mine == theirs or self._kinds[mine] != self._kinds[theirs]:
            return places
        first, second = self._parts[mine], self._parts[theirs]
        swapped = {**dict(zip(first, second, strict=True)), **dict(zip(second, first, strict=True))}
        return {swapped.get(place, place) for place in places}


def _connected(question: Question) -> list[list[int]]:
    """Split requests into parts that no bond connects."""
    parts: list[tuple[set[int], list[int]]] = []
    for place, wishes in enumerate(question.requests):
        bonds = {number for wish in wishes for number in wish.bonds}
        mine = [place]
        others = []
        for known, members in parts:
            if known & bonds:
                bonds |= known
                mine += members
            else:
                others.append((known, members))
        parts = [*others, (bonds, mine)]
    return sorted(sorted(members) for _, members in parts)


def _kind(question: Question, part: Sequence[int]) -> Hashable:
    """Say all of a part that bears on what fits; which claim, where one is large or wants admin access."""
    wishes = [wish for place in part for wish in question.requests[place]]
    numbers = {number: turn for turn, number in enumerate(sorted({n for one in wishes for n in one.bonds}))}
    totals: dict[int, int] = {}
    for claim, mine in zip(question.claims, question.requests, strict=True):
        totals[claim] = totals.get(claim, 0) + max((one.count for one in mine), default=0)
    plain = not any(one.admin for mine in question.requests for one in mine)

    def said(wish: Wish) -> Hashable:
        form = wish.form
        bonds = tuple(numbers[number] for number in wish.bonds)
        derived = form.spec.derived_attributes
        return wish.mask, wish.count, wish.whole, wish.admin, id(form.amounts), derived, bonds

    return (
        tuple(
            (
                -1 if plain and totals[question.claims[place]] <= MAX_DEVICES else question.claims[place],
                *map(said, question.requests[place]),
            )
            for place in part
        ),
        tuple((question.bonds[number].match, question.bonds[number].attribute) for number in numbers),
    )
