"""Groups of groups by trying everything: every member on every node or nowhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

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
    return best_where(root, len(room), lambda node, sizes: sum(sizes) <= room[node])


def best_where(
    root: Group, nodes: int, fits: Callable[[int, tuple[int, ...]], bool]
) -> tuple[int, int] | None:
    """Do the same where a node says which sizes it takes together."""
    waiting = [(number, size) for number, leaf in enumerate(leaves(root)) for size in leaf.sizes]
    found: list[tuple[int, int]] = []
    for places in itertools.product((None, *range(nodes)), repeat=len(waiting)):
        there: list[list[int]] = [[] for _ in range(nodes)]
        for (_, size), place in zip(waiting, places, strict=True):
            if place is not None:
                there[place].append(size)
        if not all(fits(node, tuple(sizes)) for node, sizes in enumerate(there)):
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


Options = dict[tuple[tuple[int, ...], bool], tuple[int, int]]
"""What a group can come to: room used per node, and whether it succeeds; leaves that start, and members."""


def options(group: Group, nodes: int) -> Options:
    """List all that :func:`best` may choose from, part by part: the same, sooner where it is asked often."""
    found = _of_leaf(group, nodes) if isinstance(group, Leaf) else _of_parts(group, nodes)
    if not group.home:
        return found
    kept: Options = {}
    for (used, success), value in found.items():
        domains = {group.home[node] for node, amount in enumerate(used) if amount}
        if len(domains) <= 1 and -1 not in domains and (group.fixed < 0 or domains <= {group.fixed}):
            kept[used, success] = value
    return kept


def best_of(known: Options, room: Sequence[int]) -> tuple[int, int] | None:
    """Give the most leaves that start and then the most members on nodes with so much room."""
    return max(
        (
            value
            for (used, success), value in known.items()
            if success and value[1] and all(map(int.__le__, used, room))
        ),
        default=None,
    )


def _of_leaf(leaf: Leaf, nodes: int) -> Options:
    found: Options = {}
    for places in itertools.product((None, *range(nodes)), repeat=len(leaf.sizes)):
        used = [0] * nodes
        for size, place in zip(leaf.sizes, places, strict=True):
            if place is not None:
                used[place] += size
        placed = len(places) - places.count(None)
        success = leaf.started or placed >= leaf.least
        if success or not placed:
            _note(found, tuple(used), success, (int(success and placed > 0 and not leaf.started), placed))
    return found


def _of_parts(group: Composite, nodes: int) -> Options:
    # How many parts succeed is part of the key until all of them are known.
    sums: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {((0,) * nodes, 0): (0, 0)}
    for part in group.parts:
        more: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}
        for (used, count), value in sums.items():
            for (own, success), worth in options(part, nodes).items():
                both = tuple(map(int.__add__, used, own)), count + success
                sum_ = (value[0] + worth[0], value[1] + worth[1])
                more[both] = max(sum_, more.get(both, (0, 0)))
        sums = more
    found: Options = {}
    for (used, count), value in sums.items():
        success = count >= group.least
        if success or not value[1]:
            _note(found, used, success, value)
    return found


def _note(found: Options, used: tuple[int, ...], success: bool, value: tuple[int, int]) -> None:
    found[used, success] = max(value, found.get((used, success), (0, 0)))
