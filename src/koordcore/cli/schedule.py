"""``koordcore schedule``: place the pending pods of a dump."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from koordcore.checking import verify
from koordcore.cli.inputs import (
    add_lend,
    add_now,
    add_paths,
    as_of,
    lent,
    load_paths,
    need_folder,
    read_now,
    say_left_out,
    say_podless,
)
from koordcore.cli.output import add_limit, add_output, for_programs, print_record
from koordcore.cli.plan_tables import Rows, cut, print_tables
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.progress import working
from koordcore.cli.queues import Decided, decide, workload_record, workloads_table
from koordcore.cli.selection import Selection, add_selection, need_tables, selection_of
from koordcore.cli.tables import show
from koordcore.errors import ModelError
from koordcore.manifests import Loaded
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.proof_records import certificates_of, proofs_record
from koordcore.manifests.records import result_record
from koordcore.model.claims import DeviceClass
from koordcore.model.decisions import Unschedulable
from koordcore.model.preemption import PreemptionRules, Relocation
from koordcore.result import ScheduleResult
from koordcore.simulate.record import write_record
from koordcore.snapshot import ClusterSnapshot

EPILOG: Final = """\
examples:
  koordcore schedule cluster.yaml              where each workload goes
  koordcore schedule cluster.yaml --expand     each pod, with score and devices
  koordcore schedule cluster.yaml -l app=urgent -o wide
  koordcore schedule cluster.yaml --sort-by pods
  koordcore schedule cluster.yaml --preempt    also who would have to go
  koordcore schedule cluster.yaml --preempt --relocate  or who could move
  koordcore schedule cluster.yaml --policy koordinator
  koordcore schedule cluster.yaml --joint-gangs  gangs together, not one by one
  koordcore schedule cluster.yaml --layers rack=topology.kubernetes.io/zone
  koordcore schedule cluster.yaml -o json      for programs, and `verify`
  koordcore schedule cluster.yaml -o patches   what a controller would send
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Place the pending pods of a cluster dump and check the plan."
    parser.epilog = EPILOG
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    parser.add_argument(
        "--preempt",
        action="store_true",
        help="plan who has to go for jobs that find no place, and show whose job it is and what it costs",
    )
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="with --preempt: move pods that fit elsewhere instead, and prefer those who can move",
    )
    add_output(parser, "patches", watch=True)
    add_selection(parser)
    parser.add_argument("--expand", action="store_true", help="a row for each pod, not for each workload")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the call down, for `koordcore simulate FILE`"
    )
    parser.add_argument(
        "--proofs",
        type=Path,
        metavar="FILE",
        help="write down why nothing better exists, for `koordcore verify --proofs FILE`",
    )
    add_limit(parser, 40, "rows per table (40); 0 shows all of them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Schedule, verify, print; 1 when a pod is unschedulable."""
    if arguments.relocate and not arguments.preempt:
        print("koordcore: --relocate: pods move only for a job that preempts; add --preempt", file=sys.stderr)
        return 2
    if arguments.as_gangs and arguments.output == "patches":
        print(
            "koordcore: --as-gangs: pods that nobody has made cannot be bound; -o json plans", file=sys.stderr
        )
        return 2
    need_folder(arguments.record, "--record")
    need_folder(arguments.proofs, "--proofs")
    if arguments.proofs is not None and arguments.proofs == arguments.record:
        raise ModelError(f"--proofs: {arguments.proofs} is the file of --record")
    selection = selection_of(arguments)
    need_tables(arguments)
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
        # The library promises that this cannot happen; if it does, nobody should act on the plan.
        for violation in violations:
            print(f"koordcore: the plan is not legal: {violation}", file=sys.stderr)
        return 1
    if arguments.record and decided.workloads:
        print("koordcore: --record: a call with Workloads of Kueue cannot be written down", file=sys.stderr)
        return 2
    if arguments.record:
        record = write_record(snapshot, None, result, policy=policy, now=now, preempt=rules)
        arguments.record.write_text(record, encoding="utf-8")
    if arguments.proofs:
        proofs = proofs_record(certificates_of(result))
        arguments.proofs.write_text(json.dumps(proofs) + "\n", encoding="utf-8")
    _warn(arguments, loaded, snapshot, result)
    _print(arguments, decided, selection, now)
    left = any(not one.admitted for one in decided.workloads)
    return 1 if left or any(isinstance(one, Unschedulable) for one in result.decisions) else 0


def _warn(
    arguments: argparse.Namespace, loaded: Loaded, snapshot: ClusterSnapshot, result: ScheduleResult
) -> None:
    """Say on standard error what was not looked at, and what could not be."""
    say_left_out(result, quiet=arguments.quiet)
    if snapshot.has(DeviceClass) and not arguments.quiet:
        from koordcore.explaining.selector_errors import selector_errors  # few clusters have classes

        for message in selector_errors(snapshot, snapshot.pending):
            print(f"warning: {message}", file=sys.stderr)
    say_podless(arguments, loaded)


def _print(
    arguments: argparse.Namespace, decided: Decided, selection: Selection, now: datetime | None
) -> None:
    """Print the plan in the way that is asked for."""
    result = decided.result
    if arguments.output == "patches":
        print_patches(result, now)
        if arguments.lend:
            _print_settings(result)
    elif for_programs(arguments):
        print_record(arguments, _record(decided))
    else:
        if decided.workloads:
            show(cut(workloads_table(decided.workloads), arguments.limit))
        expand = arguments.expand or arguments.output == "name"
        print_tables(result, Rows(arguments.limit, expand, selection))


def _print_settings(result: ScheduleResult) -> None:
    """Print what the agents of their nodes set for the pods that were placed."""
    from koordcore.colocation.agent import pod_settings

    placed = {one.pod: one.node for one in result.bound}
    for one in pod_settings(result.snapshot, set(placed.values())):
        if one.pod in placed:
            print(json.dumps(one.record()))


def _record(decided: Decided) -> dict[str, object]:
    record = result_record(decided.result)
    return record | (
        {"workloads": [workload_record(one) for one in decided.workloads]} if decided.workloads else {}
    )


def print_patches(result: ScheduleResult, now: datetime | None = None) -> None:
    """Print what a controller would send to the API server, one JSON object per line, in that order."""
    # The command line alone may look at a clock; device plugins find new pods by the time of their binding.
    for call in patches(result, now=now, bound_at=now or datetime.now(UTC)):
        print(json.dumps(call.to_json()))
