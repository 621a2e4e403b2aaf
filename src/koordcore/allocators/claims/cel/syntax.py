"""The tree of an expression, macros expanded.

``id`` tells the nodes of one expression apart, ``at`` is the index of the character that messages point to,
``depth`` counts the levels below: it bounds every recursion over the tree.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from koordcore._record import record


@record(eq=False, kw_only=True)
class _Base:
    id: int
    at: int
    depth: int


@record(eq=False, kw_only=True)
class Literal(_Base):
    """A constant: bool, int, UInt, float, str, bytes or None."""

    value: object


@record(eq=False, kw_only=True)
class Name(_Base):
    """A variable, or the name of a type."""

    name: str


@record(eq=False, kw_only=True)
class Select(_Base):
    """``operand.field``, or ``operand.?field``."""

    operand: Node
    field: str
    optional: bool = False


@record(eq=False, kw_only=True)
class Presence(_Base):
    """``has(operand.field)``."""

    operand: Node
    field: str


@record(eq=False, kw_only=True)
class Call(_Base):
    """A function, a method (``target`` is set) or an operator (``_+_`` and the like)."""

    function: str
    target: Node | None
    arguments: tuple[Node, ...]


@record(eq=False, kw_only=True)
class Logic(_Base):
    """A chain of ``&&`` or of ``||``."""

    conjunction: bool
    operands: tuple[Node, ...]


@record(eq=False, kw_only=True)
class Conditional(_Base):
    """``condition ? then : otherwise``."""

    condition: Node
    then: Node
    otherwise: Node


@record(eq=False, kw_only=True)
class ListLiteral(_Base):
    """``[a, ?b]``: members, and whether each is optional."""

    elements: tuple[tuple[Node, bool], ...]


@record(eq=False, kw_only=True)
class MapLiteral(_Base):
    """``{a: b, ?c: d}``: keys, values, and whether each entry is optional."""

    entries: tuple[tuple[Node, Node, bool], ...]


class Macro(StrEnum):
    """What is done with the members of a list or the entries of a map."""

    ALL = "all"
    EXISTS = "exists"
    EXISTS_ONE = "exists_one"
    MAP = "map"
    FILTER = "filter"
    TRANSFORM_LIST = "transformList"
    TRANSFORM_MAP = "transformMap"
    TRANSFORM_MAP_ENTRY = "transformMapEntry"


@record(eq=False, kw_only=True)
class Comprehension(_Base):
    """``range.macro(variables, [condition,] body)`` with one variable or two."""

    macro: Macro
    range: Node
    variables: tuple[str, ...]
    condition: Node | None
    body: Node


@record(eq=False, kw_only=True)
class Binding(_Base):
    """``cel.bind(name, value, body)``."""

    name: str
    value: Node
    body: Node


@record(eq=False, kw_only=True)
class OptionalMap(_Base):
    """``operand.optMap(name, body)``; ``flat`` for ``optFlatMap``."""

    operand: Node
    name: str
    body: Node
    flat: bool


@record(eq=False, kw_only=True)
class SortBy(_Base):
    """``operand.sortBy(name, key)``."""

    operand: Node
    name: str
    key: Node


Node: TypeAlias = (
    Literal
    | Name
    | Select
    | Presence
    | Call
    | Logic
    | Conditional
    | ListLiteral
    | MapLiteral
    | Comprehension
    | Binding
    | OptionalMap
    | SortBy
)
