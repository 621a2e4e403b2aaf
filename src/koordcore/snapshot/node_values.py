"""Values of single nodes that a snapshot keeps, and which records they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from koordcore.model.nodes import NodeState

if TYPE_CHECKING:
    from koordcore._line import RecordPair
    from koordcore.snapshot.cluster import ClusterSnapshot


T = TypeVar("T")


class NodeValue(Generic[T]):
    """What makes a value of one node, and the types of records that it reads beside the node and its pods.

    Of these it reads only those that name the node: by their own name, or as the node in their status.
    """

    def __init__(self, build: Callable[[ClusterSnapshot, NodeState], T], reads: frozenset[type]) -> None:
        self._build = build
        self.reads = reads
        update_wrapper(self, build)

    def __call__(self, snapshot: ClusterSnapshot, state: NodeState) -> T:
        """Make the value of one node."""
        return self._build(snapshot, state)


def per_node(
    *reads: type,
) -> Callable[[Callable[[ClusterSnapshot, NodeState], T]], NodeValue[T]]:
    """Declare what records a value of a node is made of, so that a change of others leaves it alone.

    Parameters
    ----------
    reads
        Types of records; see :class:`NodeValue`. A function without this may read all records.
    """

    def declare(build: Callable[[ClusterSnapshot, NodeState], T]) -> NodeValue[T]:
        return NodeValue(build, frozenset(reads))

    return declare


def concerned(build: Callable[..., Any], records: Sequence[RecordPair]) -> set[str] | None:
    """Give the names of the nodes whose values change with some records; ``None`` for all nodes."""
    if not records:
        return set()
    if not isinstance(build, NodeValue):
        return None
    ones = (one for pair in records for one in pair if one is not None and type(one) in build.reads)
    return {getattr(getattr(one, "status", None), "node_name", "") or one.name for one in ones}
