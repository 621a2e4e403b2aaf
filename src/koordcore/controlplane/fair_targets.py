"""Whom Kueue would evict under fair sharing: from who has the largest share, as long as that is fairer.

The reference's two rules, in its order: a Workload goes if whoever asks has no larger a share with what it
asks for than the other keeps without that Workload; then, one of each queue, if it has a smaller one than
the other had before. Of its own queue a Workload goes by priority alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from koordcore.controlplane.fair_shares import FairTree, Share
from koordcore.model.kueue import KueueWorkload
from koordcore.quota.kueue import QueueLedger

_Without: TypeAlias = Callable[[QueueLedger, KueueWorkload], QueueLedger]


class FairTargets:
    """One search.

    Parameters
    ----------
    tree
        Queues and cohorts.
    queue
        Who asks.
    ledger
        What is used, what is asked for included.
    able
        Who may go, in the order in which those of one queue would.
    without
        Takes out what a Workload holds.
    fits
        Tells whether a ledger without somebody has the room.
    entitled
        Who asks stays within its own: whoever is beyond its own gives, whatever the shares.
    """

    def __init__(
        self,
        tree: FairTree,
        queue: str,
        ledger: QueueLedger,
        able: Sequence[KueueWorkload],
        without: _Without,
        fits: Callable[[QueueLedger], bool],
        entitled: bool,
    ) -> None:
        self._tree, self._queue, self._ledger = tree, queue, ledger
        self._path = tree.path(queue)
        self._without, self._fits, self._entitled = without, fits, entitled
        self._able = list(able)
        self._waiting: dict[str, list[KueueWorkload]] = {}
        self._closed: set[str] = set()
        self.found: list[KueueWorkload] = []
        """Who goes, in order."""

    def run(self) -> bool:
        """Take off until there is room; tell whether there is."""
        left: list[KueueWorkload] = []
        return self._keeping_more(left) or self._having_more(left)

    def _keeping_more(self, left: list[KueueWorkload]) -> bool:
        self._begin(self._able)
        while (giver := self._next()) is not None:
            if giver == self._queue or self._entitled:
                if self._take(self._waiting[giver].pop(0)):
                    return True
                continue
            mine, theirs, above = self._apart(giver)
            asking = self._tree.share(self._ledger, mine, above).order
            while self._waiting[giver]:
                one = self._waiting[giver].pop(0)
                kept = self._tree.share(self._without(self._ledger, one), theirs, above).order
                if asking <= kept:
                    if self._take(one):
                        return True
                    break  # shares have changed, maybe somebody else has the largest one now
                left.append(one)
        return False

    def _having_more(self, left: Sequence[KueueWorkload]) -> bool:
        self._begin(left)
        while (giver := self._next()) is not None:
            one = self._waiting[giver].pop(0)
            mine, theirs, above = self._apart(giver)
            asking, had = (self._tree.share(self._ledger, node, above).order for node in (mine, theirs))
            if asking < had and self._take(one):
                return True
            self._closed.add(f"ClusterQueue {giver}")
        return False

    def _begin(self, able: Sequence[KueueWorkload]) -> None:
        self._waiting, self._closed = {}, set()
        for one in able:
            self._waiting.setdefault(one.admitted_by, []).append(one)

    def _take(self, one: KueueWorkload) -> bool:
        self._ledger = self._without(self._ledger, one)
        self.found.append(one)
        return self._fits(self._ledger)

    def _apart(self, giver: str) -> tuple[str, str, str]:
        """Give the nodes of who asks and who gives below the first cohort that both are in, and that."""
        theirs = self._tree.path(giver)
        above = next(node for node in self._path if node in theirs)
        return self._path[self._path.index(above) - 1], theirs[theirs.index(above) - 1], above

    def _next(self) -> str | None:
        """Name the queue that gives next; it has somebody who may go."""
        root = self._path[-1]
        if len(self._path) == 1:
            return self._queue if self._waiting.get(self._queue) else None
        while root not in self._closed:
            found = self._below(root)
            if found is not None:
                return found
        return None

    def _below(self, node: str) -> str | None:
        """Go down to the largest share; ``None`` where nodes were only closed on the way."""
        shares: dict[str, Share] = {}
        for child in self._tree.below.get(node, ()):
            if child in self._closed:
                continue
            share = self._tree.share(self._ledger, child, node)
            if self._over(child, share):
                self._closed.add(child)
            else:
                shares[child] = share
        if not shares:
            self._closed.add(node)
            return None
        # Cohorts stand before queues: of equal shares the cohort, and in it whoever has most.
        best = max(shares, key=lambda child: shares[child].order)
        kind, _, name = best.partition(" ")
        return name if kind == "ClusterQueue" else self._below(best)

    def _over(self, child: str, share: Share) -> bool:
        """Tell whether nobody below a node may go any more."""
        kind, _, name = child.partition(" ")
        if kind == "ClusterQueue" and not self._waiting.get(name):
            return True
        return not share.borrows and child not in self._path
