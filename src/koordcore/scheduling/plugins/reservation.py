"""Reservation: room that is held for some pods, lent to them and kept from all others.

What reservations hold stands in the columns like pods, so that pods which they do not concern need no rule
at all. What those get that they concern is decided in
:mod:`koordcore.scheduling.plugins.reservation_evaluator`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any

from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.plugin import Plugin
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import PodDecision
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import (
    DEFAULT_RESERVATION_ARGS,
    Reservation,
    ReservationArgs,
    ReservationMatching,
)
from koordcore.protocol.reservation import (
    EXACT_MATCH,
    OPERATING_MODE,
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_NAME,
    RESERVATION_NODE,
    format_allocated_reservation,
    is_operating_pod,
    label_priority,
    reservation_wish,
    resized_allocatable,
)
from koordcore.protocol.reserve_pod import RESERVE_POD, is_reserve_pod
from koordcore.reservations.cache import (
    ReservationLedger,
    concerns_reservations,
    pending_reserve_pods,
    with_holders,
    without_holders,
)
from koordcore.reservations.preallocation import (
    NO_CANDIDATE,
    is_candidate,
    pre_allocation_refusal,
    requires_pods,
)
from koordcore.scheduling.plugins.reservation_evaluator import ReservationEvaluator, Wanted
from koordcore.scheduling.plugins.reserve_pod import HolderEvaluator, WaitingReservation
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, once


class ReservationPlugin(Plugin):
    """Reservations of the cluster; the arguments are :class:`ReservationArgs`."""

    name = "Reservation"
    needs = frozenset((Reservation, OPERATING_MODE, RESERVE_POD, RESERVATION_AFFINITY, EXACT_MATCH))
    reads = frozenset((Reservation,))
    arguments = ReservationArgs
    refuses_at = 1
    shifts = True

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.args: ReservationArgs = args or DEFAULT_RESERVATION_ARGS
        self.ledger: ReservationLedger = workspace.once(ReservationLedger)
        # Running pods over which a reservation is being placed.
        self._taken_in: dict[PodKey, list[Pod]] = {}

    @classmethod
    def waiting(cls, snapshot: ClusterSnapshot) -> Iterable[Pod]:
        return pending_reserve_pods(snapshot)

    @classmethod
    def opened(cls, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return once(snapshot, with_holders) if snapshot.has(Reservation) else snapshot

    @classmethod
    def closed(
        cls,
        start: ClusterSnapshot,
        end: ClusterSnapshot,
        decisions: Sequence[PodDecision],
        now: datetime | None,
    ) -> ClusterSnapshot:
        return without_holders(start, end, decisions, now)

    @property
    def matches(self) -> bool:
        return self.args.matching is ReservationMatching.JOINT

    def match(
        self,
        pods: Sequence[Pod],
        class_of: Callable[[Pod], SchedulingClass | Refusal],
        limits: Limits,
    ) -> MatchPlan:
        # Only who asks for it pays for the solver's adapter.
        from koordcore.scheduling.plugins.reservation_matching import plan_reservations

        return plan_reservations(self.ledger, pods, class_of, limits)

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if pod.annotations is EMPTY and not self.ledger.states:
            return None  # it says nothing, and there is nothing to say it about
        if is_reserve_pod(pod):
            return self._holder_of(pod)
        wish = reservation_wish(pod.labels, pod.annotations)
        if not self.ledger.states:
            return Wanted(wish, (), ()) if wish.affinity is not None else None
        matched = self.ledger.matches(pod, wish)
        screened = self.ledger.screened(pod)
        if screened is not None and not wish.ignored:
            there = self.ledger.row[list(matched)].tolist()
            matched = tuple(one for one, row in zip(matched, there, strict=True) if row < 0 or screened[row])
        acts = is_operating_pod(pod)
        idle = not acts and not matched and wish.affinity is None
        if idle and (wish.ignored or not self.ledger.used_on(screened)):
            return None
        planned = self.plan.get(pod.key)
        return Wanted(wish, matched, tuple(pod.requests.items()), acts, planned)

    @property
    def prefers(self) -> bool:
        return False  # only once there is a plan

    def preferred(self, pod: Pod) -> tuple[str, ...]:
        planned = self.plan.get(pod.key)
        row = -1 if planned is None else int(self.ledger.row[planned])
        return (self.workspace.layout.names[row],) if row >= 0 else ()

    def _holder_of(self, pod: Pod) -> Hashable | Refusal | None:
        number = self.ledger.number_of.get(pod.key)
        if number is None:
            return None
        one = self.ledger.states[number].reservation
        if one.pre_allocation:
            refusal = pre_allocation_refusal(one, self.args)
            if refusal is not None:
                return Refusal(refusal.reasons[0])
        if one.problem:
            return Refusal(one.problem)
        resized_allocatable(one.annotations)  # what cannot be read would keep it from becoming available
        over = (one.uid or one.name) if one.pre_allocation else ""
        if requires_pods(one) and not self._has_candidate(number):
            return Refusal(NO_CANDIDATE)
        return WaitingReservation(one.allocate_policy, pod.annotations.get(RESERVATION_NODE, ""), over)

    def _has_candidate(self, number: int) -> bool:
        state, nodes = self.ledger.states[number], self.workspace.layout.nodes
        return any(
            is_candidate(pod, state, node, self.args)
            for row, node in enumerate(nodes)
            for pod in self.workspace.pods_on(row).values()
        )

    def may_preempt(self, pod: Pod) -> bool:
        if not is_reserve_pod(pod):
            return True
        one = self.workspace.snapshot.find(Reservation, pod.annotations.get(RESERVATION_NAME, ""))
        if one is None:
            return False
        # One without a priority of its own ranks above everything: then the policy has to say so.
        stated = one.template_priority is not None or label_priority(one.labels) is not None
        return stated or self.args.enable_preemption

    def follow(self, changes: ClusterChanges) -> bool:
        acting = any(is_operating_pod(pod) for pod, _, _ in changes.pods)
        if not acting and not self.concerned(changes) and not (self.ledger.states and self._touched(changes)):
            return True
        if not acting and self.ledger.states and self.ledger.follow(changes):
            return True
        if self.workspace.made(ReservationLedger):
            self.ledger.release()
            self.workspace.drop(ReservationLedger)
        return False

    def moved(self, moves: NodeMoves) -> bool:
        return True  # the ledger has followed

    def _touched(self, changes: ClusterChanges) -> bool:
        """Tell whether nodes were replaced, or who came or left has to do with reservations."""
        return (
            bool(changes.nodes)
            or bool(self.ledger.unsettled)
            or any(concerns_reservations(pod) for pod, _, _ in changes.pods)
        )

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if isinstance(request, WaitingReservation):
            return HolderEvaluator(self, pod, request)
        return ReservationEvaluator(self, pod, request)

    def remarks(self, pod: Pod, row: int) -> tuple[str, ...]:
        if not self.ledger.by_row.get(row):
            return ()
        from koordcore.reservations.occupants import reserved_room

        return reserved_room(self.workspace, pod, row)

    def take_in(self, holder: Pod, row: int, pods: Iterable[Pod]) -> None:
        """Write on running pods that they use the reservation that is being placed over them.

        Plugins that look at the node's pods when the reservation comes to stand there see it with its users.
        """
        held = self.ledger.states[self.ledger.number_of[holder.key]].reservation
        text = format_allocated_reservation(held.name, held.uid)
        users = []
        for one in pods:
            owner = one.at(one.node_name, annotations={RESERVATION_ALLOCATED: text})
            self.workspace.evict(one.key, row)
            self.workspace.bind(owner, row)
            users.append(owner)
        self._taken_in[holder.key] = users

    def placed(self, pod: Pod, row: int) -> None:
        self.ledger.placed(pod, row)
        for one in self._taken_in.pop(pod.key, ()):
            self.ledger.placed(one, row)

    def promised(self, pod: Pod, row: int) -> None:
        """Count a pod that is nominated; a reservation lends nothing before its victims have gone."""
        if not is_reserve_pod(pod):
            self.placed(pod, row)

    def removed(self, pod: Pod, row: int) -> None:
        self.ledger.removed(pod, row)
