"""Extended resources that device classes serve in a cluster, which nodes need not have.

A resource is served by classes where no node of the cluster lists it. Where some nodes still have a device
plugin for it, only these take pods that ask for it: a node that lists none of it is not asked for devices.
"""

from __future__ import annotations

from immutabledict import immutabledict

from koordcore.model.claims import DeviceClass
from koordcore.model.pods import Pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


def served_by_classes(snapshot: ClusterSnapshot) -> immutabledict[str, str]:
    """Give the class of each resource that only device classes serve."""
    return once(snapshot, _served)


def _served(snapshot: ClusterSnapshot) -> immutabledict[str, str]:
    classes = snapshot.of(DeviceClass)
    if not classes:
        return immutabledict()
    from koordcore.protocol.extended_resources import classes_by_resource  # few clusters have classes

    listed = {name for state in snapshot.nodes for name, amount in state.node.allocatable.items() if amount}
    return immutabledict(
        {name: one for name, one in classes_by_resource(classes).items() if name not in listed}
    )


def asks_for_served(pod: Pod, served: immutabledict[str, str]) -> bool:
    """Tell whether device classes serve something of what a pod asks for."""
    return bool(served) and any(amount and name in served for name, amount in pod.requests.items())
