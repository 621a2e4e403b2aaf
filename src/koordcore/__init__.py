"""GPU-cluster scheduling as a pure library: snapshots in, proven decisions out.

A name is read from its module when it is first used: ``import koordcore`` loads neither numpy nor attrs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from koordcore.checking.entry import verify
    from koordcore.checking.violation import Violation, ViolationKind
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
    from koordcore.model.policy import PluginSetting, Policy
    from koordcore.model.preemption import Gather, Members, PreemptionPlan, PreemptionRules, Relocation
    from koordcore.result import ScheduleResult
    from koordcore.scheduling.entry import schedule
    from koordcore.snapshot import ClusterSnapshot

__all__ = [
    "Affinity",
    "Bound",
    "Certificate",
    "ClusterSnapshot",
    "Container",
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
    "PluginSetting",
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

_HOMES: Final = {
    "Affinity": "koordcore.model.affinity",
    "Bound": "koordcore.model.decisions",
    "Certificate": "koordcore.model.certificates",
    "ClusterSnapshot": "koordcore.snapshot",
    "Container": "koordcore.model.pods",
    "Gather": "koordcore.model.preemption",
    "JobPlan": "koordcore.model.decisions",
    "KoordcoreError": "koordcore.errors",
    "Limits": "koordcore.model.certificates",
    "ManifestError": "koordcore.errors",
    "Members": "koordcore.model.preemption",
    "MissingExtraError": "koordcore.errors",
    "ModelError": "koordcore.errors",
    "NearMiss": "koordcore.model.decisions",
    "Node": "koordcore.model.nodes",
    "NodeState": "koordcore.model.nodes",
    "Nominated": "koordcore.model.decisions",
    "PluginSetting": "koordcore.model.policy",
    "Pod": "koordcore.model.pods",
    "PodDecision": "koordcore.model.decisions",
    "PodKey": "koordcore.model.pods",
    "Policy": "koordcore.model.policy",
    "PreemptionPlan": "koordcore.model.preemption",
    "PreemptionRules": "koordcore.model.preemption",
    "Rejection": "koordcore.model.decisions",
    "Relocation": "koordcore.model.preemption",
    "ScheduleResult": "koordcore.result",
    "Shortfall": "koordcore.model.decisions",
    "SolverError": "koordcore.errors",
    "Taint": "koordcore.model.affinity",
    "Toleration": "koordcore.model.affinity",
    "TopologySpreadConstraint": "koordcore.model.affinity",
    "Unschedulable": "koordcore.model.decisions",
    "Victim": "koordcore.model.decisions",
    "Violation": "koordcore.checking.violation",
    "ViolationKind": "koordcore.checking.violation",
    "Waiting": "koordcore.model.decisions",
    "schedule": "koordcore.scheduling.entry",
    "verify": "koordcore.checking.entry",
}
"""Where the names are defined that are read when they are first used."""

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Read a name from its module, and keep it."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
