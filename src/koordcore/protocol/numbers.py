"""Numbers in labels and annotations, read as Go's ``strconv`` reads them."""

from __future__ import annotations

import math
import re
from typing import Final

from koordcore.errors import ManifestError
from koordcore.protocol.fields import show

_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9](?:_?[0-9])*(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9]+)?\Z",
    re.ASCII,
)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX]_?(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*(?:\.(?:[0-9a-fA-F]+)?)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+\Z",
    re.ASCII,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_TEXT: Final = 256
_MAX_DIGITS: Final = 19
"""Digits of the largest integer of 64 bits; Python refuses to convert thousands of them."""
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")


def parse_float(text: str) -> float:
    """Read a finite float: decimal or hexadecimal, digits may be separated by single underscores.

    Raises
    ------
    ManifestError
        When the text is no such number, or is infinite or not a number.

    Examples
    --------
    >>> parse_float("0.29"), parse_float("0x1p-1"), parse_float("1_0")
    (0.29, 0.5, 10.0)
    """
    value = math.nan
    if len(text) <= _MAX_TEXT:
        if _DECIMAL.match(text):
            value = float(text.replace("_", ""))
        elif _HEXADECIMAL.match(text):
            try:
                value = float.fromhex(text.replace("_", ""))
            except OverflowError:
                value = math.inf
    if not math.isfinite(value):
        raise ManifestError.at("", f'expected a number, got "{text[:60]}"')
    return value


def parse_decimal(text: str, *, bits: int = 64) -> int:
    """Read a base-10 integer.

    Raises
    ------
    ManifestError
        When the text is no such number or does not fit into that many bits.

    Examples
    --------
    >>> parse_decimal("-12"), parse_decimal("+007")
    (-12, 7)
    """
    if not _INTEGER.fullmatch(text):
        raise ManifestError.at("", f"expected an integer, got {show(text)}")
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) <= _MAX_DIGITS else 1 << 64
    value = -value if text[0] == "-" else value
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ManifestError.at("", f"{text[:60]} is out of range")
    return value


def parse_bool(text: str) -> bool:
    """Read ``1 t T true TRUE True`` or ``0 f F false FALSE False``.

    Raises
    ------
    ManifestError
        When the text is none of them.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ManifestError.at("", f'expected true or false, got "{text[:60]}"')
