"""Why here, why not there, what would help."""

from koordcore.explain.audit import Audit, audit_workloads, reason_histogram
from koordcore.explain.diagnosis import diagnose
from koordcore.explain.pod import Explanation, Help, NodeVerdict, explain
from koordcore.explain.reservation_reasons import reservation_event, reservation_reasons

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
