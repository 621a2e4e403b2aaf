"""Reservations in the flow: what they hold, what is lent to whom, and what becomes of them.

While pods are placed, every reservation that holds room stands on its node as a pod of its own
(:func:`with_holders`); what it and its users hold together is counted once. A pod class that may use some of
them sees what they lend as :class:`Rooms`; afterwards the pods that stood for reservations are gone again
and the objects say what became of them (:func:`without_holders`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector, Rows
from koordcore._workspace import Workspace
from koordcore.allocators.reservation.match import judge_match
from koordcore.allocators.reservation.state import (
    ReservationState,
    assigned_pod,
    operating_state,
    owners_of,
    reservation_state,
    reserve_pod,
    uid_of,
    used_reservations,
)
from koordcore.model.decisions import Bound, Nominated, PodDecision
from koordcore.model.nodes import NodeState
from koordcore.model.pods import HostPort, Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, MEMORY, PODS
from koordcore.protocol.operating_pod import is_operating_pod, operating_reservation
from koordcore.protocol.reservation import (
    OPERATING_MODE,
    RESERVATION_ALLOCATED,
    RESERVATION_NAME,
    ReservationWish,
    allocated_reservation,
    is_reserve_pod,
    reservation_order,
)
from koordcore.protocol.reservation_status import made_available, made_nominated, with_decided_users
from koordcore.snapshot import ClusterSnapshot

__all__ = [
    "Lending",
    "ReservationLedger",
    "Room",
    "Rooms",
    "concerns_reservations",
    "ended_holders",
    "holders_by_user",
    "pending_reserve_pods",
    "with_holders",
    "without_holders",
]

UNLIMITED: Final = 2**62
_Back: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
"""Amounts that count twice, for filters and for scores."""
_NOTHING: Final[_Back] = ({}, {})


def with_holders(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Put a pod on its node for every reservation that holds room there."""
    holders = [
        reserve_pod(one)
        for one in snapshot.of(Reservation)
        if one.active and one.status.node_name in snapshot.layout.row_of
    ]
    return snapshot.assume(*holders) if holders else snapshot


def operating_pods(snapshot: ClusterSnapshot, state: NodeState) -> tuple[Pod, ...]:
    """Give the pods of one node that act as reservations."""
    del snapshot
    marked = [pod for pod in state.pods if OPERATING_MODE in pod.labels]  # among many pods, quickly
    return tuple(pod for pod in marked if is_operating_pod(pod) and not pod.finished)


def pending_reserve_pods(snapshot: ClusterSnapshot) -> list[Pod]:
    """Give the pods that stand for reservations which wait for a node."""
    return [reserve_pod(one) for one in snapshot.of(Reservation) if one.pending]


def without_holders(
    before: ClusterSnapshot,
    after: ClusterSnapshot,
    decisions: Iterable[PodDecision],
    now: datetime | None,
) -> ClusterSnapshot:
    """Take the pods that stand for reservations out again, and let the objects say what became of them.

    Those that got a node are available there, and those that pods leave for say where; those that got users
    name them, and what was to be used once has succeeded, as the controller's next turn has it.

    Parameters
    ----------
    before
        The cluster as the caller knows it.
    after
        The cluster with holders and decisions.
    """
    known = before.of(Reservation)
    if not known:
        return after
    decided = tuple(decisions)
    there = after.location.keys() | {pod.key for pod in after.pending}
    keys = [one.pod_key for one in known if one.pod_key in there]
    left = after.forget(*keys) if keys else after
    placed = {one.pod: one for one in decided if isinstance(one, Bound | Nominated)}
    changed = {}
    for one in known:
        decision = placed.get(one.pod_key) if one.pending else None
        if isinstance(decision, Nominated):
            changed[one.name] = made_nominated(one, decision.node)
        elif decision is not None:
            written = attrs.evolve(one, annotations={**one.annotations, **decision.annotations})
            changed[one.name] = made_available(written, decision.node, now)
    standing = [changed.get(one.name, one) for one in known]
    for one in with_decided_users(standing, decided, lambda name: left.node(name).pods, now):
        changed[one.name] = one
    nodes = {one.status.node_name for one in changed.values()} - {""}
    return left.with_records(*changed.values(), nodes=nodes) if changed else left


@attrs.frozen(eq=False)
class Room:
    """What one pod may draw from on one node: usually one reservation.

    Parameters
    ----------
    row
        The node.
    states
        The reservations; several only for a pod that ignores them all.
    holders
        The pods that stand for them.
    together
        The pod ignores reservations and takes from all of them as if they held nothing.
    over
        The pod stands for a reservation, and the holders are running pods over which it is placed: what they
        hold has to be part of what it gets.
    """

    row: int
    states: tuple[ReservationState, ...]
    holders: tuple[Pod, ...]
    together: bool = False
    over: bool = False

    @property
    def ports(self) -> tuple[HostPort, ...]:
        """Host ports that its holders keep free; a pod that acts as a reservation uses its own."""
        keeping = (pod for pod in self.holders if self.over or not is_operating_pod(pod))
        return tuple(port for pod in keeping for port in pod.host_ports)


@attrs.frozen(eq=False)
class Rooms:
    """Rooms of several nodes at once.

    Parameters
    ----------
    rows
        ``(K,)``: node of each room.
    lent
        ``(R, K)``: what it adds to what is free.
    ids
        Numbers of the reservations in the ledger.
    """

    rows: IntVector
    lent: IntMatrix
    ids: tuple[tuple[int, ...], ...]
    ledger: ReservationLedger
    together: bool = False

    def room(self, index: int) -> Room:
        """Give one of them."""
        ledger, ids = self.ledger, self.ids[index]
        return Room(
            row=int(self.rows[index]),
            states=tuple(ledger.states[one] for one in ids),
            holders=tuple(ledger.holders[one] for one in ids),
            together=self.together,
        )

    def any_at(self, serves: BoolVector, number: int) -> BoolVector:
        """Spread an answer per room over all nodes: whether one of the node's rooms serves."""
        found = np.zeros(number, bool)
        found[self.rows[serves]] = True
        return found


class ReservationLedger:
    """All reservations of a workspace that are not over, as columns; changes go through the workspace's log.

    Attributes
    ----------
    states, holders
        By number, in the order of their names: what each offers now, and the pod that stands for it.
    row
        ``(M,)``: its node, -1 while it waits for one.
    open
        ``(M,)``: pods may be held against it.
    lift, lift_scored
        ``(R, M)``: what its holder alone counts on its node, for filters and for scores.
    left
        ``(R, M)``: what its users may still draw.
    account
        ``(R, M)``: what a Restricted one allows yet; without limit for what it keeps no account of.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._index = workspace.layout.index
        self._operating = workspace.values(operating_pods)
        known = [one for one in workspace.snapshot.of(Reservation) if not one.over]
        acting = [pod for pods in self._operating for pod in pods]
        users = used_reservations(workspace.snapshot.bound_pods()) if known or acting else {}
        self.states = [reservation_state(one, owners_of(one, users)) for one in known]
        if acting:
            views = ((pod, operating_reservation(pod)) for pod in acting)
            self.states += [operating_state(pod, owners_of(one, users)) for pod, one in views]
            self.states.sort(key=lambda one: (one.reservation.name, one.reservation.namespace))
            known = [one.reservation for one in self.states]
        self.holders = [one.holder for one in self.states]
        self.number_of = {pod.key: number for number, pod in enumerate(self.holders)}
        self._by_uid = {one.uid or one.name: number for number, one in enumerate(known)}
        number, resources = len(known), len(workspace.layout.resources)
        self.row: IntVector = np.full(number, -1, np.int64)
        self.open: BoolVector = np.zeros(number, bool)
        self.order: IntVector = np.array([reservation_order(one.labels) for one in known], np.int64)
        self.named: IntVector = np.array([sum(map(bool, one.allocatable.values())) for one in self.states])
        self.lift: IntMatrix = np.zeros((resources, number), np.int64)
        self.lift_scored: IntMatrix = np.zeros((resources, number), np.int64)
        self.left: IntMatrix = np.zeros((resources, number), np.int64)
        self.account: IntMatrix = np.full((resources, number), UNLIMITED, np.int64)
        self.capacity: IntMatrix = np.zeros((resources, number), np.int64)
        self.used: IntMatrix = np.zeros((resources, number), np.int64)
        self.by_row: dict[int, list[int]] = {}
        self._matches: dict[Hashable, tuple[int, ...]] = {}
        self._by_reference = any(
            term.object is not None for state in self.states for term in state.reservation.owners
        )
        self._back: list[_Back] = [_NOTHING] * number
        self._groups = _OwnerGroups(self.states)
        alike: dict[Hashable, int] = {}
        # Reservations that a pod without a wish of its own cannot tell apart are judged once.
        self._alike = [alike.setdefault((one.owners, one.admits_nobody), len(alike)) for one in known]
        for one in range(number):
            node = known[one].status.node_name
            if known[one].active and node in workspace.layout.row_of:
                self._settle(one, workspace.layout.row_of[node])
            self._recount(one)

    def _settle(self, number: int, row: int) -> None:
        self.row[number] = row
        self.by_row.setdefault(row, []).append(number)

    def _recount(self, number: int) -> None:
        """Work the columns of one reservation out anew, and correct what counts twice on its node."""
        state, holder = self.states[number], self.holders[number]
        row = int(self.row[number])
        self.open[number] = row >= 0 and state.matchable
        scored = dict(zip((CPU, MEMORY), state.scored, strict=True))
        back: _Back = (state.returned, {**state.returned, **scored})
        if state.ended:
            # It is over with its first user: at the controller's next turn only that one counts.
            back = (holder.requests, holder.scored_requests)
        back = _NOTHING if row < 0 else back
        if row >= 0:
            self._give_back(row, self._back[number], -1)
            self._give_back(row, back, 1)
            if state.pod is not None:
                self.workspace.corrected.add(row)  # it stays when all that only stand for one are gone
        self._back[number] = back
        names, allocated = self.workspace.layout.resources, state.allocated
        self.lift[:, number] = [holder.requests.get(name, 0) - back[0].get(name, 0) for name in names]
        self.lift_scored[:, number] = [
            holder.scored_requests.get(name, 0) - back[1].get(name, 0) for name in names
        ]
        self.left[:, number] = [state.available.get(name, 0) for name in names]
        self.capacity[:, number] = [state.allocatable.get(name, 0) for name in names]
        self.used[:, number] = [allocated.get(name, 0) for name in names]
        for name in state.names if state.restricted else ():
            resource = self._index.get(name)
            if resource is not None and name != PODS:
                kept = state.reserved.get(name, 0) + allocated.get(name, 0)
                self.account[resource, number] = state.allocatable[name] - kept
        # What stands for an object is no pod; one that acts as a reservation stays beside its user.
        self.lift[PODS_ROW, number] = self.lift_scored[PODS_ROW, number] = state.pod is None
        if state.restricted and PODS in state.allocatable:
            self.account[PODS_ROW, number] = state.allocatable[PODS] - len(state.assigned)

    def _give_back(self, row: int, back: _Back, sign: int) -> None:
        self.workspace.shift(row, back[0], back[1], -sign)

    def _replace(self, number: int, state: ReservationState, row: int) -> None:
        before, holder, old_row = self.states[number], self.holders[number], int(self.row[number])

        def put(new: ReservationState, pod: Pod, place: int) -> None:
            if place != int(self.row[number]):
                if self.row[number] >= 0:
                    self._give_back(int(self.row[number]), self._back[number], -1)
                    self._back[number] = _NOTHING
                    self.by_row[int(self.row[number])].remove(number)
                    self.row[number] = -1
                if place >= 0:
                    self._settle(number, place)
                self._matches.clear()  # what a pod may use can hang on the labels of the node
            self.states[number], self.holders[number] = new, pod
            self._recount(number)
            self.workspace.touched.extend({place, old_row, row} - {-1})

        put(state, state.holder if row != old_row else holder, row)
        self.workspace.log(lambda: put(before, holder, old_row))

    def placed(self, pod: Pod, row: int) -> None:
        """Take note of a pod: a reservation that got its node, or a user of one."""
        if is_operating_pod(pod):
            self._act(pod, row, comes=True)
        if is_reserve_pod(pod):
            number = self.number_of.get(pod.key)
            if number is not None and self.row[number] < 0:
                one = self.states[number].reservation
                written = attrs.evolve(one, annotations={**one.annotations, **pod.annotations})
                there = made_available(written, self.workspace.layout.names[row], self.workspace.now)
                self._replace(number, reservation_state(there), row)
            return
        number = self._used_by(pod, row)
        if number is not None:
            self._replace(number, self.states[number].with_user(assigned_pod(pod)), row)

    def removed(self, pod: Pod, row: int) -> None:
        """Take note of a user that is gone, or of a pod that acted as a reservation."""
        if is_operating_pod(pod):
            self._act(pod, row, comes=False)
        number = self._used_by(pod, row)
        if number is not None and not is_reserve_pod(pod):
            self._replace(number, self.states[number].without_user(uid_of(pod)), row)

    def _act(self, pod: Pod, row: int, *, comes: bool) -> None:
        """Take note of an operating pod; one that is new lends nothing before it runs, in a later call."""
        others = tuple(one for one in self._operating[row] if one.key != pod.key)
        self.workspace.put(self._operating, row, (*others, pod) if comes else others)
        number = self.number_of.get(pod.key)
        if number is not None:
            self._replace(number, self.states[number], row if comes else -1)

    def _used_by(self, pod: Pod, row: int) -> int | None:
        used = allocated_reservation(pod.annotations)
        number = None if used is None else self._by_uid.get(used.uid or used.name)
        return number if number is not None and self.row[number] == row else None

    @property
    def in_use(self) -> bool:
        """Some reservation that is open has a user."""
        return any(state.assigned and one for state, one in zip(self.states, self.open, strict=True))

    def policies_on(self, row: int) -> set[str]:
        """Give the allocate policies of a node's reservations that pods may be held against."""
        return {
            self.states[one].reservation.allocate_policy for one in self.by_row.get(row, ()) if self.open[one]
        }

    def matches(self, pod: Pod, wish: ReservationWish) -> tuple[int, ...]:
        """Give the reservations that a pod may use as far as it, they and their nodes' labels go."""
        if wish.ignored:
            return tuple(range(len(self.states)))
        own = (pod.name, pod.uid) if self._by_reference else ()
        asked = pod.requests if wish.exact else None
        key = (pod.namespace, pod.labels, pod.owners, wish, asked, *own)
        if key not in self._matches:
            self._matches[key] = self._matching(pod, wish)
        return self._matches[key]

    def _matching(self, pod: Pod, wish: ReservationWish) -> tuple[int, ...]:
        found = []
        plain = wish.affinity is None and not wish.exact
        verdicts: dict[int, bool] = {}
        nodes = self.workspace.layout.nodes
        for number in self._groups.candidates(pod):
            group = self._alike[number]
            matched = verdicts.get(group) if plain else None
            if matched is None:
                row = int(self.row[number])
                labels = nodes[row].labels if row >= 0 else {}
                matched = judge_match(pod, wish, self.states[number], labels).matched
                verdicts[group] = matched
            if matched:
                found.append(number)
        return tuple(found)


class _OwnerGroups:
    """Reservations by one label that each of their owner terms asks for, so that few are looked at."""

    def __init__(self, states: list[ReservationState]) -> None:
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


class Lending:
    """What reservations lend to one class of pods.

    Parameters
    ----------
    matched
        ``(M,)``: those that the pods may use.
    together
        The pods ignore reservations: all of a node lend together.
    required
        The pods may go nowhere but into a reservation.
    """

    def __init__(
        self, ledger: ReservationLedger, matched: BoolVector, *, together: bool, required: bool = False
    ) -> None:
        self.ledger = ledger
        self.required = required
        self.matched = matched
        self.together = together
        self.chosen: IntVector | None = None
        """``(N,)``: the reservation that would serve the pods on each node, negative for none."""

    @property
    def holder_keys(self) -> frozenset[PodKey]:
        """Names of the pods that stand for the reservations which the pods may use."""
        return frozenset(self.ledger.holders[one].key for one in np.flatnonzero(self.matched).tolist())

    def room_of(self, row: int) -> Room | None:
        """Give what would serve the pods on a node, if it is one reservation."""
        number = -1 if self.chosen is None else int(self.chosen[row])
        if number < 0:
            return None
        return Room(
            row=row,
            states=(self.ledger.states[number],),
            holders=(self.ledger.holders[number],),
            together=False,
        )

    def drawn_from(self, row: int) -> Room | None:
        """Give what the pods would draw from on a node: one reservation, or all that they ignore."""
        if not self.together:
            return self.room_of(row)
        rooms = self.rooms(slice(row, row + 1))
        return rooms.room(0) if len(rooms.rows) else None

    def beside(self, room: Room) -> tuple[Room, ...]:
        """Give the other rooms of its node; none where all lend together, or running pods do."""
        if room.together or room.over:
            return ()
        rooms = self.rooms(slice(room.row, room.row + 1))
        every = (rooms.room(index) for index in range(len(rooms.rows)))
        return tuple(one for one in every if one.holders != room.holders)

    def _numbers(self, rows: Rows) -> IntVector:
        """Give the reservations on some nodes that are open to the pods."""
        ledger = self.ledger
        if isinstance(rows, slice) and rows == slice(None):
            return np.flatnonzero(self.matched & ledger.open)
        wanted = range(len(ledger.workspace.layout.names))[rows] if isinstance(rows, slice) else rows.tolist()
        found = [
            one
            for row in dict.fromkeys(wanted)
            for one in ledger.by_row.get(row, ())
            if self.matched[one] and ledger.open[one]
        ]
        return np.array(found, np.int64)

    def lifted(self, rows: Rows, *, scored: bool = False) -> IntMatrix | None:
        """Give what goes away on each node when all that the pods may use is taken off it: ``(R, n)``."""
        numbers = self._numbers(rows)
        if not len(numbers):
            return None
        whole = self.ledger.lift_scored if scored else self.ledger.lift
        spread = np.zeros((len(self.ledger.workspace.layout.names), len(whole)), np.int64)
        np.add.at(spread, self.ledger.row[numbers], whole[:, numbers].T)
        return spread[rows].T

    def rooms(self, rows: Rows) -> Rooms:
        """Give what the pods may draw from on some nodes."""
        ledger = self.ledger
        numbers = self._numbers(rows)
        at = ledger.row[numbers]
        if not self.together:
            lent = ledger.left[:, numbers].copy()
            counts = np.zeros(len(ledger.workspace.layout.names), np.int64)
            np.add.at(counts, at, ledger.lift[PODS_ROW, numbers])
            lent[PODS_ROW] = counts[at]
            return Rooms(at, lent, tuple((one,) for one in numbers.tolist()), ledger)
        by_row: dict[int, list[int]] = {}
        for one, row in zip(numbers.tolist(), at.tolist(), strict=True):
            by_row.setdefault(row, []).append(one)
        lent = np.zeros((len(ledger.lift), len(by_row)), np.int64)
        for place, ids in enumerate(by_row.values()):
            lent[:, place] = ledger.lift[:, ids].sum(axis=1)
        every = tuple(map(tuple, by_row.values()))
        return Rooms(np.array(list(by_row), np.int64), lent, every, ledger, together=True)


def ended_holders(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> frozenset[PodKey]:
    """Give the pods that stand for reservations which are over, because they were to be used once and are."""
    there = {pod.key: pod for pod in pods}
    used = holders_by_user(there.values())
    named = ((key, there[key].annotations.get(RESERVATION_NAME, "")) for key in used)
    found = ((key, snapshot.find(Reservation, name)) for key, name in named)
    return frozenset(key for key, one in found if one is not None and one.allocate_once)


def holders_by_user(pods: Iterable[Pod]) -> Mapping[PodKey, list[Pod]]:
    """Give, for each pod of a node that is or stands for a reservation, the pods of the node that use it."""
    there = list(pods)
    holders = [pod for pod in there if is_reserve_pod(pod) or is_operating_pod(pod)]
    if not holders:
        return {}
    users: dict[str, list[Pod]] = {}
    for pod in there:
        used = None if is_reserve_pod(pod) else allocated_reservation(pod.annotations)
        if used is not None:
            users.setdefault(used.uid or used.name, []).append(pod)
    named = {pod.key: pod.uid or pod.annotations.get(RESERVATION_NAME, pod.name) for pod in holders}
    return {key: users[name] for key, name in named.items() if name in users}


def concerns_reservations(pod: Pod) -> bool:
    """Tell whether a pod is or stands for a reservation, or uses one."""
    return RESERVATION_ALLOCATED in pod.annotations or is_reserve_pod(pod) or is_operating_pod(pod)
