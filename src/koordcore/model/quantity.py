"""Kubernetes quantities, read and written exactly.

The grammar is that of ``resource.Quantity``: a decimal number with one suffix out of
``n u m "" k M G T P E``, ``Ki Mi Gi Ti Pi Ei`` or a decimal exponent. Values are kept as integers in one
of two scales, rounded up like ``Value()`` and ``MilliValue()`` do, and capped at 2**63 - 1.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from koordcore.errors import ManifestError

INT64_MAX: Final = 2**63 - 1
NANO: Final = 10**9
"""The finest step of a quantity: billionths of the unit."""

_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# A mantissa longer than this cannot be a number anybody wrote; it bounds the time spent on hostile input.
_MAX_DIGITS: Final = 64
_JSON_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
}
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?\Z",
    re.ASCII,
)


class Scale(IntEnum):
    """How many of ours make one unit of the quantity."""

    UNIT = 1
    MILLI = 1000


def parse_quantity(text: str | int | float, *, scale: Scale = Scale.UNIT) -> int:
    """Read a quantity as an exact integer.

    Parameters
    ----------
    text
        A quantity such as ``"1500m"``, ``"2Gi"``, ``"1e3"``, or a plain JSON number.
    scale
        ``UNIT`` for whole units (bytes, counts), ``MILLI`` for thousandths (CPU).

    Returns
    -------
    int
        The value in the scale asked for, rounded away from zero, within ±(2**63 - 1).

    Raises
    ------
    ManifestError
        When the text is no quantity.

    Examples
    --------
    >>> parse_quantity("1500m"), parse_quantity("1500m", scale=Scale.MILLI), parse_quantity("1.5Gi")
    (2, 1500, 1610612736)
    """
    return _parse(text, scale)


def _parse(text: str | int | float, scale: int) -> int:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ManifestError.at("", f"expected a quantity, got {_JSON_KINDS.get(type(text), 'no text')}")
    if isinstance(text, int):
        return _capped(text * scale, scale)
    if isinstance(text, float):
        if text != text or text in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN is unequal to itself
            raise ManifestError.at("", "expected a quantity, got a number that is not finite")
        text = repr(text)
    match = _QUANTITY.match(text) if len(text) <= _MAX_DIGITS else None
    if match is None or not (match["whole"] or match["part"]):
        shown = text if len(text) <= _MAX_DIGITS else text[:_MAX_DIGITS] + "…"
        raise ManifestError.at("", f'expected a quantity, got "{shown}"')
    part, suffix = match["part"] or "", match["suffix"] or ""
    digits = int((match["whole"] + part) or "0") * scale
    denominator = 10 ** len(part)
    if suffix in _BINARY:
        digits *= _BINARY[suffix]
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        # Beyond 10**40 in either direction the answer is the cap or the smallest step.
        exponent = max(-200, min(200, exponent))
        if exponent >= 0:
            digits *= 10**exponent
        else:
            denominator *= 10**-exponent
    value = _capped(-(-digits // denominator), scale)
    return -value if match["sign"] == "-" else value


def parse_exact_quantity(text: str | int | float) -> int:
    """Read a quantity in billionths of its unit, the finest step that a quantity can hold.

    Where amounts are added up before they are rounded, as measured usage is, rounding each to
    thousandths first would change the sum.

    Raises
    ------
    ManifestError
        When the text is no quantity.

    Examples
    --------
    >>> parse_exact_quantity("1500m"), parse_exact_quantity("758090681n")
    (1500000000, 758090681)
    """
    return _parse(text, NANO)


def format_exact_quantity(value: int, *, binary: bool = False) -> str:
    """Write an amount given in billionths as the canonical quantity.

    Examples
    --------
    >>> format_exact_quantity(1_500_000_000), format_exact_quantity(758_090_681)
    ('1500m', '758090681n')
    """
    for step, suffix in ((1, "n"), (1000, "u"), (1_000_000, "m")):
        if value % (step * 1000):
            return f"{value // step}{suffix}"
    return format_quantity(value // NANO, binary=binary)


def _capped(value: int, scale: int) -> int:
    # A quantity of its own holds at most 2**63 - 1 units; in a coarse scale the *result* is an int64.
    bound = INT64_MAX * (scale if scale > Scale.MILLI else 1)
    return max(-bound, min(bound, value))


def format_quantity(value: int, *, scale: Scale = Scale.UNIT, binary: bool = False) -> str:
    """Write an integer as the canonical quantity: the largest suffix that divides it exactly.

    Parameters
    ----------
    value
        Amount in the given scale.
    scale
        The scale of ``value``.
    binary
        Use ``Ki … Ei`` (for bytes) instead of ``k … E``.

    Examples
    --------
    >>> format_quantity(1500, scale=Scale.MILLI), format_quantity(2**31, binary=True), format_quantity(3000)
    ('1500m', '2Gi', '3k')
    """
    if scale is Scale.MILLI:
        if value % 1000:
            return f"{value}m"
        value //= 1000
    if value == 0:
        return "0"
    if binary:
        for suffix, factor in reversed(_BINARY.items()):
            if value % factor == 0:
                return f"{value // factor}{suffix}"
        return str(value)
    for suffix in ("E", "P", "T", "G", "M", "k"):
        factor = 10 ** _DECIMAL[suffix]
        if value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)
