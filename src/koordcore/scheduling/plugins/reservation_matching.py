"""Pods and the reservations that stand already, matched all together, for calls whose policy asks for that.

Pod by pod, one that two reservations serve may take the only one that serves another. Here the pods of a call
are matched with reservations first; then they are placed in the order of the queue as ever, each with what is
meant for it tried before all else, and those for whom nothing is left behind the others of their priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.model.certificates import Limits
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.assign import assign_reservations
from koordcore.reservations.cache import ReservationLedger


@runtime_checkable
class Serving(Protocol):
    """An evaluator that knows which reservations would serve its pods."""

    def serving(self) -> BoolVector:
        """Tell which reservations would serve the pods now, each by itself: ``(M,)``."""


def plan_reservations(
    ledger: ReservationLedger,
    pods: Iterable[Pod],
    class_of: Callable[[Pod], SchedulingClass | Refusal],
    limits: Limits,
) -> MatchPlan:
    """Choose which of the reservations that stand is meant for which pod.

    Pods of gangs are left out: their gang is planned as a whole. A pod is held against each reservation in
    everything that it asks for, as the flow does it; that several draw from one node besides is not looked
    at.

    Parameters
    ----------
    ledger
        The reservations of the call.
    pods
        Whom to match.
    class_of
        Gives a pod's class, or why no node needs to be asked.
    limits
        Budget and seed of the solver.
    """
    asking: list[Pod] = []
    rows = []
    for pod in pods if ledger.open.any() else ():
        if pod.gated or is_reserve_pod(pod) or gang_name(pod.labels, pod.annotations):
            continue
        scheduling_class = class_of(pod)
        if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
            continue
        answers = (part.evaluator for part in scheduling_class.parts)
        answer = next((one for one in answers if isinstance(one, Serving)), None)
        if answer is None:
            continue
        serving = answer.serving() & scheduling_class.feasible()[ledger.row]
        if serving.any():
            asking.append(pod)
            rows.append(serving)
    if not asking:
        return MatchPlan()
    every = np.stack(rows)
    numbers = np.flatnonzero(every.any(axis=0)).tolist()
    # Objects come before pods that act as reservations and have the name of one.
    numbers.sort(key=lambda number: ledger.states[number].pod is not None)
    named: dict[str, int] = {}
    for number in numbers:
        named.setdefault(ledger.states[number].reservation.name, number)
    numbers = sorted(named.values())
    nodes = {node.name: node for node in ledger.workspace.layout.nodes}
    states = [ledger.states[number] for number in numbers]
    found = assign_reservations(asking, states, nodes, eligible=every[:, numbers], limits=limits)
    meant = {pod: named[name] for pod, name in found.reservations.items()}
    return MatchPlan(meant, frozenset(found.unassigned))
