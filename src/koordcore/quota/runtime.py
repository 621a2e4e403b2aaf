"""The runtime quota of a whole tree in one top-down pass over arrays, exact to the unit.

Products of a weight and an amount leave 64 bits. The quotient is therefore guessed in double precision and
put right by its remainder, which is small enough to be exact in wrapping 64-bit arithmetic; where even
that bound fails, the weights of the group are reduced by their common divisor, and what still fails is
divided by Python's integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.quota.tree import DETACHED, TOP, QuotaTree

IntVector: TypeAlias = NDArray[np.int64]
IntMatrix: TypeAlias = NDArray[np.int64]
BoolVector: TypeAlias = NDArray[np.bool_]
BoolMatrix: TypeAlias = NDArray[np.bool_]

LARGEST: Final = 2**62
"""Amounts and their sums below this are safe in arrays; larger ones are for Python's integers."""

VECTOR_WORTHWHILE: Final = 48
"""Siblings from which arrays beat plain loops."""


# --- one batch of sibling groups --------------------------------------------------------------------------


def deal(
    totals: IntVector,
    starts: IntVector,
    *,
    floors: IntVector,
    needs: IntVector,
    weights: IntVector,
    lends: BoolVector,
) -> IntVector:
    """Share out in many groups at once, each as :func:`~.distribution.share_out` does.

    Parameters
    ----------
    totals, starts
        By group: what there is, and where it starts; its members stand in the order of their names, up to
        the next start. Shape (groups,).
    floors, needs, weights, lends
        By member: what each has in any case, asks for, counts for, and whether what it does not need goes to
        others. Shape (members,); sums over a group stay below :data:`LARGEST`. No weight is negative: shares
        may then be larger than what there is, and leave 64 bits.

    Returns
    -------
    IntVector
        What each gets, shape (members,).
    """
    size = floors.size
    borrows = needs > floors
    runtime = np.where(borrows | ~lends, floors, needs)
    left = totals - np.add.reduceat(runtime, starts)
    lacking = np.where(borrows, needs - floors, 0)
    if (left >= np.add.reduceat(lacking, starts)).all() and (weights[borrows] > 0).all():
        # Rounds go on while something is left for those who lack something: all get what they ask for.
        return runtime + lacking
    group = np.repeat(np.arange(starts.size), np.diff(starts, append=size))
    active = np.flatnonzero(borrows & (left > 0)[group])
    while active.size:
        group_now = group[active]
        first = np.flatnonzero(np.diff(group_now, prepend=-1))
        local = np.repeat(np.arange(first.size), np.diff(first, append=active.size))
        here = group_now[first]
        amount = left[here]
        weight = weights[active]
        granted = _granted(weight, amount, first, local)
        reached = runtime[active] + granted
        surplus = reached - needs[active]
        done = surplus >= 0
        runtime[active] = np.where(done, needs[active], reached)
        again = np.add.reduceat(np.where(done, surplus, 0), first)
        # A group whose weights are used up grants nothing; what it had left stays undistributed.
        left[here] = again
        active = active[~done & (again > 0)[local]]
    return runtime


def _granted(weight: IntVector, amount: IntVector, first: IntVector, local: IntVector) -> IntVector:
    """Deal ``amount`` of each group out by largest remainder; ties go to the earlier member."""
    positive = np.maximum.reduceat(weight, first) > 0
    quotient, remainder = _divided(weight, amount, first, local, positive)
    remainder[weight <= 0] = -1
    residue = amount - np.add.reduceat(quotient, first)
    wanted = (residue > 0) & positive
    if not wanted.any():
        return quotient
    stride = int(remainder.max()) + 2
    if stride < LARGEST // (first.size + 1):
        order = np.argsort(local * stride + (stride - 2 - remainder), kind="stable")
    else:
        order = np.lexsort((-remainder, local))
    position = np.arange(order.size) - first[local]
    extra = np.zeros(order.size, dtype=np.int64)
    extra[order] = (position < residue[local]) & wanted[local]
    return quotient + extra


def _divided(
    weight: IntVector, amount: IntVector, first: IntVector, local: IntVector, positive: BoolVector
) -> tuple[IntVector, IntVector]:
    """Divide ``weight * amount`` by the group's sum of weights, exactly; 0 where that is zero."""
    rough_sum = np.add.reduceat(weight.astype(np.float64), first)
    limit = float(LARGEST)
    error = amount.astype(np.float64) * 2.0**-49 + 4.0
    safe = rough_sum * error < limit
    if not safe.all():
        divisor = np.gcd.reduceat(weight, first)
        weight = weight // np.maximum(divisor, 1)[local]
        rough_sum = np.add.reduceat(weight.astype(np.float64), first)
        safe = rough_sum * error < limit
    usable = safe & positive
    spread = np.where(usable, np.add.reduceat(weight, first), 1)[local]
    mine = np.where(usable[local], weight, 0)
    dealt = amount[local]
    quotient = (mine.astype(np.float64) * dealt / spread).astype(np.int64)
    remainder = mine * dealt - quotient * spread
    off = remainder // spread
    quotient += off
    remainder -= off * spread
    for index in np.flatnonzero(~safe):
        end = first[index + 1] if index + 1 < first.size else local.size
        span = slice(int(first[index]), int(end))
        _divide_exactly(weight[span], int(amount[index]), quotient[span], remainder[span])
    return quotient, remainder


def _divide_exactly(weight: IntVector, amount: int, quotient: IntVector, remainder: IntVector) -> None:
    """Fill in one group by Python's integers; remainders become ranks, which keep their order."""
    weights = [int(each) for each in weight]
    spread = sum(weights)
    parts = [divmod(each * amount, spread) if each > 0 else (0, -1) for each in weights]
    ranks = {value: rank for rank, value in enumerate(sorted({part[1] for part in parts}))}
    quotient[:] = [part[0] for part in parts]
    remainder[:] = [ranks[part[1]] for part in parts]


# --- a whole tree -----------------------------------------------------------------------------------------


@record(eq=False, kw_only=True)
class _Level:
    """Rows of one depth, and the sibling groups in them."""

    rows: slice
    starts: IntVector
    parents: IntVector
    handled: BoolMatrix
    """Shape (R, groups): resources that the parent of the group hands out."""
    present: BoolMatrix | None
    """Shape (R, groups): resources that the parent itself was given; ``None`` at the top, where the pool
    says it."""


@record(eq=False, kw_only=True)
class TreeArrays:
    """A compiled tree as columns, for the quotas whose chain of parents reaches the root.

    Parameters
    ----------
    tree
        Where it comes from; rows and columns are the same.
    rows
        Row in the tree of each row here.
    min, weight
        Shape (R, Q).
    lends
        Shape (Q,).
    """

    tree: QuotaTree
    rows: IntVector
    min: IntMatrix
    weight: IntMatrix
    lends: BoolVector
    levels: tuple[_Level, ...]


def arrays_of(tree: QuotaTree) -> TreeArrays | None:
    """Lay a tree out in arrays; ``None`` where an amount is too large for them, or a weight negative."""
    kept = [row for row in range(len(tree.quotas)) if tree.attached(row)] if tree.groups[DETACHED] else None
    rows = list(range(len(tree.quotas))) if kept is None else kept
    mins, weights = [tree.min[row] for row in rows], [tree.weight[row] for row in rows]
    width = len(tree.resources)
    promised = [sum(abs(vector[k]) for vector in mins) for k in range(width)]
    lightest = min(map(min, weights), default=0) if width else 0
    heaviest = max(map(max, weights), default=0) if width else 0
    lowest = min(min(tree.max[row]) for row in rows) if width and rows else 0
    if lightest < 0 or heaviest >= LARGEST or lowest <= -LARGEST:
        return None
    if max(promised, default=0) >= LARGEST // 2:
        return None
    return TreeArrays(
        tree=tree,
        rows=np.array(rows, dtype=np.int64),
        min=_columns(mins, width),
        weight=_columns(weights, width),
        lends=np.array([tree.lends[row] for row in rows], dtype=np.bool_),
        levels=tuple(_levels(tree, rows)),
    )


def _columns(vectors: Sequence[Sequence[int]], width: int) -> IntMatrix:
    matrix = np.array(vectors, dtype=np.int64).reshape(len(vectors), width).T
    return np.ascontiguousarray(matrix)


def _levels(tree: QuotaTree, rows: Sequence[int]) -> Iterable[_Level]:
    here_of = {row: here for here, row in enumerate(rows)}
    at = 0
    groups = [TOP] if rows else []
    while groups:
        starts: list[int] = []
        end = at
        for group in groups:
            starts.append(end - at)
            end += len(tree.groups[group])
        top = groups[0] == TOP
        above = [tree.group_of[tree.parent_of_group[group]] for group in groups] if not top else []
        yield _Level(
            rows=slice(at, end),
            starts=np.array(starts, dtype=np.int64),
            parents=np.array(
                [] if top else [here_of[tree.parent_of_group[group]] for group in groups], dtype=np.int64
            ),
            handled=np.array([tree.handled[group] for group in groups], dtype=np.bool_).T,
            present=None if top else np.array([tree.handled[group] for group in above], dtype=np.bool_).T,
        )
        members = [row for group in groups for row in tree.groups[group]]
        groups = [tree.group_below[row] for row in members if tree.group_below[row] >= 0]
        at = end


def runtimes_of(
    arrays: TreeArrays,
    limits: IntMatrix,
    pool: IntVector,
    present: BoolVector,
    *,
    scale: bool = True,
    guaranteed: IntMatrix | None = None,
) -> tuple[IntMatrix, IntMatrix]:
    """Compute all scaled mins and runtimes of a tree, level by level.

    Parameters
    ----------
    limits
        Shape (R, Q): what each quota asks of its parent.
    pool, present
        Shape (R,): what the tree has, and which resources it has a total for.
    scale
        Whether mins are scaled (``enableMinQuotaScale``).
    guaranteed
        Shape (R, Q): floors that are never taken back, under the usage guarantee.

    Returns
    -------
    scaled, runtime
        Shape (R, Q) each. The runtime is zero in resources that the parent does not hand out.
    """
    runtime = np.zeros_like(limits)
    scaled_min = arrays.min.copy()
    for level in arrays.levels:
        rows, width, groups = level.rows, limits.shape[0], level.starts.size
        if not width:
            break
        if level.present is None:
            share, given = pool.reshape(width, 1), present.reshape(width, 1)
        else:
            share, given = runtime[:, level.parents], level.present
        size = rows.stop - rows.start
        group = np.repeat(np.arange(groups), np.diff(level.starts, append=size))
        promised = arrays.min[:, rows]
        scaled = _scaled(promised, share, given, level.starts, group) if scale else promised
        scaled_min[:, rows] = scaled
        floors = scaled if guaranteed is None else np.maximum(scaled, guaranteed[:, rows])
        needs = limits[:, rows]
        if not level.handled.all():
            handed = level.handled[:, group]
            share = np.where(level.handled, share, 0)
            floors, needs = np.where(handed, floors, 0), np.where(handed, needs, 0)
        offsets = (np.arange(width, dtype=np.int64)[:, None] * size + level.starts).ravel()
        runtime[:, rows] = deal(
            share.ravel(),
            offsets,
            floors=floors.ravel(),
            needs=needs.ravel(),
            weights=arrays.weight[:, rows].ravel(),
            lends=np.tile(arrays.lends[rows], width),
        ).reshape(width, size)
    return scaled_min, runtime


def _scaled(
    promised: IntMatrix, share: IntMatrix, given: BoolMatrix, starts: IntVector, group: IntVector
) -> IntMatrix:
    promised_sum = np.add.reduceat(promised, starts, axis=1)
    short = given & (share < promised_sum)
    if not short.any():
        return promised
    nothing = short & ((share <= 0) | (promised_sum <= 0))
    whole = np.where(short & ~nothing, promised_sum, 1)[:, group].astype(np.float64)
    part = np.where(short & ~nothing, share, 0)[:, group].astype(np.float64)
    # Upstream's order of operations in double precision: product first, then quotient, then truncation.
    shrunk = (part * promised.astype(np.float64) / whole).astype(np.int64)
    return np.where(short[:, group], shrunk, promised)
