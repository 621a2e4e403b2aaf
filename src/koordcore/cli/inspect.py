"""``koordcore inspect``: what a dump holds."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Final

from koordcore.cli.claim_picture import claim_tables
from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.node_picture import draw_node
from koordcore.cli.schedule import describe_requests, short_amount
from koordcore.cli.tables import Column, Table, Tone, amount, show
from koordcore.explaining.endpoints import endpoint_view
from koordcore.explaining.groups import group_states
from koordcore.manifests import Loaded
from koordcore.model.nodes import NodeState
from koordcore.model.resources import EPHEMERAL_STORAGE, PODS, Resources
from koordcore.snapshot import ClusterSnapshot

EPILOG: Final = """\
examples:
  koordcore inspect cluster.yaml
  koordcore inspect gpu-1 cluster.yaml     draw one node
  koordcore inspect cluster.yaml --view /apis/v1/plugins/DeviceShare/nodeDeviceSummaries/gpu-1
"""
_SHAPES_SHOWN: Final = 20
_PODS_SHOWN: Final = 20
_GROUPS_SHOWN: Final = 40


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Show what a dump holds: nodes by shape, free and used room, pending pods, unread kinds."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--node", metavar="NAME", help="draw this node: its devices, CPUs and who holds them")
    parser.add_argument(
        "--view",
        metavar="PATH",
        help="print what a debug endpoint of the reference would answer, such as /apis/v1/nodes/gpu-1; "
        "/apis/v1/__services__ lists them",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tables, or draw a node; its name may also stand before the paths."""
    first = arguments.paths[0]
    if arguments.node is None and len(arguments.paths) > 1 and first != "-" and not Path(first).exists():
        arguments.node = arguments.paths.pop(0)
    loaded = load_paths(arguments)
    snapshot = loaded.snapshot
    if arguments.node is not None:
        print(draw_node(snapshot, snapshot.node(arguments.node)))
        return 0
    if arguments.view is not None:
        print(json.dumps(endpoint_view(snapshot, arguments.view), indent=2))
        return 0
    if snapshot.nodes:
        show(shapes_table(snapshot))
        show(usage_table(snapshot))
    for table in claim_tables(snapshot):
        show(table)
    if snapshot.pending:
        show(pending_table(snapshot))
        groups = groups_table(snapshot)
        if groups.rows:
            show(groups)
    show(kinds_table(loaded))
    return 0


def _shape(state: NodeState) -> Resources:
    hidden = (PODS, EPHEMERAL_STORAGE)
    return state.node.allocatable.__class__(
        {name: value for name, value in state.node.allocatable.items() if value and name not in hidden}
    )


def shapes_table(snapshot: ClusterSnapshot) -> Table:
    """Count nodes by what they offer."""
    counts: Counter[Resources] = Counter(_shape(state) for state in snapshot.nodes)
    pods: Counter[Resources] = Counter()
    for state in snapshot.nodes:
        pods[_shape(state)] += len(state.pods)
    ranked = sorted(counts, key=lambda shape: (-counts[shape], sorted(shape.items())))
    rows = [
        (
            str(counts[shape]),
            ", ".join(short_amount(name, value) for name, value in _ordered(shape)),
            str(pods[shape]),
        )
        for shape in ranked[:_SHAPES_SHOWN]
    ]
    more = len(ranked) - len(rows)
    return Table(
        title=f"{len(snapshot.nodes)} nodes",
        columns=(
            Column("NODES", number=True),
            Column("EACH OFFERS", tone=Tone.NAME),
            Column("PODS", number=True),
        ),
        rows=rows,
        note=f"… and {more} more shapes" if more else "",
    )


def _ordered(resources: Resources) -> list[tuple[str, int]]:
    first = ("cpu", "memory")
    return sorted(resources.items(), key=lambda pair: (pair[0] not in first, pair[0]))


def usage_table(snapshot: ClusterSnapshot) -> Table:
    """Add up every resource over the cluster."""
    layout, columns = snapshot.layout, snapshot.columns
    rows = []
    for number, name in enumerate(layout.resources):
        whole = int(layout.allocatable[number].sum())
        used = int(columns.requested[number].sum())
        if not whole and not used:
            continue
        share = f"{100 * used / whole:.1f} %" if whole else "–"
        largest = int((layout.allocatable[number] - columns.requested[number]).max())
        rows.append(
            (
                name,
                *(amount(name, value) for value in (whole, used, whole - used)),
                share,
                amount(name, largest),
            )
        )
    return Table(
        title="Room",
        columns=(
            Column("RESOURCE", tone=Tone.NAME),
            Column("ALLOCATABLE", number=True),
            Column("REQUESTED", number=True),
            Column("FREE", number=True),
            Column("USED", number=True),
            Column("MOST FREE ON ONE NODE", number=True),
        ),
        rows=rows,
    )


def pending_table(snapshot: ClusterSnapshot) -> Table:
    """Count pending pods by what they ask for."""
    shapes: dict[str, list[str]] = {}
    for pod in snapshot.pending:
        shapes.setdefault(describe_requests(pod), []).append(str(pod.key))
    ranked = sorted(shapes, key=lambda shape: (-len(shapes[shape]), shape))
    rows = [(str(len(shapes[shape])), shape, shapes[shape][0]) for shape in ranked[:_PODS_SHOWN]]
    more = len(ranked) - len(rows)
    return Table(
        title=f"{len(snapshot.pending)} pending pods",
        columns=(
            Column("PODS", number=True),
            Column("EACH ASKS FOR", tone=Tone.NAME),
            Column("FOR INSTANCE", tone=Tone.DIM),
        ),
        rows=rows,
        note=f"… and {more} more shapes" if more else "",
    )


def groups_table(snapshot: ClusterSnapshot) -> Table:
    """List the gangs and groups that have members waiting."""
    states = group_states(snapshot)
    rows = [
        (
            "  " * one.level + one.name,
            str(one.least),
            str(one.running),
            str(one.waiting),
            one.where,
            one.stops,
        )
        for one in states[:_GROUPS_SHOWN]
    ]
    more = len(states) - len(rows)
    return Table(
        title="Gangs and groups with waiting members",
        columns=(
            Column("GROUP", tone=Tone.NAME),
            Column("AT LEAST", number=True),
            Column("RUN", number=True),
            Column("WAIT", number=True),
            Column("WITHIN"),
            Column("STOPPED BY", tone=Tone.DIM),
        ),
        rows=rows,
        note=f"… and {more} more" if more else "",
    )


def kinds_table(loaded: Loaded) -> Table:
    """Count objects by kind and say which kinds nothing reads."""
    rows = [
        (kind, str(count), "kept, read by no plugin" if kind in loaded.unread else "")
        for kind, count in sorted(loaded.counts.items())
    ]
    return Table(
        title="Objects",
        columns=(Column("KIND", tone=Tone.NAME), Column("NUMBER", number=True), Column("", tone=Tone.DIM)),
        rows=rows,
    )
