"""What all verbs share: paths in, a snapshot and a policy out."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from koordcore.cli.tables import working
from koordcore.errors import ModelError
from koordcore.manifests import Loaded, load
from koordcore.manifests.front_doors import DOORS
from koordcore.manifests.podless import OPENED_KINDS
from koordcore.model.kueue import KueueWorkload
from koordcore.model.network import ClusterNetworkTopology, label_layers
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol.times import moment_of
from koordcore.reservations.lifecycle import controlled
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_LENT: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional paths of a dump."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="JSON or YAML files (also .gz), folders, or - for standard input",
    )
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
    parser.add_argument("-q", "--quiet", action="store_true", help="no warnings on standard error")


def _layers(text: str) -> ClusterNetworkTopology:
    """Read layers as they are typed: name and label, or several labels parted by ``|``."""
    named: dict[str, list[str]] = {}
    for part in text.split(","):
        name, equals, labels = (word.strip() for word in part.partition("="))
        if not equals or name in named:
            told = "stands there twice" if equals else "expected NAME=LABEL"
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: {told}")
        named[name] = [label.strip() for label in labels.split("|")]
    try:
        return label_layers(named)
    except ModelError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def load_paths(arguments: argparse.Namespace) -> Loaded:
    """Load the dump and print its warnings to standard error."""
    with working("reading"):
        loaded, done = _read(arguments)
    for line in () if arguments.quiet else done:
        print(f"admitted: {line}", file=sys.stderr)
    if arguments.layers is not None:
        _nobody_has(arguments.layers, loaded.snapshot)
    if not arguments.quiet:
        for warning in loaded.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return loaded


def _read(arguments: argparse.Namespace) -> tuple[Loaded, list[str]]:
    if not arguments.admit:
        found = load(arguments.paths, sys.stdin, network=arguments.layers, as_gangs=arguments.as_gangs)
        return found, []
    # Only who wants the webhooks' work done pays for what that brings.
    from koordcore.cli.admission import load_admitted

    return load_admitted(arguments.paths, arguments.layers, as_gangs=arguments.as_gangs)


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
    return moment


def as_of(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Give the cluster as it stands at ``--now``: reservations whose time is up hold nothing, and are named.

    One that says neither when it was made nor when it ends has no age.
    """
    now = read_now(arguments)
    if now is None:
        return snapshot
    undated = [one for one in snapshot.of(Reservation) if one.created is None and one.expires is None]
    after = controlled(snapshot, now).with_records(*undated)
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
    from koordcore.colocation.cluster import config_of_snapshot, latest_report, lend

    given = read_now(arguments)
    now = latest_report(snapshot) if given is None else moment_of(given)
    if now is None:
        raise ModelError("--lend: no NodeMetric with a time in the dump: give --now")
    after = lend(snapshot, config_of_snapshot(snapshot), now=now)
    if not arguments.quiet:
        lending = sum(any(state.node.allocatable.get(name, 0) for name in _LENT) for state in after.nodes)
        print(f"lent: {lending} of {len(after.nodes)} nodes offer batch or mid resources", file=sys.stderr)
    return after


def say_left_out(result: ScheduleResult, *, quiet: bool = False) -> None:
    """Name on standard error what no decision of a plan looked at."""
    for one in () if quiet else result.not_looked_at:
        print(f"not looked at: {one}", file=sys.stderr)


def say_podless(arguments: argparse.Namespace, loaded: Loaded) -> None:
    """Name on standard error the objects that want pods and have none in the dump, in a line or two."""
    if arguments.quiet:
        return
    gangs = [(kind.partition(".")[0], n) for kind, n in loaded.podless.items() if kind in OPENED_KINDS]
    others = [(kind, n) for kind, n in loaded.podless.items() if kind not in OPENED_KINDS]
    for found, why in ((gangs, "--as-gangs takes them for gangs"), (others, "only pods are placed")):
        if found:
            told = ", ".join(f"{number} {kind}" for kind, number in found)
            print(f"not looked at: {told} without pods ({why})", file=sys.stderr)
    waiting = sum(one.waits for one in loaded.snapshot.of(KueueWorkload))
    if waiting:
        told = f"{waiting} Workloads of Kueue that wait for quota"
        print(f"not looked at: {told} (--as-gangs decides quota and places together)", file=sys.stderr)


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


def read_arguments(option: str, path: Path) -> Any:
    """Read the arguments of a plugin as JSON, without ``apiVersion`` and ``kind``.

    Raises
    ------
    ModelError
        As :func:`read_json` does.
    """
    raw = read_json(option, path)
    if isinstance(raw, dict):
        return {key: one for key, one in raw.items() if key not in ("apiVersion", "kind")}
    return raw


_GROUPS: Final = ("podgroup", "compositepodgroup", "gang")


def find_member(snapshot: ClusterSnapshot, text: str) -> Pod | None:
    """Find a member of a job such as ``job/train``, or of a group such as ``podgroup/ml/train``.

    One that waits comes first.

    Returns
    -------
    Pod or None
        ``None`` where the text names no kind of jobs.

    Raises
    ------
    ModelError
        When there is no pod of such a job.
    """
    kind, _, name = text.partition("/")
    if kind.lower() in _GROUPS and name and snapshot.pod(PodKey(kind, name)) is None:
        return _of_group(snapshot, kind, name)
    known = DOORS.get(kind.lower())
    if known is None or not name or snapshot.pod(PodKey(kind, name)) is not None:
        return None
    space, _, name = name.rpartition("/")
    for pod in (*snapshot.pending, *snapshot.bound_pods()):
        owned = any(owner.kind == known and owner.name == name for owner in pod.owners)
        if owned and space in ("", pod.namespace):
            return pod
    raise ModelError(f"no pod of {known} {name} in the dump")


def _of_group(snapshot: ClusterSnapshot, kind: str, name: str) -> Pod:
    """Give the first waiting member of a gang or group."""
    # Who asks about one pod does not pay for the table of all gangs.
    from koordcore.explaining.groups import waiting_jobs

    found = waiting_jobs(snapshot, name)
    if not found:
        raise ModelError(f"no {kind} {name} with waiting pods in the dump")
    if len(found) > 1:
        names = ", ".join(job.name for job in found)
        raise ModelError(f"several {kind}s are called {name}: {names}; write {kind}/namespace/name")
    return found[0].pods[0]


def find_pod(snapshot: ClusterSnapshot, text: str) -> Pod:
    """Find a pod by ``namespace/name``, or by name alone where that is unambiguous.

    Raises
    ------
    ModelError
        When there is no such pod, or more than one.
    """
    if "/" in text:
        namespace, name = text.split("/", 1)
        pod = snapshot.pod(PodKey(namespace, name))
        if pod is None:
            raise ModelError(f"no pod {text} in the dump")
        return pod
    found = [pod for pod in (*snapshot.pending, *snapshot.bound_pods()) if pod.name == text]
    if not found:
        raise ModelError(f"no pod {text} in the dump")
    if len(found) > 1:
        names = ", ".join(sorted(str(pod.key) for pod in found))
        raise ModelError(f"several pods are called {text}: {names}")
    return found[0]
