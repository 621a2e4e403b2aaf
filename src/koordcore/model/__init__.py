"""What is there: frozen records of the cluster, of what is asked of it, and of what was decided."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.model.affinity import (
        Affinity as Affinity,
        NodeAffinity as NodeAffinity,
        PodAffinity as PodAffinity,
        PodAffinityTerm as PodAffinityTerm,
        PreferredNodeTerm as PreferredNodeTerm,
        Taint as Taint,
        TaintEffect as TaintEffect,
        Toleration as Toleration,
        TolerationOperator as TolerationOperator,
        TopologySpreadConstraint as TopologySpreadConstraint,
        UnsatisfiableAction as UnsatisfiableAction,
        WeightedPodAffinityTerm as WeightedPodAffinityTerm,
    )
    from koordcore.model.certificates import (
        Certificate as Certificate,
        CertificateStatus as CertificateStatus,
        Limits as Limits,
    )
    from koordcore.model.claims import (
        ClaimArgs as ClaimArgs,
        ClaimSpec as ClaimSpec,
        DeviceClass as DeviceClass,
        ResourceClaim as ResourceClaim,
        ResourceClaimTemplate as ResourceClaimTemplate,
    )
    from koordcore.model.cluster import (
        Namespace as Namespace,
        PodDisruptionBudget as PodDisruptionBudget,
        PriorityClass as PriorityClass,
    )
    from koordcore.model.containers import Container as Container
    from koordcore.model.decisions import (
        Bound as Bound,
        JobPlan as JobPlan,
        NearMiss as NearMiss,
        Nominated as Nominated,
        NotOurs as NotOurs,
        PodDecision as PodDecision,
        Rejection as Rejection,
        Shortfall as Shortfall,
        Unschedulable as Unschedulable,
        Victim as Victim,
        Waiting as Waiting,
    )
    from koordcore.model.device_policy import DevicePolicy as DevicePolicy
    from koordcore.model.device_slices import ResourceSlice as ResourceSlice
    from koordcore.model.devices import (
        Device as Device,
        DeviceAllocation as DeviceAllocation,
        DeviceInventory as DeviceInventory,
        DeviceType as DeviceType,
    )
    from koordcore.model.gangs import (
        CoschedulingArgs as CoschedulingArgs,
        Gang as Gang,
        GatherRule as GatherRule,
        GatherStrategy as GatherStrategy,
        MatchPolicy as MatchPolicy,
        NetworkTopologySpec as NetworkTopologySpec,
        PodGroup as PodGroup,
    )
    from koordcore.model.load import LoadAwareArgs as LoadAwareArgs
    from koordcore.model.metrics import (
        NodeMetric as NodeMetric,
        measured_of as measured_of,
    )
    from koordcore.model.network import ClusterNetworkTopology as ClusterNetworkTopology
    from koordcore.model.nodes import (
        Node as Node,
        NodeState as NodeState,
    )
    from koordcore.model.numa import (
        CPUBindPolicy as CPUBindPolicy,
        NodeResourceTopology as NodeResourceTopology,
        NUMAArgs as NUMAArgs,
        NUMANodeResource as NUMANodeResource,
        NUMATopologyPolicy as NUMATopologyPolicy,
    )
    from koordcore.model.plugin_args import (
        FitArgs as FitArgs,
        FitPlusArgs as FitPlusArgs,
        InterPodArgs as InterPodArgs,
        NodeAffinityArgs as NodeAffinityArgs,
        ScarceArgs as ScarceArgs,
        ScoringStrategy as ScoringStrategy,
        SpreadArgs as SpreadArgs,
    )
    from koordcore.model.pods import (
        OwnerReference as OwnerReference,
        Pod as Pod,
        PodKey as PodKey,
        PreemptionPolicy as PreemptionPolicy,
        SchedulingGroup as SchedulingGroup,
    )
    from koordcore.model.policy import (
        GangTurns as GangTurns,
        PluginSetting as PluginSetting,
        Policy as Policy,
    )
    from koordcore.model.preemption import (
        Gather as Gather,
        Members as Members,
        PreemptionPlan as PreemptionPlan,
        PreemptionRules as PreemptionRules,
        Relocation as Relocation,
    )
    from koordcore.model.quotas import (
        ElasticQuota as ElasticQuota,
        QuotaPod as QuotaPod,
        QuotaPolicy as QuotaPolicy,
    )
    from koordcore.model.rebalance import (
        LowNodeLoadArgs as LowNodeLoadArgs,
        MigrationControllerArgs as MigrationControllerArgs,
    )
    from koordcore.model.reservations import (
        Reservation as Reservation,
        ReservationArgs as ReservationArgs,
        ReservationMatching as ReservationMatching,
        ReservationOwner as ReservationOwner,
    )
    from koordcore.model.resources import (
        Resources as Resources,
        format_resources as format_resources,
        make_resources as make_resources,
        parse_resources as parse_resources,
    )
    from koordcore.model.scheduling_groups import (
        CompositePodGroup as CompositePodGroup,
        SchedulingPodGroup as SchedulingPodGroup,
        SchedulingWorkload as SchedulingWorkload,
    )
    from koordcore.model.selectors import (
        LabelSelector as LabelSelector,
        NodeSelector as NodeSelector,
        NodeSelectorTerm as NodeSelectorTerm,
        Requirement as Requirement,
        SelectorOperator as SelectorOperator,
    )
    from koordcore.model.volumes import (
        PersistentVolume as PersistentVolume,
        PersistentVolumeClaim as PersistentVolumeClaim,
        StorageClass as StorageClass,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.model.affinity": (
                "Affinity",
                "NodeAffinity",
                "PodAffinity",
                "PodAffinityTerm",
                "PreferredNodeTerm",
                "Taint",
                "TaintEffect",
                "Toleration",
                "TolerationOperator",
                "TopologySpreadConstraint",
                "UnsatisfiableAction",
                "WeightedPodAffinityTerm",
            ),
            "koordcore.model.certificates": ("Certificate", "CertificateStatus", "Limits"),
            "koordcore.model.claims": (
                "ClaimArgs",
                "ClaimSpec",
                "DeviceClass",
                "ResourceClaim",
                "ResourceClaimTemplate",
            ),
            "koordcore.model.cluster": ("Namespace", "PodDisruptionBudget", "PriorityClass"),
            "koordcore.model.decisions": (
                "Bound",
                "JobPlan",
                "NearMiss",
                "Nominated",
                "NotOurs",
                "PodDecision",
                "Rejection",
                "Shortfall",
                "Unschedulable",
                "Victim",
                "Waiting",
            ),
            "koordcore.model.device_policy": ("DevicePolicy",),
            "koordcore.model.device_slices": ("ResourceSlice",),
            "koordcore.model.devices": ("Device", "DeviceAllocation", "DeviceInventory", "DeviceType"),
            "koordcore.model.gangs": (
                "CoschedulingArgs",
                "Gang",
                "GatherRule",
                "GatherStrategy",
                "MatchPolicy",
                "NetworkTopologySpec",
                "PodGroup",
            ),
            "koordcore.model.load": ("LoadAwareArgs",),
            "koordcore.model.metrics": ("NodeMetric", "measured_of"),
            "koordcore.model.network": ("ClusterNetworkTopology",),
            "koordcore.model.nodes": ("Node", "NodeState"),
            "koordcore.model.numa": (
                "CPUBindPolicy",
                "NUMAArgs",
                "NUMANodeResource",
                "NUMATopologyPolicy",
                "NodeResourceTopology",
            ),
            "koordcore.model.containers": ("Container",),
            "koordcore.model.plugin_args": (
                "FitArgs",
                "FitPlusArgs",
                "InterPodArgs",
                "NodeAffinityArgs",
                "ScarceArgs",
                "ScoringStrategy",
                "SpreadArgs",
            ),
            "koordcore.model.pods": (
                "OwnerReference",
                "Pod",
                "PodKey",
                "PreemptionPolicy",
                "SchedulingGroup",
            ),
            "koordcore.model.policy": ("GangTurns", "PluginSetting", "Policy"),
            "koordcore.model.preemption": (
                "Gather",
                "Members",
                "PreemptionPlan",
                "PreemptionRules",
                "Relocation",
            ),
            "koordcore.model.quotas": ("ElasticQuota", "QuotaPod", "QuotaPolicy"),
            "koordcore.model.rebalance": ("LowNodeLoadArgs", "MigrationControllerArgs"),
            "koordcore.model.reservations": (
                "Reservation",
                "ReservationArgs",
                "ReservationMatching",
                "ReservationOwner",
            ),
            "koordcore.model.resources": (
                "Resources",
                "format_resources",
                "make_resources",
                "parse_resources",
            ),
            "koordcore.model.scheduling_groups": (
                "CompositePodGroup",
                "SchedulingPodGroup",
                "SchedulingWorkload",
            ),
            "koordcore.model.selectors": (
                "LabelSelector",
                "NodeSelector",
                "NodeSelectorTerm",
                "Requirement",
                "SelectorOperator",
            ),
            "koordcore.model.volumes": ("PersistentVolume", "PersistentVolumeClaim", "StorageClass"),
        },
    )
