"""Plots of runs, fit for a paper: labels at the lines, colours that all eyes tell apart, bands over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.errors import MissingExtraError, ModelError
from koordcore.scoring.gpu_policies import PolicyName
from koordcore.simulate.report import in_order
from koordcore.simulate.scenario import CellResult


class PlotKind(StrEnum):
    """What is drawn over what."""

    ALLOCATION = "allocation"
    """Cards in use over cards asked for."""
    FRAGMENTATION = "fragmentation"
    """Fragmented idle cards over cards asked for."""
    WAITING = "waiting"
    """Tasks that wait over time."""


_ZOOM: Final = 70
_POINTS: Final = 400
_GAP: Final = 0.055
"""Least distance of two labels, as a part of the panel's height."""
_SUFFIXES: Final = (".png", ".svg", ".pdf")
_LABELS: Final = {
    PlotKind.ALLOCATION: ("cards asked for, % of the cluster", "cards in use, %"),
    PlotKind.FRAGMENTATION: ("cards asked for, % of the cluster", "fragmented cards, %"),
    PlotKind.WAITING: ("hours", "tasks that wait"),
}
_COLOURS: Final[Mapping[str, str]] = {
    PolicyName.RANDOM: "#777777",
    PolicyName.DOT_PRODUCT: "#e69f00",
    PolicyName.GPU_CLUSTERING: "#cc79a7",
    PolicyName.GPU_PACKING: "#56b4e9",
    PolicyName.BEST_FIT: "#009e73",
    PolicyName.FGD: "#0072b2",
    PolicyName.FORESIGHT: "#d55e00",
}
"""After Okabe and Ito; a policy has its colour in every picture."""
_OWN: Final = tuple(
    (colour, dashes) for dashes in ("-", "--", ":") for colour in ("#000000", "#8c510a", "#5e3c99")
)
"""Colours and dashes of other policies, in the order of their names."""


@record
class _Line:
    """One policy on one trace: its mean, and what its seeds span."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def check_target(target: Path) -> None:
    """Refuse a picture that cannot be written, before any work is done for it.

    Raises
    ------
    ModelError
        When the suffix is no known one, or the folder is not there.
    """
    if target.suffix not in _SUFFIXES:
        raise ModelError(f"{target}: a picture ends in {', '.join(_SUFFIXES)}")
    if not target.parent.is_dir():
        raise ModelError(f"{target}: no folder {target.parent}")


def plot(results: Sequence[CellResult], kind: PlotKind, target: Path | Any) -> None:
    """Draw one panel per trace with one line per policy, the mean over its seeds, and what the seeds span.

    Parameters
    ----------
    results
        The runs.
    kind
        What to draw.
    target
        A path that ends in ``.png``, ``.svg`` or ``.pdf``; the same runs give the same picture. Or an
        ``Axes`` of matplotlib to draw one trace into.

    Raises
    ------
    ModelError
        When there is nothing to draw, it cannot be written there, or one ``Axes`` is to hold several traces.
    MissingExtraError
        When matplotlib is not installed.
    """
    traces = sorted({result.cell.trace for result in results})
    if not traces:
        raise ModelError("there is no run to draw")
    if not isinstance(target, str | Path):
        if len(traces) > 1:
            raise ModelError(f"one Axes holds one trace; here are {', '.join(traces)}")
        _draw(target, results, PlotKind(kind))
        return
    path = Path(target)
    check_target(path)
    try:
        import matplotlib as mpl  # slow to import, and an extra
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.for_extra("matplotlib", "plots", "drawing") from None
    columns = min(3, len(traces))
    rows = -(-len(traces) // columns)
    with mpl.rc_context(
        {"svg.hashsalt": "koordcore", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 9}
    ):
        figure = Figure(figsize=(4.6 * columns, 3.2 * rows), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for trace, panel in zip(traces, panels, strict=False):
            _draw(panel, [one for one in results if one.cell.trace == trace], PlotKind(kind))
            panel.set_title(trace)
        for panel in panels[len(traces) :]:
            panel.set_axis_off()
        # The date in the file would make two equal pictures differ.
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(path, dpi=150, metadata=dates.get(path.suffix, {}))


def _draw(panel: Any, results: Sequence[CellResult], kind: PlotKind) -> None:
    across, up = _LABELS[kind]
    own = cycle(_OWN)
    ends = []
    lines = dict(_lines(results, kind))
    for policy, line in lines.items():
        colour, dashes = (_COLOURS[policy], "-") if policy in _COLOURS else next(own)
        panel.plot(line.x, line.mean, dashes, label=policy, color=colour, linewidth=1.3, zorder=2)
        if (line.low < line.high).any():
            panel.fill_between(line.x, line.low, line.high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        ends.append((float(line.mean[-1]), policy, colour))
    if kind is PlotKind.ALLOCATION and all(end > _ZOOM for end, *_ in ends):
        panel.set_xlim(_ZOOM, len(results[0].allocated) - 1)  # below, all policies place everything
        panel.set_ylim(bottom=_ZOOM)
    else:
        panel.set_xlim(0, max(float(line.x[-1]) for line in lines.values()) or 1)
        panel.set_ylim(bottom=0)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(visible=True, linewidth=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    _label(panel, ends)


def _label(panel: Any, ends: list[tuple[float, str, str]]) -> None:
    """Write each name at the end of its line, moved apart where lines end together."""
    low, high = panel.get_ylim()
    room = (high - low) or 1.0
    wanted = [(value - low) / room for value, *_ in sorted(ends)]
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + _GAP) if places else place)
    # Labels that were pushed apart stand around their lines, not above them.
    shift = fmean(there - place for there, place in zip(places, wanted, strict=True))
    for place, (_, policy, colour) in zip(places, sorted(ends), strict=True):
        panel.annotate(
            policy,
            xy=(1.0, max(place - shift, 0.0)),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            va="center",
            annotation_clip=False,
        )


def _lines(results: Sequence[CellResult], kind: PlotKind) -> Iterator[tuple[str, _Line]]:
    policies = in_order(one.cell.policy for one in results)
    grid = _waiting_grid(results) if kind is PlotKind.WAITING else np.empty(0)
    for policy in policies:
        group = [one for one in results if one.cell.policy == policy]
        if kind is PlotKind.WAITING:
            values = np.array([_at(grid, one) for one in group])
            x = grid / 3600
        else:
            allocation = kind is PlotKind.ALLOCATION
            values = np.array([one.allocated if allocation else one.fragmented for one in group], float)
            x = np.arange(values.shape[1], dtype=float)
        mean = np.array([fmean(column) for column in values.T.tolist()])
        yield policy, _Line(x, mean, values.min(axis=0), values.max(axis=0))


def _waiting_grid(results: Sequence[CellResult]) -> NDArray[np.float64]:
    """Give seconds up to a little after the last one at which anybody waits: what follows shows nothing."""
    waits = [second for one in results for second, count in zip(one.time, one.pending, strict=True) if count]
    first = min((one.time[0] for one in results if one.time), default=0)
    last = max((one.time[-1] for one in results if one.time), default=0)
    end = min(last, first + 1.1 * (max(waits) - first)) if waits else last
    return np.linspace(first, max(end, first + 1), _POINTS)


def _at(grid: NDArray[np.float64], result: CellResult) -> NDArray[np.float64]:
    """Give how many wait at each moment of a grid: the count at the last point that is kept before it."""
    places = np.searchsorted(np.array(result.time), grid, side="right") - 1
    counts = np.array([0, *result.pending], float)
    return counts[places + 1]
