"""Sums up a tree and shares down it, as an immutable value that changes along one path at a time.

Requests, used amounts and guarantees are rolled up from the leaves; runtimes come down lazily, one sibling
group at a time, and are kept for as long as neither the group nor what it shares has changed. A pod that
comes or goes costs work in proportion to the depth of the tree and to the families on its path, not to the
number of quotas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import attrs

from koordcore._record import record
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.quota.runtime import TreeArrays, arrays_of
from koordcore.quota.sharing import Dealt, Need, Pool, Shares, Siblings
from koordcore.quota.tree import DETACHED, TOP, QuotaTree, Vector, with_amounts

_CHUNK: Final = 64


@record
class Sums:
    """What the pods of one quota itself add up to, one vector each."""

    request: Vector
    used: Vector
    non_preemptible_request: Vector
    non_preemptible_used: Vector

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        """Add, or take away with ``sign=-1``; nothing falls below zero."""
        return Sums(
            _clamped(self.request, other.request, sign),
            _clamped(self.used, other.used, sign),
            _clamped(self.non_preemptible_request, other.non_preemptible_request, sign),
            _clamped(self.non_preemptible_used, other.non_preemptible_used, sign),
        )


def _clamped(left: Vector, right: Vector, sign: int) -> Vector:
    if not any(right):
        return left
    return tuple([max(0, a + sign * b) for a, b in zip(left, right, strict=True)])


@record
class Tally:
    """State of one quota that comes from below.

    ``child`` is what its own pods and its children ask for; ``request`` raises that to ``min`` where it
    does not lend; ``limit`` clips it by ``max`` and is what the parent sees. ``guaranteed`` is the larger of
    ``min`` and what must not be taken back, kept only under the usage guarantee.
    """

    own: Sums
    child: Vector
    request: Vector
    limit: Vector
    used: Vector
    non_preemptible_request: Vector
    non_preemptible_used: Vector
    allocated: Vector
    guaranteed: Vector


T = TypeVar("T")


@record(eq=False)
class _Families(Generic[T]):
    """One value for each sibling group, in two levels of tuples; replacing one copies two short ones."""

    chunks: tuple[tuple[T, ...], ...]

    @classmethod
    def of(cls, families: Sequence[T]) -> _Families[T]:
        return cls(tuple(tuple(families[at : at + _CHUNK]) for at in range(0, len(families), _CHUNK)))

    def __getitem__(self, group: int) -> T:
        return self.chunks[group // _CHUNK][group % _CHUNK]

    def replace(self, changed: Mapping[int, T]) -> _Families[T]:
        if not changed:
            return self
        chunks = list(self.chunks)
        for group, family in changed.items():
            high, low = divmod(group, _CHUNK)
            chunk = chunks[high]
            chunks[high] = (*chunk[:low], family, *chunk[low + 1 :])
        return _Families(tuple(chunks))


@attrs.define(eq=False)
class _Memo:
    """Results that all states derived from one another share.

    An entry names what it was computed from, so one that was made for another state is recomputed, never
    believed.
    """

    dealt: dict[int, Dealt] = attrs.Factory(dict)
    arrays: tuple[TreeArrays | None] | None = None
    siblings: dict[int, Siblings] = attrs.Factory(dict)


@record(eq=False)
class TreeState:
    """One tree with its sums and its pool.

    ``needs`` repeats of the tallies what sharing depends on, so that a pod that is merely placed leaves
    it, and with it every runtime, as it is.
    """

    tree: QuotaTree
    policy: QuotaPolicy
    families: _Families[tuple[Tally, ...]]
    needs: _Families[tuple[Need, ...]]
    pool: Pool
    memo: _Memo

    def tally(self, row: int) -> Tally:
        """Sums of one quota."""
        return self.families[self.tree.group_of[row]][self.tree.place_of[row]]

    def arrays(self) -> TreeArrays | None:
        """Columns of the tree, laid out once; ``None`` where an amount is too large for them."""
        if self.memo.arrays is None:
            self.memo.arrays = (arrays_of(self.tree),)
        return self.memo.arrays[0]

    def shares(self, group: int) -> Shares | None:
        """Divide among one sibling group; ``None`` where the chain of parents does not reach the root."""
        tree = self.tree
        if group == DETACHED:
            return None
        pool = self.pool
        if group != TOP:
            parent = tree.parent_of_group[group]
            above = self.shares(tree.group_of[parent])
            if above is None:
                return None
            pool = Pool(above.runtime_at(tree.place_of[parent]), tree.handled[tree.group_of[parent]])
        siblings = self.memo.siblings.get(group)
        if siblings is None:
            siblings = self.memo.siblings[group] = Siblings(tree, group)
        known = self.memo.dealt.get(group)
        dealt = self.memo.dealt[group] = siblings.deal(self.needs[group], pool, self.policy, known)
        return dealt.shares

    def runtime(self, row: int) -> Vector | None:
        """Runtime of one quota, zero in resources that its parent does not hand out."""
        shares = self.shares(self.tree.group_of[row])
        return None if shares is None else shares.runtime_at(self.tree.place_of[row])

    def scaled_min(self, row: int) -> Vector:
        """Its min after scaling; the min itself where there is no runtime."""
        shares = self.shares(self.tree.group_of[row])
        return self.tree.min[row] if shares is None else shares.scaled_at(self.tree.place_of[row])

    def with_pool(self, pool: Pool) -> TreeState:
        """Share another amount."""
        return self if pool == self.pool else attrs.evolve(self, pool=pool)

    def with_sums(self, row: int, own: Sums) -> TreeState:
        """Replace what the pods of one quota add up to, and roll the difference up."""
        old = self.tally(row)
        new = _moved(self.tree, row, self.policy, own, old, new=_upward(own), old=_upward(old.own))
        return self._with(row, old, new)

    def with_amounts(self, row: int, quota: ElasticQuota) -> TreeState:
        """Replace a quota by one that names the same resources, where usage is not guaranteed."""
        tree = with_amounts(self.tree, row, quota)
        old = self.tally(row)
        parts = (old.child, old.used, old.non_preemptible_request, old.non_preemptible_used, old.used)
        new = _derived(tree, row, self.policy, old.own, parts)
        # What was worked out of the other tree is nothing to go by.
        return attrs.evolve(self, tree=tree, memo=_Memo())._with(row, old, new)  # noqa: SLF001  # its own kind

    def _with(self, row: int, old: Tally, new: Tally) -> TreeState:
        """Replace the sums of one quota, and roll the difference up."""
        tree, policy = self.tree, self.policy
        families, needs = dict[int, tuple[Tally, ...]](), dict[int, tuple[Need, ...]]()
        while True:
            group, place = tree.group_of[row], tree.place_of[row]
            family = self.families[group]
            families[group] = (*family[:place], new, *family[place + 1 :])
            need = _need(new, policy)
            together = self.needs[group]
            if need != together[place]:
                needs[group] = (*together[:place], need, *together[place + 1 :])
            row = tree.parent[row]
            if row < 0:
                return TreeState(
                    tree,
                    policy,
                    self.families.replace(families),
                    self.needs.replace(needs),
                    self.pool,
                    self.memo,
                )
            above = self.tally(row)
            old, new = (
                above,
                _moved(tree, row, policy, above.own, above, new=_contribution(new), old=_contribution(old)),
            )


def _need(tally: Tally, policy: QuotaPolicy) -> Need:
    return (tally.limit, tally.guaranteed if policy.guarantee_usage else ())


_Parts: TypeAlias = tuple[Vector, Vector, Vector, Vector, Vector]


def _upward(own: Sums) -> _Parts:
    """What its own pods put into a quota: request, used, the same of non-preemptible ones, allocated."""
    return (own.request, own.used, own.non_preemptible_request, own.non_preemptible_used, own.used)


def _contribution(tally: Tally) -> _Parts:
    """What a quota puts into its parent."""
    return (
        tally.limit,
        tally.used,
        tally.non_preemptible_request,
        tally.non_preemptible_used,
        tally.guaranteed,
    )


def _moved(
    tree: QuotaTree, row: int, policy: QuotaPolicy, own: Sums, base: Tally, *, new: _Parts, old: _Parts
) -> Tally:
    """Move a tally by the difference of two contributions."""
    used = _shifted(base.used, new[1], old[1])
    held = _shifted(base.non_preemptible_used, new[3], old[3])
    if new[0] == old[0] and new[2] == old[2] and not policy.guarantee_usage:
        # Nothing was asked for more or less: a pod was placed or removed.
        return Tally(
            own,
            base.child,
            base.request,
            base.limit,
            used,
            base.non_preemptible_request,
            held,
            used,
            used,
        )
    return _derived(
        tree,
        row,
        policy,
        own,
        (
            _shifted(base.child, new[0], old[0]),
            used,
            _shifted(base.non_preemptible_request, new[2], old[2]),
            held,
            _shifted(base.allocated, new[4], old[4]),
        ),
    )


def _shifted(base: Vector, new: Vector, old: Vector) -> Vector:
    if new == old:
        return base
    return tuple([a + b - c for a, b, c in zip(base, new, old, strict=True)])


def _derived(tree: QuotaTree, row: int, policy: QuotaPolicy, own: Sums, parts: _Parts) -> Tally:
    child, used, asked, held, allocated = parts
    request = child if tree.lends[row] else tuple(map(max, child, tree.min[row]))
    limit = tuple(
        [
            ceiling if counts and wanted > ceiling else wanted
            for wanted, ceiling, counts in zip(request, tree.max[row], tree.counted[row], strict=True)
        ]
    )
    guaranteed = allocated = allocated if policy.guarantee_usage else used
    if policy.guarantee_usage:
        known = tree.handled[TOP]
        allocated = tuple([amount if here else 0 for amount, here in zip(allocated, known, strict=True)])
        guaranteed = tuple(map(max, allocated, tree.min[row]))
    return Tally(own, child, request, limit, used, asked, held, allocated, guaranteed)


def own_sums(tree: QuotaTree) -> Sums:
    """Sums of a quota without pods."""
    nothing = (0,) * len(tree.resources)
    return Sums(nothing, nothing, nothing, nothing)


def roll_up(tree: QuotaTree, policy: QuotaPolicy, own: Mapping[int, Sums], pool: Pool) -> TreeState:
    """Compute the sums of a whole tree from what the pods of each row add up to.

    Parameters
    ----------
    tree, policy
        The quotas in rows, and how they are counted.
    own
        By row: what its own pods add up to; rows without pods are left out.
    pool
        What the tree has.
    """
    width, empty = range(len(tree.resources)), own_sums(tree)
    below: dict[int, list[list[int]]] = {}
    done: dict[int, Tally] = {}
    for row in range(len(tree.quotas) - 1, -1, -1):
        sums = own.get(row, empty)
        parts = _upward(sums)
        gathered = below.pop(row, None)
        if gathered is not None:
            one, two, three, four, five = (
                tuple([mine[k] + theirs[k] for k in width])
                for mine, theirs in zip(parts, gathered, strict=True)
            )
            parts = (one, two, three, four, five)
        tally = _derived(tree, row, policy, sums, parts)
        done[row] = tally
        parent = tree.parent[row]
        if parent >= 0:
            if parent not in below:
                below[parent] = [list(vector) for vector in _contribution(tally)]
                continue
            for total, vector in zip(below[parent], _contribution(tally), strict=True):
                for k in width:
                    total[k] += vector[k]
    families = [tuple([done[row] for row in group]) for group in tree.groups]
    needs = [tuple([_need(tally, policy) for tally in family]) for family in families]
    return TreeState(tree, policy, _Families.of(families), _Families.of(needs), pool, _Memo())
