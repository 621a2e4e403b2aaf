"""Why here, why not there, what would help."""

from koordcore.explaining.audit import Audit, audit_workloads, reason_histogram
from koordcore.explaining.diagnosis import diagnose
from koordcore.explaining.pod import Explanation, Help, NodeVerdict, explain
from koordcore.explaining.reservation_events import reservation_event, reservation_reasons

__all__ = [
    "Audit",
    "Explanation",
    "Help",
    "NodeVerdict",
    "audit_workloads",
    "diagnose",
    "explain",
    "reason_histogram",
    "reservation_event",
    "reservation_reasons",
]
