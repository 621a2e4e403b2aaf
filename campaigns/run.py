"""The command: draws cases for as long as it may, shows what failed, and says what was met."""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

from campaigns.api import Api
from campaigns.case import Campaign, Case, Failure, Figures, crash
from campaigns.cli import Commands
from campaigns.corrupt import Corruptions
from campaigns.faces import Faces
from campaigns.groups import Groups
from campaigns.laws import Laws
from campaigns.lines import Lines
from campaigns.manifests import Evictions, Manifests
from campaigns.plans import Crowds, Plans
from campaigns.proofs import Proofs
from campaigns.properties import Properties
from campaigns.shrink import shrunk
from campaigns.world import Worlds

__all__ = ["CAMPAIGNS", "FAILED", "case_of", "check_case", "main", "stored_failures"]

CAMPAIGNS: Final[dict[str, Campaign]] = {
    one.name: one
    for one in (
        Commands(),
        Manifests(),
        Evictions(),
        Plans(),
        Crowds(),
        Corruptions(),
        Api(),
        Faces(),
        Laws(),
        Lines(),
        Proofs(),
        Groups(),
        Properties(),
        Worlds(),
    )
}
FAILED: Final = Path(__file__).with_name("failed.jsonl")
"""What once failed: one shrunk case a line, with the seed that it came from."""
_CHUNK: Final = 10

Run: TypeAlias = tuple[int, list[Failure], Figures]
"""Number of a case, what failed, what was met."""


def case_of(campaign: Campaign, seed: int, number: int) -> Case:
    """Draw a case of a seed; the same on every machine."""
    return campaign.draw(random.Random(f"{campaign.name} {seed} {number}"))


def check_case(campaign: Campaign, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
    """Check a case; an exception is a failure like any other."""
    try:
        return campaign.check(case, laws, figures)
    except Exception as error:
        return [crash("answers", error)]


def stored_failures(path: Path = FAILED) -> list[dict[str, Any]]:
    """Give what once failed; what is still ``open`` says so."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 1 where something failed that is not known to be open."""
    asked = _parser().parse_args(arguments)
    if asked.campaign == "stored":
        return _stored()
    campaign = CAMPAIGNS[asked.campaign]
    laws = tuple(asked.law or (campaign.open_laws if asked.profile == "open" else campaign.laws))
    known = {one["kind"] for one in stored_failures() if one.get("open")}
    figures: Figures = Counter()
    kinds: Counter[str] = Counter()
    start, failed = time.monotonic(), 0
    # Who interrupts a campaign is told what it has met so far.
    with suppress(KeyboardInterrupt):
        for number, failures, counted in _runs(asked, laws, start + 60 * asked.minutes):
            figures += counted
            failed += bool(failures)
            for failure in {one.kind: one for one in failures}.values():
                kinds[failure.kind] += 1
                if kinds[failure.kind] <= asked.show and (
                    failure.kind not in known or asked.case is not None
                ):
                    _show(campaign, asked, number, failure)
    _report(asked, figures, failed, kinds, known, time.monotonic() - start)
    return int(any(kind not in known for kind in kinds))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaigns", description=__doc__)
    parser.add_argument(
        "campaign", choices=[*sorted(CAMPAIGNS), "stored"], help="stored: what once failed, all of it"
    )
    parser.add_argument("--seed", type=int, default=1, help="which cases are drawn (1)")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long (1)")
    parser.add_argument("--cases", type=int, help="so many cases, however long that takes")
    parser.add_argument("--case", type=int, metavar="NUMBER", help="this case of the seed only")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument(
        "--profile", choices=("settled", "open"), default="settled", help="open: laws that fail"
    )
    parser.add_argument("--law", action="append", help="this law only; may be repeated")
    parser.add_argument("--show", type=int, default=1, help="failures shown of each kind (1)")
    parser.add_argument("--save", action="store_true", help=f"keep what is shown in {FAILED.name}, as open")
    return parser


def _stored() -> int:
    """Check all that once failed; 1 where something fails that is not open."""
    bad = 0
    for line in stored_failures():
        campaign = CAMPAIGNS[line["campaign"]]
        found = check_case(campaign, line["case"], [line["law"]], Counter())
        if bool(found) != bool(line.get("open")):
            bad += bool(found)
            print(f"{'fails' if found else 'is mended'}: {line['kind']}")
    return int(bad > 0)


def _one(name: str, seed: int, number: int, laws: Sequence[str]) -> Run:
    figures: Figures = Counter()
    campaign = CAMPAIGNS[name]
    figures["cases", "cases"] = 1
    return number, check_case(campaign, case_of(campaign, seed, number), laws, figures), figures


def _chunk(name: str, seed: int, numbers: range, laws: Sequence[str]) -> list[Run]:
    return [_one(name, seed, number, laws) for number in numbers]


def _settle() -> None:
    """Look for garbage less often: what a case leaves is little, and looking is a sixth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _runs(asked: argparse.Namespace, laws: Sequence[str], end: float) -> Iterator[Run]:
    """Check one case, so many, or every one until the time is over."""
    if asked.case is not None:
        yield _one(asked.campaign, asked.seed, asked.case, laws)
        return
    most = sys.maxsize if asked.cases is None else asked.cases
    starts = takewhile(lambda _: asked.cases is not None or time.monotonic() < end, count(0, _CHUNK))
    chunks = (range(start, min(most, start + _CHUNK)) for start in takewhile(lambda one: one < most, starts))
    if asked.jobs < 2:
        _settle()
        for numbers in chunks:
            yield from _chunk(asked.campaign, asked.seed, numbers, laws)
        return
    with ProcessPoolExecutor(asked.jobs, initializer=_settle) as pool:
        running: set[Future[list[Run]]] = set()
        for numbers in chunks:
            running.add(pool.submit(_chunk, asked.campaign, asked.seed, numbers, laws))
            if len(running) >= 2 * asked.jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        for future in running:
            yield from future.result()


def _show(campaign: Campaign, asked: argparse.Namespace, number: int, failure: Failure) -> None:
    """Print the line that replays a failure, and the smallest case that still fails in this way."""

    def fails(smaller: Case) -> bool:
        return any(
            one.kind == failure.kind for one in check_case(campaign, smaller, [failure.law], Counter())
        )

    extra = "" if failure.law in campaign.laws else f" --law {failure.law}"
    small = shrunk(case_of(campaign, asked.seed, number), fails)
    print(f"FAILED {failure.law}: {failure.what}")
    print(f"  python -m campaigns {campaign.name} --seed {asked.seed} --case {number}{extra}")
    print(f"  {json.dumps(small)}", flush=True)
    if asked.save:
        line = {
            "campaign": campaign.name,
            "law": failure.law,
            "kind": failure.kind,
            "open": True,
            "seed": asked.seed,
            "number": number,
            "case": small,
        }
        with FAILED.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _report(
    asked: argparse.Namespace,
    figures: Figures,
    failed: int,
    kinds: Counter[str],
    known: Collection[str],
    seconds: float,
) -> None:
    cases = figures["cases", "cases"]
    decided = sum(number for (table, _), number in figures.items() if table == "outcome")
    head = f"{asked.campaign}: seed {asked.seed}, {cases} cases, {decided} decisions, {failed} cases failed"
    rate = f", {1e4 * seconds / decided:.0f} s per 10,000 decisions" if decided else ""
    print(f"{head}, {seconds:.0f} s{rate}")
    for kind, number in sorted(kinds.items()):
        print(f"  {number} x {'known: ' if kind in known else ''}{kind}")
    tables: dict[str, list[tuple[int, str]]] = {}
    for (table, row), number in figures.items():
        if table != "cases":
            tables.setdefault(table, []).append((-number, row))
    for table, rows in sorted(tables.items()):
        print(f"  {table}: " + ", ".join(f"{row} {-number}" for number, row in sorted(rows)))
