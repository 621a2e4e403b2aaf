"""What Koordinator's validating webhook refuses of a pod, looked at once its priority is known.

Upstream's ``webhook/pod/validating/cluster_colocation_profile.go``: it takes QoS and priority as they are
written, so that a quality without a priority class counts as one with the class of nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.errors import Problem
from koordcore.model.pods import Pod
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, CPU
from koordcore.protocol.qos import (
    LABEL_PRIORITY_CLASS,
    LABEL_QOS_CLASS,
    PriorityClass,
    QoSClass,
    parse_priority_class,
    priority_class_of,
    qos_class_of,
)

_UNSUITABLE: Final[Mapping[QoSClass, tuple[PriorityClass, ...]]] = {
    QoSClass.BE: (PriorityClass.NONE, PriorityClass.PROD),
    QoSClass.LSR: (PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE),
}
_WHOLE_CPUS: Final = (QoSClass.LSR, QoSClass.LSE)
_MILLI: Final = 1000
_LABEL: Final = f"metadata.labels[{LABEL_QOS_CLASS}]"


def pod_problems(pod: Pod) -> Iterator[Problem]:
    """Give what the webhook would have said when the pod was made, each with its path."""
    quality = qos_class_of(pod.labels)
    band = _band(pod)
    if band in _UNSUITABLE.get(quality, ()):
        said = f"priority class {band}" if band else "no priority class"
        yield Problem(_LABEL, f"the webhook refuses {quality} together with {said}")
    lent = [name for name in (BATCH_CPU, BATCH_MEMORY) if pod.requests.get(name)]
    if lent and quality is not QoSClass.BE:
        asked = " and ".join(lent)
        yield Problem(_LABEL, f"the webhook refuses {asked} without {QoSClass.BE}")
    if quality in _WHOLE_CPUS:
        cpus = pod.requests.get(CPU, 0)
        if not cpus or cpus % _MILLI:
            asked = "none" if not cpus else f"{cpus}m"
            yield Problem(_LABEL, f"the webhook refuses {quality} without whole CPUs: requested are {asked}")


def _band(pod: Pod) -> PriorityClass:
    """Give the class as upstream reads it; by its name where nobody knows the name's number."""
    found = priority_class_of(pod.labels, pod.priority)
    if found or LABEL_PRIORITY_CLASS in pod.labels or pod.priority:
        return found
    return parse_priority_class(pod.priority_class)
