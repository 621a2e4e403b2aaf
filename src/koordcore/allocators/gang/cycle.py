"""The gang cycle's verdicts: whether a member may be tried, and whether one that has a node waits or goes.

One gang group is attempted at a time. Pure functions take the state and the pod and return a
:class:`~koordcore.allocators.gang.state.Step`.
"""

from __future__ import annotations

import attrs

from koordcore.allocators.gang.events import (
    put_gang,
    put_group,
    without_permits,
)
from koordcore.allocators.gang.state import (
    LONGEST_WAIT,
    Code,
    Cycle,
    GangRecord,
    GangState,
    PermitWait,
    Step,
    basic_check,
    exempt,
    group_permitted,
)
from koordcore.model.gangs import GangPod

NO_TOPOLOGY = "no cluster network topology"


def _refuse(state: GangState, message: str, *, root_cause: bool = True) -> Step:
    return Step(state=state, code=Code.UNRESOLVABLE, message=message, root_cause=root_cause)


def _known(state: GangState, pod: GangPod) -> GangRecord | str:
    """Find the configured gang of a pod, or say why there is none."""
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return f"can't find gang, gangName: {pod.gang_id}, podName: {pod.key}"
    if not record.gang.initialised:
        return f"gang has not init, gangName: {pod.gang_id}, podName: {pod.key}"
    return record


def before_pre_filter(state: GangState, pod: GangPod, *, topology_known: bool = True) -> Step:
    """Open a pod's turn, and with it the cycle of its group.

    ``topology_known`` tells whether there is a topology tree, which a gang with a topology spec needs. A pod
    of a group other than the one under way neither joins that cycle nor shares its failure.
    """
    if not pod.gang_id:
        return Step(state=state)
    record = _known(state, pod)
    if isinstance(record, str):
        return _refuse(state, record)
    if exempt(state, record):
        return Step(state=state)
    if hopeless := basic_check(state, record, pod.key):
        return _refuse(state, hopeless)
    cycle = state.cycle
    if cycle is not None:
        if cycle.failed_message and pod.gang_id in cycle.group:
            return _refuse(state, cycle.failed_message, root_cause=False)
        return Step(state=state)
    if record.gang.topology_spec is not None and not topology_known:
        return _refuse(state, NO_TOPOLOGY)
    state = put_group(state, record, attrs.evolve(state.group_of(record), representative=""))
    opened = Cycle(
        first_pod=pod.key,
        gang_id=pod.gang_id,
        group=record.gang.group,
        attempted=frozenset({pod.key}),
    )
    return Step(state=attrs.evolve(state, cycle=opened))


def permit(state: GangState, pod: GangPod, *, now: int) -> Step:
    """Decide about a pod that has found a node: wait for the others, or go together with them.

    ``now`` is the caller's clock in nanoseconds; the wait ends at ``now`` plus the gang's waiting time, 15
    minutes at most.
    """
    if not pod.gang_id:
        return Step(state=state)
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return Step(state=state, code=Code.UNSCHEDULABLE, message="Gang not found")
    record = attrs.evolve(
        record, waiting=record.waiting.set(pod.key, pod.uid), pending=record.pending - {pod.key}
    )
    state = put_gang(state, record)
    group = state.group_of(record)
    if not group_permitted(state, record):
        wait = record.gang.wait_time
        waiting_gangs = group.waiting_gangs
        if record.gang.initialised:
            waiting_gangs |= frozenset(record.gang.group)
        state = put_group(state, record, attrs.evolve(group, waiting_gangs=waiting_gangs))
        waiting = PermitWait(pod.gang_id, now + min(wait, LONGEST_WAIT))
        state = attrs.evolve(state, permits=state.permits.set(pod.key, waiting))
        return Step(state=state, code=Code.WAIT, wait=wait)
    if not group.binding_members:
        members = frozenset(
            uid for member in record.gang.group for uid in state.gangs[member].waiting.values()
        )
        state = put_group(state, record, attrs.evolve(group, binding_members=members))
    released = tuple(key for key in state.waiting_of(record.gang.group) if key != pod.key)
    state = without_permits(state, (*released, pod.key))
    if state.cycle is not None and pod.gang_id in state.cycle.group:
        state = attrs.evolve(state, cycle=None)
    return Step(state=state, released=released)
