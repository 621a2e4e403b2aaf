"""``koordcore colocation``: what every node can lend to batch and mid pods, and why."""

from __future__ import annotations

import argparse
import json
from typing import Final

import attrs

from koordcore.cli.inputs import add_now, add_paths, load_paths, read_now
from koordcore.cli.tables import Column, Table, Tone, amount, show
from koordcore.colocation import (
    config_of_snapshot,
    explain_node,
    latest_report,
    lending_table,
    render_waterfalls,
)
from koordcore.colocation.agent import PodSetting, pod_settings
from koordcore.colocation.cluster import LendingRow, LendingTable, lend
from koordcore.errors import ModelError
from koordcore.manifests.lending_patches import lending_patches
from koordcore.protocol.times import moment_of

EPILOG: Final = """\
examples:
  koordcore colocation cluster.yaml
  koordcore colocation cluster.yaml --node node-1      from capacity to what is lent, step by step
  koordcore colocation cluster.yaml -o patches         what the manager would send, NUMA zones
                                                       included, and what agents write for pods
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Show what every node can lend, by the ConfigMap slo-controller-config of the dump."
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--node", metavar="NAME", help="explain one node")
    add_now(parser, "the newest metric's")
    parser.add_argument("-o", "--output", choices=("table", "json", "patches"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table or one node's waterfalls."""
    snapshot = load_paths(arguments).snapshot
    given = read_now(arguments)
    now = latest_report(snapshot) if given is None else moment_of(given)
    settings: tuple[PodSetting, ...] = ()
    if arguments.output == "patches":
        settings = pod_settings(snapshot, None if arguments.node is None else [arguments.node])
    if now is None and not settings:
        raise ModelError("no NodeMetric with a time in the dump: give --now")
    config = config_of_snapshot(snapshot)
    if arguments.output == "patches":
        after = snapshot if now is None else lend(snapshot, config, now=now)
        for call in lending_patches(snapshot, after):
            about = call["path"].removesuffix("/status").rpartition("/")[2]
            if arguments.node in (None, about):
                print(json.dumps(call))
        for one in settings:
            print(json.dumps(one.record()))
        return 0
    assert now is not None
    if arguments.node is not None:
        snapshot.node(arguments.node)
        waterfalls = explain_node(snapshot, config, arguments.node, now=now)
        if arguments.output == "json":
            print(json.dumps([attrs.asdict(one) for one in waterfalls], indent=2))
        else:
            print(render_waterfalls(waterfalls))
        return 0
    table = lending_table(snapshot, config, now=now)
    if arguments.output == "json":
        print(json.dumps([attrs.asdict(row) for row in (*table.rows, table.total)], indent=2))
    else:
        show(_rendered(table))
    return 0


def _rendered(table: LendingTable) -> Table:
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
        Column(name, number=name != "NODE", tone=Tone.NAME if name == "NODE" else Tone.PLAIN)
        for name in names
    ]
    rows = [_cells(row) for row in (*table.rows, table.total)]
    return Table(
        title="What can be lent",
        columns=(*columns, Column("WHY NOTHING", tone=Tone.DIM)),
        rows=rows,
        note="batch = capacity - margin - system - pods, before amplification; each as cpu/memory",
    )


def _cells(row: LendingRow) -> tuple[str, ...]:
    def pair(amounts: tuple[int, int]) -> str:
        return f"{amount('cpu', amounts[0])}/{amount('memory', amounts[1])}"

    notes = "; ".join(
        f"{kind}: {note}" for kind, note in (("batch", row.batch_note), ("mid", row.mid_note)) if note
    )
    return (
        row.node,
        amount("cpu", row.batch[0]),
        amount("memory", row.batch[1]),
        amount("cpu", row.mid[0]),
        amount("memory", row.mid[1]),
        *(pair(amounts) for amounts in (row.capacity, row.margin, row.taken, row.pods)),
        notes,
    )
