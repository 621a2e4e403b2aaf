"""Group identity: how the kernel's scheduler ranks the cpu time of pods (bvt).

Rules: upstream ``koordlet/runtimehooks/hooks/groupidentity``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.protocol.pod_qos import CPUQoS, ResourceQoS, cpu_qos_of
from koordcore.protocol.qos import LABEL_QOS_CLASS, KubernetesQoS, QoSClass

GROUP_IDENTITY_POLICY: Final = "groupIdentity"
"""The cpu policy under which identities are written; under any other they are 0."""

_CLASSES: Final = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)
_OFF: Final = CPUQoS(enable=False, group_identity=0, sched_idle=0, core_expeller=False)
_DEFAULTS: Final = immutabledict(
    {
        QoSClass.LSR: CPUQoS(False, 2, 0, True),
        QoSClass.LS: CPUQoS(False, 2, 0, True),
        QoSClass.BE: CPUQoS(False, -1, 0, False),
    }
)


@record(kw_only=True)
class GroupIdentityRule:
    """Values of a node, ready to be asked.

    Parameters
    ----------
    enabled
        Whether any class has one.
    by_class
        ``LSR``, ``LS`` and ``BE`` to value; 0 for a class that is not enabled.
    guaranteed
        Value of guaranteed pods without a QoS class of their own.
    """

    enabled: bool
    by_class: immutabledict[QoSClass, int]
    guaranteed: int

    def of_kubernetes(self, qos: str) -> int:
        """Value of a pod that has no QoS class of its own."""
        match qos:
            case KubernetesQoS.GUARANTEED:
                return self.guaranteed
            case KubernetesQoS.BURSTABLE:
                return self.by_class[QoSClass.LS]
            case KubernetesQoS.BEST_EFFORT:
                return self.by_class[QoSClass.BE]
            case _:
                return 0

    def of_class(self, qos: str) -> int | None:
        """Value of a QoS class; ``None`` for one that has no rule."""
        match qos:
            case QoSClass.LSE | QoSClass.LSR:
                return self.by_class[QoSClass.LSR]
            case QoSClass.LS | QoSClass.BE:
                return self.by_class[QoSClass(qos)]
            case _:
                return None

    def of_directory(self, qos: str) -> int:
        """Value of the control group directory of a Kubernetes QoS; the guaranteed one, the root, stays 0."""
        return 0 if qos == KubernetesQoS.GUARANTEED else self.of_kubernetes(qos)

    def of_host_application(self, qos: str) -> int:
        """Value of a process outside Kubernetes; 0 without a QoS class that has a rule."""
        return self.of_class(qos) or 0


def merged_cpu_qos(strategy: ResourceQoS | None) -> immutabledict[QoSClass, CPUQoS]:
    """Give what holds per class: defaults under what is said; all off for a class that is not enabled."""
    merged = {}
    for name in _CLASSES:
        said = strategy.classes[name].cpu if strategy and name in strategy.classes else CPUQoS()
        pairs = zip(attrs.astuple(_DEFAULTS[name]), attrs.astuple(said), strict=True)
        merged[name] = CPUQoS(*(old if new is None else new for old, new in pairs)) if said.enable else _OFF
    return immutabledict(merged)


def group_identity_rule(strategy: ResourceQoS | None) -> GroupIdentityRule:
    """Make the rule of a node.

    Parameters
    ----------
    strategy
        Of the NodeSLO; ``None`` where there is none.
    """
    policy = strategy.cpu_policy if strategy else ""
    follows = policy in ("", GROUP_IDENTITY_POLICY)
    merged = merged_cpu_qos(strategy)
    on = {name: bool(one.enable) and follows for name, one in merged.items()}
    values = {name: (one.group_identity or 0) if on[name] else 0 for name, one in merged.items()}
    guaranteed = 0
    if on[QoSClass.LSR]:
        guaranteed = values[QoSClass.LSR]
    elif on[QoSClass.LS]:
        guaranteed = values[QoSClass.LS]
    return GroupIdentityRule(enabled=any(on.values()), by_class=immutabledict(values), guaranteed=guaranteed)


def pod_identity(
    rule: GroupIdentityRule, labels: Mapping[str, str], annotations: Mapping[str, str], kubernetes_qos: str
) -> int:
    """Give the value that is written for a pod.

    The pod's annotation counts only with the label ``LS``, and only while it is enabled there: without
    ``enable: true`` an LS pod with the annotation gets 0.

    Parameters
    ----------
    rule
        Of the node.
    labels, annotations, kubernetes_qos
        The pod.

    Raises
    ------
    ManifestError
        When the annotation cannot be read, for a pod of any class; nothing is written then.
    """
    own = cpu_qos_of(annotations)
    label = labels.get(LABEL_QOS_CLASS, "")
    value = rule.of_class(label)
    if value is None:
        value = rule.of_kubernetes(kubernetes_qos)
    if own is None or label != QoSClass.LS:
        return value
    if not own.enable:
        return 0
    return value if own.group_identity is None else own.group_identity
