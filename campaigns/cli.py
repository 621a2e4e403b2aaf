"""The command line, verb by verb, over mutated dumps and with odd options.

A command ends with an exit code that is documented and no defect, says why when it refuses, and writes no
control characters, and what it writes as JSON is JSON.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from campaigns.case import Case, Failure, Figures, check_laws
from campaigns.manifests import mutate
from campaigns.worlds import THEMES, draw_world
from koordcore.cli.main import EXIT_DEFECT, EXIT_NO, EXIT_OK, EXIT_USAGE, VERBS, build_parser, main

__all__ = ["Commands"]

CODES: Final = (EXIT_OK, EXIT_NO, EXIT_USAGE)
_NEVER: Final = ("--live", "--context", "--watch", "--help", "--version", "--workers", "--shrink")
"""What asks a cluster, never ends, or starts processes."""
_SLOW: Final = {"world": 0.05, "audit": 0.1}
"""Verbs that say nothing about a dump, and how often they are drawn all the same."""
_FILES: Final = ("@dump", "@plain", "@plan", "@proofs", "@policy", "@folder", "@absent", "@odd")
_ODD: Final = ("", "x", "é", "\x1b[31m", "-1", "0", "1e400", "9" * 40, "a=b", "=", ",", "..", "{", "default/")
_WORDS: Final[dict[str, Sequence[str]]] = {
    "--layers": (
        "SpineLayer=net/spine",
        "SpineLayer=net/spine,BlockLayer=net/block",
        "x=",
        "NodeTopologyLayer=a",
    ),
    "--policy": ("default", "@policy", "binpack", "spread"),
    "--profile": ("koord-scheduler", "calm", "storm"),
    "--feature-gates": ("MultiQuotaTree=true", "All=true", "x=maybe"),
    "--now": (
        "2026-11-01T12:00:00Z",
        "2026-11-01",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59Z",
        "now",
    ),
    "--selector": ("app=x", "zone in (a,b)", "!app", "app!=x,zone"),
    "--namespace": ("default", "team"),
    "--sort-by": ("name", "NODE", "cpu", "POD"),
    "--node": ("n0", "n1"),
    "--view": ("spec", "metadata.labels", "nodes/n0", "."),
    "--high": ("cpu=65", "cpu=65,memory=70", "cpu=101", "50"),
    "--prod-high": ("cpu=60", "cpu=-1"),
    "--want": ("cpu=1", "2x:cpu=4", "1x:nvidia.com/gpu=2", "0x:cpu=1"),
    "--for": ("default/p0", "p1"),
    "--mix": ("@dump", "@folder"),
    "--block": ("net/block", "zone"),
    "--tree": ("", "t1"),
    "--quota": ("qa", "dept"),
    "--resource": ("cpu", "nvidia.com/gpu"),
    "--effort": ("0.001", "1", "nan", "inf"),
    "--set": ("nodes=2", "pods=3", "x=1", "seed=2"),
    "--without": ("1,2", "0"),
    "--loops": ("RemovePodsViolatingNodeAffinity", "LowNodeLoad", "x"),
    "--title": ("<script>", "\x00"),
    "--diff": ("@plan", "@plain"),
    "--trace": ("t", "@plain"),
    "--limit": ("0", "1", "3", "-1"),
    "pod": ("default/p0", "p1", "g0", "default/g0", "r0", "n0"),
    "shell": ("bash", "zsh", "fish"),
    "file": ("default", "@policy", "@dump", "@absent"),
    "first": ("@plan", "@plain", "@dump"),
    "second": ("@plan", "@plain", "@dump"),
    "folder": ("@folder", "@plain"),
    "paths": ("@dump", "@dump", "@dump", "@plain"),
}
"""What else than odd words is said to an option or in a place."""


class Commands:
    """The campaign; see the module."""

    name = "cli"
    laws: tuple[str, ...] = ("answers", "printable", "said", "parsed")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a small world, break some of its objects, and draw a command."""
        case = draw_world(chance, {theme: share / 2 for theme, share in THEMES.items()})
        plain = copy.deepcopy(case["objects"])
        for _ in range(chance.choice((0, 1, 1, 2))):
            mutate(chance, case["objects"])
        verb = chance.choice([one for one in VERBS if chance.random() < _SLOW.get(one, 1)] or ["schedule"])
        return {
            "objects": case["objects"],
            "plain": plain,
            "words": [verb, *_drawn(chance, verb)],
            "cut": [chance.random(), chance.choice(("", "", "x", "{", "9", '"'))],
        }

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Write the files, run the command, and look at what it says."""
        verb = case["words"][0]
        # Some commands write where they are.
        with TemporaryDirectory() as folder, chdir(folder):
            words = _written(case, Path(folder))
            code, out, err = _run(words)
            shown = err.replace(folder, ""), out.replace(folder, "")
        figures["verb", verb] += 1
        figures["exit code", str(code)] += 1
        for word in words[1:]:
            if word.startswith("--"):
                figures["option", word] += 1

        def answers() -> Iterator[str]:
            if code not in CODES or "Traceback" in shown[0]:
                told = (one for one in shown[0].splitlines() if one.startswith("koordcore: "))
                what = next(told, "") if code == EXIT_DEFECT else ""
                yield f"{verb} ends with {code}: {what or shown[0][-200:]}"

        def printable() -> Iterator[str]:
            if any(not (one.isprintable() or one == "\n") for text in shown for one in text):
                yield f"{verb} writes control characters"

        def said() -> Iterator[str]:
            if code == EXIT_USAGE and not err.strip():
                yield f"{verb} refuses and says nothing"

        def parsed() -> Iterator[str]:
            if code in (EXIT_OK, EXIT_NO) and out and _form(words) == "json" and not _is_json(out):
                yield f"{verb} writes JSON that is none"

        checks = {"answers": answers, "printable": printable, "said": said, "parsed": parsed}
        return check_laws(checks, laws)


@cache
def _parser_of(verb: str) -> argparse.ArgumentParser:
    described = build_parser(verb)[1]
    assert described is not None
    return described


def _drawn(chance: random.Random, verb: str) -> list[str]:
    """Draw options and what stands in places; once in a while one too many."""
    words: list[str] = []
    for action in _parser_of(verb)._actions:  # noqa: SLF001 - a parser tells what it takes nowhere else
        names = action.option_strings
        if any(name in _NEVER for name in names):
            continue
        if not names:
            words.append(_word(chance, action.dest, action))
            if action.nargs == "*" and chance.random() < 0.1:
                words.append(_word(chance, action.dest, action))
        elif chance.random() < 0.06:
            many = 0 if action.nargs == 0 else action.nargs if isinstance(action.nargs, int) else 1
            words += [names[-1], *(_word(chance, names[-1], action) for _ in range(many))]
    if verb == "verify" and "--plan" not in words and chance.random() < 0.8:
        words += ["--plan", "@plan"]
    if chance.random() < 0.02:
        words.append(chance.choice(_ODD))
    return words


def _word(chance: random.Random, name: str, action: argparse.Action) -> str:
    """Draw a word that an option or a place may take, or an odd one."""
    known: list[str] = [*_WORDS.get(name, ())]
    if action.choices is not None:
        known += [str(getattr(one, "value", one)) for one in action.choices]
    elif action.type in (int, float):
        known += ["1", "3", "0"]
    elif not known:
        known += ["@out", "@out", *_FILES] if action.type is Path or name in _PATHS else ["x"]
    return chance.choice(known) if chance.random() < 0.97 else chance.choice((*_ODD, *_FILES))


_PATHS: Final = ("--plan", "--proofs", "--record", "--metrics", "--args", "--migration", "--output")


def _written(case: Case, folder: Path) -> list[str]:
    """Write the files that the words name, and the words with their paths."""
    named = {word for word in case["words"] if word.startswith("@")}
    texts = {"@dump": case["objects"], "@plain": case["plain"]}
    for name, objects in texts.items():
        (folder / f"{name[1:]}.json").write_text(
            json.dumps({"kind": "List", "items": objects}), encoding="utf-8"
        )
    if named & {"@plan", "@proofs"}:
        proofs = str(folder / "proofs.json")
        _, plan, _ = _run(["schedule", str(folder / "plain.json"), "-o", "json", "-q", "--proofs", proofs])
        (folder / "plan.json").write_text(_cut(plan, *case["cut"]), encoding="utf-8")
    (folder / "policy.json").write_text(_POLICY, encoding="utf-8")
    (folder / "folder").mkdir()
    (folder / "odd.json").write_bytes(b"\x00\xff{")
    return [str(folder / _NAMES[word]) if word in _NAMES else word for word in case["words"]]


_NAMES: Final = {"@out": "out.txt", "@folder": "folder"} | {
    f"@{name}": f"{name}.json" for name in ("dump", "plain", "plan", "proofs", "policy", "absent", "odd")
}
_POLICY: Final = json.dumps(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "koord-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": "*"}]}}}
        ],
    }
)


def _cut(text: str, at: float, by: str) -> str:
    """Change one character of a text; nothing in half of the cases."""
    place = int(at * 2 * len(text))
    return text if place >= len(text) else text[:place] + by + text[place + 1 :]


def _run(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process, as wide as a page."""
    out, err = io.StringIO(), io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "110"
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return code, out.getvalue(), err.getvalue()


def _form(words: Sequence[str]) -> str:
    """Give the form that is asked for last."""
    forms = [value for name, value in pairwise(words) if name in ("-o", "--output")]
    return forms[-1] if forms else ""


def _is_json(text: str) -> Any:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
