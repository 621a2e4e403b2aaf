"""``koordcore simulate``: replay traces under one policy or several."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import need_picture, say_unreadable
from koordcore.cli.interrupt import INTERRUPTED
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import add_output, for_programs, print_record
from koordcore.cli.own_policies import own_policy
from koordcore.cli.policies import policy_called
from koordcore.cli.pools import WorkerPool
from koordcore.cli.progress import add_quiet, working
from koordcore.cli.tables import show
from koordcore.cli.words import many
from koordcore.errors import ManifestError, ModelError
from koordcore.explaining.ends import expectations
from koordcore.framework import Plugin
from koordcore.manifests import load
from koordcore.manifests.named_policies import POLICY_NAMES, named_policy
from koordcore.manifests.podless import OPENED_KINDS
from koordcore.model.claims import DeviceClass
from koordcore.model.kueue import KueueWorkload
from koordcore.model.policy import Policy
from koordcore.model.scheduling_groups import SchedulingPodGroup, SchedulingWorkload
from koordcore.protocol.extended_resources import classes_by_resource
from koordcore.scheduling.plugins.gpu_share import demand_of
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_policies import PolicyLike, PolicyName, make_policy
from koordcore.scoring.gpu_share import GpuDemand
from koordcore.simulate.cluster import arrivals_of, nodes_of
from koordcore.simulate.engine import replay
from koordcore.simulate.events import Refused
from koordcore.simulate.plots import PlotKind, plot
from koordcore.simulate.reader import TraceFolder, read_text
from koordcore.simulate.record import is_record, replay_record
from koordcore.simulate.report import Summary, csv_text, json_text, summaries
from koordcore.simulate.scenario import Cell, CellResult, Clock, play_cell, summarise, summarise_schedule
from koordcore.simulate.scheduled import replay_schedule, stream_of
from koordcore.simulate.sweeps import ResultFolder, SweepResult, sweep
from koordcore.snapshot import ClusterSnapshot

ALL: Final = "all"
DEFAULT_TRACE: Final = "default"
_OF_CLAIMS: Final = ("default", "spread")
"""Policies that are compared where pods ask for devices by claims."""
_OF_TRACES: Final = ("--trace", "--clock", "--compress", "--store")
_PLAYED: Final = f"--policy {', '.join(POLICY_NAMES[:-1])} and {POLICY_NAMES[-1]} play them"
EPILOG: Final = """\
A folder holds nodes.csv, pods_<trace>.csv and, where there are stored runs, runs.json;
each may be compressed.

examples:
  koordcore simulate openb --policy fgd --seed 42
  koordcore simulate openb --trace all --policy all --store results
  koordcore simulate openb --policy fgd --plot allocation.svg
  koordcore simulate openb --policy fgd --policy mine:Tightest --plot mine.pdf
  koordcore simulate cluster.yaml --policy fgd --policy bestfit
  koordcore simulate claims.yaml      pods with claims, through `schedule`
  koordcore simulate cluster.yaml --as-gangs   with jobs that have no pods yet
  koordcore simulate call.json        written by `schedule --record call.json`
  koordcore simulate openb --clock trace --compress 400 --kind waiting \\
      --plot waiting.png
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Replay traces of GPU tasks and compare what policies make of them."
    parser.epilog = EPILOG
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="nodes.csv and pods_<trace>.csv; or a dump whose pending pods arrive when they were created; "
        "or a call that `koordcore schedule --record FILE` wrote down",
    )
    parser.add_argument(
        "--trace", action="append", metavar="NAME", help="which trace; repeat for several, or `all`"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME|FILE|MODULE:NAME",
        help=f"{', '.join(PolicyName)}, {ALL}, or your own; repeat for several (default: bestfit and fgd). "
        f"Of a dump also {', '.join(POLICY_NAMES)}, a KubeSchedulerConfiguration, or a Policy or Plugin "
        f"of your own, which `schedule` plays; where its pods ask for devices by claims the default is "
        f"{' and '.join(_OF_CLAIMS)}",
    )
    parser.add_argument(
        "--seed",
        action="append",
        type=int,
        metavar="N",
        help="order of arrival, and of nodes that are equally good; repeat for several (42)",
    )
    parser.add_argument(
        "--clock",
        choices=tuple(Clock),
        help="fill: ask for 1.3 times the cluster, nobody leaves (default); trace: the trace's own times",
    )
    parser.add_argument(
        "--compress",
        type=int,
        metavar="N",
        help="with the trace's own times: N times the load (1)",
    )
    parser.add_argument("-j", "--workers", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument(
        "--as-gangs",
        action="store_true",
        help="of a dump: jobs whose pods are still to be made arrive as gangs, as `schedule` takes them",
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="keep results there, and resume from it; those of other traces of the same names are not taken",
    )
    add_quiet(parser)
    add_output(parser, "csv")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a PNG, SVG or PDF")
    parser.add_argument(
        "--kind", choices=tuple(PlotKind), help=f"what to draw with --plot ({PlotKind.ALLOCATION})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay, print, draw; 1 when a run was given up or a recorded call comes out differently."""
    need_picture(arguments.plot)
    _check(arguments)
    if arguments.folder.is_file():
        text = read_text(arguments.folder)
        if is_record(text):
            idle = ("--policy", "--plot", "--kind", "--as-gangs", *_OF_TRACES, "--seed", "--sort-by")
            need_use_of(arguments, "a recorded call is made again as it was", *idle)
            return _replay_record(text)
        need_use_of(arguments, "is about traces; pods of a dump arrive when they were created", *_OF_TRACES)
        if len(arguments.seed or ()) > 1:
            raise ModelError("--seed: a dump is played once; give one")
        return _print(SweepResult(_play_dump(arguments)), arguments)
    cells = _cells(arguments)
    with TemporaryDirectory() as folder:
        # What is done is kept, so that it can be shown when somebody has seen enough.
        store = ResultFolder(arguments.store or Path(folder), _known_by(arguments.folder, cells))
        try:
            return _print(_play(cells, arguments, store), arguments)
        except KeyboardInterrupt:
            done = tuple(filter(None, map(store.load, cells)))
            _print(SweepResult(done), arguments)
            print(f"koordcore: {len(done)} of {len(cells)} runs are done", file=sys.stderr)
            return INTERRUPTED


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what would change nothing, or could not be done, before the work."""
    for flag in ("workers", "compress"):
        number = getattr(arguments, flag)
        if number is not None and number < 1:
            raise ModelError(f"--{flag}: must be at least 1, got {number}")
    fills = arguments.clock in (None, Clock.FILL) and not arguments.folder.is_file()
    if fills and (arguments.compress or 1) > 1:
        raise ModelError("--compress: changes nothing without --clock trace")
    if arguments.plot is None:
        need_use_of(arguments, "changes nothing without --plot", "--kind")
    if fills and arguments.kind == PlotKind.WAITING:
        raise ModelError("--kind waiting: nobody waits without --clock trace")
    if arguments.as_gangs and not arguments.folder.is_file():
        raise ModelError("--as-gangs: a folder of traces has no jobs; it is about a dump")
    if arguments.store is not None:
        try:
            arguments.store.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"--store: {arguments.store}: {error.strerror}") from None


def _print(result: SweepResult, arguments: argparse.Namespace) -> int:
    for cell, reason in result.failed:
        print(f"koordcore: {cell.name}: {reason}", file=sys.stderr)
    if arguments.output == "csv":
        print(csv_text(result.results), end="")
    elif for_programs(arguments):
        print_record(arguments, json.loads(json_text(result.results)))
    elif result.results:
        _print_tables(result.results)
    if arguments.plot and result.results:
        plot(result.results, _kind(arguments), arguments.plot)
    return 1 if result.failed else 0


def _kind(arguments: argparse.Namespace) -> PlotKind:
    return PlotKind.ALLOCATION if arguments.kind is None else PlotKind(arguments.kind)


def _play_dump(arguments: argparse.Namespace) -> tuple[CellResult, ...]:
    """Let the pending pods of a dump arrive when they were created."""
    loaded = load([arguments.folder], as_gangs=arguments.as_gangs)
    arguments.unreadable = say_unreadable(loaded)
    if not loaded.counts and loaded.problems:
        raise ModelError(f"{arguments.folder}: nothing in it can be read")
    # What cannot be read of a pod that waits is what it would ask for: nobody knows whom to let arrive.
    snapshot = loaded.snapshot.forget(*(pod.key for pod in loaded.snapshot.pending if pod.unreadable))
    for warning in () if arguments.quiet else loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    queued = sum(one.waits for one in snapshot.of(KueueWorkload))
    if queued and arguments.as_gangs and not arguments.quiet:
        print(f"not looked at: quota of {queued} Workloads of Kueue", file=sys.stderr)
    if not snapshot.pending:
        jobs = sum(number for kind, number in loaded.podless.items() if kind in OPENED_KINDS)
        hint = f"; --as-gangs takes {many(jobs, 'job')} without pods for gangs" if jobs else ""
        raise ModelError(f"{arguments.folder}: no pod waits, so nobody arrives{hint}")
    classes = classes_by_resource(snapshot.of(DeviceClass))
    claiming = sum(
        bool(pod.resource_claims) or any(name in classes for name in pod.requests) for pod in snapshot.pending
    )
    scheduled = _of_schedule(arguments)
    if scheduled or (claiming and not arguments.policy):
        return tuple(_play_scheduled(snapshot, arguments, scheduled))
    if claiming and not arguments.quiet:
        message = f"{claiming} of {len(snapshot.pending)} pods that wait ask for devices by claims"
        print(f"warning: {message}: this replay looks at cards only; {_PLAYED}", file=sys.stderr)
    groups: tuple[SchedulingPodGroup | SchedulingWorkload, ...] = (
        *snapshot.of(SchedulingPodGroup),
        *snapshot.of(SchedulingWorkload),
    )
    nodes, events = nodes_of(snapshot), arrivals_of(snapshot.pending, groups)
    mix = workload_mix([demand_of(pod) for pod in (*snapshot.bound_pods(), *snapshot.pending)])
    results = []
    for name, meant in _policies(arguments).items():
        seed = (arguments.seed or [42])[0]
        policy = make_policy(meant, mix, nodes=nodes, seed=seed)
        result = replay(nodes, events, policy, mix=mix, refused=Refused.WAITS)
        cell = Cell(arguments.folder.name.split(".")[0], name, seed, Clock.TRACE)
        results.append(summarise(cell, result))
    return tuple(results)


def _of_schedule(arguments: argparse.Namespace) -> dict[str, Policy]:
    """Give the policies of ``schedule`` that were asked for; the others look at cards alone."""
    names: list[str] = arguments.policy or []
    found = {name: policy for name in names if (policy := _scheduling(name, quiet=arguments.quiet))}
    other = next((name for name in names if name not in found), "")
    if found and other:
        raise ModelError(
            f"--policy {other}: looks at cards only, and is not comparable with {next(iter(found))}"
        )
    return found


def _scheduling(name: str, *, quiet: bool) -> Policy | None:
    """Read a policy of ``schedule``: a known one, a configuration, or one's own; ``None`` for another."""
    if name in POLICY_NAMES or Path(name).is_file():
        return policy_called(name, quiet=quiet)
    own: object = None if name in tuple(PolicyName) else own_policy(name)
    ours = isinstance(own, Policy) or (isinstance(own, type) and issubclass(own, Plugin))
    return policy_called(name, quiet=quiet) if ours else None


def _play_scheduled(
    snapshot: ClusterSnapshot, arguments: argparse.Namespace, policies: Mapping[str, Policy]
) -> Iterator[CellResult]:
    """Let the pods arrive one after another and ``schedule`` give them nodes, devices of claims among it."""
    if arguments.output == "csv":
        raise ModelError("-o csv: is by percent arrived; of claims -o json tells what is in use over time")
    if arguments.plot and (kind := _kind(arguments)) is not PlotKind.WAITING:
        raise ModelError(f"--kind {kind}: of claims only those who wait are drawn (--kind waiting)")
    cluster, events = stream_of(snapshot, *expectations(snapshot, None))
    for name, policy in (policies or {name: named_policy(name) for name in _OF_CLAIMS}).items():
        with working(f"playing {name}") as step:
            result = replay_schedule(cluster, events, policy=policy, progress=step)
        yield summarise_schedule(Cell(arguments.folder.name.split(".")[0], name, 0, Clock.TRACE), result)


def _replay_record(text: str) -> int:
    again = replay_record(text)
    if again.same:
        plans = len(again.result.preemptions)
        preempting = f" and {plans} preemption plan{'s' * (plans != 1)}" if plans else ""
        print(f"the same {len(again.result.decisions)} decisions{preempting}, sha256 {again.digest}")
        return 0
    print(f"not the same: {again.difference}")
    print(f"  recorded sha256 {again.recorded}")
    print(f"  now      sha256 {again.digest}")
    return 1


def _policies(arguments: argparse.Namespace) -> dict[str, PolicyLike]:
    """Give what was asked for by name; each is made once, so that a mistake comes before the work."""
    names = arguments.policy or [PolicyName.BEST_FIT, PolicyName.FGD]
    if ALL in names:
        names = [*PolicyName, *(name for name in names if name != ALL and name not in tuple(PolicyName))]
    found = {str(name): own_policy(name) or str(name) for name in names}
    for policy in found.values():
        make_policy(policy, workload_mix([GpuDemand(gpus=1)]))
    return found


def _cells(arguments: argparse.Namespace) -> list[Cell]:
    there = TraceFolder(arguments.folder).traces()
    if not there:
        raise ModelError(f"{arguments.folder}: no pods_<trace>.csv")
    asked = arguments.trace or [DEFAULT_TRACE if DEFAULT_TRACE in there else there[0]]
    traces = there if ALL in asked else asked
    unknown = [name for name in traces if name not in there]
    if unknown:
        raise ModelError(f"no trace {unknown[0]} in {arguments.folder}; there are {', '.join(there)}")
    policies = _policies(arguments)
    clock = Clock(arguments.clock or Clock.FILL)
    seeds = arguments.seed or [42]
    return [
        Cell(trace, policy, seed, clock, arguments.compress or 1)
        for trace in traces
        for policy in policies
        for seed in seeds
    ]


def _known_by(folder: Path, cells: Iterable[Cell]) -> dict[str, str]:
    """Give what the traces are known by; one that cannot be read fails when it is played."""
    found = {}
    for trace in sorted({cell.trace for cell in cells}):
        with suppress(ManifestError):
            found[trace] = TraceFolder(folder).fingerprint(trace)
    return found


def _play(cells: list[Cell], arguments: argparse.Namespace, store: ResultFolder) -> SweepResult:
    own = {name: meant for name, meant in _policies(arguments).items() if not isinstance(meant, str)}
    play = partial(play_cell, arguments.folder, policies=own)
    with working("playing", len(cells)) as step:
        return sweep(
            cells,
            play,
            partial(WorkerPool, arguments.workers),
            store=store,
            progress=lambda progress: step(progress.done),
        )


def _print_tables(results: tuple[CellResult, ...]) -> None:
    filled = [one for one in results if one.cell.clock is Clock.FILL]
    timed = [one for one in results if one.cell.clock is Clock.TRACE]
    if filled:
        _print_filled(filled)
    if timed:
        _print_timed(timed)
    means = summaries(filled)
    if len(means) < len(filled):
        _print_means(means)


def _print_filled(results: Sequence[CellResult]) -> None:
    names = ("AT 100 %", "AT 130 %", "FRAGMENTED", "REFUSED")
    rows = [
        (
            *_head(one),
            f"{one.allocated[100]:.2f}",
            f"{one.allocated[130]:.2f}",
            f"{one.fragmented[100]:.2f}",
            str(one.refused),
            one.digest[:12],
        )
        for one in results
    ]
    note = "cards in use and fragmented, in percent of the cluster's, by cards asked for"
    show(Table(title="Runs", columns=_columns(names), rows=rows, note=note))


def _print_timed(results: Sequence[CellResult]) -> None:
    names = ("PEAK", "MEAN WAIT", "MOST WAITING", "STILL WAITING")
    rows = [
        (
            *_head(one),
            f"{one.peak:.2f}",
            f"{one.waited:.1f}s",
            str(one.most_pending),
            str(one.refused),
            one.digest[:12],
        )
        for one in results
    ]
    # What `schedule` has played is not told by percent arrived, and knows no tasks.
    counted = (
        "most waiting counts a gang as one, still waiting its tasks"
        if any(one.allocated for one in results)
        else "waiting counts pods"
    )
    note = f"peak: cards in use at most, in percent of the cluster's; {counted}"
    show(Table(title="Runs at the trace's own times", columns=_columns(names), rows=rows, note=note))


def _head(result: CellResult) -> tuple[str, str, str]:
    return result.cell.trace, str(result.cell.policy), str(result.cell.seed)


_RANKS: Final = {"MOST WAITING": 1}
"""Numbers for which a screen of 80 columns may have no room."""


def _columns(names: Sequence[str]) -> tuple[Column, ...]:
    numbers = tuple(Column(name, number=True, rank=_RANKS.get(name, 0)) for name in ("SEED", *names))
    return (
        Column("TRACE", tone=Tone.NAME),
        Column("POLICY"),
        *numbers,
        Column("DIGEST", tone=Tone.DIM, rank=1),
    )


def _print_means(means: Sequence[Summary]) -> None:
    columns = (
        Column("TRACE", tone=Tone.NAME),
        Column("POLICY"),
        *(Column(name, number=True) for name in ("RUNS", "IDLE AT 100 %", "IDLE AT 130 %", "FRAGMENTED")),
    )
    rows = [
        (
            one.trace,
            str(one.policy),
            str(one.runs),
            f"{one.unallocated_100:.2f}",
            f"{one.unallocated_130:.2f}",
            f"{one.fragmented:.2f}",
        )
        for one in means
    ]
    show(Table(title="Means over seeds", columns=columns, rows=rows))
