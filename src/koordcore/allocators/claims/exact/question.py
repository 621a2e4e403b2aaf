"""What the exact search answers: wishes for devices of a room, and the bonds between them.

Everything that can be said of one wish alone is said here: which devices it could have if nobody else asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore._record import record
from koordcore.allocators.claims.constraints import constraint_values
from koordcore.allocators.claims.outcome import ClaimError
from koordcore.allocators.claims.requests import ClaimForms, Form
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import Element, bearing, bits
from koordcore.model.claims import DeviceConstraint


@record(eq=False)
class Bond:
    """A constraint of one claim.

    Parameters
    ----------
    number
        Its place among the bonds of the question.
    match
        The devices agree in the attribute; otherwise no two of them do.
    """

    number: int
    claim: int
    match: bool
    attribute: str
    constraint: DeviceConstraint


@record(eq=False)
class Wish:
    """One form of a request in a room.

    Parameters
    ----------
    mask
        Devices that it could have, each taken alone.
    count
        Devices wanted.
    whole
        The devices that it must have, all of them; ``None`` where any ``count`` will do.
    bonds
        Numbers of the bonds that touch it.
    values
        By bond: the members of its attribute for each device of the mask; the empty set agrees with nobody.
    bearing
        By bond: the devices, of the mask and others, that have each member.
    """

    form: Form
    mask: int
    count: int
    whole: int | None
    bonds: tuple[int, ...]
    values: Mapping[int, Mapping[int, frozenset[Element]]]
    bearing: Mapping[int, Mapping[Element, int]]

    @property
    def admin(self) -> bool:
        """It may have devices that others hold."""
        return self.form.admin

    @property
    def hopeful(self) -> bool:
        """There are enough devices for it alone."""
        if self.whole is not None:
            return self.count > 0 and self.mask == self.whole
        return self.mask.bit_count() >= self.count


@record(eq=False)
class Question:
    """What all claims of a pod want of a room.

    Parameters
    ----------
    requests
        The wishes that would serve each request, the best first, over all claims in order.
    claims
        By request: the claim that it belongs to.
    fault
        What went wrong on the first device on which something did, where a wish might have had it.
    """

    room: Room
    requests: tuple[tuple[Wish, ...], ...]
    claims: tuple[int, ...]
    bonds: tuple[Bond, ...]
    fault: ClaimError | None = None


@record(eq=False)
class Answer:
    """The wish chosen for each request, and the devices that it gets."""

    wishes: tuple[Wish, ...]
    devices: tuple[tuple[int, ...], ...]


def make_question(room: Room, claims: Sequence[ClaimForms]) -> Question:
    """Put the claims of a pod into a question."""
    bonds: list[Bond] = []
    requests: list[tuple[Wish, ...]] = []
    owners: list[int] = []
    fault: ClaimError | None = None
    reading = _Reading(room)
    for number, claim in enumerate(claims):
        mine = [
            Bond(
                len(bonds) + place,
                number,
                bool(one.match_attribute),
                one.match_attribute or one.distinct_attribute or "",
                one,
            )
            for place, one in enumerate(claim.constraints)
        ]
        bonds += mine
        for forms in claim.requests:
            wishes = []
            for form in forms:
                wish, wrong = reading.wish(form, mine)
                wishes.append(wish)
                fault = fault or wrong
            requests.append(tuple(wishes))
            owners.append(number)
    return Question(room, tuple(requests), tuple(owners), tuple(bonds), fault)


class _Reading:
    """Reads forms in a room; what several of them have in common is looked at once."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._masks: dict[tuple[int, Mapping[str, int], bool], int] = {}
        self._columns: dict[tuple[str, int], Mapping[int, frozenset[Element]]] = {}

    def wish(self, form: Form, bonds: Sequence[Bond]) -> tuple[Wish, ClaimError | None]:
        """Make the wish of a form, and tell the first failure on the way."""
        fault = next((form.faults[device] for device in sorted(form.faults)), None)
        key = form.candidates, form.spec.capacity, form.admin
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = _to_be_had(self._room, form)
        touching = [bond for bond in bonds if form.named(bond.constraint.requests)]
        values: dict[int, Mapping[int, frozenset[Element]]] = {}
        by_element: dict[int, Mapping[Element, int]] = {}
        column: Mapping[int, frozenset[Element]]
        for bond in touching:
            if any(one.name == bond.attribute for one in form.spec.derived_attributes):
                column, wrong = _column(self._room, form, bond.attribute, mask)
                fault = fault or wrong
                by_element[bond.number] = bearing(column.items())
            else:
                column = self._column(form, bond.attribute, mask)
                by_element[bond.number] = self._room.table.bearing(bond.attribute)
            if len(column) < mask.bit_count():
                mask = sum(1 << device for device in column)
            values[bond.number] = column
        whole = form.selectable if form.every else None
        numbers = tuple(bond.number for bond in touching)
        return Wish(form, mask, form.count, whole, numbers, values, by_element), fault

    def _column(self, form: Form, attribute: str, mask: int) -> Mapping[int, frozenset[Element]]:
        """Give the members of a published attribute, which are the same under every form."""
        found = self._columns.get((attribute, mask))
        if found is None:
            found, _ = _column(self._room, form, attribute, mask)
            self._columns[attribute, mask] = found
        return found


def _to_be_had(room: Room, form: Form) -> int:
    """Give the devices that a form could have, each taken alone, before any bond."""
    mask = form.candidates & room.suffices(form.spec.capacity) & ~room.overdrawn
    if not form.admin:
        mask &= ~room.held
    for device in bits(mask & room.table.counted):
        if not _countable(room, device):
            mask &= ~(1 << device)
    return mask


def _column(
    room: Room, form: Form, attribute: str, mask: int
) -> tuple[dict[int, frozenset[Element]], ClaimError | None]:
    """Give the members of an attribute for the devices that have it, and the first failure on the way."""
    found: dict[int, frozenset[Element]] = {}
    fault: ClaimError | None = None
    for device in bits(mask):
        values = constraint_values(room.table, form, attribute, device)
        if isinstance(values, ClaimError):
            fault = fault or values
        elif values is not None:
            found[device] = values
    return found, fault


def _countable(room: Room, device: int) -> bool:
    """Tell whether the counters and compatibility groups allow the device beside those that are in use."""
    if room.charged >> device & 1:
        return True
    table = room.table
    if any(room.left[counter] < amount for counter, amount in table.draws[device]):
        return False
    return all(number not in room.groups or room.groups[number] & mine for number, mine in table.sets[device])
