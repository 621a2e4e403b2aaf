"""Which parts of a tree of groups start: any choice of them that is as good as the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from koordcore._cpsat import Program
from koordcore._record import record
from koordcore.allocators.gang.demand import Role, Unit


@record(eq=False, kw_only=True)
class Shares:
    """So many roles start and so many members find a place, whichever they are.

    Parameters
    ----------
    roles
        As in the problem, but each with what it needs itself if it starts, and its unit.
    units
        Groups of the roles, parents first.
    starting
        Roles that start.
    members
        Members of all roles together.
    drafted
        The minimums of the problem's roles are one choice that does.
    """

    roles: tuple[Role, ...]
    units: tuple[Unit, ...]
    starting: int
    members: int
    drafted: bool = True


class ShareRows:
    """The rows that let a program choose which roles start.

    Parameters
    ----------
    program
        To which they are added.
    shares
        What may be chosen.
    placed
        Members placed of each role, as a sum of variables.
    whole
        A role that starts places all its members.
    """

    def __init__(
        self,
        program: Program,
        shares: Shares,
        placed: Sequence[Sequence[tuple[int, int]]],
        *,
        whole: bool,
    ) -> None:
        self._program, self._shares = program, shares
        self._placed, self._whole = placed, whole
        self.follow: list[tuple[int, Callable[[list[int]], int]]] = []
        self._starts = [self._start(number) for number in range(len(shares.roles))]
        self._succeeds = [program.boolean() for _ in shares.units]
        for number in reversed(range(len(shares.units))):
            self._unit(number)
        for number, role in enumerate(shares.roles):
            self._nobody_below(number, role.unit)
        program.require([(self._succeeds[0], 1)], equal=1)
        idle = [(one, 1) for one, role in zip(self._starts, shares.roles, strict=True) if not role.started]
        program.require(idle, at_least=shares.starting)
        program.require([term for terms in placed for term in terms], at_least=shares.members)

    def _start(self, number: int) -> int:
        """Say that somebody of a role is placed: then as many as it needs."""
        role, terms = self._shares.roles[number], self._placed[number]
        size = len(role.members)
        least = size if self._whole else max(1, role.min_available)
        starts = self._program.boolean()
        self._program.require([*terms, (starts, -size)], at_most=0)
        self._program.require([*terms, (starts, -least)], at_least=0)
        self.follow.append((starts, lambda values: int(any(values[one] for one, _ in terms))))
        return starts

    def _unit(self, number: int) -> None:
        """Say that enough parts of a unit succeed."""
        shares, unit, own = self._shares, self._shares.units[number], self._succeeds[number]
        below = [role.unit == number for role in shares.roles]
        running = sum(role.started for role, here in zip(shares.roles, below, strict=True) if here)
        parts = [
            one
            for one, role, here in zip(self._starts, shares.roles, below, strict=True)
            if here and not role.started
        ]
        parts += [
            one for one, other in zip(self._succeeds, shares.units, strict=True) if other.parent == number
        ]
        self._program.require([*((one, 1) for one in parts), (own, -unit.least)], at_least=-running)
        self.follow.append(
            (own, lambda values: int(running + sum(values[one] for one in parts) >= unit.least))
        )

    def _nobody_below(self, role: int, unit: int) -> None:
        """Say that nobody of a role is placed below a unit that does not succeed."""
        while unit >= 0:
            self._program.require([(self._starts[role], 1), (self._succeeds[unit], -1)], at_most=0)
            unit = self._shares.units[unit].parent
