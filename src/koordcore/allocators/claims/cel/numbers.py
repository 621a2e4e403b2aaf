"""Numbers as texts, the way Go reads and writes them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.values import int64

_INT: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?|inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)


def parse_int(text: str) -> int:
    """A decimal number of 64 bits, signed."""
    if _INT.fullmatch(text):
        return int64(int(text))
    raise RunFailure("type conversion error from 'string' to 'int'")


def parse_double(text: str) -> float:
    """A decimal number, ``inf`` or ``nan``; too large a number is an error."""
    if _DOUBLE.fullmatch(text):
        value = float(text)
        if math.isfinite(value) or "n" in text.lower():
            return value
    raise RunFailure("type conversion error from 'string' to 'double'")


def double_text(value: float) -> str:
    """The shortest text that reads as the same number; powers from the sixth on, as Go's ``%g`` has it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0"
    power = len(text) + exponent - 1
    text = text.rstrip("0")
    if not -4 <= power < 6:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    whole, fraction = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{minus}{whole}.{fraction}" if fraction else f"{minus}{whole}"
