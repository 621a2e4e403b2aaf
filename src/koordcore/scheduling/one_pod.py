"""One pod: admit, filter, score, allocate, assume."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import attrs
import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.hints import CANNOT_BE_READ
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.sampling import Search
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.state_scores import Choice
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import (
    Bound,
    PodDecision,
    Rejection,
    Shortfall,
    Unschedulable,
    Waiting,
    refused_likewise,
)
from koordcore.model.pods import Pod
from koordcore.protocol.holdings import stale_holdings
from koordcore.snapshot.cluster import bind

GATED = "Scheduling is blocked due to non-empty scheduling gates"


def refuse_pod(pod: Pod, nodes: int = 0) -> PodDecision | None:
    """Give the decision about a pod that may not be tried at all, on so many nodes; ``None`` for others."""
    if pod.unreadable:
        return Unschedulable(pod=pod.key, nodes=nodes, refusal=f"{CANNOT_BE_READ}: {pod.unreadable}")
    return Waiting(pod=pod.key, reason=GATED) if pod.gated else None


def place_pod(workspace: Workspace, plugins: PluginSet, pod: Pod) -> PodDecision:
    """Place a pod on the best node, or say why no node takes it."""
    number = len(workspace.layout.names)
    early = refuse_pod(pod, number)
    if early is not None:
        return early
    if not number:
        return Unschedulable(pod=pod.key, refusal="no nodes available to schedule pods")
    scheduling_class = plugins.class_of(pod)
    if isinstance(scheduling_class, Refusal):
        return Unschedulable(pod=pod.key, nodes=number, refusal=scheduling_class.reason)
    refused = scheduling_class.refuse()
    if refused is not None:
        by, refusal = refused
        return Unschedulable(pod=pod.key, nodes=number, refusal=refusal.reason, refused_by=by.name)
    if plugins.nominated.exist:
        beside = plugins.nominated.refusal(pod)
        if beside is not None:
            return Unschedulable(pod=pod.key, nodes=number, refusal=beside.reason)
    if plugins.refused:
        known = _refused_before(plugins, scheduling_class, pod)
        if known is not None:
            _looked_at(plugins, scheduling_class, pod, np.zeros(number, np.bool_))
            return known
    choice = _choose(workspace, plugins, scheduling_class, pod)
    if not choice.feasible:
        return refused_by_nodes(plugins, scheduling_class, pod)
    row = choice.row
    decision = _take(workspace, plugins, scheduling_class, pod, *choice)
    if isinstance(decision, Shortfall):
        node = workspace.layout.names[row]
        raise AssertionError(f"{pod.key} fits {node} but cannot be allocated there: {decision.reason}")
    return decision


def _choose(workspace: Workspace, plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod) -> Choice:
    """Choose the best node; a nomination, a sample or a hint narrows the choice, a hint before any score."""
    own, nominated = plugins.of(pod), plugins.nominated
    hints = own.preferred(pod) if own.prefers else ()
    plain = not nominated.concern(pod) and not nominated.may_mislead(scheduling_class)
    if plain and not (hints or pod.nominated_node) and plugins.sample is None:
        return scheduling_class.best()
    every = feasible_nodes(plugins, scheduling_class, pod)
    feasible = nominated_only(workspace, pod, every)
    if feasible is None:
        feasible = _looked_at(plugins, scheduling_class, pod, every)
    choice = scheduling_class.best_of(feasible)
    row = next((hinted for hinted in hints if feasible[hinted]), -1)
    if row < 0:
        return choice
    return choice._replace(row=row, score=int(scheduling_class.totals(feasible)[row]))


def _looked_at(
    plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod, feasible: BoolVector
) -> BoolVector:
    """Keep the feasible nodes that the search finds before it has enough."""
    search = search_for(plugins, scheduling_class, pod, feasible)
    if search is None or plugins.sample is None:
        return feasible
    seen = search.among(allowed_nodes(plugins, scheduling_class))
    plugins.sample.end(pod.key, search, seen)
    return feasible & seen


def search_for(
    plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod, feasible: BoolVector
) -> Search | None:
    """Tell how far the search for a pod would go now; ``None`` where all nodes are looked at."""
    if plugins.sample is None:
        return None
    allowed, percentage = allowed_nodes(plugins, scheduling_class), plugins.of(pod).percentage
    # A node that was nominated in vain has been tried before.
    first = plugins.workspace.layout.row_of.get(pod.nominated_node or "", -1)
    return plugins.sample.search(feasible, allowed, percentage, first=first)


def allowed_nodes(plugins: PluginSet, scheduling_class: SchedulingClass) -> BoolVector:
    """Tell which nodes are looked at at all: ``(N,)``."""
    allowed = np.ones(len(plugins.workspace.layout.names), np.bool_)
    for mask in restrictions(scheduling_class).values():
        allowed &= mask
    return allowed


def restrictions(scheduling_class: SchedulingClass) -> dict[str, BoolVector]:
    """Give the nodes to which plugins narrow the search, by plugin: ``(N,)``."""
    filtering = (part for part in scheduling_class.parts if part.setting.filters)
    found = ((part.plugin.name, part.evaluator.restriction()) for part in filtering)
    return {name: allowed for name, allowed in found if allowed is not None}


def nominated_only(workspace: Workspace, pod: Pod, feasible: BoolVector) -> BoolVector | None:
    """Where room was made for a pod it goes first (``evaluateNominatedNode``); None where it does not fit."""
    row = workspace.layout.row_of.get(pod.nominated_node or "")
    if row is None or not feasible[row]:
        return None
    only = np.zeros_like(feasible)
    only[row] = True
    return only


def feasible_nodes(
    plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod, row: int | None = None
) -> BoolVector:
    """Tell which nodes can take a pod now, with and without those that are nominated there: ``(N,)``.

    With a ``row`` only of that one is it told who is nominated there.
    """
    return plugins.nominated.narrow(scheduling_class, pod, scheduling_class.feasible(), row)


def refused_by_nodes(plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod) -> Unschedulable:
    """Count why every node refused; while nobody comes or leaves, it is the same for all pods of a class."""
    failure = _refused_beside(plugins, scheduling_class, pod)
    heeded = plugins.nominated.heeded_by(pod)
    plugins.refused[scheduling_class, heeded] = len(plugins.workspace.journal), failure
    return refused_likewise(failure, pod.key)


def _refused_beside(plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod) -> Unschedulable:
    """Count why every node refused, each beside the pods that are nominated there."""
    nominated, alone = plugins.nominated, np.ones(len(plugins.workspace.layout.names), np.bool_)
    beside = []
    if nominated.may_mislead(scheduling_class) and (fitting := scheduling_class.feasible()).any():
        with nominated.lifted():
            misled = fitting & ~scheduling_class.feasible()
            beside.append(scheduling_class.failure(pod, misled))
        alone &= ~misled
    elif not nominated.concern(pod):
        return scheduling_class.failure(pod)
    for rows in nominated.together(scheduling_class, pod, alone.copy()):
        only = np.zeros_like(alone)
        only[rows] = ~scheduling_class.feasible()[rows]
        if only.any():
            beside.append(scheduling_class.failure(pod, only))
            alone &= ~only
    return _together([scheduling_class.failure(pod, alone), *beside])


def _together(parts: Sequence[Unschedulable]) -> Unschedulable:
    """Add up what several groups of nodes said to one pod."""
    found: dict[tuple[str, str], Rejection] = {}
    for one in chain.from_iterable(part.rejections for part in parts):
        known = found.setdefault((one.reason, one.plugin), attrs.evolve(one, nodes=0))
        found[one.reason, one.plugin] = attrs.evolve(
            one, nodes=known.nodes + one.nodes, resolvable=known.resolvable or one.resolvable
        )
    nearest = next((part.nearest for part in parts if part.nearest is not None), None)
    rejections = tuple(found[key] for key in sorted(found))
    return attrs.evolve(parts[0], rejections=rejections, nearest=nearest)


def _refused_before(plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod) -> Unschedulable | None:
    """Give how every node refused another pod of the class, if nobody has come or left since."""
    known = plugins.refused.get((scheduling_class, plugins.nominated.heeded_by(pod)))
    if known is None or known[0] != len(plugins.workspace.journal):
        return None
    return refused_likewise(known[1], pod.key)


def place_there(
    workspace: Workspace,
    plugins: PluginSet,
    pod: Pod,
    row: int,
    own: SchedulingClass | None = None,
    *,
    tried: bool = False,
) -> Bound | None:
    """Place a pod on one node; ``None`` where the node does not take it.

    Its class may be known already, and that it does not refuse the pod whatever the node. Where it is only
    ``tried``, other nodes that suit it are not counted exactly.
    """
    scheduling_class = plugins.class_of(pod) if own is None else own
    if isinstance(scheduling_class, Refusal) or (own is None and scheduling_class.refuse() is not None):
        return None
    if plugins.nominated.refusal(pod) is not None:
        return None
    feasible = feasible_nodes(plugins, scheduling_class, pod, row if tried else None)
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
    if pod.annotations:
        stale = stale_holdings(pod.annotations, decision.annotations)
        if stale:
            decision = attrs.evolve(decision, dropped=stale)
    bound = bind(pod, decision)
    workspace.bind(bound, row, scheduling_class.change)
    plugins.placed(bound, row, read=not decision.annotations)
    return decision
