"""How a shell completes names: those of the dump that stands on the line."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from koordcore.cli.policies import KNOWN_POLICIES
from koordcore.errors import KoordcoreError
from koordcore.explaining.workloads import workload_of
from koordcore.manifests.loading import assemble
from koordcore.manifests.sources import read_sources
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota
from koordcore.snapshot import ClusterSnapshot

_FILES: Final = ("FILE", "PATH", "DIR", "POLICY", ("PLAN", "PLAN"))
"""What stands for files in help texts."""

Names = Callable[[ClusterSnapshot], Iterable[str]]


def know_names(parser: argparse.ArgumentParser) -> None:
    """Let the arguments of a verb that stand for names of a dump be completed from it.

    Parameters
    ----------
    parser
        That of the verb. Its arguments are known by their names, which mean the same everywhere.
    """
    flags = parser._option_string_actions  # noqa: SLF001 - argparse has no other way to ask
    verb = parser.prog.rpartition(" ")[2]
    for action in parser._actions:  # noqa: SLF001 - as above
        if action.dest == "policy":
            action.completer = _policies  # type: ignore[attr-defined]  # where argcomplete looks
            continue
        names = _FIRST.get(verb) if action.dest == "paths" else _NAMED.get(action.dest)
        if names is not None:
            files = not action.option_strings
            complete = partial(_complete, names, flags, files)
            action.completer = complete  # type: ignore[attr-defined]  # as above
        elif action.option_strings and action.metavar not in _FILES:
            action.completer = _nothing  # type: ignore[attr-defined]  # argcomplete would list files


def _complete(
    names: Names, flags: dict[str, argparse.Action], files: bool, prefix: str = "", **_: Any
) -> list[str]:
    found = _paths(prefix) if files else []
    snapshot = _dump(_words(), flags)
    return found if snapshot is None else found + _matching(names(snapshot), prefix)


def _nothing(**_: Any) -> list[str]:
    return []


def _policies(prefix: str = "", **_: Any) -> list[str]:
    return [*_matching(KNOWN_POLICIES, prefix), *_paths(prefix)]


def _matching(names: Iterable[str], prefix: str) -> list[str]:
    return sorted({name for name in names if name.startswith(prefix)})


def _paths(prefix: str) -> list[str]:
    # An optional package, without types where it is absent.
    from argcomplete.completers import FilesCompleter  # type: ignore[import-not-found, unused-ignore]

    return list(FilesCompleter()(prefix))


def _words() -> list[str]:
    """Give the words of the line after the verb, those behind the cursor, too."""
    line = os.environ.get("COMP_LINE", "")
    cursor = int(os.environ.get("COMP_POINT") or len(line))
    if line[cursor - 1 : cursor].isspace() and not line[cursor : cursor + 1].strip():
        line = f"{line[:cursor]}'' {line[cursor:]}"  # the word that is yet to be typed
    try:
        return shlex.split(line)[2:]
    except ValueError:  # a quotation mark that is still open
        return line.split()[2:]


def _dump(words: list[str], flags: dict[str, argparse.Action]) -> ClusterSnapshot | None:
    """Read the files among the words that are no value of an option; ``None`` where that does not go."""
    paths = []
    for before, word in zip(["", *words], words, strict=False):
        option = flags.get(before)
        if (option is None or option.nargs == 0) and Path(word).exists():
            paths.append(word)
    try:
        return assemble(read_sources(paths), None, "--as-gangs" in words).snapshot if paths else None
    except (KoordcoreError, OSError):
        return None


def _everybody(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    yield from snapshot.pending
    yield from snapshot.bound_pods()


def _called(pods: Iterable[Pod]) -> Iterator[str]:
    """Give what pods, their gangs and their workloads are called, with and without namespace."""
    for pod in pods:
        for name in filter(None, (pod.name, workload_of(pod))):
            yield name
            yield f"{pod.namespace}/{name}"


def _subjects(snapshot: ClusterSnapshot) -> Iterator[str]:
    return _called(_everybody(snapshot))


def _waiting(snapshot: ClusterSnapshot) -> Iterator[str]:
    return _called(snapshot.pending)


def _nodes(snapshot: ClusterSnapshot) -> Iterator[str]:
    return iter(snapshot.layout.names)


def _quotas(snapshot: ClusterSnapshot) -> Iterator[str]:
    return (one.name for one in snapshot.of(ElasticQuota))


def _trees(snapshot: ClusterSnapshot) -> Iterator[str]:
    return (one.tree for one in snapshot.of(ElasticQuota) if one.tree)


def _resources(snapshot: ClusterSnapshot) -> Iterator[str]:
    return (name for state in snapshot.nodes for name in state.node.allocatable)


def _namespaces(snapshot: ClusterSnapshot) -> Iterator[str]:
    return (pod.namespace for pod in _everybody(snapshot))


def _labels(snapshot: ClusterSnapshot) -> Iterator[str]:
    return (label for state in snapshot.nodes for label in state.node.labels)


_NAMED: Final[dict[str, Names]] = {
    "pod": _subjects,
    "node": _nodes,
    "quota": _quotas,
    "tree": _trees,
    "resource": _resources,
    "namespace": _namespaces,
    "block": _labels,
}
"""What an argument is completed with, by its name."""
_FIRST: Final[dict[str, Names]] = {"explain": _subjects, "when": _waiting, "inspect": _nodes}
"""What may stand among the paths of a verb."""
