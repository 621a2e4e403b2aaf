"""One pod: admit, filter, score, allocate, assume."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.plugin import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.state_scores import Choice
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Bound, PodDecision, Shortfall, Unschedulable, Waiting
from koordcore.model.pods import Pod
from koordcore.snapshot import bind

__all__ = ["place_pod", "place_there", "refuse_pod"]

GATED = "Scheduling is blocked due to non-empty scheduling gates"


def refuse_pod(pod: Pod) -> PodDecision | None:
    """Give the decision about a pod that may not be tried at all, or ``None``."""
    return Waiting(pod=pod.key, reason=GATED) if pod.gated else None


def place_pod(workspace: Workspace, plugins: PluginSet, pod: Pod) -> PodDecision:
    """Place a pod on the best node, or say why no node takes it."""
    number = len(workspace.layout.names)
    early = refuse_pod(pod)
    if early is not None:
        return early
    if not number:
        return Unschedulable(pod=pod.key, refusal="no nodes available to schedule pods")
    scheduling_class = plugins.class_of(pod)
    if isinstance(scheduling_class, Refusal):
        return Unschedulable(pod=pod.key, nodes=number, refusal=scheduling_class.reason)
    refused = scheduling_class.refuse()
    if refused is not None:
        return Unschedulable(pod=pod.key, nodes=number, refusal=refused[1].reason)
    hints = plugins.preferred(pod)
    if hints or pod.nominated_node or not plugins.sample.whole:
        choice = _best_of_some(workspace, plugins, scheduling_class, pod, hints)
    else:
        choice = scheduling_class.best()
    if not choice.feasible:
        return scheduling_class.failure(pod)
    row = choice.row
    decision = _take(workspace, plugins, scheduling_class, pod, *choice)
    if isinstance(decision, Shortfall):
        node = workspace.layout.names[row]
        raise AssertionError(f"{pod.key} fits {node} but cannot be allocated there: {decision.reason}")
    return decision


def _best_of_some(
    workspace: Workspace,
    plugins: PluginSet,
    scheduling_class: SchedulingClass,
    pod: Pod,
    hints: Sequence[int],
) -> Choice:
    """Choose where a nomination, a sample or a hint narrows the choice; a hint comes before any score."""
    every = scheduling_class.feasible()
    feasible = _nominated_only(workspace, pod, every)
    if feasible is None:
        feasible = plugins.sample.narrow(every)
    choice = scheduling_class.best_of(feasible)
    row = next((hinted for hinted in hints if feasible[hinted]), -1)
    return choice if row < 0 else choice._replace(row=row, score=int(scheduling_class.totals(feasible)[row]))


def _nominated_only(workspace: Workspace, pod: Pod, feasible: BoolVector) -> BoolVector | None:
    """Where room was made for a pod it goes first (``evaluateNominatedNode``); None where it does not fit."""
    if not pod.nominated_node:
        return None
    row = workspace.layout.row_of.get(pod.nominated_node)
    if row is None or not feasible[row]:
        return None
    only = np.zeros_like(feasible)
    only[row] = True
    return only


def place_there(workspace: Workspace, plugins: PluginSet, pod: Pod, row: int) -> Bound | None:
    """Place a pod on one node; ``None`` where the node does not take it."""
    scheduling_class = plugins.class_of(pod)
    if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
        return None
    feasible = scheduling_class.feasible()
    if not feasible[row]:
        return None
    totals = scheduling_class.totals(feasible)
    count = int(np.count_nonzero(feasible))
    decision = _take(workspace, plugins, scheduling_class, pod, row, int(totals[row]), count)
    return None if isinstance(decision, Shortfall) else decision


def _take(
    workspace: Workspace,
    plugins: PluginSet,
    scheduling_class: SchedulingClass,
    pod: Pod,
    row: int,
    score: int,
    count: int,
) -> Bound | Shortfall:
    mark = workspace.checkpoint()
    decision = scheduling_class.decide(pod, row, score, count)
    if isinstance(decision, Shortfall):
        workspace.rollback(mark)
        return decision
    bound = bind(pod, decision)
    workspace.bind(bound, row, scheduling_class.change)
    plugins.placed(bound, row)
    return decision
