"""Reservations in the flow: what they hold, what is lent to whom, and what becomes of them.

While pods are placed, every reservation that holds room stands on its node as a pod of its own
(:func:`with_holders`); what it and its users hold together is counted once. A pod class that may use some of
them sees what they lend as loans (:mod:`koordcore.framework.node_view`); afterwards the pods that stood for
reservations are gone again and the objects say what became of them (:func:`without_holders`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.requests import Marks
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Bound, Nominated, PodDecision, Waiting
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.protocol.holdings import HOLDINGS, without
from koordcore.protocol.reservation import (
    OPERATING_MODE,
    RESERVATION_ALLOCATED,
    ReservationWish,
    allocated_reservation,
    is_operating_pod,
)
from koordcore.protocol.reservation_status import made_available, made_nominated, with_decided_users
from koordcore.protocol.reserve_pod import RESERVE_POD, is_reserve_pod
from koordcore.reservations.columns import (
    NOTHING,
    Back,
    counted_twice,
    differs_in_status,
    named_in,
    operating_pods,
    reservation_columns,
    reservation_columns_again,
    same_acting,
    stands_now,
)
from koordcore.reservations.holders import (
    check_stand_ins,
    held_alike,
    same_holders,
    stands_as,
    with_holders,
)
from koordcore.reservations.known import known_reservations, waits_for_node
from koordcore.reservations.match import judge_match
from koordcore.reservations.state import (
    ReservationState,
    assigned_pod,
    reservation_state,
    reserve_pod,
    uid_of,
)
from koordcore.scoring.labels import fit_own_terms
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, changed_on, derived, once, records_changed, state_at
from koordcore.snapshot.forking import with_pods

_NAMES: Final = attrgetter("namespace", "name")

__all__ = [
    "ReservationLedger",
    "concerns_reservations",
    "pending_reserve_pods",
    "with_holders",
    "without_holders",
]


def pending_reserve_pods(snapshot: ClusterSnapshot) -> list[Pod]:
    """Give the pods that stand for reservations which wait for a node.

    Raises
    ------
    ModelError
        When one of them has the key of another or of a pod.
    """
    if not snapshot.has(Reservation):
        return []
    check_stand_ins(snapshot)
    waiting = sorted(known_reservations(snapshot).waiting.values(), key=_NAMES)
    return [reserve_pod(one) for one in waiting if waits_for_node(snapshot, one)]


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
    if not before.has(Reservation):
        return after
    held = once(before, with_holders)
    decided = tuple(decisions)
    rows = changed_on(held.place.path(after.place))
    every = range(len(after.layout.names)) if rows is None else rows
    touched = [state_at(after, row) for row in every if state_at(after, row) is not state_at(held, row)]
    pods = {state.name: tuple(pod for pod in state.pods if not is_reserve_pod(pod)) for state in touched}
    placed = {one.pod: one for one in decided if isinstance(one, Bound | Nominated)}
    waiting = known_reservations(before).waiting
    known = {one.name: one for one in sorted((waiting[key] for key in placed if key in waiting), key=_NAMES)}
    changed = {}
    for name, one in known.items():
        decision = placed[one.pod_key]
        if isinstance(decision, Nominated):
            changed[name] = made_nominated(one, decision.node)
        else:
            kept = without(one.annotations, decision.dropped)
            written = attrs.evolve(one, annotations={**kept, **decision.annotations}, claims=decision.claims)
            changed[name] = made_available(written, decision.node, now)
    bound = (one.held if isinstance(one, Waiting) else one for one in decided)
    used = dict.fromkeys(one.reservation for one in bound if isinstance(one, Bound) and one.reservation)
    objects = {name: before.find(Reservation, name) for name in {**used, **changed}}
    concerned = [changed.get(name) or one for name, one in objects.items() if one is not None]
    for one in with_decided_users(concerned, decided, lambda name: pods.get(name, ()), now):
        changed[one.name] = one
    # What other plugins wrote on their records stays; with holders the records were the same.
    written_on = records_changed(held, after)
    changes = [(objects[name], one) for name, one in changed.items()]
    unplaced = {*waiting}
    pending = tuple([pod for pod in after.pending if pod.key not in unplaced]) if unplaced else after.pending
    end = with_pods(before, pods, pending, [*written_on, *changes])
    alike = all(old is not None and held_alike(old, new) for old, new in changes)
    if alike and not known and same_holders(held, touched):
        # Whoever stands for a reservation stands there still: the next call need not put them there again.
        stands_as(end, with_pods(after, {}, pending, changes))
    return end


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
    unsettled
        Numbers of those whose node has left, or that name a resource which nobody had named before, until
        :meth:`follow` has looked at them.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._operating = workspace.values(operating_pods)
        before = derived(workspace.snapshot, reservation_columns, reservation_columns_again)
        self.states = list(before.states)
        self.holders = list(before.holders)
        self.number_of = before.number_of
        self.order, self.named = before.order, before.named.copy()
        self.row: IntVector = before.row.copy()
        self.open: BoolVector = before.open.copy()
        self._columns = before.columns.copy()
        self._show_columns()
        self.by_row = dict(before.by_row)
        self._by_uid, self._by_name, self._over = before.by_uid, before.by_name, before.over
        self._by_reference = before.by_reference
        self._groups, self._alike = before.groups, before.alike
        self._matches: dict[Hashable, tuple[int, ...]] = {}
        self._screens: dict[Hashable, BoolVector | None] = {}
        self._back = list(before.back)
        # Numbers of those that are open and have a user.
        self._in_use = {
            number for number, one in enumerate(self.states) if one.assigned and self.open[number]
        }
        self.unsettled: set[int] = set()
        self._came: tuple[int, ...] = ()
        for number, back in enumerate(before.back):
            if back is not NOTHING:
                self._give_back(int(self.row[number]), back, 1)

    def _show_columns(self) -> None:
        columns = self._columns
        self.lift, self.lift_scored = columns.lift, columns.lift_scored
        self.left, self.account = columns.left, columns.account
        self.capacity, self.used = columns.capacity, columns.used

    def release(self) -> None:
        """Take back what was corrected on the nodes, before the ledger is dropped for another one."""
        for number, back in enumerate(self._back):
            if back is not NOTHING and self.row[number] >= 0:
                self._give_back(int(self.row[number]), back, -1)

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left and resources came in.

        Who stood on a node that left stands nowhere.
        """
        if moves.resources:
            self._columns.widen(self.workspace.layout, moves.resources)
            self._show_columns()
            self.unsettled.update(
                number
                for number, (state, holder) in enumerate(zip(self.states, self.holders, strict=True))
                if not moves.resources.isdisjoint(state.allocatable)
                or not moves.resources.isdisjoint(holder.requests)
            )
        self._came = moves.came
        self._matches.clear()
        self._screens.clear()
        if not self.states:
            return True
        there = moves.rows(self.row)
        for number in np.flatnonzero((self.row >= 0) & (there < 0)).tolist():
            self._back[number] = NOTHING  # what was corrected is gone with the node
            self.unsettled.add(number)
        self.row[:] = there
        self.open &= there >= 0
        self._in_use = {number for number in self._in_use if self.open[number]}
        rows = moves.rows(np.array([*self.by_row], np.int64)).tolist()
        self.by_row = {row: here for row, here in zip(rows, self.by_row.values(), strict=True) if row >= 0}
        return True

    def follow(self, changes: ClusterChanges) -> bool:
        """Go on where the workspace went on to another snapshot, which pods came and left being told already.

        Returns
        -------
        bool
            Whether that was possible; if not, the ledger is to be dropped.
        """
        snapshot, anew, self.unsettled = self.workspace.snapshot, self.unsettled, set()
        came, self._came = self._came, ()
        on = known_reservations(snapshot).on if came else {}
        for one in (one for row in came for one in on.get(snapshot.layout.names[row], ())):
            if one.name not in self._by_name:
                return False
            anew.add(self._by_name[one.name])
        for old, new in changes.records.get(Reservation, ()):
            if not isinstance(old, Reservation) or not isinstance(new, Reservation):
                return False  # it came, or is gone
            number = self._by_name.get(old.name)
            if number is None or not differs_in_status(old, new):
                return False
            if new.over and not old.over:
                self._over += 1
                self._matches.clear()
            if held_alike(old, new) and self.states[number].pod is None:
                # Its users, who have been told already, are all that it says anew.
                self.states[number] = attrs.evolve(self.states[number], reservation=new)
                continue
            self.states[number] = reservation_state(new)
            anew.add(number)
        if 2 * self._over > len(self.states):
            return False
        rows = {row for pod, row, _ in changes.pods if concerns_reservations(pod)}
        for row in rows.union(changes.nodes):
            here = self.by_row.get(row, ())
            if not same_acting([self.states[number] for number in here], self._operating[row]):
                return False
            anew.update(here)
        for number in sorted(anew):
            state = self.states[number]
            if state.pod is None:
                # It may have got its node in the call before: what holds is what its object says.
                record = snapshot.find(Reservation, state.reservation.name)
                if record is None:
                    return False
                state = state if record is state.reservation else reservation_state(record)
            there, state, holder = stands_now(snapshot, state)
            self._put(number, state, holder, -1 if there is None else there)
            self.named[number] = named_in(state)
        if changes.nodes:
            self._matches.clear()
            self._screens.clear()
        return True

    def _settle(self, number: int, row: int) -> None:
        self.row[number] = row
        self.by_row[row] = tuple(sorted((*self.by_row.get(row, ()), number)))

    def _recount(self, number: int) -> None:
        """Work the columns of one reservation out anew, and what counts twice on its node."""
        state, holder, row = self.states[number], self.holders[number], int(self.row[number])
        self.open[number] = row >= 0 and state.matchable
        if state.assigned and self.open[number]:
            self._in_use.add(number)
        else:
            self._in_use.discard(number)
        back = NOTHING if row < 0 else counted_twice(state, holder)
        if row >= 0:
            self._give_back(row, self._back[number], -1)
            self._give_back(row, back, 1)
        self._back[number] = back
        self._columns.write(number, state, holder, back)

    def _give_back(self, row: int, back: Back, sign: int) -> None:
        """Count on a node once what a reservation and its users hold together, or take that back."""
        self.workspace.shift(row, back[0], back[1], -sign)

    def _replace(self, number: int, state: ReservationState, row: int) -> None:
        before, holder, old_row = self.states[number], self.holders[number], int(self.row[number])
        self._put(number, state, state.holder if row != old_row else holder, row)
        self.workspace.log(lambda: self._put(number, before, holder, old_row))

    def _put(self, number: int, state: ReservationState, holder: Pod, row: int) -> None:
        """Let a reservation stand otherwise, or elsewhere; -1 for no node."""
        old = int(self.row[number])
        if row != old:
            if old >= 0:
                self._give_back(old, self._back[number], -1)
                self._back[number] = NOTHING
                self.by_row[old] = tuple(one for one in self.by_row[old] if one != number)
                self.row[number] = -1
            if row >= 0:
                self._settle(number, row)
            self._matches.clear()  # what a pod may use can hang on the labels of the node
        self.states[number], self.holders[number] = state, holder
        self._recount(number)
        self.workspace.touched.extend({row, old} - {-1})

    def placed(self, pod: Pod, row: int) -> None:
        """Take note of a pod: a reservation that got its node, or a user of one."""
        if is_operating_pod(pod):
            self._act(pod, row, comes=True)
        if is_reserve_pod(pod):
            number = self.number_of.get(pod.key)
            if number is not None and self.row[number] < 0:
                one = self.states[number].reservation
                kept = without(one.annotations, HOLDINGS)
                written = attrs.evolve(one, annotations={**kept, **pod.annotations}, claims=pod.held_claims)
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

    def policies_on(self, row: int) -> set[str]:
        """Give the allocate policies of a node's reservations that pods may be held against."""
        return {
            self.states[one].reservation.allocate_policy for one in self.by_row.get(row, ()) if self.open[one]
        }

    def matches(self, pod: Pod, wish: ReservationWish) -> tuple[int, ...]:
        """Give the reservations that a pod may use as far as it, they and their nodes' labels go."""
        if wish.ignored:
            return self._ignorable("" if wish.affinity is None else wish.affinity.name)
        own = (pod.name, pod.uid) if self._by_reference else ()
        asked = pod.requests if wish.exact else None
        key = (pod.namespace, pod.labels, pod.owners, wish, asked, *own)
        if key not in self._matches:
            self._matches[key] = self._matching(pod, wish)
        return self._matches[key]

    def _ignorable(self, name: str) -> tuple[int, ...]:
        """Give all reservations, or those beside the one that a pod names which ignores them."""
        for number, one in enumerate(self.states if name else ()):
            if one.reservation.name == name and self.row[number] >= 0:
                return tuple(self.by_row.get(int(self.row[number]), ()))
        return tuple(range(len(self.states)))

    def screened(self, pod: Pod) -> BoolVector | None:
        """Tell on which nodes, ``(N,)``, reservations concern a pod at all; ``None`` for everywhere.

        Upstream passes over nodes that the pod's own node selector and affinity exclude before it looks at
        what is reserved there.
        """
        affinity = None if pod.affinity is None else pod.affinity.node
        required = None if affinity is None else affinity.required
        key = (pod.node_selector, required)
        if key not in self._screens:
            self._screens[key] = fit_own_terms(self.workspace.layout, pod.node_selector, required)
        return self._screens[key]

    def used_on(self, rows: BoolVector | None) -> bool:
        """Tell whether some open reservation on one of these nodes has a user; ``None`` for all nodes."""
        return bool(self._in_use) and (rows is None or any(rows[self.row[number]] for number in self._in_use))

    def _matching(self, pod: Pod, wish: ReservationWish) -> tuple[int, ...]:
        found = []
        plain = wish.affinity is None and not wish.exact
        verdicts: dict[int, bool] = {}
        nodes = self.workspace.layout.nodes
        for number in self._groups.candidates(pod):
            if self.states[number].reservation.over:
                continue  # kept for a while on a line of snapshots, and not there when made anew
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


concerns_reservations: Final = Marks(frozenset((RESERVATION_ALLOCATED, RESERVE_POD, OPERATING_MODE))).on
"""Tells by its marks whether a pod may be or stand for a reservation, or use one."""
