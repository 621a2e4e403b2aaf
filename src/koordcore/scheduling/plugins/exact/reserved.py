"""What a pod gets of a node's CPUs, NUMA nodes and devices out of a reservation, and how that is rated.

In all of these ``others`` are the loans beside one that the pods might use as well: what they hold counts as
free when NUMA nodes are compared, as upstream has it, and is not drawn from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from koordcore._arrays import IntVector
from koordcore.allocators.device import PLAIN_TERMS, NodeDevices, Terms, score_devices
from koordcore.allocators.device.allocate import refusal_of
from koordcore.allocators.device.reservations import DeviceReservation, terms_for
from koordcore.allocators.device.shape import Amounts
from koordcore.allocators.node import NodeAllocation, NodeOffer, fit_node
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa import score_given
from koordcore.allocators.numa_align import PLAIN_ROOM, NUMARoom
from koordcore.allocators.numa_request import NUMARefusal, demand_on
from koordcore.allocators.numa_state import NO_GIVE_BACK, allocation_of
from koordcore.allocators.reservation_numa import NUMAReservation, ReservationUse, room_of
from koordcore.allocators.reserved_over_pods import (
    device_terms_over,
    including_devices,
    including_numa,
    numa_nodes_of,
    numa_room_over,
)
from koordcore.framework.sources import Loan
from koordcore.model.devices import DeviceAllocation, DeviceShortfall, DeviceType
from koordcore.model.numa import OF_LOAN, CPUAllocation, NUMANodeResource
from koordcore.model.pods import Pod
from koordcore.model.resources import make_resources, total
from koordcore.protocol.device import DEVICE_ALLOCATED, parse_allocation
from koordcore.reservations.state import ReservationState
from koordcore.scheduling.plugins.exact.question import HELD, Question
from koordcore.scheduling.plugins.exact.states import ExactStates, uid_of
from koordcore.topology.cpu import NO_CPUS

NOT_HELD: Final = "Insufficient NUMA cpu"
NOT_INCLUDED: Final = "Insufficient GPU Devices"


def holds_devices(state: NodeDevices | None, loan: Loan) -> bool:
    """Tell whether a loan has devices of its own."""
    return state is not None and any(str(pod.key) in state.holdings for pod in loan.holders)


def had_devices(loan: Loan) -> bool:
    """Tell whether a loan was given devices at all, also where none of them are left."""
    return any(DEVICE_ALLOCATED in pod.annotations for pod in loan.holders)


def device_terms(state: NodeDevices, loan: Loan) -> Terms:
    """Say what a pod may use of a node's devices out of a loan."""
    if loan.over:
        return device_terms_over(state, [str(pod.key) for pod in loan.holders])
    lent = _reservations(loan)
    if loan.together:
        return terms_for(state, lent)
    terms = terms_for(state, lent, source=lent[0])
    if loan.states[0].restricted and not terms.limits:
        return attrs.evolve(terms, limits=_used_up(state, loan.holders[0]))
    return terms


def _used_up(state: NodeDevices, holder: Pod) -> Mapping[DeviceType, Mapping[int, Amounts]]:
    """Give the limits of a reservation of whose devices nothing is left."""
    given = parse_allocation(holder.annotations) or DeviceAllocation()
    shapes = state.shape.types
    return {
        kind: {one.minor: shapes[kind].nothing for one in holdings}
        for kind, holdings in given.devices.items()
        if kind in shapes
    }


def terms_of_all(state: NodeDevices, loans: Sequence[Loan]) -> Terms:
    """Say what a pod may use of a node's devices if all of several loans were free."""
    return terms_for(state, [one for loan in loans for one in _reservations(loan)])


def _each(loan: Loan) -> Iterator[tuple[Pod, ReservationState]]:
    return zip(loan.holders, loan.states, strict=True)


def _given_cpus(holder: Pod) -> bool:
    """Tell whether a reservation was given CPUs of its own."""
    given = allocation_of(uid_of(holder), holder.annotations)
    return given is not None and bool(given.cpuset)


def _left(holder: Pod, held: CPUAllocation | None) -> CPUAllocation | None:
    """Give what a reservation still holds, with zeros for amounts that it was given and its users have.

    ``None`` where it was given nothing.
    """
    given = allocation_of(uid_of(holder), holder.annotations)
    if given is None:
        return held
    there = {entry.node: entry.resources for entry in held.numa_resources} if held is not None else {}
    amounts = tuple(
        NUMANodeResource(
            entry.node, make_resources({**dict.fromkeys(entry.resources, 0), **there.get(entry.node, {})})
        )
        for entry in given.numa_resources
    )
    return attrs.evolve(given, cpuset=NO_CPUS if held is None else held.cpuset, numa_resources=amounts)


def _reservations(loan: Loan) -> list[DeviceReservation]:
    return [
        DeviceReservation(holder=str(pod.key), policy=one.reservation.allocate_policy, matched=True)
        for pod, one in _each(loan)
    ]


class ExactLoans:
    """The loans of reservations as they are seen by whoever asks for CPUs, NUMA amounts and devices."""

    def __init__(self, states: ExactStates) -> None:
        self._states = states

    def holds(self, question: Question, loan: Loan) -> bool:
        """Tell whether a loan has anything of its own that the question is about."""
        if question.cpu is not None and self._had(loan):
            return True
        return question.devices is not None and holds_devices(self._states.devices[loan.row], loan)

    def offer(self, request: NodeRequest, loan: Loan, others: Sequence[Loan] = ()) -> NodeOffer:
        """Give what a node offers a pod that draws from a loan."""
        plain = self._states.offer(loan.row, with_devices=request.devices is not None)
        devices = plain.devices
        terms = PLAIN_TERMS
        if devices is not None and holds_devices(devices, loan):
            terms = device_terms(devices, loan)
        if request.cpu is None:
            return attrs.evolve(plain, terms=terms)
        return attrs.evolve(
            plain,
            amounts=self._states.amounts(loan.row, self._requested(loan)),
            room=self._numa_room(loan, others),
            terms=terms,
            covers=self._covers(loan, devices),
        )

    def fit(
        self, question: Question, request: NodeRequest, loan: Loan, others: Sequence[Loan] = ()
    ) -> NodeAllocation | NUMARefusal:
        """Ask for everything of a request out of a loan."""
        offer = self.offer(request, loan, others)
        given = fit_node(offer, request, question.args)
        if not loan.over or isinstance(given, NUMARefusal):
            return given
        return self._including(given, loan, offer.devices)

    def serves_devices(self, question: Question, loan: Loan) -> bool:
        """Tell whether a loan that has devices serves what is asked of devices."""
        request = NodeRequest(devices=question.request.devices)
        if loan.over:
            return not isinstance(self.fit(question, request, loan), NUMARefusal)
        return self.device_refusal(question, loan) is None

    def device_refusal(self, question: Question, loan: Loan) -> DeviceShortfall | None:
        """Say why a loan that has devices does not serve what is asked of them."""
        state, request = self._states.devices[loan.row], question.request.devices
        if state is None or request is None:
            return None
        return refusal_of(state, request, policy=question.args.devices, terms=device_terms(state, loan))

    def refusal(self, question: Question, loan: Loan, others: Sequence[Loan] = ()) -> NUMARefusal | None:
        """Say why pods that must sit in a reservation find nothing in a loan; ``None`` where they do.

        Nothing is said either where the loan was given no CPUs and no NUMA amounts, nor devices that NUMA
        nodes tie to them.
        """
        request = question.asked_at(loan.row, filtered=True)
        with_devices = request.devices is not None and had_devices(loan)
        if loan.over or loan.together or not (with_devices or self._had(loan)):
            return None
        offer = self.offer(request, loan, others)
        offer = attrs.evolve(offer, room=attrs.evolve(offer.room, refusal=""))
        answer = fit_node(offer, request, question.args)
        if not isinstance(answer, NUMARefusal):
            return None
        cards = self.device_refusal(question, loan) if with_devices else None
        own = () if cards is None else cards.reasons
        return NUMARefusal(
            tuple(
                attrs.evolve(one, reason=OF_LOAN + one.reason) if one.reason in own else one
                for one in answer.shortfalls
            )
        )

    def score(self, question: Question, loan: Loan, requested: IntVector, others: Sequence[Loan] = ()) -> int:
        """Rate CPUs and NUMA nodes under a topology policy by what a pod gets there out of a loan.

        Parameters
        ----------
        requested
            ``(R,)``: what is requested on the node without what counts as gone.
        """
        request = question.asked_at(loan.row)
        answer = self.fit(question, request, loan, others)
        state = self._states.numa[loan.row]
        demand = None if request.cpu is None else demand_on(request.cpu, state.node)
        if isinstance(answer, NUMARefusal) or demand is None or isinstance(demand, NUMARefusal):
            return 0
        status = answer.numa.status
        if demand.policy not in HELD:
            # Under BestEffort upstream scores before it chooses NUMA nodes.
            status = attrs.evolve(status, numa_node_resources=())
        offered = self._numa_room(loan)
        lent = offered.fallback or NO_GIVE_BACK
        for trial in offered.trials:
            lent = trial.guard or trial.give_back
        amounts = self._states.amounts(loan.row, requested)
        return score_given(state, demand, status, amounts, question.args.numa, lent=lent)

    def mask(self, question: Question, loan: Loan, others: Sequence[Loan]) -> int:
        """Give the NUMA nodes that devices are held to out of a loan, as a bit mask; -1 for none."""
        if question.cpu is None or question.policy_at(loan.row) not in HELD:
            return -1
        answer: NodeAllocation | NUMARefusal
        if self.holds(question, loan):
            answer = self.fit(question, question.asked_at(loan.row), loan, others)
        else:
            answer = (question.joint or question.cpu).answer(loan.row)
        mask = None if isinstance(answer, NUMARefusal) else answer.numa.mask
        return -1 if mask is None else mask

    def score_devices(self, question: Question, row: int, terms: Terms, mask: int) -> int:
        """Rate the devices of a node on some terms; ``mask`` are the NUMA nodes they are held to, or -1."""
        request, state = question.request.devices, self._states.devices[row]
        assert request is not None
        held = mask if mask >= 0 else None
        return score_devices(state, request, held, policy=question.args.devices, terms=terms)

    def _requested(self, loan: Loan) -> IntVector:
        """Give what is requested on a node, ``(R,)``, without what a loan gives of its amounts as a whole."""
        lent = total(one.available for one in loan.states)
        if loan.over:
            lent = total(pod.requests for pod in loan.holders)
        workspace = self._states.workspace
        names = workspace.layout.resources
        requested: IntVector = workspace.requested[:, loan.row] - [lent.get(name, 0) for name in names]
        return requested

    def _numa_room(self, loan: Loan, others: Sequence[Loan] = ()) -> NUMARoom:
        """Say where out of a loan a pod may find CPUs and amounts."""
        if loan.over:
            return numa_room_over(self._held(loan))
        found = self._reserved_in(loan)
        if not found:
            return PLAIN_ROOM
        if loan.together:
            return room_of(found, use=ReservationUse.IGNORED)
        beside = [one for other in others for one in self._reserved_in(other)]
        return room_of([*found, *beside], nominated=found[0].uid)

    def _reserved_in(self, loan: Loan) -> list[NUMAReservation]:
        held = {one.uid: one for one in self._states.numa[loan.row].allocations}
        parts = ((pod, one, _left(pod, held.get(uid_of(pod)))) for pod, one in _each(loan))
        return [
            NUMAReservation(
                name=one.reservation.name,
                uid=uid_of(pod),
                matched=True,
                restricted=one.restricted,
                allocation=allocation,
                shared=not _given_cpus(pod),
            )
            for pod, one, allocation in parts
            if allocation is not None
        ]

    def _had(self, loan: Loan) -> bool:
        """Tell whether a loan was given any CPUs or NUMA amounts, also where none of them are left."""
        return bool(self._held(loan)) or any(_left(pod, None) is not None for pod in loan.holders)

    def _held(self, loan: Loan) -> list[CPUAllocation]:
        """Give what the holders of a loan hold of CPUs and NUMA nodes."""
        uids = {uid_of(pod) for pod in loan.holders}
        return [one for one in self._states.numa[loan.row].allocations if one.uid in uids]

    def _covers(self, loan: Loan, devices: NodeDevices | None) -> int:
        """Give the NUMA nodes on which pods hold anything that a reservation is placed over, as a mask."""
        if not loan.over:
            return 0
        holders = [str(pod.key) for pod in loan.holders]
        return numa_nodes_of(self._states.numa[loan.row], self._held(loan), devices, holders)

    def _including(
        self, given: NodeAllocation, loan: Loan, devices: NodeDevices | None
    ) -> NodeAllocation | NUMARefusal:
        """Give what a reservation gets with what the pods hold over which it is placed."""
        numa = given.numa
        if numa.written:
            status = including_numa(numa.status, self._held(loan))
            if status is None:
                return NUMARefusal.because(NOT_HELD)
            numa = attrs.evolve(numa, status=status)
        cards: DeviceAllocation | None = given.devices
        if devices is not None and cards is not None and holds_devices(devices, loan):
            held = (devices.holdings.get(str(pod.key)) for pod in loan.holders)
            cards = including_devices(cards, [one for one in held if one is not None])
            if cards is None:
                return NUMARefusal(DeviceShortfall(reasons=(NOT_INCLUDED,)).shortfalls)
        return attrs.evolve(given, numa=numa, devices=cards)
