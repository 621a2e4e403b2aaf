"""How the reservations of a snapshot stand before a call begins: what a ledger starts from.

To work that out for thousands of reservations takes a while, and from one call to the next little changes:
a snapshot that comes of an earlier one looks anew only at the nodes that are not the same.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Final, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, ClusterLayout, IntMatrix, IntVector, with_resources
from koordcore._record import alike_but_for, record
from koordcore._vector import Vector
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, MEMORY, PODS
from koordcore.protocol.reservation import (
    OPERATING_MODE,
    is_operating_pod,
    operating_reservation,
    reservation_order,
)
from koordcore.reservations.holders import ReservationPair, reservation_changes
from koordcore.reservations.state import (
    ReservationState,
    operating_state,
    owners_of,
    reservation_state,
    used_reservations,
)
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import (
    changed_rows,
    node_values,
    per_node,
    state_at,
)

UNLIMITED: Final = 2**62
Back: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
"""Amounts that count twice, for filters and for scores."""
NOTHING: Final[Back] = ({}, {})
_COLUMNS: Final = ("lift", "lift_scored", "left", "account", "capacity", "used")
_OF_STATUS: Final = frozenset({"status", "annotations"})


@per_node()
def operating_pods(snapshot: ClusterSnapshot, state: NodeState) -> tuple[Pod, ...]:
    """Give the pods of one node that act as reservations."""
    del snapshot
    marked = [pod for pod in state.pods if OPERATING_MODE in pod.labels]  # among many pods, quickly
    return tuple(pod for pod in marked if is_operating_pod(pod) and not pod.finished)


# --- columns ------------------------------------------------------------------------------------------------


class Columns:
    """What reservations hold and lend, by number.

    Attributes
    ----------
    lift, lift_scored
        ``(R, M)``: what its holder alone counts on its node, for filters and for scores.
    left
        ``(R, M)``: what its users may still draw.
    account
        ``(R, M)``: what a Restricted one allows yet; without limit for what it keeps no account of.
    capacity, used
        ``(R, M)``: what it was granted, and what its users draw of what it keeps account of.
    """

    def __init__(self, layout: ClusterLayout, number: int) -> None:
        self._index = layout.index
        shape = (len(layout.resources), number)
        self.lift: IntMatrix = np.zeros(shape, np.int64)
        self.lift_scored: IntMatrix = np.zeros(shape, np.int64)
        self.left: IntMatrix = np.zeros(shape, np.int64)
        self.account: IntMatrix = np.full(shape, UNLIMITED, np.int64)
        self.capacity: IntMatrix = np.zeros(shape, np.int64)
        self.used: IntMatrix = np.zeros(shape, np.int64)

    def widen(self, layout: ClusterLayout, new: Collection[str]) -> None:
        """Take in that more resources are counted; who says anything of them is to be written anew."""
        self._index = layout.index
        for name in _COLUMNS:
            fill = UNLIMITED if name == "account" else 0
            setattr(self, name, with_resources(getattr(self, name), layout, new, fill))

    def copy(self) -> Columns:
        """Give columns of their own with the same values."""
        made = copy(self)
        for name in _COLUMNS:
            setattr(made, name, getattr(self, name).copy())
        return made

    def take(self, here: Sequence[int], other: Columns, there: Sequence[int]) -> None:
        """Take over the columns of some reservations from where these have other numbers."""
        for name in _COLUMNS:
            getattr(self, name)[:, here] = getattr(other, name)[:, there]

    def write(self, number: int, state: ReservationState, holder: Pod, back: Back) -> None:
        """Work the columns of one reservation out."""
        self._put(self.lift, number, holder.requests, back[0])
        self._put(self.lift_scored, number, holder.scored_requests, back[1])
        # What stands for an object is no pod; one that acts as a reservation stays beside its user.
        slots = int(state.pod is None) - back[0].get(PODS, 0)
        self.lift[PODS_ROW, number] = self.lift_scored[PODS_ROW, number] = slots
        self._put(self.capacity, number, state.allocatable)
        allocated = state.allocated if state.assigned else {}
        self._put(self.used, number, allocated)
        untouched = not state.assigned and not state.reserved
        self._put(self.left, number, state.allocatable if untouched else state.available)
        for name in state.names if state.restricted else ():
            resource = self._index.get(name)
            if resource is not None and name != PODS:
                kept = state.reserved.get(name, 0) + allocated.get(name, 0)
                self.account[resource, number] = state.allocatable[name] - kept
        if state.restricted and PODS in state.allocatable:
            self.account[PODS_ROW, number] = state.allocatable[PODS] - len(state.assigned)

    def _put(
        self, matrix: IntMatrix, number: int, amounts: Mapping[str, int], less: Mapping[str, int] = NOTHING[0]
    ) -> None:
        matrix[:, number] = 0
        for sign, part in ((1, amounts), (-1, less)):
            for name, amount in part.items():
                resource = self._index.get(name)
                if resource is not None:
                    matrix[resource, number] += sign * amount


def counted_twice(state: ReservationState, holder: Pod) -> Back:
    """Give what a reservation and its users count together more than once on its node."""
    if state.ended:
        # It is over with its first user: at the controller's next turn only that one counts.
        slot = {PODS: 1} if state.pod is None else {}
        return {**holder.requests, **slot}, {**holder.scored_requests, **slot}
    if not state.assigned:
        return NOTHING
    return state.returned, {**state.returned, **dict(zip((CPU, MEMORY), state.scored, strict=True))}


class OwnerGroups:
    """Reservations by one label that each of their owner terms asks for, so that few are looked at."""

    def __init__(self, states: Iterable[ReservationState]) -> None:
        self._always: list[int] = []
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for number, state in enumerate(states):
            if state.unreadable:
                continue
            labels = []
            for term in state.reservation.owners:
                wanted = term.selector.match_labels if term.selector is not None else None
                labels.append(min(wanted.items()) if wanted else None)
            if None in labels:
                self._always.append(number)
            else:
                for label in dict.fromkeys(labels):
                    if label is not None:
                        self._by_label.setdefault(label, []).append(number)

    def candidates(self, pod: Pod) -> list[int]:
        """Give those that may have the pod as an owner, in order."""
        found = set(self._always)
        for label in pod.labels.items():
            found.update(self._by_label.get(label, ()))
        return sorted(found)


# --- how all stand ------------------------------------------------------------------------------------------


@record(eq=False, kw_only=True)
class ReservationColumns:
    """All reservations that are not over, and pods that act as such, in the order of their names.

    Parameters
    ----------
    states, holders
        What each offers, and the pod that holds its room.
    row, open
        ``(M,)``: its node, -1 for none; pods may be held against it.
    back
        What counts twice on its node because of its users.
    by_row
        Numbers of those on a node.
    order, named
        ``(M,)``: place in line; number of resources that are scored.
    number_of, by_uid, by_name
        Number by holder, by uid (or name), and by name for objects.
    groups, alike, by_reference
        For the search of those that a pod may use.
    over
        How many ended since all were counted; they keep their numbers and hold nothing.
    """

    states: tuple[ReservationState, ...]
    holders: tuple[Pod, ...]
    columns: Columns
    row: IntVector
    open: BoolVector
    back: tuple[Back, ...]
    by_row: Mapping[int, tuple[int, ...]]
    order: IntVector
    named: IntVector
    number_of: Mapping[PodKey, int]
    by_uid: Mapping[str, int]
    by_name: Mapping[str, int]
    groups: OwnerGroups
    alike: tuple[int, ...]
    by_reference: bool
    over: int = 0


def reservation_columns(snapshot: ClusterSnapshot) -> ReservationColumns:
    """Work out how the reservations of a snapshot with holders stand."""
    known = [one for one in snapshot.of(Reservation) if not one.over]
    acting = [pod for pods in filter(None, node_values(snapshot, operating_pods)) for pod in pods]
    users = used_reservations(snapshot.bound_pods()) if known or acting else {}
    states = [reservation_state(one, owners_of(one, users)) for one in known]
    if acting:
        views = ((pod, operating_reservation(pod)) for pod in acting)
        states += [operating_state(pod, owners_of(one, users)) for pod, one in views]
    return _numbered(snapshot, states)


def _numbered(
    snapshot: ClusterSnapshot,
    states: list[ReservationState],
    before: ReservationColumns | None = None,
    kept: Mapping[int, int] = EMPTY,
) -> ReservationColumns:
    """Give numbers to reservations, and lay out what they hold.

    Parameters
    ----------
    before, kept
        How some stood before, and still stand: by ``id`` of their states, their numbers there.
    """
    states.sort(key=lambda one: (one.reservation.name, one.reservation.namespace))
    known, layout, number = [one.reservation for one in states], snapshot.layout, len(states)
    columns = Columns(layout, number)
    row: IntVector = np.full(number, -1, np.int64)
    back = [NOTHING] * number
    holders: list[Pod] = []
    pods_on: dict[int, dict[PodKey, Pod]] = {}
    olds = [kept.get(id(state), -1) for state in states]
    if before is not None:
        there_still = [at for at, old in enumerate(olds) if old >= 0]
        stood = [old for old in olds if old >= 0]
        columns.take(there_still, before.columns, stood)
        row[there_still] = before.row[stood]
    for at, (one, state, old) in enumerate(zip(known, states, olds, strict=True)):
        if before is not None and old >= 0:
            holders.append(before.holders[old])
            back[at] = before.back[old]
            continue
        there = layout.row_of.get(one.status.node_name) if one.active else None
        holder = _holder_there(snapshot, state, there, pods_on)
        holders.append(holder)
        if there is not None:
            row[at] = there
            back[at] = counted_twice(state, holder)
        columns.write(at, state, holder, back[at])
    by_row: dict[int, list[int]] = {}
    for at, there in enumerate(row.tolist()):
        if there >= 0:
            by_row.setdefault(there, []).append(at)
    alike: dict[Hashable, int] = {}
    usable = [state.matchable for state in states]
    return ReservationColumns(
        states=tuple(states),
        holders=tuple(holders),
        columns=columns,
        row=row,
        open=(row >= 0) & np.array(usable, bool),
        back=tuple(back),
        by_row={at: tuple(numbers) for at, numbers in by_row.items()},
        order=np.array([reservation_order(one.labels) for one in known], np.int64),
        named=np.array([named_in(one) for one in states], np.int64),
        number_of={pod.key: at for at, pod in enumerate(holders)},
        by_uid={one.uid or one.name: at for at, one in enumerate(known)},
        by_name={one.name: at for at, one in enumerate(known) if states[at].pod is None},
        groups=OwnerGroups(states),
        # Reservations that a pod without a wish of its own cannot tell apart are judged once.
        alike=tuple(alike.setdefault((one.owners, one.admits_nobody), len(alike)) for one in known),
        by_reference=any(term.object is not None for one in known for term in one.owners),
    )


def _holder_there(
    snapshot: ClusterSnapshot, state: ReservationState, row: int | None, pods_on: dict[int, dict[PodKey, Pod]]
) -> Pod:
    """Give the pod that holds a reservation's room, which stands on its node already.

    ``pods_on`` remembers the pods of nodes, which may hold very many reservations.
    """
    if row is None or state.pod is not None:
        return state.holder
    if row not in pods_on:
        pods_on[row] = {pod.key: pod for pod in state_at(snapshot, row).pods}
    there = pods_on[row].get(state.reservation.pod_key)
    return there if there is not None and there.uid == state.reservation.uid else state.holder


def differs_in_status(old: Reservation, new: Reservation) -> bool:
    """Tell whether two versions of a reservation are the same but for their status and annotations."""
    return alike_but_for(_OF_STATUS, old, new)


def same_acting(states: Iterable[ReservationState], acting: Iterable[Pod]) -> bool:
    """Tell whether the states of a node are those of the pods that act as reservations there."""
    known = [state.pod for state in states if state.pod is not None]
    return sorted(known, key=attrgetter("key")) == sorted(acting, key=attrgetter("key"))


def named_in(state: ReservationState) -> int:
    """Count the resources that a reservation is scored by."""
    return sum(map(bool, state.allocatable.values()))


def stands_now(
    snapshot: ClusterSnapshot, state: ReservationState
) -> tuple[int | None, ReservationState, Pod]:
    """Work out how one reservation stands: the row of its node, its state with its users, and its holder."""
    one = state.reservation
    there = snapshot.layout.row_of.get(one.status.node_name) if one.active else None
    pods = () if there is None else state_at(snapshot, there).pods
    users = owners_of(one, used_reservations(pods))
    state = reservation_state(one, users) if state.pod is None else operating_state(state.pod, users)
    return there, state, _holder_there(snapshot, state, there, {})


def reservation_columns_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    before: ReservationColumns,
    snapshot: ClusterSnapshot,
) -> ReservationColumns:
    """Do the same, given how those of a snapshot stood that had some of the nodes and objects."""
    changes = reservation_changes(records, snapshot)
    rows = changed_rows(snapshot, nodes)
    for at in rows:
        here = [before.states[number] for number in before.by_row.get(at, ())]
        if not same_acting(here, operating_pods(snapshot, state_at(snapshot, at))):
            return reservation_columns(snapshot)  # an operating pod began or ended
    anew = {number for at in rows for number in before.by_row.get(at, ())}
    if 2 * before.over > len(before.states) or any(_numbered_else(before, *pair) for pair in changes):
        return _with_others(changes, anew, before, snapshot)
    states, holders = list(before.states), list(before.holders)
    row, open_, back = before.row.copy(), before.open.copy(), list(before.back)
    columns, by_row, over = before.columns.copy(), dict(before.by_row), before.over
    for _, new in changes:
        assert new is not None  # else it would be numbered else
        number = before.by_name[new.name]
        states[number] = reservation_state(new)
        anew.add(number)
    for number in sorted(anew):
        one = states[number].reservation
        there, state, holder = stands_now(snapshot, states[number])
        moved = int(row[number]) != (-1 if there is None else there)
        if moved and row[number] >= 0:
            kept = tuple(other for other in by_row[int(row[number])] if other != number)
            by_row[int(row[number])] = kept
        if moved and there is not None:
            by_row[there] = tuple(sorted((*by_row.get(there, ()), number)))
        over += one.over
        row[number] = -1 if there is None else there
        open_[number] = there is not None and state.matchable
        back[number] = NOTHING if there is None else counted_twice(state, holder)
        states[number], holders[number] = state, holder
        columns.write(number, state, holder, back[number])
    named = before.named
    if anew:
        named = named.copy()
        named[list(anew)] = [named_in(states[number]) for number in anew]
    return attrs.evolve(
        before,
        states=tuple(states),
        holders=tuple(holders),
        columns=columns,
        row=row,
        open=open_,
        back=tuple(back),
        by_row=by_row,
        named=named,
        over=over,
    )


def _numbered_else(before: ReservationColumns, old: Reservation | None, new: Reservation | None) -> bool:
    """Tell whether a reservation came, is gone, or says more than another status."""
    return old is None or new is None or old.name not in before.by_name or not differs_in_status(old, new)


def _with_others(
    changes: Sequence[ReservationPair],
    anew: Collection[int],
    before: ReservationColumns,
    snapshot: ClusterSnapshot,
) -> ReservationColumns:
    """Number them again where some came or are gone; who stands as before keeps what was worked out.

    Parameters
    ----------
    anew
        Numbers of those on nodes that changed.
    """
    names = {one.name for pair in changes for one in pair if one is not None}
    states: list[ReservationState] = []
    kept: dict[int, int] = {}
    for number, state in enumerate(before.states):
        if state.pod is None and (state.reservation.over or state.reservation.name in names):
            continue
        if number in anew:
            states.append(stands_now(snapshot, state)[1])
            continue
        kept[id(state)] = number
        states.append(state)
    fresh = [reservation_state(new) for _, new in changes if new is not None and not new.over]
    states += [stands_now(snapshot, state)[1] for state in fresh]
    return _numbered(snapshot, states, before, kept)
