"""Operating pods: pods that run, and act as reservations for their owners.

After upstream's ``apis/extension/operating_pod.go`` and ``NewReservationInfoFromPod``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.mappings import found_in
from koordcore.model.pods import Pod, PodPhase
from koordcore.model.reservations import (
    AllocatePolicy,
    ObjectReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.protocol.fields import as_list, load_json
from koordcore.protocol.reservation import OPERATING_MODE, PREFIX
from koordcore.protocol.reservation_owners import as_object_reference, as_owner, owners_error

RESERVATION_OWNERS: Final = PREFIX + "reservation-owners"
CURRENT_OWNER: Final = PREFIX + "reservation-current-owner"


def is_operating_pod(pod: Pod) -> bool:
    """Tell whether a pod acts as a reservation once it runs."""
    return found_in(pod.labels, OPERATING_MODE) == "Reservation"


def parse_owners(text: str) -> tuple[ReservationOwner, ...]:
    """Read whom an operating pod is for.

    Raises
    ------
    ManifestError
        When that cannot be read; then it is for nobody.
    """
    value = load_json(text) if text else None
    listed = [] if value is None else as_list(value)
    wrong = owners_error(listed)
    if wrong:
        raise ManifestError.at("", wrong)
    return tuple(as_owner(one) for one in listed)


def current_owner(annotations: Mapping[str, str]) -> ObjectReference | None:
    """Read which pod is said to use an operating pod; ``None`` for none, or where it cannot be read."""
    text = annotations.get(CURRENT_OWNER, "")
    try:
        value = load_json(text) if text else None
        return None if value is None else as_object_reference(value)
    except ManifestError:
        return None


def operating_reservation(pod: Pod) -> Reservation:
    """Give an operating pod that has a node as the reservation that it acts as.

    It holds what the pod asks for, is for one owner, and lets that one take from the node what it lacks.
    Until the pod runs and is ready nobody is matched with it.
    """
    try:
        owners, wrong = parse_owners(pod.annotations.get(RESERVATION_OWNERS, "")), ""
    except ManifestError as error:
        owners, wrong = (), str(error)
    usable = pod.phase is PodPhase.RUNNING and pod.ready
    return Reservation(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        template=pod,
        template_priority=pod.priority,
        owners=owners,
        owners_error=wrong,
        ttl=0,
        allocate_once=True,
        allocate_policy=AllocatePolicy.ALIGNED,
        created=pod.created,
        deleted=pod.deleted,
        status=ReservationStatus(
            phase=ReservationPhase.AVAILABLE if usable else ReservationPhase.WAITING,
            node_name=pod.node_name or "",
            allocatable=pod.requests,
        ),
    )
