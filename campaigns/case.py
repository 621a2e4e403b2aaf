"""What a campaign draws, asks and finds."""

from __future__ import annotations

import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

__all__ = [
    "Campaign",
    "Case",
    "Failure",
    "Figures",
    "Object",
    "check_laws",
    "crash",
    "key_of",
    "parsed",
]

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON has it."""
Case: TypeAlias = dict[str, Any]
"""Everything that one question depends on, as JSON: ``objects``, and what the campaign adds."""
Figures: TypeAlias = Counter[tuple[str, str]]
"""How often what was met: pairs of a table and a row, such as ``("plugin", "NodePorts")``."""
_NAMES = re.compile(r"'.*?'|\[.*?\]|\{.*?\}|\b[a-z]+\d+(-\d+)?\b|\bq[ab]\b|\d+")


class Failure(NamedTuple):
    """A law that does not hold for a case.

    Parameters
    ----------
    law
        Its name; shrinking keeps the law that fails.
    what
        What was found.
    """

    law: str
    what: str

    @property
    def kind(self) -> str:
        """What failures have in common that differ in names and numbers only."""
        return f"{self.law}: {_NAMES.sub('#', self.what)}"


def crash(law: str, error: Exception) -> Failure:
    """Write an exception down as a failure, with the place where it arose."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.name}"
    return Failure(law, f"{type(error).__name__} in {where}: {error}")


def check_laws(every: Mapping[str, Callable[[], Iterable[str]]], laws: Iterable[str]) -> list[Failure]:
    """Check laws one after the other; an exception is a failure of the law that met it."""
    found: list[Failure] = []
    for law in laws:
        try:
            found += [Failure(law, what) for what in (every[law]() if law in every else ())]
        except Exception as error:
            found.append(crash(law, error))
    return found


class Campaign(Protocol):
    """One kind of question."""

    name: str
    laws: tuple[str, ...]
    """Laws that hold."""
    open_laws: tuple[str, ...]
    """Laws that are known not to hold yet: asked for with ``--profile open`` only."""

    def draw(self, chance: random.Random) -> Case:
        """Draw a case; the same chance gives the same case."""

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Ask the library and judge; counts what was met."""


def key_of(one: Mapping[str, Any]) -> str:
    """Give ``namespace/name`` of a namespaced object."""
    meta = one["metadata"]
    return f"{meta.get('namespace', 'default')}/{meta['name']}"


def parsed(amount: Any) -> int:
    """Read an amount as the campaigns write them: integers, ``m`` for thousandths, ``Gi`` and ``Mi``.

    CPU counts in thousandths when it is written with ``m``; the campaigns always do.
    """
    text = str(amount)
    for suffix, factor in (("m", 1), ("Gi", 2**30), ("Mi", 2**20)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)
