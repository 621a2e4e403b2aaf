"""``koordcore quota``: the quota tree as a table, and one quota's share worked out step by step."""

from __future__ import annotations

import argparse
import json
from typing import Final

import attrs

from koordcore.cli.inputs import add_paths, load_paths
from koordcore.errors import ModelError
from koordcore.quota import cluster_ledger, explain_runtime, format_table, format_waterfall, quota_table

__all__ = ["describe", "run"]

EPILOG: Final = """\
examples:
  koordcore quota cluster.yaml                           min, max, request, runtime, used, borrowed
  koordcore quota cluster.yaml --quota team-a            how the runtime of each resource came about
  koordcore quota cluster.yaml --quota team-a --resource cpu
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Show the quota tree of a dump, or how one quota's share came about."
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument("--tree", default="", metavar="ID", help="which tree; the default one when left out")
    parser.add_argument("--quota", metavar="NAME", help="explain this quota's runtime")
    parser.add_argument("--resource", metavar="NAME", help="only this resource")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree, or one quota's waterfalls."""
    ledger = cluster_ledger(load_paths(arguments).snapshot)
    if arguments.quota is None:
        rows = quota_table(ledger, arguments.tree)
        if arguments.output == "json":
            print(json.dumps([attrs.asdict(row) for row in rows], indent=2, default=dict))
        else:
            print(format_table(rows))
        return 0
    if arguments.quota not in ledger.quotas:
        raise ModelError(f"no quota {arguments.quota} in the dump")
    names = [arguments.resource] if arguments.resource else sorted(ledger.max_of(arguments.quota))
    waterfalls = [explain_runtime(ledger, arguments.quota, name) for name in names]
    if arguments.output == "json":
        print(json.dumps([attrs.asdict(one) for one in waterfalls], indent=2, default=str))
    else:
        print("\n\n".join(map(format_waterfall, waterfalls)))
    return 0
