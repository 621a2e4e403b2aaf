"""Which pods are one workload to the people who look at them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.gang_names import gang_name
from koordcore.snapshot import ClusterSnapshot

_HASH: Final = "pod-template-hash"
_NUMBERED: Final = re.compile(r"(?P<stem>.+)-[0-9]+\Z")


def workload_of(pod: Pod) -> str:
    """Name what a pod belongs to: its gang, its controller, or the name that it was numbered from.

    Returns
    -------
    str
        Without the namespace; empty for a pod that stands alone. The ReplicaSet of a Deployment counts as the
        Deployment. A number at the end of a name says something only where several pods share the rest.

    Examples
    --------
    >>> workload_of(Pod(name="web-0")), workload_of(Pod(name="report"))
    ('web', '')
    """
    gang = gang_name(pod.labels, pod.annotations)
    if gang:
        return gang
    owner = pod.controller
    if owner is not None:
        suffix = f"-{pod.labels.get(_HASH, '')}"
        return owner.name.removesuffix(suffix) if owner.kind == "ReplicaSet" else owner.name
    numbered = _NUMBERED.match(pod.name)
    return numbered["stem"] if numbered else ""


def by_workload(pods: Iterable[Pod]) -> Mapping[PodKey, str]:
    """Give each pod the name that it is shown under: ``namespace/workload``, or its own where it is alone.

    Parameters
    ----------
    pods
        All that are shown together.
    """
    named = {pod.key: (pod.namespace, workload_of(pod)) for pod in pods}
    counts = Counter(named.values())
    return {
        key: f"{space}/{name}" if name and counts[space, name] > 1 else str(key)
        for key, (space, name) in named.items()
    }


def stand_in_names(snapshot: ClusterSnapshot) -> dict[PodKey, str]:
    """Give what tables call the pods that stand for a reservation, by their keys."""
    return {one.pod_key: f"reservation/{one.name}" for one in snapshot.of(Reservation)}
