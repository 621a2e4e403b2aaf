"""Selectors as callers see them: errors, plugins, footprints, bounds."""

from __future__ import annotations

import pytest

from koordcore.allocators.claims.cel import (
    COST_LIMIT,
    MAX_LENGTH,
    Selector,
    SelectorError,
    SelectorErrorKind,
    SelectorFeatures,
    compile_derived,
    compile_selector,
    device_variable,
)
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.table import DeviceView, SelectorFault
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    SliceDevice,
)
from tests.cel.builders import DRIVER, answer, attribute, device, variable

ONE = f'device.attributes["{DRIVER}"]'


def selector(expression: str) -> Selector:
    compiled = compile_selector(expression)
    assert isinstance(compiled, Selector), compiled
    return compiled


def test_errors_say_where_and_what() -> None:
    error = compile_selector("device.driver == 'a' && nosuch")
    assert error == SelectorError(
        SelectorErrorKind.COMPILE, "undeclared reference to 'nosuch' (in container '')", 24
    )
    missing = selector(f"{ONE}.nosuch == 1").evaluate(variable())
    assert isinstance(missing, SelectorError)
    assert missing.message.startswith("no such key: nosuch. consider using CEL optional chaining")


@pytest.mark.parametrize("expression", ["device.driver", "1", "[true]", "device"])
def test_an_expression_that_cannot_be_a_bool_does_not_compile(expression: str) -> None:
    assert answer(expression) == "compile"


def test_a_value_that_is_no_bool_shows_when_it_is_met() -> None:
    assert answer(f"{ONE}.i") == "run"
    assert answer(f"{ONE}.b") is True


def test_the_full_name_of_an_attribute_wins() -> None:
    both = SliceDevice(name="d", attributes={"x": attribute("int", 1), f"{DRIVER}/x": attribute("int", 2)})
    assert answer(f"{ONE}.x == 2", device_variable(DRIVER, both)) is True


@pytest.mark.parametrize("odd", [AttributeValue(AttributeKind.NONE), attribute("version", "1.0")])
def test_a_device_with_an_attribute_that_cannot_be_read_has_no_answers(odd: AttributeValue) -> None:
    assert answer("true", variable(odd=odd)) == "run"


def test_plugins_that_are_off_take_their_names_with_them() -> None:
    off = SelectorFeatures(list_attributes=False, consumable_capacity=False)
    for expression in (f"{ONE}.i.includes(7)", "device.allowMultipleAllocations", f"{ONE}.is.all(x, x > 0)"):
        assert isinstance(compile_selector(expression, off), SelectorError)
        assert isinstance(compile_selector(expression), Selector)
    plain = compile_selector(f"2 in {ONE}.is && {ONE}.i + 1 == 8", off)
    assert isinstance(plain, Selector)
    assert plain.evaluate(variable()) is True


def test_derived_attributes_are_values_or_lists_of_one_kind() -> None:
    def derived(expression: str) -> AttributeValue | SelectorError:
        compiled = compile_derived(expression)
        return compiled if isinstance(compiled, SelectorError) else compiled.evaluate(variable())

    assert derived(f"{ONE}.s.split(' ')[1]") == attribute("string", "H100")
    assert derived(f"{ONE}.v") == attribute("version", "12.4.1")
    assert derived(f"{ONE}.is.map(x, x * 2)") == attribute("int", 2, 4, 6, listed=True)
    assert derived(f"{ONE}.nosuch.map(x, x)") == derived(f"{ONE}.nosuch")
    for expression in ("quantity('1')", "{'a': 1}", "[[1]]", "[dyn(1), dyn('a')]"):
        assert isinstance(derived(expression), SelectorError)


# --- footprints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (f"{ONE}.i == 1 && device.capacity['o'].m.isInteger()", ["d.example.com/i", "o/m"]),
        (f"cel.bind(a, {ONE}, a.x == 1 && a[?'y'].orValue(true))", ["d.example.com/x", "d.example.com/y"]),
        (f"'x' in {ONE} || has({ONE}.y)", ["d.example.com/x", "d.example.com/y"]),
        ("device.attributes[device.driver].i == 7", ["/i"]),
        (f"{{'{DRIVER}': 7}}[device.driver] == {ONE}.i", ["d.example.com/i"]),
        ("device.driver == 'a' && device.allowMultipleAllocations", []),
    ],
)
def test_what_an_expression_can_look_at_is_known(expression: str, names: list[str]) -> None:
    footprint = selector(expression).footprint
    assert footprint is not None
    assert [f"{domain or ''}/{name}" for _, domain, name in footprint] == names


@pytest.mark.parametrize(
    "expression",
    [
        f"{ONE}.exists(k, k == 'x')",
        "device.attributes.size() == 3",
        "'d' in device.attributes",
        f"{ONE}[{ONE}.s] == 1",
        "dyn(device)['driver'] == ''",
        f"(true ? {ONE} : {{}}).size() == 1",
    ],
)
def test_an_expression_that_looks_at_a_whole_map_can_see_everything(expression: str) -> None:
    assert selector(expression).footprint is None


def test_devices_that_agree_in_what_is_looked_at_are_asked_once() -> None:
    compiler = CelCompiler()
    asked = compiler.selector(f"{ONE}.i == 7 && {ONE}.s.contains('H100')")
    assert not isinstance(asked, SelectorFault)
    views = [DeviceView(DRIVER, device(uuid=attribute("string", f"GPU-{n}"))) for n in range(100)]
    assert all(asked(view) is True for view in views)
    assert len(asked._answers) == 1  # type: ignore[attr-defined]  # what the test is about
    assert asked(DeviceView(DRIVER, device(i=attribute("int", 8)))) is False
    broken = asked(DeviceView(DRIVER, device(other=attribute("version", "x"))))
    assert isinstance(broken, SelectorFault)
    assert broken.compiles


def test_an_expression_is_read_once_whatever_is_read_between() -> None:
    compiler = CelCompiler()
    first = compiler.selector(f"{ONE}.i == 7")
    compiler.selector(f"{ONE}.i == 8")
    assert compiler.selector(f"{ONE}.i == 7") is first


def test_a_text_that_is_no_expression_is_a_fault_of_all_devices() -> None:
    fault = CelCompiler().selector("device.driver ==")
    assert isinstance(fault, SelectorFault)
    assert not fault.compiles
    assert isinstance(CelCompiler().derivation("{'a': 1}"), SelectorFault)


# --- bounds -------------------------------------------------------------------------------------------

BOMBS = [
    "lists.range(1000000000).size() == 1",
    "lists.range(2000).all(x, lists.range(2000).all(y, x != y || true))",
    "lists.range(5000).distinct().size() == 5000",
    "cel.bind(a, 'xxxxxxxxxx', " * 20 + "true" + ")" * 20,
    "".join(f"cel.bind(v{n + 1}, v{n} + v{n} + v{n} + v{n}, " for n in range(18)).replace("v0", "'x'")
    + "v18.size() > 0"
    + ")" * 18,
    "".join(f"cel.bind(v{n + 1}, [v{n}, v{n}, v{n}], " for n in range(18)).replace("v0", "[1]")
    + "v18 == v18"
    + ")" * 18,
    "lists.range(300).all(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('(a+)+$') || true)",
    "'a'.replace('', 'b', 9223372036854775807).size() > 0",
    "'%.99f'.format([1e308]).size() > 0",
    "quantity('1e9999').add(quantity('1e-9999')).isInteger()",
]


@pytest.mark.parametrize("expression", BOMBS, ids=range(len(BOMBS)))
def test_the_work_of_any_expression_is_bounded(expression: str) -> None:
    compiled = compile_selector(expression)
    assert isinstance(compiled, Selector), compiled
    value = compiled.evaluate(variable())
    assert isinstance(value, bool) or "cost limit" in value.message or "overload" in value.message


def test_the_limit_of_cost_is_an_error_that_logic_does_not_hide() -> None:
    endless = f"lists.range({COST_LIMIT}).size() == 1"
    assert answer(f"({endless}) || true") == "run"
    assert answer(f"[1].exists(x, {endless}) || true") == "run"
    assert answer(f"({endless}) != true") == "run"


def test_depth_is_bounded() -> None:
    for text in (
        "(" * 5000 + "true" + ")" * 5000,
        "[" * 500 + "]" * 500,
        "!" * 5000 + "true",
        "true ? " * 500 + "true" + " : true" * 500,
        "device" + ".a" * 2000,
        "size(" * 500,
        "1" + " + 1" * 2000 + " == 1",
        "{'a': " * 200 + "1" + "}" * 200,
        "-" * 4000 + "1 == 1",
        "cel.bind(x, 1, " * 400 + "true" + ")" * 400,
    ):
        compile_selector(text)  # an answer of either kind, no exception
    assert answer(" && ".join(["true"] * 1000)) is True
    assert answer("1" + " + 1" * 60 + " == 61") is True


def test_length_is_bounded() -> None:
    assert answer("true" + " " * (MAX_LENGTH - 4)) is True
    assert answer("true" + " " * (MAX_LENGTH - 3)) == "compile"
    assert answer("'" + "é" * (MAX_LENGTH // 2) + "' == ''") == "compile"


def test_unicode_scripts_are_refused() -> None:
    assert answer(r"'α'.matches('\\p{Greek}')") == "compile"
    assert answer(r"'α'.matches('\\p{Ll}')") is True


def test_zones_are_utc_or_offsets() -> None:
    moment = "timestamp('2024-01-01T12:00:00Z')"
    assert answer(f"{moment}.getHours('-02:30') == 9") is True
    assert answer(f"{moment}.getHours('Europe/Berlin') == 13") == "run"


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("device.driver == 'd'", "d"),
        ("'d' == device.driver", "d"),
        ("device.attributes['d'].x == 1 && (device.driver == 'd' && device.attributes['d'].y)", "d"),
        ("device.driver == 'd' || device.driver == 'e'", None),
        ("device.driver != 'd'", None),
        ("!(device.driver == 'd')", None),
        ("device.driver == 'd' ? true : false", None),
        ("device.attributes['d'].driver == 'd'", None),
    ],
)
def test_the_only_driver_is_the_one_that_a_selector_demands(text: str, driver: str | None) -> None:
    selector = compile_selector(text)
    assert isinstance(selector, Selector)
    assert selector.driver == driver
