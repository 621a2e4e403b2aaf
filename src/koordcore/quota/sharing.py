"""Shares of one sibling group: what the tree says of it, what its members ask for, what each of them gets.

A group large enough is kept in arrays, so that what one member asks for moves one column of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import Final, TypeAlias

import numpy as np

from koordcore._record import record
from koordcore.model.quotas import QuotaPolicy
from koordcore.quota.distribution import scale_min, share_out
from koordcore.quota.runtime import LARGEST, VECTOR_WORTHWHILE, BoolVector, IntMatrix, IntVector, deal
from koordcore.quota.tree import QuotaTree, Vector

Need: TypeAlias = tuple[Vector, Vector]
"""What one quota brings to its siblings' sharing: its limit, and its guarantee where usage is guaranteed."""
Columns: TypeAlias = "Sequence[Sequence[int] | IntVector]"
"""By resource: an amount for each sibling, by place."""

_SAFE: Final = float(LARGEST // 4)
"""Sums below it, rounded as they may be, are safe in arrays."""


@record
class Pool:
    """What a tree, or the parent of a group, has to share.

    Parameters
    ----------
    amounts
        By resource; may be negative.
    present
        Which resources there is a total for, even one of zero. The min of a resource that nobody offers is
        not scaled.
    """

    amounts: Vector
    present: tuple[bool, ...]


@record(eq=False)
class Shares:
    """What one sibling group got, by resource and place: the scaled mins and the runtimes."""

    scaled: Columns
    runtime: Columns

    def scaled_at(self, place: int) -> Vector:
        """Scaled min of one sibling, by resource."""
        return tuple([int(column[place]) for column in self.scaled])

    def runtime_at(self, place: int) -> Vector:
        """Runtime of one sibling, by resource; zero in those that the parent does not hand out."""
        return tuple([int(column[place]) for column in self.runtime])


@record(eq=False)
class _Asked:
    """What the members of a group ask for, in arrays of the shape (handed out resources, siblings)."""

    needs: Sequence[Need]
    limits: IntMatrix
    guaranteed: IntMatrix | None


@record(eq=False)
class Dealt:
    """What a group got, and of what this follows."""

    needs: Sequence[Need]
    pool: Pool
    shares: Shares
    asked: _Asked | None


class Siblings:
    """What a tree says of one sibling group; the pods do not change it.

    Parameters
    ----------
    tree, group
        The tree, and the number of the group in it.
    """

    def __init__(self, tree: QuotaTree, group: int) -> None:
        members, width = tree.groups[group], range(len(tree.resources))
        self._lends = [tree.lends[row] for row in members]
        self._least = [[tree.min[row][k] for row in members] for k in width]
        self._weight = [[tree.weight[row][k] for row in members] for k in width]
        self._promised = list(map(sum, self._least))
        self._shared = [k for k in width if tree.handled[group][k]]
        self._arrays = self._laid_out() if len(members) >= VECTOR_WORTHWHILE and self._shared else None

    def _laid_out(self) -> tuple[IntMatrix, IntVector, BoolVector] | None:
        """Lay mins, weights and who lends out in arrays; ``None`` where they cannot hold them."""
        try:
            least = np.array([self._least[k] for k in self._shared], np.int64)
            weight = np.array([self._weight[k] for k in self._shared], np.int64)
        except OverflowError:
            return None
        if not (_small(least) and _small(weight)) or (weight < 0).any():
            return None
        return least, weight.ravel(), np.tile(np.array(self._lends, np.bool_), len(self._shared))

    def deal(
        self, needs: Sequence[Need], pool: Pool, policy: QuotaPolicy, known: Dealt | None = None
    ) -> Dealt:
        """Scale the mins of the group and share out what its parent has, resource by resource.

        Parameters
        ----------
        needs
            What each of them asks for, in their order.
        pool
            What the parent has.
        policy
            How quotas are counted.
        known
            What the group got before, for other needs or of another pool.
        """
        if known is not None and known.needs is needs and known.pool == pool:
            return known
        scaled: list[Sequence[int]] = [
            scale_min(pool.amounts[k], least) if self._short(k, pool, policy) else least
            for k, least in enumerate(self._least)
        ]
        asked = None if self._arrays is None else self._asked(needs, policy, known)
        runtime = None if asked is None else self._by_arrays(asked, scaled, pool, policy)
        dealt: Columns = self._one_by_one(needs, scaled, pool, policy) if runtime is None else runtime
        nothing = [0] * len(self._lends)
        by_column: list[Sequence[int] | IntVector] = [nothing] * len(self._least)
        for k, column in zip(self._shared, dealt, strict=True):
            by_column[k] = column
        return Dealt(needs, pool, Shares(scaled, by_column), asked)

    def _short(self, column: int, pool: Pool, policy: QuotaPolicy) -> bool:
        """Tell whether the mins of a resource have to shrink."""
        scales = policy.enable_min_quota_scale and pool.present[column]
        return scales and pool.amounts[column] < self._promised[column]

    def _asked(self, needs: Sequence[Need], policy: QuotaPolicy, known: Dealt | None) -> _Asked | None:
        """Lay out what the members ask for, from what they asked for before; ``None`` for too much."""
        before = None if known is None else known.asked
        shape, width = (len(self._shared), len(needs)), len(self._least)
        if before is None:
            limits = np.zeros(shape, np.int64)
            guaranteed = np.zeros(shape, np.int64) if policy.guarantee_usage else None
            places = np.arange(len(needs))
        else:
            moved = np.fromiter(map(is_not, before.needs, needs), np.bool_, len(needs))
            places = np.flatnonzero(moved)
            limits = before.limits.copy()
            guaranteed = None if before.guaranteed is None else before.guaranteed.copy()
        changed = [needs[place] for place in places.tolist()]
        try:
            each = np.array([limit for limit, _ in changed], np.int64).reshape(len(changed), width)
            limits[:, places] = each.T[self._shared]
            if guaranteed is not None:
                each = np.array([least for _, least in changed], np.int64).reshape(len(changed), width)
                guaranteed[:, places] = each.T[self._shared]
        except OverflowError:
            return None
        safe = _small(limits) and (guaranteed is None or _small(guaranteed))
        return _Asked(needs, limits, guaranteed) if safe else None

    def _by_arrays(
        self, asked: _Asked, scaled: Sequence[Sequence[int]], pool: Pool, policy: QuotaPolicy
    ) -> list[IntVector] | None:
        """Share the resources out together; ``None`` where an amount is too large for arrays."""
        assert self._arrays is not None, "asked of groups in arrays only"
        least, weight, lends = self._arrays
        amounts = [pool.amounts[k] for k in self._shared]
        if max(map(abs, amounts)) >= _SAFE:
            return None
        if any(self._short(k, pool, policy) for k in self._shared):
            least = np.array([scaled[k] for k in self._shared], np.int64)
        floors = least if asked.guaranteed is None else np.maximum(least, asked.guaranteed)
        size = len(self._lends)
        runtime = deal(
            np.array(amounts, np.int64),
            np.arange(len(amounts), dtype=np.int64) * size,
            floors=floors.ravel(),
            needs=asked.limits.ravel(),
            weights=weight,
            lends=lends,
        )
        return list(runtime.reshape(len(amounts), size))

    def _one_by_one(
        self, needs: Sequence[Need], scaled: Sequence[Sequence[int]], pool: Pool, policy: QuotaPolicy
    ) -> list[list[int]]:
        """Share out one resource after the other, in integers of any size."""
        found = []
        for k in self._shared:
            floors = scaled[k]
            if policy.guarantee_usage:
                floors = [max(floor, least[k]) for floor, (_, least) in zip(floors, needs, strict=True)]
            limits = [limit[k] for limit, _ in needs]
            found.append(share_out(pool.amounts[k], floors, limits, self._weight[k], self._lends))
        return found


def _small(amounts: IntMatrix) -> bool:
    """Tell whether the sums of amounts over the siblings are safe in arrays."""
    return not amounts.size or float(np.abs(amounts.astype(np.float64)).sum(axis=-1).max()) < _SAFE
