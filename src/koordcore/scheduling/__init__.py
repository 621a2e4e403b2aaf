"""The loop: queue order, admit, filter, score, allocate, assume; pod or gang."""

from koordcore.scheduling.entry import schedule

__all__ = ["schedule"]
