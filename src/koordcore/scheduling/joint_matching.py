"""Pods and the reservations that stand already, matched all together, for calls whose policy asks for that.

Pod by pod, one that two reservations serve may take the only one that serves another. Here the pods of a call
are matched with reservations first; then they are placed in the order of the queue as ever, each with what is
meant for it tried before all else, and those for whom nothing is left behind the others of their priority.
What comes of that is taken only where it is better than what comes of going pod by pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore.framework.plugin import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound, Nominated, Waiting
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import gang_name
from koordcore.protocol.reservation import is_reserve_pod
from koordcore.reservations.assign import assign_reservations
from koordcore.result import ScheduleResult
from koordcore.scheduling.plugins.reservation import ReservationEvaluator, ReservationPlugin

__all__ = ["ReservationPlan", "better_of", "follow", "plan_reservations"]


@attrs.frozen
class ReservationPlan:
    """What pods and reservations that were matched all together are meant for.

    Parameters
    ----------
    meant
        Number of the reservation in the ledger by pod.
    left
        Pods that some reservation would serve and none is meant for.
    """

    meant: immutabledict[PodKey, int] = attrs.field(default=EMPTY, converter=immutabledict)
    left: frozenset[PodKey] = frozenset()

    def order(self, queue: Iterable[Pod]) -> list[Pod]:
        """Give the queue with those that are left out behind all others of their priority."""
        return sorted(queue, key=lambda pod: (-pod.priority, pod.key in self.left))


def plan_reservations(plugins: PluginSet, pods: Iterable[Pod], limits: Limits) -> ReservationPlan:
    """Choose which of the reservations that stand is meant for which pod.

    Pods of gangs are left out: their gang is planned as a whole. A pod is held against each reservation in
    everything that it asks for, as the flow does it; that several draw from one node besides is not looked
    at.
    """
    plugin = next(one for one, _ in plugins.everyone if isinstance(one, ReservationPlugin))
    ledger = plugin.ledger
    asking: list[Pod] = []
    rows = []
    for pod in pods if ledger.open.any() else ():
        if pod.gated or is_reserve_pod(pod) or gang_name(pod.labels, pod.annotations):
            continue
        scheduling_class = plugins.class_of(pod)
        if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
            continue
        answers = (part.evaluator for part in scheduling_class.parts)
        answer = next((one for one in answers if isinstance(one, ReservationEvaluator)), None)
        if answer is None:
            continue
        serving = answer.serving() & scheduling_class.feasible()[ledger.row]
        if serving.any():
            asking.append(pod)
            rows.append(serving)
    if not asking:
        return ReservationPlan()
    every = np.stack(rows)
    numbers = np.flatnonzero(every.any(axis=0)).tolist()
    # Objects come before pods that act as reservations and have the name of one.
    numbers.sort(key=lambda number: ledger.states[number].pod is not None)
    named: dict[str, int] = {}
    for number in numbers:
        named.setdefault(ledger.states[number].reservation.name, number)
    numbers = sorted(named.values())
    nodes = {node.name: node for node in plugins.workspace.layout.nodes}
    states = [ledger.states[number] for number in numbers]
    found = assign_reservations(asking, states, nodes, eligible=every[:, numbers], limits=limits)
    meant = {pod: named[name] for pod, name in found.reservations.items()}
    return ReservationPlan(meant, frozenset(found.unassigned))


def follow(plugins: PluginSet, plan: ReservationPlan) -> None:
    """Let pods try first what is meant for them."""
    for plugin, _ in plugins.everyone:
        if isinstance(plugin, ReservationPlugin):
            plugin.plan = plan.meant
            plugins.ask_first(plugin)


def better_of(sequential: ScheduleResult, joint: ScheduleResult, pods: Iterable[Pod]) -> ScheduleResult:
    """Take the joint result where it is better, and the other one where they are equal.

    Better has more pods placed, of the highest priority first, where they differ; then more that room is made
    for, by fewer evictions; then more that use a reservation.
    """
    known = {pod.key: pod for pod in pods}
    priorities = sorted({pod.priority for pod in known.values()}, reverse=True)

    def rank(result: ScheduleResult) -> tuple[object, ...]:
        placed = [one for one in result.decisions if isinstance(one, Bound)]
        placed += [one.held for one in result.decisions if isinstance(one, Waiting) and one.held is not None]
        by_priority = Counter(known[one.pod].priority for one in placed)
        nominated = sum(isinstance(one, Nominated) for one in result.decisions)
        victims = sum(len(plan.victims) for plan in result.preemptions)
        using = sum(bool(one.reservation) for one in placed)
        return ([by_priority[priority] for priority in priorities], nominated, -victims, using)

    return max(sequential, joint, key=rank)
