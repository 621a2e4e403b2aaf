"""``koordcore colocation``: what every node can lend to batch and mid pods, and why."""

from __future__ import annotations

import argparse
import json
from typing import Final

import attrs

from koordcore.cli.finding import find_node
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_now, add_paths, load_paths, read_now, say_unamplified, say_uncounted
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import NAME, TABLE, add_output, for_programs, print_record
from koordcore.cli.selection import ONE_NODE, add_selection, need_tables, need_use, selection_of
from koordcore.cli.tables import amount, say, show
from koordcore.colocation import (
    config_of_snapshot,
    explain_node,
    latest_report,
    lending_table,
    render_waterfalls,
)
from koordcore.colocation.agent import PodSetting, pod_settings
from koordcore.colocation.amplifying import amplified
from koordcore.colocation.cluster import LendingRow, LendingTable, lending, node_load_of
from koordcore.colocation.uncounted import too_large
from koordcore.errors import ModelError
from koordcore.manifests.lending_patches import lending_patches
from koordcore.protocol.times import moment_of

EPILOG: Final = """\
examples:
  koordcore colocation cluster.yaml
  koordcore colocation cluster.yaml --node cpu-1     step by step
  koordcore colocation cluster.yaml -o patches       what the manager sends, and
                                                     what agents write for pods
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Show what every node can lend, by the ConfigMap slo-controller-config of the dump."
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--node", metavar="NAME", help="explain one node")
    add_now(parser, "the newest metric's")
    add_output(parser, "patches", watch=True)
    add_selection(parser)
    parser.set_defaults(run=run, lend=True)  # nodes are multiplied by their ratios, as where others lend


def run(arguments: argparse.Namespace) -> int:
    """Print the table or one node's waterfalls."""
    selection = selection_of(arguments)
    need_use(arguments, namespace="what nodes lend is of no namespace")
    if arguments.output == "patches":
        need_tables(arguments)
    if arguments.node is not None:
        need_use(arguments, labels=ONE_NODE)
        need_use_of(arguments, ONE_NODE, "--sort-by")
    snapshot = load_paths(arguments).snapshot
    given = read_now(arguments)
    now = latest_report(snapshot) if given is None else moment_of(given)
    settings: tuple[PodSetting, ...] = ()
    if arguments.output == "patches":
        settings = pod_settings(snapshot, None if arguments.node is None else [arguments.node])
    if now is None and not settings:
        raise ModelError("no NodeMetric with a time in the dump: give --now")
    config = config_of_snapshot(snapshot)
    multiplied = amplified(snapshot, config)
    say_unamplified(arguments, multiplied.problems)
    after = multiplied.snapshot
    if arguments.output == "patches":
        if now is not None:
            done = lending(after, config, now=now)
            say_uncounted(arguments, done.problems)
            after = done.snapshot
        for call in lending_patches(snapshot, after):
            about = call["path"].removesuffix("/status").rpartition("/")[2]
            if arguments.node in (None, about):
                print(json.dumps(call))
        for one in settings:
            print(json.dumps(one.record()))
        return 0
    assert now is not None
    if arguments.node is not None:
        find_node(snapshot, arguments.node)
        problem = too_large(node_load_of(after, after.node(arguments.node)))
        say_uncounted(arguments, {arguments.node: problem} if problem else {})
        waterfalls = explain_node(after, config, arguments.node, now=now)
        if for_programs(arguments):
            print_record(arguments, {"waterfalls": [attrs.asdict(one) for one in waterfalls]})
        elif arguments.output == NAME:
            print(arguments.node)
        else:
            say(render_waterfalls(waterfalls))
        return 0
    table = lending_table(after, config, now=now)
    say_uncounted(arguments, table.problems)
    shown = tuple(row for row in table.rows if selection.node(snapshot.node(row.node)))
    table = attrs.evolve(table, rows=shown)
    if for_programs(arguments):
        nodes = [attrs.asdict(row) for row in table.rows]
        print_record(arguments, {"nodes": nodes, "total": attrs.asdict(table.total)})
    else:
        show(_rendered(table, joined=arguments.output == TABLE, total=arguments.output != NAME))
    return 0


def _rendered(table: LendingTable, *, joined: bool, total: bool) -> Table:
    names = (
        "NODE",
        "BATCH CPU",
        "BATCH MEMORY",
        "MID CPU",
        "MID MEMORY",
        "CAPACITY",
        "MARGIN",
        "SYSTEM",
        "PODS",
    )
    columns = [
        Column(name, number=name != "NODE", tone=Tone.NAME if name == "NODE" else Tone.PLAIN, rank=rank)
        for name, rank in zip(names, (0, 0, 0, 2, 2, 3, 5, 4, 4), strict=True)
    ]
    rows = [_cells(row) for row in ((*table.rows, table.total) if total else table.rows)]
    if joined:
        rows = _joined(rows)
    return Table(
        title="What can be lent",
        columns=(*columns, Column("WHY NOTHING", tone=Tone.DIM, text=True, rank=1)),
        rows=rows,
        note="batch = capacity - margin - system - pods, before amplification; each as cpu/memory",
    )


def _joined(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Join nodes that lend nothing for the same reason into one row, with what all of them have alike."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        groups.setdefault(row[-1] or row[0], []).append(row)
    return [
        members[0]
        if len(members) == 1
        else (f"{members[0][0]} and {len(members) - 1} more", *map(_alike, *(row[1:] for row in members)))
        for members in groups.values()
    ]


def _alike(*cells: str) -> str:
    return cells[0] if len(set(cells)) == 1 else ""


def _cells(row: LendingRow) -> tuple[str, ...]:
    def pair(amounts: tuple[int, int]) -> str:
        return f"{amount('cpu', amounts[0])}/{amount('memory', amounts[1])}"

    notes = row.batch_note
    if row.mid_note != row.batch_note:
        by_kind = (("batch", row.batch_note), ("mid", row.mid_note))
        notes = "; ".join(f"{kind}: {note}" for kind, note in by_kind if note)
    return (
        row.node,
        amount("cpu", row.batch[0]),
        amount("memory", row.batch[1]),
        amount("cpu", row.mid[0]),
        amount("memory", row.mid[1]),
        *(pair(amounts) for amounts in (row.capacity, row.margin, row.taken, row.pods)),
        notes,
    )
