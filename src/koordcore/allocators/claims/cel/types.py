"""Static types of the expression language, and when one can stand for another.

Reference: the CEL language definition, "Gradual Type Checking"; ``cel-go/checker``.
"""

from __future__ import annotations

from typing import Final

from koordcore._record import record

_VARIABLE: Final = "?"


@record
class Type:
    """A type by name, with the types of its members where it has any."""

    name: str
    parameters: tuple[Type, ...] = ()

    @property
    def is_variable(self) -> bool:
        """The type stands for another one that is not known yet."""
        return self.name.startswith(_VARIABLE)

    @property
    def is_dynamic(self) -> bool:
        """Nothing is known of the type before the expression runs."""
        return self.name in {"dyn", "any"}

    def __str__(self) -> str:
        if not self.parameters:
            return self.name.removeprefix(_VARIABLE)
        return f"{self.name}({', '.join(map(str, self.parameters))})"


DYN: Final = Type("dyn")
ANY: Final = Type("any")
"""Type of attributes where lists are off: like ``dyn``, but no macro runs over it."""
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
DURATION: Final = Type("duration")
TIMESTAMP: Final = Type("timestamp")
QUANTITY: Final = Type("kubernetes.Quantity")
SEMVER: Final = Type("kubernetes.Semver")
URL: Final = Type("kubernetes.URL")
IP: Final = Type("net.IP")
CIDR: Final = Type("net.CIDR")
FORMAT: Final = Type("kubernetes.NamedFormat")
DEVICE: Final = Type("kubernetes.DRADevice")

_NULLABLE: Final = frozenset({"null", "duration", "timestamp", "optional_type"}) | {
    opaque.name for opaque in (QUANTITY, SEMVER, URL, IP, CIDR, FORMAT, DEVICE)
}


def variable(name: str) -> Type:
    """A type that each use of a declaration chooses anew."""
    return Type(_VARIABLE + name)


def list_of(member: Type) -> Type:
    """Lists of one type of member."""
    return Type("list", (member,))


def map_of(key: Type, value: Type) -> Type:
    """Maps from one type of key to one type of value."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """A value of the type, or none."""
    return Type("optional_type", (value,))


def type_of_types(denoted: Type) -> Type:
    """Type of what ``type(x)`` gives, and of the names of types."""
    return Type("type", (denoted,))


def function_type_text(arguments: tuple[Type, ...], *, member: bool) -> str:
    """Argument types of a call as messages show them."""
    if member:
        return f"{arguments[0]}.({', '.join(map(str, arguments[1:]))})"
    return f"({', '.join(map(str, arguments))})"


class Unifier:
    """What the type variables of one expression stand for so far."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._count = 0

    def fresh(self) -> Type:
        """A variable that nobody else uses."""
        self._count += 1
        return variable(str(self._count))

    def resolve(self, type_: Type) -> Type:
        """The type with all that is known put in."""
        if type_.is_variable:
            bound = self._bound.get(type_.name)
            return type_ if bound is None else self.resolve(bound)
        if not type_.parameters:
            return type_
        return Type(type_.name, tuple(self.resolve(one) for one in type_.parameters))

    def final(self, type_: Type) -> Type:
        """The type with what is still open made dynamic."""
        known = self.resolve(type_)
        if known.is_variable:
            return DYN
        return Type(known.name, tuple(self.final(one) for one in known.parameters))

    def assign_all(self, actual: tuple[Type, ...], declared: tuple[Type, ...]) -> bool:
        """Whether values of the actual types can be passed; nothing is learnt where they cannot."""
        if len(actual) != len(declared):
            return False
        mark = len(self._trail)
        if all(self._assign(one, other) for one, other in zip(actual, declared, strict=True)):
            return True
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def assign(self, actual: Type, declared: Type) -> bool:
        """Whether a value of the actual type can be passed; nothing is learnt where it cannot."""
        return self.assign_all((actual,), (declared,))

    def _bind(self, name: str, type_: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = type_

    def _assign(self, actual: Type, declared: Type) -> bool:
        if declared.is_variable:
            return self._assign_variable(declared, actual, flipped=False)
        if actual.is_variable:
            return self._assign_variable(actual, declared, flipped=True)
        if actual.is_dynamic or declared.is_dynamic:
            return True
        if actual == NULL:
            return declared.name in _NULLABLE
        if actual.name == declared.name == "type":
            return True
        return (
            actual.name == declared.name
            and len(actual.parameters) == len(declared.parameters)
            and all(map(self._assign, actual.parameters, declared.parameters))
        )

    def _assign_variable(self, unknown: Type, other: Type, *, flipped: bool) -> bool:
        bound = self._bound.get(unknown.name)
        if bound is None:
            if self.resolve(other) == unknown:
                return True
            if self._mentions(other, unknown.name):
                return False
            self._bind(unknown.name, other)
            return True
        if not (self._assign(bound, other) if flipped else self._assign(other, bound)):
            return False
        # The wider of the two stands from now on.
        if self.resolve(other).is_dynamic and not self.resolve(bound).is_variable:
            self._bind(unknown.name, other)
        return True

    def _mentions(self, type_: Type, name: str) -> bool:
        known = self.resolve(type_)
        return known.name == name or any(self._mentions(one, name) for one in known.parameters)
