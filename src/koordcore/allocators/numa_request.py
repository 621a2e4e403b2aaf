"""What a pod wants of a node's CPUs and NUMA nodes, in itself and on a given node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.decisions import Shortfall
from koordcore.model.mappings import found_in
from koordcore.model.numa import (
    DEFAULT_NUMA_ARGS,
    CPUBindPolicy,
    CPUExclusivePolicy,
    NodeCPUBindPolicy,
    NUMAArgs,
)
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU, Resources, make_resources
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT
from koordcore.protocol.numa import (
    ANNOTATION_NUMA_TOPOLOGY_SPEC,
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    NUMATopologySpec,
    ResourceSpec,
    ResourceStatus,
    designated_status,
    numa_topology_spec_of,
    resource_spec_of,
)
from koordcore.protocol.qos import LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS, may_use_cpuset
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy

if TYPE_CHECKING:
    from koordcore.allocators.numa_state import NUMANode

_NOT_INTEGER: Final = "the requested CPUs must be integer"
_POLICY_MISMATCH: Final = "node(s) NUMA Topology policy not match"
_BINDING: Final = (CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS)
_NODE_POLICIES: Final = {
    NodeCPUBindPolicy.FULL_PCPUS_ONLY: CPUBindPolicy.FULL_PCPUS,
    NodeCPUBindPolicy.SPREAD_BY_PCPUS: CPUBindPolicy.SPREAD_BY_PCPUS,
}


@record
class NUMARefusal:
    """Why a node, or every node, cannot take a pod.

    Parameters
    ----------
    shortfalls
        At least one; upstream's texts.
    """

    shortfalls: tuple[Shortfall, ...]

    @classmethod
    def because(cls, *reasons: str, resolvable: bool = True) -> NUMARefusal:
        """Refuse for reasons without amounts."""
        return cls(tuple(Shortfall(reason, resolvable=resolvable) for reason in reasons))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The texts, sorted."""
        return tuple(sorted(shortfall.reason for shortfall in self.shortfalls))

    @property
    def resolvable(self) -> bool:
        """Evicting pods may help."""
        return all(shortfall.resolvable for shortfall in self.shortfalls)


@record(kw_only=True, cache_hash=True)
class CPURequest:
    """What a pod wants of CPUs and NUMA nodes, wherever it goes.

    Parameters
    ----------
    requests
        Amounts of the pod as a whole.
    bind
        The pod itself wants a cpuset.
    required, preferred
        Bind policy that must hold, and that is wished for; ``None`` for none. Only where ``bind``.
    exclusive
        Which neighbours its CPUs avoid. Only where ``bind``.
    numa_policy
        Topology policy of the pod; empty for none. A text that names none is refused by every node.
    numa_exclusive
        Whether it shares NUMA nodes with pods of the other kind; empty where unsaid.
    designated
        What it must be given, exactly.
    """

    requests: Resources
    bind: bool = False
    required: CPUBindPolicy | None = None
    preferred: CPUBindPolicy | None = None
    exclusive: CPUExclusivePolicy = CPUExclusivePolicy.NONE
    numa_policy: str = NUMATopologyPolicy.NONE
    numa_exclusive: str = NUMAExclusive.NONE
    designated: ResourceStatus | None = None

    @property
    def cpu(self) -> int:
        """Milli-CPU."""
        return self.requests.get(CPU, 0)

    @property
    def cpus_needed(self) -> int:
        """Whole CPUs."""
        return self.cpu // 1000

    @property
    def exclusive_here(self) -> NUMAExclusive:
        """Effective exclusiveness: a pod with a topology policy of its own is exclusive unless it says so."""
        if not self.numa_exclusive:
            return NUMAExclusive.REQUIRED if self.numa_policy else NUMAExclusive.NONE
        known = self.numa_exclusive in list(NUMAExclusive)
        return NUMAExclusive(self.numa_exclusive) if known else NUMAExclusive.PREFERRED


def parse_cpu_request(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    priority: int | None,
    requests: Mapping[str, int],
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    claiming: bool = False,
) -> CPURequest | NUMARefusal | None:
    """Resolve what a pod wants (upstream ``plugin.go: PreFilter``).

    Parameters
    ----------
    labels, annotations
        Of the pod.
    args
        Arguments of NodeNUMAResource.
    priority
        ``spec.priority``; ``None`` where unset.
    requests
        Amounts of the pod as a whole.
    claiming
        The pod has claims: a policy keeps it to NUMA nodes for the sake of their devices alone, too.

    Returns
    -------
    CPURequest or NUMARefusal or None
        ``None`` for a pod that asks for nothing; a refusal where no node can ever take it.

    Raises
    ------
    ManifestError
        When the resource-spec or numa-topology-spec annotation cannot be read.
    """
    amounts = tuple([pair for pair in requests.items() if pair[1]])
    texts = _UNSAID
    if annotations:
        texts = tuple([found_in(annotations, key) for key in _READ])
        if texts[-1] is None and texts[-2] is None and texts[-3] is not None:
            # Without a hint nobody reads what a bound pod was given, which is different for each.
            texts = (*texts[:-3], None, None, None)
    marks = tuple([found_in(labels, key) for key in _MARKS]) if labels else _UNMARKED
    return _read_request(marks, texts, priority, amounts, args, claiming or bool(amounts))


_READ: Final = (
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_NUMA_TOPOLOGY_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    ANNOTATION_SCHEDULING_HINT,
    DEPRECATED_SCHEDULING_HINT,
)
_MARKS: Final = (LABEL_QOS_CLASS, LABEL_PRIORITY_CLASS)
_UNSAID: Final[tuple[str | None, ...]] = (None,) * len(_READ)
_UNMARKED: Final[tuple[str | None, ...]] = (None,) * len(_MARKS)


# Most pods of a queue come out of few templates; what they say is read once.
@lru_cache(maxsize=4096)
def _read_request(
    marks: tuple[str | None, ...],
    texts: tuple[str | None, ...],
    priority: int | None,
    requests: tuple[tuple[str, int], ...],
    args: NUMAArgs,
    asks: bool,
) -> CPURequest | NUMARefusal | None:
    """Read a request out of nothing but what matters to it.

    Parameters
    ----------
    marks, texts
        Values of the labels ``_MARKS`` and of the annotations ``_READ``.
    requests
        Without zeros.
    """
    labels = {key: text for key, text in zip(_MARKS, marks, strict=True) if text is not None}
    annotations = {key: text for key, text in zip(_READ, texts, strict=True) if text is not None}
    spec = resource_spec_of(annotations)
    numa_spec = numa_topology_spec_of(annotations)
    amounts = make_resources(requests)
    if not asks:
        return None
    try:
        designated = designated_status(annotations)
    except ManifestError as error:
        return NUMARefusal.because(str(error), resolvable=False)
    request = CPURequest(
        requests=amounts,
        numa_policy=_known_policy(numa_spec),
        numa_exclusive=numa_spec.single_numa_node_exclusive,
        designated=designated,
    )
    if not may_use_cpuset(labels, priority):
        return request
    required, preferred = _bind_policies(spec, args)
    wanted = required or preferred
    if wanted not in _BINDING:
        return request
    if request.cpu % 1000:
        return NUMARefusal.because(_NOT_INTEGER, resolvable=False)
    if not request.cpu:
        return request
    exclusive = spec.preferred_cpu_exclusive_policy
    return attrs.evolve(
        request,
        bind=True,
        required=CPUBindPolicy(required) if required else None,
        preferred=CPUBindPolicy(wanted),
        exclusive=CPUExclusivePolicy(exclusive)
        if exclusive in list(CPUExclusivePolicy)
        else CPUExclusivePolicy.NONE,
    )


def _known_policy(spec: NUMATopologySpec) -> str:
    text = spec.numa_topology_policy
    return NUMATopologyPolicy(text) if text in list(NUMATopologyPolicy) else text


def _bind_policies(spec: ResourceSpec, args: NUMAArgs) -> tuple[str, str]:
    """Replace what a pod leaves to the default; empty where nothing is wished."""
    default = args.default_bind_policy or ""
    required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    return (
        default if required == CPUBindPolicy.DEFAULT else required,
        default if preferred in ("", CPUBindPolicy.DEFAULT) else preferred,
    )


def cpu_request_of(pod: Pod, args: NUMAArgs = DEFAULT_NUMA_ARGS) -> CPURequest | NUMARefusal | None:
    """Resolve what a pod wants; see :func:`parse_cpu_request`."""
    claiming = bool(pod.resource_claims)
    return parse_cpu_request(
        pod.labels, pod.annotations, pod.priority, pod.requests, args=args, claiming=claiming
    )


def completed_resource_spec(spec: ResourceSpec, request: CPURequest, node: NUMANode) -> ResourceSpec:
    """Fill in the bind policy that a pod left open, as it is written back when the pod is bound.

    An explicit policy is never overwritten.

    Parameters
    ----------
    spec
        What the pod says itself.
    request
        What it asks for, defaults of the plugin included.
    node
        Where it is bound; a node may set a bind policy.
    """
    policy, required = _policy_on(request, node)
    if policy is None:
        return spec
    text = policy
    needed, wished = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    if required and needed in ("", CPUBindPolicy.DEFAULT):
        needed = text
    if wished == CPUBindPolicy.DEFAULT or (not wished and not needed):
        wished = text
    return attrs.evolve(spec, required_cpu_bind_policy=needed, preferred_cpu_bind_policy=wished)


@record(kw_only=True, cache_hash=True)
class CPUDemand:
    """What a request comes to on one node.

    Parameters
    ----------
    request
        The request.
    bind
        CPUs are handed out as a cpuset, because pod or node wants it.
    bind_policy, required
        Effective policy, and whether it must hold.
    policy
        Effective topology policy.
    """

    request: CPURequest
    bind: bool
    bind_policy: CPUBindPolicy
    required: bool
    policy: NUMATopologyPolicy

    @property
    def strict(self) -> bool:
        """A bind policy or a topology policy must hold."""
        loose = self.policy in (NUMATopologyPolicy.NONE, NUMATopologyPolicy.BEST_EFFORT)
        return self.required or not loose


def _policy_on(request: CPURequest, node: NUMANode) -> tuple[CPUBindPolicy | None, bool]:
    if request.required is not None:
        return request.required, True
    if node.bind_policy:
        return _NODE_POLICIES[node.bind_policy], True
    return request.preferred, False


def bind_policies_conflict(request: CPURequest, node: NUMANode) -> bool:
    """Tell whether pod and node require different bind policies."""
    if request.required is None or not node.bind_policy:
        return False
    return request.required is not _NODE_POLICIES[node.bind_policy]


def demand_on(request: CPURequest, node: NUMANode) -> CPUDemand | NUMARefusal:
    """Resolve the policies of pod and node against each other."""
    merged = request.numa_policy or node.policy
    if request.numa_policy and node.policy and request.numa_policy != node.policy:
        return NUMARefusal.because(_POLICY_MISMATCH, resolvable=False)
    if merged not in list(NUMATopologyPolicy):
        return NUMARefusal.because(f'unknown NUMA topology policy "{merged}"', resolvable=False)
    if node.bind_policy and request.cpu % 1000:
        return NUMARefusal.because(_NOT_INTEGER, resolvable=False)
    if not request.requests and not node.zones:
        # Who has nothing but claims needs nothing of NUMA nodes that the node does not tell.
        merged = NUMATopologyPolicy.NONE
    policy, required = _policy_on(request, node)
    return CPUDemand(
        request=request,
        bind=request.bind or bool(node.bind_policy and request.cpu),
        bind_policy=policy or CPUBindPolicy.DEFAULT,
        required=required and policy is not None,
        policy=NUMATopologyPolicy(merged),
    )
