"""Feature gates: what a component's command line switches on, as far as anything here reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore.model.device_policy import DevicePolicy
from koordcore.model.quotas import QuotaPolicy

GATED_ARGUMENTS: Final[Mapping[str, tuple[type[Any], Mapping[str, str]]]] = immutabledict(
    {
        "DeviceShare": (DevicePolicy, immutabledict({"DevicePluginAdaption": "adapt_plugins"})),
        "ElasticQuota": (
            QuotaPolicy,
            immutabledict(
                {
                    "MultiQuotaTree": "multi_quota_tree",
                    "ElasticQuotaGuaranteeUsage": "guarantee_usage",
                    "DisableDefaultQuota": "disable_default_quota",
                }
            ),
        ),
    }
)
"""Plugin to the record of its arguments and the fields that feature gates decide, by gate."""

WEBHOOK_GATES: Final[Mapping[str, str]] = immutabledict(
    {
        "DisableDefaultQuota": "disable_default_quota",
        "ElasticQuotaEnableUpdateResourceKey": "update_resource_key",
        "ElasticQuotaGuaranteeUsage": "guarantee_usage",
        "SupportParentQuotaSubmitPod": "support_parent_quota_submit_pod",
    }
)
"""Gate to the rule of the quota webhook that it decides, for what is said when objects are read."""

POLICY_GATES: Final[Mapping[str, str]] = immutabledict({"PodGroupPreemptionPolicy": "group_preemption"})
"""Gate to the field of a policy that it decides."""

_ALWAYS: Final = (
    "CompositePodGroup",
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DynamicResourceAllocation",
    "ElasticMutatingWebhook",
    "ElasticValidatingWebhook",
    "EnableSyncGPUSharedResource",
    "GangScheduling",
    "GenericWorkload",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScaling",
    "MatchLabelKeysInPodAffinity",
    "MatchLabelKeysInPodTopologySpread",
    "MinDomainsInPodTopologySpread",
    "NodeDeclaredFeatures",
    "NodeInclusionPolicyInPodTopologySpread",
    "NominatedNodeNameForExpectation",
    "PodDisruptionBudget",
    "PodLevelResources",
    "PodSchedulingReadiness",
    "SidecarContainers",
    "TaintTolerationComparisonOperators",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
)
_NEVER: Final = (
    "CrossSchedulerNomination",
    "ElasticQuotaIgnorePodOverhead",
    "ElasticQuotaIgnoreTerminatingPod",
    "ElasticQuotaImmediateIgnoreTerminatingPod",
    "PreemptionPolicyTransformer",
    "SkipFilterWithNominatedPods",
    "SkipReservationFitsNode",
    "StorageCapacityScoring",
)
FIXED_GATES: Final[Mapping[str, bool]] = immutabledict(
    {**dict.fromkeys(_ALWAYS, True), **dict.fromkeys(_NEVER, False)}
)
"""Gates that act one way here, whatever a configuration says."""


def args_under(name: str, args: Any, gates: Mapping[str, bool]) -> Any:
    """Give a plugin's arguments as feature gates have them; themselves where none is about them."""
    found = GATED_ARGUMENTS.get(name)
    if found is None:
        return args
    kind, fields = found
    changes = {field: gates[gate] for gate, field in fields.items() if gate in gates}
    return attrs.evolve(kind() if args is None else args, **changes) if changes else args
