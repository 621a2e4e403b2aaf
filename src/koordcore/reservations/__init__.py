"""Room held for pods: matching, filter, nomination, life cycle, pre-allocation, joint assignment."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.protocol.reservation_status import made_unschedulable as made_unschedulable
    from koordcore.reservations.assign import assign_reservations as assign_reservations
    from koordcore.reservations.lifecycle import (
        collected as collected,
        next_sync as next_sync,
        synced as synced,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.reservations.assign": ("assign_reservations",),
            "koordcore.reservations.lifecycle": ("collected", "next_sync", "synced"),
            "koordcore.protocol.reservation_status": ("made_unschedulable",),
        },
    )
