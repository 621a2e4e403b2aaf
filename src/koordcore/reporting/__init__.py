"""A page to look at: the cluster, the queue, gangs, quotas and plans in one HTML file."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.reporting.page import report as report
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.reporting.page": ("report",),
        },
    )
