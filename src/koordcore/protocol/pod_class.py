"""Quality of service and priority class of a :class:`~koordcore.model.pods.Pod`."""

from __future__ import annotations

from koordcore.model.containers import Container
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.qos import (
    ContainerResources,
    KubernetesQoS,
    PriorityClass,
    QoSClass,
    kubernetes_qos_of,
    priority_class_of,
    priority_class_with_default,
    qos_class_with_default,
)


def _resources(container: Container) -> ContainerResources:
    return ContainerResources(container.requests, container.limits, container.restarts_always)


def kubernetes_qos(pod: Pod) -> str:
    """Give what the object's status says, or derive it from the containers.

    A pod made without containers is judged by its requests and limits as a whole.
    """
    if pod.kubernetes_qos:
        return pod.kubernetes_qos
    if not pod.containers and not pod.init_containers:
        return kubernetes_qos_of([ContainerResources(pod.requests, pod.limits)])
    level = ContainerResources(pod.pod_requests, pod.pod_limits)
    return kubernetes_qos_of(
        map(_resources, pod.containers),
        map(_resources, pod.init_containers),
        level if pod.pod_requests or pod.pod_limits else None,
    )


def pod_qos_class(pod: Pod) -> QoSClass:
    """Give the pod's QoS class by label, else the one that stands for its Kubernetes QoS."""
    return qos_class_with_default(pod.labels, kubernetes_qos(pod))


def pod_priority_class(pod: Pod) -> PriorityClass:
    """Give the pod's priority class by label, priority or QoS, in this order."""
    named = priority_class_of(pod.labels, pod.priority)
    if named:
        return named
    asks = pod.requests.get(CPU, 0) > 0 or pod.requests.get(MEMORY, 0) > 0
    if asks and not pod.overhead and not pod.kubernetes_qos:
        # Whoever asks for cpu or memory is not best effort; which of the others it is makes no difference.
        return priority_class_with_default(pod.labels, pod.priority, KubernetesQoS.BURSTABLE)
    return priority_class_with_default(pod.labels, pod.priority, kubernetes_qos(pod))
