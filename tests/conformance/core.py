"""Cases, verdicts, the registry of adapters, and the running of one case."""

from __future__ import annotations

import importlib
import json
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

__all__ = [
    "ADAPTERS",
    "Case",
    "Judgement",
    "Missing",
    "Verdict",
    "difference",
    "equality",
    "judged",
    "load_adapters",
    "load_file",
    "record",
    "run_case",
    "subject",
]


class Verdict(StrEnum):
    """How a case came out."""

    EQUAL = "equal"
    BETTER = "better"
    RULED = "ruled"
    WRONG = "wrong"
    MISSING = "missing"


class Missing(Exception):  # noqa: N818 - it names a verdict, not an error
    """Raised by an adapter for a case that the library does not serve yet."""


@attrs.frozen
class Case:
    """One input with what the reference answers.

    Parameters
    ----------
    subject, id, why
        What it is about, its name, and what it shows.
    input
        JSON value as stored.
    raw
        The whole case: ``expect``, ``expect_any``, ``upstream``, ``ruling``, …
    tables
        Whatever the file carries beside its cases, such as ``clusters``.
    """

    subject: str
    id: str
    why: str
    input: Any
    raw: Mapping[str, Any]
    tables: Mapping[str, Any]

    @property
    def ruled(self) -> bool:
        """No expected answer: a ruling decides, and the case is listed, not compared."""
        return "expect" not in self.raw and "expect_any" not in self.raw

    @property
    def expectations(self) -> Sequence[Any]:
        """Every answer that is right."""
        if "expect_any" in self.raw:
            return list(self.raw["expect_any"])
        return [self.raw["expect"]] if "expect" in self.raw else []


@attrs.frozen
class Judgement:
    """The verdict on one case with what led to it."""

    case: Case
    verdict: Verdict
    answer: Any = None
    detail: str = ""


Adapter: TypeAlias = Callable[[Case], Any]
Judge: TypeAlias = Callable[[Case, Any], tuple[Verdict, str]]

ADAPTERS: Final[dict[str, tuple[Adapter, Judge]]] = {}


RULED_ANSWERS: Final = Path(__file__).with_name("ruled")


@cache
def ruled_answers(name: str) -> Mapping[str, Any]:
    """Read the answers to the cases of a subject that a ruling decides, by case id.

    They are the library's, checked against the ruling when they were written down.
    """
    path = RULED_ANSWERS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def record(judgements: Iterable[Judgement]) -> int:
    """Write the answers to ruled cases down, beside those that are; return how many are new or different."""
    by_subject: dict[str, dict[str, Any]] = {}
    for one in judgements:
        if one.case.ruled and one.verdict is not Verdict.MISSING:
            by_subject.setdefault(one.case.subject, {})[one.case.id] = one.answer
    changed = 0
    for name, answers in by_subject.items():
        before = ruled_answers(name)
        plain = json.loads(json.dumps(answers))
        changed += sum(before.get(key) != answer for key, answer in plain.items())
        merged = {**before, **plain}
        lines = [f"{json.dumps(key)}: {json.dumps(merged[key], sort_keys=True)}" for key in sorted(merged)]
        path = RULED_ANSWERS / f"{name}.json"
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return changed


def equality(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Judge by equality with one of the expected answers; ``partial`` compares the given keys only."""
    if case.ruled:
        return Verdict.RULED, str(case.raw.get("ruling", ""))
    partial = bool(case.raw.get("partial"))
    reports = []
    for expected in case.expectations:
        seen = answer
        if partial and isinstance(expected, Mapping) and isinstance(answer, Mapping):
            seen = {key: answer.get(key) for key in expected}
        if isinstance(expected, Mapping) and expected.get("derived") is True:
            expected = {key: value for key, value in expected.items() if key != "derived"}  # noqa: PLW2901
        report = difference(expected, seen)
        if not report:
            return Verdict.EQUAL, ""
        reports.append(report)
    return Verdict.WRONG, min(reports, key=len)


def difference(expected: Any, seen: Any, path: str = "$") -> str:
    """Describe where two JSON values differ; empty when they are equal.

    Integers and floats of the same value are equal, booleans and numbers are not.
    """
    if isinstance(expected, Mapping) and isinstance(seen, Mapping):
        lines = []
        for key in sorted({*expected, *seen}, key=str):
            if key not in seen:
                lines.append(f"{path}.{key}: expected {json.dumps(expected[key])}, got nothing")
            elif key not in expected:
                lines.append(f"{path}.{key}: expected nothing, got {json.dumps(seen[key], default=str)}")
            else:
                lines.append(difference(expected[key], seen[key], f"{path}.{key}"))
        return "\n".join(line for line in lines if line)
    if isinstance(expected, list) and isinstance(seen, list | tuple):
        lines = [
            difference(left, right, f"{path}[{index}]")
            for index, (left, right) in enumerate(zip(expected, seen, strict=False))
        ]
        if len(expected) != len(seen):
            lines.append(f"{path}: expected {len(expected)} items, got {len(seen)}")
        return "\n".join(line for line in lines if line)
    same = expected == seen and isinstance(expected, bool) == isinstance(seen, bool)
    return "" if same else f"{path}: expected {json.dumps(expected)}, got {json.dumps(seen, default=str)}"


def subject(name: str, *, judge: Judge = equality) -> Callable[[Adapter], Adapter]:
    """Register the adapter of one subject, with a judge where equality is not the measure.

    An adapter is given the case and returns a JSON-like answer. It raises :class:`Missing` for what the
    library does not serve. A judge is given the case and the answer; for a ruled case it returns ``RULED``
    unless it can show that the ruling does not hold.
    """

    def register(adapter: Adapter) -> Adapter:
        if name in ADAPTERS:
            raise ValueError(f"two adapters for {name}")
        ADAPTERS[name] = (adapter, judge)
        return adapter

    return register


def load_adapters() -> None:
    """Import every module of ``adapters/``; each registers its subjects."""
    package = importlib.import_module("tests.conformance.adapters")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def load_file(path: Path) -> Iterator[Case]:
    """Read the cases of one file, in their order."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tables = {key: value for key, value in content.items() if key not in ("subject", "about", "cases")}
    for raw in content["cases"]:
        yield Case(
            subject=content["subject"],
            id=raw["id"],
            why=raw.get("why", ""),
            input=raw["input"],
            raw=raw,
            tables=tables,
        )


def run_case(case: Case) -> Judgement:
    """Answer one case and judge the answer; an exception is a wrong answer with its traceback."""
    if case.subject not in ADAPTERS:
        return Judgement(case, Verdict.MISSING, detail="no adapter")
    adapter, _ = ADAPTERS[case.subject]
    try:
        answer = adapter(case)
    except Missing as missing:
        return Judgement(case, Verdict.MISSING, detail=str(missing))
    except Exception:  # any crash of the library is a finding, and the run goes on
        return Judgement(case, Verdict.WRONG, detail=traceback.format_exc(limit=-6))
    return judged(case, answer)


def judged(case: Case, answer: Any) -> Judgement:
    """Judge an answer to a case that has an adapter.

    Where a ruling takes the place of an expected answer, the answer that was checked is the measure.
    """
    recorded = ruled_answers(case.subject)
    if case.ruled and case.id in recorded:
        found = judged(attrs.evolve(case, raw={**case.raw, "expect": recorded[case.id]}), answer)
        if found.verdict is Verdict.WRONG:
            told = f"not as ruled ({case.raw.get('ruling', '')}):\n{found.detail}"
            return Judgement(case, Verdict.WRONG, answer, told)
        return Judgement(case, Verdict.RULED, answer, str(case.raw.get("ruling", "")))
    _, judge = ADAPTERS[case.subject]
    try:
        verdict, detail = judge(case, answer)
    except Exception:  # likewise an answer that the judge cannot even read
        return Judgement(case, Verdict.WRONG, answer, traceback.format_exc(limit=-6))
    return Judgement(case, verdict, answer, detail)
