"""Extended resources that device classes serve in a cluster, on nodes that do not list them.

A node that lists a resource has a device plugin for it, and no class serves it there; on the other nodes of
the same cluster devices are given by claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from immutabledict import immutabledict

from koordcore._record import record
from koordcore._vector import Vector
from koordcore.model.claims import DeviceClass
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived


@record(eq=False)
class _Served:
    """Classes by resource, how many nodes list each of these, and which therefore are served."""

    classes: Mapping[str, str]
    listing: Counter[str]
    served: immutabledict[str, str]


def served_by_classes(snapshot: ClusterSnapshot) -> immutabledict[str, str]:
    """Give the class of each resource that device classes serve on some node."""
    return derived(snapshot, _served, _served_again, replaced=True).served


def _served(snapshot: ClusterSnapshot) -> _Served:
    classes = snapshot.of(DeviceClass)
    if not classes:
        return _Served({}, Counter(), immutabledict())
    from koordcore.protocol.extended_resources import classes_by_resource  # few clusters have classes

    by_resource = classes_by_resource(classes)
    return _counted(by_resource, Counter(_listed(by_resource, *snapshot.nodes)), snapshot)


def _served_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: _Served, snapshot: ClusterSnapshot
) -> _Served:
    """Count what nodes that changed listed and list; other classes are read anew."""
    if any(isinstance(old or new, DeviceClass) for old, new in changed_records(snapshot, records)):
        return _served(snapshot)
    classes = value.classes
    if not classes:
        return value
    pairs = [
        (old, new)
        for old, new in changed_states(snapshot, nodes)
        if old is None or new is None or old.node.allocatable is not new.node.allocatable
    ]
    if not pairs:
        return value
    listing = value.listing.copy()
    listing.subtract(_listed(classes, *(old for old, _ in pairs if old is not None)))
    listing.update(_listed(classes, *(new for _, new in pairs if new is not None)))
    return _counted(classes, listing, snapshot)


def _listed(classes: Mapping[str, str], *states: NodeState) -> list[str]:
    """Give the names of what nodes list of what classes serve, once for each node."""
    found = []
    for state in states:
        offered = state.node.allocatable
        found += [name for name in classes if offered.get(name)]
    return found


def _counted(classes: Mapping[str, str], listing: Counter[str], snapshot: ClusterSnapshot) -> _Served:
    number = len(snapshot.layout.names)
    served = immutabledict({name: one for name, one in classes.items() if listing[name] < number})
    return _Served(classes, listing, served)


def asks_by_claims(pod: Pod, served: immutabledict[str, str]) -> bool:
    """Tell whether a pod has claims, or extended resources that become one."""
    return bool(pod.resource_claims) or asks_for_served(pod, served)


def asks_for_served(pod: Pod, served: immutabledict[str, str]) -> bool:
    """Tell whether device classes serve something of what a pod asks for."""
    return bool(served) and any(amount and name in served for name, amount in pod.requests.items())
