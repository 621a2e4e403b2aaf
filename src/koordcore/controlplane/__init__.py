"""The pure core of a control plane: what it knows, whose turn it is, what it is about to do.

Nothing here talks to a server, reads a clock or waits. ``examples/kubernetes`` puts HTTP around it.
"""

from koordcore.controlplane.journal import Batch, is_final
from koordcore.controlplane.mirror import Mirror, complete
from koordcore.controlplane.overdue import Overdue, half_gangs
from koordcore.controlplane.queue import Backoff, SchedulingQueue
from koordcore.controlplane.requests import RESOURCES, Object, Request, key_of, version_of
from koordcore.controlplane.turn import Orders, is_news, orders

__all__ = [
    "RESOURCES",
    "Backoff",
    "Batch",
    "Mirror",
    "Object",
    "Orders",
    "Overdue",
    "Request",
    "SchedulingQueue",
    "complete",
    "half_gangs",
    "is_final",
    "is_news",
    "key_of",
    "orders",
    "version_of",
]
