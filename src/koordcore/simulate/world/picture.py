"""The cluster over time, as a picture: how full every node was, when it was closed, who waited."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Final

from koordcore.errors import MissingExtraError, ModelError
from koordcore.simulate.world.profile import SECOND
from koordcore.simulate.world.record import Standing, WorldRun

SHADES: Final = " .:-=+*#%@"
"""From empty to full."""
CLOSED: Final = "x"
_FULL: Final = 16_000
"""Milli-cores of a node of the bottle."""


def draw_world(run: WorldRun, width: int = 60) -> list[str]:
    """Draw a run in letters: faults, a line for each node, one for the pods that wait, and what it all means.

    Parameters
    ----------
    run
        With its standings (``tell=True``).
    width
        Columns at most.
    """
    if not run.standings:
        return []
    columns = _columns(run, width)
    faults = _faults(run, columns)
    names = sorted({name for one in run.standings for name in one.used})
    lines = [f"{name:>8} |{''.join(_shade(one, name) for one in columns)}|" for name in names]
    waiting = "".join("+" if one.waiting > 9 else str(one.waiting or " ") for one in columns)
    seconds = f"{run.ended / SECOND:.0f} s"
    return [
        f"{'faults':>8} |{faults}|",
        *lines,
        f"{'waiting':>8} |{waiting}|",
        f"{'':8}  0 s {seconds:>{max(1, len(columns) - 4)}}",
        f"{'':8}  cores in use, from none to all:{SHADES}   {CLOSED}: dead or closed",
        f"{'':8}  !: something fails   waiting pods: 1 to 9, +: more",
    ]


def _faults(run: WorldRun, columns: list[Standing]) -> str:
    """Mark the columns up to which something has come from outside that is no load."""
    times = [one.time for one in columns]
    found = {bisect_left(times, one.time) for one in run.injections if one.what != "pods"}
    return "".join(" !"[number in found] for number in range(len(times)))


def _columns(run: WorldRun, width: int) -> list[Standing]:
    count = len(run.standings)
    if count <= width:
        return list(run.standings)
    return [run.standings[number * count // width] for number in range(width)]


def _shade(one: Standing, name: str) -> str:
    if name not in one.open:
        return CLOSED
    share = one.used.get(name, 0) / _FULL
    return SHADES[min(len(SHADES) - 1, int(share * (len(SHADES) - 1) + 0.999))]


def plot_world(run: WorldRun, path: Path) -> None:
    """Draw a run as a picture: nodes over time by how full they are, faults above, who waits below.

    Parameters
    ----------
    run
        With its standings (``tell=True``).
    path
        Where; the suffix decides between PNG, SVG and PDF. The same run gives the same picture.

    Raises
    ------
    ModelError
        When the run has no standings.
    MissingExtraError
        When matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # slow to import, and an extra
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.for_extra("matplotlib", "plots", "drawing") from None
    if not run.standings:
        raise ModelError("the run was not told: there is nothing to draw")
    names = sorted({name for one in run.standings for name in one.used})
    times = [one.time / SECOND for one in run.standings]
    full = [
        [one.used.get(name, 0) / _FULL if name in one.open else -0.15 for one in run.standings]
        for name in names
    ]
    faults = [one for one in run.injections if one.what != "pods" and one.time <= run.ended]
    kinds = sorted({one.what for one in faults})
    with mpl.rc_context({"svg.hashsalt": "koordcore", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(10, 5), layout="constrained")
        above, middle, below = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 1])
        above.scatter(
            [one.time / SECOND for one in faults], [kinds.index(one.what) for one in faults], s=9, marker="|"
        )
        above.set_yticks(range(len(kinds)), kinds)
        above.set_title(f"seed {run.seed}, profile {run.profile.name}")
        mesh = middle.pcolormesh(
            [*times, times[-1] + 1], range(len(names) + 1), full, cmap="viridis", vmin=-0.15
        )
        figure.colorbar(mesh, ax=[above, middle, below], label="in use; darkest: not open", fraction=0.03)
        middle.set_yticks([number + 0.5 for number in range(len(names))], names)
        below.step(times, [one.waiting for one in run.standings], where="post", linewidth=0.9)
        below.set_ylabel("waiting")
        below.set_xlabel("seconds")
        for breach in run.breaches:
            for panel in (above, middle, below):
                panel.axvline(breach.time / SECOND, color="red", linewidth=1)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=120, metadata=metadata)
