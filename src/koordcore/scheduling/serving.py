"""When its turn brings each pod and gang a place: the queue served again whenever somebody leaves.

What :func:`~koordcore.scheduling.backfilling.earliest_start` says of one job holds while everybody else
keeps waiting. Here nobody keeps waiting: at every end that is known the whole queue is asked again, in its
order, by ``schedule`` itself, and who gets a place runs for as long as it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.decisions import Bound, PodDecision, Waiting
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey, keyed
from koordcore.model.policy import Policy
from koordcore.protocol.expectations import end_after
from koordcore.scheduling.backfilling import cluster_after, ends_after
from koordcore.scheduling.cycle import queue_order, waiting_pods
from koordcore.scheduling.entry import schedule
from koordcore.scheduling.gang_groups import JobTable
from koordcore.snapshot import ClusterSnapshot

MOST_ROUNDS: Final = 256
"""How many times the queue is asked; where there are many ends it would take long otherwise."""


@record(kw_only=True)
class QueuedStart:
    """A pod or a group of gangs in the queue.

    Parameters
    ----------
    name
        ``namespace/name`` of the pod, or of its gangs, joined by commas.
    pods
        Who waits, by key.
    start
        When the first of them gets a place; ``None`` where no known end brings one.
    nodes
        Where they go then.
    message
        Why not, of the first pod that has no place at the last moment that was looked at.
    not_before
        That moment, where later ones were not looked at.
    """

    name: str
    pods: tuple[PodKey, ...]
    start: datetime | None = None
    nodes: immutabledict[PodKey, str] = attrs.field(default=EMPTY, converter=immutabledict)
    message: str = ""
    not_before: datetime | None = None


def queue_units(snapshot: ClusterSnapshot, policy: Policy = Policy()) -> tuple[QueuedStart, ...]:
    """Give the pods and gangs that wait for this policy in the order in which they have their turn.

    Parameters
    ----------
    snapshot, policy
        As for :func:`koordcore.schedule`.
    """
    ours = [
        pod for pod in waiting_pods(snapshot, policy) if policy.profile_of(pod.scheduler_name) is not None
    ]
    units = []
    for turn in JobTable(snapshot, policy).turns(queue_order(ours)):
        name = str(turn.key) if isinstance(turn, Pod) else turn.name
        pods = (turn,) if isinstance(turn, Pod) else turn.pods
        units.append(QueuedStart(name=name, pods=tuple(pod.key for pod in pods)))
    return tuple(units)


def queue_starts(
    snapshot: ClusterSnapshot,
    ends: Mapping[PodKey, datetime] | Mapping[str, datetime],
    durations: Mapping[PodKey, timedelta] | Mapping[str, timedelta],
    *,
    now: datetime,
    policy: Policy = Policy(),
    until: str = "",
    rounds: int = MOST_ROUNDS,
    progress: Callable[[int], None] | None = None,
) -> tuple[QueuedStart, ...]:
    """Serve the queue now and at every known end, as ``schedule`` would, and say who starts when.

    Nobody is preempted, nobody new comes, and room is held for nobody: a large job waits while small ones
    take what comes free, as in a cluster that reserves nothing for it.

    Parameters
    ----------
    snapshot
        The cluster now.
    ends
        When running pods will be gone, by key or ``namespace/name``; one that is not named stays for ever.
    durations
        How long pods that wait will run, by the same; one that is not named stays for ever.
    now, policy
        As for :func:`koordcore.schedule`.
    until
        Stop once the unit of this name has started; those behind it may then have no start.
    rounds
        How many moments are looked at.
    progress
        Called after each moment with how many have been looked at.

    Returns
    -------
    tuple of QueuedStart
        In queue order.
    """
    units = queue_units(snapshot, policy)
    asked = {unit.name: unit for unit in units}
    unit_of = {key: unit.name for unit in units for key in unit.pods}
    known, lasting, moment, current = keyed(ends), keyed(durations), now, snapshot
    for number in range(rounds):
        result = schedule(current, policy=policy, now=now)
        current = result.snapshot
        for one in result.decisions:
            unit = asked.get(unit_of.get(one.pod, ""))
            if unit is None or unit.start not in (None, moment):
                continue
            if isinstance(one, Bound):
                nodes = {**unit.nodes, one.pod: one.node}
                asked[unit.name] = attrs.evolve(unit, start=moment, nodes=nodes, message="")
            elif unit.start is None and one.pod == unit.pods[0]:
                asked[unit.name] = attrs.evolve(unit, message=_why(one))
        known |= {
            one.pod: end
            for one in result.bound
            if one.pod not in known and (end := end_after(moment, lasting.get(one.pod))) is not None
        }
        if progress is not None:
            progress(number + 1)
        waiting = [unit for unit in asked.values() if unit.start is None]
        later = ends_after(current, known, moment)
        if not waiting or not later or (until in asked and asked[until].start is not None):
            break
        moment = later[0]
        current = cluster_after(current, known, moment)
    else:  # there are more ends
        asked |= {
            unit.name: attrs.evolve(unit, not_before=moment) for unit in asked.values() if unit.start is None
        }
    return tuple(asked[unit.name] for unit in units)


def _why(decision: PodDecision) -> str:
    return decision.reason if isinstance(decision, Waiting) else getattr(decision, "message", "")
