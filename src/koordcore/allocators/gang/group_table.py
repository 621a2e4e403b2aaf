"""Kubernetes' own groups as the loop sees them: which pods belong together, and whether they may be tried.

One form for every dialect: a PodGroup, a CompositePodGroup, and each replica key of a group of a v1alpha1
Workload is a node of a tree whose leaves have pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.gang.members import grouped_members, in_two_gangs
from koordcore.model.cluster import PriorityClass
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    SchedulingPodGroup,
    SchedulingWorkload,
    leaf_id,
)
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOBODY: Final[immutabledict[str, tuple[Pod, ...]]] = immutabledict()


@record(kw_only=True)
class GroupNode:
    """One group.

    Parameters
    ----------
    id
        Tells it from groups of other kinds and namespaces: ``podgroup:namespace/name`` and the like.
    name
        As texts have it.
    least
        Members (of a leaf) or children that must succeed; 1 under policy basic.
    gang
        Policy gang.
    leaf
        It has pods, not groups.
    key
        Label of which everybody below needs one value; empty for none.
    parent
        Id of the group above; empty for a root.
    disruption, preemption_policy
        As on the object.
    priority
        Resolved, 0 where nothing says it; ``None`` for groups of v1alpha1, where the pods' own counts.
    """

    id: str
    name: str
    least: int
    gang: bool
    leaf: bool = True
    key: str = ""
    parent: str = ""
    disruption: DisruptionMode = DisruptionMode.SINGLE
    priority: int | None = 0
    preemption_policy: PreemptionPolicy | None = None
    created: datetime = _EPOCH


@record(eq=False, kw_only=True)
class GroupTable:
    """All groups of a snapshot with their pods.

    Parameters
    ----------
    nodes
        By id; groups of v1alpha1 Workloads as far as pods name them.
    children
        Ids of the groups below each, older ones first, then by name.
    pending, bound
        Members by leaf, by key. Who ran to an end is neither: the scheduler does not see it.
    """

    nodes: Mapping[str, GroupNode]
    children: Mapping[str, tuple[str, ...]]
    pending: Mapping[str, tuple[Pod, ...]]
    bound: Mapping[str, tuple[Pod, ...]]

    def chain(self, leaf: str) -> tuple[GroupNode, ...]:
        """List the groups from a leaf up, as far as they exist."""
        found: list[GroupNode] = []
        node = self.nodes.get(leaf)
        while node is not None and node not in found:
            found.append(node)
            node = self.nodes.get(node.parent)
        return tuple(found)

    def root_of(self, leaf: str) -> str:
        """Give the topmost group of a leaf that exists; the leaf where it does not exist itself."""
        above = self.chain(leaf)
        return above[-1].id if above else leaf

    def leaves(self, group: str) -> tuple[str, ...]:
        """List the leaves below a group, itself if it is one."""
        node = self.nodes.get(group)
        if node is None or node.leaf:
            return (group,)
        return tuple(chain.from_iterable(self.leaves(child) for child in self.children.get(group, ())))

    def missing(self, pod: Pod) -> str:
        """Say which object a pod waits for; empty when all are there."""
        leaf, group = leaf_id(pod), pod.scheduling_group
        assert group is not None
        above = self.chain(leaf)
        if not above:
            if not group.workload:
                return f'waiting for pods\'s pod group "{group.pod_group}" to appear in scheduling queue'
            workload = f"workload:{pod.namespace}/{group.workload}"
            if workload not in self.nodes:
                return f'waiting for pods\'s workload "{group.workload}" to appear in scheduling queue'
            return f'pod group "{group.pod_group}" doesn\'t exist for a workload "{group.workload}"'
        if above[-1].parent in {node.id for node in above}:
            names = " -> ".join(node.name for node in above)
            return f"failed to build hierarchy snapshot: parents form a cycle: {names}"
        if above[-1].parent:
            name = above[-1].parent.rpartition("/")[2]
            return f'failed to build hierarchy snapshot: composite pod group "{name}" not found'
        return ""

    def disruption_of(self, pod: Pod) -> tuple[str, int | None]:
        """Give the unit that a running member leaves with, empty for itself alone, and the unit's priority.

        The unit is the highest group above it that is disrupted as a whole; the priority is that of the
        topmost group that exists, ``None`` for the pod's own.
        """
        above = self.chain(leaf_id(pod)) if pod.scheduling_group is not None else ()
        if not above:
            return "", None
        whole = [node.id for node in above if node.disruption is DisruptionMode.ALL]
        return (whole[-1] if whole else ""), above[-1].priority

    def gate(self, root: str) -> str:
        """Say why a whole tree may not be tried yet (PreEnqueue); empty when it may."""
        for leaf in self.leaves(root):
            for pod in self.pending.get(leaf, ()):
                if pod.gated:
                    return f'waiting for pod "{pod.key}", which is gated'
        node = self.nodes[root]
        if self._ready(root):
            return ""
        if node.leaf:
            return "waiting for minCount pods from a gang to appear in scheduling queue" if node.gang else ""
        return f'waiting for composite pod group "{node.name}" tree to meet quorum'

    def _ready(self, group: str) -> bool:
        node = self.nodes[group]
        if not node.leaf:
            return sum(map(self._ready, self.children.get(group, ()))) >= node.least
        return len(self.pending.get(group, ())) + len(self.bound.get(group, ())) >= node.least

    def malformed(self, root: str, *, own_policy: bool | None) -> str:
        """Say why a tree is refused as a whole (SchedulerError); empty where its pods agree.

        Parameters
        ----------
        own_policy
            The root group's preemption policy counts; ``None`` where it says one.
        """
        node = self.nodes[root]
        pods = list(self._members(root))
        if not pods or node.priority is None:
            return ""
        scheduler = pods[0].scheduler_name
        for pod in pods:
            if pod.scheduler_name != scheduler:
                both = f'got: "{pod.scheduler_name}" and "{scheduler}"'
                return f"all pods in a single pod group should have the same .spec.schedulerName set, {both}"
        for pod in pods:
            if pod.priority != node.priority:
                return (
                    "all pods in a single pod group should have the same priority as the pod group's "
                    f"priority, got {pod.priority} and {node.priority}"
                )
        if own_policy or (own_policy is None and node.preemption_policy is not None):
            policy = node.preemption_policy or PreemptionPolicy.PREEMPT_LOWER_PRIORITY
            text = "same preemption policy as the pod group's preemption policy"
        else:
            policy, text = pods[0].preemption_policy, "same preemption policy"
        for pod in pods:
            if pod.preemption_policy is not policy:
                return (
                    f"all pods in a single pod group should have the {text}, "
                    f"got {pod.preemption_policy} and {policy}"
                )
        return ""

    def _members(self, root: str) -> Iterator[Pod]:
        for leaf in self.leaves(root):
            yield from self.pending.get(leaf, ())
        for leaf in self.leaves(root):
            yield from self.bound.get(leaf, ())


def group_table(snapshot: ClusterSnapshot) -> GroupTable:
    """Collect the groups of a snapshot and their pods; ask for it by ``snapshot.once``."""
    nodes = dict(_nodes(snapshot))
    pending, bound = _by_leaf(snapshot.pending), _by_leaf(_running(snapshot))
    # Groups of v1alpha1 Workloads exist once for every replica key that a pod names.
    for leaf in (*pending, *bound):
        if leaf.startswith("workload:"):
            workload, group, _ = leaf.rsplit("/", 2)
            template = nodes.get(f"{workload}/{group}")
            if template is not None:
                nodes[leaf] = attrs.evolve(template, id=leaf)
    below: dict[str, list[GroupNode]] = {}
    for node in nodes.values():
        if node.parent:
            below.setdefault(node.parent, []).append(node)
    return GroupTable(
        nodes=nodes,
        children={
            parent: tuple(one.id for one in sorted(ones, key=lambda one: (one.created, one.name)))
            for parent, ones in below.items()
        },
        pending=pending,
        bound=bound,
    )


def _running(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    """Give the members that are assigned, also to nodes that the snapshot does not have."""
    yield from grouped_members(snapshot)
    yield from (pod for pod in snapshot.of(Pod) if pod.bound)


def _by_leaf(pods: Iterator[Pod] | Sequence[Pod]) -> dict[str, tuple[Pod, ...]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.scheduling_group is not None and not in_two_gangs(pod):
            found.setdefault(leaf_id(pod), []).append(pod)
    return {leaf: tuple(ones) for leaf, ones in found.items()}


def _nodes(snapshot: ClusterSnapshot) -> Iterator[tuple[str, GroupNode]]:
    classes = {one.name: one.value for one in snapshot.of(PriorityClass)}
    fallback = max((one.value for one in snapshot.of(PriorityClass) if one.global_default), default=0)

    def priority(group: SchedulingPodGroup | CompositePodGroup) -> int:
        if group.priority is not None:
            return group.priority
        return classes.get(group.priority_class, 0) if group.priority_class else fallback

    groups: tuple[SchedulingPodGroup | CompositePodGroup, ...] = (
        *snapshot.of(SchedulingPodGroup),
        *snapshot.of(CompositePodGroup),
    )
    for group in groups:
        leaf = isinstance(group, SchedulingPodGroup)
        least = group.min_count if isinstance(group, SchedulingPodGroup) else group.min_groups
        node = GroupNode(
            id=group.id,
            name=group.name,
            least=least or 1,
            gang=least is not None,
            leaf=leaf,
            key=next(iter(group.topology_keys), ""),
            parent=group.parent_id,
            disruption=group.disruption,
            priority=priority(group),
            preemption_policy=group.preemption_policy,
            created=group.created or _EPOCH,
        )
        yield node.id, node
    for workload in snapshot.of(SchedulingWorkload):
        home = f"workload:{workload.namespace}/{workload.name}"
        if workload.pod_groups:
            yield home, GroupNode(id=home, name=workload.name, least=1, gang=False, leaf=False, priority=None)
        for name, minimum in workload.pod_groups.items():
            least = minimum or 1
            node = GroupNode(
                id=f"{home}/{name}", name=name, least=least, gang=minimum is not None, priority=None
            )
            yield node.id, node
