"""The domains that a node label makes: one per value; a node without the label is in none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree


@record(eq=False)
class KeyDomains:
    """Nodes by the value of one label.

    Parameters
    ----------
    key
        The label.
    names
        Its values, sorted; an empty value is one as well.
    home
        Position of every node's value among them by row, -1 without the label, shape (N,).
    nodes
        Name of every node by row.
    """

    key: str
    names: tuple[str, ...]
    home: IntVector
    nodes: tuple[str, ...]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of every node by name."""
        return {name: row for row, name in enumerate(self.nodes)}

    @cached_property
    def _trees(self) -> dict[int, NetworkTopology]:
        return {}

    def tree(self, number: int) -> NetworkTopology:
        """Give the nodes of a domain as a tree without layers, in the order of their rows."""
        if number not in self._trees:
            names = [self.nodes[row] for row in self.rows[number].tolist()]
            self._trees[number] = build_tree([LayerSpec(NODE_LAYER)], {name: {} for name in names})
        return self._trees[number]

    def sums(self, per_node: IntVector) -> IntVector:
        """Sum values of the nodes over every domain; from shape (N,) to shape (domains,)."""
        order, starts = self._sorted
        if not len(self.names):
            return np.zeros(0, dtype=np.int64)
        inside = per_node if self._in_order else per_node[order]
        total: IntVector = np.add.reduceat(inside, starts[:-1])
        return total

    @cached_property
    def _in_order(self) -> bool:
        """All nodes are in some domain, and neighbours by row."""
        return np.array_equal(self._sorted[0], np.arange(len(self.home)))

    def whole(self, name: str, allocatable: IntVector) -> tuple[IntVector, BoolVector]:
        """Sum what nodes offer of a resource over every domain, once: at least 1, and where it is more."""
        known = self._whole.get(name)
        if known is None:
            total = self.sums(allocatable)
            known = self._whole[name] = np.maximum(1, total), total > 0
        return known

    @cached_property
    def _whole(self) -> dict[str, tuple[IntVector, BoolVector]]:
        return {}

    @cached_property
    def rows(self) -> tuple[IntVector, ...]:
        """Rows of the nodes of each domain."""
        order, starts = self._sorted
        return tuple(order[start:end] for start, end in pairwise(starts.tolist()))

    @cached_property
    def _sorted(self) -> tuple[IntVector, IntVector]:
        """Rows of the nodes in some domain, by domain, and where each one's begin; none is empty."""
        order = np.argsort(self.home, kind="stable").astype(np.int64)
        order = order[self.home[order] >= 0]
        return order, np.searchsorted(self.home[order], np.arange(len(self.names) + 1)).astype(np.int64)

    def of_running(self, nodes: Iterable[str]) -> int | str:
        """Give the one domain of running members, -1 for none of them; or say why there is no such domain."""
        used: set[int] = set()
        for node in nodes:
            row = self.row_of.get(node)
            if row is None:
                return f"node {node} is gone"
            if self.home[row] < 0:
                return f"node {node} has no label {self.key}"
            used.add(int(self.home[row]))
        if len(used) > 1:
            names = ", ".join(self.names[number] for number in sorted(used))
            return f"they are in {len(used)} domains of {self.key}: {names}"
        return next(iter(used), -1)


def key_domains(snapshot: ClusterSnapshot, key: str) -> KeyDomains:
    """Sort the nodes by a label; ask for it by ``snapshot.once``."""
    values = [state.node.labels.get(key) for state in snapshot.nodes]
    names = tuple(sorted({value for value in values if value is not None}))
    number = {name: position for position, name in enumerate(names)}
    home = np.array([-1 if value is None else number[value] for value in values], dtype=np.int64)
    return KeyDomains(key, names, home, tuple(state.name for state in snapshot.nodes))
