"""How Kubernetes' own groups of one job hang together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import attrs

from koordcore._arrays import IntVector
from koordcore._record import record
from koordcore.allocators.gang.demand import Unit
from koordcore.allocators.gang.group_table import GroupTable


@record(kw_only=True)
class GroupTree:
    """One of Kubernetes' own groups within a job.

    Parameters
    ----------
    id, name
        Of the group; the leaves are the job's gangs.
    least
        Members, or children, that must succeed.
    key
        Label of which everybody below needs one value; empty for none.
    children
        Groups below, in their order; none for a leaf.
    leaf
        It has pods, not groups. A group of groups may have nobody below it; it never succeeds.
    """

    id: str
    name: str
    least: int
    key: str = ""
    children: tuple[GroupTree, ...] = ()
    leaf: bool = True

    @property
    def leaves(self) -> tuple[GroupTree, ...]:
        """The leaves below, in order; itself if it is one."""
        return (self,) if self.leaf else tuple(chain.from_iterable(one.leaves for one in self.children))

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels of itself and everybody below, each once; those without pods below bind nobody."""
        if not self.leaves:
            return ()
        below = chain.from_iterable(one.keys for one in self.children)
        return tuple(dict.fromkeys(key for key in (self.key, *below) if key))


def units_of(
    tree: GroupTree, home_of: Callable[[GroupTree], tuple[IntVector, int] | None] = lambda _: None
) -> tuple[tuple[Unit, ...], dict[str, int]]:
    """Write the groups of a tree as units, parents first.

    Parameters
    ----------
    tree
        With children.
    home_of
        Domain of every node by the label of a group, and that of its running members; ``None`` for anywhere.

    Returns
    -------
    units
        The groups of groups, without those that have no leaves below.
    above
        Position of the unit that each leaf is part of, by its id.
    """
    units: list[Unit] = []
    above: dict[str, int] = {}

    def add(group: GroupTree, parent: int) -> None:
        if group.leaf:
            above[group.id] = parent
        if group.leaf or not group.leaves:
            return
        number = len(units)
        unit = Unit(name=group.name, least=group.least, parent=parent)
        where = home_of(group)
        units.append(unit if where is None else attrs.evolve(unit, home=where[0], fixed=where[1]))
        for child in group.children:
            add(child, number)

    add(tree, -1)
    return tuple(units), above


def tree_of(groups: GroupTable, group: str) -> GroupTree:
    """Give the tree of groups below one of them."""
    node = groups.nodes[group]
    below = () if node.leaf else groups.children.get(group, ())
    children = tuple(tree_of(groups, child) for child in below)
    return GroupTree(
        id=group, name=node.name, least=node.least, key=node.key, children=children, leaf=node.leaf
    )
