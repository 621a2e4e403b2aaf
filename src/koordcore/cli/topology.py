"""``koordcore topology``: the network tree, what is free in it, and where the jobs lie."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.inputs import add_paths, load_paths, need_picture
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import add_output, for_programs, print_record
from koordcore.cli.selection import Selection, add_selection, need_use, selection_of
from koordcore.cli.tables import say, show
from koordcore.errors import MissingExtraError, ModelError
from koordcore.explaining.network import DomainRow, domain_rows, jobs_by_node
from koordcore.scheduling.network_trees import known_network
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.network import NODE_LAYER, NetworkTopology

EPILOG: Final = """\
examples:
  koordcore topology cluster.yaml
  koordcore topology cluster.yaml --nodes
  koordcore topology cluster.yaml --layers rack=topology.kubernetes.io/zone
  koordcore topology cluster.yaml --plot racks.svg   blocks as tiles
"""
_FREE, _OTHER = "#eef1f4", "#b8c0c8"
_TILE: Final = 140.0
"""Points of letters in a line over a block that has one node in a row."""
_LARGEST: Final = 7.0
_READABLE: Final = 3.5
_GOLDEN: Final = 0.6180339887
"""Steps of this part of the circle spread any number of hues evenly."""
_OUTSIDE: Final = 8
_NAMED: Final = 4
"""Gangs named per domain; the picture shows all of them."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Show the network tree of a dump: nodes, empty nodes and jobs of every domain."
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--nodes", action="store_true", help="list the nodes as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it (PNG, SVG or PDF)")
    add_output(parser, watch=True)
    add_selection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree, and draw it where that was asked for."""
    need_picture(arguments.plot)
    selection = selection_of(arguments)
    need_use(arguments, labels="" if arguments.nodes else "it chooses nodes, which --nodes lists")
    snapshot = load_paths(arguments).snapshot
    found = domain_rows(snapshot, selection.namespace)
    if found is None:
        raise ModelError(
            "no network: the dump has no ClusterNetworkTopology, no Kueue Topology and no known node labels; "
            "--layers block=LABEL,rack=LABEL says which labels count"
        )
    tree, rows = found
    shown = _shown(snapshot, rows, selection, nodes=arguments.nodes)
    known = once(snapshot, known_network)
    source = f"from {known.source}" if known is not None else ""
    if for_programs(arguments):
        problems = [str(problem) for problem in tree.problems]
        record = {"source": source, "domains": [attrs.asdict(row) for row in shown], "problems": problems}
        print_record(arguments, record)
    else:
        show(attrs.evolve(topology_table(shown), note=source))
        _say_outside(tree)
    if arguments.plot:
        draw_topology(snapshot, tree, str(arguments.plot))
        print(f"drawn: {arguments.plot}", file=sys.stderr)
    return 0


def _shown(
    snapshot: ClusterSnapshot, rows: Sequence[DomainRow], selection: Selection, *, nodes: bool
) -> list[DomainRow]:
    """Leave out nodes that nobody asked for."""
    return [
        row for row in rows if row.layer != NODE_LAYER or (nodes and selection.node(snapshot.node(row.name)))
    ]


def _say_outside(tree: NetworkTopology) -> None:
    """Name the nodes that have no place in the tree once, whatever labels they lack; then other problems."""
    outside = [str(one) for one in tree.problems if "outside the network topology" in str(one)]
    names = [one.removeprefix("Node ").partition(":")[0] for one in outside]
    if names:
        shown = ", ".join(names[:_OUTSIDE]) + (f" and {len(names) - _OUTSIDE} more" * (len(names) > _OUTSIDE))
        say(f"outside the network, for want of a label: {shown}")
    for problem in tree.problems:
        if str(problem) not in outside:
            say(f"label defect: {problem}")


def topology_table(rows: Sequence[DomainRow]) -> Table:
    """One row per domain, children under their parent."""
    cells = []
    for row in rows:
        jobs = ", ".join(f"{name} ({count})" for name, count in row.jobs[:_NAMED])
        jobs += f" and {len(row.jobs) - _NAMED} more" * (len(row.jobs) > _NAMED)
        bar = "·" * row.empty + "█" * (row.nodes - row.empty) if row.nodes <= 40 else ""
        name = "  " * row.depth + row.name
        cells.append((name, row.layer, str(row.nodes), str(row.empty), str(row.pods), bar, jobs))
    columns = (
        Column("DOMAIN", tone=Tone.NAME),
        Column("LAYER", tone=Tone.DIM, rank=2),
        Column("NODES", number=True),
        Column("EMPTY", number=True, tone=Tone.GOOD),
        Column("PODS", number=True, rank=4),
        Column("", rank=3),
        Column("GANGS", text=True, rank=1),
    )
    return Table(title="Network", columns=columns, rows=cells)


def draw_topology(snapshot: ClusterSnapshot, tree: NetworkTopology, path: str) -> None:
    """Draw the domains above the nodes as tiles of their nodes, each gang in a colour of its own.

    Raises
    ------
    MissingExtraError
        When matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # optional, and slow to import
    except ImportError:
        raise MissingExtraError.for_extra("matplotlib", "plots", "drawing the topology") from None
    depth = max(len(tree.layers) - 1, 0)
    blocks = list(tree.domains_at(depth))
    jobs = jobs_by_node(snapshot)
    names = sorted({job for members in jobs.values() for job in members})
    busy = {state.name for state in snapshot.nodes if state.pods}
    colours = _colours(names)
    columns = _columns(tree, blocks)
    lines = -(-len(blocks) // columns)
    figure = Figure(figsize=(1.6 * columns + 2.2, 1.6 * lines + 0.6), layout="constrained")
    for number, block in enumerate(blocks):
        axes = figure.add_subplot(lines, columns, number + 1)
        _draw_block(axes, tree, block, jobs, busy, colours)
    handles = [_patch(colour, name) for name, colour in colours.items()]
    handles += [_patch(_OTHER, "other pods"), _patch(_FREE, "empty")]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.endswith(".svg") else None)


def _columns(tree: NetworkTopology, blocks: Sequence[int]) -> int:
    """One line per parent where parents have equally many blocks, else as many in a line as can be read."""
    parents = [int(tree.parent[block]) for block in blocks]
    sizes = {parents.count(parent) for parent in parents}
    size = min(sizes, default=1)
    return size if len(sizes) == 1 and 1 < size <= 8 else min(len(blocks), 8) or 1


def _colours(names: Sequence[str]) -> dict[str, Any]:
    """Give every gang a colour of its own, neighbours far apart, none of them grey."""
    from matplotlib.colors import hsv_to_rgb

    shades = ((0.70, 0.85), (0.90, 0.55), (0.42, 0.97), (0.60, 0.70))
    return {
        name: tuple(hsv_to_rgb((number * _GOLDEN % 1.0, *shades[number % 4])).tolist())
        for number, name in enumerate(names)
    }


def _light(colour: tuple[float, float, float]) -> bool:
    red, green, blue = colour
    return 0.3 * red + 0.59 * green + 0.11 * blue > 0.5


def _patch(colour: Any, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, edgecolor="#808890", label=label)


def _draw_block(
    axes: Any,
    tree: NetworkTopology,
    block: int,
    jobs: dict[str, Any],
    busy: set[str],
    colours: dict[str, Any],
) -> None:
    from matplotlib.patches import Rectangle

    nodes = [tree.names[child] for child in tree.children(block)]
    width = max(1, round(len(nodes) ** 0.5))
    for number, node in enumerate(nodes):
        members = jobs.get(node)
        colour: Any = _OTHER if node in busy else _FREE
        if members:
            colour = colours[min(members, key=lambda name: (-members[name], name))]
        corner = (number % width, -(number // width))
        axes.add_patch(Rectangle(corner, 0.9, 0.9, facecolor=colour, edgecolor="#808890", linewidth=0.6))
        size = min(_LARGEST, _TILE / (width * len(node)))
        if size >= _READABLE:
            ink = "white" if members and not _light(colour) else "black"
            middle = corner[0] + 0.45, corner[1] + 0.45
            axes.text(*middle, node, ha="center", va="center", fontsize=size, color=ink)
    axes.set_xlim(-0.1, width)
    axes.set_ylim(-((len(nodes) - 1) // width) - 0.1, 1)
    axes.set_aspect("equal")
    axes.set_axis_off()
    above = [tree.names[domain] for domain in tree.path(block)[:-1]]
    axes.set_title(" / ".join([*above, tree.names[block]]) or "cluster", fontsize=9)
