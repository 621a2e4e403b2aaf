"""Reports of runs: tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

import attrs

from koordcore._record import record
from koordcore.scoring.gpu_policies import PolicyName
from koordcore.simulate.scenario import CellResult


@record(kw_only=True)
class Summary:
    """One trace under one policy, averaged over its seeds.

    Parameters
    ----------
    runs
        Number of seeds.
    unallocated_100, unallocated_130
        Idle cards in percent when 100 and 130 percent of the cards have been asked for.
    fragmented
        Fragmented idle cards in percent at 100.
    refused, waited
        Tasks refused, and seconds that placed tasks waited, per run.
    """

    trace: str
    policy: str
    runs: int
    unallocated_100: float
    unallocated_130: float
    fragmented: float
    refused: float
    waited: float


def summaries(results: Iterable[CellResult]) -> tuple[Summary, ...]:
    """Average over seeds; sorted by trace and policy, those of the library first, in their order."""
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        groups.setdefault((result.cell.trace, result.cell.policy), []).append(result)
    return tuple(
        Summary(
            trace=trace,
            policy=policy,
            runs=len(group),
            unallocated_100=round(fmean(one.unallocated(100) for one in group), 2),
            unallocated_130=round(fmean(one.unallocated(130) for one in group), 2),
            fragmented=round(fmean(one.fragmented[100] for one in group), 2),
            refused=round(fmean(one.refused for one in group), 1),
            waited=round(fmean(one.waited for one in group), 1),
        )
        for trace, names in sorted(_names(groups).items())
        for policy in names
        for group in [groups[trace, policy]]
    )


def _names(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Give the policies of each trace in their order."""
    found: dict[str, list[str]] = {}
    for trace, policy in keys:
        found.setdefault(trace, []).append(policy)
    return {trace: in_order(names) for trace, names in found.items()}


def in_order(policies: Iterable[str]) -> list[str]:
    """Sort names of policies: those of the library in the order in which they are listed, then the others."""
    listed = {str(name): place for place, name in enumerate(PolicyName)}
    return sorted(set(map(str, policies)), key=lambda name: (listed.get(name, len(listed)), name))


def curves(results: Iterable[CellResult]) -> dict[str, list[Any]]:
    """Give one row per run and percent arrived, as columns that pandas, polars and pyarrow take.

    Returns
    -------
    dict
        ``trace``, ``policy``, ``seed``, ``clock``, ``arrived``, ``allocated``, ``fragmented``; the last three
        in percent of the cluster's cards.
    """
    rows = [
        (*attrs.astuple(one.cell)[:4], percent, used, lost)
        for one in results
        for percent, (used, lost) in enumerate(zip(one.allocated, one.fragmented, strict=True))
    ]
    names = ("trace", "policy", "seed", "clock", "arrived", "allocated", "fragmented")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def csv_text(results: Iterable[CellResult]) -> str:
    """Write one line per run and percent arrived.

    Columns: trace, policy, seed, clock, arrived, allocated, fragmented; the last three in percent.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    table = curves(results)
    writer.writerow(table)
    for *head, used, lost in zip(*table.values(), strict=True):
        writer.writerow([*head, f"{used:.2f}", f"{lost:.2f}"])
    return text.getvalue()


def json_text(results: Iterable[CellResult]) -> str:
    """Write all that is kept of the runs, as a list in their order."""
    return json.dumps([result.to_json() for result in results], indent=1, sort_keys=True) + "\n"
