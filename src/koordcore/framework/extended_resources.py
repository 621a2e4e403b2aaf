"""Extended resources that device classes serve in a cluster, on nodes that do not list them.

A node that lists a resource has a device plugin for it, and no class serves it there; on the other nodes of
the same cluster devices are given by claims.
"""

from __future__ import annotations

from collections import Counter

from immutabledict import immutabledict

from koordcore.model.claims import DeviceClass
from koordcore.model.pods import Pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


def served_by_classes(snapshot: ClusterSnapshot) -> immutabledict[str, str]:
    """Give the class of each resource that device classes serve on some node."""
    return once(snapshot, _served)


def _served(snapshot: ClusterSnapshot) -> immutabledict[str, str]:
    classes = snapshot.of(DeviceClass)
    if not classes:
        return immutabledict()
    from koordcore.protocol.extended_resources import classes_by_resource  # few clusters have classes

    by_resource = classes_by_resource(classes)
    listing = Counter(
        name
        for state in snapshot.nodes
        for name, amount in state.node.allocatable.items()
        if amount and name in by_resource
    )
    number = len(snapshot.nodes)
    return immutabledict({name: one for name, one in by_resource.items() if listing[name] < number})


def asks_for_served(pod: Pod, served: immutabledict[str, str]) -> bool:
    """Tell whether device classes serve something of what a pod asks for."""
    return bool(served) and any(amount and name in served for name, amount in pod.requests.items())
