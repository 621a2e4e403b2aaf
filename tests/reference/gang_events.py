"""Reducers of the gang state for what the loop never sees: pods and PodGroups that change and go."""

from __future__ import annotations

import attrs

from koordcore.allocators.gang.events import (
    _configure,
    _first_pending,
    _put,
    _stop_waiting_if_empty,
    _upsert,
    drop_representative,
    stop_waiting,
    without_permits,
)
from koordcore.allocators.gang.state import (
    GangRecord,
    GangState,
    Step,
    worth_requeue,
)
from koordcore.model.gangs import Gang, GangPod, GangSource


def update_pod(state: GangState, pod: GangPod) -> Step:
    """A pod changed; a terminated one keeps what is known of it."""
    if pod.terminated:
        return Step(state=state)
    return Step(state=_upsert(state, pod))


def delete_pod(state: GangState, pod: GangPod) -> Step:
    """A pod is gone: it leaves every set; an annotation gang goes with its last pod."""
    state = without_permits(state, (pod.key,))
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return Step(state=state)
    record = attrs.evolve(
        record,
        children=record.children.delete(pod.key) if pod.key in record.children else record.children,
        pending=record.pending - {pod.key},
        waiting=record.waiting.delete(pod.key) if pod.key in record.waiting else record.waiting,
        bound=record.bound - {pod.key},
    )
    state = _put(state, record)
    state = drop_representative(state, record, pod.key)
    state = _stop_waiting_if_empty(state, record)
    if record.gang.source is GangSource.POD_ANNOTATION and not record.children:
        state = _remove_gang(state, record)
    return Step(state=state)


def update_pod_group(state: GangState, gang: Gang) -> Step:
    """A PodGroup changed; ignored when its gang is unknown."""
    before = state.gangs.get(gang.id)
    if before is None:
        return Step(state=state)
    state = _configure(state, gang)
    record = state.gangs[gang.id]
    risen = worth_requeue(record) and not worth_requeue(before)
    return Step(state=state, activate=_first_pending(record) if risen else ())


def delete_pod_group(state: GangState, gang_id: str) -> Step:
    """A PodGroup is gone, and its gang with it, members or not."""
    record = state.gangs.get(gang_id)
    return Step(state=state if record is None else _remove_gang(state, record))


def _remove_gang(state: GangState, record: GangRecord) -> GangState:
    gang_id, group = record.gang.id, record.gang.group
    state = stop_waiting(state, record, {gang_id})
    gangs = state.gangs.delete(gang_id)
    groups = state.groups
    if record.private is None and not any(member in gangs for member in group):
        groups = groups.delete(record.gang.group_id) if record.gang.group_id in groups else groups
    return attrs.evolve(state, gangs=gangs, groups=groups)
