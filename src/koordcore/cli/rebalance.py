"""``koordcore rebalance``: cool the hot nodes of a dump with the fewest moves."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from koordcore.cli.descheduler_files import (
    COOLING,
    PluginFile,
    also_migrates,
    read_plugin_file,
    say_idle,
)
from koordcore.cli.idle_arguments import idle_cooling
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_now, add_paths, as_of, load_paths, need_folder, read_now
from koordcore.cli.layout import Column, Table
from koordcore.cli.migration_jobs import print_arbitration
from koordcore.cli.moves import (
    COOLING_AIMS,
    add_plan_options,
    add_rules,
    budget_of,
    certificate_text,
    chosen,
    moves_table,
    print_plan,
    read_rules,
)
from koordcore.cli.progress import working
from koordcore.cli.resource_names import meant, offered_names
from koordcore.cli.selection import need_tables
from koordcore.cli.tables import say, show
from koordcore.cli.words import many
from koordcore.descheduling.args import low_node_load_problems
from koordcore.descheduling.load_problem import resource_of
from koordcore.descheduling.moves import MoveProblem
from koordcore.descheduling.plan import RebalancePlan
from koordcore.descheduling.plans import compare_round, plan_cooling
from koordcore.errors import ModelError
from koordcore.manifests import load
from koordcore.model.metrics import NodeMetric
from koordcore.model.moves import Move
from koordcore.model.rebalance import DEFAULT_POOL, LowNodeLoadArgs
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.rebalance import default_low_node_load, low_node_load_args
from koordcore.protocol.times import moment_of
from koordcore.snapshot import ClusterSnapshot

HIGH: Final = "cpu=65,memory=80"
"""Thresholds where nobody gives any."""
_COOLS: Final = "is about hot nodes; --jobs plans no moves"
_ALL: Final = 100
"""Percent."""
_NAMES: Final = 4
"""Nodes that are named where many are alike."""
EPILOG: Final = """\
examples:
  koordcore rebalance cluster.yaml --high cpu=65,memory=80
  koordcore rebalance cluster.yaml --high cpu=65 --compare
  koordcore rebalance cluster.yaml --high cpu=65 -o patches
  koordcore rebalance cluster.yaml --args lownodeload.json
  koordcore rebalance cluster.yaml --jobs --migration migration.json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Plan the fewest moves that cool every hot node without heating another."
    parser.epilog = EPILOG
    add_paths(parser)
    add_rules(parser)
    parser.add_argument("--metrics", metavar="FILE", help="NodeMetric objects, where the dump has none")
    parser.add_argument(
        "--args",
        type=Path,
        metavar="FILE",
        help="LowNodeLoadArgs, or the descheduler's whole configuration, then with its MigrationController, "
        "as JSON or YAML",
    )
    parser.add_argument(
        "--high",
        metavar="PERCENTS",
        help=f"thresholds where --args is left out ({HIGH})",
    )
    parser.add_argument("--prod-high", metavar="PERCENTS", help="thresholds for what prod pods use (none)")
    parser.add_argument(
        "--compare", action="store_true", help="say what the reference's LowNodeLoad would do in one round"
    )
    parser.add_argument(
        "--jobs",
        action="store_true",
        help="instead: arbitrate the dump's waiting PodMigrationJobs by --migration",
    )
    add_now(parser, "the newest metric's")
    add_plan_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, check, print; 1 when a node stays hot, or none was looked at."""
    need_folder(arguments.proofs, "--proofs")
    need_tables(arguments)
    if arguments.jobs:
        thresholds = ("--high", "--prod-high", "--metrics", "--compare", "--effort", "--proofs")
        need_use_of(arguments, _COOLS, *thresholds)
        places = ("--policy", "--profile", "--all-schedulers", "--gang-fit", "--joint-gangs", "--now")
        need_use_of(arguments, "is about where pods go; --jobs asks who may leave, by --migration", *places)
    given_apart = arguments.migration is not None
    also_migrates(arguments)
    if arguments.jobs and (given_apart or arguments.migration is None):
        # A whole configuration that is given alone has the arguments of the migration controller.
        need_use_of(arguments, f"{_COOLS}, and arbitration goes by --migration", "--args")
    snapshot, given = as_of(arguments, load_paths(arguments).snapshot), read_now(arguments)
    if arguments.jobs:
        return print_arbitration(snapshot, read_rules(arguments, snapshot).migration, arguments)
    metrics = {one.node: one for one in snapshot.of(NodeMetric)}
    if arguments.metrics:
        extra = load([arguments.metrics], sys.stdin, strict=True).snapshot
        if not extra.has(NodeMetric):
            raise ModelError(f"--metrics: no NodeMetric in {arguments.metrics}")
        metrics |= {one.node: one for one in extra.of(NodeMetric)}
    if not metrics:
        raise ModelError("no NodeMetric in the dump; give them with --metrics")
    args = read_args(arguments, snapshot, metrics.values())
    # Left to itself a dump is judged by its own clock: the latest report is taken to be of now.
    latest = max((one.update_time or 0 for one in metrics.values()), default=0)
    now = latest if given is None else moment_of(given)
    rules = read_rules(arguments, snapshot)
    with working(f"balancing {len(snapshot.nodes)} nodes, in steps") as step:
        moving = plan_cooling(
            snapshot,
            args,
            now=now,
            metrics=metrics,
            rules=rules,
            budget=budget_of(arguments),
            progress=step,
        )
    won: dict[str, Any] = {"hotBefore": list(moving.plan.before), "hotAfter": list(moving.plan.after)}
    if moving.plan.why:
        won["why"] = {name: list(reasons) for name, reasons in moving.plan.why.items()}
    if moving.plan.leaving:
        won["leaving"] = [str(key) for key in moving.plan.leaving]
    if moving.plan.hot_again:
        won["hotAgain"] = list(moving.plan.hot_again)
    if moving.plan.unmeasured:
        won["unmeasured"] = list(moving.plan.unmeasured)
    for line in () if arguments.quiet else _unmeasured(moving.plan, metrics, args.metric_expiration):
        print(f"not looked at: {line}", file=sys.stderr)
    other = None
    if arguments.compare:
        other = compare_round(snapshot, args, moving.problem, now=now, metrics=metrics, rules=rules)
        waiting = [str(key) for key in other.waiting]
        won["reference"] = {"evictions": other.evictions, "waiting": waiting, "hotAfter": list(other.after)}

    def tables() -> None:
        _print_tables(moving.problem, moving.plan, chosen(arguments, snapshot, moving.plan.moves))
        if other is not None:
            pods = f"{many(other.evictions, 'eviction')}, {many(len(other.waiting), 'pod')} without a place"
            say(f"LowNodeLoad in one round: {pods}, {many(len(other.after), 'hot node')} after")

    print_plan(arguments, snapshot, moving, rules, won=won, tables=tables, reason="node is overutilized")
    blind = moving.plan.unmeasured and len(moving.plan.unmeasured) == len(snapshot.nodes)
    return 1 if moving.plan.after or blind else 0


def _unmeasured(plan: RebalancePlan, metrics: Mapping[str, NodeMetric], expiration: int) -> Iterator[str]:
    """Name the nodes that may be hot and that nobody looked at."""
    stale = [name for name in plan.unmeasured if name in metrics]
    for names, what in (
        ([name for name in plan.unmeasured if name not in metrics], "without a NodeMetric"),
        (stale, f"whose NodeMetric tells no usage or is {expiration} s old or older"),
    ):
        if names:
            more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            yield f"{many(len(names), 'node')} {what}: {', '.join(names[:_NAMES])}{more}"


def read_args(
    arguments: argparse.Namespace, snapshot: ClusterSnapshot, metrics: Iterable[NodeMetric]
) -> LowNodeLoadArgs:
    """Read thresholds from a file or from the command line.

    Parameters
    ----------
    arguments
        As they were typed.
    snapshot, metrics
        What nodes offer and use; a file may name other resources, which upstream takes.

    Raises
    ------
    ManifestError
        With what cannot be read, or what upstream's validation says.
    """
    if arguments.args is None:
        known = offered_names(snapshot) | {name for one in metrics for name in one.node_usage or ()}
        high = HIGH if arguments.high is None else arguments.high
        typed = {"highThresholds": _percents("--high", high, known)}
        if arguments.prod_high is not None:
            typed["prodHighThresholds"] = _percents("--prod-high", arguments.prod_high, known)
        read = PluginFile(typed)
    else:
        need_use_of(arguments, "thresholds stand in --args", "--high", "--prod-high")
        read = read_plugin_file("--args", arguments.args, COOLING)
        say_idle(arguments, "--args", read)
    read.refuse(low_node_load_problems(read.read(default_low_node_load)))
    args = read.read(low_node_load_args)
    if not arguments.quiet:
        # What the reference's own round looks at, with --compare, is looked at.
        idle = () if getattr(arguments, "compare", False) else idle_cooling(read.args, args, "--args")
        for line in (*_beyond_all(args), *idle):
            print(f"warning: {line}", file=sys.stderr)
    return args


def _beyond_all(args: LowNodeLoadArgs) -> Iterator[str]:
    """Name the thresholds that no node reaches: upstream takes them, and then cools nothing."""
    for pool in args.pools:
        for what, table in (("high", pool.high), ("prod high", pool.prod_high)):
            for name, percent in sorted((table or {}).items()):
                if percent > _ALL:
                    where = "" if pool.name == DEFAULT_POOL else f" of pool {pool.name}"
                    share = f"{name} {percent:g} %"
                    yield f"{what} threshold{where}: {share} is more than a node has: it makes none hot"


def _percents(option: str, text: str, known: Collection[str]) -> dict[str, float]:
    percents: dict[str, float] = {}
    for part in text.rstrip(",").split(","):
        name, _, value = part.partition("=")
        name = name.strip()
        try:
            percent = float(value)
            if not isfinite(percent) or not name:
                raise ValueError
        except ValueError:
            raise ModelError(f'{option}: expected NAME=PERCENT, got "{part}"') from None
        if name in percents:
            raise ModelError(f"{option}: {name} stands there twice")
        if name not in (CPU, MEMORY, *known):
            raise ModelError(f"{option}: no node has {name}{meant(name, {CPU, MEMORY, *known})}")
        percents[name] = percent
    return percents


def _print_tables(problem: MoveProblem, plan: RebalancePlan, shown: tuple[Move, ...]) -> None:
    names = [host for host in problem.hosts if host.name in plan.before]
    away: dict[str, dict[str, int]] = {}
    movable = {one.pod: one for one in problem.movable}
    for move in plan.moves:
        for name, amount in movable[move.pod].usage.items():
            for node, sign in ((move.source, -1), (move.target, 1)):
                change = away.setdefault(node, {})
                change[name] = change.get(name, 0) + sign * amount
    rows = []
    for host in names:
        for name, limit in sorted(host.high.items()):
            room = host.allocatable.get(resource_of(name), 0)
            used = host.usage.get(name, 0)
            after = used + away.get(host.name, {}).get(name, 0)
            if room and max(used, after) > limit:
                shares = [f"{value * 100 / room:.1f}%" for value in (used, after, limit)]
                rows.append((host.name, name, *shares))
    columns = (
        Column("NODE"),
        Column("RESOURCE"),
        Column("BEFORE", number=True),
        Column("AFTER", number=True),
        Column("LIMIT", number=True),
    )
    tables = [Table(title="Hot nodes", columns=columns, rows=rows)] if rows else []
    if plan.moves:
        tables.append(
            moves_table(
                shown, certificate_text(plan.certificate, "cools more with fewer moves", COOLING_AIMS)
            )
        )
    show(*tables)
    hot, moves = many(len(plan.before), "hot node"), many(len(plan.moves), "move")
    say(
        f"{hot} before, {len(plan.after)} after, {moves}"
        + (f"; still hot: {', '.join(plan.after)}" if plan.after else "")
    )
    if plan.hot_again:
        say(f"hot again by the average after these moves: {', '.join(plan.hot_again)}")
    if plan.leaving:
        named = ", ".join(str(key) for key in plan.leaving[:_NAMES])
        more = f" and {len(plan.leaving) - _NAMES} more" if len(plan.leaving) > _NAMES else ""
        say(f"on their way already, and counted as gone: {named}{more}")
    for name, reasons in sorted(plan.why.items()):
        say(f"{name} stays hot: {'; '.join(reasons)}")
    if not plan.moves and plan.before:
        say(certificate_text(plan.certificate, "cools more", COOLING_AIMS))
