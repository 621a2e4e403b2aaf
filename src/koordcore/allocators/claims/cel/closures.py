"""Pieces of code: what the nodes of an expression do when it runs.

Every piece is a function of the run. Costs follow the reference: 1 for a name, a field or a call, 10 for a
list, 30 for a map, and what functions charge for the sizes of their arguments.

Reference: ``cel-go/interpreter``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from koordcore.allocators.claims.cel.declarations import Overload
from koordcore.allocators.claims.cel.errors import RunFailure, no_such_overload
from koordcore.allocators.claims.cel.optionals import optional_index, optional_select
from koordcore.allocators.claims.cel.types import Type
from koordcore.allocators.claims.cel.values import (
    Budget,
    CelMap,
    CostExceeded,
    OptionalValue,
    Value,
    class_of,
    index,
    is_of,
    type_name,
)

_LIST_COST: Final = 10
_MAP_COST: Final = 30
STEP_COST: Final = 3
"""What one step of a comprehension costs beside its body: its condition, its result so far, its variable."""


class Run(Budget):
    """One evaluation: its budget, and the values of its variables by place."""

    __slots__ = ("places",)

    def __init__(self, limit: int, places: int, device: CelMap) -> None:
        super().__init__(limit)
        self.places: list[Any] = [None] * places
        self.places[0] = device


Code: TypeAlias = Callable[[Run], Value]
"""Computes the value of a node."""


class Later:
    """A bound value that is computed when it is first asked for."""

    __slots__ = ("code", "known", "value")

    def __init__(self, code: Code) -> None:
        self.code = code
        self.known = False
        self.value: Value = None


# --- variables ----------------------------------------------------------------------------------------


def variable(place: int) -> Code:
    """Read a variable."""

    def read(run: Run) -> Value:
        run.charge(1)
        return run.places[place]

    return read


def later_value(place: int) -> Code:
    """Read a bound value; it is computed when it is first asked for."""

    def read(run: Run) -> Value:
        run.charge(1)
        later = run.places[place]
        if not later.known:
            later.value = later.code(run)
            later.known = True
        return later.value

    return read


# --- operators that look at their operands one by one --------------------------------------------------


def presence(operand: Code, field: str) -> Code:
    """``has(operand.field)``."""

    def present(run: Run) -> Value:
        return optional_select(operand(run), field).present

    return present


def is_true(value: Value) -> bool:
    """A bool as it is; anything else is an error."""
    if not isinstance(value, bool):
        raise no_such_overload()
    return value


def logic(operands: list[Code], *, absorbing: bool) -> Code:
    """``absorbing`` decides whatever the others are, even where they are errors."""

    def decide(run: Run) -> Value:
        failure: RunFailure | None = None
        for operand in operands:
            try:
                value = operand(run)
            except CostExceeded:
                raise
            except RunFailure as error:
                failure = failure or error
                continue
            if value is absorbing:
                return absorbing
            if not isinstance(value, bool):
                failure = failure or no_such_overload()
        if failure is not None:
            raise failure
        return not absorbing

    return decide


def conditional(condition: Code, then: Code, otherwise: Code) -> Code:
    """``condition ? then : otherwise``."""
    return lambda run: then(run) if is_true(condition(run)) else otherwise(run)


def alternative(optional: Code, other: Code, *, flat: bool) -> Code:
    """``optional.or(other)`` (``flat``) and ``optional.orValue(other)``: ``other`` only where needed."""

    def choose(run: Run) -> Value:
        value = optional(run)
        run.charge(1)
        if not isinstance(value, OptionalValue):
            raise no_such_overload("or" if flat else "orValue")
        if not value.present:
            return other(run)
        return value if flat else value.value

    return choose


def element(collection: Code, key: Code, *, optional: bool) -> Code:
    """``collection[key]`` and ``collection[?key]``; an element of an optional collection is optional, too."""

    def find(run: Run) -> Value:
        found, wanted = collection(run), key(run)
        run.charge(1)
        if optional or isinstance(found, OptionalValue):
            return optional_index(found, wanted)
        return index(found, wanted)

    return find


# --- literals -----------------------------------------------------------------------------------------


def list_literal(elements: list[tuple[Code, bool]]) -> Code:
    """``[a, ?b]``."""
    if not any(optional for _, optional in elements):
        codes = [code for code, _ in elements]

        def plain(run: Run) -> Value:
            run.charge(_LIST_COST)
            return tuple(code(run) for code in codes)

        return plain

    def build(run: Run) -> Value:
        run.charge(_LIST_COST)
        found: list[Value] = []
        for code, optional in elements:
            value = code(run)
            if not optional:
                found.append(value)
            elif not isinstance(value, OptionalValue):
                raise RunFailure(
                    f"cannot initialize optional list element from non-optional value {type_name(value)}"
                )
            elif value.present:
                found.append(value.value)
        return tuple(found)

    return build


def map_literal(entries: list[tuple[Code, Code, bool]]) -> Code:
    """``{a: b, ?c: d}``."""

    def build(run: Run) -> Value:
        run.charge(_MAP_COST)
        pairs: list[tuple[Value, Value]] = []
        for key_code, value_code, optional in entries:
            key, value = key_code(run), value_code(run)
            if optional:
                if not isinstance(value, OptionalValue):
                    raise RunFailure(
                        f"cannot initialize optional entry from non-optional value {type_name(value)}"
                    )
                if not value.present:
                    continue
                value = value.value
            pairs.append((key, value))
        return CelMap.of_pairs(pairs)

    return build


# --- calls --------------------------------------------------------------------------------------------


def without_regex(forms: tuple[Overload, ...], regex: object) -> tuple[Overload, ...]:
    """The forms with the regular expression, which is a constant, put in."""

    def bound(form: Overload) -> Overload:
        run = form.run
        parameters = (form.parameters[0], *form.parameters[2:])
        return Overload(
            parameters,
            form.result,
            lambda budget, text, *rest: run(budget, text, regex, *rest),
            member=form.member,
        )

    return tuple(map(bound, forms))


def dispatch(function: str, forms: tuple[Overload, ...], codes: list[Code]) -> Code:
    """Take the first form that the values suit; the guards also serve dynamic values."""
    guarded = [(_guards(form.parameters), form.run) for form in forms]

    def call(run: Run) -> Value:
        values = [code(run) for code in codes]
        run.charge(1)
        for guards, form in guarded:
            for place, kind, deep in guards:
                value = values[place]
                if type(value) is not kind or (deep is not None and not is_of(value, deep)):
                    break
            else:
                return form(run, *values)
        raise no_such_overload(function)

    return call


def _guards(parameters: tuple[Type, ...]) -> tuple[tuple[int, type, Type | None], ...]:
    """Which arguments must be of which class, and of which type where the class does not tell."""
    return tuple(
        (place, class_of(type_), type_ if type_.name == "list" else None)
        for place, type_ in enumerate(parameters)
        if not (type_.is_variable or type_.is_dynamic)
    )


# --- comprehensions -----------------------------------------------------------------------------------


def steps(over: Code, places: list[int]) -> Callable[[Run], Iterator[None]]:
    """Put the members of a list, or the entries of a map, one by one into the variables' places."""

    def walk(run: Run) -> Iterator[None]:
        collection = over(run)
        entries: Any
        if isinstance(collection, tuple):
            entries = enumerate(collection)
            single = 1
        elif isinstance(collection, CelMap):
            entries = collection.items()
            single = 0
        else:
            raise RunFailure(f"got '{type_name(collection)}', expected iterable type")
        for entry in entries:
            run.charge(STEP_COST)
            if len(places) == 1:
                run.places[places[0]] = entry[single]
            else:
                run.places[places[0]], run.places[places[1]] = entry
            yield

    return walk


def quantifier(steps: Callable[[Run], Iterator[None]], body: Code, *, absorbing: bool) -> Code:
    """``all`` and ``exists``: a member that decides does so whatever errors the others give."""

    def decide(run: Run) -> Value:
        failure: RunFailure | None = None
        for _ in steps(run):
            try:
                value = body(run)
            except CostExceeded:
                raise
            except RunFailure as error:
                failure = error
                continue
            if value is absorbing:
                return absorbing
            if not isinstance(value, bool):
                failure = no_such_overload()
        if failure is not None:
            raise failure
        return not absorbing

    return decide


def entries_of(value: Value) -> list[tuple[Value, Value]]:
    """Entries of what ``transformMapEntry`` computes."""
    if not isinstance(value, CelMap):
        raise no_such_overload("transformMapEntry")
    return list(value.items())
