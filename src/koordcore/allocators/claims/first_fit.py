"""The reference's search: the first full solution in the order of claims, forms and devices (section 10).

Unlike the reference it remembers the states that failed, which changes nothing in what it finds first. Its
work still grows with the sets of equal devices that can be taken, so a budget of steps ends it;
:mod:`koordcore.allocators.claims.allocate` asks the exact search then where that can tell the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from koordcore.allocators.claims.constraints import RunningConstraint, running_constraints
from koordcore.allocators.claims.outcome import ClaimError, ClaimErrorKind
from koordcore.allocators.claims.requests import ClaimForms, Form
from koordcore.allocators.claims.results import Choice, Taken
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import bits
from koordcore.model.claims import MAX_DEVICES


class OutOfSteps(Exception):  # noqa: N818 - it ends a search, it is no fault
    """The budget of steps is used up and nothing is known."""


class _Abort(Exception):  # noqa: N818 - carries the error value out of the search
    def __init__(self, error: ClaimError) -> None:
        super().__init__(error.text)
        self.error = error


class FirstFit:
    """One search over the claims of a pod.

    Parameters
    ----------
    room
        What is left of the node's devices.
    claims
        The claims, read against the node.
    steps
        Entries into the recursion that may be made.
    """

    def __init__(self, room: Room, claims: Sequence[ClaimForms], *, steps: int) -> None:
        self._room = room
        self._table = room.table
        self._claims = claims
        self._steps = steps
        self._left = list(room.left)
        self._groups: dict[int, list[frozenset[str]]] = {n: [mine] for n, mine in room.groups.items()}
        self._consumed: dict[int, dict[str, int]] = {
            device: dict(amounts) for device, amounts in room.consumed.items()
        }
        self._shares: dict[int, int] = {}
        self._taken_before = 0
        self._taken_here = 0
        self._taken: list[list[Taken]] = []
        self._forms: list[list[Form]] = []
        self._constraints: list[RunningConstraint] = []
        self._failed: set[Hashable] = set()

    def run(self) -> tuple[Choice, ...] | ClaimError | None:
        """Search; ``None`` where nothing fits.

        Raises
        ------
        OutOfSteps
            When the budget is used up.
        """
        try:
            if not self._claim(0):
                return None
        except _Abort as abort:
            return abort.error
        return tuple(
            Choice(claim, tuple(forms), tuple(taken))
            for claim, forms, taken in zip(self._claims, self._forms, self._taken, strict=True)
        )

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise OutOfSteps

    def _claim(self, number: int) -> bool:
        if number == len(self._claims):
            return True
        outer = (self._taken_before, self._taken_here, self._constraints)
        self._taken_before |= self._taken_here
        self._taken_here = 0
        self._constraints = running_constraints(self._table, self._claims[number])
        self._taken.append([])
        self._forms.append([])
        if self._request(number, 0):
            return True
        self._taken.pop()
        self._forms.pop()
        self._taken_before, self._taken_here, self._constraints = outer
        return False

    def _request(self, claim: int, request: int) -> bool:
        self._step()
        requests = self._claims[claim].requests
        if request == len(requests):
            return self._claim(claim + 1)
        for form in requests[request]:
            if form.every and not form.selectable:
                continue
            if len(self._taken[claim]) + form.count > MAX_DEVICES:
                continue
            self._forms[claim].append(form)
            touched = [one for one in self._constraints if one.touches(form)]
            every = list(bits(form.selectable)) if form.every else []
            if self._device(form, touched, 0, 0, every):
                return True
            self._forms[claim].pop()
        return False

    def _device(
        self, form: Form, touched: list[RunningConstraint], number: int, position: int, every: list[int]
    ) -> bool:
        """Take device ``number`` of a form, at ``position`` or behind."""
        if number == form.count:
            return self._request(form.claim, form.request + 1)
        self._step()
        key = self._key(form, number, position)
        if key in self._failed:
            return False
        if self._scan(form, touched, number, position, every):
            return True
        self._failed.add(key)
        return False

    def _key(self, form: Form, number: int, position: int) -> Hashable:
        """Say all that what follows depends on: a state that failed once need not be tried again."""
        return (
            (form.claim, form.request, form.index, number, position, len(self._taken[form.claim])),
            (self._taken_here, self._taken_before),
            tuple(self._left),
            frozenset((number, known[-1]) for number, known in self._groups.items() if known),
            tuple(
                (device, tuple(self._consumed[device].values()))
                for device in self._shares
                if self._shares[device]
            ),
            tuple(one.state for one in self._constraints),
        )

    def _scan(
        self, form: Form, touched: list[RunningConstraint], number: int, position: int, every: list[int]
    ) -> bool:
        if form.every:
            device = every[number]
            return (
                bool(form.candidates >> device & 1)
                and not self._in_use(form, device)
                and self._with(form, touched, number, device, every)
            )
        looked_at = (form.candidates | sum(1 << device for device in form.faults)) >> position << position
        for device in bits(looked_at):
            if self._in_use(form, device):
                continue
            if device in form.faults:
                raise _Abort(form.faults[device])
            if self._with(form, touched, number, device, every):
                return True
        return False

    def _in_use(self, form: Form, device: int) -> bool:
        in_use = self._taken_here
        if not form.admin:
            in_use |= self._room.held | self._taken_before
        return bool(in_use >> device & 1)

    def _with(
        self, form: Form, touched: list[RunningConstraint], number: int, device: int, every: list[int]
    ) -> bool:
        """Take one device and go on; everything is given back where that fails."""
        charged = bool(self._room.charged >> device & 1) or bool(self._shares.get(device))
        amounts = form.amounts.get(device, {})
        if not charged and not self._countable(device):
            return False
        added = 0
        for constraint in touched:
            answer = constraint.add(form, device)
            if isinstance(answer, ClaimError):
                raise _Abort(answer)
            if not answer:
                break
            added += 1
        else:
            if self._capable(device, amounts):
                self._take(form, device, amounts, 0 if charged else 1)
                if self._device(form, touched, number + 1, device + 1, every):
                    return True
                self._give_back(form, device, amounts, 0 if charged else 1)
            for constraint in touched:
                constraint.remove()
            return False
        for constraint in touched[:added]:
            constraint.remove()
        if form.every:
            raise _Abort(self._all_constraint(form, device))
        return False

    def _all_constraint(self, form: Form, device: int) -> ClaimError:
        claim = self._claims[form.claim].claim
        text = (
            f"claim {claim.namespace}/{claim.name}, request {form.name}: cannot add device "
            f"{self._table.devices[device].id} because a claim constraint would not be satisfied"
        )
        return ClaimError(ClaimErrorKind.ALL_CONSTRAINT, text)

    def _countable(self, device: int) -> bool:
        if self._room.overdrawn >> device & 1:
            return False
        for number, mine in self._table.sets[device]:
            known = self._groups.get(number)
            if known and not known[-1] & mine:
                return False
        return all(self._left[counter] >= amount for counter, amount in self._table.draws[device])

    def _capable(self, device: int, amounts: Mapping[str, int]) -> bool:
        consumed = self._consumed.get(device)
        if consumed is None:
            return True
        capacity = self._table.devices[device].device.capacity
        return all(amount + consumed.get(name, 0) <= capacity[name].value for name, amount in amounts.items())

    def _take(self, form: Form, device: int, amounts: Mapping[str, int], charge: int) -> None:
        if charge:
            for counter, amount in self._table.draws[device]:
                self._left[counter] -= amount
            for number, mine in self._table.sets[device]:
                known = self._groups.setdefault(number, [])
                known.append(known[-1] & mine if known else mine)
        if self._table.shareable >> device & 1:
            self._shares[device] = self._shares.get(device, 0) + 1
            consumed = self._consumed.setdefault(device, {})
            for name, amount in amounts.items():
                consumed[name] = consumed.get(name, 0) + amount
        else:
            self._taken_here |= 1 << device
        self._taken[form.claim].append(Taken(form, device))

    def _give_back(self, form: Form, device: int, amounts: Mapping[str, int], charge: int) -> None:
        if charge:
            for counter, amount in self._table.draws[device]:
                self._left[counter] += amount
            for number, _ in self._table.sets[device]:
                self._groups[number].pop()
        if self._table.shareable >> device & 1:
            self._shares[device] -= 1
            consumed = self._consumed[device]
            for name, amount in amounts.items():
                consumed[name] -= amount
        else:
            self._taken_here &= ~(1 << device)
        self._taken[form.claim].pop()
