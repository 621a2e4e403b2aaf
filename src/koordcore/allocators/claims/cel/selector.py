"""Expressions over devices, from text to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from koordcore._record import record
from koordcore.allocators.claims.cel.checker import check
from koordcore.allocators.claims.cel.closures import Code, Run
from koordcore.allocators.claims.cel.environment import ALL_FEATURES, SelectorFeatures, environment
from koordcore.allocators.claims.cel.errors import (
    CompileFailure,
    RunFailure,
    SelectorError,
    SelectorErrorKind,
)
from koordcore.allocators.claims.cel.footprint import Footprint, footprint_of, only_driver_of
from koordcore.allocators.claims.cel.kubernetes import parse_semver
from koordcore.allocators.claims.cel.parser import parse
from koordcore.allocators.claims.cel.program import generate
from koordcore.allocators.claims.cel.types import BOOL, INT, SEMVER, STRING, Type
from koordcore.allocators.claims.cel.values import CelMap, QuantityValue, SemverValue, Value, type_name
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeScalar,
    AttributeValue,
    SliceDevice,
)
from koordcore.model.quantity import NANO

COST_LIMIT: Final = 1_000_000
"""Units of cost that one evaluation may take."""
MAX_LENGTH: Final = 10 * 1024
"""Bytes of UTF-8 that an expression may have."""
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for "
    "optional fields"
)
_SCALARS: Final = (STRING, INT, BOOL, SEMVER)


@record(eq=False)
class DeviceVariable:
    """A device as expressions see it; made once for all devices of a class.

    Parameters
    ----------
    device
        The variable ``device``.
    problem
        Why no expression has an answer for the device, such as a version that is none; empty if all is well.
    """

    device: CelMap
    problem: str = ""


def device_variable(driver: str, device: SliceDevice) -> DeviceVariable:
    """A device as expressions see it.

    Parameters
    ----------
    driver
        Names without a domain belong to the driver's.
    device
        As its slice has it.

    Returns
    -------
    DeviceVariable
        What :meth:`Selector.evaluate` takes.

    Examples
    --------
    >>> from koordcore.allocators.claims.cel import compile_selector
    >>> from koordcore.model.device_slices import AttributeKind, AttributeValue, SliceDevice
    >>> gpu = SliceDevice(name="gpu-0", attributes={"numa": AttributeValue(AttributeKind.INT, (1,))})
    >>> selector = compile_selector("device.attributes['gpu.example.com'].numa == 1")
    >>> selector.evaluate(device_variable("gpu.example.com", gpu))
    True
    """
    problem = ""
    values: dict[str, Value] = {}
    for name, attribute in device.attributes.items():
        try:
            values[name] = _attribute(attribute)
        except RunFailure as error:
            problem = problem or f"attribute {name}: {error}"
    amounts: dict[str, Value] = {
        name: QuantityValue(one.value, integral=one.value % NANO == 0)
        for name, one in device.capacity.items()
    }
    fields: dict[str, Value] = {
        "driver": driver,
        "attributes": _by_domain(driver, values),
        "capacity": _by_domain(driver, amounts),
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }
    return DeviceVariable(CelMap.of_names(fields), problem)


def is_version(text: AttributeScalar) -> bool:
    """Whether a text is a semantic version: a device with one that is not has no answers."""
    try:
        parse_semver(str(text))
    except RunFailure:
        return False
    return True


def _attribute(attribute: AttributeValue) -> Value:
    if not attribute.values:
        raise RunFailure("unsupported attribute value")
    members = tuple(
        parse_semver(str(value)) if attribute.kind is AttributeKind.VERSION else value
        for value in attribute.values
    )
    return members if attribute.listed else members[0]


def _by_domain(driver: str, values: dict[str, Value]) -> CelMap:
    domains: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        domain, slash, short = name.partition("/")
        if slash:
            # Where a device has both forms of a name, the full one wins, as it does for constraints.
            domains.setdefault(domain, {})[short] = value
        else:
            domains.setdefault(driver, {}).setdefault(name, value)
    maps: dict[str, Value] = {domain: CelMap.of_names(members) for domain, members in domains.items()}
    return CelMap.of_names(maps, default=_NO_NAMES)


_NO_NAMES: Final = CelMap({})


@record(eq=False)
class _Program:
    code: Code
    places: int
    footprint: Footprint | None
    driver: str | None

    def value(self, variable: DeviceVariable) -> Value | SelectorError:
        if variable.problem:
            return SelectorError(SelectorErrorKind.RUN, variable.problem)
        try:
            return self.code(Run(COST_LIMIT, self.places, variable.device))
        except RunFailure as error:
            message = str(error)
            return SelectorError(
                SelectorErrorKind.RUN, message + _HINT if message.startswith("no such key") else message
            )


@record
class Selector:
    """An expression that selects devices, ready to be evaluated; equal if the texts and features are."""

    text: str
    features: SelectorFeatures
    _program: _Program = attrs.field(eq=False, repr=False)

    @property
    def footprint(self) -> Footprint | None:
        """What it can look at beside driver and shareability; ``None`` for everything."""
        return self._program.footprint

    @property
    def driver(self) -> str | None:
        """The one driver whose devices it can select; ``None`` where its text does not say so."""
        return self._program.driver

    def evaluate(self, variable: DeviceVariable) -> bool | SelectorError:
        """Whether a device is selected; an error of kind ``RUN`` where it has no answer."""
        value = self._program.value(variable)
        if isinstance(value, bool | SelectorError):
            return value
        return SelectorError(
            SelectorErrorKind.RUN, f"CEL result of type {type_name(value)} could not be converted to bool"
        )


@record
class DerivedExpression:
    """An expression that computes an attribute; equal if the texts and features are."""

    text: str
    features: SelectorFeatures
    _program: _Program = attrs.field(eq=False, repr=False)

    @property
    def footprint(self) -> Footprint | None:
        """What it can look at beside driver and shareability; ``None`` for everything."""
        return self._program.footprint

    def evaluate(self, variable: DeviceVariable) -> AttributeValue | SelectorError:
        """The attribute's value; an error of kind ``RUN`` where there is none."""
        value = self._program.value(variable)
        if isinstance(value, SelectorError):
            return value
        listed = isinstance(value, tuple)
        members = value if isinstance(value, tuple) else (value,)
        kinds = {_KINDS.get(type(member), AttributeKind.NONE) for member in members}
        if len(kinds) > 1 or AttributeKind.NONE in kinds:
            return SelectorError(SelectorErrorKind.RUN, f"unsupported result type {type_name(value)}")
        kind = kinds.pop() if kinds else AttributeKind.STRING
        plain = tuple(member.text if isinstance(member, SemverValue) else member for member in members)
        return AttributeValue(kind, plain, listed)


_KINDS: Final[dict[type, AttributeKind]] = {
    bool: AttributeKind.BOOL,
    int: AttributeKind.INT,
    str: AttributeKind.STRING,
    SemverValue: AttributeKind.VERSION,
}


def compile_selector(text: str, features: SelectorFeatures = ALL_FEATURES) -> Selector | SelectorError:
    """Read an expression that selects devices.

    Parameters
    ----------
    text
        The expression.
    features
        What the cluster has switched on.

    Returns
    -------
    Selector or SelectorError
        Ready to be evaluated, or an error of kind ``COMPILE``.

    Examples
    --------
    >>> print(compile_selector("device.driver"))
    CEL compile error: must evaluate to bool or the unknown type, not string
    """
    program = _compile(text, features, _check_selector)
    return program if isinstance(program, SelectorError) else Selector(text, features, program)


def compile_derived(
    text: str, features: SelectorFeatures = ALL_FEATURES
) -> DerivedExpression | SelectorError:
    """Read an expression that computes an attribute: a bool, int, string or version, or a list of these."""
    program = _compile(text, features, _check_derived)
    return program if isinstance(program, SelectorError) else DerivedExpression(text, features, program)


def _compile(
    text: str, features: SelectorFeatures, accepts: Callable[[Type], None]
) -> _Program | SelectorError:
    if len(text) > MAX_LENGTH or len(text.encode("utf-8", "surrogatepass")) > MAX_LENGTH:
        return SelectorError(SelectorErrorKind.COMPILE, f"expression is longer than {MAX_LENGTH} bytes")
    names = environment(features)
    try:
        root = parse(text)
        checked = check(root, names)
        accepts(checked.result)
        return _Program(*generate(checked, names), footprint_of(root), only_driver_of(root))
    except CompileFailure as error:
        return SelectorError(SelectorErrorKind.COMPILE, str(error), error.position)


def _check_selector(result: Type) -> None:
    if result != BOOL and not result.is_dynamic:
        raise CompileFailure(None, f"must evaluate to bool or the unknown type, not {result}")


def _check_derived(result: Type) -> None:
    inner = result.parameters[0] if result.name == "list" else result
    if inner not in _SCALARS and not inner.is_dynamic:
        raise CompileFailure(
            None,
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these "
            f"scalars, not {result}",
        )
