"""A way to the server that is cut again and again, in whatever it carries."""

from __future__ import annotations

import random  # noqa: TID251  # seeded; a tool for people, not the library
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType

__all__ = ["CuttingProxy"]

_CHUNK = 65536


class CuttingProxy:
    """Listens on the loopback interface and hands everything on to a port, for as long as the block lasts.

    Parameters
    ----------
    port
        Where the server listens.
    seed
        Of the moments at which a connection is cut, and of which one it is.
    pauses
        Least and greatest time between two cuts, in seconds; ``None`` for no cuts.
    """

    def __init__(self, port: int, *, seed: int, pauses: tuple[float, float] | None = (0.02, 0.4)) -> None:
        self._target = port
        self._chance = random.Random(seed)
        self._pauses = pauses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._stopped, self._flows = threading.Event(), threading.Event()
        self._flows.set()
        self.cuts = 0

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        if self._pauses is not None:
            cut = partial(self._cut, self._pauses)
            threading.Thread(target=cut, name="scissors", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._listener.close()
        with self._lock:
            for pair in self._open:
                _close(pair)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing through for as long as the block lasts, then cut all connections."""
        self._flows.clear()
        try:
            yield
        finally:
            with self._lock:
                for pair in self._open:
                    _close(pair)
            self._flows.set()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                continue
            pair = near, far
            with self._lock:
                self._open.append(pair)
            for one, other in (pair, pair[::-1]):
                threading.Thread(target=self._hand_on, args=(one, other, pair), daemon=True).start()

    def _hand_on(
        self, one: socket.socket, other: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        try:
            while data := one.recv(_CHUNK):
                self._flows.wait()
                other.sendall(data)
        except OSError:
            pass
        with self._lock:
            if pair in self._open:
                self._open.remove(pair)
        _close(pair)

    def _cut(self, pauses: tuple[float, float]) -> None:
        while not self._stopped.wait(self._chance.uniform(*pauses)):
            with self._lock:
                pair = self._chance.choice(self._open) if self._open else None
            if pair is not None:
                self.cuts += 1
                _close(pair)


def _close(pair: tuple[socket.socket, socket.socket]) -> None:
    for one in pair:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
