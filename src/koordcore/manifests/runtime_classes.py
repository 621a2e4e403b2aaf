"""RuntimeClasses that pods name: what the API server adds to a pod of a class is not added here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.manifests.pods import PodReading
from koordcore.model.cluster import RawObject
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.fields import Json, as_mapping, load_json

_GROUP: Final = "node.k8s.io/"
_ADDED: Final = ("overhead", "scheduling")


def runtime_class_remarks(records: Iterable[ClusterRecord], pods: Iterable[PodReading]) -> Iterator[Remark]:
    """Name, once, each class of which something may be missing from pods that no API server has made."""
    naming: dict[str, list[Pod]] = {}
    for read in pods:
        if read.runtime_class and not read.pod.uid and not read.pod.finished:
            naming.setdefault(read.runtime_class, []).append(read.pod)
    classes = {
        one.name: _object_of(one)
        for one in (records if naming else ())
        if isinstance(one, RawObject) and one.kind == "RuntimeClass" and one.api_version.startswith(_GROUP)
    }
    for name, named in naming.items():
        known = classes.get(name)
        # Overhead that a pod has is that of its class, or else the API server would not make it.
        bare = [pod for pod in named if not pod.overhead]
        if known is None:
            missing, what = bare, f"the dump has no RuntimeClass {name}; overhead and scheduling of it are"
        else:
            parts = [part for part in _ADDED if known.get(part)]
            missing = named if "scheduling" in parts else bare if parts else []
            what = f"{' and '.join(parts)} of RuntimeClass {name} are"
        if missing:
            more = f" (here and in {len(missing) - 1} more)" if len(missing) > 1 else ""
            message = f"{what} not added to the pod, as the API server would{more}"
            key = ("", "Pod", missing[0].namespace, missing[0].name)
            yield key, Problem("spec.runtimeClassName", message)


def _object_of(one: RawObject) -> Mapping[str, Json]:
    try:
        return as_mapping(load_json(one.text))
    except ManifestError:
        return {}
