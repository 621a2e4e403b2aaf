"""Labels and conditions by which preemption is told what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordcore.model.pods import PreemptionPolicy
from koordcore.model.preemption import PreemptionDiagnosis
from koordcore.protocol.quota import is_preemptible

__all__ = [
    "DISABLE_PREEMPTIBLE",
    "EVICTED_REASON",
    "POLICY",
    "PREEMPTED_REASON",
    "QUESTIONED_OBJECT_KEY",
    "format_diagnosis",
    "format_preempted",
    "is_protected",
    "parse_policy",
    "parse_preempted",
    "preemption_disabled",
    "transformed_policy",
]

POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
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


def parse_policy(labels: Mapping[str, str]) -> PreemptionPolicy | None:
    """Read the policy label; None where it is absent or spelt in any other way."""
    text = labels.get(POLICY)
    return next((policy for policy in PreemptionPolicy if policy.value == text), None)


def transformed_policy(labels: Mapping[str, str]) -> PreemptionPolicy:
    """Give the policy under the gate PreemptionPolicyTransformer: without a legal label it is Never."""
    return parse_policy(labels) or PreemptionPolicy.NEVER


def preemption_disabled(labels: Mapping[str, str]) -> bool:
    """Only the literal ``true`` protects a pod."""
    return labels.get(DISABLE_PREEMPTIBLE) == "true"


def is_protected(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod may not be evicted for others whatever their priority."""
    return preemption_disabled(labels) or not is_preemptible(labels)


def format_diagnosis(diagnosis: PreemptionDiagnosis, uids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Write the record as upstream does; lower-case fields that are zero or empty are left out.

    Parameters
    ----------
    uids
        Uid of every victim, by ``namespace/name``.
    """
    slots = diagnosis.slots
    record: dict[str, Any] = {
        "TriggerPodKey": diagnosis.trigger,
        "preemptorKey": diagnosis.preemptor,
        "reason": diagnosis.reason,
        "message": diagnosis.message,
        "terminatingPodOnNominatedNode": dict(diagnosis.terminating),
        "podToNominatedNode": dict(diagnosis.nominations),
        "SchedulingMode": diagnosis.mode,
        "NodeToOfferSlot": None if slots is None else dict(slots),
        "unschedulablePodsNumber": len(diagnosis.unschedulable),
        "victims": _victims(diagnosis, uids or {}),
    }
    return {key: value for key, value in record.items() if value or key[0].isupper()}


def _victims(diagnosis: PreemptionDiagnosis, uids: Mapping[str, str]) -> list[dict[str, Any]]:
    by_node: dict[str, list[dict[str, str]]] = {}
    for victim in sorted(diagnosis.victims, key=lambda one: (one.node, one.pod)):
        pod = {"namespace": victim.pod.namespace, "name": victim.pod.name}
        uid = uids.get(str(victim.pod), "")
        by_node.setdefault(victim.node, []).append({**pod, "uid": uid} if uid else pod)
    return [{"nodeName": node, "possibleVictims": pods} for node, pods in by_node.items()]
