"""Kubernetes' own kinds of values: quantities, versions, formats of names, and membership of attributes.

Reference: Kubernetes' ``cel/library`` of quantity, semver and format; ``resource.Quantity`` and
``blang/semver`` for their texts.
"""

from __future__ import annotations

import re
from typing import Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.types import (
    BOOL,
    DOUBLE,
    FORMAT,
    INT,
    QUANTITY,
    SEMVER,
    STRING,
    list_of,
    optional_of,
    variable,
)
from koordcore.allocators.claims.cel.values import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    UINT64_MAX,
    Budget,
    Implementation,
    NamedFormat,
    OptionalValue,
    QuantityValue,
    SemverValue,
    Value,
    contains,
)

_A: Final = variable("A")
_B: Final = variable("B")
_NANO: Final = 10**9


def declare_kubernetes(library: Library) -> None:
    """Add quantities, versions and formats."""
    _declare_quantities(library)
    _declare_versions(library)
    _declare_formats(library)


def declare_includes(library: Library) -> None:
    """Add ``includes``, which comes with attributes that are lists."""
    library.method("includes", (_A, _B), BOOL, _includes)


def _includes(budget: Budget, value: Value, wanted: Value) -> bool:
    members = value if isinstance(value, tuple) else (value,)
    return any(contains(budget, (wanted,), member) for member in members)


# --- quantities ---------------------------------------------------------------------------------------

_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]{0,100})(?:\.(?P<part>[0-9]{0,100}))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?",
    re.ASCII,
)
_DIGITS_HELD: Final = 18
"""Digits that the reference is sure to hold in 64 bits; longer numbers are never integers to it."""


def _declare_quantities(library: Library) -> None:
    library.function("quantity", (STRING,), QUANTITY, _quantity)
    library.function("isQuantity", (STRING,), BOOL, lambda budget, text: _reads(budget, text, _quantity))
    library.function("sign", (QUANTITY,), INT, lambda _, one: (one.nanos > 0) - (one.nanos < 0))
    pair = (QUANTITY, QUANTITY)
    library.method("isGreaterThan", pair, BOOL, lambda _, one, two: one.nanos > two.nanos)
    library.method("isLessThan", pair, BOOL, lambda _, one, two: one.nanos < two.nanos)
    library.method(
        "compareTo", pair, INT, lambda _, one, two: (one.nanos > two.nanos) - (one.nanos < two.nanos)
    )
    library.method("isInteger", (QUANTITY,), BOOL, lambda _, one: _integer(one) is not None)
    library.method("asInteger", (QUANTITY,), INT, lambda _, one: _as_integer(one))
    library.method("asApproximateFloat", (QUANTITY,), DOUBLE, lambda _, one: _as_float(one))
    library.method("add", pair, QUANTITY, lambda budget, one, two: _added(budget, one, two, 1))
    library.method("sub", pair, QUANTITY, lambda budget, one, two: _added(budget, one, two, -1))
    library.method(
        "add", (QUANTITY, INT), QUANTITY, lambda budget, one, two: _added(budget, one, _whole(two), 1)
    )
    library.method(
        "sub", (QUANTITY, INT), QUANTITY, lambda budget, one, two: _added(budget, one, _whole(two), -1)
    )


def _reads(budget: Budget, text: str, read: object) -> bool:
    assert callable(read)
    try:
        read(budget, text)
    except _BadText:
        return False
    return True


class _BadText(RunFailure):
    """A text is not of the form that is asked for."""


def _quantity(budget: Budget, text: str) -> QuantityValue:
    budget.charge_text(len(text))
    return parse_quantity_value(text)


def parse_quantity_value(text: str) -> QuantityValue:
    """Read a quantity exactly; below a billionth it rounds away from zero, binary ones end at 2**63 - 1."""
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise _BadText(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    whole, part, suffix = match["whole"], match["part"] or "", match["suffix"] or ""
    digits = int(whole + part or "0")
    factor = 2 ** _BINARY.get(suffix, 0)
    power = 0 if factor > 1 else _SUFFIXES[suffix] if suffix in _SUFFIXES else int(suffix[1:])
    shift = power + 9 - len(part)
    nanos = digits * factor * 10**shift if shift >= 0 else -(-digits * factor // 10**-shift)
    held = len(whole.lstrip("0")) + len(part) <= _DIGITS_HELD
    integral = held and (not part if suffix in _BINARY else power >= len(part))
    if suffix in _BINARY:
        nanos = min(nanos, INT64_MAX * _NANO)
    return QuantityValue(-nanos if match["sign"] == "-" else nanos, integral)


def _whole(value: int) -> QuantityValue:
    return QuantityValue(value * _NANO)


def _integer(value: QuantityValue) -> int | None:
    whole, rest = divmod(value.nanos, _NANO)
    return whole if value.integral and not rest and INT64_MIN <= whole <= INT64_MAX else None


def _as_integer(value: QuantityValue) -> int:
    whole = _integer(value)
    if whole is None:
        raise RunFailure("cannot convert value to integer")
    return whole


def _as_float(value: QuantityValue) -> float:
    try:
        return value.nanos / _NANO
    except OverflowError:
        return float("inf") if value.nanos > 0 else float("-inf")


def _added(budget: Budget, one: QuantityValue, other: QuantityValue, sign: int) -> QuantityValue:
    budget.charge(1 + max(one.nanos.bit_length(), other.nanos.bit_length()) // 640)
    # Zero takes over how the other one is held.
    integral = (one.integral or not one.nanos) and (other.integral or not other.nanos)
    return QuantityValue(one.nanos + sign * other.nanos, integral)


# --- versions -----------------------------------------------------------------------------------------

_NUMBER: Final = r"(0|[1-9][0-9]{0,20})"
_PART: Final = r"[0-9A-Za-z-]+"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PART}(?:\.{_PART})*))?(?:\+{_PART}(?:\.{_PART})*)?", re.ASCII
)


def _declare_versions(library: Library) -> None:
    library.function("semver", (STRING,), SEMVER, _semver)
    library.function("semver", (STRING, BOOL), SEMVER, _semver)
    library.function("isSemver", (STRING,), BOOL, lambda budget, text: _reads(budget, text, _semver))
    library.function("isSemver", (STRING, BOOL), BOOL, _is_semver)
    pair = (SEMVER, SEMVER)
    library.method("isGreaterThan", pair, BOOL, lambda _, one, two: one.rank > two.rank)
    library.method("isLessThan", pair, BOOL, lambda _, one, two: one.rank < two.rank)
    library.method("compareTo", pair, INT, lambda _, one, two: (one.rank > two.rank) - (one.rank < two.rank))
    library.method("major", (SEMVER,), INT, lambda _, one: one.major)
    library.method("minor", (SEMVER,), INT, lambda _, one: one.minor)
    library.method("patch", (SEMVER,), INT, lambda _, one: one.patch)


def _semver(budget: Budget, text: str, normalize: bool = False) -> SemverValue:
    budget.charge_text(len(text))
    return parse_semver(_normalized(text) if normalize else text)


def _is_semver(budget: Budget, text: str, normalize: bool) -> bool:
    return _reads(budget, text, lambda same, value: _semver(same, value, normalize))


def parse_semver(text: str) -> SemverValue:
    """Read a semantic version 2.0.0; raises where the text is none."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise _BadText(
            "No Major.Minor.Patch elements found" if text.count(".") < 2 else f"invalid version {text!r}"
        )
    major, minor, patch = (int(match[place]) for place in (1, 2, 3))
    prerelease: list[tuple[bool, int | str]] = []
    for part in match[4].split(".") if match[4] else ():
        if not part.isdigit():
            prerelease.append((False, part))
            continue
        if (len(part) > 1 and part.startswith("0")) or len(part) > 20:
            raise _BadText(f"Numeric PreRelease version must not contain leading zeroes {part!r}")
        prerelease.append((True, int(part)))
    if max(major, minor, patch) > UINT64_MAX:
        raise _BadText("value out of range")
    return SemverValue(major, minor, patch, tuple(prerelease), text)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[place] = stripped if stripped[:1].isascii() and stripped[:1].isdigit() else f"0{stripped}"
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise _BadText("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


# --- formats of names ---------------------------------------------------------------------------------

_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character"
)
_DAY: Final = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_FORMATS: Final[dict[str, tuple[str, int]]] = {
    "dns1123Label": (_LABEL, 63),
    "dns1123Subdomain": (rf"{_LABEL}(?:\.{_LABEL})*", 253),
    "dns1035Label": ("[a-z](?:[-a-z0-9]*[a-z0-9])?", 63),
    "dns1123LabelPrefix": (_LABEL, 63),
    "dns1123SubdomainPrefix": (rf"{_LABEL}(?:\.{_LABEL})*", 253),
    "dns1035LabelPrefix": ("[a-z](?:[-a-z0-9]*[a-z0-9])?", 63),
    "qualifiedName": (
        rf"(?:{_LABEL}(?:\.{_LABEL})*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        317,
    ),
    "labelValue": (r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?", 63),
    "uri": (r"(?:[A-Za-z][-+.A-Za-z0-9]*:[^\s]*|/[^\s]*)", 10240),
    "uuid": (r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})", 36),
    "byte": (r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", 10**6),
    "date": (_DAY, 10),
    "datetime": (
        rf"{_DAY}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{{2}}:[0-9]{{2}})",
        64,
    ),
}
"""By name: what a text must match as a whole, and how long it may be."""


def _declare_formats(library: Library) -> None:
    for name in _FORMATS:
        library.function(f"format.{name}", (), FORMAT, _constant(NamedFormat(name)))
    library.function("format.named", (STRING,), optional_of(FORMAT), lambda _, name: _named(name))
    library.method("validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validated)


def _constant(value: Value) -> Implementation:
    return lambda _: value


def _named(name: str) -> OptionalValue:
    return OptionalValue(NamedFormat(name)) if name in _FORMATS else NOTHING


def _validated(budget: Budget, format_: NamedFormat, text: str) -> OptionalValue:
    budget.charge_text(len(text))
    expression, longest = _FORMATS[format_.name]
    if format_.name.endswith("Prefix") and len(text) > 1 and text.endswith("-"):
        text = f"{text[:-2]}a"  # something will follow
    problems: list[str] = []
    if len(text) > longest:
        problems.append(f"must be no more than {longest} characters")
    if not re.fullmatch(expression, text, re.ASCII):
        problems.append(_LABEL_MESSAGE if format_.name == "dns1123Label" else f"is no valid {format_.name}")
    return OptionalValue(tuple(problems)) if problems else NOTHING
