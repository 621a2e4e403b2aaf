"""GPU-cluster scheduling as a pure library: snapshots in, proven decisions out.

A name is read from its module when it is first used: ``import koordcore`` loads neither numpy nor attrs.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.checking.entry import (
        check_certificate as check_certificate,
        verify as verify,
    )
    from koordcore.checking.violation import (
        Violation as Violation,
        ViolationKind as ViolationKind,
    )
    from koordcore.colocation.cluster import lend as lend
    from koordcore.descheduling.defrag import plan_defragmentation as plan_defragmentation
    from koordcore.descheduling.plans import (
        plan_cooling as plan_cooling,
        plan_room as plan_room,
    )
    from koordcore.errors import (
        KoordcoreError as KoordcoreError,
        ManifestError as ManifestError,
        MissingExtraError as MissingExtraError,
        ModelError as ModelError,
        SolverError as SolverError,
    )
    from koordcore.explaining.pod import (
        Explanation as Explanation,
        explain as explain,
    )
    from koordcore.manifests.loading import (
        load as load,
        snapshot_from_objects as snapshot_from_objects,
    )
    from koordcore.manifests.named_policies import named_policy as named_policy
    from koordcore.manifests.plan_patches import patches as patches
    from koordcore.model.affinity import (
        Affinity as Affinity,
        Taint as Taint,
        Toleration as Toleration,
        TopologySpreadConstraint as TopologySpreadConstraint,
    )
    from koordcore.model.certificates import (
        Certificate as Certificate,
        CertificateStatus as CertificateStatus,
        Limits as Limits,
    )
    from koordcore.model.claims import (
        DeviceClass as DeviceClass,
        ResourceClaim as ResourceClaim,
    )
    from koordcore.model.cluster import (
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
    from koordcore.model.device_slices import ResourceSlice as ResourceSlice
    from koordcore.model.devices import DeviceInventory as DeviceInventory
    from koordcore.model.gangs import (
        GatherRule as GatherRule,
        NetworkTopologySpec as NetworkTopologySpec,
        PodGroup as PodGroup,
    )
    from koordcore.model.metrics import NodeMetric as NodeMetric
    from koordcore.model.network import ClusterNetworkTopology as ClusterNetworkTopology
    from koordcore.model.nodes import (
        Node as Node,
        NodeState as NodeState,
    )
    from koordcore.model.numa import NodeResourceTopology as NodeResourceTopology
    from koordcore.model.pods import Pod as Pod, PodKey as PodKey, SchedulingGroup as SchedulingGroup
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
    from koordcore.model.quotas import ElasticQuota as ElasticQuota
    from koordcore.model.reservations import Reservation as Reservation
    from koordcore.model.scheduling_groups import (
        CompositePodGroup as CompositePodGroup,
        SchedulingPodGroup as SchedulingPodGroup,
    )
    from koordcore.reporting.page import report as report
    from koordcore.result import ScheduleResult as ScheduleResult
    from koordcore.scheduling.backfilling import (
        backfill as backfill,
        earliest_start as earliest_start,
    )
    from koordcore.scheduling.cycle import queue_order as queue_order
    from koordcore.scheduling.entry import schedule as schedule
    from koordcore.simulate.compare import compare_policies as compare_policies
    from koordcore.simulate.scheduled import replay_schedule as replay_schedule
    from koordcore.snapshot.cluster import ClusterSnapshot as ClusterSnapshot
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.checking.entry": ("check_certificate", "verify"),
            "koordcore.checking.violation": ("Violation", "ViolationKind"),
            "koordcore.colocation.cluster": ("lend",),
            "koordcore.descheduling.defrag": ("plan_defragmentation",),
            "koordcore.descheduling.plans": ("plan_cooling", "plan_room"),
            "koordcore.errors": (
                "KoordcoreError",
                "ManifestError",
                "MissingExtraError",
                "ModelError",
                "SolverError",
            ),
            "koordcore.explaining.pod": ("Explanation", "explain"),
            "koordcore.manifests.loading": ("load", "snapshot_from_objects"),
            "koordcore.manifests.named_policies": ("named_policy",),
            "koordcore.manifests.plan_patches": ("patches",),
            "koordcore.model.affinity": ("Affinity", "Taint", "Toleration", "TopologySpreadConstraint"),
            "koordcore.model.certificates": ("Certificate", "CertificateStatus", "Limits"),
            "koordcore.model.claims": ("DeviceClass", "ResourceClaim"),
            "koordcore.model.cluster": ("PodDisruptionBudget", "PriorityClass"),
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
            "koordcore.model.device_slices": ("ResourceSlice",),
            "koordcore.model.devices": ("DeviceInventory",),
            "koordcore.model.gangs": ("GatherRule", "NetworkTopologySpec", "PodGroup"),
            "koordcore.model.metrics": ("NodeMetric",),
            "koordcore.model.network": ("ClusterNetworkTopology",),
            "koordcore.model.nodes": ("Node", "NodeState"),
            "koordcore.model.numa": ("NodeResourceTopology",),
            "koordcore.model.containers": ("Container",),
            "koordcore.model.pods": ("Pod", "PodKey", "SchedulingGroup"),
            "koordcore.model.policy": ("GangTurns", "PluginSetting", "Policy"),
            "koordcore.model.preemption": (
                "Gather",
                "Members",
                "PreemptionPlan",
                "PreemptionRules",
                "Relocation",
            ),
            "koordcore.model.quotas": ("ElasticQuota",),
            "koordcore.model.reservations": ("Reservation",),
            "koordcore.model.scheduling_groups": ("CompositePodGroup", "SchedulingPodGroup"),
            "koordcore.reporting.page": ("report",),
            "koordcore.result": ("ScheduleResult",),
            "koordcore.scheduling.backfilling": ("backfill", "earliest_start"),
            "koordcore.scheduling.cycle": ("queue_order",),
            "koordcore.scheduling.entry": ("schedule",),
            "koordcore.simulate.compare": ("compare_policies",),
            "koordcore.simulate.scheduled": ("replay_schedule",),
            "koordcore.snapshot.cluster": ("ClusterSnapshot",),
        },
    )

__version__ = "0.1.0"
