"""The preemption policy that a label of Koordinator asks for; the scheduler reads the pod's own field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.model.pods import PreemptionPolicy

POLICY: Final = "scheduling.koordinator.sh/preemption-policy"


def parse_policy(labels: Mapping[str, str]) -> PreemptionPolicy | None:
    """Read the policy label; None where it is absent or spelt in any other way."""
    text = labels.get(POLICY)
    return next((policy for policy in PreemptionPolicy if policy.value == text), None)


def transformed_policy(labels: Mapping[str, str]) -> PreemptionPolicy:
    """Give the policy under the gate PreemptionPolicyTransformer: without a legal label it is Never."""
    return parse_policy(labels) or PreemptionPolicy.NEVER
