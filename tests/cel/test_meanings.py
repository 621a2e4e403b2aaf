"""What less common parts of the expression language mean, and that work is paid for.

Each row is an expression and its answer on the device of the builders: a bool, or the kind of error.
"""

from __future__ import annotations

import pytest

from tests.cel.builders import answer

C, R = "compile", "run"

MACROS = [
    ("[5, 6].exists_one(i, v, v == 5 && i == 0)", True),
    ("{'a': 1, 'b': 1}.exists_one(k, v, v == 1)", False),
    ("[1, 2, 3].filter(x, x > 1) == [2, 3]", True),
    ("[1, 2, 3].map(x, x > 1, x * x) == [4, 9]", True),
    ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1) == {'b': 3}", True),
]

TIMES = [
    ("duration('90s') + duration('30s') == duration('2m')", True),
    ("duration('90s') - duration('30s') == duration('1m')", True),
    ("timestamp('2024-01-01T00:01:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('60s')", True),
    ("timestamp('2024-01-01T00:01:00Z') - duration('1m') == timestamp('2024-01-01T00:00:00Z')", True),
    ("timestamp('2024-01-01T00:00:00Z').getFullYear() == 2024", True),
    ("timestamp('2023-12-31T23:30:00Z').getFullYear('+01:00') == 2024", True),
    ("duration('7200s').getHours() == 2 && duration('120s').getMinutes() == 2", True),
    ("optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()", False),
    ("optional.ofNonZeroValue(timestamp('0001-01-01T00:00:01Z')).hasValue()", True),
]

NUMBERS: list[tuple[str, bool | str]] = [
    ("quantity('1Ti').compareTo(quantity('1024Gi')) == 0", True),
    ("0x1F == 31 && 0x10u == 16u", True),
    ("bytes('é').size() == 2", True),
    ("string(cidr('10.0.0.0/8')) == '10.0.0.0/8'", True),
    ("[2, 1].min() == 1 && ['b', 'a'].min() == 'a'", True),
    ("dyn([2, 1]).min() == 1", True),
    ("dyn(['b', 'a']).min() == 'a'", True),
    ("{'a': 1, 'b': 'x'}.size() == 2", C),
]

VERSIONS = [
    ("semver('1.10.0').isGreaterThan(semver('1.9.0'))", True),
    ("semver('1.9.0').isGreaterThan(semver('1.9.0'))", False),
    ("semver('1.9.0').isLessThan(semver('1.10.0'))", True),
    ("semver('1.9.0').isLessThan(semver('1.9.0'))", False),
    ("isSemver('18446744073709551615.0.0')", True),
    ("isSemver('18446744073709551616.0.0')", False),
    ("isSemver('0.0.18446744073709551616')", False),
]

PATTERNS = [
    (r"'a.b'.matches('^\\Qa.b\\E$')", True),
    (r"'axb'.matches('^\\Qa.b\\E$')", False),
    (r"'a.b'.matches('^\\Qa.b')", True),
    (r"'xb'.matches('^\\Qa.b')", False),
    (r"'\\Qb\\Ec'.matches('^b')", False),
    (r"'bc'.matches('^\\Qb\\Ec$')", True),
    (r"'a7'.matches('^[a-c\\d]+$')", True),
    (r"'x'.matches('^[\\w\\d]$')", True),
]


@pytest.mark.parametrize(("expression", "expected"), [*MACROS, *TIMES, *NUMBERS, *VERSIONS, *PATTERNS])
def test_meaning(expression: str, expected: bool | str) -> None:
    assert answer(expression) == expected


_TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def _often(inner: str, depth: int) -> str:
    """Evaluate ``inner`` 10 to the power of ``depth`` times."""
    for level in range(depth):
        inner = f"{_TEN}.all(x{level}, {inner})"
    return inner


def test_searching_for_a_pattern_is_paid_for() -> None:
    text = "a" * 3000
    assert answer(_often(f"'{text}'.find('b') == ''", 1)) is True
    assert answer(_often(f"'{text}'.find('b') == ''", 3)) == R
