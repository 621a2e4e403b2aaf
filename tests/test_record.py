"""Records compare, hash and show themselves as attrs would have them, though that is written late."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import attrs
import pytest

from koordcore import PodKey
from koordcore._record import record, wrap_init


def kinds(make: Any) -> list[type]:
    """Give the same classes, made by one decorator or the other."""

    @make
    class Point:
        x: int
        y: tuple[int, ...] = ()
        note: str = attrs.field(default="", eq=False, repr=False)

    @make(kw_only=True)
    class Named(Point):
        name: str = attrs.field(default="", eq=str.lower)

    @make
    class Own:
        x: int

        def __repr__(self) -> str:
            return "mine"

    @make(eq=False)
    class Alone:
        x: int

    @make(order=True)
    class Ordered:
        x: int

    @make(cache_hash=True)
    class Kept:
        x: int

    @make
    class Equal:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    @make(weakref_slot=False)
    class Small:
        x: int
        y: tuple[int, ...] = attrs.field(default=(), converter=tuple)

    @make
    class Checked:
        x: int
        many: ClassVar[int] = 3

        def __attrs_post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")

    @make(kw_only=True)
    class Grown(Checked):
        more: int = 0

        def __attrs_post_init__(self) -> None:
            super().__attrs_post_init__()

    @make
    class Thinking:
        x: int

        @cached_property
        def twice(self) -> int:
            return 2 * self.x

    return [Point, Named, Own, Alone, Ordered, Kept, Equal, Small, Checked, Grown, Thinking]


LATE, ATTRS = kinds(record), kinds(attrs.frozen)


def equal(kind: type) -> tuple[bool, ...]:
    one, same, other = kind(x=1), kind(x=1), kind(x=2)
    return (one == same, one == other, one != other, one == 1, hash(one) == hash(same), one in {same: 0})


def shown(kind: type) -> tuple[str, str]:
    one = kind(x=1)
    return repr(one), str(one)


def written(kind: type) -> tuple[Any, ...]:
    """Ask for what attrs says of a class before any of it is made."""
    fields = [(one.name, one.type, one.default, one.kw_only) for one in attrs.fields(kind)]
    return fields, str(inspect.signature(kind)), vars(kind)["__slots__"], kind.__match_args__  # type: ignore[attr-defined]


def names(kind: type) -> frozenset[str]:
    return frozenset(vars(kind)) - {"__ne__"}  # Python tells it from the other


def frozen(kind: type) -> tuple[str, ...]:
    bare: Any = object.__new__(kind)
    errors = []
    for change in (lambda: setattr(bare, "x", 1), lambda: delattr(bare, "x"), lambda: kind(x="a", z=1)):
        with pytest.raises((attrs.exceptions.FrozenInstanceError, TypeError)) as error:
            change()
        errors.append(str(error.value))
    return tuple(errors)


def copied(kind: type) -> tuple[bool, ...]:
    one = kind(x=1)
    return copy.copy(one).x == 1, attrs.evolve(one, x=2).x == 2, attrs.asdict(one)["x"] == 1


@pytest.mark.parametrize("ask", [written, frozen, names, equal, shown, copied])
@pytest.mark.parametrize("number", range(len(ATTRS)))
def test_records_are_what_attrs_makes(number: int, ask: Callable[[type], Any]) -> None:
    kind = kinds(record)[number]  # which nobody has used
    assert ask(kind) == ask(ATTRS[number])
    assert ask(kind) == ask(ATTRS[number])  # once it is written


@pytest.mark.parametrize("number", range(len(ATTRS)))
def test_a_record_that_wraps_its_init_does_so_whenever_it_is_written(number: int) -> None:
    def doubling(make: Callable[..., None]) -> Callable[..., None]:
        return lambda self, x: make(self, x=2 * x)

    kind, used = kinds(record)[number], kinds(record)[number]
    assert used(x=1).x == 1
    for one in (kind, used):
        wrap_init(one, doubling)
        assert one(x=1).x == 2


def test_fields_say_what_counts() -> None:
    for point, named, *_ in (LATE, ATTRS):
        assert point(1, note="a") == point(1, note="b")
        assert "note" not in repr(point(1, note="a"))
        assert named(x=1, name="A") == named(x=1, name="a") != named(x=1, name="b")
        assert point(1) != named(x=1)
        assert issubclass(named, point)


@record
class Sent:
    """At the top of a module, so that it can be pickled."""

    x: int


def test_records_stay_frozen_and_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)
    assert attrs.evolve(Sent(3), x=4) == Sent(4)
    script = f"import pickle; print(pickle.loads({pickle.dumps(PodKey('a', 'b'))!r}))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"a/b\n"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Sent(3).x = 4  # type: ignore[misc]  # that is the point
