"""Which attributes and capacities an expression can look at.

Devices that agree in these have one answer, however else they differ (every GPU has a UUID of its own).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from koordcore.allocators.claims.cel.environment import DEVICE_VARIABLE
from koordcore.allocators.claims.cel.syntax import (
    Binding,
    Call,
    Comprehension,
    Conditional,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Name,
    Node,
    OptionalMap,
    Presence,
    Select,
    SortBy,
)

Footprint: TypeAlias = tuple[tuple[str, str | None, str], ...]
"""``attributes`` or ``capacity``, a domain (``None`` for the driver's), and a name in it."""

_Place: TypeAlias = tuple[str | None, ...]
_DEVICE: Final[_Place] = ("device",)
_MAPS: Final = frozenset({"attributes", "capacity"})


class _Everything(Exception):  # noqa: N818 - ends the walk: the expression looks at a map as a whole
    pass


def footprint_of(root: Node) -> Footprint | None:
    """What an expression can look at, sorted; ``None`` for the whole device."""
    reader = _Reader()
    try:
        reader.use(root)
    except _Everything:
        return None
    return tuple(sorted(reader.seen, key=lambda one: (one[0], one[1] or "", one[2])))


def only_driver_of(root: Node) -> str | None:
    """The one driver whose devices an expression can select; ``None`` where its text does not say so.

    It says so where it is, or where a chain of ``&&`` has, a comparison of ``device.driver`` with a text: if
    that is false, all of it is, whatever else errs.
    """
    parts = root.operands if isinstance(root, Logic) and root.conjunction else (root,)
    for part in parts:
        if isinstance(part, Logic) and part.conjunction:
            inner = only_driver_of(part)
            if inner is not None:
                return inner
        match part:
            case Call(function="_==_", arguments=(Select() as field, Literal(value=str() as name))):
                pass
            case Call(function="_==_", arguments=(Literal(value=str() as name), Select() as field)):
                pass
            case _:
                continue
        if isinstance(field.operand, Name) and (field.operand.name, field.field) == (
            DEVICE_VARIABLE,
            "driver",
        ):
            return name
    return None


class _Reader:
    def __init__(self) -> None:
        self.seen: set[tuple[str, str | None, str]] = set()
        # Places that variables stand for; other variables are values.
        self._scope: dict[str, _Place | None] = {DEVICE_VARIABLE: _DEVICE}

    def use(self, node: Node) -> None:
        """Look at the value of a node, whatever it is."""
        if self._place(node) is not None:
            raise _Everything

    def _inside(self, names: dict[str, _Place | None], node: Node) -> _Place | None:
        outer = self._scope
        self._scope = {**outer, **names}
        place = self._place(node)
        self._scope = outer
        return place

    def _place(self, node: Node) -> _Place | None:
        """The part of the device that a node stands for; ``None`` where it is a plain value."""
        match node:
            case Name():
                return self._scope.get(node.name)
            case Select() | Presence():
                return self._step(self._place(node.operand), node.field)
            case Call(function="_[_]" | "_[?_]", arguments=(target, key)):
                return self._element(self._place(target), key)
            case Call(function="@in", arguments=(Literal(value=str() as name), target)):
                # Whether a name is there is known with its value; whether a domain is there is not.
                place = self._place(target)
                if place is not None and len(place) < 2:
                    raise _Everything
                return self._step(place, name)
            case Binding():
                return self._inside({node.name: self._place(node.value)}, node.body)
            case _:
                self._members(node)
                return None

    def _members(self, node: Node) -> None:
        match node:
            case Call():
                for one in node.arguments if node.target is None else (node.target, *node.arguments):
                    # Names such as sets in sets.contains are no variables; they stand for no place either.
                    self.use(one)
            case Logic():
                for one in node.operands:
                    self.use(one)
            case Conditional():
                for one in (node.condition, node.then, node.otherwise):
                    self.use(one)
            case ListLiteral():
                for one, _ in node.elements:
                    self.use(one)
            case MapLiteral():
                for key, value, _ in node.entries:
                    self.use(key)
                    self.use(value)
            case Comprehension():
                self.use(node.range)
                bodies = (node.body,) if node.condition is None else (node.condition, node.body)
                for body in bodies:
                    self._value_inside(dict.fromkeys(node.variables), body)
            case OptionalMap():
                self.use(node.operand)
                self._value_inside({node.name: None}, node.body)
            case SortBy():
                self.use(node.operand)
                self._value_inside({node.name: None}, node.key)
            case _:
                pass

    def _value_inside(self, names: dict[str, _Place | None], node: Node) -> None:
        if self._inside(names, node) is not None:
            raise _Everything

    def _element(self, place: _Place | None, key: Node) -> _Place | None:
        match key:
            case Literal(value=str() as name):
                return self._step(place, name)
            case Select(operand=Name(name=variable), field="driver") if self._scope.get(variable) == _DEVICE:
                if place is not None and len(place) == 1 and place != _DEVICE:
                    return (*place, None)
        self.use(key)
        if place is not None:
            raise _Everything
        return None

    def _step(self, place: _Place | None, name: str) -> _Place | None:
        if place is None:
            return None
        if place == _DEVICE:
            # Driver and shareability are part of every device's class.
            return (name,) if name in _MAPS else None
        if len(place) == 1:
            return (*place, name)
        self.seen.add((str(place[0]), place[1], name))
        return None
