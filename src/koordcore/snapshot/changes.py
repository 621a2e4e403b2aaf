"""What can change in a cluster: what :meth:`~koordcore.ClusterSnapshot.apply` takes.

Each change says what is now; what was before, the snapshot knows. They are values, so a stream of them can be
kept, compared and sent about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import attrs

from koordcore._blame import shown
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord

RecordKey: TypeAlias = tuple[str, str, str, str]
"""Type, kind with its group, namespace and name: what no two records of a snapshot share."""


@lru_cache
def _kindless(made: type) -> bool:
    """Tell whether no record of a type says a kind; one with a dictionary of its own may."""
    return not (made.__dictoffset__ or hasattr(made, "kind") or hasattr(made, "api_version"))


def record_key(record: ClusterRecord) -> RecordKey:
    """Give what tells a record apart; workloads and raw objects of several kinds share a type.

    Raises
    ------
    ModelError
        When it is no record.
    """
    made = type(record)
    try:
        if _kindless(made):
            return (made.__name__, "", record.namespace, record.name)
        group = getattr(record, "api_version", "") or getattr(record, "group", "")
        kind = f"{getattr(record, 'kind', '')}.{group}".strip(".")
        return (made.__name__, kind, record.namespace, record.name)
    except Exception:  # whatever it is
        raise ModelError(f"expected records with name and namespace, got {shown(record)}") from None


def _key_of(key: PodKey | str) -> PodKey:
    return PodKey.of(key)


@record
class PodBound:
    """A pod holds room on the node that it names; it waits no longer.

    Parameters
    ----------
    pod
        With its node, and with all that is written on it.
    """

    pod: Pod

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class PodUpdated:
    """A pod that is known says something else, where it is: on its node, or among those that wait."""

    pod: Pod

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class PodEnded:
    """A pod is gone, or has ended and holds no room any more.

    Parameters
    ----------
    pod
        Its key; a text is ``"namespace/name"``.
    """

    pod: PodKey = attrs.field(converter=_key_of)


@record
class PodPending:
    """A pod waits for a node; it replaces a waiting one of the same key."""

    pod: Pod

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class NodeAdded:
    """A node joins; a :class:`~koordcore.NodeState` brings pods with it."""

    node: Node | NodeState

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class NodeReplaced:
    """A node says something else; with a plain :class:`~koordcore.Node` the pods on it stay."""

    node: Node | NodeState

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class NodeRemoved:
    """A node leaves, together with the pods on it."""

    name: str

    def __attrs_post_init__(self) -> None:
        check_fields(self)


@record
class RecordAdded:
    """A record is new."""

    record: ClusterRecord


@record
class RecordReplaced:
    """A record says something else; type, kind, namespace and name tell which."""

    record: ClusterRecord


@record
class RecordRemoved:
    """A record is gone.

    Parameters
    ----------
    record
        Any of the same type, kind, namespace and name.
    """

    record: ClusterRecord


def of_pods(kind: Callable[[Pod], Change], pods: Iterable[Pod]) -> Iterator[Change]:
    """Make a change of each pod.

    Raises
    ------
    TypeError
        When one is no pod.
    """
    for pod in pods:
        if not isinstance(pod, Pod):
            raise TypeError(f"expected Pod, got {shown(pod)}")
        yield kind(pod)


Change: TypeAlias = (
    PodBound
    | PodUpdated
    | PodEnded
    | PodPending
    | NodeAdded
    | NodeReplaced
    | NodeRemoved
    | RecordAdded
    | RecordReplaced
    | RecordRemoved
)


def with_next(changes: Sequence[Change]) -> Iterator[tuple[Change, Change | None]]:
    """Give each change with the next one about the same pod; ``None`` where there is none."""
    found: list[tuple[Change, Change | None]] = []
    next_of: dict[PodKey, Change] = {}
    for change in reversed(changes):
        match change:
            case PodEnded(key):
                pass
            case PodPending(pod) | PodBound(pod) | PodUpdated(pod):
                key = pod.key
            case _:
                found.append((change, None))
                continue
        found.append((change, next_of.get(key)))
        next_of[key] = change
    return reversed(found)
