"""The reference's gang cycle, step by step: who may be tried, whose turn is next, who is given up.

    pre_enqueue -> before_pre_filter -> (filter, score) -> permit -> post_bind
                          ^                   | fails         | unreserve, timeout
                          +--- next_pod <-----+ after_post_filter

It has the documented intent for NonStrict gangs: a member that fails leaves the others waiting, and the rest
still gets its turn. ``before_pre_filter`` and ``permit`` are the library's own.
"""

from __future__ import annotations

import attrs

from koordcore.allocators.gang.cycle import _known, _refuse
from koordcore.allocators.gang.events import (
    drop_representative,
    put_gang,
    put_group,
    stop_waiting,
    without_permits,
)
from koordcore.allocators.gang.state import (
    Cycle,
    GangState,
    Step,
    basic_check,
    exempt,
)
from koordcore.model.gangs import GangMode, GangPod

REJECT_TAG = "JobRejectPlugin"
"""Who rejects: written before the reason of every rejection."""


def pre_enqueue(state: GangState, pod: GangPod) -> Step:
    """Decide whether a pod may enter the active queue; one pod stands there for its whole group."""
    if not pod.gang_id:
        return Step(state=state)
    record = _known(state, pod)
    if isinstance(record, str):
        return _refuse(state, record)
    if exempt(state, record):
        return Step(state=state)
    if hopeless := basic_check(state, record, pod.key):
        return _refuse(drop_representative(state, record, pod.key), hopeless)
    group_id, cycle = record.gang.group_id, state.cycle
    if cycle is not None and cycle.group_id == group_id and pod.key not in cycle.attempted:
        return _refuse(state, f"gangGroup {group_id} is scheduling and this pod has not been attempted")
    if pod.key not in record.pending:
        return _refuse(state, f"pod {pod.key} is not exists in gangCache")
    group = state.group_of(record)
    if group.representative not in ("", pod.key):
        return _refuse(
            state, f"representative pod {group.representative} of gangGroupID {group_id} already exists"
        )
    return Step(state=put_group(state, record, attrs.evolve(group, representative=pod.key)))


def next_pod(state: GangState) -> Step:
    """Choose whose turn is next: gangs in the order of their ids, members in the order of their keys.

    When nobody is left the cycle ends, and members of Strict gangs that still wait are given up.
    """
    cycle = state.cycle
    if cycle is None:
        return Step(state=state)
    if cycle.gang_id not in state.gangs:
        return _end_cycle(state, state.waiting_of(cycle.group), "gang is nil, may be already deleted")
    for gang_id in cycle.group:
        record = state.gangs.get(gang_id)
        untried = record.pending - cycle.attempted if record is not None else frozenset()
        if untried:
            pod = min(untried)
            after = attrs.evolve(cycle, attempted=cycle.attempted | {pod})
            return Step(state=attrs.evolve(state, cycle=after), pod=pod)
    strict = [gang_id for gang_id in cycle.group if not _non_strict(state, gang_id)]
    return _end_cycle(state, state.waiting_of(strict), "all pending pods is already been attempted")


def _non_strict(state: GangState, gang_id: str) -> bool:
    record = state.gangs.get(gang_id)
    return record is not None and record.gang.mode is GangMode.NON_STRICT


def _end_cycle(state: GangState, rejected: tuple[str, ...], reason: str) -> Step:
    state = without_permits(attrs.evolve(state, cycle=None), rejected)
    return Step(state=state, rejected=rejected, reject_reason=reason if rejected else "")


def timeout(state: GangState, *, now: int) -> Step:
    """End the wait of every pod whose deadline has come (nanoseconds of the caller's clock).

    Each of them is then to be unreserved.
    """
    due = sorted((wait.deadline, key) for key, wait in state.permits.items() if wait.deadline <= now)
    timed_out = tuple(key for _, key in due)
    return Step(state=without_permits(state, timed_out), timed_out=timed_out)


def unreserve(state: GangState, pod: GangPod) -> Step:
    """Take a pod's reserved place back; a Strict gang then gives up everyone who waits."""
    state = without_permits(state, (pod.key,))
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return Step(state=state)
    if pod.key in record.waiting:
        pending = record.pending | {pod.key} if pod.key in record.children else record.pending
        record = attrs.evolve(record, waiting=record.waiting.delete(pod.key), pending=pending)
        state = put_gang(state, record)
        if not record.waiting:
            state = stop_waiting(state, record, {pod.gang_id})
    record = state.gangs[pod.gang_id]
    if exempt(state, record) or record.gang.mode is not GangMode.STRICT:
        return Step(state=state)
    rejected = state.waiting_of(record.gang.group)
    if not rejected:
        return Step(state=state)
    name = pod.key.partition("/")[2]
    reason = f'Gang "{pod.gang_id}" gets rejected due to Pod "{name}" in Unreserve'
    return Step(state=without_permits(state, rejected), rejected=rejected, reject_reason=reason)


def after_post_filter(
    state: GangState, pod: GangPod, fit_error: str, *, preemption_message: str = ""
) -> Step:
    """Draw the consequences of a pod that found no node.

    ``fit_error`` says why; ``preemption_message`` is what a preemption attempt answered. The step's message
    is what the pod is told.
    """
    if not pod.gang_id:
        return Step(state=state)
    record = state.gangs.get(pod.gang_id)
    if record is None:
        name = pod.gang_id.partition("/")[2]
        return Step(state=state, message=f'Pod "{pod.key}" cannot find Gang "{name}"')
    if exempt(state, record):
        return Step(state=state)
    group, strict = record.gang.group, record.gang.mode is GangMode.STRICT
    waiting = state.waiting_of(group)
    cycle = state.cycle if state.cycle is not None and pod.gang_id in state.cycle.group else None
    patched: tuple[str, ...] = ()
    reason = (
        f'GangGroup "{record.gang.group_id}" gets rejected due to member pod "{pod.key}" is unschedulable'
    )
    if cycle is not None:
        root_cause = not cycle.failed_message
        reason = cycle.failed_message or (
            f'GangGroup "{cycle.group_id}" gets rejected due to member Pod "{pod.key}" is unschedulable '
            f'with reason "{fit_error}", alreadyWaitForBound: {len(waiting)}'
        )
        if strict:
            cycle = attrs.evolve(cycle, failed_message=reason)
        if root_cause and not cycle.preemption_message:
            cycle = attrs.evolve(cycle, preemption_message=preemption_message)
        if not root_cause and not cycle.siblings_patched:
            patched = _untried(state, cycle, pod.key)
            cycle = attrs.evolve(cycle, siblings_patched=True)
        state = attrs.evolve(state, cycle=cycle)
    if not strict:
        return Step(state=state, patched=patched)
    state = stop_waiting(state, record, state.group_of(record).waiting_gangs)
    return Step(
        state=without_permits(state, waiting),
        message=f'Gang "{pod.gang_id}" gets rejected due to pod is unschedulable',
        rejected=waiting,
        reject_reason=reason if waiting else "",
        patched=patched,
    )


def _untried(state: GangState, cycle: Cycle, current: str) -> tuple[str, ...]:
    """Members of the group that are pending and have had no turn in this cycle."""
    pending = (state.gangs[gang_id].pending for gang_id in cycle.group if gang_id in state.gangs)
    return tuple(sorted(frozenset[str]().union(*pending) - cycle.attempted - {current}))


def binding_group(state: GangState, pod: GangPod) -> tuple[tuple[str, ...], int] | None:
    """Gang group of a pod about to be bound, and how many members started together.

    None when the pod was not among them or started alone.
    """
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return None
    members = state.group_of(record).binding_members
    if len(members) < 2 or pod.uid not in members:
        return None
    return record.gang.group, len(members)
