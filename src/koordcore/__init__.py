"""GPU-cluster scheduling as a pure library: snapshots in, proven decisions out."""

from koordcore.errors import KoordcoreError, ManifestError, MissingExtraError, ModelError, SolverError
from koordcore.model.affinity import Affinity, Taint, Toleration, TopologySpreadConstraint
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.decisions import (
    Bound,
    JobPlan,
    NearMiss,
    Nominated,
    PodDecision,
    Rejection,
    Shortfall,
    Unschedulable,
    Victim,
    Waiting,
)
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Container, Pod, PodKey
from koordcore.model.policy import FeatureSetting, Policy
from koordcore.model.preemption import Gather, Members, PreemptionPlan, PreemptionRules, Relocation
from koordcore.schedule import schedule
from koordcore.snapshot import ClusterSnapshot, ScheduleResult
from koordcore.verify import Violation, ViolationKind, verify

__all__ = [
    "Affinity",
    "Bound",
    "Certificate",
    "ClusterSnapshot",
    "Container",
    "FeatureSetting",
    "Gather",
    "JobPlan",
    "KoordcoreError",
    "Limits",
    "ManifestError",
    "Members",
    "MissingExtraError",
    "ModelError",
    "NearMiss",
    "Node",
    "NodeState",
    "Nominated",
    "Pod",
    "PodDecision",
    "PodKey",
    "Policy",
    "PreemptionPlan",
    "PreemptionRules",
    "Rejection",
    "Relocation",
    "ScheduleResult",
    "Shortfall",
    "SolverError",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "Unschedulable",
    "Victim",
    "Violation",
    "ViolationKind",
    "Waiting",
    "__version__",
    "schedule",
    "verify",
]

__version__ = "0.1.0"
