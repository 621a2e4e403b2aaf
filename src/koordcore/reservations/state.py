"""What a reservation offers now, derived from the object and from the pods that use it.

After upstream's ``ReservationInfo`` and ``NewReservePod``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.containers import DEFAULT_CPU_REQUEST, DEFAULT_MEMORY_REQUEST, Container
from koordcore.model.pods import HostPort, Pod, PodPhase
from koordcore.model.reservations import AllocatePolicy, Reservation
from koordcore.model.resources import (
    CPU,
    MEMORY,
    NO_RESOURCES,
    Resources,
    make_resources,
    total,
)
from koordcore.protocol.reservation import (
    IS_PRE_ALLOCATION,
    NOMINATED_NODE,
    RESERVATION_NAME,
    RESERVATION_NODE,
    allocated_reservation,
    current_owner,
    label_priority,
    operating_reservation,
    resized_allocatable,
    restricted_resources,
)
from koordcore.protocol.reserve_pod import RESERVE_POD
from koordcore.protocol.reserved_on_node import inner_reserved

MAX_PRIORITY: Final = 2**31 - 1
FAKE_CONTAINER: Final = "__internal_fake_container__"


@record
class AssignedPod:
    """A pod that uses a reservation, with what it asks for."""

    uid: str
    requests: Resources
    ports: tuple[HostPort, ...] = ()


@attrs.define(frozen=True, slots=False, eq=False)
class ReservationState:
    """A reservation with the pods that use it.

    Parameters
    ----------
    allocatable
        What it was granted once it is available, and what it will be granted before.
    names
        Resources of which it keeps account, sorted: those of ``allocatable``, narrowed for a Restricted one
        and for an operating pod by its options; options that leave none are no options.
    reserved
        Of these, what it keeps even from its owners.
    assigned
        The pods that use it, each uid once.
    unreadable
        Its owners or its options cannot be read; it matches nobody.
    pod
        The running pod that acts as it; ``None`` for a Reservation object.
    """

    reservation: Reservation
    allocatable: Resources
    names: tuple[str, ...]
    reserved: Resources
    assigned: tuple[AssignedPod, ...] = ()
    unreadable: bool = False
    pod: Pod | None = None

    @cached_property
    def allocated(self) -> Resources:
        """Sum of what its users ask for of the resources it keeps account of; not capped."""
        asked = total(one.requests for one in self.assigned)
        return make_resources({name: amount for name, amount in asked.items() if name in self.names})

    @cached_property
    def returned(self) -> Resources:
        """What counts twice on the node, as the holder's and as its users': never more than it holds."""
        held = self.allocatable
        return make_resources(
            {name: min(amount, held[name]) for name, amount in self.allocated.items() if name in held}
        )

    @cached_property
    def available(self) -> Resources:
        """What is left for further users, never below zero."""
        allocated, reserved = self.allocated, self.reserved
        return make_resources(
            {
                name: max(0, amount - allocated.get(name, 0) - reserved.get(name, 0))
                for name, amount in self.allocatable.items()
            }
        )

    @property
    def scored(self) -> tuple[int, int]:
        """CPU and memory of its users as scores count them: with defaults where none of them asks for any."""
        if not self.assigned:
            return 0, 0
        return (
            self.allocated.get(CPU, DEFAULT_CPU_REQUEST),
            self.allocated.get(MEMORY, DEFAULT_MEMORY_REQUEST),
        )

    @property
    def restricted(self) -> bool:
        """Its account binds its users."""
        return self.reservation.allocate_policy is AllocatePolicy.RESTRICTED

    @property
    def taken(self) -> bool:
        """It may be used once and is in use."""
        return self.reservation.allocate_once and bool(self.assigned)

    @property
    def ended(self) -> bool:
        """It is over with its user: what is held is held by that one alone. A pod that acts as it goes on."""
        return self.taken and self.pod is None

    @cached_property
    def holder(self) -> Pod:
        """The pod that holds its room."""
        return reserve_pod(self.reservation) if self.pod is None else self.pod

    @property
    def matchable(self) -> bool:
        """Pods may be held against it: available, readable, and not used up."""
        return self.reservation.available and not self.unreadable and not self.taken

    def with_user(self, pod: AssignedPod) -> ReservationState:
        """Give the state with one more pod; a pod that uses it already changes nothing."""
        if any(one.uid == pod.uid for one in self.assigned):
            return self
        return attrs.evolve(self, assigned=(*self.assigned, pod))

    def without_user(self, uid: str) -> ReservationState:
        """Give the state without a pod."""
        return attrs.evolve(self, assigned=tuple(one for one in self.assigned if one.uid != uid))


def uid_of(pod: Pod) -> str:
    """Give what tells a pod from others: its uid, or its key where it has none."""
    return pod.uid or str(pod.key)


def assigned_pod(pod: Pod) -> AssignedPod:
    """Give a pod as the user of a reservation."""
    return AssignedPod(uid_of(pod), pod.requests, pod.host_ports)


def reservation_state(reservation: Reservation, users: Iterable[Pod] = ()) -> ReservationState:
    """Derive what a reservation offers.

    Parameters
    ----------
    users
        The pods that use it; one that stands twice counts once.
    """
    granted = _granted(reservation)
    allocatable = reservation.requests if granted is None else granted
    restricted = reservation.allocate_policy is AllocatePolicy.RESTRICTED
    return _state(reservation, allocatable, users, narrows=restricted)


def operating_state(pod: Pod, users: Iterable[Pod] = ()) -> ReservationState:
    """Derive what an operating pod offers as a reservation.

    Parameters
    ----------
    users
        The pods that use it; the one that its annotation names as well counts once.
    """
    state = _state(operating_reservation(pod), pod.requests, users, narrows=True)
    named = current_owner(pod.annotations)
    if named is not None:
        user = AssignedPod(named.uid or f"{named.namespace}/{named.name}", NO_RESOURCES)
        state = state.with_user(user)
    return attrs.evolve(state, pod=pod)


def _state(
    reservation: Reservation, allocatable: Resources, users: Iterable[Pod], *, narrows: bool
) -> ReservationState:
    unreadable = bool(reservation.owners_error)
    names = tuple(sorted(allocatable))
    if narrows:
        try:
            narrowed = restricted_resources(reservation.annotations)
        except ManifestError:
            unreadable = True
        else:
            names = tuple(name for name in names if name in narrowed) or names
    kept = inner_reserved(reservation.annotations)
    assigned = {one.uid: one for one in map(assigned_pod, users)}
    return ReservationState(
        reservation=reservation,
        allocatable=allocatable,
        names=names,
        reserved=make_resources({name: amount for name, amount in kept.items() if name in names}),
        assigned=tuple(assigned.values()),
        unreadable=unreadable,
    )


def used_reservations(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group pods by the uid of the reservation they use, or by its name where no uid is written."""
    users: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.finished:
            continue
        used = allocated_reservation(pod.annotations)
        if used is not None:
            users.setdefault(used.uid or used.name, []).append(pod)
    return users


def owners_of(reservation: Reservation, users: Mapping[str, list[Pod]]) -> tuple[Pod, ...]:
    """Give the pods on the reservation's node that say they use it."""
    found = users.get(reservation.uid or reservation.name, ())
    return tuple(pod for pod in found if pod.node_name == reservation.status.node_name)


def _granted(reservation: Reservation) -> Resources | None:
    """Give what a reservation was granted, or will be once it has a node; ``None`` where nothing says."""
    if not reservation.pending:
        return reservation.status.allocatable if reservation.available else None
    try:
        resized = resized_allocatable(reservation.annotations)
    except ManifestError:
        return None  # then it is granted nothing, and finds no node
    return make_resources({**reservation.requests, **resized})


def reserve_pod(reservation: Reservation) -> Pod:
    """Give the pod that stands for a reservation: it waits, is bound and holds room as the reservation does.

    Upstream ``NewReservePod``: the template with the reservation's labels and annotations over its own; the
    node that the template names becomes an annotation; where the amount granted is not what the template
    asks for, one container of its own asks for it. One that waits asks for what it will be granted, so that
    the node has what it holds.
    """
    template = reservation.template or Pod(name=reservation.name)
    annotations = {
        **template.annotations,
        **reservation.annotations,
        RESERVE_POD: "true",
        RESERVATION_NAME: reservation.name,
    }
    if template.node_name:
        annotations[RESERVATION_NODE] = template.node_name
    if reservation.pre_allocation:
        annotations[IS_PRE_ALLOCATION] = "true"
    priority = reservation.template_priority
    if priority is None:
        priority = label_priority(reservation.labels)
    phase = PodPhase.PENDING
    if reservation.over:
        phase = PodPhase.SUCCEEDED if reservation.succeeded else PodPhase.FAILED
    pod = attrs.evolve(
        template,
        name=reservation.pod_key.name,
        uid=reservation.uid,
        labels={**template.labels, **reservation.labels},
        annotations=annotations,
        priority=MAX_PRIORITY if priority is None else priority,
        node_name=reservation.status.node_name or None,
        nominated_node=reservation.annotations.get(NOMINATED_NODE) if reservation.pending else None,
        created=reservation.created,
        deleted=reservation.deleted,
        phase=phase,
        held_claims=reservation.claims,
    )
    granted = _granted(reservation)
    if granted is None or granted == reservation.requests:
        return pod
    amounts = make_resources({**reservation.requests, **granted})
    blank = tuple(attrs.evolve(one, requests={}, limits={}) for one in pod.containers)
    return attrs.evolve(
        pod,
        containers=(*blank, Container(name=FAKE_CONTAINER, requests=amounts, limits=amounts)),
        init_containers=tuple(attrs.evolve(one, requests={}, limits={}) for one in pod.init_containers),
        overhead=NO_RESOURCES,
        pod_requests=NO_RESOURCES,
        pod_limits=NO_RESOURCES,
        requests=amounts,
        limits=amounts,
        scored_requests=amounts,
    )
