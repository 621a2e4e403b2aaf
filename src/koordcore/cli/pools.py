"""Worker processes that end with the command: Ctrl-C reaches the command alone, and it ends them at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import Any

from koordcore.cli.interrupt import children_deaf


class WorkerPool(ProcessPoolExecutor):
    """Processes that start clean: a fork would take over the state of whatever thread is running here.

    Parameters
    ----------
    workers
        How many.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(max(1, workers), mp_context=get_context("spawn"))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand work over; a process that is started for it does not hear Ctrl-C."""
        with children_deaf():
            return super().submit(fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> bool | None:
        if kind is None or issubclass(kind, Exception):
            return super().__exit__(kind, error, trace)
        for child in active_children():
            child.terminate()
        self.shutdown(wait=False, cancel_futures=True)
        return None
