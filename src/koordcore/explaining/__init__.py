"""Why here, why not there, what would help."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.explaining.advice import advise as advise
    from koordcore.explaining.audit import (
        Audit as Audit,
        audit_workloads as audit_workloads,
        reason_histogram as reason_histogram,
    )
    from koordcore.explaining.claimed_devices import (
        node_room as node_room,
        pool_views as pool_views,
    )
    from koordcore.explaining.cycle import explain_cycle as explain_cycle
    from koordcore.explaining.diagnosis import diagnose as diagnose
    from koordcore.explaining.endpoints import (
        ENDPOINTS as ENDPOINTS,
        endpoint_view as endpoint_view,
    )
    from koordcore.explaining.pod import (
        Explanation as Explanation,
        explain as explain,
    )
    from koordcore.explaining.post_filter import failure_event as failure_event
    from koordcore.explaining.reservation_events import (
        reservation_event as reservation_event,
        reservation_reasons as reservation_reasons,
    )
    from koordcore.explaining.verdicts import NodeVerdict as NodeVerdict
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.explaining.advice": ("advise",),
            "koordcore.explaining.audit": ("Audit", "audit_workloads", "reason_histogram"),
            "koordcore.explaining.claimed_devices": ("node_room", "pool_views"),
            "koordcore.explaining.cycle": ("explain_cycle",),
            "koordcore.explaining.diagnosis": ("diagnose",),
            "koordcore.explaining.endpoints": ("ENDPOINTS", "endpoint_view"),
            "koordcore.explaining.pod": ("Explanation", "explain"),
            "koordcore.explaining.post_filter": ("failure_event",),
            "koordcore.explaining.reservation_events": ("reservation_event", "reservation_reasons"),
            "koordcore.explaining.verdicts": ("NodeVerdict",),
        },
    )
