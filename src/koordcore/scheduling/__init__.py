"""The loop: queue order, admit, filter, score, allocate, assume; pod or gang."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.scheduling.backfilling import (
        backfill as backfill,
        earliest_start as earliest_start,
    )
    from koordcore.scheduling.cycle import queue_order as queue_order
    from koordcore.scheduling.entry import schedule as schedule
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.scheduling.backfilling": ("backfill", "earliest_start"),
            "koordcore.scheduling.cycle": ("queue_order",),
            "koordcore.scheduling.entry": ("schedule",),
        },
    )
