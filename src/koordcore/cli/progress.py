"""What a terminal says while something takes a while: what it is, how far it is, how long it will last."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from koordcore.cli.terminal import raw

_PATIENCE: Final = 0.7
"""Seconds before anything is said."""
_PAUSE: Final = 0.25
_QUIET: Final = ContextVar("quiet", default=False)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="no warnings and no progress on standard error"
    )


@contextmanager
def silenced(quiet: bool) -> Iterator[None]:
    """Say nothing of how far anything is, where that is asked for."""
    token = _QUIET.set(quiet)
    try:
        yield
    finally:
        _QUIET.reset(token)


class Step(Protocol):
    """Told how many steps are done, and of how many where that is not known from the start."""

    def __call__(self, done: int, total: int = 0, /) -> None:
        """Note it."""


def _nobody(done: int, total: int = 0, /) -> None:
    del done, total


@contextmanager
def working(what: str, total: int = 0) -> Iterator[Step]:
    """Say on a terminal what is going on while it takes a while; silent in a pipe and with ``--quiet``.

    Parameters
    ----------
    what
        Such as ``placing 100 pods``.
    total
        How many steps there are; 0 where nobody knows yet.

    Yields
    ------
    Step
        To be told how many steps are done.
    """
    if _QUIET.get() or not sys.stderr.isatty():
        yield _nobody
        return
    line = _Line(what, total)
    try:
        yield line.step
    finally:
        line.close()


def progress_text(what: str, done: int, total: int, seconds: float) -> str:
    """Write how far something is, and an estimate from the pace so far.

    >>> progress_text("placing", 250, 1000, 2.0)
    'placing: 250 of 1000, 6 s left'
    >>> progress_text("reading", 5000, 0, 2.0), progress_text("planning", 0, 0, 61.0)
    ('reading: 5000, 2 s', 'planning: 61 s')
    """
    if not done:
        return f"{what}: {seconds:.0f} s"
    if not total:
        return f"{what}: {done}, {seconds:.0f} s"
    left = seconds * max(total - done, 0) / done
    return f"{what}: {done} of {total}, {left:.0f} s left"


class _Line:
    """A line on standard error that a thread keeps up to date."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._over = threading.Event()
        self._stream = raw(sys.stderr)
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def step(self, done: int, total: int = 0, /) -> None:
        self._done, self._total = done, total or self._total

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        start = time.monotonic()
        if self._over.wait(_PATIENCE):
            return
        while True:
            text = progress_text(self._what, self._done, self._total, time.monotonic() - start)
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()
            if self._over.wait(_PAUSE):
                break
        self._stream.write("\r\x1b[2K")
        self._stream.flush()
