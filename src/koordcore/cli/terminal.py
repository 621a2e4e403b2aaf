"""What reaches a terminal: text without control characters, whatever a dump holds, and reports of defects."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from koordcore import __version__


class _PrintableStream(io.TextIOBase):
    """A text stream that writes control characters, and what its encoding lacks, as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if text.isascii() and text.replace("\n", "").isprintable():
            self.stream.write(text)
            return len(text)
        from koordcore.errors import printable  # brings attrs, which help does not need

        encoding = self.encoding or "utf-8"
        self.stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute in typeshed
        return self.stream.encoding


class _RemarkStream(_PrintableStream):
    """The same for remarks: on a terminal, lines that are too long for it are folded at spaces."""

    def write(self, text: str) -> int:
        if self.isatty():
            width = self._width()
            if any(len(line) > width for line in text.split("\n")):
                super().write("\n".join(_folded(line, width) for line in text.split("\n")))
                return len(text)
        return super().write(text)

    def _width(self) -> int:
        try:
            own = os.get_terminal_size(self.fileno())
        except OSError:
            own = os.terminal_size((80, 24))
        return shutil.get_terminal_size(own).columns


def _folded(line: str, width: int) -> str:
    """Fold a line; what is below its first stands two columns further in."""
    from koordcore.cli.layout import fold  # brings attrs, as above

    indent = " " * (len(line) - len(line.lstrip(" ")))
    first, *rest = fold(line.strip(" "), width - len(indent) - 2)
    return "\n".join((indent + first, *(f"{indent}  {one}" for one in rest)))


def whole_lines(stream: TextIO) -> TextIO:
    """Give a stream that folds no lines, for what is to be copied."""
    kept: TextIO = _PrintableStream(raw(stream))  # type: ignore[assignment]  # all that `print` asks for
    return kept


def raw(stream: Any) -> Any:
    """Give the stream below, for whoever escapes what it shows and writes colours itself."""
    return stream.stream if isinstance(stream, _PrintableStream) else stream


@contextmanager
def printable_output(out: TextIO, err: TextIO) -> Iterator[None]:
    """Let nothing but text reach standard output and standard error."""
    with redirect_stdout(_PrintableStream(out)), redirect_stderr(_RemarkStream(err)):
        yield


def defect_report(error: BaseException, words: Sequence[str]) -> str:
    """Say that the library failed, and what a report of it should hold."""
    import platform
    import shlex
    import traceback

    return "\n".join(
        (
            f"koordcore: {type(error).__name__}: {error}",
            "koordcore: a defect of koordcore: please report it with these lines, and the input if you may",
            f"  koordcore {__version__}, Python {platform.python_version()}, {platform.system()}",
            f"  command: koordcore {shlex.join(words)}",
            "".join(traceback.format_exception(error)).rstrip(),
        )
    )
