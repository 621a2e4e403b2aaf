"""``koordcore inspect``: what a dump holds."""

from __future__ import annotations

import argparse
import json
from typing import Final

from koordcore.cli.claim_picture import claim_tables
from koordcore.cli.cluster_tables import (
    cards_table,
    cluster_record,
    groups_table,
    kinds_table,
    node_record,
    nodes_table,
    pending_table,
    states_table,
    usage_table,
)
from koordcore.cli.finding import find_node, name_and_paths
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.layout import Table
from koordcore.cli.node_picture import draw_node
from koordcore.cli.output import JSON, NAME, TABLE, WIDE, add_output, for_programs, print_record
from koordcore.cli.selection import ONE_NODE, Selection, add_selection, need_use, selection_of
from koordcore.cli.tables import say, show
from koordcore.errors import ModelError
from koordcore.explaining.endpoints import endpoint_view
from koordcore.manifests import Loaded

EPILOG: Final = """\
states:
  empty, mixed, full (of cards, where a node has any), cordoned, not ready,
  unreachable

examples:
  koordcore inspect cluster.yaml
  koordcore inspect cluster.yaml --nodes -l node-role=general
  koordcore inspect gpu-s1b1-1 cluster.yaml     draw one node
  koordcore inspect cluster.yaml --view /apis/v1/nodes/gpu-s1b1-1
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Show what a dump holds: nodes by state, cards, free and used room, the queue, unread kinds."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--node", metavar="NAME", help="draw this node: its devices, CPUs and who holds them")
    parser.add_argument("--nodes", action="store_true", help="list every node with its state, cards and room")
    parser.add_argument(
        "--view",
        metavar="PATH",
        help="print what a debug endpoint of the reference would answer, such as /apis/v1/nodes/gpu-1; "
        "/apis/v1/__services__ lists them",
    )
    add_selection(parser)
    add_output(parser, watch=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tables, or draw a node; its name may also stand among the paths."""
    if arguments.node is None and (len(arguments.paths) > 1 or arguments.live):
        name, arguments.paths = name_and_paths(arguments.paths)
        arguments.node = name or None
    selection = selection_of(arguments)
    _check(arguments)
    loaded = load_paths(arguments)
    snapshot = loaded.snapshot
    if arguments.view is not None:
        print(json.dumps(endpoint_view(snapshot, arguments.view), indent=2))
        return 0
    if arguments.node is not None:
        find_node(snapshot, arguments.node)
        if not for_programs(arguments):
            if arguments.output == NAME:
                print(arguments.node)
            else:
                say(draw_node(snapshot, snapshot.node(arguments.node)))
            return 0
    if for_programs(arguments):
        if arguments.node is None:
            print_record(arguments, cluster_record(loaded, selection))
        else:
            print_record(arguments, node_record(snapshot, snapshot.node(arguments.node)))
    elif arguments.nodes or arguments.output == NAME:
        show(nodes_table(snapshot, selection))
    else:
        show(*_tables(loaded, selection, wide=arguments.output == WIDE))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what chooses or orders rows where there are none."""
    if arguments.view is not None:
        if arguments.output not in (TABLE, JSON):
            raise ModelError(f"-o {arguments.output}: --view prints what an endpoint answers, which is JSON")
        why = "it is about nodes or rows of tables, and --view prints what an endpoint answers"
        need_use_of(arguments, why, "--node")
    elif arguments.node is not None:
        why = ONE_NODE
    else:
        return
    need_use_of(arguments, why, "--nodes", "--sort-by")
    need_use(arguments, namespace=why, labels=why)


def _tables(loaded: Loaded, selection: Selection, *, wide: bool) -> list[Table]:
    snapshot = loaded.snapshot
    found = [states_table(snapshot, selection), cards_table(snapshot, selection)] if snapshot.nodes else []
    if snapshot.nodes and selection.all:
        found.append(usage_table(snapshot, wide=wide))
    found += claim_tables(snapshot)
    found += [pending_table(snapshot, selection)] if snapshot.pending else []
    if selection.all:
        found += [groups_table(snapshot), kinds_table(loaded)]
    return [one for one in found if one.rows]
