"""Why two plans differ: pod by pod, what is decided in each, and what stands behind it."""

from __future__ import annotations

import attrs

from koordcore.explaining.audit import reason_of
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodKey
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_NAMED = 3


@attrs.frozen(kw_only=True)
class PlanDifference:
    """One pod that two plans decide about differently.

    Parameters
    ----------
    pod
        Who.
    first, second
        The node that it gets, or why it gets none; empty where the plan says nothing about it.
    why
        What is different about the node, in words; empty where nothing is known.
    """

    pod: PodKey
    first: str
    second: str
    why: str = ""


def plan_differences(first: ScheduleResult, second: ScheduleResult) -> tuple[PlanDifference, ...]:
    """Compare two plans, of one cluster or of two.

    Returns
    -------
    tuple of PlanDifference
        In the order in which the first plan decides, then the second; reasons alone count as well.
    """
    taken = {one.pod: one for one in first.decisions}
    other = {one.pod: one for one in second.decisions}
    found = []
    for pod in dict.fromkeys((*taken, *other)):
        before, after = taken.get(pod), other.get(pod)
        texts = _decision_text(before), _decision_text(after)
        if texts[0] != texts[1]:
            why = _why(pod, before, after, first, second)
            found.append(PlanDifference(pod=pod, first=texts[0], second=texts[1], why=why))
    return tuple(found)


def _decision_text(decision: PodDecision | None) -> str:
    if decision is None:
        return ""
    return decision.node if isinstance(decision, Bound) else reason_of(decision)


def _why(
    pod: PodKey,
    before: PodDecision | None,
    after: PodDecision | None,
    first: ScheduleResult,
    second: ScheduleResult,
) -> str:
    if before is None or after is None:
        there = second if before is None else first
        missing = first if before is None else second
        node = missing.snapshot.location.get(pod)
        if node is not None and there is not missing:
            return f"runs on {node} already in the {'first' if before is None else 'second'}"
        return f"is not among the pods of the {'first' if before is None else 'second'}"
    if isinstance(before, Bound):
        lost = _lost(before.node, pod, first.snapshot, second.snapshot, "second")
        if lost:
            return lost
    if isinstance(after, Bound):
        lost = _lost(after.node, pod, second.snapshot, first.snapshot, "first")
        if lost:
            return lost
    if isinstance(before, Bound) and isinstance(after, Bound):
        return f"both have room in both; scored {before.score} in the first, {after.score} in the second"
    return ""


def _lost(node: str, pod: PodKey, here: ClusterSnapshot, there: ClusterSnapshot, which: str) -> str:
    """Say what keeps a pod off a node in the other plan."""
    if node not in there.layout.row_of:
        return f"{node} does not exist in the {which}"
    mine, other = here.node(node), there.node(node)
    changes = _changes(mine, other)
    if changes:
        return f"{node} {changes} in the {which}"
    own = {one.key for one in mine.pods}
    come = [str(one.key) for one in other.pods if one.key not in own and one.key != pod]
    if come:
        more = f" and {len(come) - _NAMED} more" if len(come) > _NAMED else ""
        return f"{node} is taken by {', '.join(come[:_NAMED])}{more} in the {which}"
    return ""


def _changes(mine: NodeState, other: NodeState) -> str:
    """Say what a node has lost."""
    if other.node.unschedulable and not mine.node.unschedulable:
        return "is cordoned"
    taints = [str(one) for one in other.node.taints if one not in mine.node.taints]
    if taints:
        return f"has the taint {', '.join(taints)}"
    less = [
        name
        for name, amount in sorted(mine.node.allocatable.items())
        if other.node.allocatable.get(name, 0) < amount
    ]
    if less:
        return f"offers less {', '.join(less)}"
    labels = [
        name for name, value in sorted(mine.node.labels.items()) if other.node.labels.get(name) != value
    ]
    return f"has another label {', '.join(labels)}" if labels else ""


def _regained(lost: str) -> str:
    """Turn what a node has lost into what it has got back.

    >>> _regained("is cordoned"), _regained("offers less cpu")
    ('no longer cordoned', 'offers more cpu')
    """
    for word, other in (("offers less ", "offers more "), ("has another label ", "has the new label ")):
        if lost.startswith(word):
            return other + lost.removeprefix(word)
    return f"no longer {lost.removeprefix('is ')}"


@attrs.frozen
class ClusterDifference:
    """One node or running pod that two dumps tell differently.

    Parameters
    ----------
    kind
        ``node`` or ``pod``.
    name
        Which.
    what
        What became of it between the first and the second.
    """

    kind: str
    name: str
    what: str


def cluster_differences(first: ClusterSnapshot, second: ClusterSnapshot) -> tuple[ClusterDifference, ...]:
    """Compare two dumps of a cluster: nodes that came, left or changed, pods that started, ended or moved.

    Returns
    -------
    tuple of ClusterDifference
        Nodes by name, then pods by key.
    """
    found = []
    names = {state.name: state for state in first.nodes}
    others = {state.name: state for state in second.nodes}
    for name in sorted({*names, *others}):
        if name not in others:
            found.append(ClusterDifference("node", name, "left"))
        elif name not in names:
            found.append(ClusterDifference("node", name, "came"))
        else:
            changes = _changes(names[name], others[name])
            back = "" if changes else _changes(others[name], names[name])
            if changes or back:
                text = changes or _regained(back)
                found.append(ClusterDifference("node", name, text))
    for key in sorted({*_pods(first), *_pods(second)}):
        was, now = first.location.get(key), second.location.get(key)
        if was != now:
            found.append(ClusterDifference("pod", str(key), _moved(key, was, now, first, second)))
        elif was is None and (first.pod(key) is None) != (second.pod(key) is None):
            text = "waits, and is new" if first.pod(key) is None else "waits no more"
            found.append(ClusterDifference("pod", str(key), text))
    return tuple(found)


def _pods(snapshot: ClusterSnapshot) -> set[PodKey]:
    return {pod.key for pod in (*snapshot.bound_pods(), *snapshot.pending)}


def _moved(
    key: PodKey, was: str | None, now: str | None, first: ClusterSnapshot, second: ClusterSnapshot
) -> str:
    if was is None:
        return f"started on {now}" if first.pod(key) is not None else f"is new and runs on {now}"
    if now is None:
        return f"ended on {was}" if second.pod(key) is None else f"left {was} and waits"
    return f"moved from {was} to {now}"
