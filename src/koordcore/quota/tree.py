"""The shape of a quota tree: who is whose child, which resources are shared where, in dense rows.

Everything here is static. Rows are ordered by depth, then by parent, then by name, so that siblings lie
together and every parent comes before its children. Amounts are plain integers of any size.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.quotas import BUILTIN_QUOTAS, ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import NO_RESOURCES, Resources

TOP: Final = 0
"""Group of the quotas right below the root."""
DETACHED: Final = 1
"""Group of the quotas whose parent does not exist; they have no runtime."""

T = TypeVar("T")
Vector: TypeAlias = tuple[int, ...]
"""One amount for each resource of the tree."""


@record(eq=False, kw_only=True)
class QuotaTree:
    """One tree, compiled.

    Parameters
    ----------
    tree_id
        Empty for the default tree.
    quotas
        The quotas by row.
    row_of
        Name to row.
    resources, column_of
        Names of the resources, sorted, and back.
    parent
        Row of the parent; -1 below the root, -2 where the parent does not exist.
    group_of, place_of
        Sibling group of each row, and its place in it; places follow the names.
    groups
        Rows of each group. Group :data:`TOP` is below the root, :data:`DETACHED` holds what hangs nowhere,
        the rest belong to one parent each.
    parent_of_group
        Row of the parent of each group; -1 for the first two.
    group_below
        Group of the children of each row; -1 where there are none.
    handled
        For each group, which resources its parent hands out: those in the parent's ``max``, and below the
        root those in anybody's.
    counted
        For each row, which resources are in its ``max``.
    binding
        For each row, in which resources its runtime limits it: those counted that its parent hands out.
    max, min, weight
        Amounts by row; 0 where absent.
    promised
        For each row, which resources are in its ``min``.
    lends
        Whether a row leaves what it is promised and does not need; nobody does while usage is guaranteed.
    """

    tree_id: str
    quotas: tuple[ElasticQuota, ...]
    row_of: Mapping[str, int]
    resources: tuple[str, ...]
    column_of: Mapping[str, int]
    parent: tuple[int, ...]
    group_of: tuple[int, ...]
    place_of: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    parent_of_group: tuple[int, ...]
    group_below: tuple[int, ...]
    handled: tuple[tuple[bool, ...], ...]
    counted: tuple[tuple[bool, ...], ...]
    binding: tuple[tuple[bool, ...], ...]
    max: tuple[Vector, ...]
    min: tuple[Vector, ...]
    weight: tuple[Vector, ...]
    promised: tuple[tuple[bool, ...], ...]
    lends: tuple[bool, ...]

    def vector(self, row: int, amounts: Mapping[str, int]) -> Vector:
        """Lay amounts out by resource; what is not in the row's ``max`` does not count."""
        values = [0] * len(self.resources)
        limit, column_of = self.quotas[row].max, self.column_of
        for name, amount in amounts.items():
            if name in limit:
                values[column_of[name]] = amount
        return tuple(values)

    def named(self, vector: Vector) -> Resources:
        """Name the amounts of a vector; its zeros are left out."""
        if not any(vector):
            return NO_RESOURCES
        pairs = zip(self.resources, vector, strict=True)
        return immutabledict({name: amount for name, amount in pairs if amount})

    def path(self, row: int) -> tuple[int, ...]:
        """Rows from a quota up to the first level."""
        rows = [row]
        while self.parent[rows[-1]] >= 0:
            rows.append(self.parent[rows[-1]])
        return tuple(rows)

    def attached(self, row: int) -> bool:
        """Tell whether the chain of parents reaches the root."""
        return self.parent[self.path(row)[-1]] == -1


def split_trees(
    quotas: Mapping[str, ElasticQuota], policy: QuotaPolicy
) -> dict[str, tuple[ElasticQuota, ...]]:
    """Sort quotas into trees by id; the built-in ones are in none, and deleted ones are not taken in.

    The default tree is always there. Without ``multi_quota_tree`` it holds everything.
    """
    trees: dict[str, list[ElasticQuota]] = {"": []}
    for quota in quotas.values():
        if quota.name not in BUILTIN_QUOTAS and not quota.deleting:
            trees.setdefault(quota.tree if policy.multi_quota_tree else "", []).append(quota)
    return {tree_id: tuple(trees[tree_id]) for tree_id in sorted(trees)}


def compile_tree(tree_id: str, quotas: Iterable[ElasticQuota], *, guarantee_usage: bool = False) -> QuotaTree:
    """Lay the quotas of one tree out in rows.

    Parameters
    ----------
    tree_id
        Name of the tree; empty for the default one.
    quotas
        All quotas of the tree, in any order.
    guarantee_usage
        What is used is guaranteed as well.

    Raises
    ------
    ModelError
        When parents form a cycle; the message names it (ruling 19).
    """
    known = {quota.name: quota for quota in quotas}
    order, parents = _ordered(known)
    row_of = {quota.name: row for row, quota in enumerate(order)}
    groups: list[list[int]] = [[], []]
    parent_of_group = [-1, -1]
    group_below = [-1] * len(order)
    group_of: list[int] = []
    for row, parent in enumerate(parents):
        if parent >= 0 and group_below[parent] < 0:
            group_below[parent] = len(groups)
            groups.append([])
            parent_of_group.append(parent)
        group = group_below[parent] if parent >= 0 else TOP if parent == -1 else DETACHED
        group_of.append(group)
        groups[group].append(row)
    place_of = [0] * len(order)
    for members in groups:
        for place, row in enumerate(members):
            place_of[row] = place
    resources = tuple(sorted({name for quota in order for name in (*quota.max, *quota.min)}))
    # Plain dicts, never changed: they are read for every pod.
    column_of = {name: column for column, name in enumerate(resources)}
    counted = [tuple([name in quota.max for name in resources]) for quota in order]
    everywhere = {name for quota in order for name in quota.max}
    top = tuple(name in everywhere for name in resources)
    handled = tuple(top if parent < 0 else counted[parent] for parent in parent_of_group)
    binding = tuple(
        tuple(map(operator.and_, counts, handled[group]))
        for counts, group in zip(counted, group_of, strict=True)
    )
    return QuotaTree(
        tree_id=tree_id,
        quotas=tuple(order),
        row_of=row_of,
        resources=resources,
        column_of=column_of,
        parent=tuple(parents),
        group_of=tuple(group_of),
        place_of=tuple(place_of),
        groups=tuple(map(tuple, groups)),
        parent_of_group=tuple(parent_of_group),
        group_below=tuple(group_below),
        handled=handled,
        counted=tuple(counted),
        binding=binding,
        max=tuple(_row(quota.max, column_of) for quota in order),
        min=tuple(_row(quota.min, column_of) for quota in order),
        weight=tuple(_row(quota.weight, column_of) for quota in order),
        promised=tuple(tuple([name in quota.min for name in resources]) for quota in order),
        lends=tuple(quota.allow_lent and not guarantee_usage for quota in order),
    )


def with_amounts(tree: QuotaTree, row: int, quota: ElasticQuota) -> QuotaTree:
    """Give a tree with one quota replaced by one at the same place that names the same resources."""

    def put(rows: tuple[T, ...], value: T) -> tuple[T, ...]:
        return (*rows[:row], value, *rows[row + 1 :])

    return attrs.evolve(
        tree,
        quotas=put(tree.quotas, quota),
        max=put(tree.max, _row(quota.max, tree.column_of)),
        min=put(tree.min, _row(quota.min, tree.column_of)),
        weight=put(tree.weight, _row(quota.weight, tree.column_of)),
    )


def _row(amounts: Mapping[str, int], column_of: Mapping[str, int]) -> Vector:
    values = [0] * len(column_of)
    for name, amount in amounts.items():
        if name in column_of:
            values[column_of[name]] = amount
    return tuple(values)


def _ordered(known: Mapping[str, ElasticQuota]) -> tuple[list[ElasticQuota], list[int]]:
    """Order by depth, parent and name; with each its parent's row, -1 below the root, -2 below nothing."""
    children: dict[str, list[str]] = {}
    tops: list[tuple[str, int]] = []
    for name in sorted(known):
        parent = known[name].parent or ROOT_QUOTA
        if parent in known:
            children.setdefault(parent, []).append(name)
        else:
            tops.append((name, -1 if parent == ROOT_QUOTA else -2))
    tops.sort(key=lambda top: -top[1])
    order, parents = [known[name] for name, _ in tops], [parent for _, parent in tops]
    row = 0
    while row < len(order):
        for name in children.get(order[row].name, ()):
            order.append(known[name])
            parents.append(row)
        row += 1
    if len(order) < len(known):
        raise ModelError(_describe_cycle(known, {quota.name for quota in order}))
    return order, parents


def _describe_cycle(known: Mapping[str, ElasticQuota], placed: set[str]) -> str:
    name = min(known.keys() - placed)
    trail: list[str] = []
    while name not in trail:
        trail.append(name)
        name = known[name].parent
    cycle = trail[trail.index(name) :]
    first = cycle.index(min(cycle))
    cycle = cycle[first:] + cycle[:first]
    return f"the parents of elastic quotas form a cycle: {' -> '.join([*cycle, cycle[0]])}"
