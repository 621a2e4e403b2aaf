"""What less common parts of the expression language mean, and that work is paid for.

Each row is an expression and its answer on the device of the builders: a bool, or the kind of error.
"""

from __future__ import annotations

import pytest

from koordcore.allocators.claims.cel import COST_LIMIT
from tests.cel.builders import DRIVER, answer, attribute, variable

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


TYPES: list[tuple[str, bool | str]] = [
    # What is known of one of two lists says nothing of the members of both.
    ("([1] + [dyn('a')]).exists(x, x == 'a')", True),
    ("([dyn('a')] + [1]).exists(x, x == 'a')", True),
    ("([1] + [2]).exists(x, x == 'a')", C),
    # Members of a literal are of one kind as far as their types say, also where their values would be.
    ("{'a': 1, 'b': dyn(2)}.size() == 2", C),
    ("{'a': dyn(1), 'b': dyn('x')}.size() == 2", True),
    ("[1, dyn(2)].size() == 2", C),
    ("'%.100f'.format([1.0]).size() == 102", True),
    ("'%.101f'.format([1.0]).size() == 103", C),
]


@pytest.mark.parametrize(
    ("expression", "expected"), [*MACROS, *TIMES, *NUMBERS, *VERSIONS, *PATTERNS, *TYPES]
)
def test_meaning(expression: str, expected: bool | str) -> None:
    assert answer(expression) == expected


LONG = variable(
    a=attribute("string", "a" * 1000), span=attribute("string", "1s" * 500), none=attribute("string", "")
)
A, SPAN, NONE = (f'device.attributes["{DRIVER}"].{name}' for name in ("a", "span", "none"))


def _paid(inner: str, times: int) -> bool | str:
    """Whether 100,000 units of cost pay for evaluating ``inner`` so often."""
    spent = f"lists.range({COST_LIMIT - 100_000}).size() > 0"
    return answer(f"{spent} && lists.range({times}).all(x, {inner})", LONG)


@pytest.mark.parametrize(
    ("inner", "often", "too_often"),
    [
        # A unit pays for one character and two steps of a pattern, or for ten characters that are read.
        (f"{A}.find('b') == ''", 90, 105),
        (f"{A}.findAll('b') == []", 90, 105),
        (f"!{NONE}.matches('a{{1000}}')", 180, 205),
        (f"!{A}.contains('b')", 850, 1000),
        (f"duration({SPAN}) == duration('500s')", 750, 1000),
    ],
)
def test_work_is_paid_for_by_its_size(inner: str, often: int, too_often: int) -> None:
    assert _paid(inner, often) is True
    assert _paid(inner, too_often) == R


def test_sums_of_quantities_are_paid_for_by_their_digits() -> None:
    def sums(text: str) -> bool | str:
        return _paid(f"cel.bind(q, quantity('{text}'), q.add(q) == q.add(q))", 1000)

    assert sums("1e9") is True
    assert sums("1e9999") == R
