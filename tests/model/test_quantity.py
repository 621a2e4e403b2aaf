"""Quantities: Kubernetes' grammar, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, strategies as st

from koordcore import ManifestError
from koordcore.model.quantity import INT64_MAX, Scale, format_quantity, parse_quantity

GOOD = {
    "0": 0,
    "1": 1000,
    "1500m": 1500,
    "0.1": 100,
    ".5": 500,
    "5.": 5000,
    "+1": 1000,
    "-1": -1000,
    "1e3": 1_000_000,
    "1E3": 1_000_000,
    "1e-3": 1,
    "1k": 1_000_000,
    "1Ki": 1_024_000,
    "0.1m": 1,
    "-0.1m": -1,
    "1n": 1,
    "1u": 1,
    "1E": INT64_MAX,
    "9223372036854775808": INT64_MAX,
    "1e400": INT64_MAX,
    "1e-400": 1,
    "0e9999": 0,
}
BAD = [
    "",
    " ",
    "1 ",
    "abc",
    "1K",
    "1KI",
    "NaN",
    "inf",
    "1_000",
    "1e",
    "--1",
    ".",
    "1.2.3",
    "0x10",
    "１",
    "9" * 65,
]


@pytest.mark.parametrize("text", GOOD)
def test_milli_value(text: str) -> None:
    """The value in thousandths, rounded away from zero and capped."""
    assert parse_quantity(text, scale=Scale.MILLI) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """The message shows what was found."""
    with pytest.raises(ManifestError, match="expected a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, None, [], float("nan"), float("inf")], ids=repr)
def test_what_is_no_text_or_number_is_refused(value: object) -> None:
    """JSON values of other types are no quantities either."""
    with pytest.raises(ManifestError):
        parse_quantity(value)  # type: ignore[arg-type]  # the point of the test


@given(
    st.integers(-(10**12), 10**12),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E-2"]),
    st.sampled_from(Scale),
)
@example(1, "n", Scale.UNIT)
def test_agrees_with_fractions(number: int, suffix: str, scale: Scale) -> None:
    """Exact rational arithmetic gives the same."""
    factors = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "e2": 2, "E-2": -2}
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    factor = Fraction(binary[suffix]) if suffix in binary else Fraction(10) ** factors[suffix]
    exact = number * factor * scale
    away = -(-abs(exact).numerator // abs(exact).denominator)
    expected = min(away, INT64_MAX) * (1 if number >= 0 else -1)
    assert parse_quantity(f"{number}{suffix}", scale=scale) == expected


@given(st.integers(-(2**62), 2**62), st.sampled_from(Scale), st.booleans())
def test_written_and_read_back(value: int, scale: Scale, binary: bool) -> None:
    """What is written is read as the same amount."""
    assert parse_quantity(format_quantity(value, scale=scale, binary=binary), scale=scale) == value
