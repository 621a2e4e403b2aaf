"""Room held for pods: matching, filter, nomination, life cycle, pre-allocation, joint assignment."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.reservations.assign import (
        ReservationAssignment as ReservationAssignment,
    )
    from koordcore.reservations.assign import (
        assign_reservations as assign_reservations,
    )
    from koordcore.reservations.cache import pending_reserve_pods as pending_reserve_pods
    from koordcore.reservations.lifecycle import synced as synced
    from koordcore.reservations.state import (
        ReservationState as ReservationState,
    )
    from koordcore.reservations.state import (
        reservation_state as reservation_state,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.reservations.assign": "ReservationAssignment assign_reservations",
            "koordcore.reservations.cache": "pending_reserve_pods",
            "koordcore.reservations.lifecycle": "synced",
            "koordcore.reservations.state": "ReservationState reservation_state",
        },
    )
