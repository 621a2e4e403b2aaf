"""Where the members of a gang program are counted: cells, their kinds of nodes, and classes of members.

A cell is a domain directly above the nodes, whose nodes offer patterns; where patterns are too many, or a
gang or a role must share one node, a cell is a node with its amounts as constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from koordcore._cpsat import Program
from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, IntMatrix, IntVector, Role, Unit
from koordcore.allocators.gang.objective import Terms as Objective
from koordcore.allocators.gang.patterns import Pattern, node_patterns
from koordcore.topology.network import NODE_LAYER, NetworkTopology


@record
class MemberClass:
    """Members that the program does not tell apart: a shape of one gang, of one role if that gathers."""

    gang: int
    shape: int
    role: int | None
    count: int


@record(eq=False)
class Kind:
    """Nodes of one cell that are alike, in leaf order, with what they can hold and how many use what."""

    nodes: tuple[int, ...]
    patterns: tuple[Pattern, ...]
    uses: tuple[int, ...]
    slots: int
    bound: int
    near: int


@record(eq=False)
class Cell:
    """A domain that members are counted in; ``counts`` has a variable per class, -1 for none."""

    domain: int
    counts: tuple[int, ...]
    kinds: tuple[Kind, ...]


_NodeKey: TypeAlias = tuple[int, int, tuple[Pattern, ...]]
"""Kind of a node, bound members where they matter, and what it does not take together."""


@record(eq=False)
class CellMaker:
    """Adds the variables of the cells and what their nodes can hold.

    Parameters
    ----------
    program
        What is added to.
    objectives
        One per gang, all over the same tree, shapes and free amounts.
    classes
        Whom to count.
    slots
        Most members of every shape that each node takes, shape (shapes, nodes).
    leaves
        Says in which order the nodes come; knows every node that any of the gangs may use.
    """

    program: Program
    objectives: tuple[Objective, ...]
    classes: tuple[MemberClass, ...]
    slots: IntMatrix
    leaves: Objective

    @property
    def tree(self) -> NetworkTopology:
        """The network."""
        return self.objectives[0].tree

    @property
    def free(self) -> IntMatrix:
        """What each node has left, shape (R, nodes)."""
        return self.objectives[0].demand.free

    @cached_property
    def requests(self) -> IntMatrix:
        """Amounts of one member per shape, shape (shapes, R)."""
        return np.stack([shape.request for shape in self.objectives[0].demand.shapes])

    def make(self) -> list[Cell]:
        """Add the cells, in the order of their domains."""
        tree, leaf = self.tree, len(self.tree.layers)
        multiple = max(objective.multiples[-1] for objective in self.objectives)
        node_roles = any(self._by_node(objective.demand) for objective in self.objectives)
        node_must = any(objective.must_depth == leaf for objective in self.objectives)
        several = multiple > 1 and len(self.objectives) > 1
        kinds = None if node_roles or node_must or several else self._node_kinds(multiple)
        if kinds is None:
            return [self._node_cell(node) for node in np.flatnonzero((self.slots > 0).any(axis=0)).tolist()]
        cells = []
        for domain in tree.domains_at(leaf - 1):
            if domain in kinds:
                cells.append(self._pattern_cell(domain, kinds[domain], exact=multiple > 1))
        return cells

    def _by_node(self, demand: GangDemand) -> bool:
        """Tell whether something but the whole gang's wish tells the nodes of one cell apart."""
        parts: tuple[Role | Unit, ...] = (*demand.roles, *demand.units)
        if any(role.must_layer == NODE_LAYER for role in demand.roles):
            return True
        if any(NODE_LAYER in part.multiples for part in parts):
            return True
        homes = [part.home for part in parts if len(part.home)]
        if not homes:
            return False
        above = self.tree.parent[self.tree.first_node :]
        _, first, cell = np.unique(above, return_index=True, return_inverse=True)
        return any(bool((home != home[first][cell]).any()) for home in homes)

    def _node_kinds(self, multiple: int) -> dict[int, list[Kind]] | None:
        """Group the nodes of every cell; None when patterns are too many."""
        patterns = node_patterns(self.free, self.requests, self.slots)
        if patterns is None:
            return None
        first = self.tree.first_node
        known: dict[_NodeKey, tuple[Pattern, ...] | None] = {}
        groups: dict[int, dict[tuple[_NodeKey, int, int, int], list[int]]] = {}
        objective = self.leaves
        for domain in self.tree.domains_at(len(self.tree.layers) - 1):
            for node in objective.child_order(domain).tolist():
                kind, bound = int(patterns.kind[node - first]), int(self._bound[node])
                if kind < 0:
                    continue
                conflicts = self._conflicts.get(node - first, ())
                key = (kind, bound if multiple > 1 else 0, conflicts)
                alike = (key, bound, int(objective.near[node]), int(objective.slots[node]))
                groups.setdefault(domain, {}).setdefault(alike, []).append(node - first)
                if key not in known:
                    known[key] = (
                        patterns.exact(kind, multiple=multiple, bound=bound, conflicts=conflicts)
                        if multiple > 1
                        else patterns.maximal(kind, conflicts)
                    )
                    if known[key] is None:
                        return None
        return {
            domain: [
                Kind(
                    tuple(nodes),
                    known[key] or (),
                    tuple(self.program.integer(0, len(nodes)) for _ in known[key] or ()),
                    slots,
                    bound,
                    near,
                )
                for (key, bound, near, slots), nodes in found.items()
            ]
            for domain, found in groups.items()
        }

    @cached_property
    def _conflicts(self) -> Mapping[int, tuple[Pattern, ...]]:
        """What each node does not take together."""
        found: dict[int, tuple[Pattern, ...]] = {}
        for node, counts in self.objectives[0].demand.conflicts:
            found[node] = (*found.get(node, ()), counts)
        return found

    @cached_property
    def _bound(self) -> IntVector:
        """Bound members per domain, of the gang that has most there."""
        most: IntVector = np.stack([objective.bound for objective in self.objectives]).max(axis=0)
        return most

    def _pattern_cell(self, domain: int, kinds: list[Kind], *, exact: bool) -> Cell:
        program = self.program
        multiple = max(objective.multiples[-1] for objective in self.objectives)
        for kind in kinds:
            full = len(kind.nodes) if kind.bound % multiple else None
            uses = [(use, 1) for use in kind.uses]
            program.require(uses, at_most=len(kind.nodes), at_least=full)
        supply: list[list[tuple[int, int]]] = [
            [
                (use, pattern[shape])
                for kind in kinds
                for use, pattern in zip(kind.uses, kind.patterns, strict=True)
                if pattern[shape]
            ]
            for shape in range(len(self.slots))
        ]
        children = [node for kind in kinds for node in kind.nodes]
        alone = self.slots[:, children].sum(axis=1)
        counts = tuple(
            program.integer(0, min(c.count, int(alone[c.shape]))) if alone[c.shape] else -1
            for c in self.classes
        )
        for shape, offered in enumerate(supply):
            asked = [
                (variable, -1)
                for variable, c in zip(counts, self.classes, strict=True)
                if c.shape == shape and variable >= 0
            ]
            if asked or (exact and offered):
                program.require([*offered, *asked], at_least=0, at_most=0 if exact else None)
        return Cell(domain, counts, tuple(kinds))

    def _node_cell(self, node: int) -> Cell:
        program = self.program
        counts = tuple(
            program.integer(0, min(c.count, int(self.slots[c.shape, node])))
            if self.slots[c.shape, node]
            else -1
            for c in self.classes
        )
        placed = [(v, c) for v, c in zip(counts, self.classes, strict=True) if v >= 0]
        for row in range(self.free.shape[0]):
            asked = [(v, int(self.requests[c.shape, row])) for v, c in placed]
            if any(amount > 0 for _, amount in asked):
                program.require(asked, at_most=max(0, int(self.free[row, node])))
        of_shape = [[(v, 1) for v, c in placed if c.shape == shape] for shape in range(len(self.slots))]
        for shape, same in enumerate(of_shape):
            if len(same) > 1:
                program.require(same, at_most=int(self.slots[shape, node]))
        for conflict in self._conflicts.get(node, ()):
            fewer = []
            for shape, count in enumerate(conflict):
                if count:
                    fewer.append((program.boolean(), 1))
                    program.require(of_shape[shape], at_most=count - 1, when=(fewer[-1][0],))
            program.require(fewer, at_least=1)
        return Cell(self.tree.first_node + node, counts, ())


def member_classes(demands: Sequence[GangDemand], copies: Mapping[int, int]) -> tuple[MemberClass, ...]:
    """List the classes of every gang; roles with a wish of their own are told apart.

    ``copies`` says which gangs stand for several that are alike.
    """
    counts: dict[tuple[int, int, int], int] = {}
    for gang, demand in enumerate(demands):
        for number, role in enumerate(demand.roles):
            own = demand.alike[number] if demand.apart[number] else -1
            for member in role.members:
                key = (gang, member.shape, own)
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        MemberClass(gang, shape, None if role < 0 else role, count * copies.get(gang, 1))
        for (gang, shape, role), count in sorted(counts.items())
    )
