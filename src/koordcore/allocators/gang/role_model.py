"""The roles of a gang in the integer program: minimums, groups of groups, and who has to lie together.

Roles that nothing but their names tells apart are counted: how many of them a domain holds is all that there
is to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from koordcore._cpsat import Program, Terms as Linear
from koordcore.allocators.gang.cells import Cell, MemberClass
from koordcore.allocators.gang.demand import Role, Unit
from koordcore.allocators.gang.objective import Terms


class RoleModel:
    """Variables and constraints for the roles of one gang.

    Parameters
    ----------
    program
        What is added to.
    objective
        The gang's.
    gang
        Its number.
    cells, classes
        Where members are counted, of all gangs.
    on
        The gang's switch; ``None`` for a gang that must start.

    Attributes
    ----------
    shares
        Members placed by role and class; not of roles that are counted.
    active
        Switch of each role that may stay out, by role.
    herds
        Number of equal roles that start, by the first of them.
    """

    def __init__(
        self,
        program: Program,
        objective: Terms,
        gang: int,
        cells: Sequence[Cell],
        classes: Sequence[MemberClass],
        on: int | None,
    ) -> None:
        self._program, self._objective, self._demand = program, objective, objective.demand
        self._tree, self._gang, self._cells, self._on = objective.tree, gang, cells, on
        self._kinds = [(index, c) for index, c in enumerate(classes) if c.gang == gang]
        self.shares: dict[tuple[int, int], int] = {}
        self.active: dict[int, int] = {}
        self.herds: dict[int, int] = {}
        self._chosen: list[tuple[int, list[int]]] = []
        self._times: list[tuple[int, list[int], int, int]] = []
        self._counted: list[tuple[int, int, list[int]]] = []
        self._here: dict[int, list[int]] = {}
        self._success: list[int | None] = []
        self._units()
        for number in range(len(self._demand.roles)):
            if self._demand.alike[number] == number:
                (self._herd if self._demand.copies[number] > 1 else self._role)(number)
        self._enough()
        self._in_units()
        self._quorums()
        self._sums()
        self._limits()
        self._gathering()
        self._multiples()

    @property
    def started(self) -> Linear:
        """Sum of the roles that start."""
        return [*((active, 1) for active in self.active.values()), *((n, 1) for n in self.herds.values())]

    # -- minimums --------------------------------------------------------------------------------------

    @property
    def _partial(self) -> bool:
        demand = self._demand
        return demand.min_roles is not None and demand.min_roles < len(demand.roles)

    def _role(self, number: int) -> None:
        """A role that takes part reaches its minimum."""
        program, role = self._program, self._demand.roles[number]
        active = self._on
        if self._partial or (role.unit >= 0 and not role.started):
            active = self.active[number] = program.boolean()
        own = number if self._demand.apart[number] else None
        for index, c in self._kinds:
            count = sum(member.shape == c.shape for member in role.members)
            if c.role == own and count:
                share = self.shares[number, index] = program.integer(0, count)
                if active is not None:
                    program.require([(share, 1), (active, -count)], at_most=0)
        shares = self._shares_of(number)
        least = max(0, role.min_available)
        if active is None:
            program.require(shares, at_least=least)
        elif not role.started:
            program.require([*shares, (active, -least)], at_least=0)

    def _shares_of(self, number: int) -> list[tuple[int, int]]:
        return [(share, 1) for (role, _), share in self.shares.items() if role == number]

    def _herd(self, number: int) -> None:
        """Count equal roles per domain of the layer that each of them shares."""
        program, demand, tree = self._program, self._demand, self._tree
        depth = tree.depth_of(demand.roles[number].must_layer)
        copies = demand.copies[number]
        kinds = {c.shape: (index, c.count // copies) for index, c in self._kinds if c.role == number}
        inside: dict[int, dict[int, list[int]]] = {}
        for cell in self._cells if depth else ():
            shared = tree.path(cell.domain)[(depth or 0) - 1]
            for shape, (index, _) in kinds.items():
                if cell.counts[index] >= 0:
                    inside.setdefault(shared, {}).setdefault(shape, []).append(cell.counts[index])
        total = self.herds[number] = program.integer(0, copies)
        numbers = []
        for variables in inside.values():
            room = [
                program.span([(v, 1) for v in variables.get(s, ())])[1] // n for s, (_, n) in kinds.items()
            ]
            here = program.integer(0, min(*room, copies))
            for shape, (_, each) in kinds.items():
                counted = [(variable, 1) for variable in variables.get(shape, ())]
                program.require([*counted, (here, -each)], equal=0)
            first = min(variables)
            self._counted.append((here, kinds[first][1], variables[first]))
            numbers.append(here)
        program.require([*((here, 1) for here in numbers), (total, -1)], equal=0)
        self._here[number] = numbers
        if self._partial or demand.roles[number].unit >= 0:
            return
        if self._on is None:
            program.require([(total, 1)], at_least=copies)
        else:
            program.require([(total, 1), (self._on, -copies)], equal=0)

    def _enough(self) -> None:
        """Enough roles take part, where not all have to."""
        demand, program = self._demand, self._program
        if not self._partial or demand.min_roles is None:
            return
        if self._on is None:
            program.require(self.started, at_least=demand.min_roles)
            return
        program.require([*self.started, (self._on, -demand.min_roles)], at_least=0)
        for active in self.active.values():
            program.require([(active, 1), (self._on, -1)], at_most=0)
        for number, total in self.herds.items():
            program.require([(total, 1), (self._on, -demand.copies[number])], at_most=0)

    # -- groups of groups ------------------------------------------------------------------------------

    def _units(self) -> None:
        """Add a switch per unit that may stay out; the topmost one starts with the gang."""
        for number, unit in enumerate(self._demand.units):
            if number == 0:
                self._success.append(self._on)
                continue
            switch = self._program.boolean()
            self._success.append(switch)
            above = self._success[unit.parent]
            if above is not None:
                self._program.require([(switch, 1), (above, -1)], at_most=0)

    def _in_units(self) -> None:
        """A unit succeeds by enough parts, and nobody starts below one that does not."""
        program, demand = self._program, self._demand
        for number, unit in enumerate(demand.units):
            done = sum(role.started for role in demand.roles if role.unit == number)
            parts = [(switch, 1) for role, switch in self.active.items() if demand.roles[role].unit == number]
            parts += [(total, 1) for role, total in self.herds.items() if demand.roles[role].unit == number]
            for below, other in enumerate(demand.units):
                switch = self._success[below]
                if other.parent == number and switch is not None:
                    parts.append((switch, 1))
            own = self._success[number]
            if own is None:
                program.require(parts, at_least=unit.least - done)
            else:
                program.require([*parts, (own, -unit.least)], at_least=-done)
        for number, role in enumerate(demand.roles):
            above = self._success[role.unit] if role.unit >= 0 else None
            if above is None or demand.alike[number] != number:
                continue
            for variable, most in self._switches(number):
                program.require([(variable, 1), (above, -most)], at_most=0)
        if demand.units:
            everybody = [(share, 1) for share in self.shares.values()]
            everybody += [(total, 1) for total in self.herds.values()]
            if self._on is None:
                program.require(everybody, at_least=1)
            else:
                program.require([*everybody, (self._on, -1)], at_least=0)

    def _switches(self, number: int) -> list[tuple[int, int]]:
        if number in self.herds:
            return [(self.herds[number], self._demand.copies[number])]
        if number in self.active:
            return [(self.active[number], 1)]
        size = len(self._demand.roles[number].members)
        return [(share, size) for share, _ in self._shares_of(number)]

    def _quorums(self) -> None:
        """Add what several roles need together, as long as their unit starts."""
        for quorum in self._demand.quorums:
            together: list[tuple[int, int]] = []
            for number in quorum.roles:
                first = self._demand.alike[number]
                if first not in self.herds:
                    together += self._shares_of(number)
                elif first == number:
                    together.append((self.herds[number], len(self._demand.roles[number].members)))
            switch = self._on if quorum.unit < 0 else self._success[quorum.unit]
            if switch is None:
                self._program.require(together, at_least=quorum.least)
            else:
                self._program.require([*together, (switch, -quorum.least)], at_least=0)

    # -- who is counted where --------------------------------------------------------------------------

    def _sums(self) -> None:
        """What the roles place of a class is what the cells hold of it."""
        for index, c in self._kinds:
            if c.role in self.herds:
                continue
            counted = [(cell.counts[index], 1) for cell in self._cells if cell.counts[index] >= 0]
            shared = [(v, -1) for (_, kind), v in self.shares.items() if kind == index]
            self._program.require([*counted, *shared], equal=0)

    def _limits(self) -> None:
        """What all members share beside the nodes is not used up beyond what is left."""
        for limit in self._demand.limits:
            used = [
                (cell.counts[index], limit.uses[c.shape])
                for index, c in self._kinds
                for cell in self._cells
                if cell.counts[index] >= 0 and limit.uses[c.shape]
            ]
            self._program.require(used, at_most=max(0, limit.room))

    def _gathering(self) -> None:
        """One domain for a role's own layer or home, and for a unit's."""
        tree, demand, first = self._tree, self._demand, self._tree.first_node
        for number, role in enumerate(demand.roles):
            kinds = [index for index, c in self._kinds if c.role == number]
            depth = tree.depth_of(role.must_layer) if role.must_layer else 0
            if depth is None:
                for share, _ in self._shares_of(number):
                    self._program.require([(share, 1)], at_most=0)
            elif depth and number not in self.herds:
                start = tree.layer_start[depth]
                homes = [tree.path(cell.domain)[depth - 1] - start for cell in self._cells]
                held = self._held(number, depth)
                homes = [home if not held or home + start in held else -1 for home in homes]
                self._one_home(kinds, homes, -1)
            if len(role.home):
                self._one_home(
                    kinds, [int(role.home[_node(cell, first)]) for cell in self._cells], role.fixed
                )
        for number, unit in enumerate(demand.units):
            if len(unit.home):
                kinds = [index for index, c in self._kinds if c.role in demand.below(number)]
                self._one_home(
                    kinds, [int(unit.home[_node(cell, first)]) for cell in self._cells], unit.fixed
                )

    def _held(self, number: int, depth: int) -> set[int]:
        """Give the domains of a depth with running members of a role."""
        bound = self._demand.roles[number].bound
        return set(self._tree.ancestors[depth][np.flatnonzero(bound)].tolist()) if len(bound) else set()

    def _multiples(self) -> None:
        """Members of a role or of a unit per domain come in multiples, running ones included."""
        program, tree, demand = self._program, self._tree, self._demand
        held: list[tuple[frozenset[int], Role | Unit]] = [
            *((frozenset((number,)), role) for number, role in enumerate(demand.roles) if role.multiples),
            *((demand.below(number), unit) for number, unit in enumerate(demand.units) if unit.multiples),
        ]
        for who, one in held:
            kinds = [index for index, c in self._kinds if c.role in who]
            for layer, multiple in one.multiples.items():
                depth = tree.depth_of(layer)
                if depth is None or multiple <= 1:
                    continue
                bound = tree.sum_up(one.bound) if len(one.bound) else np.zeros(len(tree), dtype=np.int64)
                inside: dict[int, list[tuple[int, int]]] = {}
                for cell in self._cells:
                    domain = (0, *tree.path(cell.domain))[depth]
                    inside.setdefault(domain, []).extend(
                        (cell.counts[index], 1) for index in kinds if cell.counts[index] >= 0
                    )
                for domain in tree.domains_at(depth):
                    terms, before = inside.get(domain, []), int(bound[domain])
                    if not terms and before % multiple == 0:
                        continue
                    times = program.integer(0, (program.span(terms)[1] + before) // multiple)
                    program.require([*terms, (times, -multiple)], equal=-before)
                    self._times.append((times, [variable for variable, _ in terms], before, multiple))

    def _one_home(self, kinds: Sequence[int], homes: Sequence[int], fixed: int) -> None:
        program = self._program
        inside: dict[int, list[int]] = {}
        for cell, home in zip(self._cells, homes, strict=True):
            for index in kinds:
                if cell.counts[index] >= 0:
                    inside.setdefault(home, []).append(cell.counts[index])
        choices = []
        for home, variables in inside.items():
            if home < 0 or fixed not in (-1, home):
                for variable in variables:
                    program.require([(variable, 1)], at_most=0)
                continue
            choice = program.boolean()
            for variable in variables:
                most = program.span([(variable, 1)])[1]
                program.require([(variable, 1), (choice, -most)], at_most=0)
            choices.append((choice, 1))
            self._chosen.append((choice, variables))
        program.require(choices, at_most=1)

    # -- answers ---------------------------------------------------------------------------------------

    def hint(self, values: list[int], shares: Mapping[tuple[int, int], int]) -> None:
        """Complete a placement: members per role and class are given, those per cell stand in ``values``."""
        demand = self._demand
        for (role, index), share in self.shares.items():
            values[share] = shares.get((role, index), 0)
        for role, active in self.active.items():
            # A role that needs nobody is complete without anybody, too.
            enough = self._on is None and demand.roles[role].unit < 0 >= demand.roles[role].min_available
            values[active] = int(enough or any(values[share] for share, _ in self._shares_of(role)))
        for here, each, variables in self._counted:
            values[here] = sum(values[variable] for variable in variables) // each
        for role, total in self.herds.items():
            values[total] = sum(values[here] for here in self._here[role])
        for number in range(len(demand.units) - 1, 0, -1):
            unit, switch = demand.units[number], self._success[number]
            done = sum(role.started for role in demand.roles if role.unit == number)
            done += sum(values[a] for role, a in self.active.items() if demand.roles[role].unit == number)
            done += sum(values[n] for role, n in self.herds.items() if demand.roles[role].unit == number)
            done += sum(
                values[other]
                for below, other in enumerate(self._success)
                if other is not None and demand.units[below].parent == number
            )
            if switch is not None:
                values[switch] = int(done >= unit.least)
        for choice, variables in self._chosen:
            values[choice] = int(any(values[variable] for variable in variables))
        for times, variables, before, multiple in self._times:
            values[times] = (sum(values[variable] for variable in variables) + before) // multiple


def _node(cell: Cell, first: int) -> int:
    """Give a node of a cell; all of a cell's nodes have the same home."""
    return cell.kinds[0].nodes[0] if cell.kinds else cell.domain - first
