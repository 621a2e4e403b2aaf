"""Pods that stand for reservations on the nodes that hold their room."""

from __future__ import annotations

from typing import Final

from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod

RESERVE_POD: Final = "scheduling.koordinator.sh/reserve-pod"


def is_reserve_pod(pod: Pod) -> bool:
    """Tell whether a pod stands for a reservation."""
    notes = pod.annotations
    return notes is not EMPTY and RESERVE_POD in notes and notes[RESERVE_POD] == "true"
