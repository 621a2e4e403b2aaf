"""Mutated dumps: what cannot be read is named, and all others are decided as if it were not there."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from campaigns.case import Case, Failure, Figures, check_laws
from campaigns.worlds import THEMES, draw_world
from koordcore import ClusterSnapshot, ManifestError, Pod, PreemptionRules, schedule, verify
from koordcore.errors import Problem
from koordcore.explaining import explain
from koordcore.manifests import EventReader, Loaded, snapshot_from_objects
from koordcore.model.cluster import Unreadable
from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult

__all__ = ["Evictions", "Manifests"]

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


_DIGITS: Final = re.compile(r"[0-9]+")
_NOTHING: Final = {"apiVersion": "campaigns/v1", "kind": "Nothing"}


class Manifests:
    """The campaign; see the module."""

    name = "manifests"
    laws: tuple[str, ...] = ("answers", "named", "printable", "kept", "alone", "shut", "likewise", "verified")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world and break some of its objects."""
        case = {**draw_world(chance), "preempt": chance.choice((None, {}))}
        for _ in range(chance.randint(1, 4)):
            mutate(chance, case["objects"])
        return case

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Load, schedule, verify and explain; without what is broken, and event by event, too."""
        objects = copy.deepcopy(case["objects"])
        try:
            loaded = snapshot_from_objects(objects)
        except ManifestError as error:
            return [Failure("alone", f"refused as a whole: {error}")]
        problems, warned = loaded.problems, bool(loaded.warnings)
        figures["load", "left out" if problems else "read with warnings" if warned else "read"] += 1
        found = []
        if objects != case["objects"]:
            found.append(Failure("kept", "the objects have been changed"))
        now = datetime.fromisoformat(case["now"])

        @cache
        def decided() -> ScheduleResult:
            return schedule(loaded.snapshot, now=now, preempt=_rules(case))

        def verified() -> Iterator[str]:
            yield from (str(one) for one in verify(loaded.snapshot, decided()))

        def answered() -> Iterator[str]:
            figures["outcome", "decisions"] += len(decided().decisions)
            for pod in loaded.snapshot.pending[:2]:
                explain(loaded.snapshot, pod)
            yield from ()

        return found + check_laws(
            {
                "answers": answered,
                "named": lambda: _named(problems),
                "printable": lambda: _printable(problems),
                "kept": lambda: _kept(objects, loaded),
                "alone": lambda: _alone(objects, loaded, decided(), case),
                "shut": lambda: _shut(loaded, decided()),
                "likewise": lambda: _likewise(objects, loaded),
                "verified": verified,
            },
            laws,
        )


class Evictions(Manifests):
    """Clusters where much bears on who has to leave, and numbers that no cluster has: the plan is legal."""

    name = "evictions"
    laws = ("verified",)

    def draw(self, chance: random.Random) -> Case:
        """Draw a world of quotas, gangs, neighbours and promises, and break or change little of it."""
        themes = {**dict.fromkeys(THEMES, 0.2), "quotas": 0.8, "gangs": 0.7, "neighbours": 0.6}
        case = draw_world(chance, {**themes, "nominated": 0.5, "reservations": 0.5})
        case["preempt"] = chance.choice(({}, {}, {"relocation": "first"}, {"members": "all"}))
        for _ in range(chance.randint(0, 3)):
            chance.choice((mutate, other_number))(chance, case["objects"])
        return case


def _rules(case: Case) -> PreemptionRules | None:
    return None if case["preempt"] is None else PreemptionRules(**case["preempt"])


def _named(problems: Iterable[Problem]) -> Iterator[str]:
    """Every problem names its object and says something."""
    for problem in problems:
        if not problem.message or not problem.source:
            yield f"a problem without a place: {problem}"


def _printable(problems: Iterable[Problem]) -> Iterator[str]:
    if any(not one.isprintable() for problem in problems for one in str(problem).replace("\n", "")):
        yield "control characters reach the terminal"


def _kept(objects: Sequence[Any], loaded: Loaded) -> Iterator[str]:
    """Every object is in the snapshot, or named as one that stands twice."""
    snapshot = loaded.snapshot
    twice = sum("stands twice" in one.message for one in loaded.warnings)
    kinds = [one for one in objects if isinstance(one, dict) and isinstance(one.get("kind"), str)]
    pods = [*snapshot.bound_pods(), *snapshot.pending, *snapshot.of(Pod)]
    there = len(pods) + len(snapshot.nodes) + sum(1 for one in snapshot.records if not isinstance(one, Pod))
    if there + twice < len(objects):
        yield f"{len(objects)} objects, {there} in the snapshot, {twice} stand twice"
    waiting = sum(one.get("kind") == "Pod" for one in kinds)
    if len(pods) + len([one for one in loaded.warnings if "not of" in one.message]) + twice < waiting:
        yield f"{waiting} pods, {len(pods)} in the snapshot"


def _alone(objects: Sequence[Any], loaded: Loaded, decided: ScheduleResult, case: Case) -> Iterator[str]:
    """Everybody else gets the same answer as without what is broken."""
    if not loaded.problems:
        return
    broken = {one.source for one in loaded.problems}
    for pod in loaded.snapshot.pending:
        one = decided.decision(pod.key)
        if pod.unreadable and not (isinstance(one, Unschedulable) and pod.unreadable in one.message):
            yield f"{pod.key}: cannot be read, and gets {one}"
    if any(pod.unreadable for pod in (*loaded.snapshot.bound_pods(), *loaded.snapshot.of(Pod))):
        return  # what it holds is not free, of its quota neither: see the law "shut"
    if any(one.unreadable for one in loaded.snapshot.of(Reservation)):
        return  # nor is what it keeps
    if any("stands twice" in one.message for one in loaded.warnings):
        return  # without the broken one the other counts
    # Each in its place, after which what has no name is called.
    rest = [
        one if f"object {number}" not in broken else {**_NOTHING, "metadata": {"name": f"gone-{number}"}}
        for number, one in enumerate(objects, 1)
    ]
    without = snapshot_from_objects(rest)
    if without.problems:
        yield f"what is left cannot be read either: {without.problems[0]}"
        return
    now = datetime.fromisoformat(case["now"])
    other = schedule(without.snapshot, now=now, preempt=_rules(case))
    for theirs in other.decisions:
        mine = decided.decision(theirs.pod)
        if _place_of(mine) != _place_of(theirs):
            yield f"{theirs.pod}: {mine}, and without what is broken {theirs}"


def _place_of(one: PodDecision | None) -> tuple[str, str]:
    return type(one).__name__, str(getattr(one, "node", ""))


def _shut(loaded: Loaded, decided: ScheduleResult) -> Iterator[str]:
    """Nobody joins a pod that runs and may hold more than can be read, and nobody has it leave."""
    kept = {pod.key: pod for pod in loaded.snapshot.bound_pods() if pod.unreadable}
    shut = {pod.node_name for pod in kept.values() if pod.conceals}
    for one in decided.decisions:
        if isinstance(one, Bound | Nominated) and one.node in shut:
            yield f"{one.pod} is put on {one.node}, where something cannot be read"
    for plan in decided.preemptions:
        yield from (f"{one.pod} has to leave" for one in plan.victims if one.pod in kept)


def _likewise(objects: Sequence[Any], loaded: Loaded) -> Iterator[str]:
    """The reader of events comes to the same cluster, for objects of different names."""
    if any("stands twice" in one.message for one in loaded.warnings) or not all(map(_has_name, objects)):
        return
    reader, snapshot = EventReader(), ClusterSnapshot()
    for one in objects:
        snapshot = snapshot.apply(*reader.event("ADDED", one))
    mine = {str(pod.key): pod.unreadable for pod in _pods(loaded.snapshot)}
    theirs = {str(pod.key): pod.unreadable for pod in _pods(snapshot)}
    if mine != theirs:
        yield f"pods by events differ: {sorted(mine.items() ^ theirs.items())[:4]}"
    if [one.name for one in loaded.snapshot.nodes] != [one.name for one in snapshot.nodes]:
        yield "nodes by events differ"
    if loaded.snapshot.of(Unreadable) != snapshot.of(Unreadable):
        yield f"{loaded.snapshot.of(Unreadable)}, by events {snapshot.of(Unreadable)}"


def _has_name(one: Any) -> bool:
    meta = one.get("metadata") if isinstance(one, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get("name"), str) and bool(meta["name"])


def _pods(snapshot: ClusterSnapshot) -> list[Pod]:
    return [*snapshot.bound_pods(), *snapshot.pending, *snapshot.of(Pod)]


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


def _numbers(inside: Any) -> Iterator[tuple[Any, Any]]:
    """Give the places of numbers, and of texts with a digit: amounts, and what annotations say."""
    for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
        if isinstance(value, dict | list):
            yield from _numbers(value)
        elif type(value) is int or (isinstance(value, str) and _DIGITS.search(value)):
            yield inside, key


def other_number(chance: random.Random, objects: list[Any]) -> None:
    """Write another number in one place: less than nothing, none, or more than anything has."""
    places = list(_numbers(objects))
    if not places:
        return
    where, key = chance.choice(places)
    value = where[key]
    if isinstance(value, int):
        large = (2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63)
        where[key] = chance.choice((-value, -1, 0, value * 10 ** chance.choice((3, 9, 18, 25)), *large))
        return
    one = chance.choice(list(_DIGITS.finditer(value)))
    written = ("-" + one.group(), "-1", "0", one.group() + "9", "9" * chance.choice((3, 10, 16, 19, 25)))
    where[key] = value[: one.start()] + chance.choice((*written, str(2**31), str(2**53))) + value[one.end() :]


def mutate(chance: random.Random, objects: list[Any]) -> None:
    """Change one place somewhere: another value or number, a key less, a key twice, an object twice."""
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
    if 0.5 < kind < 0.6:
        other_number(chance, objects)
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
