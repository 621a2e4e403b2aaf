"""What a caller can do wrong.

Only a caller's fault is an exception. "Does not fit" is a value (see :mod:`koordcore.model.decisions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from koordcore._record import record


class KoordcoreError(Exception):
    """Base of every exception that the library raises on purpose."""


class ModelError(KoordcoreError, ValueError):
    """A value that no cluster can hold, such as a negative request or a cycle among quotas."""


class SolverError(KoordcoreError, RuntimeError):
    """A solver answer failed its own check: a defect of the library, never of the input."""


class MissingExtraError(KoordcoreError, ImportError):
    """A plugin needs an optional dependency; the message names the extra to install."""

    @classmethod
    def for_extra(cls, package: str, extra: str, purpose: str) -> MissingExtraError:
        """Name the missing package, the extra that brings it, and what needs it.

        Parameters
        ----------
        package
            What could not be imported.
        extra
            The extra of koordcore that brings it.
        purpose
            What needs it.
        """
        return cls(f"{purpose} needs {package}: pip install 'koordcore[{extra}]'")


_CONTROL: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    # What moves a cursor, changes colours, or turns the direction of writing around.
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t\r"
}
_SHOWN: Final = 1000


def printable(text: str) -> str:
    r"""Write control characters as escapes, so that no text of a dump can act on a terminal.

    Examples
    --------
    >>> print(printable("a\x1b[31mb"))
    a\x1b[31mb
    """
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROL)


def _shown(text: str) -> str:
    return printable(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


@record
class Problem:
    """One thing wrong with one place of one object.

    Parameters
    ----------
    path
        Dotted path inside the object, such as ``spec.devices[3].minor``; empty for the object as a whole.
    message
        What is wrong, such as ``expected int, got "a"``.
    object_name
        Kind and name of the object, such as ``Device gpu-node-1``; empty where unknown.
    source
        File (and document number) the object came from; empty where unknown.
    """

    path: str
    message: str
    object_name: str = ""
    source: str = ""

    def __str__(self) -> str:
        parts = (self.source, self.object_name, self.path, self.message)
        return ": ".join(_shown(part) for part in parts if part)

    def within(self, prefix: str) -> Problem:
        """Give the same problem seen from one level further out."""
        return attrs.evolve(self, path=join_path(prefix, self.path))


def join_path(prefix: str, path: str) -> str:
    """Join two parts of a dotted path; an index such as ``[3]`` takes no dot."""
    if not prefix or not path:
        return prefix or path
    return f"{prefix}{path}" if path.startswith("[") else f"{prefix}.{path}"


class ManifestError(KoordcoreError, ValueError):
    """Input that cannot be read; carries every problem that was found.

    Attributes
    ----------
    problems
        One entry per defect, in the order in which they were met.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def at(cls, path: str, message: str) -> ManifestError:
        """Make an error with a single problem."""
        return cls([Problem(path, message)])

    def within(self, prefix: str) -> ManifestError:
        """Give the same error seen from one level further out."""
        return ManifestError(problem.within(prefix) for problem in self.problems)
