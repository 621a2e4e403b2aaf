"""Mutation testing: change one place of a package, and see whether the tests that run it notice.

``python -m tools.mutants PACKAGE --tests FOLDER ... [--seed N] [--sample M] [--minutes T]`` prints a line for
every mutant that lives, and the score. First the tests are traced once (or before, ``--traces FILE``: see
``tools.traces``), to know which of them run which line; each mutant then meets only those, the most
specific first. The same seed draws the same mutants on every machine; who ends the time earlier sees a
beginning of them.

General tools were tried on paper: they copy the tree for each mutant or start Python anew, which is four
seconds before the first test; here a process that has imported the library and its tests is forked, and the
function that is changed gets its other code there. What is run at import is imported anew, with the change.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import itertools
import json
import math
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

import attrs
import coverage
import pytest

from tools.traces import parts

SOURCE: Final = Path("src")
MOST_TESTS: Final = 30
"""Tests that a mutant meets at most, those that run the fewest lines of the package first."""
MOST_SECONDS: Final = 60
"""Of tests that are run to see whether they pass without any change."""
AT_ONCE: Final = 40
"""Tests that are run together to that end."""
TOGETHER: Final = 15.0
"""Seconds that the tests of one mutant take together at most: quick ones and specific ones by turns."""
_LIVES: Final = ("survived", "not covered", "lost")
_LOST: Final = 99
_FOREIGN: Final = (
    "numpy",
    "hypothesis",
    "ortools.sat.python.cp_model",
    "ortools.linear_solver.pywraplp",
    "yaml",
)
"""What no mutant is part of."""
_OPTIONS: Final = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
    # The worker has imported hypothesis before; that its asserts are plain is as well.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Continue: ast.Break,
}
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@attrs.frozen
class Mutant:
    """One change: file, place among the file's places, line, and what it does."""

    path: str
    place: int
    line: int
    what: str
    statement: int
    """Line on which the statement begins: a trace knows no others of it, at times."""
    body: range
    """Lines of the body of the function in which it stands; none at the level of the module."""


def places(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Give every place that can be changed: its line, what the change is, and the change."""
    for node in _code(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for number, op in enumerate(node.ops):
                if type(op) in _SWAPS:
                    yield line, _swapped(op), _set_item(node.ops, number, _SWAPS[type(op)]())
        elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in _SWAPS:
            yield line, _swapped(node.op), _set(node, "op", _SWAPS[type(node.op)]())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield (
                line,
                "not removed",
                _become(node, ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])),
            )
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield line, f"{node.value} negated", _set(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield line, f"{node.value} + 1", _set(node, "value", node.value + 1)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            other = _NAMES[node.func.id]
            yield line, f"{node.func.id} for {other}", _set(node.func, "id", other)
        elif isinstance(node, ast.If | ast.IfExp):
            yield line, "if negated", _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.Continue):
            yield line, "break for continue", _become(node, ast.Break())
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield line, "call removed", _become(node, ast.Pass())


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs: no annotations, and nothing for type checkers alone."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(tree, ast.keyword) and tree.arg == "strict":
            continue  # of `zip`: an assertion
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not _for_checkers(node):
                yield node
                yield from _code(node)


def _for_checkers(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Assert | ast.Raise)


def _swapped(op: ast.AST) -> str:
    return f"{type(op).__name__} for {_SWAPS[type(op)].__name__}"


def _set(node: ast.AST, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _set_item(items: list[Any], number: int, value: Any) -> Callable[[], None]:
    def change() -> None:
        items[number] = value

    return change


def _become(node: ast.AST, other: ast.AST) -> Callable[[], None]:
    def change() -> None:
        ast.copy_location(other, node)
        node.__class__ = other.__class__
        node.__dict__.clear()
        node.__dict__.update(other.__dict__)

    return change


def mutated(text: str, place: int) -> ast.Module:
    """Give the tree of a file with one of its places changed."""
    tree = ast.parse(text)
    for number, (_, _, change) in enumerate(places(tree)):
        if number == place:
            change()
            return ast.fix_missing_locations(tree)
    raise IndexError(place)


def mutants(shadow: Path, package: str, only: Sequence[str]) -> list[Mutant]:
    """List all mutants of a package's files, by their paths in a copy of the sources."""
    found = []
    for file in sorted((shadow / "koordcore" / package).rglob("*.py")):
        path = file.relative_to(shadow)
        if only and not any(part in str(path) for part in only):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        begins, bodies = _statements(tree), _bodies(tree)
        found += [
            Mutant(str(path), place, line, what, begins.get(line, line), bodies.get(line, range(0)))
            for place, (line, what, _) in enumerate(places(tree))
        ]
    return found


def _statements(tree: ast.Module) -> dict[int, int]:
    """Tell for every line on which line the innermost statement around it begins."""
    begins: dict[int, int] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt):
            begins |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.lineno)
    return begins


def _bodies(tree: ast.Module) -> dict[int, range]:
    """Give for every line in a function the lines of the innermost one's body."""
    bodies: dict[int, range] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.FunctionDef):
            own = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            bodies |= dict.fromkeys(own, own)
    return bodies


class Covering:
    """Which tests run which lines of a package, by files of ``tools.traces``."""

    def __init__(self, package: str, files: Sequence[str], without: Sequence[str] = ()) -> None:
        below, self._without = f"koordcore/{package}/", tuple(without)
        self._lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._files: dict[str, set[str]] = defaultdict(set)
        self._sizes: Counter[str] = Counter()
        for file in files:
            data = coverage.CoverageData(basename=file)
            data.read()
            for name in data.measured_files():
                path = name[name.rindex("koordcore/") :]
                if path.startswith(below):
                    self._read(path, data.contexts_by_lineno(name))

    def _read(self, path: str, lines: dict[int, list[str]]) -> None:
        for line, contexts in lines.items():
            # Examples in docstrings stand in the sources, which are not the copy that is changed.
            tests = {one for one in contexts if one and not one.startswith(("src/", *self._without))}
            self._lines[path, line] |= tests
            self._files[path] |= tests
            self._sizes.update(tests)

    def __len__(self) -> int:
        return len(self._sizes)

    def of(self, mutant: Mutant) -> list[str]:
        """Give the tests that run a mutant's line, or its file where that is run at import.

        The most specific stand first.
        """
        if self.at_import(mutant):
            # This counts as run by whichever test came first.
            return self._specific(self._files[mutant.path])
        lines = range(mutant.line, mutant.statement - 1, -1)
        return self._specific(next(filter(None, self._known(mutant.path, lines)), set()))

    def at_import(self, mutant: Mutant) -> bool:
        """Tell whether a mutant is run at import, also in a function that is called then and not by tests."""
        return not mutant.body or not all(self._known(mutant.path, mutant.body))

    def _known(self, path: str, lines: range) -> list[set[str]]:
        """Give the tests that run each of some lines; nobody's where it is run at import only."""
        return [self._lines[path, line] for line in lines if (path, line) in self._lines]

    def _specific(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self._sizes[test], test))


def traced(tests: Sequence[str], file: Path) -> list[str]:
    """Run tests once, and give the files that say what they ran."""
    command = (
        sys.executable,
        "-m",
        "pytest",
        *_OPTIONS[:3],
        "-p",
        "tools.traces",
        "--traces",
        str(file),
        *tests,
    )
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return parts(file)


class Worker:
    """Runs tests on mutants in forked processes.

    Parameters
    ----------
    shadow
        A copy of the sources, which is what the tests import.
    warm
        Files of tests: import them and the library once for all. What a mutant changes at import is not
        changed then.
    """

    def __init__(self, shadow: Path, warm: Sequence[str] = ()) -> None:
        self._shadow, self._warm = shadow, bool(warm)
        for name in _FOREIGN:
            importlib.import_module(name)
        if warm:
            _look_at(shadow)
            with _quiet():
                for module in pkgutil.walk_packages([str(shadow / "koordcore")], "koordcore."):
                    if not module.name.endswith("__main__"):
                        importlib.import_module(module.name)
                pytest.main([*_OPTIONS, "--collect-only", *warm])
        self._functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.freeze()

    def run(
        self, tests: Sequence[str], most: float, change: Mutant | None = None
    ) -> tuple[str, dict[str, float]]:
        """Run tests, on a mutant where one is given.

        Returns
        -------
        outcome
            "killed", "survived", "timeout", or "lost" where the mutant could not be made.
        seconds
            How long the tests took that ran to their end.
        """
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.setpgid(0, 0)
            self._work(tests, change, writer)
        os.close(writer)
        end, found = time.monotonic() + most, b""
        os.set_blocking(reader, False)
        with os.fdopen(reader, "rb", buffering=0) as said:
            while time.monotonic() < end:
                done, status = os.waitpid(child, os.WNOHANG)
                found += said.read(1 << 16) or b""
                if done:
                    code = os.waitstatus_to_exitcode(status)
                    return {0: "survived", _LOST: "lost"}.get(code, "killed"), json.loads(found or b"{}")
                time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "timeout", {}

    def _work(self, tests: Sequence[str], change: Mutant | None, writer: int) -> NoReturn:
        seconds = _Seconds()
        try:
            with _quiet():
                if change is not None and not self._make(change):
                    os._exit(_LOST)
                _look_at(self._shadow)
                code = int(pytest.main([*_OPTIONS, "-x", *tests], plugins=[seconds]))
        except BaseException:  # whatever a mutant does, it was noticed
            code = 1
        os.write(writer, json.dumps(seconds.of).encode())
        os._exit(code)

    def _make(self, change: Mutant) -> bool:
        path = self._shadow / change.path
        tree = mutated(path.read_text(encoding="utf-8"), change.place)
        if self._warm:
            return self._put(compile(tree, str(path), "exec", dont_inherit=True))
        # A copy for this process alone: others go on with the sources as they are.
        own = Path(tempfile.mkdtemp(dir=self._shadow.parent))
        shutil.copytree(self._shadow, own, dirs_exist_ok=True)
        (own / change.path).write_text(ast.unparse(tree), encoding="utf-8")
        self._shadow = own
        return True

    def _put(self, module: CodeType) -> bool:
        """Give every function of a module that is changed its new code."""
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(module)}
        put = False
        for one in self._functions:
            if one.__code__.co_filename == module.co_filename:
                code = codes.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
                if code is not None and code != one.__code__:
                    one.__code__ = code
                    put = True
        return put


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


class _Seconds:
    """A plugin of pytest: how long tests took."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test."""
        self.of[report.nodeid] = self.of.get(report.nodeid, 0.0) + report.duration


@contextmanager
def _quiet() -> Iterator[None]:
    kept = os.dup(1), os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)


def _look_at(shadow: Path) -> None:
    """Have the library imported from a copy."""
    sys.path[:] = [str(shadow), *(one for one in sys.path if Path(one).resolve() != SOURCE.resolve())]
    sys.dont_write_bytecode = True


def main() -> None:
    """Draw, run and print."""
    asked = _parser().parse_args()
    folder = Path(tempfile.mkdtemp())
    shadow = folder / "src"
    # What is edited meanwhile makes no difference.
    shutil.copytree(SOURCE, shadow, ignore=shutil.ignore_patterns("__pycache__"))
    every = mutants(shadow, asked.package, asked.files)
    chosen = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))[asked.skip :]
    if asked.again:
        once = set(asked.again.read_text(encoding="utf-8").splitlines())
        chosen = [one for one in every if any(f"{how}: {_named(one)}" in once for how in _LIVES)]
    start = time.monotonic()
    files = parts(asked.traces) if asked.traces else []
    if asked.tests:
        files += traced(asked.tests, folder / "traces")
    seen = Covering(asked.package, files, asked.without)
    say(f"{len(every)} mutants, {len(seen)} tests traced in {time.monotonic() - start:.0f} s")
    counts: Counter[str] = Counter()
    passes: dict[str, float] = {}
    try:
        for inside in (False, True):
            some = [one for one in chosen if seen.at_import(one) is not inside]
            files_of = sorted({test.partition("::")[0] for one in some for test in seen.of(one)})
            worker = Worker(shadow, files_of if inside else ())
            trial = Trial(worker, seen, (asked.most, asked.seconds), passes)
            for mutant in some:
                if time.monotonic() > start + 60 * asked.minutes:
                    break
                outcome = trial.outcome(mutant)
                counts[outcome] += 1
                if outcome in _LIVES:
                    say(f"{outcome}: {_named(mutant)}")
    finally:
        shutil.rmtree(folder)
    died = counts["killed"] + counts["timeout"]
    say(f"{asked.package}: seed {asked.seed}, {sum(counts.values())} mutants, {died} died, {dict(counts)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--tests", nargs="+", default=[], help="tests to trace before")
    parser.add_argument("--traces", type=Path, help="what tests ran, as tools.traces has written it")
    parser.add_argument("--without", nargs="*", default=[], help="no tests whose ids begin so: slow ones")
    parser.add_argument("--files", nargs="*", default=[], help="only files whose path has one of these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="go on behind so many of the sample")
    parser.add_argument("--again", type=Path, help="only those that lived, by what was printed then")
    parser.add_argument("--most", type=int, default=MOST_TESTS, help="tests that a mutant meets at most")
    parser.add_argument("--seconds", type=float, default=TOGETHER, help="of its tests together")
    parser.add_argument("--minutes", type=float, default=4)
    return parser


def _named(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} #{mutant.place} {mutant.what}"


class Trial:
    """Tries mutants with tests that are known to pass without any change: quick ones and specific ones."""

    def __init__(
        self, worker: Worker, seen: Covering, most: tuple[int, float], passes: dict[str, float]
    ) -> None:
        self._worker, self._seen = worker, seen
        self._most, self._together = most
        self._passes = passes

    def outcome(self, mutant: Mutant) -> str:
        """Tell what became of a mutant: as :meth:`Worker.run` does, or "not covered"."""
        tests = self._seen.of(mutant)
        tests = [one for one in tests if self._passes.get(one, 0) < math.inf][: self._most]
        self._judge([one for one in tests if one not in self._passes])
        seconds = {one: self._passes[one] for one in tests if self._passes[one] < math.inf}
        if not seconds:
            return "not covered"
        quickest = sorted(seconds, key=lambda one: (seconds[one], one))
        left, chosen = self._together, []
        # By turns the most specific and the quickest, as long as there is time.
        for one in dict.fromkeys(itertools.chain.from_iterable(zip(seconds, quickest, strict=True))):
            if seconds[one] <= left:
                left -= seconds[one]
                chosen.append(one)
        chosen = sorted(chosen or quickest[:1], key=lambda one: (seconds[one], one))
        most = 10 + 5 * sum(seconds[one] for one in chosen)
        return self._worker.run(chosen, most, mutant)[0]

    def _judge(self, tests: Sequence[str]) -> None:
        """See how long tests take without a change, and which fail or last; many at once where none does."""
        if len(tests) > AT_ONCE:
            for begin in range(0, len(tests), AT_ONCE):
                self._judge(tests[begin : begin + AT_ONCE])
            return
        if not tests:
            return
        outcome, seconds = self._worker.run(tests, MOST_SECONDS)
        if outcome == "survived":
            self._passes.update((one, seconds.get(one, 0.0)) for one in tests)
        elif len(tests) == 1:
            self._passes[tests[0]] = math.inf
        else:
            for half in (tests[: len(tests) // 2], tests[len(tests) // 2 :]):
                self._judge(half)


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
