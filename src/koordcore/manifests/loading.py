"""Files, folders or objects in, one snapshot out, with every problem of every object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Final

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._raw import Source, SourceLimits, SourceObject
from koordcore.manifests.bundle import Bundle, Loaded
from koordcore.manifests.front_doors import with_gangs
from koordcore.manifests.sources import read_sources
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.fields import Json

_MAX_PROBLEMS: Final = 10_000
"""After this many problems the rest of the input is not looked at."""


def load(
    paths: str | Path | Iterable[str | Path],
    stdin: IO[str] | None = None,
    *,
    limits: SourceLimits | None = None,
    network: ClusterNetworkTopology | None = None,
    as_gangs: bool = False,
    feature_gates: Mapping[str, bool] = EMPTY,
) -> Loaded:
    """Read files, folders and standard input into a snapshot.

    Parameters
    ----------
    paths
        JSON or YAML files (``.gz`` too), folders, or ``-``; one of them, or several.
    stdin
        What ``-`` stands for.
    limits
        Bounds against hostile input.
    network
        The network's layers, whatever the objects and labels of the dump say.
    as_gangs
        Jobs of known kinds (:data:`koordcore.manifests.front_doors.DOORS`) become gangs with the pods that
        their controllers would make; the warnings say so.
    feature_gates
        Those of the quota webhook (``SupportParentQuotaSubmitPod``, ...), whose checks are warnings here.

    Raises
    ------
    ManifestError
        With every problem of every file and object; nothing is half loaded.
    MissingExtraError
        When YAML is to be read and PyYAML is not installed.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    sources = read_sources(paths, stdin=stdin, limits=limits or SourceLimits())
    return assemble(sources, network, as_gangs, feature_gates)


def snapshot_from_objects(objects: Iterable[Mapping[str, Json]], *, as_gangs: bool = False) -> Loaded:
    """Make a snapshot of objects that are parsed already.

    Parameters
    ----------
    objects
        Kubernetes and Koordinator objects in any order; equal sets of objects give equal snapshots.
    as_gangs
        As for :func:`load`.

    Raises
    ------
    ManifestError
        With every problem of every object.

    Examples
    --------
    >>> loaded = snapshot_from_objects([
    ...     {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    ...      "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
    ...     {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"nodeName": "n1"}},
    ... ])
    >>> [str(pod.key) for pod in loaded.snapshot.bound_pods()]
    ['default/web']
    """
    numbered = (SourceObject(f"object {number}", raw) for number, raw in enumerate(objects, 1))
    return assemble(numbered, as_gangs=as_gangs)


def assemble(
    sources: Iterable[Source],
    network: ClusterNetworkTopology | None = None,
    as_gangs: bool = False,
    feature_gates: Mapping[str, bool] = EMPTY,
) -> Loaded:
    """Make a snapshot of objects that say where they come from; see :func:`load`."""
    bundle = Bundle(gates=feature_gates)
    if as_gangs:
        sources = with_gangs(sources, bundle.problems, bundle.warnings)
    for source in sources:
        if isinstance(source, Problem):
            bundle.problems.append(source)
        else:
            bundle.add(source)
        if len(bundle.problems) > _MAX_PROBLEMS:
            where = source.source
            told = "too many problems; from here on the input was not looked at"
            bundle.problems.append(Problem("", told, source=where))
            break
    else:
        if network is not None:
            others = [one for one in bundle.records if not isinstance(one, ClusterNetworkTopology)]
            bundle.records = [*others, network]
        return bundle.finish()
    raise ManifestError(bundle.problems)
