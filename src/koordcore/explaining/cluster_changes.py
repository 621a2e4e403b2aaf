"""What is different between two dumps of a cluster: nodes, pods, and every object that decisions read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, cast

import attrs

from koordcore._record import record
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import format_resources
from koordcore.snapshot import ClusterSnapshot

_ASKED: Final = (
    "requests",
    "priority",
    "priority_class",
    "preemption_policy",
    "scheduler_name",
    "node_selector",
    "affinity",
    "tolerations",
    "spread_constraints",
    "host_ports",
    "claims",
    "features",
    "resource_claims",
    "gates",
)
"""What a pod asks for, and nothing that placing it changes."""
_MARKED: Final = ("labels", "annotations")
_OF_NODES: Final = ("annotations", "features")
_UNTOLD: Final = frozenset({"created", "started", "uid", "warnings", "update_time"})
"""Fields that differ between any two dumps, or that nothing is decided by."""
_UNTOLD_OF: Final = {"PodGroup": frozenset({"status"})}
_SHORT: Final = 40
_KINDS: Final = {"DeviceObject": "Device"}


@record
class ClusterDifference:
    """One node, pod or other object that two dumps tell differently.

    Parameters
    ----------
    kind
        ``node``, ``pod``, or the kind of an object; ``NodeMetric`` stands for all reports together.
    name
        Which, with its namespace where it has one.
    what
        What became of it between the first and the second.
    """

    kind: str
    name: str
    what: str


def cluster_differences(first: ClusterSnapshot, second: ClusterSnapshot) -> tuple[ClusterDifference, ...]:
    """Compare two dumps of a cluster: what came, left or changed.

    Returns
    -------
    tuple of ClusterDifference
        Nodes by name, then pods by key, then other objects by kind and name.
    """
    return (*_nodes(first, second), *_pods(first, second), *_records(first, second))


def _nodes(first: ClusterSnapshot, second: ClusterSnapshot) -> Iterator[ClusterDifference]:
    names = {state.name: state for state in first.nodes}
    others = {state.name: state for state in second.nodes}
    for name in sorted({*names, *others}):
        if name not in others:
            yield ClusterDifference("node", name, "left")
        elif name not in names:
            yield ClusterDifference("node", name, "came")
        else:
            changes = "; ".join(_node_changes(names[name], others[name]))
            if changes:
                yield ClusterDifference("node", name, changes)


def _node_changes(was: NodeState, now: NodeState) -> Iterator[str]:
    lost, back = losses(was, now), losses(now, was)
    yield from lost
    for one in back:
        # A label with another value is lost both ways.
        if not (one.startswith(_LABEL) and any(other.startswith(_LABEL) for other in lost)):
            yield _regained(one)
    yield from _fields(was.node, now.node, _OF_NODES)


_LABEL: Final = "has another label "


def losses(mine: NodeState, other: NodeState) -> list[str]:
    """Say what a node has lost, each in words that follow its name."""
    lost = []
    if other.node.unschedulable and not mine.node.unschedulable:
        lost.append("is cordoned")
    if mine.node.ready and not other.node.ready:
        lost.append("is not ready")
    taints = [str(one) for one in other.node.taints if one not in mine.node.taints]
    if taints:
        lost.append(f"has the taint {', '.join(taints)}")
    less = [
        name
        for name, amount in sorted(mine.node.allocatable.items())
        if other.node.allocatable.get(name, 0) < amount
    ]
    if less:
        lost.append(f"offers less {', '.join(less)}")
    labels = [
        name for name, value in sorted(mine.node.labels.items()) if other.node.labels.get(name) != value
    ]
    if labels:
        lost.append(f"{_LABEL}{', '.join(labels)}")
    return lost


def _regained(lost: str) -> str:
    """Turn what a node has lost into what it has got back.

    >>> _regained("is cordoned"), _regained("offers less cpu"), _regained("is not ready")
    ('no longer cordoned', 'offers more cpu', 'is ready again')
    """
    if lost == "is not ready":
        return "is ready again"
    for word, other in (("offers less ", "offers more "), (_LABEL, "has the new label ")):
        if lost.startswith(word):
            return other + lost.removeprefix(word)
    return f"no longer {lost.removeprefix('is ')}"


def _pods(first: ClusterSnapshot, second: ClusterSnapshot) -> Iterator[ClusterDifference]:
    keys = {pod.key for one in (first, second) for pod in (*one.bound_pods(), *one.pending)}
    for key in sorted(keys):
        was, now = first.location.get(key), second.location.get(key)
        before, after = first.pod(key), second.pod(key)
        if was != now:
            yield ClusterDifference("pod", str(key), _moved(was, now, before, after))
        elif before is None or after is None:
            text = "waits, and is new" if before is None else "waits no more"
            yield ClusterDifference("pod", str(key), text)
        else:
            changes = "; ".join(_fields(before, after, (*_ASKED, *_MARKED)))
            if changes:
                yield ClusterDifference("pod", str(key), changes)


def _moved(was: str | None, now: str | None, before: Pod | None, after: Pod | None) -> str:
    if was is None:
        return f"started on {now}" if before is not None else f"is new and runs on {now}"
    if now is None:
        return f"ended on {was}" if after is None else f"left {was} and waits"
    return f"moved from {was} to {now}"


def asked_otherwise(key: PodKey, first: ClusterSnapshot, second: ClusterSnapshot) -> str:
    """Say what a pod asks for in the second that it does not in the first; empty where it is the same."""
    before, after = first.pod(key), second.pod(key)
    return "" if before is None or after is None else "; ".join(_fields(before, after, _ASKED))


def _records(first: ClusterSnapshot, second: ClusterSnapshot) -> Iterator[ClusterDifference]:
    known, others = _by_place(first.records), _by_place(second.records)
    reports = []
    for place in sorted({*known, *others}):
        kind, name = place
        was, now = known.get(place), others.get(place)
        if was is None or now is None:
            text = "came" if was is None else "left"
        else:
            names = [one.name for one in attrs.fields(cast("Any", type(now))) if one.eq]
            left_out = _UNTOLD | _UNTOLD_OF.get(kind, frozenset())
            text = "; ".join(_fields(was, now, (one for one in names if one not in left_out)))
        if text and kind == NodeMetric.__name__:
            reports.append(name)
        elif text:
            yield ClusterDifference(kind, name, text)
    if reports:
        nodes = f"{len(reports)} node{'s' * (len(reports) != 1)}"
        yield ClusterDifference(NodeMetric.__name__, nodes, "report other usage")


def _by_place(records: Iterable[ClusterRecord]) -> dict[tuple[str, str], ClusterRecord]:
    found = {}
    for one in records:
        own = type(one).__name__
        kind = getattr(one, "kind", None)
        shown = kind if own == "Workload" and isinstance(kind, str) else _KINDS.get(own, own)
        found[shown, f"{one.namespace}/{one.name}" if one.namespace else one.name] = one
    return found


def _fields(was: object, now: object, names: Iterable[str]) -> Iterator[str]:
    """Say which fields of a record are different, with the values of those that are short."""
    for name in names:
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            yield _told(_camel(name), before, after)


def _told(name: str, was: Any, now: Any) -> str:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = sorted(str(key) for key in {*was, *now} if was.get(key) != now.get(key))
        if len(keys) == 1 and _amounts(was) and _amounts(now):
            before, after = (format_resources(one).get(keys[0], "nothing") for one in (was, now))
            return f"{name} of {keys[0]} from {before} to {after}"
        return f"another {name.removesuffix('s')} {keys[0]}" if len(keys) == 1 else f"other {name}"
    texts = [_text(was), _text(now)]
    return f"{name} from {texts[0]} to {texts[1]}" if all(texts) else f"other {name}"


def _amounts(table: Mapping[Any, Any]) -> bool:
    return all(type(one) is int for one in table.values())


def _text(value: Any) -> str:
    """Write a value; empty where it is long."""
    if value is None or value == "":
        return "none"
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, bool | int | float | str | Enum):
        return ""
    text = str(value.value if isinstance(value, Enum) else value)
    return text if len(text) <= _SHORT else ""


def _camel(name: str) -> str:
    """Write the name of a field as manifests do.

    >>> _camel("min_member"), _camel("requests")
    ('minMember', 'requests')
    """
    first, *rest = name.split("_")
    return first + "".join(one.title() for one in rest)
