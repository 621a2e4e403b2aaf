"""Kubernetes and Koordinator objects in; annotations, patches and statuses out.

The only room that knows what objects look like. :func:`load` reads files, :func:`snapshot_from_objects` takes
objects that are parsed already, and both report every problem of every object at once.
"""

from koordcore.manifests._raw import SourceLimits
from koordcore.manifests.bundle import Loaded, load, snapshot_from_objects
from koordcore.manifests.encode import node_manifest, pod_manifest
from koordcore.manifests.events import EventReader
from koordcore.manifests.nodes import node_from_manifest
from koordcore.manifests.pods import pod_from_manifest
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.manifests.scheduler_config import policies_from_manifest

__all__ = [
    "EventReader",
    "Loaded",
    "SourceLimits",
    "load",
    "node_from_manifest",
    "node_manifest",
    "pod_from_manifest",
    "pod_manifest",
    "policies_from_manifest",
    "reservation_from_manifest",
    "snapshot_from_objects",
]
