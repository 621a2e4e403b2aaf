"""The integer program of gangs with several shapes, roles or rivals.

Members are counted, never named: how many of each class go into each cell. A cell is a domain directly above
the nodes, whose nodes offer patterns; where patterns are too many, or a role must share one node, a cell is a
node with its amounts as constraints. Above the cells every gang has a switch per domain that it uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._cpsat import Program, Stage, Terms
from koordcore.allocators.gang.bounds import BoolVector, fewest_domains
from koordcore.allocators.gang.cells import Cell, CellMaker, Kind, member_classes
from koordcore.allocators.gang.objective import Terms as Objective, terms_of
from koordcore.allocators.gang.role_model import RoleModel
from koordcore.allocators.gang.stages import StagePlan
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.topology.network import NetworkTopology

NO_COPIES: Final[immutabledict[int, int]] = immutabledict()


class GangModel:
    """Variables and constraints for one or several gangs that share the nodes' amounts.

    Parameters
    ----------
    tree
        The network.
    objectives
        One per gang, all over the same shapes and free amounts.
    optional
        Each gang may be left out as a whole (the first switch of its roles).
    copies
        Gangs that stand for several that are alike, each of which starts with all members in one domain of
        its MustGather layer or not at all; only with ``optional``. They are counted, not told apart.
    usable
        Nodes that members may be put on, shape (nodes,); None for all. Nodes with bound members must be among
        them.
    """

    def __init__(
        self,
        tree: NetworkTopology,
        objectives: Sequence[Objective],
        *,
        optional: bool = False,
        copies: Mapping[int, int] = NO_COPIES,
        usable: BoolVector | None = None,
    ) -> None:
        self.tree = tree
        self.objectives = tuple(objectives)
        self.program = Program()
        demand = objectives[0].demand
        self.copies = copies
        self.slots = np.stack([shape.slots for shape in demand.shapes])
        self.classes = member_classes([objective.demand for objective in objectives], copies)
        limits = np.zeros(len(demand.shapes), dtype=np.int64)
        for member_class in self.classes:
            limits[member_class.shape] += member_class.count
        self.slots = np.clip(self.slots, 0, limits[:, None])
        if usable is not None:
            self.slots = self.slots * usable
        self._times: list[tuple[int, Terms, int, int]] = []
        self.leaves = self._leaves()
        self.cells = CellMaker(self.program, self.objectives, self.classes, self.slots, self.leaves).make()
        numbers = range(len(objectives))
        self.switches = [{} if gang in copies else self._make_switches(gang) for gang in numbers]
        self.on = [self.program.integer(0, copies.get(gang, 1)) if optional else None for gang in numbers]
        self.roles: dict[int, RoleModel] = {}
        self.herds = {gang: self._make_herd(gang) for gang in sorted(copies)}
        for gang in numbers:
            if gang in copies:
                continue
            self._require_presence(gang)
            self.roles[gang] = RoleModel(
                self.program, objectives[gang], gang, self.cells, self.classes, self.on[gang]
            )
            self._require_gathering(gang)
            self._require_multiples(gang)

    def _leaves(self) -> Objective:
        """Order the nodes; each gang by itself knows only those that it may use, under its own rules."""
        first = self.objectives[0]
        if len(self.objectives) == 1:
            return first
        anywhere = attrs.evolve(first.demand, spec=NetworkTopologySpec())
        return terms_of(self.tree, anywhere, self.slots.sum(axis=0))

    def sharpen(self) -> None:
        """Say that nodes of a cell are used only if a gang uses the cell.

        Nothing is lost; the relaxation gets sharper and larger, which pays where the number of domains above
        the nodes is still to be proven.
        """
        for cell in self.cells:
            users = [switches[cell.domain] for switches in self.switches if cell.domain in switches]
            for kind in cell.kinds:
                if users and kind.bound == 0:
                    room = [(user, -len(kind.nodes)) for user in users]
                    self.program.require([*((use, 1) for use in kind.uses), *room], at_most=0)

    def terms(self, gang: int, *, domain: int | None = None) -> list[tuple[int, int]]:
        """Sum of a gang's members, in one domain or everywhere."""
        return [
            (variable, 1)
            for cell in self.cells
            if domain is None or self._inside(cell.domain, domain)
            for variable, member_class in zip(cell.counts, self.classes, strict=True)
            if variable >= 0 and member_class.gang == gang
        ]

    def stages(self, gangs: Sequence[int], floors: Sequence[int] = ()) -> StagePlan:
        """Objectives of these gangs together, in the documented order, with those behind the counts merged.

        ``floors`` are proven lower bounds of the opened domains of the first counted depths; none is known by
        default.
        """
        parts = self.parts(gangs, floors)
        first = self.objectives[gangs[0]]
        lone = 1 + bool(first.demand.units) + len(first.order) - first.snug
        return StagePlan.merge(self.program, *([part] for part in parts[:lone]), parts[lone:])

    def parts(self, gangs: Sequence[int], floors: Sequence[int] = ()) -> list[Stage]:
        """Objectives of these gangs together, one for each place of the certificate."""
        first = self.objectives[gangs[0]]
        placed = [(variable, -1) for gang in gangs for variable, _ in self.terms(gang)]
        most = sum(self.objectives[gang].demand.size for gang in gangs)
        opened = [
            Stage(self._weighted(gangs, depth, "open"), at_least=floor)
            for depth, floor in zip_longest(first.order, floors, fillvalue=0)
        ]
        last = [opened.pop()] if first.snug else []
        rest = [
            Stage(self._weighted(gangs, depth, part), at_least=0)
            for part in (("near", "tight") if first.has_near else ("tight",))
            for depth in first.upwards
        ]
        counts = [Stage(placed, at_least=-most)]
        if first.demand.units:
            started = [(switch, -1) for gang in gangs for switch, _ in self.roles[gang].started]
            counts.insert(0, Stage(started, at_least=self.program.span(started)[0]))
        return [*counts, *opened, *rest, *last]

    def hint(
        self, counts: Mapping[tuple[int, int], int], shares: Mapping[tuple[int, int, int], int]
    ) -> list[int]:
        """Complete a placement to values of all variables; empty when a node holds more than any pattern.

        Parameters
        ----------
        counts
            Members per node position and class.
        shares
            Members per gang, role and class.
        """
        values = [0] * len(self.program)
        for cell in self.cells:
            below = self._nodes_of(cell)
            for node in below:
                for index, variable in enumerate(cell.counts):
                    if variable >= 0:
                        values[variable] += counts.get((node, index), 0)
            for kind in cell.kinds:
                if not self._hint_kind(kind, counts, values):
                    return []
        for gang, roles in self.roles.items():
            own = {(role, index): n for (g, role, index), n in shares.items() if g == gang}
            roles.hint(values, own)
        for gang, switches in enumerate(self.switches):
            if gang in self.herds:
                continue
            for cell in self.cells:
                if any(
                    variable >= 0 and values[variable] and c.gang == gang
                    for variable, c in zip(cell.counts, self.classes, strict=True)
                ):
                    for domain in self.tree.path(cell.domain):
                        values[switches[domain]] = 1
            on = self.on[gang]
            if on is not None:
                values[on] = int(any(values[v] for v, _ in self.terms(gang)))
        for gang, herd in self.herds.items():
            for number, each, variables in herd.values():
                values[number] = sum(values[variable] for variable in variables) // each
            on = self.on[gang]
            assert on is not None
            values[on] = sum(values[number] for number, _, _ in herd.values())
        for times, terms, bound, multiple in self._times:
            values[times] = (sum(values[variable] for variable, _ in terms) + bound) // multiple
        return values

    def _hint_kind(self, kind: Kind, counts: Mapping[tuple[int, int], int], values: list[int]) -> bool:
        """Choose a pattern for every used node of a kind; False when there is none."""
        for node in kind.nodes:
            held = [0] * len(self.slots)
            for index, c in enumerate(self.classes):
                held[c.shape] += counts.get((node, index), 0)
            if not any(held):
                continue
            for use, pattern in zip(kind.uses, kind.patterns, strict=True):
                if all(has >= wants for has, wants in zip(pattern, held, strict=True)):
                    values[use] += 1
                    break
            else:
                return False
        return True

    def _nodes_of(self, cell: Cell) -> tuple[int, ...]:
        if cell.kinds:
            return tuple(node for kind in cell.kinds for node in kind.nodes)
        return (cell.domain - self.tree.first_node,)

    def decode(self, values: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Read an answer: per class the node positions with member counts, in leaf order."""
        found: dict[int, list[tuple[int, int]]] = {index: [] for index in range(len(self.classes))}
        by_domain = {cell.domain: cell for cell in self.cells}
        stack = [0]
        while stack:
            domain = stack.pop()
            cell = by_domain.get(domain)
            if cell is None:
                stack.extend(reversed(self.leaves.child_order(domain).tolist()))
                continue
            left = [values[variable] if variable >= 0 else 0 for variable in cell.counts]
            for node, room in self._rooms(cell, values):
                for index, c in enumerate(self.classes):
                    taken = min(left[index], room[c.shape])
                    if taken:
                        left[index] -= taken
                        room[c.shape] -= taken
                        found[index].append((node, taken))
        return found

    def _rooms(self, cell: Cell, values: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Give the used nodes of a cell in leaf order, each with what its pattern holds per shape."""
        if not cell.kinds:
            return [
                (
                    cell.domain - self.tree.first_node,
                    [int(row) for row in self.slots[:, cell.domain - self.tree.first_node]],
                )
            ]
        order = {
            int(node) - self.tree.first_node: position
            for position, node in enumerate(self.leaves.child_order(cell.domain).tolist())
        }
        rooms = []
        for kind in cell.kinds:
            patterns = [
                pattern
                for use, pattern in zip(kind.uses, kind.patterns, strict=True)
                for _ in range(values[use])
            ]
            patterns.sort(key=sum, reverse=True)
            nodes = sorted(kind.nodes, key=self._worth.__getitem__, reverse=True)
            rooms += [(node, list(pattern)) for node, pattern in zip(nodes, patterns, strict=False)]
        return sorted(rooms, key=lambda room: order[room[0]])

    @cached_property
    def _worth(self) -> list[int]:
        """What members are worth on each node, shapes together: of alike nodes the better ones are taken."""
        scores = [shape.scores for shape in self.objectives[0].demand.shapes if len(shape.scores)]
        return np.sum(scores, axis=0).tolist() if scores else [0] * len(self.tree.nodes)

    def opened(self, gangs: Sequence[int], depth: int) -> Terms:
        """Sum of the domains that the gangs open on one depth above the nodes."""
        return self._weighted(gangs, depth, "open")

    def _weighted(self, gangs: Sequence[int], depth: int, part: str) -> Terms:
        """Sum of one cost over the used domains of one depth."""
        found: list[tuple[int, int]] = []
        for gang in gangs:
            objective = self.objectives[gang]
            if gang in self.herds and part == "open":
                found += [(number, 1) for number, _, _ in self.herds[gang].values()]
            for domain, switch in self.switches[gang].items():
                if int(self.tree.depth[domain]) == depth:
                    found.append((switch, _cost(objective, domain, part)))
        if depth == len(self.tree.layers):
            objective = self.objectives[gangs[0]]
            for cell in self.cells:
                for kind in cell.kinds:
                    cost = _cost(objective, self.tree.first_node + kind.nodes[0], part)
                    found += [(use, cost) for use in kind.uses]
        return [(variable, cost) for variable, cost in found if cost]

    def _inside(self, domain: int, ancestor: int) -> bool:
        while domain > ancestor:
            domain = int(self.tree.parent[domain])
        return domain == ancestor

    def _make_switches(self, gang: int) -> dict[int, int]:
        """Add a switch per domain that the gang can use, tied to the members counted in it."""
        program, tree = self.program, self.tree
        switches: dict[int, int] = {}
        inside: dict[int, dict[int, list[int]]] = {}
        for cell in self.cells:
            for domain in tree.path(cell.domain):
                held = inside.setdefault(domain, {})
                for variable, c in zip(cell.counts, self.classes, strict=True):
                    if variable >= 0 and c.gang == gang:
                        held.setdefault(c.shape, []).append(variable)
        for domain in sorted(inside):
            switches[domain] = switch = program.boolean()
            if int(tree.depth[domain]) > 1:
                program.require([(switch, 1), (switches[int(tree.parent[domain])], -1)], at_most=0)
            for variables in inside[domain].values():
                terms = [(variable, 1) for variable in variables]
                most = min(program.span(terms)[1], self.objectives[gang].demand.size)
                program.require([*terms, (switch, -most)], at_most=0)
            everything = [(v, -1) for variables in inside[domain].values() for v in variables]
            program.require([*everything, (switch, 1)], at_most=0)
        return switches

    def _make_herd(self, gang: int) -> dict[int, tuple[int, int, list[int]]]:
        """Count the gangs of a kind per domain that each of them shares.

        Per domain: the variable, and the members of each gang that the further variables count.
        """
        program, tree, objective = self.program, self.tree, self.objectives[gang]
        depth = objective.must_depth or 0
        size = objective.demand.size
        whole = all(size % multiple == 0 for multiple in objective.multiples[: depth + 1])
        inside: dict[int, dict[int, list[int]]] = {}
        for cell in self.cells:
            shared = tree.path(cell.domain)[depth - 1]
            for variable, c in zip(cell.counts, self.classes, strict=True):
                if variable >= 0 and c.gang == gang:
                    inside.setdefault(shared, {}).setdefault(c.shape, []).append(variable)
        each = {c.shape: c.count // self.copies[gang] for c in self.classes if c.gang == gang}
        herd: dict[int, tuple[int, int, list[int]]] = {}
        for domain, variables in sorted(inside.items()):
            room = (
                program.span([(v, 1) for v in variables.get(shape, ())])[1] // count
                for shape, count in each.items()
            )
            number = program.integer(0, min(*room, self.copies[gang]) if whole else 0)
            for shape, count in each.items():
                counted = [(variable, 1) for variable in variables.get(shape, ())]
                program.require([*counted, (number, -count)], equal=0)
            first = min(variables)
            herd[domain] = (number, each[first], variables[first])
        on = self.on[gang]
        assert on is not None
        program.require([*((number, 1) for number, _, _ in herd.values()), (on, -1)], equal=0)
        return herd

    def _require_presence(self, gang: int) -> None:
        """A gang that is not left out uses a domain of every layer; saying so sharpens the bounds."""
        on, switches = self.on[gang], self.switches[gang]
        objective = self.objectives[gang]
        if on is None or objective.demand.least <= 0:
            return
        whole = objective.demand.least >= objective.demand.size and objective.demand.min_roles is None
        depths = {domain: int(self.tree.depth[domain]) for domain in switches}
        for depth in sorted(set(depths.values())):
            used = [(switch, 1) for domain, switch in switches.items() if depths[domain] == depth]
            fewest = max(1, fewest_domains(objective, depth)) if whole and not objective.bound[0] else 1
            self.program.require([*used, (on, -fewest)], at_least=0)

    def _require_gathering(self, gang: int) -> None:
        """One domain of the MustGather layer for all."""
        program, tree, objective = self.program, self.tree, self.objectives[gang]
        if not objective.must_depth:
            return
        used = [
            (switch, domain)
            for domain, switch in self.switches[gang].items()
            if int(tree.depth[domain]) == objective.must_depth
        ]
        program.require([(switch, 1) for switch, _ in used], at_most=1)
        if objective.bound[0] > 0:
            for switch, domain in used:
                if objective.bound[domain] == 0:
                    program.require([(switch, 1)], at_most=0)

    def _require_multiples(self, gang: int) -> None:
        """Members per domain come in multiples, bound ones included, on every layer that says so."""
        program, objective, leaf = self.program, self.objectives[gang], len(self.tree.layers)
        by_patterns = bool(self.cells) and int(self.tree.depth[self.cells[0].domain]) < leaf
        for depth, multiple in enumerate(objective.multiples):
            if multiple == 1:
                continue
            for domain in self.tree.domains_at(depth):
                bound = int(objective.bound[domain])
                if depth == leaf and by_patterns:
                    if bound % multiple and objective.slots[domain] == 0:
                        program.require([], at_least=1)
                    continue
                terms = self.terms(gang, domain=domain)
                times = program.integer(0, (program.span(terms)[1] + bound) // multiple)
                program.require([*terms, (times, -multiple)], equal=-bound)
                self._times.append((times, terms, bound, multiple))


def _cost(objective: Objective, domain: int, part: str) -> int:
    """Cost of using a domain in one part of the objective."""
    if part == "open":
        return int(objective.bound[domain] == 0)
    if part == "near":
        return objective.nearest[int(objective.tree.depth[domain])] - int(objective.near[domain])
    return int(objective.slots[domain])
