"""The names of a package, each read from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Final

_OWN: Final = {"TYPE_CHECKING", "read_late"}
"""What a package's file needs and does not offer."""
_HANDED_OUT: Final[dict[FunctionType, object]] = {}


def read_late(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Give ``__all__``, ``__getattr__`` and ``__dir__`` of a package, importing which then loads nothing.

    Parameters
    ----------
    package
        Its name.
    homes
        Module to the names that it gives.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def read(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value = handed_out(getattr(import_module(home_of[name]), name), package)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of} - _OWN)

    return sorted(home_of), read, listed


def handed_out(value: object, package: str) -> object:
    """Give what a face gives for a name: a function names what is wrong with its arguments."""
    if not isinstance(value, FunctionType):
        return value
    if value not in _HANDED_OUT:
        from koordcore._blame import names_its_arguments

        wrapped = names_its_arguments(value)
        # Where it is found again, by a process that it is sent to: the same face, whichever is read first.
        home = value.__module__.rpartition(".")[0]
        offered = value.__name__ in getattr(sys.modules.get(home), "__all__", ())
        wrapped.__module__ = home if offered else package
        _HANDED_OUT[value] = wrapped
    return _HANDED_OUT[value]
