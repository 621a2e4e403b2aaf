"""Measure the house: how much code there is, how far one pod travels through it, what is promised twice.

``python -m tools.house`` prints one row a measure; ``--corrupt N`` adds how many corrupted answers the judges
of the conformance cases accept, which takes a minute. Run it from the root of the checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import attrs

Files: TypeAlias = Mapping[Path, str]

ROOT: Final = Path("src/koordcore")
OWN: Final = ("reservation", "reservations", "model", "manifests", "explaining", "checking", "cli")
"""Parts of a path under which a file may speak of reservations: their own rooms, and the outer ones."""
MOST_LINES: Final = 450


@attrs.frozen
class Measure:
    """One row: what is measured, and the figures."""

    name: str
    figures: str

    def __str__(self) -> str:
        return f"{self.name:<70} {self.figures}"


# --- lines ------------------------------------------------------------------------------------------------


def _is_code(node: ast.stmt) -> bool:
    """Whether a statement is more than an import, a list of names, or a text that describes something."""
    if isinstance(node, ast.Expr):
        return not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    return not isinstance(node, ast.Import | ast.ImportFrom) and not _is_all(node)


def _is_all(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets)


def code_lines(text: str) -> int:
    """Count lines of code: no blank lines, comments, docstrings, imports or lists of public names."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not _is_code(node):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - skipped)


def sizes(files: Files) -> Iterator[Measure]:
    """Count lines of code and of files."""
    yield Measure("lines of code", f"{sum(map(code_lines, files.values()))}")
    lengths = {path: text.count("\n") for path, text in files.items()}
    longest = max(lengths, key=lambda path: lengths[path])
    long = sum(length > MOST_LINES for length in lengths.values())
    figures = f"{len(files)} / {lengths[longest]} ({longest.name}) / {long}"
    yield Measure(f"files / longest file / files over {MOST_LINES} lines", figures)


# --- words ------------------------------------------------------------------------------------------------


def reservations(files: Files) -> Measure:
    """Count files that mention reservations where another room would do."""

    def own(path: Path) -> bool:
        parts = path.relative_to(ROOT).with_suffix("").parts
        return any(part in OWN for part in parts) or path.name.startswith(("reservation", "reserve"))

    found = [path for path, text in files.items() if "reservation" in text.lower() and not own(path)]
    return Measure("files that mention reservations outside their rooms", f"{len(found)}")


def promised(text: str) -> list[tuple[str, str]]:
    """Give what the ``__init__`` of a package offers: modules and names."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.If) and node.orelse and ast.unparse(node.test) == "TYPE_CHECKING":
            imports = (one for one in node.body if isinstance(one, ast.ImportFrom))
            return [(str(one.module), alias.name) for one in imports for alias in one.names]
    return []


def public_names(files: Files) -> Iterator[Measure]:
    """Count what packages and the top offer, and the names that stand for two things."""
    homes: dict[str, set[str]] = {}
    for path, text in files.items():
        for module, name in promised(text) if path.name == "__init__.py" else ():
            homes.setdefault(name, set()).add(module)
    shared = sum(len(modules) > 1 for modules in homes.values())
    figures = f"{len(homes)} / {shared} / {len(promised(files[ROOT / '__init__.py']))}"
    yield Measure("public names / those that stand for two things / at the top", figures)


# --- one pod ----------------------------------------------------------------------------------------------


@attrs.define
class Way:
    """The way of one call through the package: files and functions entered, calls between files."""

    files: set[str] = attrs.Factory(set)
    functions: set[Any] = attrs.Factory(set)
    crossings: int = 0

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a call; what a comprehension does is its function's doing."""
        code = frame.f_code
        if event != "call" or str(ROOT) not in code.co_filename or code.co_name.startswith("<"):
            return
        self.files.add(code.co_filename)
        self.functions.add(code)
        caller = frame.f_back
        self.crossings += caller is not None and caller.f_code.co_filename != code.co_filename


def _followed(call: Callable[[], object]) -> Way:
    seen = Way()
    sys.setprofile(seen.watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def _second_call(objects: Sequence[dict[str, Any]], *pods: dict[str, Any]) -> Way:
    """Schedule one pod, and follow the call that schedules a like one on what the first left."""
    from koordcore import schedule
    from koordcore.manifests import snapshot_from_objects

    first, second = (snapshot_from_objects([one]).snapshot.pending[0] for one in pods)
    snapshot = snapshot_from_objects(objects).snapshot.with_pending(first)
    after = schedule(snapshot).snapshot.with_pending(second)
    return _followed(lambda: schedule(after))


def ways() -> Iterator[Measure]:
    """Follow one plain pod, and one that asks for a card on nodes under a topology policy."""
    from tests.scheduling.test_numa import node, pod

    plain = [one for index in range(3) for one in node(f"n{index}")]
    cards = [one for index in range(3) for one in node(f"n{index}", policy="Restricted", cards=(0, 0, 1, 1))]
    kinds: tuple[tuple[str, Sequence[dict[str, Any]], dict[str, Any]], ...] = (
        ("plain pod", plain, {"bound": False}),
        ("card, CPUs, Restricted", cards, {"gpus": 1}),
    )
    for name, objects, asked in kinds:
        way = _second_call(objects, pod("first", 2, **asked), pod("second", 2, **asked))
        figures = f"{len(way.files)} / {len(way.functions)} / {way.crossings}"
        yield Measure(f"files / functions / crossings of a second call ({name})", figures)


# --- doors ------------------------------------------------------------------------------------------------


def unreached() -> Measure:
    """Count what neither the face nor the command line reaches."""
    from tests.reach import read_package

    lost = read_package().unreached
    figures = f"{len(lost)} / {sum(one.lines for one in lost)}"
    return Measure("definitions that nothing reaches / their lines", figures)


def corrupted(number: int) -> Measure:
    """Corrupt so many answers of each conformance file, and count what the judges accept."""
    command = [sys.executable, "-m", "tests.conformance", "--corrupt", str(number), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    total = json.loads(done.stdout.splitlines()[-1])
    share = 100 * total["accepted"] / max(1, total["measured"])
    figures = f"{total['accepted']} of {total['measured']} ({share:.2f} %)"
    return Measure("corrupted answers to measured cases that the judges accept", figures)


def main(argv: Sequence[str] | None = None) -> int:
    """Print every row."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--corrupt", type=int, default=0, metavar="N", help="corrupt N answers of each file")
    asked = parser.parse_args(argv)
    files = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    for row in (*sizes(files), *ways(), reservations(files), *public_names(files), unreached()):
        print(row)
    if asked.corrupt:
        print(corrupted(asked.corrupt))
    return 0


if __name__ == "__main__":
    sys.exit(main())
