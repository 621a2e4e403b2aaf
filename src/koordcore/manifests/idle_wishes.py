"""What a pod wishes for in words that are known, and that do nothing for a pod like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.model.numa import CPUBindPolicy, CPUExclusivePolicy
from koordcore.model.pods import Pod
from koordcore.protocol.numa import ANNOTATION_RESOURCE_SPEC, ResourceSpec, resource_spec_of
from koordcore.protocol.qos import may_use_cpuset

_BINDING: Final = (CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS)
_EXCLUSIVE: Final = (CPUExclusivePolicy.PCPU_LEVEL, CPUExclusivePolicy.NUMA_NODE_LEVEL)


def idle_wishes(pod: Pod) -> Iterator[Problem]:
    """Give the wishes for CPUs that come to nothing."""
    if ANNOTATION_RESOURCE_SPEC not in pod.annotations:
        return
    try:
        spec = resource_spec_of(pod.annotations)
    except ManifestError:
        return  # said by the parser
    for name, wish in _idle_binding(spec, bound=may_use_cpuset(pod.labels, pod.priority)):
        yield Problem(f"metadata.annotations[{ANNOTATION_RESOURCE_SPEC}].{name}", wish)


def _idle_binding(spec: ResourceSpec, *, bound: bool) -> Iterator[tuple[str, str]]:
    policies = (
        ("requiredCPUBindPolicy", spec.required_cpu_bind_policy),
        ("preferredCPUBindPolicy", spec.preferred_cpu_bind_policy),
    )
    known = [name for name, policy in policies if policy in _BINDING]
    if spec.preferred_cpu_exclusive_policy in _EXCLUSIVE:
        known.append("preferredCPUExclusivePolicy")
    if not bound:
        for name in known:
            yield name, "only pods of QoS LSE or LSR and priority class koord-prod get CPUs of their own"
    for name, policy in policies:
        if policy == CPUBindPolicy.CONSTRAINED_BURST:
            yield name, f"{policy} binds a pod to no CPUs"
