"""What of a cluster a policy does not look at: a plan says nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.affinity import TaintEffect, UnsatisfiableAction
from koordcore.model.claims import ResourceClaim
from koordcore.model.cluster import Unreadable
from koordcore.model.devices import (
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    DeviceObject,
)
from koordcore.model.gangs import CoschedulingArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation, ReservationArgs
from koordcore.protocol.device import (
    DEPRECATED_NAMES,
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
)
from koordcore.protocol.gang_names import ANNOTATION_TOPOLOGY_SELECTOR
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT
from koordcore.protocol.numa import ANNOTATION_NUMA_TOPOLOGY_SPEC, ANNOTATION_RESOURCE_SPEC
from koordcore.protocol.numa_nodes import LABEL_NODE_NUMA_TOPOLOGY_POLICY
from koordcore.protocol.reservation import RESERVATION_AFFINITY
from koordcore.snapshot import ClusterSnapshot

CANNOT_BE_READ: Final = "cannot be read"


@record
class LeftOut:
    """Something that no decision looked at.

    Parameters
    ----------
    what
        A kind of objects, or what pods or nodes say; in the singular where ``count`` is 1.
    count
        How many there are; 0 for a setting.
    why
        Why nobody looked at it.
    """

    what: str
    count: int
    why: str

    def __str__(self) -> str:
        return " ".join((*([str(self.count)] if self.count else []), f"{self.what} ({self.why})"))


_RECORDS: Final[Mapping[str, tuple[str, type[ClusterRecord]]]] = immutabledict(
    {
        "Reservation": ("Reservation", Reservation),
        "ElasticQuota": ("ElasticQuota", ElasticQuota),
        "DeviceShare": ("Device", DeviceObject),
        "NodeNUMAResource": ("NodeResourceTopology", NodeResourceTopology),
        "LoadAwareScheduling": ("NodeMetric", NodeMetric),
        "DynamicResources": ("ResourceClaim", ResourceClaim),
    }
)
"""Plugin to the kind of objects that only it reads."""
_DEVICE_RESOURCES: Final = frozenset(
    {GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, RDMA, FPGA, *DEPRECATED_NAMES}
)


def _annotated(*keys: str) -> Callable[[Pod], bool]:
    return lambda pod: any(key in pod.annotations for key in keys)


def _picks_nodes(pod: Pod) -> bool:
    node = pod.affinity.node if pod.affinity else None
    return bool(pod.node_selector) or (node is not None and node.required is not None)


_PODS: Final[tuple[tuple[str, str, Callable[[Pod], bool]], ...]] = (
    ("DeviceShare", "with requests for devices", lambda pod: not _DEVICE_RESOURCES.isdisjoint(pod.requests)),
    (
        "DeviceShare",
        "with device hints",
        _annotated(DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE, GPU_PARTITION_SPEC),
    ),
    (
        "NodeNUMAResource",
        "with CPU or NUMA specs",
        _annotated(ANNOTATION_RESOURCE_SPEC, ANNOTATION_NUMA_TOPOLOGY_SPEC),
    ),
    ("Coscheduling", "with a network topology selector", _annotated(ANNOTATION_TOPOLOGY_SELECTOR)),
    (
        "SchedulingHint",
        "with a scheduling hint",
        _annotated(ANNOTATION_SCHEDULING_HINT, DEPRECATED_SCHEDULING_HINT),
    ),
    ("Reservation", "with reservation affinity", _annotated(RESERVATION_AFFINITY)),
    ("NodeResourcesFit", "with requests", lambda pod: bool(pod.requests)),
    ("NodeAffinity", "with a choice of nodes by labels", _picks_nodes),
    (
        "InterPodAffinity",
        "with pod affinity",
        lambda pod: bool(pod.affinity and (pod.affinity.pod or pod.affinity.anti)),
    ),
    ("PodTopologySpread", "with spread constraints", lambda pod: bool(pod.spread_constraints)),
    ("NodePorts", "with host ports", lambda pod: bool(pod.host_ports)),
    ("VolumeBinding", "with volume claims", lambda pod: bool(pod.claims)),
    ("NodeDeclaredFeatures", "that need features of nodes", lambda pod: bool(pod.features)),
)
"""Plugin, what pods say that only it heeds, and whether a pod does."""
_HARD: Final[Mapping[str, Callable[..., bool]]] = immutabledict(
    {
        "InterPodAffinity": lambda pod: any(
            one is not None and one.required
            for one in ((pod.affinity.pod, pod.affinity.anti) if pod.affinity else ())
        ),
        "PodTopologySpread": lambda pod: any(
            one.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE for one in pod.spread_constraints
        ),
    }
)
"""Plugin to whether a pod says what a score does not heed, where that is only a part of what it says."""
_KUBERNETES: Final = frozenset(
    {"NodeResourcesFit", "NodeAffinity", "InterPodAffinity", "PodTopologySpread", "NodePorts"}
    | {"VolumeBinding", "NodeUnschedulable", "TaintToleration", "NodeDeclaredFeatures"}
)
"""Plugins that heed what they are told here only where they filter."""
_NODES: Final[tuple[tuple[str, str, Callable[[Node], bool]], ...]] = (
    ("NodeUnschedulable", "cordoned", lambda node: node.unschedulable),
    (
        "TaintToleration",
        "tainted",
        lambda node: any(one.effect is not TaintEffect.PREFER_NO_SCHEDULE for one in node.taints),
    ),
    (
        "NodeNUMAResource",
        "with a NUMA topology policy",
        lambda node: LABEL_NODE_NUMA_TOPOLOGY_POLICY in node.labels,
    ),
)
"""Plugin, what nodes say that only it heeds, and whether a node does."""


def left_out(
    snapshot: ClusterSnapshot, policy: Policy, pods: Iterable[Pod], *, preempting: bool
) -> tuple[LeftOut, ...]:
    """List what bears on the places of pods and is not looked at under a policy.

    Parameters
    ----------
    pods
        Those that were decided about.
    preempting
        Whether the call could evict.
    """
    found = [*_unreadable(snapshot)]
    for profile, asked in _by_profile(policy, pods):
        here = {one.name for one in profile.plugins}
        found += _records(snapshot, profile, here)
        found += _counted(_PODS, asked, here, profile, "pod")
        found += _counted(_NODES, [state.node for state in snapshot.nodes], here, profile, "node")
        found += quota_trees(snapshot, profile)
        found += () if preempting else _preempting(profile)
    return tuple(dict.fromkeys(found))


def _by_profile(policy: Policy, pods: Iterable[Pod]) -> Iterable[tuple[Policy, list[Pod]]]:
    """Give the profiles that decide about somebody, each with those pods; the first where nobody is asked."""
    if not policy.others:
        return [(policy, list(pods))]
    asked: dict[int, list[Pod]] = {}
    for pod in pods:
        profile = policy.profile_of(pod.scheduler_name) or policy
        number = next(place for place, one in enumerate(policy.profiles) if one is profile)
        asked.setdefault(number, []).append(pod)
    return [(policy.profiles[number], asked[number]) for number in sorted(asked)] or [(policy, [])]


def _unreadable(snapshot: ClusterSnapshot) -> Iterator[LeftOut]:
    """Name the objects that cannot be read, whatever the policy."""
    for one in snapshot.of(Unreadable):
        name = f"{one.namespace}/{one.name}" if one.namespace else one.name
        yield LeftOut(f"{one.kind} {name}".strip(), 0, f"{CANNOT_BE_READ}: {one.why}")
    for held in snapshot.of(Reservation):
        if held.unreadable:
            room = f"what it is known to hold on {held.status.node_name} stays held"
            yield LeftOut(f"Reservation {held.name}", 0, f"{CANNOT_BE_READ}: {held.unreadable}; {room}")
    for pod in snapshot.bound_pods():
        if pod.unreadable:
            closed = f"; {pod.node_name} takes no other pod" if pod.conceals else ""
            yield LeftOut(f"Pod {pod.key}", 0, f"{CANNOT_BE_READ}: {pod.unreadable}{closed}")


def _records(snapshot: ClusterSnapshot, policy: Policy, here: set[str]) -> Iterator[LeftOut]:
    for plugin, (name, kind) in _RECORDS.items():
        if plugin not in here:
            count = sum(not (isinstance(one, Reservation) and one.over) for one in snapshot.of(kind))
            if count:
                yield LeftOut(_several(name, count), count, _absent(policy, plugin))


def _counted(
    table: Iterable[tuple[str, str, Callable[..., bool]]],
    things: Iterable[Pod | Node],
    here: set[str],
    policy: Policy,
    kind: str,
) -> Iterator[LeftOut]:
    filtering = {one.name for one in policy.plugins if one.filters}
    for plugin, saying, holds in table:
        scored = plugin in here and plugin in _KUBERNETES and plugin not in filtering
        served = plugin == "NodeResourcesFit" and "GpuShare" in filtering  # which counts what nodes have
        if (scored or plugin not in here) and not served:
            count = sum(map(_HARD.get(plugin, holds) if scored else holds, things))
            if count:
                why = f"the profile {policy.name} has {plugin} for its score alone"
                why = why if scored else _absent(policy, plugin)
                yield LeftOut(f"{kind}{'s' * (count > 1)} {saying}", count, why)


def quota_trees(snapshot: ClusterSnapshot, policy: Policy) -> Iterator[LeftOut]:
    """Name tree ids of quotas that do not count, because trees are not told apart."""
    setting = policy.plugin("ElasticQuota")
    if setting is None or (isinstance(setting.args, QuotaPolicy) and setting.args.multi_quota_tree):
        return
    count = sum(bool(one.tree) for one in snapshot.of(ElasticQuota))
    if count:
        what = "tree id of an ElasticQuota" if count == 1 else "tree ids of ElasticQuotas"
        yield LeftOut(what, count, "the feature gate MultiQuotaTree is off")


def _preempting(policy: Policy) -> Iterator[LeftOut]:
    for name, kind in (("Coscheduling", CoschedulingArgs), ("Reservation", ReservationArgs)):
        setting = policy.plugin(name)
        args = None if setting is None else setting.args
        if isinstance(args, kind) and args.enable_preemption:
            yield LeftOut(f"enablePreemption of {name}", 0, "this call evicts nobody; preempt=, or --preempt")


def _several(name: str, count: int) -> str:
    """Write a kind in the plural, as English has it: ``NodeResourceTopologies``."""
    if count == 1:
        return name
    return f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"


def _absent(policy: Policy, plugin: str) -> str:
    return f"the profile {policy.name} has no {plugin}"
