"""Ctrl-C at any moment: one line and exit code 130 within a second, whatever is running.

Python hears of the signal between two instructions of its own only, and a solver may take long over one. So
the interpreter writes every signal into a pipe, and a thread that reads it ends the process where nobody else
does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

INTERRUPTED: Final = 130
_GRACE: Final = 0.7
"""Seconds to say what is done already."""

_came = threading.Event()


def watch_for_interrupts() -> None:
    """From now on Ctrl-C ends the program even when Python is not listening."""
    if os.name != "posix":  # elsewhere the pipe would have to be a socket, and Ctrl-C is heard at once anyway
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def was_interrupted() -> bool:
    """Tell whether Ctrl-C was pressed; what goes wrong then is no defect."""
    return _came.is_set()


def _watch(reader: int) -> None:
    while signal.SIGINT not in os.read(reader, 64):
        pass
    _came.set()
    time.sleep(_GRACE)
    end_interrupted()


def end_interrupted() -> NoReturn:
    """Say so in one line and end, with whatever was started."""
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()
    os.write(2, b"\x1b[2K\rkoordcore: interrupted\n" if os.isatty(2) else b"koordcore: interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def children_deaf() -> Iterator[None]:
    """Let processes that are started meanwhile not hear Ctrl-C: whoever started them ends them."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
