"""GPU-cluster scheduling as a pure library: snapshots in, proven decisions out.

A name is read from its module when it is first used: ``import koordcore`` loads neither numpy nor attrs.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.checking.entry import (
        check_certificate as check_certificate,
    )
    from koordcore.checking.entry import (
        verify as verify,
    )
    from koordcore.checking.violation import (
        Violation as Violation,
    )
    from koordcore.checking.violation import (
        ViolationKind as ViolationKind,
    )
    from koordcore.colocation.cluster import lend as lend
    from koordcore.descheduling.defrag import plan_defragmentation as plan_defragmentation
    from koordcore.descheduling.plans import (
        plan_cooling as plan_cooling,
    )
    from koordcore.descheduling.plans import (
        plan_room as plan_room,
    )
    from koordcore.errors import (
        KoordcoreError as KoordcoreError,
    )
    from koordcore.errors import (
        ManifestError as ManifestError,
    )
    from koordcore.errors import (
        MissingExtraError as MissingExtraError,
    )
    from koordcore.errors import (
        ModelError as ModelError,
    )
    from koordcore.errors import (
        SolverError as SolverError,
    )
    from koordcore.explaining.pod import (
        Explanation as Explanation,
    )
    from koordcore.explaining.pod import (
        explain as explain,
    )
    from koordcore.manifests.bundle import (
        load as load,
    )
    from koordcore.manifests.bundle import (
        snapshot_from_objects as snapshot_from_objects,
    )
    from koordcore.manifests.named_policies import named_policy as named_policy
    from koordcore.manifests.plan_patches import patches as patches
    from koordcore.model.affinity import (
        Affinity as Affinity,
    )
    from koordcore.model.affinity import (
        Taint as Taint,
    )
    from koordcore.model.affinity import (
        Toleration as Toleration,
    )
    from koordcore.model.affinity import (
        TopologySpreadConstraint as TopologySpreadConstraint,
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
        DeviceClass as DeviceClass,
    )
    from koordcore.model.claims import (
        ResourceClaim as ResourceClaim,
    )
    from koordcore.model.claims import (
        ResourceSlice as ResourceSlice,
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
    from koordcore.model.devices import DeviceInventory as DeviceInventory
    from koordcore.model.gangs import (
        GatherRule as GatherRule,
    )
    from koordcore.model.gangs import (
        NetworkTopologySpec as NetworkTopologySpec,
    )
    from koordcore.model.gangs import (
        PodGroup as PodGroup,
    )
    from koordcore.model.metrics import NodeMetric as NodeMetric
    from koordcore.model.network import ClusterNetworkTopology as ClusterNetworkTopology
    from koordcore.model.nodes import (
        Node as Node,
    )
    from koordcore.model.nodes import (
        NodeState as NodeState,
    )
    from koordcore.model.numa import NodeResourceTopology as NodeResourceTopology
    from koordcore.model.pods import (
        Container as Container,
    )
    from koordcore.model.pods import (
        Pod as Pod,
    )
    from koordcore.model.pods import (
        PodKey as PodKey,
    )
    from koordcore.model.pods import (
        SchedulingGroup as SchedulingGroup,
    )
    from koordcore.model.policy import (
        GangTurns as GangTurns,
    )
    from koordcore.model.policy import (
        PluginSetting as PluginSetting,
    )
    from koordcore.model.policy import (
        Policy as Policy,
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
    from koordcore.model.quotas import ElasticQuota as ElasticQuota
    from koordcore.model.reservations import Reservation as Reservation
    from koordcore.model.scheduling_groups import (
        CompositePodGroup as CompositePodGroup,
    )
    from koordcore.model.scheduling_groups import (
        SchedulingPodGroup as SchedulingPodGroup,
    )
    from koordcore.result import ScheduleResult as ScheduleResult
    from koordcore.scheduling.backfilling import (
        backfill as backfill,
    )
    from koordcore.scheduling.backfilling import (
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
            "koordcore.checking.entry": "check_certificate verify",
            "koordcore.checking.violation": "Violation ViolationKind",
            "koordcore.colocation.cluster": "lend",
            "koordcore.descheduling.defrag": "plan_defragmentation",
            "koordcore.descheduling.plans": "plan_cooling plan_room",
            "koordcore.errors": "KoordcoreError ManifestError MissingExtraError ModelError SolverError",
            "koordcore.explaining.pod": "Explanation explain",
            "koordcore.manifests.bundle": "load snapshot_from_objects",
            "koordcore.manifests.named_policies": "named_policy",
            "koordcore.manifests.plan_patches": "patches",
            "koordcore.model.affinity": "Affinity Taint Toleration TopologySpreadConstraint",
            "koordcore.model.certificates": "Certificate CertificateStatus Limits",
            "koordcore.model.claims": "DeviceClass ResourceClaim ResourceSlice",
            "koordcore.model.cluster": "PodDisruptionBudget PriorityClass",
            "koordcore.model.decisions": (
                "Bound JobPlan NearMiss Nominated NotOurs PodDecision Rejection Shortfall "
                "Unschedulable Victim Waiting"
            ),
            "koordcore.model.devices": "DeviceInventory",
            "koordcore.model.gangs": "GatherRule NetworkTopologySpec PodGroup",
            "koordcore.model.metrics": "NodeMetric",
            "koordcore.model.network": "ClusterNetworkTopology",
            "koordcore.model.nodes": "Node NodeState",
            "koordcore.model.numa": "NodeResourceTopology",
            "koordcore.model.pods": "Container Pod PodKey SchedulingGroup",
            "koordcore.model.policy": "GangTurns PluginSetting Policy",
            "koordcore.model.preemption": "Gather Members PreemptionPlan PreemptionRules Relocation",
            "koordcore.model.quotas": "ElasticQuota",
            "koordcore.model.reservations": "Reservation",
            "koordcore.model.scheduling_groups": "CompositePodGroup SchedulingPodGroup",
            "koordcore.result": "ScheduleResult",
            "koordcore.scheduling.backfilling": "backfill earliest_start",
            "koordcore.scheduling.cycle": "queue_order",
            "koordcore.scheduling.entry": "schedule",
            "koordcore.simulate.compare": "compare_policies",
            "koordcore.simulate.scheduled": "replay_schedule",
            "koordcore.snapshot.cluster": "ClusterSnapshot",
        },
    )

__version__ = "0.1.0"
