"""``koordcore diff``: how two plans or two dumps differ, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.inputs import add_lend, add_now, add_paths, as_of, lent, load_paths, read_now
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import add_limit, add_output, for_programs, print_record
from koordcore.cli.placing import place
from koordcore.cli.plan_tables import cut
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.selection import add_selection, nobody_selected, selection_of
from koordcore.cli.tables import say, show
from koordcore.errors import ModelError
from koordcore.explaining.cluster_changes import ClusterDifference, cluster_differences
from koordcore.explaining.differences import PlanDifference, plan_differences
from koordcore.explaining.workloads import stand_in_names
from koordcore.manifests.records import FORMAT, result_from_record
from koordcore.model.pods import PodKey
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

EPILOG: Final = """\
Two dumps are compared, and what `schedule` makes of each; or two plans of one
dump, as `schedule -o json` prints them, with the dump after them.

examples:
  koordcore diff monday.yaml tuesday.yaml
  koordcore diff a.json b.json cluster.yaml
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Say how two plans or two dumps differ, and why."
    parser.epilog = EPILOG
    parser.add_argument("first", metavar="FIRST", help="a dump, or a plan in JSON")
    parser.add_argument("second", metavar="SECOND", help="the other one")
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    add_selection(parser)
    add_output(parser, watch=True)
    add_limit(parser, 40, "rows per table (40); 0 shows all of them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; 1 when there is a difference."""
    records = _plan(arguments.first), _plan(arguments.second)
    if (records[0] is None) != (records[1] is None):
        raise ModelError("diff: one is a plan and one is a dump; give two plans and their dump, or two dumps")
    return compare_plans(arguments, *records) if records[0] is not None else _compare_dumps(arguments)


def compare_plans(arguments: argparse.Namespace, first: Any, second: Any) -> int:
    """Say why two plans of one dump differ; 1 when they do."""
    snapshot = lent(arguments, as_of(arguments, load_paths(arguments).snapshot))
    policy = read_policy(arguments)
    plans = [result_from_record(snapshot, one, policy=policy) for one in (first, second)]
    return _print(arguments, (), plans[0], plans[1])


def _compare_dumps(arguments: argparse.Namespace) -> int:
    if arguments.paths:
        raise ModelError(f"diff: two dumps are enough: {arguments.paths[0]} is one too many")
    if arguments.first == arguments.second == "-":
        raise ModelError("diff: standard input can be read only once; give a file for one of the dumps")
    loaded = [_load(arguments, path) for path in (arguments.first, arguments.second)]
    nobody = [nobody_selected(arguments, one) for one in loaded]
    if all(nobody) and not arguments.quiet:
        print(nobody[0], file=sys.stderr)
    policy, now = read_policy(arguments), read_now(arguments)
    snapshots = [lent(arguments, as_of(arguments, one)) for one in loaded]
    plans = [place(snapshot, policy, now) for snapshot in snapshots]
    return _print(arguments, cluster_differences(*snapshots), plans[0], plans[1])


def _load(arguments: argparse.Namespace, path: str) -> ClusterSnapshot:
    own = argparse.Namespace(**{**vars(arguments), "paths": [path], "namespace": None, "selector": None})
    snapshot = load_paths(own).snapshot
    arguments.unreadable = [*getattr(arguments, "unreadable", ()), *own.unreadable]
    return snapshot


def _plan(path: str) -> Any:
    """Read a plan; ``None`` where the file is something else.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    if path == "-" or not path.endswith(".json") or not Path(path).is_file():
        return None
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.get("format") == FORMAT else None


def read_plan(path: str, option: str) -> Any:
    """Read a plan.

    Raises
    ------
    ModelError
        When the file is none.
    """
    record = _plan(path)
    if record is None:
        raise ModelError(f"{option}: {path}: expected a plan, as `koordcore schedule -o json` prints it")
    return record


def _print(
    arguments: argparse.Namespace,
    changes: tuple[ClusterDifference, ...],
    first: ScheduleResult,
    second: ScheduleResult,
) -> int:
    selection = selection_of(arguments)
    pods = {
        pod.key: pod
        for plan in (first, second)
        for pod in (*plan.snapshot.pending, *plan.snapshot.bound_pods())
    }
    found = [
        one
        for one in plan_differences(first, second, changes)
        if selection.all or (one.pod in pods and selection.pod(pods[one.pod]))
    ]
    names = {**stand_in_names(first.snapshot), **stand_in_names(second.snapshot)}
    if for_programs(arguments):
        stands = {key: {"standsFor": name} for key, name in names.items()}
        record = {
            "cluster": [attrs.asdict(one) for one in changes],
            "decisions": [
                {**attrs.asdict(one, recurse=False), "pod": str(one.pod), **stands.get(one.pod, {})}
                for one in found
            ],
        }
        print_record(arguments, record)
    else:
        tables = [_changes_table(changes)] if changes else []
        nodes = {*first.snapshot.layout.names, *second.snapshot.layout.names}
        tables += [_decisions_table(found, names, nodes)] if found else []
        show(*(cut(one, arguments.limit) for one in tables))
        decided = _count(len(found), "pod")
        say(f"{_count(len(changes), 'change')} of the cluster · {decided} decided differently")
    return 1 if changes or found else 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _changes_table(changes: tuple[ClusterDifference, ...]) -> Table:
    columns = (Column("KIND"), Column("NAME", tone=Tone.NAME), Column("WHAT", text=True))
    return Table(
        title="In the cluster", columns=columns, rows=[(one.kind, one.name, one.what) for one in changes]
    )


def _decisions_table(
    found: list[PlanDifference], names: Mapping[PodKey, str], nodes: Collection[str]
) -> Table:
    columns = (
        Column("POD", tone=Tone.NAME),
        Column("FIRST"),
        Column("SECOND"),
        Column("BECAUSE", text=True),
    )
    rows = []
    for one in found:
        said = {"first": one.first, "second": one.second}
        refused = [f"{which}: {text}" for which, text in said.items() if text and text not in nodes]
        placed = [text if text in nodes else "–" for text in said.values()]
        rows.append(
            (names.get(one.pod, str(one.pod)), *placed, "; ".join([*filter(None, [one.why]), *refused]))
        )
    return Table(title="Decided differently", columns=columns, rows=rows)
