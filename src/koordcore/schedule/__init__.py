"""The loop: queue order, admit, filter, score, allocate, assume; pod or gang."""

from koordcore.schedule.entry import schedule

__all__ = ["schedule"]
