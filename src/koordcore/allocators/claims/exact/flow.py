"""A cheapest flow of least cost through a small network: who gets how many of which class."""

from __future__ import annotations

from collections import deque


class Network:
    """A directed network with whole capacities and costs that are not negative.

    Parameters
    ----------
    nodes
        Number of nodes; node 0 is the source and node 1 the sink.
    """

    def __init__(self, nodes: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(nodes)]
        self._to: list[int] = []
        self._left: list[int] = []
        self._cost: list[int] = []

    def add(self, start: int, end: int, capacity: int, cost: int = 0) -> int:
        """Add an edge and return its number."""
        number = len(self._to)
        for source, target, left, price in ((start, end, capacity, cost), (end, start, 0, -cost)):
            self._edges[source].append(len(self._to))
            self._to.append(target)
            self._left.append(left)
            self._cost.append(price)
        return number

    def flow(self, edge: int) -> int:
        """How much runs through an edge."""
        return self._left[edge ^ 1]

    def fill(self, wanted: int) -> int:
        """Send up to ``wanted`` from source to sink at the least cost; returns what was sent."""
        sent = 0
        while sent < wanted:
            path = self._cheapest_path()
            if path is None:
                break
            amount = min(wanted - sent, *(self._left[edge] for edge in path))
            for edge in path:
                self._left[edge] -= amount
                self._left[edge ^ 1] += amount
            sent += amount
        return sent

    def _cheapest_path(self) -> list[int] | None:
        best: list[int | None] = [None] * len(self._edges)
        into: list[int] = [-1] * len(self._edges)
        best[0] = 0
        queue = deque((0,))
        waiting = {0}
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            here = best[node] or 0
            for edge in self._edges[node]:
                if not self._left[edge]:
                    continue
                target, cost = self._to[edge], here + self._cost[edge]
                known = best[target]
                if known is None or cost < known:
                    best[target] = cost
                    into[target] = edge
                    if target not in waiting:
                        waiting.add(target)
                        queue.append(target)
        if best[1] is None:
            return None
        path = []
        node = 1
        while node != 0:
            path.append(into[node])
            node = self._to[into[node] ^ 1]
        return path
