"""What all verbs share: paths in, a snapshot and a policy out."""

from __future__ import annotations

import argparse
import sys

from koordcore.cli.tables import working
from koordcore.errors import ModelError
from koordcore.manifests import Loaded, load
from koordcore.model.pods import Pod, PodKey
from koordcore.snapshot import ClusterSnapshot

__all__ = ["add_paths", "find_pod", "load_paths"]


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional paths of a dump."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="JSON or YAML files (also .gz), folders, or - for standard input",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no warnings on standard error")


def load_paths(arguments: argparse.Namespace) -> Loaded:
    """Load the dump and print its warnings to standard error."""
    with working("reading"):
        loaded = load(arguments.paths, sys.stdin)
    if not arguments.quiet:
        for warning in loaded.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return loaded


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
