"""``koordcore report``: a page to look at."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from koordcore.checking import verify
from koordcore.cli.defrag import read_wanted
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import (
    add_lend,
    add_now,
    add_paths,
    as_of,
    lent,
    load_paths,
    read_now,
    say_left_out,
    say_podless,
)
from koordcore.cli.output import FORMS
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.progress import Step, working
from koordcore.cli.queues import decide
from koordcore.cli.rebalance import HIGH, read_args
from koordcore.cli.starts import known_starts
from koordcore.cli.words import many
from koordcore.descheduling.card_moves import fragments_of, plan_less_fragmentation
from koordcore.descheduling.plans import MoveRules, Moving, plan_cooling, plan_room
from koordcore.errors import ModelError
from koordcore.model.metrics import NodeMetric
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules, Relocation
from koordcore.protocol.times import moment_of
from koordcore.reporting import report
from koordcore.snapshot import ClusterSnapshot

EPILOG = """\
examples:
  koordcore report cluster.yaml -o report.html
  koordcore report cluster.yaml --preempt       who would have to leave
  koordcore report cluster.yaml --want 5x:nvidia.com/gpu=8   moves for room
  koordcore report cluster.yaml -o - > report.html
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Place the pending pods of a dump and write one HTML page about it: every card and its holder, the "
        "queue, gangs, quotas, and plans step by step. The page asks nobody for anything."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="where to (report.html); - for a pipe"
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="title of the page (the first path)")
    parser.add_argument(
        "--preempt", action="store_true", help="plan who has to go for jobs that find no place"
    )
    parser.add_argument("--relocate", action="store_true", help="with --preempt: prefer those who can move")
    parser.add_argument("--rebalance", action="store_true", help="plan moves that cool hot nodes")
    parser.add_argument("--high", metavar="PERCENTS", help=f"with --rebalance: what is hot ({HIGH})")
    parser.add_argument("--want", metavar="[Nx:]NAME=AMOUNT,…", help="plan moves that make room for this")
    parser.add_argument("--fragments", action="store_true", help="plan moves for fewer cards idle in vain")
    parser.set_defaults(run=run, args=None, prod_high=None, block=None, per_node=None)


def run(arguments: argparse.Namespace) -> int:
    """Schedule, verify, plan, write the page."""
    if arguments.relocate and not arguments.preempt:
        raise ModelError("--relocate: pods move only for a job that preempts; add --preempt")
    if not arguments.rebalance:
        need_use_of(arguments, "is about --rebalance", "--high")
    _check_target(arguments.output)
    loaded = load_paths(arguments)
    policy = read_policy(arguments)
    snapshot, now = lent(arguments, as_of(arguments, loaded.snapshot)), read_now(arguments)
    relocation = Relocation.FIRST if arguments.relocate else Relocation.NEVER
    rules = PreemptionRules(relocation=relocation) if arguments.preempt else None
    decided = decide(snapshot, policy, now, rules, as_gangs=arguments.as_gangs)
    result = decided.result
    with working("verifying the plan, rule by rule") as step:
        violations = verify(decided.before, result, now=now, progress=step)
    if violations:
        for violation in violations:
            print(f"koordcore: the plan is not legal: {violation}", file=sys.stderr)
        return 1
    say_left_out(result, quiet=arguments.quiet)
    say_podless(arguments, loaded)
    with working("planning moves") as step:
        plans = dict(_plans(arguments, result.snapshot, policy, step))
    with working("looking when the others start") as step:
        starts = known_starts(snapshot, result, now, step)
    with working(f"drawing {len(snapshot.nodes)} nodes") as step:
        title = arguments.title or _title(arguments)
        page = report(result, plans=plans, starts=starts, title=title, progress=step)
    if arguments.output == "-":
        print(page)
    else:
        Path(arguments.output).write_text(page, encoding="utf-8")
        print(f"{arguments.output}: {len(page.encode()) / 1000:.0f} kB, {many(len(snapshot.nodes), 'node')}")
    return 0


def _title(arguments: argparse.Namespace) -> str:
    return Path(arguments.paths[0]).name if arguments.paths else arguments.context or "live cluster"


def _check_target(output: str) -> None:
    """Refuse a place that cannot be written to, and what is no file at all, before any work is done."""
    if output in FORMS:
        raise ModelError(
            f"-o {output}: a page is HTML, and -o says where it goes; for JSON: `koordcore schedule -o json`"
        )
    folder = Path(output).parent
    if output != "-" and not folder.is_dir():
        raise ModelError(f"--output: no folder {folder}")
    if Path(output).is_dir():
        raise ModelError(f"--output: {output} is a folder")


def _plans(
    arguments: argparse.Namespace, snapshot: ClusterSnapshot, policy: Policy, step: Step
) -> Iterator[tuple[str, Moving[Any]]]:
    """Make the plans of moves that were asked for, on the cluster with the placed pods in it."""
    given = read_now(arguments)
    rules = MoveRules(policy=policy, now=given)
    if arguments.rebalance:
        reports = snapshot.of(NodeMetric)
        if not reports:
            raise ModelError("--rebalance: no NodeMetric in the dump")
        now = max(one.update_time or 0 for one in reports) if given is None else moment_of(given)
        args = read_args(arguments, snapshot, reports)
        yield "Cooler nodes", plan_cooling(snapshot, args, now=now, rules=rules, progress=step)
    if arguments.want:
        wanted = read_wanted(arguments, snapshot, policy)
        yield f"Room for {arguments.want}", plan_room(snapshot, wanted, rules=rules, progress=step)
    if arguments.fragments:
        aim = fragments_of(snapshot)
        if not aim.nodes:
            raise ModelError("--fragments: no node of the dump has cards")
        yield "Fewer cards idle in vain", plan_less_fragmentation(snapshot, aim, rules=rules, progress=step)
