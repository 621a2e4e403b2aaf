"""Why two plans differ: pod by pod, what is decided in each, and what stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._record import record
from koordcore.explaining.audit import reason_of
from koordcore.explaining.cluster_changes import ClusterDifference, asked_otherwise, losses
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.pods import PodKey
from koordcore.model.resources import Resources
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.quota import quota_label
from koordcore.result import ScheduleResult

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


def plan_differences(
    first: ScheduleResult, second: ScheduleResult, changes: Sequence[ClusterDifference] = ()
) -> tuple[PlanDifference, ...]:
    """Compare two plans, of one cluster or of two.

    Parameters
    ----------
    first, second
        The plans.
    changes
        What is different between the clusters, as
        :func:`~koordcore.explaining.cluster_changes.cluster_differences` tells it.

    Returns
    -------
    tuple of PlanDifference
        In the order in which the first plan decides, then the second; reasons alone count as well.
    """
    plans = _Plan(first), _Plan(second)
    objects = [one for one in changes if one.kind not in ("node", "pod")]
    taken, other = plans[0].decisions, plans[1].decisions
    found = []
    ruled = False
    for pod in dict.fromkeys((*taken, *other)):
        before, after = taken.get(pod), other.get(pod)
        texts = _decision_text(before), _decision_text(after)
        if texts[0] != texts[1]:
            why = _why(pod, before, after, *plans) or _objects_of(pod, plans[1], objects)
            placed = isinstance(before, Bound), isinstance(after, Bound)
            if not why and all(placed):
                # Once the rules are known to differ there is no other reason to look for.
                alike = not ruled and plans[0].alike(plans[1], pod)
                why = _OTHER_RULES if ruled else _ranked(objects, alike=alike)
                ruled = ruled or (alike and not objects)
            elif not why and any(placed) and objects:
                why = _beside(objects)
            found.append(PlanDifference(pod=pod, first=texts[0], second=texts[1], why=why))
    return tuple(found)


class _Plan:
    """A plan, and who was there before whose turn."""

    def __init__(self, result: ScheduleResult) -> None:
        self.snapshot = result.snapshot
        self.decisions = {one.pod: one for one in result.decisions}
        self._turns = {pod: turn for turn, pod in enumerate(self.decisions)}

    def before(self, pod: PodKey, node: str) -> dict[PodKey, Resources]:
        """Tell who was on a node when a pod's turn came, but for the rest of its gang, and for how much."""
        turn, gang = self._turns[pod], self.gang(pod)
        return {
            one.key: one.requests
            for one in self.snapshot.node(node).pods
            if self._turns.get(one.key, -1) < turn and not (gang and self.gang(one.key) == gang)
        }

    def alike(self, other: _Plan, pod: PodKey) -> bool:
        """Tell whether nothing at all was different when a pod's turn came."""
        names = self.snapshot.layout.names
        return names == other.snapshot.layout.names and all(
            self.before(pod, name) == other.before(pod, name)
            and self.snapshot.node(name).node == other.snapshot.node(name).node
            for name in names
        )

    def gang(self, key: PodKey) -> str:
        """Name the gang of a pod; empty where it has none."""
        pod = self.snapshot.pod(key)
        name = "" if pod is None else gang_name(pod.labels, pod.annotations)
        return name and f"{key.namespace}/{name}"


def _beside(objects: Sequence[ClusterDifference]) -> str:
    return f"beside nodes and pods there is different: {_some([_named(one) for one in objects])}"


def _ranked(objects: Sequence[ClusterDifference], *, alike: bool) -> str:
    """Say what else was different when a pod's turn came whose nodes were alike in both plans.

    Scores are not said: each is of another node, at another moment, and maybe by other rules.
    """
    if alike and objects:
        return _beside(objects)
    if alike:
        return f"nothing was different before its turn: {_OTHER_RULES}"
    return "both nodes were the same before its turn, others were not"


def _objects_of(key: PodKey, plan: _Plan, objects: Sequence[ClusterDifference]) -> str:
    """Say what is different about the gang or the quota that a pod names."""
    pod = plan.snapshot.pod(key)
    if pod is None:
        return ""
    quota, gang = quota_label(pod.labels), plan.gang(key)
    for one in objects:
        own = one.kind == "PodGroup" and one.name == gang
        own = own or (one.kind == "ElasticQuota" and bool(quota) and one.name.rpartition("/")[2] == quota)
        if own:
            return _named(one)
    return ""


def _named(one: ClusterDifference) -> str:
    return f"{one.kind} {one.name}: {one.what}"


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
    itself = asked_otherwise(pod, first.snapshot, second.snapshot)
    if itself:
        return f"it is different itself: {itself}"
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
            own, theirs = plan.before(pod, node), others.before(pod, node)
            alone = sorted(map(str, own.keys() - theirs.keys()))
            if alone:
                return f"{node} held {_some(alone)} before its turn in the {which} alone"
    for node in [one.node for one in (before, after) if isinstance(one, Bound)]:
        own, theirs = first.before(pod, node), second.before(pod, node)
        other = sorted(str(key) for key, amounts in own.items() if theirs.get(key) != amounts)
        if other:
            ask = "ask" if len(other) > 1 else "asks"
            return f"{_some(other)} on {node} {ask} for other amounts in the second"
    return ""


def _lost(node: str, pod: PodKey, here: _Plan, there: _Plan, which: str) -> str:
    """Say what keeps a pod off a node in the other plan: who came later does not."""
    if node not in there.snapshot.layout.row_of:
        return f"{node} does not exist in the {which}"
    changes = losses(here.snapshot.node(node), there.snapshot.node(node))
    if changes:
        return f"{node} {', '.join(changes)} in the {which}"
    come = sorted(map(str, there.before(pod, node).keys() - here.before(pod, node).keys()))
    if come:
        return f"{node} is taken by {_some(come)} in the {which}"
    return ""
