"""What all verbs share: paths in, a snapshot and a policy out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from koordcore.cli.progress import Step, add_quiet, working
from koordcore.cli.selection import nobody_selected
from koordcore.cli.words import many
from koordcore.errors import MissingExtraError, ModelError, Problem
from koordcore.manifests import Loaded
from koordcore.manifests._raw import Source
from koordcore.manifests.config_maps import maps_with
from koordcore.manifests.loading import assemble, opened
from koordcore.manifests.podless import OPENED_KINDS
from koordcore.manifests.sources import read_sources
from koordcore.manifests.suspension import resumed
from koordcore.manifests.unamplified import AS_THEY_STAND
from koordcore.model.kueue import KueueWorkload
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology, label_layers
from koordcore.model.reservations import Reservation
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol.feature_gates import parse_feature_gates
from koordcore.protocol.fields import at
from koordcore.protocol.times import moment_of
from koordcore.reservations.lifecycle import as_of as at_moment
from koordcore.result import ScheduleResult
from koordcore.result.left_out import CANNOT_BE_READ
from koordcore.snapshot import ClusterSnapshot

_CONFIGURED_BY: Final = {"policy": "KubeSchedulerConfiguration", "args": "DeschedulerConfiguration"}
"""Option to the kind of its file."""
_SHOWN: Final = 50
"""Lines about what cannot be read; thousands of them say no more."""
_LENT: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional paths of a dump."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="JSON or YAML files (also .gz), folders, or - for standard input",
    )
    parser.add_argument(
        "--live", action="store_true", help="read the cluster that the kubeconfig names, instead or as well"
    )
    parser.add_argument("--context", metavar="NAME", help="with --live: this context of the kubeconfig")
    parser.add_argument(
        "--layers",
        type=_layers,
        metavar="NAME=LABEL,...",
        help="the network's layers from the top down, by node label, such as block=LABEL,rack=LABEL; without "
        "it the dump's ClusterNetworkTopology, Kueue Topologies, or known node labels count",
    )
    parser.add_argument(
        "--as-gangs",
        action="store_true",
        help="take LeaderWorkerSets, JobSets, RayClusters, RayJobs, TrainJobs, PyTorchJobs, MPIJobs and Jobs "
        "for gangs, with the pods that are still to be made; Workloads of Kueue, and jobs in its queues, "
        "also need their quota",
    )
    parser.add_argument(
        "--admit",
        action="store_true",
        help="first apply the dump's ClusterColocationProfiles and ElasticQuotaProfiles, as webhooks would",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse the whole input where one object cannot be read or stands twice; otherwise that object "
        "alone is left out (a Pod is unschedulable), named, and the exit code is 1",
    )
    add_quiet(parser)


def _layers(text: str) -> ClusterNetworkTopology:
    """Read layers as they are typed: name and label, or several labels parted by ``|``."""
    named: dict[str, list[str]] = {}
    for part in text.split(","):
        name, equals, labels = (word.strip() for word in part.partition("="))
        if not equals or name in named:
            wrong = "stands there twice" if equals else "expected NAME=LABEL"
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: {wrong}")
        named[name] = [label.strip() for label in labels.split("|")]
    try:
        return label_layers(named)
    except ModelError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_paths(arguments: argparse.Namespace) -> Loaded:
    """Load the dump and print its warnings to standard error."""
    if not arguments.paths and not arguments.live:
        raise ModelError("the following arguments are required: PATH, or --live")
    need_one_reader(arguments)
    if arguments.context is not None and not arguments.live:
        raise ModelError("--context: a context of the kubeconfig is read with --live")
    with working("reading objects" if arguments.live else "reading kB") as step:
        loaded, done = _read(arguments, _as_if_resumed(arguments, _sources(arguments, step)))
    arguments.unreadable = say_unreadable(loaded)
    if not loaded.counts:
        why = "nothing in it can be read" if loaded.problems else "there is no object in it"
        raise ModelError(f"no input: {', '.join(arguments.paths) or '--live'}: {why}")
    for line in () if arguments.quiet else done:
        print(f"admitted: {line}", file=sys.stderr)
    if arguments.layers is not None:
        _nobody_has(arguments.layers, loaded.snapshot)
    if not arguments.quiet:
        if told := nobody_selected(arguments, loaded.snapshot):
            print(told, file=sys.stderr)
        for warning in loaded.warnings:
            if not (getattr(arguments, "lend", False) and warning.message.endswith(AS_THEY_STAND)):
                print(f"warning: {warning}", file=sys.stderr)
        if not arguments.admit and loaded.counts.get("ClusterColocationProfile"):
            from koordcore.cli.admission import unapplied  # only who has profiles pays for their rules

            for line in unapplied(loaded.snapshot):
                print(f"warning: {line}", file=sys.stderr)
        _say_configurations(arguments, loaded)
    return loaded


def need_one_reader(arguments: argparse.Namespace) -> None:
    """Refuse what reads standard input a second time: it would find nothing there.

    Raises
    ------
    ModelError
        Names the option that comes second.
    """
    other = "the dump" if "-" in arguments.paths else ""
    for option in ("policy", "mix", "metrics"):
        given = getattr(arguments, option, None)
        for path in given if isinstance(given, list) else [given]:
            if path == "-" and other:
                raise ModelError(
                    f"--{option}: standard input can be read only once, and {other} is read from it"
                )
            if path == "-":
                other = f"another --{option}"


def _say_configurations(arguments: argparse.Namespace, loaded: Loaded) -> None:
    """Name the configurations of a dump: nobody decides by one that is not given as such."""
    for option, kind in _CONFIGURED_BY.items():
        if vars(arguments).get(option, "no such option"):
            continue
        found = [kind] if any(one.partition(".")[0] == kind for one in loaded.counts) else []
        found += [f"ConfigMap {name}" for name in maps_with(loaded.snapshot, kind)]
        if found:
            message = f"not looked at: {', '.join(found)} of the dump (--{option} decides by one)"
            print(message, file=sys.stderr)


def say_unreadable(loaded: Loaded) -> list[str]:
    """Name on standard error what cannot be read, also for who wants no warnings; gives a line for each."""
    lines = [str(problem) for problem in loaded.problems]
    if lines:
        number = len({(one.source, one.object_name) for one in loaded.problems})
        objects = f"{number} object{'s' * (number != 1)} cannot be read"
        print(f"koordcore: {objects}; all others count:", file=sys.stderr)
        for line in lines[:_SHOWN]:
            print(f"  {line}", file=sys.stderr)
        if len(lines) > _SHOWN:
            print(f"  … and {len(lines) - _SHOWN} more", file=sys.stderr)
    return lines


def _sources(arguments: argparse.Namespace, step: Step) -> Iterator[Source]:
    """Give what the files hold, and the live cluster where it is asked for."""
    if arguments.live:
        from koordcore.cli.live import connect, read_live

        yield from read_live(connect(arguments.context), step, partial(_warn, arguments))

    def read(done: int, total: int) -> None:
        step(done // 1000, total // 1000)

    yield from read_sources(arguments.paths, stdin=sys.stdin, progress=read)


def _as_if_resumed(arguments: argparse.Namespace, sources: Iterator[Source]) -> Iterator[Source]:
    """Give the job that a question is about as if nobody had suspended it, and say so."""
    job: tuple[str, str, str] | None = getattr(arguments, "job", None)
    if job is None:
        yield from sources
        return
    remarks: list[Problem] = []
    yield from resumed(opened(sources), job, remarks)
    for warning in () if arguments.quiet else remarks:
        print(f"warning: {warning}", file=sys.stderr)


def _warn(arguments: argparse.Namespace, message: str) -> None:
    if not arguments.quiet:
        print(f"warning: {message}: it is not looked at", file=sys.stderr)


def _read(arguments: argparse.Namespace, sources: Iterator[Source]) -> tuple[Loaded, list[str]]:
    text = getattr(arguments, "feature_gates", None)  # of verbs that take a policy
    gates = at("--feature-gates", parse_feature_gates, text) if text is not None else EMPTY
    if not arguments.admit:
        strict: bool = arguments.strict
        return assemble(sources, arguments.layers, arguments.as_gangs, gates, strict), []
    # Only who wants the webhooks' work done pays for what that brings.
    from koordcore.cli.admission import load_admitted

    return load_admitted(
        sources,
        arguments.layers,
        as_gangs=arguments.as_gangs,
        feature_gates=gates,
        strict=arguments.strict,
    )


def need_folder(path: Path | None, option: str) -> None:
    """Refuse a file whose folder does not exist before the work is done.

    Raises
    ------
    ModelError
        Names the option.
    """
    if path is None:
        return
    if path.is_dir():
        raise ModelError(f"{option}: {path} is a folder")
    if not path.parent.is_dir():
        raise ModelError(f"{option}: there is no folder {path.parent}")


PICTURES: Final = (".png", ".svg", ".pdf")


def need_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn before the work is done.

    Raises
    ------
    ModelError
        When its kind or its folder is not known.
    MissingExtraError
        When matplotlib is not installed.
    """
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise ModelError(f"--plot: {path}: expected a name that ends in {', '.join(PICTURES)}")
    need_folder(path, "--plot")
    if find_spec("matplotlib") is None:
        raise MissingExtraError.for_extra("matplotlib", "plots", "drawing")


def add_now(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Add ``--now``.

    Parameters
    ----------
    otherwise
        What counts where it is left out, in a few words.
    """
    parser.add_argument(
        "--now", metavar="TIME", help=f"the moment, such as 2026-11-01T12:00:00Z; {otherwise} when left out"
    )


def read_now(arguments: argparse.Namespace) -> datetime | None:
    """Read ``--now``; ``None`` where it is left out.

    Raises
    ------
    ModelError
        When it is no time of RFC 3339 with its zone.
    """
    text: str | None = arguments.now
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ModelError(f'--now: expected an RFC 3339 time, got "{text[:60]}"') from None
    if moment.tzinfo is None:
        raise ModelError(f'--now: expected a time with its zone, got "{text[:60]}"')
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ModelError(f'--now: no year of the calendar has "{text[:60]}"') from None
    return moment


def as_of(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Give the cluster as it stands at ``--now``; reservations whose time is up are named."""
    now = read_now(arguments)
    if now is None:
        return snapshot
    after = at_moment(snapshot, now)
    before = {one.name for one in snapshot.of(Reservation) if one.over}
    ended = [one.name for one in after.of(Reservation) if one.over and one.name not in before]
    if ended and not arguments.quiet:
        print(f"warning: --now: no longer available: reservation {', '.join(ended)}", file=sys.stderr)
    return after


def add_lend(parser: argparse.ArgumentParser) -> None:
    """Add ``--lend``."""
    parser.add_argument(
        "--lend",
        action="store_true",
        help="first let every node offer what it can lend to batch and mid pods (see `koordcore colocation`)",
    )


def lent(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Give the cluster with what it lends where ``--lend`` is given, and say how many nodes lend.

    Raises
    ------
    ModelError
        When neither a NodeMetric nor ``--now`` says what the moment is.
    """
    if not arguments.lend:
        return snapshot
    # Only who lends pays for what that brings.
    from koordcore.colocation.amplifying import amplified
    from koordcore.colocation.cluster import config_of_snapshot, latest_report, lending

    given = read_now(arguments)
    now = latest_report(snapshot) if given is None else moment_of(given)
    config = config_of_snapshot(snapshot)
    done = amplified(snapshot, config)
    say_unamplified(arguments, done.problems, "--lend: ")
    if done.changed and not arguments.quiet:
        nodes = many(len(done.changed), "node")
        print(f"lent: CPU or memory of {nodes} multiplied as ratios say", file=sys.stderr)
    if now is None:
        if done.changed:
            return done.snapshot
        raise ModelError("--lend: no NodeMetric with a time in the dump: give --now")
    given_out = lending(done.snapshot, config, now=now)
    say_uncounted(arguments, given_out.problems)
    after = given_out.snapshot
    if not arguments.quiet:
        number = sum(any(state.node.allocatable.get(name, 0) for name in _LENT) for state in after.nodes)
        print(f"lent: {number} of {len(after.nodes)} nodes offer batch or mid resources", file=sys.stderr)
    return after


def say_unamplified(arguments: argparse.Namespace, problems: Mapping[str, str], where: str = "") -> None:
    """Name on standard error the nodes of which a ratio is not known: what is known of it counts alone."""
    for name, problem in ({} if arguments.quiet else problems).items():
        print(f"warning: {where}Node {name} is not amplified as configured: {problem}", file=sys.stderr)


def say_uncounted(arguments: argparse.Namespace, problems: Mapping[str, str]) -> None:
    """Name on standard error the nodes that lend nothing because an amount of theirs cannot be counted."""
    for name, problem in ({} if arguments.quiet else problems).items():
        print(f"warning: Node {name} lends nothing: {problem}", file=sys.stderr)


def say_left_out(result: ScheduleResult, *, quiet: bool = False) -> None:
    """Name on standard error what no decision of a plan looked at."""
    for one in () if quiet else result.not_looked_at:
        if one.why.startswith(CANNOT_BE_READ):
            continue  # named when it was loaded
        print(f"not looked at: {one}", file=sys.stderr)


def say_podless(arguments: argparse.Namespace, loaded: Loaded) -> None:
    """Name on standard error the objects that want pods and have none in the dump, in a line or two."""
    if arguments.quiet:
        return
    gangs = [(kind.partition(".")[0], n) for kind, n in loaded.podless.items() if kind in OPENED_KINDS]
    others = [(kind, n) for kind, n in loaded.podless.items() if kind not in OPENED_KINDS]
    asked = getattr(arguments, "as_gangs", False)
    why_not = "see above" if asked else "--as-gangs takes them for gangs"
    for found, why in ((gangs, why_not), (others, "only pods are placed")):
        if found:
            message = ", ".join(f"{number} {kind}" for kind, number in found)
            print(f"not looked at: {message} without pods ({why})", file=sys.stderr)
    waiting = sum(one.waits for one in loaded.snapshot.of(KueueWorkload))
    if waiting and not asked:
        message = f"{waiting} Workloads of Kueue that wait for quota"
        print(f"not looked at: {message} (--as-gangs decides quota and places together)", file=sys.stderr)


def _nobody_has(network: ClusterNetworkTopology, snapshot: ClusterSnapshot) -> None:
    """Refuse a label that no node has: it is misspelt."""
    there = {label for state in snapshot.nodes for label in state.node.labels}
    for spec in network.layers:
        for label in spec.label_keys:
            if label not in there:
                near = get_close_matches(label, sorted(there), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ModelError(f"--layers: no node has the label {label}{hint}")


def read_json(option: str, path: str | Path) -> Any:
    """Read the file of an option as JSON.

    Raises
    ------
    ModelError
        With the option and the file, when there is none or its text is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{option}: {path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{option}: {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{option}: {path}: not JSON: {error}") from None
