"""Kubernetes' own groups: nobody starts below a group that does not succeed, and labels hold groups together.

Re-derived from the objects; nothing here is shared with what decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.cluster import PriorityClass
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.pods import Pod, PodKey
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

Key: TypeAlias = tuple[str, ...]
"""A leaf as pods name it: namespace, workload or nothing, group, replica; or a composite group's name."""
Group: TypeAlias = SchedulingPodGroup | CompositePodGroup


def check_groups(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """Everybody who comes belongs to groups that reach their minimums, each in one domain of its label.

    Parameters
    ----------
    snapshot, result
        Before, and what was decided.
    standing
        The members run already: a group above them may be gone, or be left out of the dump.
    """
    members: dict[Key, list[Pod]] = defaultdict(list)
    waiting: dict[Key, list[Pod]] = defaultdict(list)
    for pod in (*result.snapshot.bound_pods(), *(one for one in snapshot.of(Pod) if one.bound)):
        if pod.scheduling_group is not None:
            members[leaf_of(pod)].append(pod)
    for pod in snapshot.pending:
        if pod.scheduling_group is not None:
            waiting[leaf_of(pod)].append(pod)
    promised = {one.pod: one.node for one in result.decisions if isinstance(one, Nominated)}
    coming: dict[Key, list[Pod]] = defaultdict(list)
    for leaf, pods in waiting.items():
        coming[leaf] = [pod.at(promised[pod.key]) for pod in pods if pod.key in promised]
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    started = {leaf for leaf, pods in members.items() if any(pod.key in new for pod in pods)}
    if not started and not any(coming.values()):
        return
    book = _Book(snapshot)
    if standing:
        started = {leaf for leaf in started if book.tells(leaf)}
    yield from book.check(started, members, waiting)
    leaves = {leaf for leaf, pods in coming.items() if pods}
    together = {leaf: [*members.get(leaf, ()), *coming[leaf]] for leaf in {*members, *coming}}
    yield from book.check(leaves, together, waiting)
    for leaf in sorted(leaves & started):
        yield Violation(ViolationKind.GROUP, "/".join(leaf), "binds and evicts in one cycle")


def units_of(snapshot: ClusterSnapshot, running: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Give the pods that leave together or not at all (``disruptionMode: all``), by their unit's name."""
    book = _Book(snapshot)
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in running if book.known else ():
        whole = [group for group in book.path_of(pod) if group.disruption is DisruptionMode.ALL]
        if whole:
            found[f"{type(whole[-1]).__name__} {whole[-1].namespace}/{whole[-1].name}"].append(pod)
    return found


def group_priorities(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> dict[PodKey, int]:
    """Give the priority that counts for each pod: that of the topmost group above it, or its own."""
    book = _Book(snapshot)
    classes = {one.name: one.value for one in snapshot.of(PriorityClass)}
    fallback = max((one.value for one in snapshot.of(PriorityClass) if one.global_default), default=0)
    found: dict[PodKey, int] = {}
    for pod in pods:
        path = book.path_of(pod) if book.known else []
        found[pod.key] = pod.priority
        if path and path[-1].priority is not None:
            found[pod.key] = path[-1].priority
        elif path:
            named = path[-1].priority_class
            found[pod.key] = classes.get(named, 0) if named else fallback
    return found


def leaf_of(pod: Pod) -> Key:
    """Name the group of a pod that is in one."""
    group = pod.scheduling_group
    assert group is not None, "only members of groups are asked about"
    return (pod.namespace, group.workload, group.pod_group, group.replica)


class _Book:
    """The groups of a snapshot by what pods and groups call them."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._labels = {state.name: state.node.labels for state in snapshot.nodes}
        self._pods: dict[Key, SchedulingPodGroup] = {
            (one.namespace, "", one.name, ""): one for one in snapshot.of(SchedulingPodGroup)
        }
        self._composites = {(one.namespace, one.name): one for one in snapshot.of(CompositePodGroup)}
        self._workloads = {(one.namespace, one.name): one for one in snapshot.of(SchedulingWorkload)}
        self._children: dict[Key, list[Group]] = defaultdict(list)
        everybody: tuple[Group, ...] = (*self._pods.values(), *self._composites.values())
        for one in everybody:
            if one.parent:
                self._children[one.namespace, one.parent].append(one)

    def check(
        self, leaves: set[Key], members: Mapping[Key, list[Pod]], waiting: Mapping[Key, list[Pod]]
    ) -> Iterator[Violation]:
        """Check the trees of some leaves with the members that they have afterwards."""
        seen: set[Key] = set()
        for leaf in sorted(leaves):
            subject = "/".join(part for part in leaf if part)
            namespace, workload, name, _ = leaf
            if workload:
                known = self._workloads.get((namespace, workload))
                if known is None or name not in known.pod_groups:
                    yield Violation(ViolationKind.GROUP, subject, "starts although the object is missing")
                elif len(members.get(leaf, ())) < (known.pod_groups[name] or 1):
                    yield Violation(ViolationKind.GROUP, subject, "starts below its minimum")
                continue
            if not self.tells(leaf):
                yield Violation(ViolationKind.GROUP, subject, "starts although a group above is missing")
                continue
            path = self._path(leaf)
            for one in path:
                mark = (type(one).__name__, one.namespace, one.name)
                if mark not in seen:
                    seen.add(mark)
                    yield from self._group(one, members)
            root = ("root", namespace, path[-1].name)
            if root not in seen:
                seen.add(root)
                yield from self._agreed(path[-1], members, waiting)

    def tells(self, leaf: Key) -> bool:
        """Tell whether all groups above a leaf are there."""
        namespace, workload, _, _ = leaf
        if workload:
            return (namespace, workload) in self._workloads
        path = self._path(leaf)
        return bool(path) and not path[-1].parent

    @property
    def known(self) -> bool:
        """There are groups."""
        return bool(self._pods)

    def path_of(self, pod: Pod) -> list[Group]:
        """List the groups of a pod from its own up, as far as they exist."""
        group = pod.scheduling_group
        if group is None:
            return []
        return self._path((pod.namespace, group.workload, group.pod_group, group.replica))

    def _path(self, leaf: Key) -> list[Group]:
        group: Group | None = self._pods.get(leaf)
        path: list[Group] = []
        while group is not None and group not in path:
            path.append(group)
            group = self._composites.get((leaf[0], group.parent)) if group.parent else None
        return path

    def _below(self, group: Group, pods: Mapping[Key, list[Pod]]) -> list[Pod]:
        if isinstance(group, SchedulingPodGroup):
            return list(pods.get((group.namespace, "", group.name, ""), ()))
        return [
            pod for child in self._children[group.namespace, group.name] for pod in self._below(child, pods)
        ]

    def _succeeds(self, group: Group, members: Mapping[Key, list[Pod]]) -> bool:
        if isinstance(group, SchedulingPodGroup):
            return len(self._below(group, members)) >= (group.min_count or 1)
        children = self._children[group.namespace, group.name]
        return sum(self._succeeds(child, members) for child in children) >= (group.min_groups or 1)

    def _group(self, group: Group, members: Mapping[Key, list[Pod]]) -> Iterator[Violation]:
        subject = f"{group.namespace}/{group.name}"
        if not self._succeeds(group, members):
            least = group.min_count if isinstance(group, SchedulingPodGroup) else group.min_groups
            yield Violation(
                ViolationKind.GROUP, subject, f"somebody starts below its minimum of {least or 1}"
            )
        for key in group.topology_keys:
            values: set[str | None] = set()
            for pod in self._below(group, members):
                labels = self._labels.get(str(pod.node_name))
                values.add(None if labels is None or key not in labels else labels[key])
            if len(values) > 1 or None in values:
                found = sorted("no label" if value is None else value for value in values)
                yield Violation(ViolationKind.GROUP, subject, f"members lie in {found} of {key}")

    def _agreed(
        self, root: Group, members: Mapping[Key, list[Pod]], waiting: Mapping[Key, list[Pod]]
    ) -> Iterator[Violation]:
        """No member is gated, and all have one scheduler and the group's priority."""
        subject = f"{root.namespace}/{root.name}"
        pods = {pod.key: pod for pod in (*self._below(root, waiting), *self._below(root, members))}
        gated = [key for key, pod in sorted(pods.items()) if pod.gated]
        if gated:
            yield Violation(ViolationKind.GROUP, subject, f"starts although {gated[0]} is gated")
        yield from _one(subject, "schedulers", {key: pod.scheduler_name for key, pod in pods.items()})
        yield from _one(subject, "priorities", {key: str(pod.priority) for key, pod in pods.items()})


def _one(subject: str, what: str, values: Mapping[PodKey, str]) -> Iterator[Violation]:
    found = sorted(set(values.values()))
    if len(found) > 1:
        yield Violation(
            ViolationKind.GROUP, subject, f"starts although its pods have several {what}: {found}"
        )
