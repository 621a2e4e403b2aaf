"""Reports of runs: tables, CSV, JSON and plots; only the plots need an extra."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Final

import attrs

from koordcore.errors import MissingExtraError, ModelError
from koordcore.scoring.gpu_policies import PolicyName
from koordcore.simulate.scenario import CellResult


class PlotKind(StrEnum):
    """What is drawn over what."""

    ALLOCATION = "allocation"
    """Cards in use over cards asked for."""
    FRAGMENTATION = "fragmentation"
    """Fragmented idle cards over cards asked for."""
    WAITING = "waiting"
    """Tasks that wait over time."""


@attrs.frozen(kw_only=True)
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
    policy: PolicyName
    runs: int
    unallocated_100: float
    unallocated_130: float
    fragmented: float
    refused: float
    waited: float


def summaries(results: Iterable[CellResult]) -> tuple[Summary, ...]:
    """Average over seeds; sorted by trace and policy, in the order in which policies are listed."""
    groups: dict[tuple[str, int], list[CellResult]] = {}
    order = list(PolicyName)
    for result in results:
        key = (result.cell.trace, order.index(result.cell.policy))
        groups.setdefault(key, []).append(result)
    return tuple(
        Summary(
            trace=trace,
            policy=order[policy],
            runs=len(group),
            unallocated_100=round(fmean(one.unallocated(100) for one in group), 2),
            unallocated_130=round(fmean(one.unallocated(130) for one in group), 2),
            fragmented=round(fmean(one.fragmented[100] for one in group), 2),
            refused=round(fmean(one.refused for one in group), 1),
            waited=round(fmean(one.waited for one in group), 1),
        )
        for (trace, policy), group in sorted(groups.items())
    )


def csv_text(results: Iterable[CellResult]) -> str:
    """Write one line per run and percent arrived.

    Columns: trace, policy, seed, clock, arrived, allocated, fragmented; the last three in percent.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trace", "policy", "seed", "clock", "arrived", "allocated", "fragmented"])
    for result in results:
        cell = result.cell
        for percent, (used, lost) in enumerate(zip(result.allocated, result.fragmented, strict=True)):
            writer.writerow(
                [cell.trace, cell.policy, cell.seed, cell.clock, percent, f"{used:.2f}", f"{lost:.2f}"]
            )
    return text.getvalue()


def json_text(results: Iterable[CellResult]) -> str:
    """Write all that is kept of the runs, as a list in their order."""
    return json.dumps([result.to_json() for result in results], indent=1, sort_keys=True) + "\n"


_ZOOM: Final = 70
_LABELS: Final = {
    PlotKind.ALLOCATION: ("cards asked for, % of the cluster", "cards in use, %"),
    PlotKind.FRAGMENTATION: ("cards asked for, % of the cluster", "fragmented cards, %"),
    PlotKind.WAITING: ("hours", "tasks that wait"),
}


def plot(results: Sequence[CellResult], kind: PlotKind, path: Path) -> None:
    """Draw one panel per trace and one line per policy, averaged over the seeds.

    Parameters
    ----------
    results
        The runs.
    kind
        What to draw.
    path
        Where; the suffix decides between PNG, SVG and PDF. The same runs give the same picture.

    Raises
    ------
    ModelError
        When there is nothing to draw.
    MissingExtraError
        When matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # slow to import, and an extra
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.for_extra("matplotlib", "plots", "drawing") from None
    traces = sorted({result.cell.trace for result in results})
    if not traces:
        raise ModelError("there is no run to draw")
    columns = min(3, len(traces))
    rows = -(-len(traces) // columns)
    with mpl.rc_context({"svg.hashsalt": "koordcore", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        across, up = _LABELS[kind]
        for trace, panel in zip(traces, panels, strict=False):
            for policy in PolicyName:
                group = [one for one in results if one.cell.trace == trace and one.cell.policy is policy]
                if group:
                    xs, ys = _line(group, kind)
                    panel.plot(xs, ys, label=str(policy), linewidth=1.2, zorder=2)
            lines = panel.get_lines()
            if kind is PlotKind.ALLOCATION and all(line.get_ydata()[-1] > _ZOOM for line in lines):
                panel.set_xlim(_ZOOM, len(results[0].allocated) - 1)  # below, all policies place everything
                panel.set_ylim(bottom=_ZOOM)
            panel.set_title(trace)
            panel.set_xlabel(across)
            panel.set_ylabel(up)
            panel.grid(visible=True, linewidth=0.3)
        for panel in panels[len(traces) :]:
            panel.set_axis_off()
        figure.axes[0].legend(fontsize=7)
        # The date in the file would make two equal pictures differ.
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=120, metadata=metadata)


def _line(group: Sequence[CellResult], kind: PlotKind) -> tuple[list[float], list[float]]:
    if kind is PlotKind.WAITING:  # courses of several seeds do not share their seconds: the first one stands
        first = group[0]
        return [second / 3600 for second in first.time], [float(count) for count in first.pending]
    lines = [one.allocated if kind is PlotKind.ALLOCATION else one.fragmented for one in group]
    return list(map(float, range(len(lines[0])))), [fmean(values) for values in zip(*lines, strict=True)]
