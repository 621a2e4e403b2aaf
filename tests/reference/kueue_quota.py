"""Kueue's quota by its documented rules, for one resource of one flavor: what a queue may still use."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import attrs


@attrs.define(eq=False)
class Node:
    """A queue, or a cohort with its children; ``None`` is a limit that is not set."""

    name: str
    nominal: int
    borrowing: int | None = None
    lending: int | None = None
    parent: Node | None = None
    children: list[Node] = attrs.Factory(list)
    own_use: int = 0

    def subtree(self) -> int:
        """What it has, and what those below lend it."""
        return self.nominal + sum(one.subtree() - one.guaranteed() for one in self.children)

    def guaranteed(self) -> int:
        """What nobody outside may use."""
        if self.lending is None or self.parent is None:
            return 0
        return max(0, self.subtree() - self.lending)

    def use(self) -> int:
        """What counts against what it has."""
        return self.own_use + sum(max(0, one.use() - one.guaranteed()) for one in self.children)

    def available(self) -> int:
        """What may still be used here."""
        if self.parent is None:
            return self.subtree() - self.use()
        above = self.parent.available()
        if self.borrowing is not None:
            stored = self.subtree() - self.guaranteed()
            above = min(above, stored - max(0, self.use() - self.guaranteed()) + self.borrowing)
        return max(0, self.guaranteed() - self.use()) + above

    def reach(self) -> int:
        """What could be used here if nobody used anything."""
        if self.parent is None:
            return self.subtree()
        there = self.guaranteed() + self.parent.reach()
        return there if self.borrowing is None else min(there, self.subtree() + self.borrowing)

    def share(self) -> Fraction:
        """What it uses beyond its own, of what there is where it borrows."""
        beyond = max(0, self.use() - self.subtree())
        there = 0 if self.parent is None else self.parent.reach()
        return Fraction(beyond, there) if there > 0 else Fraction(0)


def join(nodes: Iterable[Node]) -> None:
    """Tell parents of their children."""
    for one in nodes:
        if one.parent is not None:
            one.parent.children.append(one)
