"""What is in the package is reached from its face or from the command line."""

from __future__ import annotations

import ast
from typing import Final

from tests.reach import Package, _Module, read_package

LIMIT: Final = 0
"""How many functions, classes and methods are not reached; it may only fall."""


def small(**files: str) -> Package:
    """Read a package whose files are given as texts."""
    modules = {}
    for name, text in files.items():
        dotted = name.replace("__", ".")
        modules[dotted] = _Module(dotted)
        modules[dotted].read(ast.parse(text))
    return Package(modules, frozenset({"shown"}))


def test_a_function_is_reached_through_names_methods_and_texts() -> None:
    package = small(
        top="from top.a import face\n__all__ = ['face']",
        top__a=(
            "from top.b import Thing as Other, LIST\n"
            "def face():\n    return Other().used(LIST)\n"
            "def shown():\n    return 1\n"
            "def lost():\n    return lost_too()\n"
            "def lost_too():\n    return 2\n"
        ),
        top__b=(
            "LIST = {'x': 'found'}\n"
            "def found():\n    return 1\n"
            "class Thing:\n"
            "    def used(self, x):\n        return x\n"
            "    def idle(self):\n        return 0\n"
            "    def __len__(self):\n        return 0\n"
        ),
    )
    assert {one.name for one in package.unreached} == {"shown", "lost", "lost_too", "Thing.idle"}


def test_nothing_is_added_that_nobody_reaches() -> None:
    """Wire it in, move it to ``tests/reference``, or delete it; then lower the limit."""
    lost = read_package().unreached
    assert len(lost) <= LIMIT, "\n".join(map(str, lost))
