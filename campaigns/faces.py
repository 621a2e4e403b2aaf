"""Every function and record that a package hands out, called with odd arguments.

What each parameter takes is read from its annotation; one or two get something else. A call ends in an
answer, in an error of the library, or in a TypeError that names the argument.
"""

from __future__ import annotations

import enum
import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from campaigns.api import NODE, POD, SMALL
from campaigns.case import Case, Failure, Figures, check_laws
from koordcore import (
    KoordcoreError,
    Limits,
    NodeState,
    PodKey,
    Policy,
    PreemptionRules,
    schedule,
)

__all__ = ["Faces"]

PACKAGES: Final = (
    *("", ".explaining", ".descheduling", ".quota", ".checking", ".manifests", ".colocation"),
    *(".reservations", ".scheduling", ".model", ".protocol", ".topology", ".reporting", ".preemption"),
)
"""Those whose functions are called by embedders."""
USUAL: Final[dict[str, Any]] = {
    "ClusterSnapshot": SMALL,
    "Pod": POD,
    "PodKey": POD.key,
    "Node": NODE,
    "NodeState": NodeState(NODE),
    "Policy": Policy(),
    "Limits": Limits(),
    "PreemptionRules": PreemptionRules(),
    "ScheduleResult": schedule(SMALL),
    "str": "x",
    "int": 3,
    "float": 1.0,
    "bool": True,
    "datetime": datetime(2026, 11, 1, 12, tzinfo=UTC),
}
"""What a parameter of a type gets."""


class _Unequal:
    """Neither compared, nor hashed, nor written down."""

    __hash__ = None  # type: ignore[assignment]  # as lists have it

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


ODD: Final[dict[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "-1": lambda: -1,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "2**63": lambda: 2**63,
    "10**5000": lambda: 10**5000,
    "''": lambda: "",
    "'x'": lambda: "x",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"x",
    "()": lambda: (),
    "[None]": lambda: [None],
    "[1]": lambda: [1],
    "{'x': 'y'}": lambda: {"x": "y"},
    "{'cpu': numpy}": lambda: {"cpu": np.int64(5)},
    "{1: 2}": lambda: {1: 2},
    "class": lambda: object,
    "generator": lambda: (one for one in [1]),
    "naive": lambda: datetime(2026, 1, 1),  # noqa: DTZ001 - meant
    "pod": lambda: POD,
    "[pod]": lambda: [POD],
    "key": lambda: PodKey("default", "p"),
    "snapshot": lambda: SMALL,
    "numpy integer": lambda: np.int64(3),
    "numpy array": lambda: np.arange(3),
    "range": lambda: range(3),
    "endless": _endless,
    "unequal": _Unequal,
}
"""Odd values by the name that a case writes down, made anew for each call."""


@cache
def _targets() -> dict[str, tuple[Callable[..., Any], tuple[inspect.Parameter, ...]]]:
    """Functions and classes by the name under which they are handed out, with what they take."""
    found = {}
    for package in PACKAGES:
        face = import_module(f"koordcore{package}")
        for name in face.__all__:
            value = getattr(face, name)
            if isinstance(value, type) and issubclass(value, enum.Enum | Exception):
                continue
            if not callable(value) or getattr(value, "_is_protocol", False):
                continue
            try:
                taken = tuple(inspect.signature(value).parameters.values())
            except ValueError:  # a type alias
                continue
            if taken and all(one.kind is not one.VAR_KEYWORD for one in taken):
                found[f"koordcore{package}.{name}"] = value, taken
    return found


def _usual(annotation: object) -> Any:
    words = str(annotation).replace("koordcore.", "").split(" | ", maxsplit=1)[0].split("[", maxsplit=1)[0]
    if words in USUAL:
        return USUAL[words]
    return {} if words in ("Mapping", "dict", "Resources") else ()


class Faces:
    """The campaign; see the module."""

    name = "faces"
    laws: tuple[str, ...] = ("answers", "named")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a call with one or two odd arguments."""
        call = chance.choice(sorted(_targets()))
        names = [one.name for one in _targets()[call][1]]
        odd = chance.sample(names, min(len(names), chance.choice((1, 1, 1, 2))))
        return {"call": call, "odd": {name: chance.choice(sorted(ODD)) for name in odd}}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Call, and judge how it ends."""
        figures["package", case["call"].rpartition(".")[0]] += 1
        call, taken = _targets()[case["call"]]
        listed, named = [], {}
        for one in taken:
            if one.name in case["odd"]:
                value = ODD[case["odd"][one.name]]()
            elif one.default is one.empty and one.kind is not one.VAR_POSITIONAL:
                value = _usual(one.annotation)
            else:
                continue
            if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY):
                listed.append(value)
            else:
                named[one.name] = value

        def ends() -> Iterator[str]:
            try:
                call(*listed, **named)
            except KoordcoreError as error:
                figures["outcome", type(error).__name__] += 1
            except TypeError as error:
                figures["outcome", "TypeError"] += 1
                if not any(one.name in str(error) for one in taken):
                    yield f"{case['call']}({', '.join(case['odd'])}): {error}"
            else:
                figures["outcome", "an answer"] += 1

        return check_laws({"named": ends}, laws)
