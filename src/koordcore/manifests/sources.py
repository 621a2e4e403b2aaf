"""Files in, raw objects out: the loader, and the only part below the command line that opens files.

JSON (one document, several, or a ``List``), YAML with several documents, either of them gzipped, folders, and
a text stream for ``-``. Whatever cannot be read becomes a :class:`~koordcore.errors.Problem` in its place, so
that one broken document does not hide the others.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import attrs

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._json import read_json
from koordcore.manifests._raw import GZIP_FREE, LIMITS, Source, SourceLimits, SourceObject
from koordcore.manifests._yaml import read_yaml

__all__ = ["SourceLimits", "SourceObject", "read_json", "read_sources", "read_text", "read_yaml"]

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""What is read out of a folder, each also with ``.gz`` behind it."""

_GZIP: Final = b"\x1f\x8b"
_SPACE: Final = " \t\r\n"


def read_sources(
    paths: Iterable[str | Path],
    *,
    stdin: IO[str] | None = None,
    limits: SourceLimits = LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Iterator[Source]:
    """Read files and folders one object after the other.

    Parameters
    ----------
    paths
        Files, folders (read recursively in the order of their names; hidden entries are left out), or ``-``.
    stdin
        What ``-`` stands for.
    limits
        Bounds against hostile input.
    progress
        Called as objects are read with how many characters of the texts that is, and of how many; what is
        packed or comes in a stream counts once it is opened.

    Yields
    ------
    SourceObject or Problem
        Items of a ``List`` come one by one. A problem stands for what could not be read.

    Raises
    ------
    MissingExtraError
        When YAML is to be read and PyYAML is not installed.
    """
    left = limits.total_bytes
    files = list(_files(paths))
    sizes = [_size(path) for _, path in files]
    for number, (label, path) in enumerate(files, 1):
        if isinstance(path, Problem):
            yield path
            continue
        try:
            text = _read_stream(stdin, limits) if path is None else _read_file(path, limits)
        except ManifestError as error:
            yield from _at_source(error, label)
            continue
        read = limits.total_bytes - left
        left -= len(text)
        if left < 0:
            yield Problem("", f"all files together hold more than {limits.total_bytes} bytes", source=label)
            return
        total = read + len(text) + sum(sizes[number:])
        for source in read_text(text, label, limits):
            if isinstance(source, SourceObject) and source.end:
                progress(read + source.end, total)
            yield source


def _at_source(error: ManifestError, label: str) -> Iterator[Problem]:
    return (attrs.evolve(problem, source=label) for problem in error.problems)


def _files(paths: Iterable[str | Path]) -> Iterator[tuple[str, Path | Problem | None]]:
    for given in paths:
        if str(given) == "-":
            yield "standard input", None
            continue
        path = Path(given)
        try:
            found = _folder(path) if path.is_dir() else [path]
            if not path.exists():
                yield str(given), Problem("", "no such file or folder", source=str(given))
                continue
        except (OSError, ValueError) as error:
            yield str(given), Problem("", _os_message(error), source=str(given)[:_SHOWN_PATH])
            continue
        if not found:
            wanted = ", ".join(SUFFIXES)
            yield str(given), Problem("", f"no file with {wanted} (or .gz) in this folder", source=str(given))
        for file in found:
            yield str(file), file


_SHOWN_PATH: Final = 200


def _size(path: Path | Problem | None) -> int:
    try:
        return path.stat().st_size if isinstance(path, Path) else 0
    except (OSError, ValueError):
        return 0


def _folder(folder: Path) -> list[Path]:
    """Find manifests below a folder; links to folders are not followed, so there are no loops."""
    found: list[Path] = []
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                found += _folder(entry)
        elif entry.name.removesuffix(".gz").endswith(SUFFIXES):
            found.append(entry)
    return found


def _os_message(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _read_stream(stdin: IO[str] | None, limits: SourceLimits) -> str:
    if stdin is None:
        raise ManifestError.at("", "no standard input was given")
    try:
        text = stdin.read(limits.file_bytes + 1)
    except (OSError, ValueError) as error:
        raise ManifestError.at("", _os_message(error)) from None
    if len(text) > limits.file_bytes:
        raise _too_large(limits)
    return text.removeprefix("\ufeff")


def _read_file(path: Path, limits: SourceLimits) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.file_bytes + 1)
    except OSError as error:
        raise ManifestError.at("", _os_message(error)) from None
    if len(data) > limits.file_bytes:
        raise _too_large(limits)
    if data[:2] == _GZIP:
        data = _decompress(data, limits)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError.at("", f"not UTF-8: byte {error.start}") from None


def _too_large(limits: SourceLimits) -> ManifestError:
    return ManifestError.at("", f"more than {limits.file_bytes} bytes (SourceLimits.file_bytes)")


def _decompress(data: bytes, limits: SourceLimits) -> bytes:
    """Unpack gzip members one after the other and stop at the limit, before the memory is spent."""
    most = min(limits.file_bytes, max(GZIP_FREE, limits.gzip_ratio * len(data)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
    except EOFError:
        raise ManifestError.at("", "gzip data end too early") from None
    except (OSError, zlib.error) as error:
        raise ManifestError.at("", f"not gzip: {error}") from None
    if len(unpacked) > limits.file_bytes:
        raise _too_large(limits)
    if len(unpacked) > most:
        message = f"unpacks to more than {limits.gzip_ratio} times its size (SourceLimits.gzip_ratio)"
        raise ManifestError.at("", message)
    return unpacked


def read_text(text: str, label: str, limits: SourceLimits = LIMITS) -> Iterator[Source]:
    """Read the objects of a text, JSON or YAML; ``label`` says where it stands."""
    # A long text is not copied to see its first character.
    first = text[:1000].lstrip(_SPACE)[:1]
    if first and first in "{[" and not label.removesuffix(".gz").endswith((".yaml", ".yml")):
        return read_json(text, label)
    return read_yaml(text, label, limits=limits)
