"""What is only in the one and only in the other of two snapshots: the checker looks for itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import NamedTuple, TypeVar

from koordcore._vector import Vector
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord

T = TypeVar("T")


def difference(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """Give what is only in the one and only in the other of two sequences; what counts is the object."""
    if before is after:
        return [], []
    if isinstance(before, Vector) and isinstance(after, Vector):
        gone, come = before.beside(after)
    elif isinstance(before, Vector) or isinstance(after, Vector):
        return difference(tuple(before), tuple(after))
    elif len(before) == len(after):
        rows = list(compress(range(len(before)), map(is_not, before, after)))
        gone, come = [before[row] for row in rows], [after[row] for row in rows]
    else:
        short = min(len(before), len(after))
        first = next(compress(range(short), map(is_not, before, after)), short)
        ends = map(is_not, reversed(before), reversed(after))
        last = next(compress(range(short - first), ends), short - first)
        gone = list(before[first : len(before) - last])
        come = list(after[first : len(after) - last])
    same = {id(one) for one in gone} & {id(one) for one in come}
    if same:
        gone = [one for one in gone if id(one) not in same]
        come = [one for one in come if id(one) not in same]
    return gone, come


class Differences(NamedTuple):
    """What is only in the one and only in the other of two snapshots."""

    nodes: tuple[list[NodeState], list[NodeState]]
    pending: tuple[list[Pod], list[Pod]]
    records: tuple[list[ClusterRecord], list[ClusterRecord]]
