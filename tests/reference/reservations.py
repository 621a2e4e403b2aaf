"""What reservations hold, added up the slow way from the objects alone."""

from __future__ import annotations

import json

from koordcore.model.reservations import Reservation
from koordcore.snapshot import ClusterSnapshot

__all__ = ["held_amounts"]

USED = "scheduling.koordinator.sh/reservation-allocated"


def held_amounts(snapshot: ClusterSnapshot, node: str) -> tuple[int, int]:
    """Give the CPU that the pods of a node ask for, and the CPU that its reservations hold beside them."""
    pods = snapshot.node(node).pods
    used = sum(pod.requests.get("cpu", 0) for pod in pods)
    kept = 0
    for one in snapshot.of(Reservation):
        if one.status.phase != "Available" or one.status.node_name != node:
            continue
        held = one.status.allocatable.get("cpu", 0) if one.status.allocatable else 0
        owners = [pod for pod in pods if json.loads(pod.annotations.get(USED, "{}")).get("uid") == one.uid]
        if one.allocate_once and owners:
            continue
        kept += max(0, held - sum(pod.requests.get("cpu", 0) for pod in owners))
    return used, kept
