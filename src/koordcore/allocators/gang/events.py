"""Reducers of the gang state: what pods and PodGroups coming, changing and going mean.

Each takes the state before and returns a :class:`Step` with the state after; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from immutabledict import immutabledict

from koordcore.allocators.gang.state import (
    GangRecord,
    GangState,
    GroupRecord,
    Step,
    worth_requeue,
)
from koordcore.model.gangs import Gang, GangPod


def add_pod(state: GangState, pod: GangPod) -> Step:
    """A pod is seen for the first time."""
    state = _upsert(state, pod)
    record = state.gangs.get(pod.gang_id)
    if record is None or pod.node_name or not worth_requeue(record):
        return Step(state=state)
    return Step(state=state, activate=(pod.key,))


def add_pods(state: GangState, pods: Sequence[GangPod]) -> GangState:
    """Several pods of one gang are seen for the first time, one after the other.

    As soon as the gang is configured, all that the others bring is put together at once.
    """
    for number, pod in enumerate(pods):
        record = state.gangs.get(pod.gang_id)
        if record is not None and record.gang.initialised and record.private is None:
            return _join(state, record, pods[number:])
        state = add_pod(state, pod).state
    return state


def _join(state: GangState, record: GangRecord, pods: Sequence[GangPod]) -> GangState:
    """Take in pods of a gang that none of them configures."""
    bound = frozenset(pod.key for pod in pods if pod.node_name)
    left = {key: uid for key, uid in record.waiting.items() if key not in bound}
    asking = (pod.key for pod in pods if not pod.node_name and pod.key not in left)
    record = attrs.evolve(
        record,
        children=immutabledict({**record.children, **{pod.key: pod.uid for pod in pods}}),
        pending=(record.pending - bound).union(asking),
        waiting=record.waiting if len(left) == len(record.waiting) else immutabledict(left),
        bound=record.bound | bound,
    )
    state = _put(state, record)
    if not bound:
        return state
    group = state.group_of(record)
    kept = "" if group.representative in bound else group.representative
    state = put_group(state, record, attrs.evolve(group, representative=kept, satisfied=True))
    return _stop_waiting_if_empty(state, record)


def post_bind(state: GangState, pod: GangPod) -> Step:
    """A pod got its node: its group is satisfied for good."""
    return Step(state=_bind(without_permits(state, (pod.key,)), pod))


def add_pod_group(state: GangState, gang: Gang) -> Step:
    """A PodGroup appears: it configures its gang anew, whatever did so before."""
    before = state.gangs.get(gang.id)
    state = _configure(state, gang)
    record = state.gangs[gang.id]
    return Step(
        state=state, activate=_first_pending(record) if before is None or worth_requeue(record) else ()
    )


def _first_pending(record: GangRecord) -> tuple[str, ...]:
    return (min(record.pending),) if record.pending and worth_requeue(record) else ()


def _upsert(state: GangState, pod: GangPod) -> GangState:
    if not pod.gang_id:
        return state
    record = state.gangs.get(pod.gang_id) or GangRecord(gang=Gang(id=pod.gang_id))
    if not pod.by_crd:
        if pod.config is not None and not record.gang.initialised:
            record = attrs.evolve(record, gang=pod.config)
        state = _attach(state, record, record.gang.group_id)
        record = state.gangs[pod.gang_id]
    record = attrs.evolve(record, children=record.children.set(pod.key, pod.uid))
    if not pod.node_name:
        if pod.key not in record.waiting:
            record = attrs.evolve(record, pending=record.pending | {pod.key})
        return _put(state, record)
    return _bind(_put(state, record), pod)


def _bind(state: GangState, pod: GangPod) -> GangState:
    record = state.gangs.get(pod.gang_id)
    if record is None:
        return state
    record = attrs.evolve(
        record,
        pending=record.pending - {pod.key},
        waiting=record.waiting.delete(pod.key) if pod.key in record.waiting else record.waiting,
        bound=record.bound | {pod.key},
    )
    state = _put(state, record)
    state = drop_representative(state, record, pod.key)
    state = put_group(state, record, attrs.evolve(state.group_of(record), satisfied=True))
    return _stop_waiting_if_empty(state, state.gangs[pod.gang_id])


def _configure(state: GangState, gang: Gang) -> GangState:
    """Take a PodGroup's configuration; the shared record follows the group id."""
    before = state.gangs.get(gang.id)
    if before is None:
        return _attach(state, GangRecord(gang=gang), gang.group_id)
    old_id = before.gang.group_id
    state = _attach(state, attrs.evolve(before, gang=gang), gang.group_id)
    if before.private is None and old_id != gang.group_id:
        used = any(r.private is None and r.gang.group_id == old_id for r in state.gangs.values())
        if not used and old_id in state.groups:
            state = attrs.evolve(state, groups=state.groups.delete(old_id))
    return state


def _attach(state: GangState, record: GangRecord, group_id: str) -> GangState:
    """Give a gang the record that its group shares; a member bound before counts for the group too."""
    private = record.private or GroupRecord()
    shared = state.groups.get(group_id, GroupRecord())
    satisfied = shared.satisfied or private.satisfied or bool(record.bound)
    merged = attrs.evolve(
        shared,
        satisfied=satisfied,
        representative=shared.representative or private.representative,
        waiting_gangs=shared.waiting_gangs | private.waiting_gangs,
        binding_members=shared.binding_members or private.binding_members,
    )
    state = attrs.evolve(state, groups=state.groups.set(group_id, merged))
    return _put(state, attrs.evolve(record, private=None))


def _stop_waiting_if_empty(state: GangState, record: GangRecord) -> GangState:
    return state if record.waiting else stop_waiting(state, record, {record.gang.id})


def _put(state: GangState, record: GangRecord) -> GangState:
    return attrs.evolve(state, gangs=state.gangs.set(record.gang.id, record))


put_gang = _put


def put_group(state: GangState, record: GangRecord, group: GroupRecord) -> GangState:
    """Store what a gang's group shares, where the gang keeps it."""
    if record.private is not None:
        return _put(state, attrs.evolve(record, private=group))
    return attrs.evolve(state, groups=state.groups.set(record.gang.group_id, group))


def drop_representative(state: GangState, record: GangRecord, pod: str) -> GangState:
    """Clear the group's representative if it is this pod."""
    record = state.gangs[record.gang.id]
    group = state.group_of(record)
    if group.representative != pod or not pod:
        return state
    return put_group(state, record, attrs.evolve(group, representative=""))


def stop_waiting(state: GangState, record: GangRecord, gang_ids: Iterable[str]) -> GangState:
    """Take gangs out of the group's waiting ones; with the last one the binding members are forgotten."""
    record = state.gangs[record.gang.id]
    group = state.group_of(record)
    left = group.waiting_gangs - frozenset(gang_ids)
    members = group.binding_members if left else frozenset[str]()
    if left == group.waiting_gangs and members == group.binding_members:
        return state
    return put_group(state, record, attrs.evolve(group, waiting_gangs=left, binding_members=members))


def without_permits(state: GangState, keys: Iterable[str]) -> GangState:
    """Forget that pods wait at Permit."""
    gone = frozenset(keys)
    if not any(key in state.permits for key in gone):
        return state
    left = immutabledict((key, wait) for key, wait in state.permits.items() if key not in gone)
    return attrs.evolve(state, permits=left)
