"""Looking at a part of the nodes only, as upstream's scheduler does to save time.

Rules of ``numFeasibleNodesToFind`` and of the rotating start in ``findNodesThatPassFilters`` (Kubernetes
1.35). A library call has no need for it; it is there for comparisons with a scheduler that samples.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.pods import PodKey

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


class Search(NamedTuple):
    """Which nodes were looked at for one pod.

    Parameters
    ----------
    start
        Where the search began.
    number
        How many of the nodes that it was about it came to.
    first
        Row of a node that was tried before, -1 for none.
    """

    start: int
    number: int
    first: int = -1

    def rows(self, allowed: BoolVector) -> IntVector:
        """Give the rows of the nodes that are looked at at all, ``(N,)``, in the order of the search."""
        rows = np.flatnonzero(allowed)
        order: IntVector = np.roll(rows, -(self.start % max(1, len(rows))))
        return order

    def among(self, allowed: BoolVector) -> BoolVector:
        """Tell which nodes were looked at, of those that are at all: ``(N,)``."""
        seen = np.zeros_like(allowed)
        seen[self.rows(allowed)[: self.number]] = True
        if self.first >= 0:
            seen[self.first] = True
        return seen


class NodeSample:
    """Where the search of a call has come to; each one, of any profile, starts where the last one stopped.

    Nodes are searched in the order of their names, from the first one on in each call.

    Attributes
    ----------
    searches
        The last one for each pod.
    """

    def __init__(self, number: int) -> None:
        self._number, self._start = number, 0
        self.searches: dict[PodKey, Search] = {}

    def search(
        self, feasible: BoolVector, allowed: BoolVector, percentage: int, *, first: int = -1
    ) -> Search:
        """Look for feasible nodes until there are enough of them, from where the last search stopped.

        Parameters
        ----------
        feasible
            ``(N,)``: who can take the pod.
        allowed
            ``(N,)``: who is looked at at all. The fewer they are, the fewer are enough.
        percentage
            As for :func:`nodes_to_find`.
        first
            As for :class:`Search`.
        """
        search = Search(self._start, int(np.count_nonzero(allowed)), first)
        wanted = nodes_to_find(search.number, percentage)
        found = np.flatnonzero(feasible[search.rows(allowed)])
        # Where there are not enough, the search comes to all nodes.
        return search if len(found) < wanted else search._replace(number=int(found[wanted - 1]) + 1)

    def end(self, key: PodKey, search: Search, seen: BoolVector) -> None:
        """Take note of the search for a pod, in which some nodes were looked at: ``(N,)``."""
        self.searches[key] = search
        self._start = (self._start + int(np.count_nonzero(seen))) % self._number
