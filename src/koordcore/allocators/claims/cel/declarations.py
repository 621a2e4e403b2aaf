"""How a library of functions says what it offers."""

from __future__ import annotations

from koordcore._record import record
from koordcore.allocators.claims.cel.types import Type
from koordcore.allocators.claims.cel.values import Implementation


@record(eq=False)
class Overload:
    """One form of a function.

    Parameters
    ----------
    parameters
        Types of the arguments; the first is the value that a method is called on.
    result
        Type of what it gives.
    run
        Called with the budget and the arguments.
    member
        It is called as a method.
    """

    parameters: tuple[Type, ...]
    result: Type
    run: Implementation
    member: bool


class Library:
    """Functions by name, each in its forms."""

    def __init__(self) -> None:
        self.functions: dict[str, list[Overload]] = {}

    def function(self, name: str, parameters: tuple[Type, ...], result: Type, run: Implementation) -> None:
        """Add a form that is called as ``name(a, b)``."""
        self.functions.setdefault(name, []).append(Overload(parameters, result, run, member=False))

    def method(self, name: str, parameters: tuple[Type, ...], result: Type, run: Implementation) -> None:
        """Add a form that is called as ``a.name(b)``."""
        self.functions.setdefault(name, []).append(Overload(parameters, result, run, member=True))

    def both(self, name: str, parameters: tuple[Type, ...], result: Type, run: Implementation) -> None:
        """Add a form that is called either way."""
        self.function(name, parameters, result, run)
        self.method(name, parameters, result, run)
