"""What calls are about: which very object, so that none meets a later one of its name, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.manifests.calls import Call
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.model.volumes import PersistentVolumeClaim
from koordcore.snapshot import ClusterSnapshot


def uid_of(call: Call, snapshot: ClusterSnapshot) -> str:
    """Give the uid of what a call is about; empty where the call has it, or it is made only now."""
    if call.claim:
        return ""
    if call.node:
        return snapshot.node(call.node).node.uid
    record: Reservation | PersistentVolumeClaim | SchedulingPodGroup | None
    if call.pod_group:
        record = snapshot.find(SchedulingPodGroup, call.pod.name, call.pod.namespace)
    elif call.reservation:
        record = snapshot.find(Reservation, call.reservation)
    elif call.volume_claim:
        record = snapshot.find(PersistentVolumeClaim, call.volume_claim, call.pod.namespace)
    else:
        return uid_of_pod(call.pod, snapshot)
    return "" if record is None else record.uid


def uid_of_pod(key: PodKey, snapshot: ClusterSnapshot) -> str:
    """Give the uid of a pod of a snapshot."""
    # Members of half a gang may run on a node that is gone: they are records then.
    pod = snapshot.pod(key) or snapshot.find(Pod, key.name, key.namespace)
    assert pod is not None
    return pod.uid


def waits_no_more(item: Mapping[str, Any]) -> bool:
    """Tell whether an object is a reservation with a place: what becomes of it is its controller's to say."""
    phase = (item.get("status") or {}).get("phase")
    return item.get("kind") == "Reservation" and phase not in (None, "", "Pending")
