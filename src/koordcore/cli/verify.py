"""``koordcore verify``: check a plan against the dump it was made from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from koordcore.checking import verify
from koordcore.checking.moves import verify_moves
from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.moves import add_rules, read_rules
from koordcore.cli.tables import Column, Table, Tone, show
from koordcore.manifests.move_records import MOVES_FORMAT, moves_from_record
from koordcore.manifests.records import result_from_record

__all__ = ["describe", "run"]

EPILOG: Final = """\
examples:
  koordcore schedule cluster.yaml -o json > plan.json
  koordcore verify cluster.yaml --plan plan.json
  koordcore rebalance cluster.yaml -o json > moves.json
  koordcore verify cluster.yaml --plan moves.json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Check a plan, as `schedule`, `rebalance` and `defrag` print it with `-o json`, "
        "against the dump it was made from."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_rules(parser)
    parser.add_argument("--plan", required=True, metavar="FILE", help="the plan to check")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify and print; 1 when something is not legal."""
    snapshot = load_paths(arguments).snapshot
    record = json.loads(Path(arguments.plan).read_text(encoding="utf-8"))
    rules = read_rules(arguments)
    if isinstance(record, dict) and record.get("format") == MOVES_FORMAT:
        moves, bound = moves_from_record(record)
        violations = verify_moves(
            snapshot, moves, bound, policy=rules.policy, args=rules.migration, limits=rules.limits
        )
        checked = f"{len(moves)} moves"
    else:
        result = result_from_record(snapshot, record, policy=rules.policy)
        violations = verify(snapshot, result)
        checked = f"{len(result.decisions)} decisions"
    if not violations:
        print(f"legal: {checked} checked, nothing is wrong")
        return 0
    columns = (Column("RULE", tone=Tone.BAD), Column("WHERE", tone=Tone.NAME), Column("WHAT"))
    rows = [(str(one.kind), one.subject, one.message) for one in violations]
    show(Table(title=f"Not legal: {len(rows)} violations", columns=columns, rows=rows))
    return 1
