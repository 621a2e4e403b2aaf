"""The loop: queue order, admit, filter, score, allocate, assume; pod or gang."""

from koordcore.schedule.loop import queue_order, schedule

__all__ = ["queue_order", "schedule"]
