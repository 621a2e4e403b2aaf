"""Looking at a part of the nodes only, as upstream's scheduler does to save time.

Rules of ``numFeasibleNodesToFind`` and of the rotating start in ``findNodesThatPassFilters`` (Kubernetes
1.35). A library call has no need for it; it is there for comparisons with a scheduler that samples.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from koordcore._arrays import BoolVector

FEWEST: Final = 100
"""Clusters of fewer nodes, and the first so many feasible ones, are always looked at."""
LOWEST_SHARE: Final = 5


def nodes_to_find(number: int, percentage: int) -> int:
    """Give how many feasible nodes are enough.

    Parameters
    ----------
    number
        Nodes of the cluster.
    percentage
        1..100; 0 for a share that falls from 50 % with the number of nodes, to 5 % at the least.

    Examples
    --------
    >>> [nodes_to_find(number, 0) for number in (99, 100, 5000, 6000)], nodes_to_find(5000, 100)
    ([99, 100, 500, 300], 5000)
    """
    if number < FEWEST:
        return number
    share = percentage or max(LOWEST_SHARE, 50 - number // 125)
    return number if share >= 100 else max(FEWEST, number * share // 100)


class NodeSample:
    """Where the search starts and how far it goes; the next one starts where the last one stopped.

    Nodes are searched in the order of their names, from the first one on in each call.
    """

    def __init__(self, number: int, percentage: int) -> None:
        self._number, self._percentage = number, percentage
        self._wanted = nodes_to_find(number, percentage)
        self._start = 0
        self.whole = self._wanted >= number
        """All nodes are looked at, always."""

    def narrow(self, feasible: BoolVector) -> BoolVector:
        """Keep the feasible nodes that the search finds before it has enough, and move the start."""
        if self.whole:
            return feasible
        order = np.roll(np.arange(self._number), -self._start)
        found = np.flatnonzero(feasible[order])
        if len(found) < self._wanted:
            return feasible  # all nodes were looked at, so the start is where it was
        kept = np.zeros_like(feasible)
        kept[order[found[: self._wanted]]] = True
        self._start = (self._start + int(found[self._wanted - 1]) + 1) % self._number
        return kept
