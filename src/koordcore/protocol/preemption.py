"""Labels and conditions by which preemption is told what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.protocol.quota import is_preemptible

DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
QUESTIONED_OBJECT_KEY: Final = "scheduling.koordinator.sh/questioned-object-key"
PREEMPTED_REASON: Final = "PreemptionByScheduler"
"""Reason of the condition DisruptionTarget that a preemptor sets on its victims."""
EVICTED_REASON: Final = "EvictionByEvictionAPI"
"""Reason that the eviction API writes there itself, in whoever's name it is called."""
_PREEMPTED: Final = "koordcore: preempting to accommodate "


def format_preempted(job: str) -> str:
    """Write the message of that condition: for whom the pod leaves."""
    return _PREEMPTED + job


def parse_preempted(message: str) -> str:
    """Read for whom a pod leaves; empty for a message that somebody else wrote."""
    return message.removeprefix(_PREEMPTED) if message.startswith(_PREEMPTED) else ""


def preemption_disabled(labels: Mapping[str, str]) -> bool:
    """Only the literal ``true`` protects a pod."""
    return labels.get(DISABLE_PREEMPTIBLE) == "true"


def is_protected(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod may not be evicted for others whatever their priority."""
    return preemption_disabled(labels) or not is_preemptible(labels)
