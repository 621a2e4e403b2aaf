"""From a checked tree to the code that computes its value.

Every node becomes one function of the run; variables live in numbered places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from koordcore.allocators.claims.cel.checker import Checked
from koordcore.allocators.claims.cel.closures import (
    STEP_COST,
    Code,
    Later,
    Run,
    alternative,
    conditional,
    dispatch,
    element,
    entries_of,
    is_true,
    later_value,
    list_literal,
    logic,
    map_literal,
    presence,
    quantifier,
    steps,
    variable,
    without_regex,
)
from koordcore.allocators.claims.cel.environment import DEVICE_VARIABLE, Environment
from koordcore.allocators.claims.cel.errors import no_such_overload
from koordcore.allocators.claims.cel.lists import sort_by_keys
from koordcore.allocators.claims.cel.optionals import optional_select
from koordcore.allocators.claims.cel.regex import compile_pattern
from koordcore.allocators.claims.cel.syntax import (
    Binding,
    Call,
    Comprehension,
    Conditional,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Name,
    Node,
    OptionalMap,
    Presence,
    Select,
    SortBy,
)
from koordcore.allocators.claims.cel.texts import REGEX_FUNCTIONS
from koordcore.allocators.claims.cel.values import NOTHING, CelMap, OptionalValue, Value, index


def generate(checked: Checked, environment: Environment) -> tuple[Code, int]:
    """The code of an expression, and how many places its variables take."""
    generator = _Generator(checked, environment)
    return generator.code(checked.root), generator.places


class _Generator:
    def __init__(self, checked: Checked, environment: Environment) -> None:
        self.checked = checked
        self.environment = environment
        self.scope: dict[str, tuple[int, bool]] = {DEVICE_VARIABLE: (0, False)}
        self.places = 1

    def code(self, node: Node) -> Code:
        match node:
            case Literal():
                value = node.value
                return lambda _: value
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Presence():
                return presence(self.code(node.operand), node.field)
            case Call():
                return self._call(node)
            case Logic():
                return logic([self.code(one) for one in node.operands], absorbing=not node.conjunction)
            case Conditional():
                return conditional(self.code(node.condition), self.code(node.then), self.code(node.otherwise))
            case ListLiteral():
                return list_literal([(self.code(one), optional) for one, optional in node.elements])
            case MapLiteral():
                entries = [
                    (self.code(key), self.code(value), optional) for key, value, optional in node.entries
                ]
                return map_literal(entries)
            case Comprehension():
                return self._comprehension(node)
            case Binding():
                return self._binding(node)
            case OptionalMap():
                return self._optional_map(node)
            case SortBy():
                return self._sort_by(node)

    def _place(self) -> int:
        self.places += 1
        return self.places - 1

    def _inside(self, names: dict[str, tuple[int, bool]], *nodes: Node) -> list[Code]:
        outer = self.scope
        self.scope = {**outer, **names}
        codes = [self.code(node) for node in nodes]
        self.scope = outer
        return codes

    def _name(self, node: Name) -> Code:
        known = self.scope.get(node.name)
        if known is None:
            named = self.environment.named_type(node.name)
            assert named is not None
            value = named[1]
            return lambda _: value
        place, later = known
        return later_value(place) if later else variable(place)

    def _select(self, node: Select) -> Code:
        operand, field = self.code(node.operand), node.field

        def select(run: Run) -> Value:
            value = operand(run)
            run.charge(1)
            return optional_select(value, field) if isinstance(value, OptionalValue) else index(value, field)

        def select_optional(run: Run) -> Value:
            value = operand(run)
            run.charge(1)
            return optional_select(value, field)

        return select_optional if node.optional else select

    def _call(self, node: Call) -> Code:
        forms = self.checked.forms.get(node.id)
        arguments = list(node.arguments)
        if node.target is not None and node.id not in self.checked.qualified:
            arguments.insert(0, node.target)
        codes = [self.code(argument) for argument in arguments]
        if node.function in {"_[_]", "_[?_]"}:
            return element(codes[0], codes[1], optional=node.function == "_[?_]")
        if forms is None:
            return alternative(codes[0], codes[1], flat=node.function == "or")
        if node.function in REGEX_FUNCTIONS and isinstance(arguments[1], Literal):
            # The checker has read it already; compiled once, it serves every device.
            regex = compile_pattern(str(arguments[1].value))
            first, rest = codes[0], codes[2:]
            return dispatch(node.function, without_regex(forms, regex), [first, *rest])
        return dispatch(node.function, forms, codes)

    def _binding(self, node: Binding) -> Code:
        place = self._place()
        value = self.code(node.value)
        (body,) = self._inside({node.name: (place, True)}, node.body)

        def bind(run: Run) -> Value:
            run.places[place] = Later(value)
            return body(run)

        return bind

    def _optional_map(self, node: OptionalMap) -> Code:
        place = self._place()
        operand = self.code(node.operand)
        (body,) = self._inside({node.name: (place, False)}, node.body)
        flat = node.flat

        def transform(run: Run) -> Value:
            value = operand(run)
            if not isinstance(value, OptionalValue):
                raise no_such_overload("optMap")
            if not value.present:
                return NOTHING
            run.places[place] = value.value
            result = body(run)
            return result if flat else OptionalValue(result)

        return transform

    def _sort_by(self, node: SortBy) -> Code:
        place = self._place()
        operand = self.code(node.operand)
        (key,) = self._inside({node.name: (place, False)}, node.key)

        def sort(run: Run) -> Value:
            values = operand(run)
            if not isinstance(values, tuple):
                raise no_such_overload("sortBy")
            keys: list[Value] = []
            for value in values:
                run.charge(STEP_COST)
                run.places[place] = value
                keys.append(key(run))
            return sort_by_keys(run, values, tuple(keys))

        return sort

    def _comprehension(self, node: Comprehension) -> Code:
        over = self.code(node.range)
        places = [self._place() for _ in node.variables]
        names = {name: (place, False) for name, place in zip(node.variables, places, strict=True)}
        condition: Code | None = None
        if node.condition is None:
            (body,) = self._inside(names, node.body)
        else:
            condition, body = self._inside(names, node.condition, node.body)
        walk = steps(over, places)
        match node.macro:
            case Macro.ALL | Macro.EXISTS:
                return quantifier(walk, body, absorbing=node.macro is Macro.EXISTS)
            case Macro.EXISTS_ONE:
                return lambda run: sum(is_true(body(run)) for _ in walk(run)) == 1
            case Macro.FILTER:
                return lambda run: tuple(run.places[places[0]] for _ in walk(run) if is_true(body(run)))
            case _:
                return _transformation(node.macro, _chosen(walk, condition), body, places[0])


def _transformation(macro: Macro, walk: Callable[[Run], Iterator[None]], body: Code, place: int) -> Code:
    if macro is Macro.TRANSFORM_MAP:
        return lambda run: CelMap.of_pairs((run.places[place], body(run)) for _ in walk(run))
    if macro is Macro.TRANSFORM_MAP_ENTRY:
        return lambda run: CelMap.of_pairs(entry for _ in walk(run) for entry in entries_of(body(run)))
    return lambda run: tuple(body(run) for _ in walk(run))


def _chosen(walk: Callable[[Run], Iterator[None]], condition: Code | None) -> Callable[[Run], Iterator[None]]:
    """The steps in which the condition holds."""
    if condition is None:
        return walk

    def choose(run: Run) -> Iterator[None]:
        return (step for step in walk(run) if is_true(condition(run)))

    return choose
