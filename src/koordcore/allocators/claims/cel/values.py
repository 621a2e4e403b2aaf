"""Values that expressions work on, what they are equal to, and the budget that bounds the work.

``bool``, ``int`` (64 bits, signed), ``float``, ``str``, ``bytes`` and ``None`` stand for themselves, lists
are tuples. Everything else has a class here.

Reference: ``cel-go/common/types``; equality follows its code, also where an unequal type is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.allocators.claims.cel.errors import RunFailure, no_such_key, no_such_overload
from koordcore.allocators.claims.cel.types import Type

Value: TypeAlias = object
"""Any value of the language; the checker and the guards of functions tell them apart."""
Implementation: TypeAlias = Callable[..., Value]
"""Called with the budget and the arguments."""

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
UINT64_MAX: Final = 2**64 - 1


class Budget:
    """How much work one evaluation may still do, in the reference's units of cost."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def charge(self, amount: int) -> None:
        """Pay for work before it is done."""
        self.left -= amount
        if self.left < 0:
            raise CostExceeded("operation cancelled: actual cost limit exceeded")

    def charge_text(self, *lengths: int) -> None:
        """Pay for walking over texts: a tenth of their characters."""
        self.charge(1 + sum(lengths) // 10)


class CostExceeded(RunFailure):
    """The budget is spent; logical operators do not catch this."""


@record
class UInt:
    """An unsigned integer of 64 bits."""

    value: int


@record
class DurationValue:
    """A span of time, in nanoseconds."""

    nanos: int


@record
class TimestampValue:
    """A moment, in nanoseconds since 1970 in UTC."""

    nanos: int


@record
class TypeValue:
    """A type as a value; equal by name, whatever the members are."""

    name: str


@record(eq=False)
class OptionalValue:
    """A value, or none: ``present`` tells which."""

    value: Value = None
    present: bool = True


NOTHING: Final = OptionalValue(present=False)


@record
class QuantityValue:
    """A Kubernetes quantity.

    Parameters
    ----------
    nanos
        Billionths of the unit.
    integral
        The reference holds it as a whole number. It does not reduce: ``1000m`` is 1, and not integral.
    """

    nanos: int
    integral: bool = attrs.field(default=True, eq=False)


@record
class SemverValue:
    """A semantic version; build metadata is not part of it, as it never matters in comparing.

    ``prerelease`` holds (True, number) and (False, text) for its parts, ``text`` is the version as written.
    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[tuple[bool, int | str], ...] = ()
    text: str = attrs.field(default="", eq=False)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Ordered as versions are: a release after its prereleases, numbers before texts."""
        parts = tuple((not numeric, value) for numeric, value in self.prerelease)
        return (self.major, self.minor, self.patch, not self.prerelease, parts)


@record
class UrlValue:
    """An absolute URL in its parts, as written."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


@record
class IpValue:
    """An IP address."""

    address: IPv4Address | IPv6Address


@record
class CidrValue:
    """A network: the address as written, and the network around it."""

    address: IPv4Address | IPv6Address
    network: IPv4Network | IPv6Network


@record
class NamedFormat:
    """One of Kubernetes' formats for names."""

    name: str


class CelMap:
    """A map; numbers of different types that are equal are one key.

    Parameters
    ----------
    entries
        By :func:`map_key`: the key as given, and the value.
    default
        What looking up an unknown key gives; ``None`` for an error. Membership does not see it.
    """

    __slots__ = ("default", "entries")

    def __init__(self, entries: dict[object, tuple[Value, Value]], default: CelMap | None = None) -> None:
        self.entries = entries
        self.default = default

    @classmethod
    def of_names(cls, values: dict[str, Value], default: CelMap | None = None) -> CelMap:
        """A map whose keys are strings."""
        return cls({name: (name, value) for name, value in values.items()}, default)

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[Value, Value]]) -> CelMap:
        """A map of entries; a key that occurs twice is an error."""
        entries: dict[object, tuple[Value, Value]] = {}
        for key, value in pairs:
            known = map_key(key)
            if known is _NO_KEY:
                raise RunFailure(f"unsupported key type: {type_name(key)}")
            if known in entries:
                raise RunFailure(f"insert failed: key {key} already exists")
            entries[known] = (key, value)
        return cls(entries)

    def find(self, key: Value) -> OptionalValue:
        """The value of a key, if there is one."""
        known = map_key(key)
        if known is not _NO_KEY and known in self.entries:
            return OptionalValue(self.entries[known][1])
        return NOTHING if self.default is None else OptionalValue(self.default)

    def __contains__(self, key: Value) -> bool:
        return map_key(key) in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def keys(self) -> Iterator[Value]:
        """Keys in the order in which they were given."""
        return (key for key, _ in self.entries.values())

    def items(self) -> Iterable[tuple[Value, Value]]:
        """Keys with their values."""
        return self.entries.values()


_NO_KEY: Final = object()
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    CelMap: "map",
    UInt: "uint",
    DurationValue: "google.protobuf.Duration",
    TimestampValue: "google.protobuf.Timestamp",
    TypeValue: "type",
    OptionalValue: "optional_type",
    QuantityValue: "kubernetes.Quantity",
    SemverValue: "kubernetes.Semver",
    UrlValue: "kubernetes.URL",
    IpValue: "net.IP",
    CidrValue: "net.CIDR",
    NamedFormat: "kubernetes.NamedFormat",
}
_CLASSES: Final[dict[str, type]] = {
    **{name: kind for kind, name in _TYPE_NAMES.items()},
    "null": type(None),
    "duration": DurationValue,
    "timestamp": TimestampValue,
}
# Comparing one of these with a value of another type is an error if it stands on the left.
_OPAQUE: Final = frozenset({QuantityValue, SemverValue, UrlValue, IpValue, CidrValue, NamedFormat})
_NUMBERS: Final = frozenset({int, float, UInt})


def type_name(value: Value) -> str:
    """Name of a value's type."""
    return _TYPE_NAMES[type(value)]


def class_of(type_: Type) -> type:
    """The class of a type's values."""
    return _CLASSES[type_.name]


def is_of(value: Value, type_: Type) -> bool:
    """Whether a value is of a type; members of lists are looked at, too."""
    if type_.is_dynamic or type_.is_variable:
        return True
    if type(value) is not _CLASSES.get(type_.name):
        return False
    if isinstance(value, tuple) and not type_.parameters[0].is_variable:
        return all(is_of(one, type_.parameters[0]) for one in value)
    return True


def map_key(value: Value) -> object:
    """What tells keys of maps apart; values that cannot be keys give one that is in no map."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is bool:
        return (value,)
    if isinstance(value, UInt):
        return value.value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _NO_KEY


def equal(budget: Budget, left: Value, right: Value) -> bool:
    """``left == right``; raises where the reference has no answer."""
    budget.charge(1)
    kind, other = type(left), type(right)
    if left is None or right is None:
        return kind is other
    if kind in _NUMBERS:
        return other in _NUMBERS and _number(left) == _number(right)
    if kind is not other:
        if kind in _OPAQUE:
            raise no_such_overload()
        return False
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(
            _not_unequal(budget, one, two) for one, two in zip(left, right, strict=True)
        )
    if isinstance(left, CelMap) and isinstance(right, CelMap):
        return left.entries.keys() == right.entries.keys() and all(
            _not_unequal(budget, value, right.entries[key][1]) for key, (_, value) in left.entries.items()
        )
    if isinstance(left, OptionalValue) and isinstance(right, OptionalValue):
        if not (left.present and right.present):
            return left.present is right.present
        return equal(budget, left.value, right.value)
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        budget.charge_text(min(len(left), len(right)))
    return left == right


def _not_unequal(budget: Budget, left: Value, right: Value) -> bool:
    # Members that cannot be compared do not make containers differ: the reference looks for "false" only.
    budget.charge(2)  # dearer here than there, so that the limit stands for about the same time everywhere
    try:
        return equal(budget, left, right)
    except CostExceeded:
        raise
    except RunFailure:
        return True


def _number(value: Value) -> int | float:
    if isinstance(value, UInt):
        return value.value
    assert isinstance(value, int | float)
    return value


def contains(budget: Budget, members: Iterable[Value], wanted: Value) -> bool:
    """Whether a member equals the value; members that cannot be compared with it do not."""
    for member in members:
        budget.charge(1)
        try:
            if equal(budget, wanted, member):
                return True
        except CostExceeded:
            raise
        except RunFailure:
            continue
    return False


def index(collection: Value, key: Value) -> Value:
    """``collection[key]``."""
    if isinstance(collection, CelMap):
        found = collection.find(key)
        if found.present:
            return found.value
        raise no_such_key(key)
    if not isinstance(collection, tuple):
        raise no_such_key(key)
    position = map_key(key)
    if type(position) is not int:
        raise RunFailure(f"unsupported index type '{type_name(key)}' in list")
    if not 0 <= position < len(collection):
        raise RunFailure(f"index out of bounds: {position}")
    return collection[position]


def int64(value: int) -> int:
    """The value, if 64 bits hold it."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise RunFailure("integer overflow")


def uint64(value: int) -> UInt:
    """The value as an unsigned one, if 64 bits hold it."""
    if 0 <= value <= UINT64_MAX:
        return UInt(value)
    raise RunFailure("unsigned integer overflow")
