"""Worker processes that end with the command: Ctrl-C reaches the command alone, and it ends them at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import Any

from koordcore.cli.interrupt import children_deaf


def _clean_up_in_silence() -> None:
    """Start the process of Python that frees semaphores afterwards: Ctrl-C is no leak to tell of."""
    if os.name != "posix":
        return
    from multiprocessing import resource_tracker  # only where there is one

    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


class WorkerPool(ProcessPoolExecutor):
    """Processes that start clean: a fork would take over the state of whatever thread is running here.

    Parameters
    ----------
    workers
        How many.
    """

    def __init__(self, workers: int) -> None:
        _clean_up_in_silence()
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
