"""How Kubernetes' own groups of one job hang together."""

from __future__ import annotations

from itertools import chain

from koordcore._record import record
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
    """

    id: str
    name: str
    least: int
    key: str = ""
    children: tuple[GroupTree, ...] = ()

    @property
    def leaves(self) -> tuple[GroupTree, ...]:
        """The leaves below, in order; itself if it is one."""
        return tuple(chain.from_iterable(one.leaves for one in self.children)) if self.children else (self,)

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels of itself and everybody below, each once."""
        below = chain.from_iterable(one.keys for one in self.children)
        return tuple(dict.fromkeys(key for key in (self.key, *below) if key))


def tree_of(groups: GroupTable, group: str) -> GroupTree:
    """Give the tree of groups below one of them."""
    node = groups.nodes[group]
    below = () if node.leaf else groups.children.get(group, ())
    children = tuple(tree_of(groups, child) for child in below)
    return GroupTree(id=group, name=node.name, least=node.least, key=node.key, children=children)
