"""Laws of the expression language: every text has an answer, always the same, of what is looked at only."""

from __future__ import annotations

import contextlib
import re

import attrs
import pytest
from hypothesis import assume, given, strategies as st

from koordcore.allocators.claims.cel import (
    Selector,
    SelectorError,
    compile_derived,
    compile_selector,
    device_variable,
)
from koordcore.allocators.claims.cel.kubernetes import parse_quantity_value, parse_semver
from koordcore.allocators.claims.cel.regex import PatternError, compile_pattern
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.table import DeviceView
from koordcore.errors import ManifestError
from koordcore.model.device_slices import (
    AttributeValue,
    SliceDevice,
)
from koordcore.model.quantity import INT64_MAX, NANO, parse_exact_quantity
from tests.cel.builders import DRIVER, attribute, device

ONE = f"device.attributes['{DRIVER}']"
WORDS = [
    "device", ".", "attributes", "capacity", "driver", "[", "]", "'d.example.com'", "'i'", "i", "s", "v",
    "is", "mem", "(", ")", "{", "}", ":", ",", "?", "&&", "||", "!", "-", "+", "*", "/", "%", "==", "!=",
    "<", ">=", "in", "1", "2u", "1.5", "true", "null", "'a'", "b'a'", "x", "has(", ".map(x,1)",
    ".all(x,x)", "size(", ".exists(", "quantity('1Gi')", "semver('1.0.0')", ".matches('a+')",
    ".orValue(", "optional.of(", ".includes(", "format", ".format([", "'%s'", "duration('1s')",
    ".sort()", "lists.range(3)", "type(", "dyn(", ".sum()", "cel.bind(x,1,x)",
]  # fmt: skip
DEVICES = st.builds(
    lambda i, s, flag, extra: device(
        i=attribute("int", i), s=attribute("string", s), b=attribute("bool", flag), z=attribute("int", extra)
    ),
    st.integers(0, 3),
    st.sampled_from(["", "a", "H100"]),
    st.booleans(),
    st.integers(0, 3),
)


def evaluated(text: str, on: SliceDevice) -> bool | SelectorError:
    compiled = compile_selector(text)
    return compiled if isinstance(compiled, SelectorError) else compiled.evaluate(device_variable(DRIVER, on))


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join)))
def test_every_text_has_an_answer_and_always_the_same(text: str) -> None:
    first = evaluated(text, device())
    assert isinstance(first, bool | SelectorError)
    assert evaluated(text, device()) == first
    derived = compile_derived(text)
    if not isinstance(derived, SelectorError):
        value = derived.evaluate(device_variable(DRIVER, device()))
        assert isinstance(value, AttributeValue | SelectorError)


ATOMS = st.sampled_from(
    [
        f"{ONE}.i == 1",
        f"{ONE}.i + 1 > 2",
        f"{ONE}.b",
        f"!{ONE}.b",
        f"{ONE}.s.startsWith('H')",
        f"{ONE}.s == 'a'",
        f"has({ONE}.z)",
        f"'z' in {ONE}",
        f"{ONE}[?'z'].orValue(9) == 2",
        f"{ONE}.nosuch == 1",
        f"1 / {ONE}.i == 1",
        f"{ONE}.exists(k, k == 'z')",
        f"cel.bind(a, {ONE}, a.i == 2 || a.b)",
        f"[1, 2].exists(x, x == {ONE}.i)",
        "device.driver == 'd.example.com'",
        "true",
    ]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} && {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} || {two[1]})"),
        st.tuples(inner, inner, inner).map(lambda three: f"({three[0]} ? {three[1]} : {three[2]})"),
        inner.map(lambda one: f"!({one})"),
    ),
    max_leaves=5,
)


@given(EXPRESSIONS, DEVICES, DEVICES)
def test_only_what_is_looked_at_can_change_an_answer(text: str, one: SliceDevice, other: SliceDevice) -> None:
    compiled = compile_selector(text)
    assert isinstance(compiled, Selector)
    footprint = compiled.footprint
    assume(footprint is not None)
    assert footprint is not None
    seen = {name for _, _, name in footprint}
    mixed = attrs.evolve(
        other,
        attributes={**other.attributes, **{n: v for n, v in one.attributes.items() if n in seen}},
    )
    assert compiled.evaluate(device_variable(DRIVER, one)) == compiled.evaluate(
        device_variable(DRIVER, mixed)
    )


@given(EXPRESSIONS, st.lists(DEVICES, max_size=6))
def test_remembered_answers_are_those_of_the_expression(text: str, devices: list[SliceDevice]) -> None:
    remembering = CelCompiler().selector(text)
    assert callable(remembering)
    for one in devices:
        expected = evaluated(text, one)
        found = remembering(DeviceView(DRIVER, one))
        assert found == expected if isinstance(expected, bool) else not isinstance(found, bool)


@given(EXPRESSIONS, EXPRESSIONS, DEVICES)
def test_logic_commutes_also_over_errors(left: str, right: str, on: SliceDevice) -> None:
    for sign in ("&&", "||"):
        one, other = (evaluated(f"({a}) {sign} ({b})", on) for a, b in ((left, right), (right, left)))
        assert one == other if isinstance(one, bool) else isinstance(other, SelectorError)


# --- the parts that Python has its own of ----------------------------------------------------------------

PIECES = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", r"\b", "x1"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "+?"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(PIECES, st.text("abcx1 _\n", max_size=8))
def test_expressions_match_where_those_of_python_match(pattern: str, text: str) -> None:
    # Where a loop can turn without reading, the two differ in what they take, not in whether and where.
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII).search(text)
    found = compile_pattern(pattern).search(text)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0] == expected.start()


@given(st.text(r"ab()[]{}*+?|^$\.-,:PQE123<>=!isU", max_size=20), st.text("ab1", max_size=10))
def test_every_text_is_a_pattern_or_an_error(pattern: str, text: str) -> None:
    with contextlib.suppress(PatternError):
        compile_pattern(pattern).search(text)


@given(
    st.from_regex(r"[+-]?[0-9]{0,6}(\.[0-9]{0,12})?([numkMGTPE]|[KMGTPE]i|e-?[0-9]{1,2})?", fullmatch=True)
)
def test_quantities_are_those_of_the_model(text: str) -> None:
    try:
        expected = parse_exact_quantity(text)
    except ManifestError:
        with pytest.raises(Exception, match="quantities must match"):
            parse_quantity_value(text)
        return
    found = parse_quantity_value(text).nanos
    assert found == expected or abs(found) > INT64_MAX * NANO == abs(expected)


VERSIONS = st.from_regex(r"[0-2]\.[0-2]\.[0-2](-(alpha|beta|[0-9]|1[0-9])(\.(x|[0-9]))?)?", fullmatch=True)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_versions_have_one_order(one: str, two: str, three: str) -> None:
    a, b, c = parse_semver(one), parse_semver(two), parse_semver(three)
    assert (a.rank == b.rank) == (a == b)
    assert not (a.rank < b.rank < c.rank) or a.rank < c.rank
    plain = parse_semver(one.partition("-")[0])
    assert a.rank < plain.rank if "-" in one else a.rank == plain.rank
