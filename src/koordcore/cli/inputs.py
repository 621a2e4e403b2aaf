"""What all verbs share: paths in, a snapshot and a policy out."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from koordcore.cli.tables import working
from koordcore.errors import ManifestError, ModelError
from koordcore.manifests import Loaded, load
from koordcore.model.network import ClusterNetworkTopology, label_layers
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.reservations.lifecycle import controlled
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

__all__ = [
    "add_now",
    "add_paths",
    "as_of",
    "find_pod",
    "load_paths",
    "read_arguments",
    "read_now",
    "say_left_out",
]


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
        loaded = load(arguments.paths, sys.stdin, network=arguments.layers)
    if arguments.layers is not None:
        _nobody_has(arguments.layers, loaded.snapshot)
    if not arguments.quiet:
        for warning in loaded.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return loaded


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


def say_left_out(result: ScheduleResult, *, quiet: bool = False) -> None:
    """Name on standard error what no decision of a plan looked at."""
    for one in () if quiet else result.not_looked_at:
        print(f"not looked at: {one}", file=sys.stderr)


def _nobody_has(network: ClusterNetworkTopology, snapshot: ClusterSnapshot) -> None:
    """Refuse a label that no node has: it is misspelt."""
    there = {label for state in snapshot.nodes for label in state.node.labels}
    for spec in network.layers:
        for label in spec.label_keys:
            if label not in there:
                near = get_close_matches(label, sorted(there), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ModelError(f"--layers: no node has the label {label}{hint}")


def read_arguments(path: Path) -> Any:
    """Read the arguments of a plugin as JSON, without ``apiVersion`` and ``kind``.

    Raises
    ------
    ManifestError
        When the text is no JSON.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError.at(str(path), f"not JSON: {error}") from None
    if isinstance(raw, dict):
        return {key: one for key, one in raw.items() if key not in ("apiVersion", "kind")}
    return raw


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
