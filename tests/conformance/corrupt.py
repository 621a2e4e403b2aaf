"""Corrupt right answers, one value at a time, and count what the judges let through.

A judge that accepts a changed number, text or entry does not look at it. Which value of an answer is changed,
and how, follows from the seed, the subject, the case and the count alone.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs

from tests.conformance.core import Case, Verdict, judged, load_file, run_case

__all__ = ["Corrupted", "Tally", "accepted_of", "corrupt_files", "corrupted", "places"]

RIGHT: Final = (Verdict.EQUAL, Verdict.BETTER, Verdict.RULED)
Path_ = tuple[str | int, ...]


@attrs.frozen
class Corrupted:
    """One answer with one value changed.

    Parameters
    ----------
    path
        Where the value stands in the answer.
    change
        What was done to it, as a text.
    verdict
        What the judge said.
    """

    case: Case
    path: Path_
    change: str
    verdict: Verdict

    @property
    def accepted(self) -> bool:
        """The judge did not see it."""
        return self.verdict in RIGHT

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"{self.case.subject} {self.case.id}: ${where} {self.change} is {self.verdict}"


@attrs.define
class Tally:
    """How many corrupted answers of a subject were accepted, of cases with and without an expectation."""

    measured: int = 0
    accepted: int = 0
    unmeasured: int = 0
    let_by: int = 0

    def add(self, one: Corrupted) -> None:
        """Count one."""
        if one.case.ruled:
            self.unmeasured += 1
            self.let_by += one.accepted
        else:
            self.measured += 1
            self.accepted += one.accepted


def places(answer: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Walk to every value of an answer: entries of objects and lists, and what is not divided further."""
    yield path
    if isinstance(answer, dict):
        for key in sorted(answer, key=str):
            yield from places(answer[key], (*path, key))
    elif isinstance(answer, list):
        for index, one in enumerate(answer):
            yield from places(one, (*path, index))


def _changed(value: Any, others: Sequence[str], chance: Random) -> tuple[Any, str]:
    """Give another value of the same kind, and say which; a text may become another one of the answer."""
    if isinstance(value, bool):
        return not value, f"{value} -> {not value}"
    if isinstance(value, int | float):
        amount = value + chance.choice((-1, 1, 7, 50))
        return amount, f"{value} -> {amount}"
    if isinstance(value, str):
        text = chance.choice([f"{value}0" if value.isdigit() else f"{value} nonsense".strip(), *others[:1]])
        return text, f"{value!r} -> {text!r}"
    if value is None:
        return "nonsense", "null -> 'nonsense'"
    if not value:
        return ({"nonsense": 0} if isinstance(value, dict) else ["nonsense"]), "an entry made up"
    if isinstance(value, dict):
        gone = chance.choice(sorted(value, key=str))
        return {key: one for key, one in value.items() if key != gone}, f"without {gone}"
    index = chance.randrange(len(value))
    return [*value[:index], *value[index + 1 :]], f"without item {index}"


def corrupted(answer: Any, chance: Random) -> tuple[Any, Path_, str]:
    """Change one value of an answer; the answer given stays as it is."""
    copied = {"": copy.deepcopy(answer)}
    path = chance.choice(list(places(answer)))
    holder: Any = copied
    steps: Path_ = ("", *path)
    for step in steps[:-1]:
        holder = holder[step]
    old = holder[steps[-1]]
    texts = sorted(
        {one for one in map(partial(_at, answer), places(answer)) if isinstance(one, str)} - {str(old)}
    )
    chance.shuffle(texts)
    holder[steps[-1]], change = _changed(old, texts, chance)
    return copied[""], path, change


def _at(answer: Any, path: Path_) -> Any:
    for step in path:
        answer = answer[step]
    return answer


def accepted_of(case: Case, number: int, seed: int) -> list[Corrupted]:
    """Corrupt the answer to one case so many times.

    Empty where the answer itself is not right, or is no JSON: of ``dra.sequence`` the judge is given records.
    """
    first = run_case(case)
    if first.verdict not in RIGHT or first.answer == {}:
        return []
    try:
        answer = json.loads(json.dumps(first.answer))
    except TypeError:
        return []
    if judged(case, answer).verdict not in RIGHT:
        raise AssertionError(
            f"{case.subject} {case.id}: another verdict after writing and reading the answer"
        )
    found = []
    for count in range(number):
        wrong, path, change = corrupted(answer, Random(f"{seed}:{case.subject}:{case.id}:{count}"))
        found.append(Corrupted(case, path, change, judged(case, wrong).verdict))
    return found


def corrupt_files(files: Iterable[Path], number: int, seed: int) -> Iterator[Corrupted]:
    """Corrupt so many answers of each file: one of each of some cases, more of each where cases are few."""
    for path in files:
        cases = list(load_file(path))
        chance = Random(f"{seed}:{path.stem}")
        chosen: Sequence[Case] = chance.sample(cases, min(number, len(cases)))
        each, rest = divmod(number, len(chosen)) if chosen else (0, 0)
        for index, case in enumerate(chosen):
            yield from accepted_of(case, each + (index < rest), seed)
