"""What is there: frozen records of the cluster, of what is asked of it, and of what was decided."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.model.affinity import (
        Affinity as Affinity,
    )
    from koordcore.model.affinity import (
        NodeAffinity as NodeAffinity,
    )
    from koordcore.model.affinity import (
        PodAffinity as PodAffinity,
    )
    from koordcore.model.affinity import (
        PodAffinityTerm as PodAffinityTerm,
    )
    from koordcore.model.affinity import (
        PreferredNodeTerm as PreferredNodeTerm,
    )
    from koordcore.model.affinity import (
        Taint as Taint,
    )
    from koordcore.model.affinity import (
        TaintEffect as TaintEffect,
    )
    from koordcore.model.affinity import (
        Toleration as Toleration,
    )
    from koordcore.model.affinity import (
        TolerationOperator as TolerationOperator,
    )
    from koordcore.model.affinity import (
        TopologySpreadConstraint as TopologySpreadConstraint,
    )
    from koordcore.model.affinity import (
        UnsatisfiableAction as UnsatisfiableAction,
    )
    from koordcore.model.affinity import (
        WeightedPodAffinityTerm as WeightedPodAffinityTerm,
    )
    from koordcore.model.certificates import (
        Certificate as Certificate,
    )
    from koordcore.model.certificates import (
        CertificateStatus as CertificateStatus,
    )
    from koordcore.model.certificates import (
        Limits as Limits,
    )
    from koordcore.model.claims import (
        ClaimArgs as ClaimArgs,
    )
    from koordcore.model.claims import (
        ClaimSpec as ClaimSpec,
    )
    from koordcore.model.claims import (
        DeviceClass as DeviceClass,
    )
    from koordcore.model.claims import (
        ResourceClaim as ResourceClaim,
    )
    from koordcore.model.claims import (
        ResourceClaimTemplate as ResourceClaimTemplate,
    )
    from koordcore.model.claims import (
        ResourceSlice as ResourceSlice,
    )
    from koordcore.model.cluster import (
        Namespace as Namespace,
    )
    from koordcore.model.cluster import (
        PodDisruptionBudget as PodDisruptionBudget,
    )
    from koordcore.model.cluster import (
        PriorityClass as PriorityClass,
    )
    from koordcore.model.decisions import (
        Bound as Bound,
    )
    from koordcore.model.decisions import (
        JobPlan as JobPlan,
    )
    from koordcore.model.decisions import (
        NearMiss as NearMiss,
    )
    from koordcore.model.decisions import (
        Nominated as Nominated,
    )
    from koordcore.model.decisions import (
        NotOurs as NotOurs,
    )
    from koordcore.model.decisions import (
        PodDecision as PodDecision,
    )
    from koordcore.model.decisions import (
        Rejection as Rejection,
    )
    from koordcore.model.decisions import (
        Shortfall as Shortfall,
    )
    from koordcore.model.decisions import (
        Unschedulable as Unschedulable,
    )
    from koordcore.model.decisions import (
        Victim as Victim,
    )
    from koordcore.model.decisions import (
        Waiting as Waiting,
    )
    from koordcore.model.device_policy import DevicePolicy as DevicePolicy
    from koordcore.model.devices import (
        Device as Device,
    )
    from koordcore.model.devices import (
        DeviceAllocation as DeviceAllocation,
    )
    from koordcore.model.devices import (
        DeviceInventory as DeviceInventory,
    )
    from koordcore.model.devices import (
        DeviceType as DeviceType,
    )
    from koordcore.model.gangs import (
        CoschedulingArgs as CoschedulingArgs,
    )
    from koordcore.model.gangs import (
        Gang as Gang,
    )
    from koordcore.model.gangs import (
        GatherRule as GatherRule,
    )
    from koordcore.model.gangs import (
        GatherStrategy as GatherStrategy,
    )
    from koordcore.model.gangs import (
        MatchPolicy as MatchPolicy,
    )
    from koordcore.model.gangs import (
        NetworkTopologySpec as NetworkTopologySpec,
    )
    from koordcore.model.gangs import (
        PodGroup as PodGroup,
    )
    from koordcore.model.load import LoadAwareArgs as LoadAwareArgs
    from koordcore.model.metrics import (
        NodeMetric as NodeMetric,
    )
    from koordcore.model.metrics import (
        measured_of as measured_of,
    )
    from koordcore.model.network import ClusterNetworkTopology as ClusterNetworkTopology
    from koordcore.model.nodes import (
        Node as Node,
    )
    from koordcore.model.nodes import (
        NodeState as NodeState,
    )
    from koordcore.model.numa import (
        CPUBindPolicy as CPUBindPolicy,
    )
    from koordcore.model.numa import (
        NodeResourceTopology as NodeResourceTopology,
    )
    from koordcore.model.numa import (
        NUMAArgs as NUMAArgs,
    )
    from koordcore.model.numa import (
        NUMANodeResource as NUMANodeResource,
    )
    from koordcore.model.numa import (
        NUMATopologyPolicy as NUMATopologyPolicy,
    )
    from koordcore.model.pods import (
        Container as Container,
    )
    from koordcore.model.pods import (
        OwnerReference as OwnerReference,
    )
    from koordcore.model.pods import (
        Pod as Pod,
    )
    from koordcore.model.pods import (
        PodKey as PodKey,
    )
    from koordcore.model.pods import (
        PreemptionPolicy as PreemptionPolicy,
    )
    from koordcore.model.pods import (
        SchedulingGroup as SchedulingGroup,
    )
    from koordcore.model.policy import (
        FitArgs as FitArgs,
    )
    from koordcore.model.policy import (
        FitPlusArgs as FitPlusArgs,
    )
    from koordcore.model.policy import (
        GangTurns as GangTurns,
    )
    from koordcore.model.policy import (
        InterPodArgs as InterPodArgs,
    )
    from koordcore.model.policy import (
        NodeAffinityArgs as NodeAffinityArgs,
    )
    from koordcore.model.policy import (
        PluginSetting as PluginSetting,
    )
    from koordcore.model.policy import (
        Policy as Policy,
    )
    from koordcore.model.policy import (
        ScarceArgs as ScarceArgs,
    )
    from koordcore.model.policy import (
        ScoringStrategy as ScoringStrategy,
    )
    from koordcore.model.policy import (
        SpreadArgs as SpreadArgs,
    )
    from koordcore.model.preemption import (
        Gather as Gather,
    )
    from koordcore.model.preemption import (
        Members as Members,
    )
    from koordcore.model.preemption import (
        PreemptionPlan as PreemptionPlan,
    )
    from koordcore.model.preemption import (
        PreemptionRules as PreemptionRules,
    )
    from koordcore.model.preemption import (
        Relocation as Relocation,
    )
    from koordcore.model.quotas import (
        ElasticQuota as ElasticQuota,
    )
    from koordcore.model.quotas import (
        QuotaPod as QuotaPod,
    )
    from koordcore.model.quotas import (
        QuotaPolicy as QuotaPolicy,
    )
    from koordcore.model.rebalance import (
        LowNodeLoadArgs as LowNodeLoadArgs,
    )
    from koordcore.model.rebalance import (
        MigrationControllerArgs as MigrationControllerArgs,
    )
    from koordcore.model.reservations import (
        Reservation as Reservation,
    )
    from koordcore.model.reservations import (
        ReservationArgs as ReservationArgs,
    )
    from koordcore.model.reservations import (
        ReservationMatching as ReservationMatching,
    )
    from koordcore.model.reservations import (
        ReservationOwner as ReservationOwner,
    )
    from koordcore.model.resources import (
        Resources as Resources,
    )
    from koordcore.model.resources import (
        format_resources as format_resources,
    )
    from koordcore.model.resources import (
        make_resources as make_resources,
    )
    from koordcore.model.resources import (
        parse_resources as parse_resources,
    )
    from koordcore.model.scheduling_groups import (
        CompositePodGroup as CompositePodGroup,
    )
    from koordcore.model.scheduling_groups import (
    )
    from koordcore.model.scheduling_groups import (
        SchedulingPodGroup as SchedulingPodGroup,
    )
    from koordcore.model.scheduling_groups import (
        SchedulingWorkload as SchedulingWorkload,
    )
    from koordcore.model.scheduling_groups import (
    )
    from koordcore.model.selectors import (
        LabelSelector as LabelSelector,
    )
    from koordcore.model.selectors import (
        NodeSelector as NodeSelector,
    )
    from koordcore.model.selectors import (
        NodeSelectorTerm as NodeSelectorTerm,
    )
    from koordcore.model.selectors import (
        Requirement as Requirement,
    )
    from koordcore.model.selectors import (
        SelectorOperator as SelectorOperator,
    )
    from koordcore.model.volumes import (
        PersistentVolume as PersistentVolume,
    )
    from koordcore.model.volumes import (
        PersistentVolumeClaim as PersistentVolumeClaim,
    )
    from koordcore.model.volumes import (
        StorageClass as StorageClass,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.model.affinity": (
                "Affinity NodeAffinity PodAffinity PodAffinityTerm PreferredNodeTerm Taint "
                "TaintEffect Toleration TolerationOperator TopologySpreadConstraint "
                "UnsatisfiableAction WeightedPodAffinityTerm"
            ),
            "koordcore.model.certificates": "Certificate CertificateStatus Limits",
            "koordcore.model.claims": (
                "ClaimArgs ClaimSpec DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice"
            ),
            "koordcore.model.cluster": "Namespace PodDisruptionBudget PriorityClass",
            "koordcore.model.decisions": (
                "Bound JobPlan NearMiss Nominated NotOurs PodDecision Rejection "
                "Shortfall Unschedulable Victim Waiting"
            ),
            "koordcore.model.device_policy": "DevicePolicy",
            "koordcore.model.devices": "Device DeviceAllocation DeviceInventory DeviceType",
            "koordcore.model.gangs": (
                "CoschedulingArgs Gang GatherRule GatherStrategy MatchPolicy NetworkTopologySpec PodGroup"
            ),
            "koordcore.model.load": "LoadAwareArgs",
            "koordcore.model.metrics": "NodeMetric measured_of",
            "koordcore.model.network": "ClusterNetworkTopology",
            "koordcore.model.nodes": "Node NodeState",
            "koordcore.model.numa": (
                "CPUBindPolicy NUMAArgs NUMANodeResource NUMATopologyPolicy NodeResourceTopology"
            ),
            "koordcore.model.pods": "Container OwnerReference Pod PodKey PreemptionPolicy SchedulingGroup",
            "koordcore.model.policy": (
                "FitArgs FitPlusArgs GangTurns InterPodArgs NodeAffinityArgs PluginSetting Policy "
                "ScarceArgs ScoringStrategy SpreadArgs"
            ),
            "koordcore.model.preemption": ("Gather Members PreemptionPlan PreemptionRules Relocation"),
            "koordcore.model.quotas": "ElasticQuota QuotaPod QuotaPolicy",
            "koordcore.model.rebalance": "LowNodeLoadArgs MigrationControllerArgs",
            "koordcore.model.reservations": (
                "Reservation ReservationArgs ReservationMatching ReservationOwner"
            ),
            "koordcore.model.resources": ("Resources format_resources make_resources parse_resources"),
            "koordcore.model.scheduling_groups": (
                "CompositePodGroup SchedulingPodGroup SchedulingWorkload "
            ),
            "koordcore.model.selectors": (
                "LabelSelector NodeSelector NodeSelectorTerm Requirement SelectorOperator"
            ),
            "koordcore.model.volumes": "PersistentVolume PersistentVolumeClaim StorageClass",
        },
    )
