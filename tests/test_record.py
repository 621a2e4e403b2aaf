"""Records compare, hash and show themselves as attrs would have them, though that is written late."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from koordcore._record import record


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

    return [Point, Named, Own, Alone, Ordered, Kept, Equal]


LATE, ATTRS = kinds(record), kinds(attrs.frozen)


def equal(kind: type) -> tuple[bool, ...]:
    one, same, other = kind(x=1), kind(x=1), kind(x=2)
    return (one == same, one == other, one != other, one == 1, hash(one) == hash(same), one in {same: 0})


def shown(kind: type) -> tuple[str, str]:
    one = kind(x=1)
    return repr(one), str(one)


@pytest.mark.parametrize("ask", [equal, shown])
@pytest.mark.parametrize("number", range(len(ATTRS)))
def test_records_are_what_attrs_makes(number: int, ask: Callable[[type], Any]) -> None:
    kind = LATE[number]
    assert ask(kind) == ask(ATTRS[number])
    assert ask(kind) == ask(ATTRS[number])  # once it is written


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
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Sent(3).x = 4  # type: ignore[misc]  # that is the point
