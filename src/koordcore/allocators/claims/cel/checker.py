"""Types of an expression's parts, and which forms of functions its calls can mean.

Reference: the CEL language definition, "Gradual Type Checking"; ``cel-go/checker``, with the validators
that Kubernetes switches on (members of literals have one type; constant expressions and times can be read).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from koordcore._record import record
from koordcore.allocators.claims.cel.declarations import Overload
from koordcore.allocators.claims.cel.environment import DEVICE_TYPE, DEVICE_VARIABLE, Environment
from koordcore.allocators.claims.cel.errors import CompileFailure, RunFailure
from koordcore.allocators.claims.cel.formatting import format_problem
from koordcore.allocators.claims.cel.regex import PatternError, compile_pattern
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
from koordcore.allocators.claims.cel.times import parse_duration, parse_timestamp
from koordcore.allocators.claims.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    Unifier,
    function_type_text,
    list_of,
    map_of,
    optional_of,
)
from koordcore.allocators.claims.cel.values import UInt

_LITERALS: Final[dict[type, Type]] = {
    bool: BOOL, int: INT, UInt: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip
_TIMES: Final = {"timestamp": parse_timestamp, "duration": parse_duration}
# Their lists may hold members of different types.
_MIXED: Final = frozenset({"format"})


@record
class Checked:
    """A tree with what the checker found out.

    Parameters
    ----------
    result
        Type of the whole.
    forms
        Forms that a call can mean, by the id of its node.
    qualified
        Full names of functions such as ``sets.contains``, by the id of their node.
    """

    root: Node
    result: Type
    forms: dict[int, tuple[Overload, ...]]
    qualified: dict[int, str]


def check(root: Node, environment: Environment) -> Checked:
    """Find the types of all parts; raises :class:`CompileFailure` where there are none."""
    checker = _Checker(environment)
    result = checker.type_of(root)
    return Checked(root, checker.types.final(result), checker.forms, checker.qualified)


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.types = Unifier()
        self.scope: dict[str, Type] = {DEVICE_VARIABLE: DEVICE_TYPE}
        self.forms: dict[int, tuple[Overload, ...]] = {}
        self.qualified: dict[int, str] = {}
        self._mixed: set[int] = set()
        self._found: dict[int, Type] = {}

    def type_of(self, node: Node) -> Type:
        found = self._found[node.id] = self._find(node)
        return found

    def _find(self, node: Node) -> Type:
        match node:
            case Literal():
                return _LITERALS[type(node.value)]
            case Name():
                return self._name(node)
            case Select():
                field = self._field(node)
                return optional_of(_inner(field)) if node.optional else field
            case Presence():
                self._field(node)
                return BOOL
            case Call():
                return self._call(node)
            case Logic():
                for operand in node.operands:
                    self._expect(operand, BOOL, f"_{'&&' if node.conjunction else '||'}_")
                return BOOL
            case Conditional():
                return self._conditional(node)
            case ListLiteral():
                return list_of(self._members(node))
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case Binding():
                bound = self.type_of(node.value)
                with self._declared({node.name: bound}):
                    return self.type_of(node.body)
            case OptionalMap():
                return self._optional_map(node)
            case SortBy():
                return self._sort_by(node)

    # --- names and fields ------------------------------------------------------------------------

    @contextmanager
    def _declared(self, names: dict[str, Type]) -> Iterator[None]:
        outer = self.scope
        self.scope = {**outer, **names}
        yield
        self.scope = outer

    def _name(self, node: Name) -> Type:
        if node.name in self.scope:
            return self.scope[node.name]
        named = self.environment.named_type(node.name)
        if named is None:
            raise CompileFailure(node.at, f"undeclared reference to '{node.name}' (in container '')")
        return named[0]

    def _field(self, node: Select | Presence) -> Type:
        operand = self.types.resolve(self.type_of(node.operand))
        inner = _inner(operand)
        if inner.name == "map":
            # The field is a key; where keys are not strings this shows when the map is asked.
            field = inner.parameters[1]
        elif inner == DEVICE_TYPE:
            found = self.environment.fields.get(node.field)
            if found is None:
                raise CompileFailure(node.at, f"undefined field '{node.field}'")
            field = found
        elif inner.is_dynamic or inner.is_variable:
            field = DYN
        else:
            raise CompileFailure(node.at, f"type '{inner}' does not support field selection")
        return optional_of(field) if operand.name == "optional_type" and isinstance(node, Select) else field

    # --- calls -----------------------------------------------------------------------------------

    def _expect(self, node: Node, wanted: Type, function: str) -> Type:
        actual = self.type_of(node)
        if not self.types.assign(actual, wanted):
            found = function_type_text((self.types.final(actual),), member=False)
            raise CompileFailure(node.at, f"found no matching overload for '{function}' applied to '{found}'")
        return actual

    def _call(self, node: Call) -> Type:
        if node.target is not None:
            name = _dotted(node.target)
            if name is not None and f"{name}.{node.function}" in self.environment.functions:
                self.qualified[node.id] = f"{name}.{node.function}"
                return self._resolved(node, f"{name}.{node.function}", node.arguments, member=False)
        if node.function not in self.environment.functions:
            # or and orValue are not functions: they look at their argument only where they must.
            if node.target is not None and (node.function, len(node.arguments)) in {
                ("or", 1),
                ("orValue", 1),
            }:
                return self._alternative(node, node.target)
            raise CompileFailure(node.at, f"undeclared reference to '{node.function}' (in container '')")
        if node.function in _MIXED:
            self._mixed.update(argument.id for argument in node.arguments)
        arguments = node.arguments if node.target is None else (node.target, *node.arguments)
        result = self._resolved(node, node.function, arguments, member=node.target is not None)
        self._check_constants(node, arguments)
        return result

    def _resolved(self, node: Call, name: str, arguments: tuple[Node, ...], *, member: bool) -> Type:
        actual = tuple(self.type_of(argument) for argument in arguments)
        result: Type | None = None
        forms: list[Overload] = []
        for form in self.environment.functions[name]:
            if form.member is not member or len(form.parameters) != len(actual):
                continue
            fresh = _Fresh(self.types)
            if not self.types.assign_all(actual, tuple(map(fresh.of, form.parameters))):
                continue
            forms.append(form)
            found = self.types.resolve(fresh.of(form.result))
            if result is None:
                result = found
            elif not result.is_dynamic and result != found:
                result = DYN
        if result is None:
            shown = function_type_text(tuple(map(self.types.final, actual)), member=member)
            raise CompileFailure(node.at, f"found no matching overload for '{name}' applied to '{shown}'")
        self.forms[node.id] = tuple(forms)
        return result

    def _alternative(self, node: Call, target: Node) -> Type:
        value = self.types.fresh()
        self._expect(target, optional_of(value), node.function)
        wanted = optional_of(value) if node.function == "or" else value
        self._expect(node.arguments[0], wanted, node.function)
        return self.types.resolve(wanted)

    def _check_constants(self, node: Call, arguments: tuple[Node, ...]) -> None:
        if node.function in REGEX_FUNCTIONS and len(arguments) > 1:
            regex = arguments[1]
            if isinstance(regex, Literal) and isinstance(regex.value, str):
                try:
                    compile_pattern(regex.value)
                except PatternError as error:
                    raise CompileFailure(regex.at, f"invalid {node.function} argument: {error}") from None
        if node.function == "format" and len(arguments) == 2:
            self._check_format(*arguments)
        if node.function in _TIMES and len(arguments) == 1:
            time = arguments[0]
            if isinstance(time, Literal) and isinstance(time.value, str):
                try:
                    _TIMES[node.function](time.value)
                except RunFailure:
                    raise CompileFailure(time.at, f"invalid {node.function} argument") from None

    def _check_format(self, template: Node, values: Node) -> None:
        if not isinstance(values, ListLiteral) or any(optional for _, optional in values.elements):
            return
        if isinstance(template, Literal) and isinstance(template.value, str):
            types = [self.types.final(self._found[value.id]) for value, _ in values.elements]
            problem = format_problem(template.value, types)
            if problem:
                raise CompileFailure(values.at, problem)

    def _conditional(self, node: Conditional) -> Type:
        self._expect(node.condition, BOOL, "_?_:_")
        choice = self.types.fresh()
        branches = (self.type_of(node.then), self.type_of(node.otherwise))
        if not self.types.assign_all(branches, (choice, choice)):
            shown = function_type_text((BOOL, *map(self.types.final, branches)), member=False)
            raise CompileFailure(node.at, f"found no matching overload for '_?_:_' applied to '{shown}'")
        return self.types.resolve(choice)

    # --- literals --------------------------------------------------------------------------------

    def _members(self, node: ListLiteral) -> Type:
        return self._one_type(list(node.elements), mixed=node.id in self._mixed)

    def _map(self, node: MapLiteral) -> Type:
        key = self._one_type([(key, False) for key, _, _ in node.entries], mixed=False)
        value = self._one_type([(value, optional) for _, value, optional in node.entries], mixed=False)
        return map_of(key, value)

    def _one_type(self, members: list[tuple[Node, bool]], *, mixed: bool) -> Type:
        common: Type | None = None
        found: list[Type] = []
        for member, optional in members:
            actual = self.type_of(member)
            if optional:
                value = self.types.fresh()
                if not self.types.assign(actual, optional_of(value)):
                    raise CompileFailure(member.at, f"expected type 'optional_type' but found '{actual}'")
                actual = self.types.resolve(value)
            if common is not None and not self.types.assign(actual, common):
                raise self._mismatch(member, common, actual)
            found.append(actual)
            if common is None or self.types.resolve(actual).is_dynamic:
                common = actual
        if not mixed:
            for (member, _), actual in zip(members[1:], found[1:], strict=True):
                if self.types.final(actual) != self.types.final(found[0]):
                    raise self._mismatch(member, found[0], actual)
        return self.types.fresh() if common is None else self.types.resolve(common)

    def _mismatch(self, node: Node, wanted: Type, found: Type) -> CompileFailure:
        shown = (self.types.final(wanted), self.types.final(found))
        return CompileFailure(node.at, f"expected type '{shown[0]}' but found '{shown[1]}'")

    # --- macros ----------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> Type:
        variables = self._variables(node)
        with self._declared(dict(zip(node.variables, variables, strict=True))):
            if node.condition is not None:
                self._expect(node.condition, BOOL, node.macro)
            match node.macro:
                case Macro.ALL | Macro.EXISTS | Macro.EXISTS_ONE:
                    self._expect(node.body, BOOL, node.macro)
                    return BOOL
                case Macro.FILTER:
                    self._expect(node.body, BOOL, node.macro)
                    return list_of(variables[0])
                case Macro.MAP | Macro.TRANSFORM_LIST:
                    return list_of(self.type_of(node.body))
                case Macro.TRANSFORM_MAP:
                    return map_of(variables[0], self.type_of(node.body))
                case Macro.TRANSFORM_MAP_ENTRY:
                    entry = map_of(self.types.fresh(), self.types.fresh())
                    self._expect(node.body, entry, node.macro)
                    return self.types.resolve(entry)

    def _variables(self, node: Comprehension) -> tuple[Type, ...]:
        over = self.types.resolve(self.type_of(node.range))
        if over.name == "list":
            found = (INT, over.parameters[0])
        elif over.name == "map":
            found = (over.parameters[0], over.parameters[1])
        elif over == DYN or over.is_variable:
            found = (DYN, DYN)
        else:
            raise CompileFailure(
                node.range.at,
                f"expression of type '{self.types.final(over)}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
        if len(node.variables) == 2:
            return found
        return (found[0],) if over.name == "map" else (found[1],)

    def _optional_map(self, node: OptionalMap) -> Type:
        value = self.types.fresh()
        self._expect(node.operand, optional_of(value), "optFlatMap" if node.flat else "optMap")
        with self._declared({node.name: self.types.resolve(value)}):
            if not node.flat:
                return optional_of(self.type_of(node.body))
            found = optional_of(self.types.fresh())
            self._expect(node.body, found, "optFlatMap")
            return self.types.resolve(found)

    def _sort_by(self, node: SortBy) -> Type:
        members = list_of(self.types.fresh())
        self._expect(node.operand, members, "sortBy")
        known = self.types.resolve(members)
        with self._declared({node.name: known.parameters[0]}):
            self.type_of(node.key)
        return known


class _Fresh:
    """Types of one form of a function, its variables replaced by ones that nobody else uses."""

    def __init__(self, types: Unifier) -> None:
        self._types = types
        self._known: dict[str, Type] = {}

    def of(self, type_: Type) -> Type:
        if type_.is_variable:
            if type_.name not in self._known:
                self._known[type_.name] = self._types.fresh()
            return self._known[type_.name]
        if not type_.parameters:
            return type_
        return Type(type_.name, tuple(map(self.of, type_.parameters)))


def _inner(type_: Type) -> Type:
    return type_.parameters[0] if type_.name == "optional_type" else type_


def _dotted(node: Node) -> str | None:
    parts: list[str] = []
    while isinstance(node, Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(parts)]) if isinstance(node, Name) else None
