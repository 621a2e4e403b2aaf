"""What can be wrong with an expression: as a value to hand out, and as an exception while at work."""

from __future__ import annotations

from enum import StrEnum

from koordcore._record import record


class SelectorErrorKind(StrEnum):
    """When an error shows."""

    COMPILE = "compile"
    """The expression can be evaluated on no device."""
    RUN = "run"
    """The expression has no value for this device; it may have one for others."""


@record
class SelectorError:
    """Why an expression has no value.

    Parameters
    ----------
    kind
        Whether this holds for every device, or for the one that was looked at.
    message
        What is wrong, in the words of the reference where these are worth having.
    position
        Index of the character where it shows; ``None`` for the expression as a whole.
    """

    kind: SelectorErrorKind
    message: str
    position: int | None = None

    def __str__(self) -> str:
        where = "" if self.position is None else f" at character {self.position + 1}"
        when = "compile" if self.kind is SelectorErrorKind.COMPILE else "runtime"
        return f"CEL {when} error{where}: {self.message}"


class CompileFailure(Exception):  # noqa: N818 - never leaves the package; SelectorError is what callers get
    """The expression cannot be compiled; ``position`` is an index into its text."""

    def __init__(self, position: int | None, message: str) -> None:
        super().__init__(message)
        self.position = position


class RunFailure(Exception):  # noqa: N818 - never leaves the package; SelectorError is what callers get
    """The expression has no value; caught by the logical operators and at the top."""


def no_such_overload(function: str = "") -> RunFailure:
    """No form of a function takes the values at hand."""
    return RunFailure(f"no such overload: {function}" if function else "no such overload")


def no_such_key(key: object) -> RunFailure:
    """A map has no such key, or a value no such part."""
    return RunFailure(f"no such key: {key}")
