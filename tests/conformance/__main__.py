"""Run conformance cases and print how each subject came out."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import attrs

from tests.conformance.core import ADAPTERS, Judgement, Verdict, load_adapters, load_file, record, run_case
from tests.conformance.corrupt import Tally, corrupt_files
from tests.conformance.open_cases import prune

HERE: Final = Path(__file__).resolve().parent
OWN: Final = HERE / "cases"
SHARED: Final = HERE.parents[2] / "shared" / "vectors"
COLUMNS: Final = tuple(Verdict)
BAD: Final = (Verdict.WRONG, Verdict.MISSING)


def default_folders() -> list[Path]:
    """The project's own cases, and the shared ones where the folder is there."""
    return [folder for folder in (OWN, SHARED) if folder.is_dir()]


def vector_files(folders: Iterable[Path], globs: Sequence[str]) -> list[Path]:
    """Files whose subject (the name without ``.json``) matches one of the patterns."""
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("*.json"))
        if not globs or any(fnmatchcase(path.stem, glob) for glob in globs)
    ]


def judge_files(files: Iterable[Path], only: str | None = None) -> list[Judgement]:
    """Run the cases of many files; ``only`` keeps the cases of that id."""
    return [run_case(case) for path in files for case in load_file(path) if only is None or case.id == only]


def judge_apart(files: Sequence[Path], workers: int) -> list[Judgement]:
    """Run the cases of many files in several processes, largest files first; answers and inputs stay there.

    The judgements come in the order of the files.
    """
    order = sorted(files, key=lambda path: (-path.stat().st_size, path))
    with ProcessPoolExecutor(workers, initializer=load_adapters) as pool:
        found = dict(zip(order, pool.map(_verdicts, order), strict=True))
    return [one for path in files for one in found[path]]


def _verdicts(path: Path) -> list[Judgement]:
    return [
        attrs.evolve(one, case=attrs.evolve(one.case, input=None, tables={}), answer=None)
        for one in judge_files([path])
    ]


def _table(judgements: Sequence[Judgement]) -> str:
    by_subject: dict[str, Counter[Verdict]] = {}
    for judgement in judgements:
        by_subject.setdefault(judgement.case.subject, Counter())[judgement.verdict] += 1
    width = max([len(name) for name in by_subject] + [len("subject")])
    head = f"{'subject':<{width}}" + "".join(f"{column:>9}" for column in (*COLUMNS, "total"))

    def row(name: str, counts: Counter[Verdict]) -> str:
        cells = [counts[column] for column in COLUMNS]
        return f"{name:<{width}}" + "".join(f"{cell:>9}" for cell in (*cells, sum(cells)))

    total: Counter[Verdict] = Counter()
    for counts in by_subject.values():
        total.update(counts)
    return "\n".join([head, *(row(name, by_subject[name]) for name in sorted(by_subject)), row("all", total)])


def _show(judgement: Judgement) -> str:
    case = judgement.case
    parts = [
        f"{case.subject} {case.id}: {judgement.verdict}",
        f"why: {case.why}",
        "input: " + json.dumps(case.input, indent=1, ensure_ascii=False),
        "expected: "
        + json.dumps({k: v for k, v in case.raw.items() if k not in ("id", "why", "input")}, indent=1),
        "answer: " + json.dumps(judgement.answer, indent=1, default=str),
        judgement.detail,
    ]
    return "\n".join(parts)


def _corrupt(files: Sequence[Path], asked: argparse.Namespace) -> int:
    """Print by subject how many corrupted answers are accepted; 1 from one in a hundred measured ones."""
    by_subject: dict[str, Tally] = {}
    known = [path for path in files if path.stem in ADAPTERS]
    for one in corrupt_files(known, asked.corrupt, asked.seed):
        by_subject.setdefault(one.case.subject, Tally()).add(one)
        if asked.wrong and one.accepted:
            print(one)
    total = Tally(*(sum(column) for column in zip(*map(attrs.astuple, by_subject.values()), strict=True)))
    if asked.json:
        print(json.dumps(attrs.asdict(total)))
        return int(total.accepted * 100 >= total.measured)
    by_subject["all"] = total
    print(f"{'subject':<28}{'measured':>9}{'accepted':>9}{'unmeasured':>12}{'accepted':>9}")
    for name, tally in by_subject.items():
        if name == "all" or tally.accepted or tally.let_by:
            counts = attrs.astuple(tally)
            print(f"{name:<28}{counts[0]:>9}{counts[1]:>9}{counts[2]:>12}{counts[3]:>9}")
    return int(total.accepted * 100 >= total.measured)


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; 0 when nothing is wrong or missing, 1 otherwise, 2 when there is nothing to run."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--subject", action="append", default=[], metavar="GLOB")
    parser.add_argument("--json", action="store_true", help="one JSON object per case that is not equal")
    parser.add_argument("--show", metavar="ID", help="one case with input, answer and difference")
    parser.add_argument("--wrong", action="store_true", help="list what is wrong or missing, with the reason")
    parser.add_argument(
        "--prune", action="store_true", help="take cases that pass out of the list of open ones"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--corrupt", type=int, metavar="N", help="corrupt N answers of each file instead")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of --corrupt")
    parser.add_argument(
        "--record", action="store_true", help="write the answers to ruled cases down; check them first"
    )
    arguments = parser.parse_args(argv)
    load_adapters()
    files = vector_files(arguments.folders or default_folders(), arguments.subject)
    if arguments.corrupt:
        return _corrupt(files, arguments)
    if arguments.show or arguments.record or arguments.workers < 2 or len(files) < 2:
        judgements = judge_files(files, arguments.show)
    else:
        judgements = judge_apart(files, arguments.workers)
    if not judgements:
        print("no case matches", file=sys.stderr)
        return 2
    bad = [j for j in judgements if j.verdict in BAD]
    if arguments.show:
        print("\n\n".join(map(_show, judgements)))
        return 1 if bad else 0
    if arguments.json:
        for j in judgements:
            if j.verdict is not Verdict.EQUAL:
                line = {
                    "subject": j.case.subject,
                    "id": j.case.id,
                    "verdict": j.verdict,
                    "detail": j.detail,
                }
                print(json.dumps(line))
        return 1 if bad else 0
    if arguments.record:
        print(f"{record(judgements)} answers written down", file=sys.stderr)
    if arguments.prune:
        passed = [(j.case.subject, j.case.id) for j in judgements if j.verdict not in BAD]
        print(f"{prune(passed)} cases left the list", file=sys.stderr)
    if arguments.wrong:
        for j in bad:
            print(
                f"{j.verdict} {j.case.subject} {j.case.id}: {j.case.why}\n  " + j.detail.replace("\n", "\n  ")
            )
    print(_table(judgements))
    unsound = sum("the reference places illegally" in j.detail for j in judgements)
    print(f"{unsound} of these are ruled because the reference's own placement is illegal")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
