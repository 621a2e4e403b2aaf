"""How a pod is to be treated: QoS class, priority class, sub-priority and the resource names that follow.

The rules are those of ``apis/extension/{qos,priority,resource}.go`` and of Kubernetes' own QoS helper.
Functions take plain values (labels, ``spec.priority``, requests and limits), so that any record serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
)

LABEL_QOS_CLASS: Final = "koordinator.sh/qosClass"
LABEL_PRIORITY_CLASS: Final = "koordinator.sh/priority-class"
LABEL_PRIORITY: Final = "koordinator.sh/priority"


class QoSClass(StrEnum):
    """Koordinator's quality of service, from exclusive cpus down to best effort; ``NONE`` where unsaid."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class KubernetesQoS(StrEnum):
    """The quality of service that Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PriorityClass(StrEnum):
    """The four bands of ``spec.priority``; ``NONE`` for a pod in none of them."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


PRIORITY_BANDS: Final[Mapping[PriorityClass, tuple[int, int]]] = immutabledict(
    {
        PriorityClass.PROD: (9000, 9999),
        PriorityClass.MID: (7000, 7999),
        PriorityClass.BATCH: (5000, 5999),
        PriorityClass.FREE: (3000, 3999),
    }
)
"""Class to its lowest and highest priority, both included."""

DEFAULT_PRIORITY: Final[Mapping[PriorityClass, int]] = immutabledict(
    {
        PriorityClass.PROD: 9500,
        PriorityClass.MID: 7500,
        PriorityClass.BATCH: 5500,
        PriorityClass.FREE: 3500,
        PriorityClass.NONE: 0,
    }
)

_CLASS_RESOURCES: Final[Mapping[str, Mapping[str, str]]] = immutabledict(
    {
        PriorityClass.BATCH: immutabledict({CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}),
        PriorityClass.MID: immutabledict({CPU: MID_CPU, MEMORY: MID_MEMORY}),
    }
)
_QOS_CLASSES: Final = {member.value: member for member in QoSClass}
_PRIORITY_CLASSES: Final = {member.value: member for member in PriorityClass}
_QOS_OF_KUBERNETES: Final[Mapping[str, QoSClass]] = immutabledict(
    {
        KubernetesQoS.GUARANTEED: QoSClass.LSR,
        KubernetesQoS.BURSTABLE: QoSClass.LS,
        KubernetesQoS.BEST_EFFORT: QoSClass.BE,
    }
)


def parse_qos_class(text: str) -> QoSClass:
    """Read a QoS class; any other text is ``NONE``."""
    return _QOS_CLASSES.get(text, QoSClass.NONE)


def parse_priority_class(text: str) -> PriorityClass:
    """Read the name of a priority class; any other text is ``NONE``."""
    return _PRIORITY_CLASSES.get(text, PriorityClass.NONE)


def qos_class_of(labels: Mapping[str, str]) -> QoSClass:
    """Give the QoS class that the label names; ``NONE`` without label or with an unknown text."""
    return parse_qos_class(labels.get(LABEL_QOS_CLASS, ""))


def qos_class_with_default(labels: Mapping[str, str], kubernetes_qos: str) -> QoSClass:
    """Give the labelled QoS class or the one that stands for the Kubernetes QoS.

    Parameters
    ----------
    labels
        Labels of the pod.
    kubernetes_qos
        ``Guaranteed``, ``Burstable`` or ``BestEffort``: from the status or :func:`kubernetes_qos_of`.
    """
    return qos_class_of(labels) or _QOS_OF_KUBERNETES.get(kubernetes_qos, QoSClass.NONE)


def priority_class_of(labels: Mapping[str, str], priority: int | None) -> PriorityClass:
    """Give the class that the label names or else the one whose band holds the priority.

    A label that is present decides alone: with an unknown text the answer is ``NONE`` whatever the
    priority is.
    """
    text = labels.get(LABEL_PRIORITY_CLASS)
    if text is not None:
        return parse_priority_class(text)
    if priority is not None:
        for name, (low, high) in PRIORITY_BANDS.items():
            if low <= priority <= high:
                return name
    return PriorityClass.NONE


def priority_class_with_default(
    labels: Mapping[str, str], priority: int | None, kubernetes_qos: str
) -> PriorityClass:
    """Give the class of the pod, falling back to its QoS: best effort is batch, everything else is prod.

    Parameters
    ----------
    labels
        Of the pod; one may name the class.
    priority
        Of the pod; ``None`` where it has none.
    kubernetes_qos
        ``Guaranteed``, ``Burstable`` or ``BestEffort``.
    """
    named = priority_class_of(labels, priority)
    if named:
        return named
    match qos_class_with_default(labels, kubernetes_qos):
        case QoSClass.BE:
            return PriorityClass.BATCH
        case QoSClass.NONE:
            return PriorityClass.NONE
        case QoSClass.LSE | QoSClass.LSR | QoSClass.LS | QoSClass.SYSTEM:
            return PriorityClass.PROD


_INTEGER: Final = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hexadecimal>(?:_?[0-9a-fA-F])+)|0[bB](?P<binary>(?:_?[01])+)"
    r"|0[oO](?P<octal>(?:_?[0-7])+)|0(?P<old_octal>(?:_?[0-7])*)|(?P<decimal>[1-9](?:_?[0-9])*))\Z",
    re.ASCII,
)
_BASES: Final = {"hexadecimal": 16, "binary": 2, "octal": 8, "old_octal": 8, "decimal": 10}
_MAX_INTEGER_TEXT: Final = 256


def may_use_cpuset(labels: Mapping[str, str], priority: int | None) -> bool:
    """Tell whether a pod may be bound to CPUs: QoS LSE or LSR by label, and of class prod."""
    if qos_class_of(labels) not in (QoSClass.LSE, QoSClass.LSR):
        return False
    # The Kubernetes QoS decides only where the label is absent, which it is not here.
    return priority_class_with_default(labels, priority, "") is PriorityClass.PROD


def parse_integer(text: str) -> int:
    """Read an integer text whose base is told by its prefix, as Go's ``ParseInt(text, 0, 32)`` does.

    ``0x10`` is 16, ``010`` is 8, ``0b11`` is 3, and ``1_000`` is 1000.

    Raises
    ------
    ManifestError
        When the text is no such number or does not fit into 32 bits.

    Examples
    --------
    >>> [parse_integer(text) for text in ("-5", "0x10", "010", "1_000")]
    [-5, 16, 8, 1000]
    """
    match = _INTEGER.match(text) if len(text) <= _MAX_INTEGER_TEXT else None
    if match is None:
        raise ManifestError.at("", f'expected an integer, got "{text[:60]}"')
    kind, digits = next((name, match[name]) for name in _BASES if match[name] is not None)
    value = int(digits.replace("_", "") or "0", _BASES[kind])
    value = -value if match["sign"] == "-" else value
    if not -(1 << 31) <= value < 1 << 31:
        raise ManifestError.at("", f'expected an integer of 32 bits, got "{text[:60]}"')
    return value


def sub_priority(labels: Mapping[str, str]) -> int:
    """Give the pod's rank inside its priority class; 0 without label.

    Raises
    ------
    ManifestError
        When the label is no 32-bit integer.
    """
    text = labels.get(LABEL_PRIORITY, "")
    if not text:
        return 0
    try:
        return parse_integer(text)
    except ManifestError as error:
        raise error.within(f"metadata.labels[{LABEL_PRIORITY}]") from None


def resource_name(priority_class: str, name: str) -> str | None:
    """Give the name under which pods of a class ask for ``cpu`` or ``memory``.

    Returns
    -------
    str or None
        The name itself for prod and for no class, its batch or mid name, ``None`` where the class has none.
    """
    if priority_class in (PriorityClass.PROD, PriorityClass.NONE):
        return name
    return _CLASS_RESOURCES.get(priority_class, {}).get(name)


@record
class ContainerResources:
    """What one container asks for.

    Parameters
    ----------
    requests, limits
        Resource name to amount; any one unit per name.
    restartable
        An init container that goes on running (a sidecar).
    """

    requests: Mapping[str, int] = immutabledict()
    limits: Mapping[str, int] = immutabledict()
    restartable: bool = False


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in (CPU, MEMORY) if amounts.get(name, 0) > 0}


def _pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def kubernetes_qos_of(
    containers: Iterable[ContainerResources],
    init_containers: Iterable[ContainerResources] = (),
    pod_level: ContainerResources | None = None,
) -> KubernetesQoS:
    """Derive the Kubernetes QoS of a pod from its cpu and memory amounts.

    Parameters
    ----------
    containers, init_containers
        What each asks for, as sent (no defaulting of requests from limits).
    pod_level
        ``spec.resources``; where it names any amount, the containers do not count.
    """
    judged = [*containers, *init_containers]
    if pod_level is not None and any(map(_pod_level, [*pod_level.requests, *pod_level.limits])):
        judged = [pod_level]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for one in judged:
        for sums, amounts in ((requests, one.requests), (limits, one.limits)):
            for name, amount in _positive(amounts).items():
                sums[name] = sums.get(name, 0) + amount
        guaranteed = guaranteed and len(_positive(one.limits)) == 2
    if not requests and not limits:
        return KubernetesQoS.BEST_EFFORT
    if guaranteed and requests == limits:
        return KubernetesQoS.GUARANTEED
    return KubernetesQoS.BURSTABLE
