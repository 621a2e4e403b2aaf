"""Why two plans differ: pod by pod, what is decided in each, and what stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._record import record
from koordcore.explaining.audit import reason_of
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodKey
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_NAMED = 3
_OTHER_RULES = "the plans follow other rules"


@record(kw_only=True)
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
    plans = _Plan(first), _Plan(second)
    taken, other = plans[0].decisions, plans[1].decisions
    found = []
    ruled = False
    for pod in dict.fromkeys((*taken, *other)):
        before, after = taken.get(pod), other.get(pod)
        texts = _decision_text(before), _decision_text(after)
        if texts[0] != texts[1]:
            why = _why(pod, before, after, *plans)
            if not why and isinstance(before, Bound) and isinstance(after, Bound):
                # Once the rules are known to differ there is no other reason to look for.
                alike = not ruled and plans[0].alike(plans[1], pod)
                why = _OTHER_RULES if ruled else _ranked(alike=alike)
                ruled = ruled or alike
            found.append(PlanDifference(pod=pod, first=texts[0], second=texts[1], why=why))
    return tuple(found)


class _Plan:
    """A plan, and who was there before whose turn."""

    def __init__(self, result: ScheduleResult) -> None:
        self.snapshot = result.snapshot
        self.decisions = {one.pod: one for one in result.decisions}
        self._turns = {pod: turn for turn, pod in enumerate(self.decisions)}

    def before(self, pod: PodKey, node: str) -> set[PodKey]:
        """Name who was on a node when a pod's turn came, but for the rest of its gang."""
        turn, gang = self._turns[pod], self._gang(pod)
        return {
            one.key
            for one in self.snapshot.node(node).pods
            if self._turns.get(one.key, -1) < turn and not (gang and self._gang(one.key) == gang)
        }

    def alike(self, other: _Plan, pod: PodKey) -> bool:
        """Tell whether nothing at all was different when a pod's turn came."""
        names = self.snapshot.layout.names
        return names == other.snapshot.layout.names and all(
            self.before(pod, name) == other.before(pod, name)
            and self.snapshot.node(name).node == other.snapshot.node(name).node
            for name in names
        )

    def _gang(self, key: PodKey) -> str:
        pod = self.snapshot.pod(key)
        name = "" if pod is None else gang_name(pod.labels, pod.annotations)
        return name and f"{key.namespace}/{name}"


def _ranked(*, alike: bool) -> str:
    """Say what else was different when a pod's turn came whose nodes were alike in both plans.

    Scores are not said: each is of another node, at another moment, and maybe by other rules.
    """
    if alike:
        return f"nothing was different before its turn: {_OTHER_RULES}"
    return "both nodes were the same before its turn, others were not"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _decision_text(decision: PodDecision | None) -> str:
    if decision is None:
        return ""
    return decision.node if isinstance(decision, Bound) else reason_of(decision)


def _why(
    pod: PodKey,
    before: PodDecision | None,
    after: PodDecision | None,
    first: _Plan,
    second: _Plan,
) -> str:
    if before is None or after is None:
        there = second if before is None else first
        missing = first if before is None else second
        node = missing.snapshot.location.get(pod)
        if node is not None and there is not missing:
            return f"runs on {node} already in the {'first' if before is None else 'second'}"
        return f"is not among the pods of the {'first' if before is None else 'second'}"
    if isinstance(before, Bound):
        lost = _lost(before.node, pod, first, second, "second")
        if lost:
            return lost
    if isinstance(after, Bound):
        lost = _lost(after.node, pod, second, first, "first")
        if lost:
            return lost
    if isinstance(before, Bound) and isinstance(after, Bound):
        for node, plan, others, which in (
            (before.node, first, second, "first"),
            (after.node, second, first, "second"),
        ):
            alone = sorted(map(str, plan.before(pod, node) - others.before(pod, node)))
            if alone:
                return f"{node} held {_some(alone)} before its turn in the {which} alone"
    return ""


def _lost(node: str, pod: PodKey, here: _Plan, there: _Plan, which: str) -> str:
    """Say what keeps a pod off a node in the other plan: who came later does not."""
    if node not in there.snapshot.layout.row_of:
        return f"{node} does not exist in the {which}"
    changes = _changes(here.snapshot.node(node), there.snapshot.node(node))
    if changes:
        return f"{node} {changes} in the {which}"
    come = sorted(map(str, there.before(pod, node) - here.before(pod, node)))
    if come:
        return f"{node} is taken by {_some(come)} in the {which}"
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


@record
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
