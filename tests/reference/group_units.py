"""Groups of groups by trying everything: every member on every node or nowhere."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs

Home = tuple[int, ...]
"""Domain of every node, -1 where nobody may go; empty for anywhere."""


@attrs.frozen(kw_only=True)
class Leaf:
    """Pods that start together: the sizes of those that wait, and how many run already in which domain."""

    sizes: tuple[int, ...]
    least: int
    home: Home = ()
    fixed: int = -1
    started: bool = False


@attrs.frozen(kw_only=True)
class Composite:
    """A group of groups: enough of its parts succeed."""

    parts: tuple[Leaf | Composite, ...]
    least: int
    home: Home = ()
    fixed: int = -1


Group = Leaf | Composite


def leaves(group: Group) -> list[Leaf]:
    """List the leaves in order."""
    if isinstance(group, Leaf):
        return [group]
    return [leaf for part in group.parts for leaf in leaves(part)]


def best(root: Group, room: Sequence[int]) -> tuple[int, int] | None:
    """Give the most leaves that start and then the most members; ``None`` where nobody may."""
    waiting = [(number, size) for number, leaf in enumerate(leaves(root)) for size in leaf.sizes]
    found: list[tuple[int, int]] = []
    for places in itertools.product((None, *range(len(room))), repeat=len(waiting)):
        used = [0] * len(room)
        for (_, size), place in zip(waiting, places, strict=True):
            if place is not None:
                used[place] += size
        if any(amount > limit for amount, limit in zip(used, room, strict=True)):
            continue
        where: dict[int, list[int]] = {}
        for (number, _), place in zip(waiting, places, strict=True):
            if place is not None:
                where.setdefault(number, []).append(place)
        if where and legal(root, where):
            started = sum(not leaf.started for number, leaf in enumerate(leaves(root)) if number in where)
            found.append((started, sum(map(len, where.values()))))
    return max(found, default=None)


def legal(root: Group, where: Mapping[int, Sequence[int]]) -> bool:
    """Tell whether members may lie like this: nodes by number of the leaf."""
    numbers = {id(leaf): number for number, leaf in enumerate(leaves(root))}

    def below(group: Group) -> list[int]:
        return [place for leaf in leaves(group) for place in where.get(numbers[id(leaf)], ())]

    def walk(group: Group) -> tuple[bool, bool]:
        """Whether the group succeeds, and whether all is well below it."""
        here = below(group)
        if group.home and here:
            domains = {group.home[place] for place in here}
            if len(domains) > 1 or -1 in domains or (group.fixed >= 0 and domains != {group.fixed}):
                return False, False
        if isinstance(group, Leaf):
            placed = len(where.get(numbers[id(group)], ()))
            success = group.started or placed >= group.least
            return success, success or not placed
        results = [walk(part) for part in group.parts]
        success = sum(one for one, _ in results) >= group.least
        well = all(fine for _, fine in results)
        return success, well and (success or not here)

    success, well = walk(root)
    return success and well
