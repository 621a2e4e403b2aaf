"""Mutated dumps: what comes in is read or refused with its place, and what one object says hurts it alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from campaigns.case import Case, Failure, Figures, check_laws
from campaigns.worlds import draw_world
from koordcore import ManifestError, schedule, verify
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects

__all__ = ["Manifests"]

ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    10**30,
    "",
    "x",
    "{",
    "[]",
    "1",
    "-1",
    "1e400",
    "0.1m",
    "9223372036854775808",
    "9" * 40,
    "\x1b[31m",
    "é",
    "2026-13-01T00:00:00Z",
    [],
    [None],
    {},
    {"": ""},
    ["a", "a"],
)


class Manifests:
    """The campaign; see the module."""

    name = "manifests"
    laws: tuple[str, ...] = ("answers", "named", "kept", "alone")
    open_laws: tuple[str, ...] = ("printable", "verified")

    def draw(self, chance: random.Random) -> Case:
        """Draw a world and break some of its objects."""
        case = {**draw_world(chance), "preempt": chance.choice((None, {}))}
        for _ in range(chance.randint(1, 4)):
            mutate(chance, case["objects"])
        return case

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Load, and, where that works, schedule, verify and explain."""
        objects = copy.deepcopy(case["objects"])
        try:
            loaded = snapshot_from_objects(objects)
        except ManifestError as error:
            refused = error
            figures["load", "refused"] += 1
            return check_laws(
                {"named": lambda: _named(refused), "printable": lambda: _printable(refused)}, laws
            )
        figures["load", "read with warnings" if loaded.warnings else "read"] += 1
        found = []
        if objects != case["objects"]:
            found.append(Failure("kept", "the objects have been changed"))
        if sum(loaded.counts.values()) != len(objects):
            found.append(Failure("kept", f"{len(objects)} objects, {sum(loaded.counts.values())} counted"))

        def alone() -> Iterator[str]:
            result = schedule(loaded.snapshot, now=datetime.fromisoformat(case["now"]))
            figures["outcome", "decisions"] += len(result.decisions)
            for pod in loaded.snapshot.pending[:2]:
                explain(loaded.snapshot, pod)
            yield from ()

        def verified() -> Iterator[str]:
            result = schedule(loaded.snapshot, now=datetime.fromisoformat(case["now"]))
            yield from (str(one) for one in verify(loaded.snapshot, result))

        return found + check_laws({"alone": alone, "verified": verified}, laws)


def _named(error: ManifestError) -> Iterator[str]:
    """Every problem names its object and says something."""
    for problem in error.problems:
        if not problem.message or not (problem.object_name or problem.source):
            yield f"a problem without a place: {problem}"


def _printable(error: ManifestError) -> Iterator[str]:
    if any(not one.isprintable() for one in str(error).replace("\n", "")):
        yield "control characters reach the terminal"


def _place(chance: random.Random, inside: Any) -> tuple[Any, Any] | None:
    """Choose a key of something inside; None where there is none."""
    keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
    if not keys:
        return None
    key = chance.choice(keys)
    inner = inside[key]
    if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
        return _place(chance, inner)
    return inside, key


def _noted(one: Any) -> bool:
    try:
        notes = one["metadata"]["annotations"]
        return isinstance(notes, dict) and bool(notes)
    except (KeyError, TypeError):
        return False


def mutate(chance: random.Random, objects: list[Any]) -> None:
    """Change one place somewhere: another value, a key less, a key twice, an object twice."""
    if not objects:
        return
    kind = chance.random()
    noted = [one["metadata"]["annotations"] for one in objects if _noted(one)]
    if noted and kind > 0.6:
        # What tenants write: any of it, without a word from the API server.
        notes = chance.choice(noted)
        key = chance.choice(sorted(notes))
        text = notes[key]
        at = chance.randrange(len(text)) if isinstance(text, str) and text else 0
        cut = text[:at] + chance.choice(("", "x", "{", "-", "9", '"')) + text[at + 1 :] if at else "{"
        notes[key] = chance.choice((cut, cut, "", "{", "[]", "1", "null", "9" * 5000))
        return
    if kind < 0.05:
        objects.append(copy.deepcopy(chance.choice(objects)))
        return
    place = _place(chance, chance.choice(objects))
    if place is None:
        return
    where, key = place
    inner = where[key]
    if kind < 0.15:
        del where[key]
    elif isinstance(inner, str) and kind < 0.4 and inner:
        at = chance.randrange(len(inner))
        where[key] = inner[:at] + chance.choice(("", "x", "{", "-", "9")) + inner[at + 1 :]
    elif kind < 0.5 and isinstance(where, dict):
        where[chance.choice(("x", "name", "spec", f"{key}x"))] = copy.deepcopy(inner)
    else:
        where[key] = copy.deepcopy(chance.choice(ODD))
