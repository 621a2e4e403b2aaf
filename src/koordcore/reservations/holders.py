"""Pods that stand for reservations on the nodes where these hold room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from koordcore._record import alike_but_for
from koordcore._vector import Table, Vector, gone_and_come
from koordcore.errors import ModelError
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation import (
    RESERVATION_ALLOCATED,
    RESERVATION_NAME,
    allocated_reservation,
    is_operating_pod,
)
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.known import known_reservations
from koordcore.reservations.state import reserve_pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import Change, NodeAdded, NodeRemoved, NodeReplaced
from koordcore.snapshot.following import (
    apart,
    changed_records,
    changed_states,
    derived,
    know,
    state_at,
)
from koordcore.snapshot.forking import with_pods

_STATUS: Final = frozenset({"status"})
_USE: Final = frozenset({"allocated", "current_owners", "conditions"})
"""What a status says beside what is held."""
ReservationPair: TypeAlias = "tuple[Reservation | None, Reservation | None]"
"""A reservation before and after; ``None`` where it was not, or is no longer, there."""


def with_holders(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Put a pod on its node for every reservation that holds room there."""
    if not snapshot.has(Reservation):
        return snapshot
    return derived(snapshot, _held, held_again, replaced=True)


def check_stand_ins(snapshot: ClusterSnapshot) -> None:
    """Make sure that nothing has the key of the pod that stands for a reservation.

    Raises
    ------
    ModelError
        Names the reservation, and the pod or reservation whose key is the same.
    """
    derived(snapshot, _stand_ins, _stand_ins_again, replaced=True)


class _StandIns(NamedTuple):
    """Names of reservations by the keys of the pods that stand for them, and the pods that wait."""

    names: Table[PodKey, str]
    pending: tuple[Pod, ...]


def _stand_ins(snapshot: ClusterSnapshot) -> _StandIns:
    names: dict[PodKey, str] = {}
    for one in snapshot.of(Reservation):
        if one.over:
            continue
        key = one.pod_key
        other = names.setdefault(key, one.name)
        if other is not one.name:
            raise ModelError(f"reservation {one.name}: {key.name} is the uid of reservation {other} too")
        pod = snapshot.pod(key)
        if pod is not None and not is_reserve_pod(pod):
            raise ModelError(f"reservation {one.name}: {key.name} is the name of pod {key} too")
    return _StandIns(Table(names), snapshot.pending)


def _stand_ins_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], known: _StandIns, snapshot: ClusterSnapshot
) -> _StandIns:
    """Look at reservations and pods that came; what goes wrong is told as of all of them."""
    names = known.names
    pairs = changed_records(snapshot, records)
    gone = {old.pod_key for old, _ in pairs if isinstance(old, Reservation) and not old.over}
    come = [(new.pod_key, new.name) for _, new in pairs if isinstance(new, Reservation) and not new.over]
    if len({*dict(come)}) < len(come) or any(key in names and key not in gone for key, _ in come):
        return _stand_ins(snapshot)
    if gone or come:
        names = names.changed(gone, dict(come))
    pods = [pod for key, _ in come if (pod := snapshot.pod(key)) is not None]
    for old, new in changed_states(snapshot, nodes):
        there = {*map(id, () if old is None else old.pods)}
        pods += [pod for pod in (() if new is None else new.pods) if id(pod) not in there]
    pods += gone_and_come(known.pending, snapshot.pending)[1]
    if any(pod.key in names and not is_reserve_pod(pod) for pod in pods):
        return _stand_ins(snapshot)
    return _StandIns(names, snapshot.pending)


def stands_as(snapshot: ClusterSnapshot, held: ClusterSnapshot) -> None:
    """Let :func:`with_holders` give what is known already to be a snapshot with those pods."""
    know(snapshot, _held, held)


def same_holders(held: ClusterSnapshot, states: Iterable[NodeState]) -> bool:
    """Tell whether the same pods stand for reservations on some nodes as in a snapshot with those pods."""

    def on(state: NodeState) -> list[int]:
        return [id(pod) for pod in state.pods if is_reserve_pod(pod)]

    return all(on(held.node(state.name)) == on(state) for state in states)


def _held(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    check_stand_ins(snapshot)
    holders = [
        reserve_pod(one)
        for one in snapshot.of(Reservation)
        if one.active and one.status.node_name in snapshot.layout.row_of
    ]
    held = snapshot.assume(*holders) if holders else with_pods(snapshot, {}, snapshot.pending, ())
    return apart(held)


def held_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    held: ClusterSnapshot,
    snapshot: ClusterSnapshot,
) -> ClusterSnapshot:
    """Do the same, given what it came to for a snapshot that had some of the nodes and objects."""
    changes = reservation_changes(records, snapshot)
    if any(old is None or new is None or old.uid != new.uid for old, new in changes):
        check_stand_ins(snapshot)
    rows = snapshot.layout.row_of
    touched = {one.status.node_name for pair in changes for one in pair if one is not None}
    touched = {name for name in touched if name in rows}
    others: list[Change] = []
    anew = {new.name for old, new in changes if new and not (old and held_alike(old, new))}

    def holders(name: str) -> Iterator[Pod]:
        ones = known_reservations(snapshot).on.get(name)
        if not ones:
            return
        # Who stands for what holds the same is the same object, so that nobody looks at it again.
        row = held.layout.row_of.get(name)
        there = () if row is None else state_at(held, row).pods
        known = {pod.key: pod for pod in there if is_reserve_pod(pod)}
        for one in ones:
            yield reserve_pod(one) if one.name in anew else known.get(one.pod_key) or reserve_pod(one)

    def there(state: NodeState) -> tuple[Pod, ...]:
        return (*state.pods, *holders(state.name))

    for old, new in changed_states(snapshot, nodes):
        if new is None:
            others += [NodeRemoved(old.name)] if old is not None else []
            continue
        # Pods come afterwards, all at once: nobody who moved is in two places in between.
        touched.add(new.name)
        if old is None:
            others.append(NodeAdded(new.node))
        elif old.node is not new.node:
            others.append(NodeReplaced(new.node))
    pods = {name: there(snapshot.node(name)) for name in sorted(touched)}
    if others:
        held = held.apply(*others)
    return with_pods(held, pods, snapshot.pending, changed_records(snapshot, records))


def held_alike(old: Reservation, new: Reservation) -> bool:
    """Tell whether the pods that stand for two versions of a reservation are equal."""
    return alike_but_for(_STATUS, old, new) and alike_but_for(_USE, old.status, new.status)


def reservation_changes(records: Vector[ClusterRecord], snapshot: ClusterSnapshot) -> list[ReservationPair]:
    """Give the reservations that are not the same objects, before and after."""
    found = []
    for old, new in changed_records(snapshot, records):
        before = old if isinstance(old, Reservation) else None
        after = new if isinstance(new, Reservation) else None
        if before is not None or after is not None:
            found.append((before, after))
    return found


def ended_holders(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> frozenset[PodKey]:
    """Give the pods that stand for reservations which are over, because they were to be used once and are."""
    there = {pod.key: pod for pod in pods}
    used = holders_by_user(there.values())
    named = ((key, there[key].annotations.get(RESERVATION_NAME, "")) for key in used)
    found = ((key, snapshot.find(Reservation, name)) for key, name in named)
    return frozenset(key for key, one in found if one is not None and one.allocate_once)


def holders_by_user(pods: Iterable[Pod]) -> Mapping[PodKey, list[Pod]]:
    """Give, for each pod of a node that is or stands for a reservation, the pods of the node that use it."""
    there = [pod for pod in pods if pod.annotations or pod.labels]  # whoever has to do with any says so
    holders = [pod for pod in there if is_reserve_pod(pod) or is_operating_pod(pod)]
    if not holders:
        return {}
    users: dict[str, list[Pod]] = {}
    for pod in there:
        if RESERVATION_ALLOCATED not in pod.annotations or is_reserve_pod(pod):
            continue
        used = allocated_reservation(pod.annotations)
        if used is not None:
            users.setdefault(used.uid or used.name, []).append(pod)
    named = {pod.key: pod.uid or pod.annotations.get(RESERVATION_NAME, pod.name) for pod in holders}
    return {key: users[name] for key, name in named.items() if name in users}
