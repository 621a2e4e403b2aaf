"""From text to tree.

Reference: the CEL language definition, "Syntax" and "Macros"; ``cel-go``'s parser for reserved words and for
the macros that Kubernetes adds (``cel.bind``, optional values, two variables, ``sortBy``).
"""

from __future__ import annotations

from itertools import count
from typing import Final

from koordcore.allocators.claims.cel.errors import CompileFailure
from koordcore.allocators.claims.cel.lexer import Token, TokenKind, tokenize
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
from koordcore.allocators.claims.cel.values import INT64_MAX

MAX_DEPTH: Final = 80
"""Levels of a tree. They bound every recursion over it, so that no text exhausts the interpreter's stack."""
MAX_NESTING: Final = 40
"""Brackets within brackets, which bound the recursion of the parser."""

_RESERVED: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
    }
    | {"package", "namespace", "null", "return", "true", "var", "void", "while"}
)
_BINARY: Final = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">=": 3, ">": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_MACROS: Final = {
    ("all", 2): (Macro.ALL, 1),
    ("all", 3): (Macro.ALL, 2),
    ("exists", 2): (Macro.EXISTS, 1),
    ("exists", 3): (Macro.EXISTS, 2),
    ("exists_one", 2): (Macro.EXISTS_ONE, 1),
    ("exists_one", 3): (Macro.EXISTS_ONE, 2),
    ("existsOne", 2): (Macro.EXISTS_ONE, 1),
    ("existsOne", 3): (Macro.EXISTS_ONE, 2),
    ("filter", 2): (Macro.FILTER, 1),
    ("map", 2): (Macro.MAP, 1),
    ("map", 3): (Macro.MAP, 1),
    ("transformList", 3): (Macro.TRANSFORM_LIST, 2),
    ("transformList", 4): (Macro.TRANSFORM_LIST, 2),
    ("transformMap", 3): (Macro.TRANSFORM_MAP, 2),
    ("transformMap", 4): (Macro.TRANSFORM_MAP, 2),
    ("transformMapEntry", 3): (Macro.TRANSFORM_MAP_ENTRY, 2),
    ("transformMapEntry", 4): (Macro.TRANSFORM_MAP_ENTRY, 2),
}
"""By name and number of arguments: which macro, and how many variables it has."""


def parse(text: str) -> Node:
    """Read an expression; raises :class:`CompileFailure` where it is none."""
    return _Parser(text).whole()


def _depth(*children: Node) -> int:
    return 1 + max((child.depth for child in children), default=0)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._next = 0
        self._level = 0
        self._ids = count()

    # --- words -----------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        self._next += token.kind is not TokenKind.END
        return token

    def _at_sign(self, *signs: str) -> bool:
        return self._token.kind is TokenKind.SIGN and self._token.text in signs

    def _accept(self, sign: str) -> bool:
        if self._at_sign(sign):
            self._next += 1
            return True
        return False

    def _expect(self, sign: str) -> Token:
        if not self._at_sign(sign):
            raise self._unexpected(f"expecting '{sign}'")
        return self._advance()

    def _unexpected(self, what: str) -> CompileFailure:
        return CompileFailure(self._token.at, f"Syntax error: mismatched input '{self._token.text}' {what}")

    def _base(self, at: int, *children: Node) -> dict[str, int]:
        depth = _depth(*children)
        if depth > MAX_DEPTH:
            raise CompileFailure(at, f"expression recursion limit exceeded: {MAX_DEPTH}")
        return {"id": next(self._ids), "at": at, "depth": depth}

    # --- grammar ---------------------------------------------------------------------------------

    def whole(self) -> Node:
        """The whole text as one expression."""
        node = self._expression()
        if self._token.kind is not TokenKind.END:
            raise self._unexpected("expecting <EOF>")
        return node

    def _expression(self) -> Node:
        self._level += 1
        if self._level > MAX_NESTING:
            raise CompileFailure(self._token.at, f"expression recursion limit exceeded: {MAX_NESTING}")
        node = self._binary(1)
        if self._at_sign("?"):
            at = self._advance().at
            then = self._binary(1)
            self._expect(":")
            otherwise = self._expression()
            node = Conditional(
                condition=node, then=then, otherwise=otherwise, **self._base(at, node, then, otherwise)
            )
        self._level -= 1
        return node

    def _binary(self, weakest: int) -> Node:
        left = self._unary()
        while self._token.kind is TokenKind.SIGN and _BINARY.get(self._token.text, 0) >= weakest:
            operator = self._advance()
            strength = _BINARY[operator.text]
            right = self._binary(strength + 1)
            if strength > 2:
                name = "@in" if operator.text == "in" else f"_{operator.text}_"
                left = self._call(operator.at, name, None, left, right)
                continue
            # Chains of one logical operator become one node: they may be long without being deep.
            operands = [left, right]
            while self._accept(operator.text):
                operands.append(self._binary(strength + 1))
            base = self._base(operator.at, *operands)
            left = Logic(conjunction=strength == 2, operands=tuple(operands), **base)
        return left

    def _unary(self) -> Node:
        sign = self._token
        if not self._at_sign("-", "!"):
            return self._member(self._primary())
        repeats = 0
        while self._accept(sign.text):
            repeats += 1
        if sign.text == "-" and repeats == 1 and (number := self._negative(sign.at)) is not None:
            return self._member(number)
        operand = self._member(self._primary())
        if repeats % 2 == 0:
            # An even number cancels out, but the operand must still suit the operator.
            operand = self._call(sign.at, f"{sign.text}_", None, operand)
        return self._call(sign.at, f"{sign.text}_", None, operand)

    def _negative(self, at: int) -> Node | None:
        value = self._token.value
        if self._token.kind is not TokenKind.LITERAL or type(value) not in {int, float}:
            return None
        self._advance()
        assert isinstance(value, int | float)
        return Literal(value=-value, **self._base(at))

    def _primary(self) -> Node:
        token = self._advance()
        if token.kind is TokenKind.LITERAL:
            if type(token.value) is int and token.value > INT64_MAX:
                raise CompileFailure(token.at, "invalid int literal")
            return Literal(value=token.value, **self._base(token.at))
        if token.kind is TokenKind.NAME:
            return self._name(token)
        if token.kind is TokenKind.SIGN:
            match token.text:
                case "(":
                    node = self._expression()
                    self._expect(")")
                    return node
                case "[":
                    return self._list(token.at)
                case "{":
                    return self._map(token.at)
                case "." if self._token.kind is TokenKind.NAME:
                    return self._name(self._advance())
        self._next -= token.kind is not TokenKind.END
        raise self._unexpected("expecting an expression")

    def _name(self, token: Token) -> Node:
        if token.text in _RESERVED:
            raise CompileFailure(token.at, f"reserved identifier: {token.text}")
        if not self._at_sign("("):
            return Name(name=token.text, **self._base(token.at))
        at = self._advance().at
        arguments = self._arguments(")")
        if token.text == "has" and len(arguments) == 1:
            return self._has(arguments[0], token.at)
        return self._call(at, token.text, None, *arguments)

    def _has(self, argument: Node, at: int) -> Node:
        if not isinstance(argument, Select) or argument.optional:
            raise CompileFailure(at, "invalid argument to has() macro")
        return Presence(operand=argument.operand, field=argument.field, **self._base(at, argument.operand))

    def _member(self, node: Node) -> Node:
        while True:
            if self._at_sign("."):
                at = self._advance().at
                optional = self._accept("?")
                if self._token.kind is not TokenKind.NAME:
                    raise self._unexpected("expecting a name")
                name = self._advance()
                if not optional and self._at_sign("("):
                    at = self._advance().at
                    node = self._method(at, name.text, node, self._arguments(")"))
                else:
                    node = Select(operand=node, field=name.text, optional=optional, **self._base(at, node))
            elif self._at_sign("["):
                at = self._advance().at
                function = "_[?_]" if self._accept("?") else "_[_]"
                index = self._expression()
                self._expect("]")
                node = self._call(at, function, None, node, index)
            elif self._at_sign("{") and isinstance(node, Name | Select):
                raise CompileFailure(self._token.at, "messages are not part of device selectors")
            else:
                return node

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._at_sign(closing):
            found.append(self._expression())
            if not self._accept(","):
                break
            if self._at_sign(closing):
                raise self._unexpected("expecting an expression")
        self._expect(closing)
        return tuple(found)

    def _list(self, at: int) -> Node:
        elements: list[tuple[Node, bool]] = []
        while not self._at_sign("]"):
            optional = self._accept("?")
            elements.append((self._expression(), optional))
            if not self._accept(","):
                break
        self._expect("]")
        return ListLiteral(elements=tuple(elements), **self._base(at, *(node for node, _ in elements)))

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._at_sign("}"):
            optional = self._accept("?")
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._accept(","):
                break
        self._expect("}")
        children = [node for key, value, _ in entries for node in (key, value)]
        return MapLiteral(entries=tuple(entries), **self._base(at, *children))

    def _call(self, at: int, function: str, target: Node | None, *arguments: Node) -> Node:
        children = arguments if target is None else (target, *arguments)
        return Call(function=function, target=target, arguments=arguments, **self._base(at, *children))

    # --- macros ----------------------------------------------------------------------------------

    def _method(self, at: int, name: str, target: Node, arguments: tuple[Node, ...]) -> Node:
        shape = (name, len(arguments))
        if shape in _MACROS:
            return self._comprehension(at, target, arguments, *_MACROS[shape])
        if shape == ("bind", 3) and isinstance(target, Name) and target.name == "cel":
            body = arguments[2]
            return Binding(
                name=_variable(arguments[0]),
                value=arguments[1],
                body=body,
                **self._base(at, arguments[1], body),
            )
        if shape in {("optMap", 2), ("optFlatMap", 2)}:
            return OptionalMap(
                operand=target,
                name=_variable(arguments[0]),
                body=arguments[1],
                flat=name == "optFlatMap",
                **self._base(at, target, arguments[1]),
            )
        if shape == ("sortBy", 2):
            base = self._base(at, target, arguments[1])
            return SortBy(operand=target, name=_variable(arguments[0]), key=arguments[1], **base)
        return self._call(at, name, target, *arguments)

    def _comprehension(
        self, at: int, target: Node, arguments: tuple[Node, ...], macro: Macro, variables: int
    ) -> Node:
        names = tuple(_variable(one) for one in arguments[:variables])
        if len(set(names)) < len(names):
            raise CompileFailure(at, "overlapping variable names")
        *conditions, body = arguments[variables:]
        condition = conditions[0] if conditions else None
        return Comprehension(
            macro=macro,
            range=target,
            variables=names,
            condition=condition,
            body=body,
            **self._base(at, target, body, *conditions),
        )


def _variable(node: Node) -> str:
    if not isinstance(node, Name):
        raise CompileFailure(node.at, "argument must be a simple name")
    return node.name
