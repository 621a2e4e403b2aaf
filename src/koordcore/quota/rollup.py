"""Sums up a tree and shares down it, as an immutable value that changes along one path at a time.

Requests, used amounts and guarantees are rolled up from the leaves; runtimes come down lazily, one sibling
group at a time, and are kept for as long as neither the group nor what it shares has changed. A pod that
comes or goes costs work in proportion to the depth of the tree and to the families on its path, not to the
number of quotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore.model.quotas import QuotaPolicy
from koordcore.quota.distribution import scale_min, share_out
from koordcore.quota.runtime import VECTOR_WORTHWHILE, share_out_columns
from koordcore.quota.tree import DETACHED, TOP, QuotaTree, Vector

__all__ = ["Pool", "Shares", "Sums", "Tally", "TreeState", "own_sums", "roll_up"]

_CHUNK: Final = 64


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
class Pool:
    """What a tree has to share.

    Parameters
    ----------
    amounts
        By resource; may be negative.
    present
        Which resources the tree has a total for, even one of zero. The min of a resource that nobody
        offers is not scaled.
    """

    amounts: Vector
    present: tuple[bool, ...]


@attrs.frozen(eq=False)
class Shares:
    """What one sibling group got, by place: the scaled mins and the runtimes."""

    scaled: tuple[Vector, ...]
    runtime: tuple[Vector, ...]


_Family: TypeAlias = tuple[Tally, ...]


@attrs.frozen(eq=False)
class _Families:
    """Sibling groups in two levels of tuples, so that replacing one copies two short ones."""

    chunks: tuple[tuple[_Family, ...], ...]

    @classmethod
    def of(cls, families: Sequence[_Family]) -> _Families:
        return cls(tuple(tuple(families[at : at + _CHUNK]) for at in range(0, len(families), _CHUNK)))

    def __getitem__(self, group: int) -> _Family:
        return self.chunks[group // _CHUNK][group % _CHUNK]

    def replace(self, changed: Mapping[int, _Family]) -> _Families:
        chunks = list(self.chunks)
        for group, family in changed.items():
            high, low = divmod(group, _CHUNK)
            chunk = chunks[high]
            chunks[high] = (*chunk[:low], family, *chunk[low + 1 :])
        return _Families(tuple(chunks))


@attrs.frozen(eq=False)
class TreeState:
    """One tree with its sums and its pool.

    The memo belongs to all states derived from one another. Its entries name what they were computed from,
    so an entry made for another state is recomputed, never believed.
    """

    tree: QuotaTree
    policy: QuotaPolicy
    families: _Families
    pool: Pool
    _memo: dict[int, tuple[_Family, Vector, tuple[bool, ...], Shares]]

    def tally(self, row: int) -> Tally:
        """Sums of one quota."""
        return self.families[self.tree.group_of[row]][self.tree.place_of[row]]

    def shares(self, group: int) -> Shares | None:
        """Divide among one sibling group; ``None`` where the chain of parents does not reach the root."""
        tree = self.tree
        if group == DETACHED:
            return None
        if group == TOP:
            amounts, present = self.pool.amounts, self.pool.present
        else:
            parent = tree.parent_of_group[group]
            above = self.shares(tree.group_of[parent])
            if above is None:
                return None
            amounts = above.runtime[tree.place_of[parent]]
            present = tree.handled[tree.group_of[parent]]
        family = self.families[group]
        kept = self._memo.get(group)
        if kept is not None and kept[0] is family and kept[1] == amounts and kept[2] == present:
            return kept[3]
        shares = divide(tree, group, family, Pool(amounts, present), self.policy)
        self._memo[group] = (family, amounts, present, shares)
        return shares

    def runtime(self, row: int) -> Vector | None:
        """Runtime of one quota, zero in resources that its parent does not hand out."""
        shares = self.shares(self.tree.group_of[row])
        return None if shares is None else shares.runtime[self.tree.place_of[row]]

    def scaled_min(self, row: int) -> Vector:
        """Its min after scaling; the min itself where there is no runtime."""
        shares = self.shares(self.tree.group_of[row])
        return self.tree.min[row] if shares is None else shares.scaled[self.tree.place_of[row]]

    def with_pool(self, pool: Pool) -> TreeState:
        """Share another amount."""
        return self if pool == self.pool else attrs.evolve(self, pool=pool)

    def with_sums(self, row: int, own: Sums) -> TreeState:
        """Replace what the pods of one quota add up to, and roll the difference up."""
        tree, changed = self.tree, dict[int, _Family]()
        old = self.tally(row)
        new = _derived(
            tree,
            row,
            self.policy,
            own,
            child=_shifted(old.child, own.request, old.own.request),
            used=_shifted(old.used, own.used, old.own.used),
            non_preemptible_request=_shifted(
                old.non_preemptible_request, own.non_preemptible_request, old.own.non_preemptible_request
            ),
            non_preemptible_used=_shifted(
                old.non_preemptible_used, own.non_preemptible_used, old.own.non_preemptible_used
            ),
            allocated=_shifted(old.allocated, own.used, old.own.used),
        )
        while True:
            group, place = tree.group_of[row], tree.place_of[row]
            family = self.families[group]
            changed[group] = (*family[:place], new, *family[place + 1 :])
            row = tree.parent[row]
            if row < 0:
                return attrs.evolve(self, families=self.families.replace(changed))
            above = self.tally(row)
            old, new = (
                above,
                _derived(
                    tree,
                    row,
                    self.policy,
                    above.own,
                    child=_shifted(above.child, new.limit, old.limit),
                    used=_shifted(above.used, new.used, old.used),
                    non_preemptible_request=_shifted(
                        above.non_preemptible_request,
                        new.non_preemptible_request,
                        old.non_preemptible_request,
                    ),
                    non_preemptible_used=_shifted(
                        above.non_preemptible_used, new.non_preemptible_used, old.non_preemptible_used
                    ),
                    allocated=_shifted(above.allocated, new.guaranteed, old.guaranteed),
                ),
            )


def _shifted(base: Vector, new: Vector, old: Vector) -> Vector:
    if new == old:
        return base
    return tuple([a + b - c for a, b, c in zip(base, new, old, strict=True)])


def _derived(
    tree: QuotaTree,
    row: int,
    policy: QuotaPolicy,
    own: Sums,
    *,
    child: Vector,
    used: Vector,
    non_preemptible_request: Vector,
    non_preemptible_used: Vector,
    allocated: Vector,
) -> Tally:
    request = child if tree.lends[row] else tuple(map(max, child, tree.min[row]))
    limit = tuple(
        [
            ceiling if counts and asked > ceiling else asked
            for asked, ceiling, counts in zip(request, tree.max[row], tree.counted[row], strict=True)
        ]
    )
    guaranteed = allocated
    if policy.guarantee_usage:
        known = tree.handled[TOP]
        allocated = tuple([amount if here else 0 for amount, here in zip(allocated, known, strict=True)])
        guaranteed = tuple(map(max, allocated, tree.min[row]))
    return Tally(
        own,
        child,
        request,
        limit,
        used,
        non_preemptible_request,
        non_preemptible_used,
        allocated,
        guaranteed,
    )


def own_sums(tree: QuotaTree) -> Sums:
    """Sums of a quota without pods."""
    nothing = (0,) * len(tree.resources)
    return Sums(nothing, nothing, nothing, nothing)


def roll_up(tree: QuotaTree, policy: QuotaPolicy, own: Mapping[int, Sums], pool: Pool) -> TreeState:
    """Compute the sums of a whole tree from what the pods of each row add up to."""
    width, empty = range(len(tree.resources)), own_sums(tree)
    below: dict[int, list[list[int]]] = {}
    done: dict[int, Tally] = {}
    for row in range(len(tree.quotas) - 1, -1, -1):
        sums = own.get(row, empty)
        parts: Iterable[Vector] = (
            sums.request,
            sums.used,
            sums.non_preemptible_request,
            sums.non_preemptible_used,
            sums.used,
        )
        if row in below:
            parts = [
                tuple([mine[k] + theirs[k] for k in width])
                for mine, theirs in zip(parts, below.pop(row), strict=True)
            ]
        child, used, asked, held, allocated = parts
        tally = _derived(
            tree,
            row,
            policy,
            sums,
            child=child,
            used=used,
            non_preemptible_request=asked,
            non_preemptible_used=held,
            allocated=allocated,
        )
        done[row] = tally
        parent = tree.parent[row]
        if parent >= 0:
            upward = (
                tally.limit,
                tally.used,
                tally.non_preemptible_request,
                tally.non_preemptible_used,
                tally.guaranteed,
            )
            gathered = below.get(parent)
            if gathered is None:
                below[parent] = [list(vector) for vector in upward]
            else:
                for total, vector in zip(gathered, upward, strict=True):
                    for k in width:
                        total[k] += vector[k]
    families = [tuple([done[row] for row in group]) for group in tree.groups]
    return TreeState(tree, policy, _Families.of(families), pool, {})


def divide(tree: QuotaTree, group: int, family: _Family, pool: Pool, policy: QuotaPolicy) -> Shares:
    """Scale the mins of one sibling group and share out what its parent has, resource by resource."""
    members = tree.groups[group]
    guarantee = policy.guarantee_usage
    lends = [tree.lends[row] for row in members]
    scaled_columns: list[Sequence[int]] = []
    runtime_columns: list[Sequence[int]] = []
    shared: list[int] = []
    floors_of: list[list[int]] = []
    needs_of: list[list[int]] = []
    weights_of: list[list[int]] = []
    for k in range(len(tree.resources)):
        promised = [tree.min[row][k] for row in members]
        scaled = promised
        if policy.enable_min_quota_scale and pool.present[k]:
            scaled = scale_min(pool.amounts[k], promised)
        scaled_columns.append(scaled)
        if tree.handled[group][k]:
            shared.append(k)
            floors_of.append(
                [max(low, tally.guaranteed[k]) for low, tally in zip(scaled, family, strict=True)]
                if guarantee
                else scaled
            )
            needs_of.append([tally.limit[k] for tally in family])
            weights_of.append([tree.weight[row][k] for row in members])
    amounts = [pool.amounts[k] for k in shared]
    if len(members) >= VECTOR_WORTHWHILE:
        shared_out = share_out_columns(amounts, floors_of, needs_of, weights_of, lends)
    else:
        shared_out = [
            share_out(amount, floors, needs, weights, lends)
            for amount, floors, needs, weights in zip(amounts, floors_of, needs_of, weights_of, strict=True)
        ]
    nothing = [0] * len(members)
    by_column = dict(zip(shared, shared_out, strict=True))
    runtime_columns = [by_column.get(k, nothing) for k in range(len(tree.resources))]
    return Shares(_by_place(scaled_columns, len(members)), _by_place(runtime_columns, len(members)))


def _by_place(columns: Sequence[Sequence[int]], size: int) -> tuple[Vector, ...]:
    return tuple(zip(*columns, strict=True)) if columns else ((),) * size
