"""Objects that want pods which nobody has made: whoever reads the plan shall know that they are not in it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.manifests._reading import is_object
from koordcore.manifests.cross_checks import Key
from koordcore.manifests.front_door_kinds import OPENERS, TRAIN_JOB
from koordcore.manifests.suspension import has_ended, is_suspended
from koordcore.protocol.fields import Json

_OPENED: Final = {*OPENERS, TRAIN_JOB}
OPENED_KINDS: Final = frozenset(kind if group == "batch" else f"{kind}.{group}" for group, kind in _OPENED)
"""Kinds that ``--as-gangs`` takes for gangs, as :attr:`koordcore.manifests.Loaded.podless` writes them."""
_NO_PODS_NOW: Final = frozenset({"CronJob", "PodTemplate"})
"""Kinds that make other objects, at other times."""
_MAKERS_OF_NOTHING: Final = ("kueue.x-k8s.io", "scheduling.k8s.io")
"""API groups whose objects describe the pods of others."""
_DEPTH: Final = 8


def wants_pods(key: Key, raw: Mapping[str, Json]) -> bool:
    """Tell whether an object wants pods now: it holds a template of a pod, and has neither ended nor gone."""
    group, kind = key[:2]
    if kind in _NO_PODS_NOW or group in _MAKERS_OF_NOTHING or kind.endswith(("Runtime", "Template")):
        return False
    spec, status, meta = (raw.get(name) for name in ("spec", "status", "metadata"))
    if not is_object(spec) or (is_object(meta) and meta.get("deletionTimestamp") is not None):
        return False
    if any(spec.get(name) == 0 for name in ("replicas", "parallelism")) or is_suspended(raw):
        return False
    if has_ended(raw) or (is_object(status) and status.get("desiredNumberScheduled") == 0):
        return False
    return (group, kind) in _OPENED or _has_template(spec, _DEPTH)


def _has_template(value: Json, depth: int) -> bool:
    """Find a pod's specification below, however the kind calls the place."""
    if depth == 0:
        return False
    if isinstance(value, list):
        return any(_has_template(one, depth - 1) for one in value)
    if not is_object(value):
        return False
    inner = value.get("spec")
    if is_object(inner) and isinstance(inner.get("containers"), list):
        return True
    return any(_has_template(one, depth - 1) for one in value.values())


def _placed(key: Key) -> Key:
    return (*key[:2], key[2] or "default", key[3])


def without_pods(
    wanting: Iterable[Key], owning: Iterable[Key], pods: Iterable[tuple[str, str]]
) -> Iterator[Key]:
    """Give the objects of which nothing in the dump is made.

    Parameters
    ----------
    wanting
        Objects that want pods.
    owning
        What any object names as its owner.
    pods
        Namespace and name of all pods.

    Notes
    -----
    A dump may lack the objects in between (the ReplicaSet of a Deployment), and hand-written pods their
    owners, so whatever is called ``NAME-...`` in the namespace counts as made by ``NAME``.
    """
    known = {_placed(key) for key in owning}
    made: dict[str, list[str]] = defaultdict(list)
    for space, name in {*((key[2], key[3]) for key in known), *pods}:
        made[space].append(name)
    for names in made.values():
        names.sort()
    for key in wanting:
        names = made.get(_placed(key)[2], [])
        place = bisect_left(names, f"{key[3]}-")
        if _placed(key) not in known and not (place < len(names) and names[place].startswith(f"{key[3]}-")):
            yield key
