"""Kueue's fair sharing: who of a cohort uses least of what it can lend, by weight, and whose turn it is.

The share of a queue or cohort is what it uses beyond its own, divided by what its cohort could give it, of
the resource where that is most, and divided by its weight. Shares are exact fractions here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from koordcore._record import record
from koordcore.model.kueue import ClusterQueue, Cohort
from koordcore.model.resources import NO_RESOURCES
from koordcore.quota.kueue import QueueLedger
from koordcore.snapshot import ClusterSnapshot

_ONE: Final = 10**9


class Share(NamedTuple):
    """What somebody has beyond its own; the smaller one comes first, the larger one gives first.

    Parameters
    ----------
    unbounded
        Its weight is 0 and it borrows: more than any other share.
    value
        Borrowed of what can be lent, by weight; without the weight where that is 0.
    borrows
        It uses more than its own of something, if only of what nobody lends.
    """

    unbounded: bool
    value: Fraction
    borrows: bool

    @property
    def order(self) -> tuple[bool, Fraction]:
        """What shares are compared by."""
        return self.unbounded, self.value


class Head(NamedTuple):
    """The first Workload of a queue.

    Parameters
    ----------
    key
        ``namespace/name``.
    amounts
        What it would use, by flavor and resource.
    rank
        What it is settled by among equal shares; ends in its name.
    """

    key: str
    amounts: Mapping[str, int]
    rank: tuple[object, ...]


@record(kw_only=True, eq=False, slots=False)
class FairTree:
    """Queues and cohorts by who is below whom.

    Parameters
    ----------
    queues, cohorts
        By name, cohorts that queues merely name included.
    """

    queues: Mapping[str, ClusterQueue]
    cohorts: Mapping[str, Cohort]

    @property
    def stated(self) -> bool:
        """Anybody states what its share is to be."""
        queues, cohorts = self.queues.values(), self.cohorts.values()
        return any(one.weight is not None for one in queues) or any(one.weight is not None for one in cohorts)

    def path(self, queue: str) -> tuple[str, ...]:
        """List a queue and the cohorts above it, from the queue up, as nodes of the ledger."""
        found, cohort = [f"ClusterQueue {queue}"], self.queues[queue].cohort
        while cohort and (name := f"Cohort {cohort}") not in found:
            found.append(name)
            cohort = self.cohorts[cohort].parent if cohort in self.cohorts else ""
        return tuple(found)

    @cached_property
    def below(self) -> Mapping[str, tuple[str, ...]]:
        """Nodes below each cohort, by name; cohorts first."""
        found: dict[str, set[str]] = {}
        for name in self.queues:
            path = self.path(name)
            for node, above in pairwise(path):
                found.setdefault(above, set()).add(node)
        return {
            name: tuple(sorted(nodes, key=lambda node: (node.startswith("ClusterQueue"), node)))
            for name, nodes in found.items()
        }

    def share(self, ledger: QueueLedger, node: str, above: str) -> Share:
        """Work out the share of a node below a cohort."""
        borrowed, lendable = ledger.borrowed(node), ledger.lendable.get(above, NO_RESOURCES)
        parts = [
            Fraction(amount, lendable[name]) for name, amount in borrowed.items() if lendable.get(name, 0) > 0
        ]
        ratio, weight = max(parts, default=Fraction(0)), self._weight(node)
        if not weight:
            return Share(bool(borrowed), ratio, bool(borrowed))
        return Share(False, ratio * Fraction(_ONE, weight), bool(borrowed))

    def _weight(self, node: str) -> int:
        kind, _, name = node.partition(" ")
        one = self.queues[name] if kind == "ClusterQueue" else self.cohorts.get(name)
        return _ONE if one is None or one.weight is None else one.weight

    def first(self, ledger: QueueLedger, heads: Mapping[str, Head]) -> str:
        """Name the queue whose first Workload comes next.

        Within a cohort those first whose side stays within its own of what they ask for, then that of the
        smallest share, its own included, at every level of the tree; of equal shares, and of cohorts that
        share nothing, by rank.
        """
        roots: dict[str, list[str]] = {}
        for queue in heads:
            roots.setdefault(self.path(queue)[-1], []).append(queue)
        winners: list[str] = []
        for root, queues in roots.items():
            after = {
                queue: ledger.with_usage(heads[queue].key, queue, heads[queue].amounts) for queue in queues
            }
            winner = self._winner(root, after, heads)
            winners += [] if winner is None else [winner]
        return min(winners, key=lambda queue: heads[queue].rank)

    def _winner(self, node: str, after: Mapping[str, QueueLedger], heads: Mapping[str, Head]) -> str | None:
        """Give the queue that wins below a node; ``None`` where nobody there waits."""
        kind, _, name = node.partition(" ")
        if kind == "ClusterQueue":
            return name if name in after else None
        able = [
            (child, queue)
            for child in self.below.get(node, ())
            if (queue := self._winner(child, after, heads)) is not None
        ]
        if not able:
            return None

        def turn(one: tuple[str, str]) -> tuple[bool, tuple[bool, Fraction], tuple[object, ...]]:
            child, queue = one
            asked = [name for name, amount in heads[queue].amounts.items() if amount]
            beyond = after[queue].beyond(child, asked)
            return beyond, self.share(after[queue], child, node).order, heads[queue].rank

        return min(able, key=turn)[1]


def fair_tree(snapshot: ClusterSnapshot) -> FairTree:
    """Read who is below whom."""
    return FairTree(
        queues={one.name: one for one in snapshot.of(ClusterQueue)},
        cohorts={one.name: one for one in snapshot.of(Cohort)},
    )
