"""Files, folders or objects in, one snapshot out, with every problem of every object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import attrs

from koordcore._blame import shown
from koordcore.errors import ManifestError, Problem
from koordcore.manifests._raw import Source, SourceLimits, SourceObject
from koordcore.manifests._reading import is_object
from koordcore.manifests.bundle import Bundle, Loaded
from koordcore.manifests.front_doors import with_gangs
from koordcore.manifests.sources import read_sources
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.fields import Json, as_list, at, show

_MAX_BROKEN: Final = 10_000
"""After this many objects that cannot be read the rest is not looked at, and all of the input refused."""


def load(
    paths: str | Path | Iterable[str | Path],
    stdin: IO[str] | None = None,
    *,
    limits: SourceLimits | None = None,
    network: ClusterNetworkTopology | None = None,
    as_gangs: bool = False,
    feature_gates: Mapping[str, bool] = EMPTY,
    strict: bool = False,
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
    strict
        Refuse everything where any object cannot be read or stands twice, as a pipeline may want it. Else
        that object alone is hurt, and :attr:`Loaded.problems` names it.

    Raises
    ------
    ManifestError
        With every problem of the files, such as one that is no JSON, and of scheduler configurations; with
        ``strict`` of every object as well.
    MissingExtraError
        When YAML is to be read and PyYAML is not installed.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    sources = read_sources(paths, stdin=stdin, limits=limits or SourceLimits())
    return assemble(sources, network, as_gangs, feature_gates, strict)


def snapshot_from_objects(
    objects: Iterable[Mapping[str, Json]] | Mapping[str, Json],
    *,
    as_gangs: bool = False,
    strict: bool = False,
) -> Loaded:
    """Make a snapshot of objects that are parsed already.

    Parameters
    ----------
    objects
        Kubernetes and Koordinator objects in any order; equal sets of objects give equal snapshots. One of
        them, such as a ``List``, may stand for itself.
    as_gangs, strict
        As for :func:`load`.

    Raises
    ------
    ManifestError
        With every problem of scheduler configurations, and with ``strict`` of every object.

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
    given: object = objects
    if isinstance(given, str | bytes):  # whose signs are no objects
        raise TypeError(f"objects: expected objects that are parsed already, got {shown(given)}")
    several = [objects] if isinstance(objects, Mapping) else objects
    numbered = (SourceObject(f"object {number}", raw) for number, raw in enumerate(several, 1))
    return assemble(numbered, as_gangs=as_gangs, strict=strict)


def assemble(
    sources: Iterable[Source],
    network: ClusterNetworkTopology | None = None,
    as_gangs: bool = False,
    feature_gates: Mapping[str, bool] = EMPTY,
    strict: bool = False,
    admit: Callable[[Iterable[Source]], Iterable[Source]] | None = None,
) -> Loaded:
    """Make a snapshot of objects that say where they come from; see :func:`load`.

    ``admit`` changes them as a webhook would, pods of jobs that are yet to be made included.
    """
    sources = opened(sources)
    bundle = Bundle(feature_gates)
    bundle.network = network
    if as_gangs:
        sources = with_gangs(sources, bundle.problems, bundle.warnings)
    broken = 0
    for source in sources if admit is None else admit(sources):
        if isinstance(source, Problem):
            bundle.unfit.append(source)
            broken += 1
        else:
            broken += bool(bundle.add(source).problems)
        if broken > _MAX_BROKEN:
            where = source.source
            message = "too many problems; from here on the input was not looked at"
            bundle.unfit.append(Problem("", message, source=where))
            break
    return bundle.finish(strict=strict or broken > _MAX_BROKEN)


def opened(sources: Iterable[Source]) -> Iterator[Source]:
    """Give the items of lists one by one, also where a list is an item of another one."""
    for source in sources:
        left = [source]
        while left:
            one = left.pop()
            try:
                items = None if isinstance(one, Problem) else _items(one.raw)
            except ManifestError as error:
                # Nobody knows what stood there, so all of it is refused, as with a file that cannot be read.
                yield from (attrs.evolve(problem, source=one.source) for problem in error.problems)
                continue
            if items is None or isinstance(one, Problem):
                yield one
            else:
                places = (f"{one.source} (item {number})" for number in range(1, len(items) + 1))
                left += reversed([SourceObject(*pair) for pair in zip(places, items, strict=True)])


def _items(raw: Json) -> list[Json] | None:
    """Give the items of a ``List``, or of a list of one kind, which they may leave to it to say.

    An object with a name of its own is no list, whatever its kind ends in. A server may write a list of one
    kind without items where it is empty.

    Raises
    ------
    ManifestError
        When it is a list whose items are none.
    """
    kind = raw.get("kind") if is_object(raw) else None
    if not (isinstance(kind, str) and kind.endswith("List") and is_object(raw)):
        return None
    element = kind.removesuffix("List")
    written = raw.get("items")
    if not isinstance(written, list) and element and _named(raw):
        return None
    if written is None and not element:
        raise ManifestError.at("items", f"expected list, got {show(None)}")
    items = [] if written is None else at("items", as_list, written)
    known = {"apiVersion": raw.get("apiVersion"), "kind": element} if element else {}
    return [{**known, **one} if known and is_object(one) else one for one in items]


def _named(raw: Mapping[str, Json]) -> bool:
    meta = raw.get("metadata")
    return is_object(meta) and bool(meta.get("name"))
