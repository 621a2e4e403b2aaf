"""The laws of the tests by chance: there the same few examples are drawn in every run, here others."""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import hypothesis

from campaigns.case import Case, Failure, Figures

__all__ = ["Properties", "properties"]

_ROOT: Final = Path(__file__).resolve().parents[1]


@cache
def properties() -> dict[str, Callable[[], Any]]:
    """Give every law by the place where it is written, those with a parameter once for each value."""
    importlib.import_module("tests.conftest")  # how the tests draw
    found: dict[str, Callable[[], Any]] = {}
    for path in sorted((_ROOT / "tests").rglob("test_*.py")):
        if "@given" not in path.read_text(encoding="utf-8"):
            continue
        place = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        for name, one in vars(importlib.import_module(place)).items():
            if inspect.isfunction(one) and hypothesis.is_hypothesis_test(one):
                found |= {f"{place}:{name}{which}": test for which, test in _forms(one)}
    return found


def _forms(test: Callable[..., Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give a test as pytest runs it: as it is, or once for each value of its one parameter."""
    if not inspect.signature(test).parameters:
        yield "", test
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            for value in mark.args[1]:
                yield f"[{value}]", partial(test, **{mark.args[0]: value})


class Properties:
    """The campaign; see the module. A case is a law and a seed of examples; hypothesis shrinks what fails."""

    name = "properties"
    laws: tuple[str, ...] = ("holds",)
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a law and a seed."""
        return {"test": chance.choice(sorted(properties())), "seed": chance.randrange(1 << 31)}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Hold a law to as many examples as its test draws."""
        figures["law", case["test"]] += 1
        test = properties()[case["test"]]
        # A seed goes before what the settings say about chance.
        hypothesis.seed(case["seed"])(test.func if isinstance(test, partial) else test)
        try:
            test()
        except Exception as error:
            told = "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
            return [Failure("holds", f"{case['test']}: {told}")]
        return []
