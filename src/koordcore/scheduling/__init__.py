"""The loop: queue order, admit, filter, score, allocate, assume; pod or gang."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.scheduling.backfilling import (
        backfill as backfill,
        earliest_start as earliest_start,
    )
    from koordcore.scheduling.entry import schedule as schedule
    from koordcore.scheduling.waiting_pods import queue_order as queue_order
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.scheduling.backfilling": ("backfill", "earliest_start"),
            "koordcore.scheduling.waiting_pods": ("queue_order",),
            "koordcore.scheduling.entry": ("schedule",),
        },
    )
