"""Sharing one resource among siblings: everybody's base first, then what is left by weight, to the unit.

The rule is upstream's ``runtime_quota_calculator.go``: a child that asks for more than its floor starts
from the floor and borrows; what is left is dealt out by the largest remainder in proportion to weight; who
got enough hands the surplus back, and the next round deals that out. Integers only, of any size.
"""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._record import record


@record(kw_only=True)
class Round:
    """One round of dealing out, for explanation.

    Parameters
    ----------
    left
        What was there to deal out.
    weight_sum
        Sum of the weights of those who still borrowed.
    granted
        Index of a child to what the round gave it, before surplus went back.
    extra
        Children that got one unit of the rounding residue, largest remainder first.
    returned
        Index of a child that now has all it asked for to the surplus that it handed back.
    """

    left: int
    weight_sum: int
    granted: tuple[tuple[int, int], ...]
    extra: tuple[int, ...]
    returned: tuple[tuple[int, int], ...]


def share_out(
    total: int,
    floors: Sequence[int],
    needs: Sequence[int],
    weights: Sequence[int],
    lends: Sequence[bool],
    *,
    trace: list[Round] | None = None,
) -> list[int]:
    """Divide one resource among siblings that are given in the order of their names.

    Parameters
    ----------
    total
        Amount to share; may be negative.
    floors
        What each may have without competing: its scaled min, or its guarantee where that is larger.
    needs
        What each asks for, clipped by its max.
    weights
        Weights of the competition. Zero or less gets nothing of it.
    lends
        Whether a child that asks for less than its floor leaves the rest to others.
    trace
        Receives every round, for explanation.

    Returns
    -------
    list of int
        The runtime of each child. The sum exceeds ``total`` only if the floors alone do.

    Examples
    --------
    >>> share_out(100, [10, 15, 20, 15], [5, 20, 40, 70], [40, 60, 50, 80], [True] * 4)
    [5, 20, 35, 40]
    """
    runtime: list[int] = []
    borrowers: list[int] = []
    for index, (floor, need, lent) in enumerate(zip(floors, needs, lends, strict=True)):
        if need > floor:
            runtime.append(floor)
            borrowers.append(index)
        else:
            runtime.append(need if lent else floor)
    left = total - sum(runtime)
    while left > 0 and borrowers:
        weight_sum = sum(weights[index] for index in borrowers)
        if weight_sum <= 0:
            break
        parts = {
            index: divmod(weights[index] * left, weight_sum) for index in borrowers if weights[index] > 0
        }
        granted = {index: part[0] for index, part in parts.items()}
        residue = left - sum(granted.values())
        extra: tuple[int, ...] = ()
        if residue > 0:
            extra = tuple(sorted(parts, key=lambda index: (-parts[index][1], index))[:residue])
            for index in extra:
                granted[index] += 1
        returned: list[tuple[int, int]] = []
        still: list[int] = []
        for index in borrowers:
            runtime[index] += granted.get(index, 0)
            if runtime[index] >= needs[index]:
                returned.append((index, runtime[index] - needs[index]))
                runtime[index] = needs[index]
            else:
                still.append(index)
        if trace is not None:
            trace.append(
                Round(
                    left=left,
                    weight_sum=weight_sum,
                    granted=tuple(granted.items()),
                    extra=extra,
                    returned=tuple(returned),
                )
            )
        borrowers = still
        left = sum(surplus for _, surplus in returned)
    return runtime


def scale_min(available: int, promised: Sequence[int]) -> list[int]:
    """Shrink the mins of siblings in proportion, if together they exceed what there is.

    Upstream computes in double precision, product first, and truncates; so does this. The results may
    therefore leave a few units for the competition.

    Examples
    --------
    >>> scale_min(60000, [50000, 40000]), scale_min(90000, [50000, 40000]), scale_min(0, [5])
    ([33333, 26666], [50000, 40000], [0])
    """
    promised_sum = sum(promised)
    if available >= promised_sum:
        return list(promised)
    if available <= 0:
        return [0] * len(promised)
    share, whole = float(available), float(promised_sum)
    return [int(share * float(amount) / whole) for amount in promised]
