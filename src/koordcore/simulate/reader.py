"""The one place of the replay that opens files: a folder or a file of a trace, compressed or not."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.protocol.fields import as_int, as_list, as_mapping, as_str, list_of, required
from koordcore.scoring.gpu_share import GpuNode
from koordcore.simulate.trace import Trace, parse_nodes, parse_trace

_OPENERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
)


def read_text(path: Path) -> str:
    """Read a text file; ``.gz``, ``.bz2`` and ``.xz`` are unpacked.

    Raises
    ------
    ManifestError
        With the file, when it is not packed as its name says, or is no UTF-8.
    """
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as file:
            return bytes(file.read()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError([Problem("", f"not UTF-8: byte {error.start}", source=str(path))]) from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        message = getattr(error, "strerror", None) or str(error)
        raise ManifestError([Problem("", message, source=str(path))]) from None


@record(kw_only=True)
class PublishedRun:
    """One run of the experiment: in which order tasks came, and what each policy made of it.

    Parameters
    ----------
    trace, seed
        Which run.
    arrivals
        Indices into the trace sorted by name.
    ranks
        Tie rank of each node, nodes sorted by name.
    published
        Policy name to its ``alloc`` and ``frag`` columns, percent by percent arrived.
    """

    trace: str
    seed: int
    arrivals: tuple[int, ...]
    ranks: tuple[int, ...]
    published: Mapping[str, Mapping[str, tuple[float, ...]]]


def _run(raw: object) -> PublishedRun:
    entry = as_mapping(raw)
    return PublishedRun(
        trace=required(entry, "trace", as_str),
        seed=required(entry, "seed", as_int),
        arrivals=required(entry, "arrivals", list_of(as_int)),
        ranks=required(entry, "node_rank", list_of(as_int)),
        published=required(entry, "published", _published),
    )


def _published(raw: object) -> Mapping[str, Mapping[str, tuple[float, ...]]]:
    return {
        policy: {
            name: tuple(float(str(x)) for x in as_list(column))
            for name, column in as_mapping(columns).items()
        }
        for policy, columns in as_mapping(raw).items()
    }


@record
class TraceFolder:
    """A folder with ``nodes.csv``, ``pods_<trace>.csv`` and, where there are stored runs, ``runs.json``.

    Each file may be compressed, with the usual suffix.
    """

    path: Path

    def nodes(self) -> tuple[GpuNode, ...]:
        """Read the cluster."""
        return parse_nodes(read_text(self._file("nodes.csv")).splitlines())

    def trace(self, name: str) -> Trace:
        """Read a trace by its name."""
        return parse_trace(read_text(self._file(f"pods_{name}.csv")).splitlines())

    def traces(self) -> tuple[str, ...]:
        """List the names of the traces."""
        names = {path.name.split(".")[0].removeprefix("pods_") for path in self.path.glob("pods_*.csv*")}
        return tuple(sorted(names))

    def runs(self) -> tuple[PublishedRun, ...]:
        """Read the stored runs; none where there is no such file."""
        if not any(self.path.glob("runs.json*")):
            return ()
        path = self._file("runs.json")
        text = read_text(path)
        try:
            return tuple(_run(raw) for raw in as_list(json.loads(text)))
        except ManifestError as error:
            raise error.within(path.name) from None
        except json.JSONDecodeError as error:
            raise ManifestError.at(path.name, f"not JSON: {error}") from None

    def fingerprint(self, name: str) -> str:
        """Tell a trace, with the cluster and the stored runs, from another one of the same name."""
        files = [self._file("nodes.csv"), self._file(f"pods_{name}.csv")]
        if any(self.path.glob("runs.json*")):
            files.append(self._file("runs.json"))
        texts = (read_text(file).encode("utf-8") for file in files)
        return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()

    def _file(self, name: str) -> Path:
        for suffix in ("", *_OPENERS):
            path = self.path / (name + suffix)
            if path.is_file():
                return path
        raise ManifestError.at(str(self.path), f"no {name} (or compressed: {', '.join(_OPENERS)})")
